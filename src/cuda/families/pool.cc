// pool: max_pool and avg_pool of u8 codes and floats. A thread reads the taps of its window for a run of channels; several threads share
// a large window where there are few results (a pooling over the whole image): then sums of floats are taken in another order than the
// reference's. The accumulator of an average of codes is the exact sum of (code - zero point), which the program divides.
#include "cuda/families/element_family.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;

constexpr std::int64_t kLongestRun = 16, kSharedRun = 4;  ///< channels of a thread
constexpr std::int64_t kThreadsWanted = 65536;
constexpr std::int64_t kUnrolledTaps = 64;
constexpr std::int64_t kTogether = 8;  ///< taps of a shared window of floats that a thread reads at once

class PoolFamily final : public ElementFamily {
 public:
  PoolFamily() : ElementFamily("pool", {{Op::max_pool, Op::avg_pool}, 1, Results::programmed}) {}
  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    const auto& w = s.anchor.as<ir::Window>();
    const std::size_t spatial = w.kernel.size();
    if (spatial == 0 || s.space.size() != spatial + 2)
      return fail(ErrorKind::bad_engine,
                  fmt::format("{}: a window of {} dimensions for {}", ir::name_of(s.anchor.op), spatial, ir::to_string(s.space)));
    const bool codes = x.dtype == DType::u8 && s.anchor.integer, max = s.anchor.op == Op::max_pool;
    if (!codes && x.dtype != DType::f32 && x.dtype != DType::f16 && x.dtype != DType::bf16)
      return fail(ErrorKind::unsupported, fmt::format("pooling of {}", ir::name_of(x.dtype)));
    const auto size = element_bytes(x);
    // A coordinate, whether it is inside, and whether it is inside the padded image (for the average's divisor), a loop each.
    std::string open, close, inside = "true", padded = "true";
    std::string at = fmt::format("c0 * {}ll + c1 * {}ll", x.strides[0] * size, x.strides[1] * size);
    std::int64_t taps = 1;
    for (const std::int64_t k : w.kernel) taps *= k;
    // Threads that share a window have every shared-th of its taps, three at least.
    const std::int64_t results =
        ir::count(s.space) / ((s.open & 1) != 0 ? std::max<std::int64_t>(s.space[0], 1) : 1);  // of any batch: of an image
    std::int64_t shared = 1;
    while (codes && shared < 32 && results / kSharedRun * shared < kThreadsWanted && shared * 6 <= taps) shared *= 2;
    if (!codes && taps >= 16 && whole(w, x, s.space)) {
      const std::int64_t vector = 16 / size;
      while (shared < 256 && results / vector * shared < kThreadsWanted && shared * 2 < taps) shared *= 2;
      if (shared > 1) return shared_floats(s, taps, shared, vector);
    }
    // Sums of floats of windows that nobody shares stay in the order of the taps: there a thread has fewer channels instead.
    std::int64_t run = shared > 1 ? kSharedRun : kLongestRun;
    while (taps > 9 && shared == 1 && run > 1 && results / run < kThreadsWanted) run /= 2;
    if (shared > 1) {
      const std::int64_t turns = (taps + shared - 1) / shared;
      open = fmt::format("    {}\n    for (int turn = 0; turn < {}; ++turn) {{\n      int rest_taps = share + turn * {};\n",
                         turns <= 8 ? "OCTAVO_UNROLL" : "OCTAVO_NO_UNROLL", turns, shared);
      inside = fmt::format("share + turn * {} < {}", shared, taps);
      for (std::size_t d = spatial; d-- > 0;)
        open += fmt::format("      const int t{0} = rest_taps % {1};\n      rest_taps /= {1};\n", d, w.kernel[d]);
      close = "    }";
    }
    // Of a maximum every tap may count twice: taps outside the image are replaced by the nearest one inside, and reads wait for no test.
    bool nearest = max;
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::int64_t last = (s.space[d + 2] - 1) * w.strides[d] - w.pads[d];  // the first tap of the last window
      nearest = nearest && w.dilations[d] == 1 && w.pads[d] < w.kernel[d] && last < x.dims[d + 2];
    }
    for (std::size_t d = 0; d < spatial; ++d) {
      if (shared == 1)
        open += fmt::format("    {}\n    for (int t{} = 0; t{} < {}; ++t{}) {{\n",
                            taps <= kUnrolledTaps ? "OCTAVO_UNROLL" : "OCTAVO_NO_UNROLL", d, d, w.kernel[d], d);
      open += fmt::format("      int p{} = c{} * {} - {} + t{} * {};\n", d, d + 2, w.strides[d], w.pads[d], d, w.dilations[d]);
      if (nearest)
        open += fmt::format("      p{0} = p{0} < 0 ? 0 : p{0} > {1} ? {1} : p{0};\n", d, x.dims[d + 2] - 1);
      else
        inside += fmt::format(" && (unsigned)p{} < {}u", d, x.dims[d + 2]);
      padded += fmt::format(" && p{} < {}", d, x.dims[d + 2] + w.pads[spatial + d]);
      at += fmt::format(" + p{} * {}ll", d, x.strides[d + 2] * size);
      if (shared == 1) close += "    }";
    }
    const char* type = codes ? "int" : "float";
    const std::int32_t zero = codes && !max && x.quantizer ? x.quantizer->zero_point[0] : 0;
    const char* start = !max ? (codes ? "0" : "0.0f") : codes ? "0" : "__int_as_float((int)0xff800000u)";
    AnchorText anchor;
    anchor.inputs = {x};
    anchor.real = !codes;
    anchor.shared = static_cast<int>(shared);
    if (shared > 1)
      anchor.functions =
          fmt::format("OCTAVO_DEVICE int octavo_add(int a, int b) {{ return {}; }}\n", max ? "a > b ? a : b" : "a + b");
    const bool divides = !codes && !max, all = w.count_include_pad;
    std::string fold = codes ? (max ? "e[v] > acc[v] ? e[v] : acc[v]" : fmt::format("acc[v] + (e[v] - {})", zero))
                             : (max ? "octavo_gt(e[v], acc[v], e[v], acc[v])" : "__fadd_rn(acc[v], e[v])");
    anchor.body = fmt::format(R"(  {{
    OCTAVO_UNROLL
    for (int v = 0; v < kRun; ++v) acc[v] = {start};
    int counted = 0;
{open}      {count}
      if ({inside}) {{
        {type} e[kRun];
        {load}(e, x0 + {at});
        OCTAVO_UNROLL
        for (int v = 0; v < kRun; ++v) acc[v] = {fold};
      }}
{close}
{divide}  }}
)",
                              fmt::arg("start", start), fmt::arg("open", open),
                              fmt::arg("count", divides ? fmt::format("counted += {} ? 1 : 0;", all ? padded : inside) : ""),
                              fmt::arg("inside", inside), fmt::arg("type", type), fmt::arg("load", load_function(x.dtype)),
                              fmt::arg("at", at), fmt::arg("fold", fold), fmt::arg("close", close),
                              fmt::arg("divide", divides ? "    OCTAVO_UNROLL\n    for (int v = 0; v < kRun; ++v) acc[v] = "
                                                           "__fdiv_rn(acc[v], __int2float_rn(counted));\n"
                                                         : "    (void)counted;\n"));
    if (max && codes) {  // bytes in pairs: the greater of 16 bits has the greater upper byte
      anchor.body = fmt::format(R"(  {{
    constexpr int kWords = (kRun + 3) / 4;
    unsigned even[kWords] = {{}}, odd[kWords] = {{}};
{open}      if ({inside}) {{
        unsigned word[kWords];
        octavo_read_words<kRun>(word, x0 + {at});
        OCTAVO_UNROLL
        for (int v = 0; v < kWords; ++v) {{
          even[v] = octavo_max_pairs(even[v], word[v] & 0x00ff00ffu);
          odd[v] = octavo_max_pairs(odd[v], word[v]);
        }}
      }}
{close}
    OCTAVO_UNROLL
    for (int v = 0; v < kRun; ++v) acc[v] = (int)((v % 2 == 0 ? even[v / 4] : odd[v / 4]) >> (8 * (v % 4)) & 255u);
  }}
)",
                                fmt::arg("open", open), fmt::arg("inside", inside), fmt::arg("at", at), fmt::arg("close", close));
    }
    return element_kernel(s, std::move(anchor), {followed_along(x, 1, 1, s.space)}, run);
  }

 private:
  /// Does every window lie inside the image?
  static bool whole(const ir::Window& w, const region::TensorRef& x, const ir::Shape& space) {
    for (std::size_t d = 0; d < w.kernel.size(); ++d) {
      const std::int64_t last = (space[d + 2] - 1) * w.strides[d] + (w.kernel[d] - 1) * w.dilations[d];
      if (w.pads[d] != 0 || last >= x.dims[d + 2]) return false;
    }
    return true;
  }

  /// `shared` threads have every shared-th tap of a window inside the image.
  static Result<ElementKernel> shared_floats(const Stage& s, std::int64_t taps, std::int64_t shared, std::int64_t run) {
    const region::TensorRef& x = s.anchor.inputs[0];
    const auto& w = s.anchor.as<ir::Window>();
    const bool max = s.anchor.op == Op::max_pool;
    const auto size = element_bytes(x);
    const std::int64_t together = std::min(kTogether, (taps + shared - 1) / shared),
                       rounds = (taps + shared * together - 1) / (shared * together);
    std::string at = fmt::format("c0 * {}ll + c1 * {}ll", x.strides[0] * size, x.strides[1] * size), place;
    for (std::size_t d = w.kernel.size(); d-- > 0;) {
      place += fmt::format("        const int p{0} = c{1} * {2} + rest_taps % {3} * {4};\n        rest_taps /= {3};\n", d, d + 2,
                           w.strides[d], w.kernel[d], w.dilations[d]);
      at += fmt::format(" + p{} * {}ll", d, x.strides[d + 2] * size);
    }
    const char* none = max ? "__int_as_float((int)0xff800000u)" : "0.0f";
    AnchorText anchor;
    anchor.inputs = {x};
    anchor.real = true;
    anchor.shared = static_cast<int>(shared);
    anchor.functions = fmt::format("OCTAVO_DEVICE float octavo_add(float a, float b) {{ return {}; }}\n",
                                   max ? "octavo_gt(b, a, b, a)" : "__fadd_rn(a, b)");
    if (!max)
      anchor.finish =
          fmt::format("  for (int v = 0; v < kRun; ++v) acc[v] = __fdiv_rn(acc[v], {});\n", float_text(static_cast<float>(taps)));
    anchor.body =
        fmt::format(R"(  {{
    OCTAVO_UNROLL
    for (int v = 0; v < kRun; ++v) acc[v] = {none};
    OCTAVO_NO_UNROLL
    for (int round = 0; round < {rounds}; ++round) {{
      float e[{together}][kRun];
      OCTAVO_UNROLL
      for (int k = 0; k < {together}; ++k) {{
        const int tap = share + (round * {together} + k) * {shared};
        int rest_taps = tap < {taps} ? tap : 0;
{place}        {load}(e[k], x0 + {at});
        OCTAVO_UNROLL
        for (int v = 0; v < kRun; ++v) e[k][v] = tap < {taps} ? e[k][v] : {none};
      }}
      OCTAVO_UNROLL
      for (int k = 0; k < {together}; ++k) {{
        OCTAVO_UNROLL
        for (int v = 0; v < kRun; ++v) acc[v] = octavo_add(acc[v], e[k][v]);
      }}
    }}
  }}
)",
                    fmt::arg("none", none), fmt::arg("rounds", rounds), fmt::arg("together", together), fmt::arg("shared", shared),
                    fmt::arg("taps", taps), fmt::arg("place", place), fmt::arg("load", load_function(x.dtype)), fmt::arg("at", at));
    return element_kernel(s, std::move(anchor), {followed_along(x, 1, 1, s.space)}, run);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(pool, PoolFamily)

}  // namespace octavo::cuda
