// norm: instance_norm, layer_norm and lrn of floats. The first two take mean and deviation of each row (a plane; the elements from
// `axis` on) in a launch of their own, a block a row: sums in another order than the reference's.
#include "cuda/families/element_family.h"
#include "cuda/families/float_function.h"
#include "program/math.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::Op;

/// Sums over a row of `count` elements, whose offsets are `split` of its number and `steps` of the element's.
constexpr const char* kStatistics = R"(OCTAVO_DEVICE float octavo_total(float mine, float* parts) {{
  octavo_barrier();
  parts[octavo_thread()] = mine;
  octavo_barrier();
  for (int half = 128; half > 0; half /= 2) {{
    if (octavo_thread() < half) parts[octavo_thread()] = __fadd_rn(parts[octavo_thread()], parts[octavo_thread() + half]);
    octavo_barrier();
  }}
  return parts[0];
}}
OCTAVO_KERNEL(256, 1) octavo_rows(const unsigned char* x0, unsigned char* w{open}) {{
  octavo_wait_for_previous();
  __shared__ float parts[256];
  unsigned row = (unsigned)octavo_block();
  long long base = 0;
{split}  float sum = 0.0f, squares = 0.0f, e[1];
  for (unsigned i = (unsigned)octavo_thread(); i < {count}u; i += 256u) {{
    unsigned rest = i;
    long long at = base;
{steps}    {load}(e, x0 + at);
    sum = __fadd_rn(sum, e[0]);
  }}
  const float mean = __fdiv_rn(octavo_total(sum, parts), {n});
  for (unsigned i = (unsigned)octavo_thread(); i < {count}u; i += 256u) {{
    unsigned rest = i;
    long long at = base;
{steps}    {load}(e, x0 + at);
    const float d = __fsub_rn(e[0], mean);
    squares = __fmaf_rn(d, d, squares);
  }}
  squares = octavo_total(squares, parts);
  if (octavo_thread() != 0) return;
  float* const out = (float*)w + 2ll * (unsigned)octavo_block();
  out[0] = mean;
  out[1] = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, {n}), {epsilon})));
}}
)";

class NormFamily final : public ElementFamily {
 public:
  NormFamily() : ElementFamily("norm", {{Op::instance_norm, Op::layer_norm, Op::lrn}, 0, Results::programmed}) {}
  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    for (const region::TensorRef& x : s.anchor.inputs) {
      if (!ir::is_float(x.dtype) || load_function(x.dtype).empty())
        return refuse("type of an input", ir::name_of(x.dtype), "a float type");
    }
    if (s.anchor.inputs[0].dims != s.space || s.space.size() < 2) return fail(ErrorKind::bad_engine, "a norm changes no shape");
    return s.anchor.op == Op::lrn ? lrn(s) : rows(s);
  }

 protected:
  /// Rows are read three times, by two launches.
  double seconds(const Region& r) const override {
    const double once = seconds_of_a_pass(r);
    return only(r).anchor.op == Op::lrn ? once : 2 * once;
  }

 private:
  static std::string bytes_of(const region::TensorRef& x) { return std::to_string(ir::size_of(x.dtype)); }

  static Result<ElementKernel> rows(const Stage& s) {
    const region::TensorRef& x = s.anchor.inputs[0];
    const bool instance = s.anchor.op == Op::instance_norm;
    const std::int64_t axis = instance ? 2 : s.anchor.as<ir::LayerNorm>().axis;
    const double epsilon = instance ? s.anchor.as<ir::InstanceNorm>().epsilon : s.anchor.as<ir::LayerNorm>().epsilon;
    const auto size = element_bytes(x);
    std::int64_t count = 1, number = 1;
    std::string split, steps, row = "0", element;
    AnchorText anchor;
    OpenNumbers before;  // of the rows' kernel
    const auto is_open = [&](std::size_t k) { return (s.open >> k & 1) != 0; };
    bool open_number = false;
    for (std::size_t k = s.space.size(); k-- > 0;) {
      const bool open_stride = (x.open.strides >> k & 1) != 0;
      element += fmt::format(" + c{} * {}", k, anchor.numbers.put({x.strides[k] * size, open_stride}, "ll"));
      if (s.space[k] == 1 && !is_open(k)) continue;
      if (static_cast<std::int64_t>(k) >= axis) {
        steps += fmt::format("    at += (rest % {0}u) * {1}ll;\n    rest /= {0}u;\n", s.space[k], x.strides[k] * size);
        count *= s.space[k];
      } else {
        split += fmt::format("  base += (row % {0}) * {1};\n  row /= {0};\n", before.put({s.space[k], is_open(k)}, "u"),
                             before.put({x.strides[k] * size, open_stride}, "ll"));
        row += fmt::format(" + c{} * {}", k, anchor.numbers.put({number, open_number}));
        open_number = open_number || is_open(k);
        number *= s.space[k];
      }
    }
    if (count >= (std::int64_t{1} << 31) || number >= (std::int64_t{1} << 31)) return refuse("elements", "beyond 2^31", "fewer");
    anchor.inputs = s.anchor.inputs;
    anchor.real = true;
    anchor.workspace_bytes = number * 8;
    anchor.functions = fmt::format(kStatistics, fmt::arg("open", before.parameters()), fmt::arg("split", split),
                                   fmt::arg("steps", steps), fmt::arg("count", count), fmt::arg("load", load_function(x.dtype)),
                                   fmt::arg("n", float_text(static_cast<float>(count))),
                                   fmt::arg("epsilon", float_text(static_cast<float>(epsilon))));
    Launch l = launch_of("octavo_rows", number, 256);
    l.counted = {number};
    l.arguments = {{Argument::Kind::buffer, x.buffer, x.offset}, {Argument::Kind::workspace, 0, 0}};
    before.add_to(l);
    anchor.before = {std::move(l)};
    // Scale and bias: a channel each, or broadcast to the row's dimensions.
    std::string parameters;
    for (std::size_t k = 1; k < s.anchor.inputs.size(); ++k) {
      const region::TensorRef& p = s.anchor.inputs[k];
      std::string at = "0ll";
      const std::size_t last = instance ? 2 : s.space.size();
      for (std::size_t d = 0; d < p.dims.size(); ++d) {
        if (p.dims[d] != 1) at += fmt::format(" + c{} * {}ll", last - p.dims.size() + d, p.strides[d] * element_bytes(p));
      }
      parameters += fmt::format("    float p{0}[1];\n    {1}(p{0}, x{0} + {2});\n", k, load_function(p.dtype), at);
    }
    const bool biased = s.anchor.inputs.size() > 2;
    anchor.body = fmt::format(R"(  {{
    const float* const row = (const float*)w + 2ll * ({row});
    float e[1];
    {load}(e, x0{element});
{parameters}    const float normal = __fmul_rn(__fsub_rn(e[0], row[0]), row[1]);
    acc[0] = {result};
  }}
)",
                              fmt::arg("row", row), fmt::arg("load", load_function(x.dtype)), fmt::arg("element", element),
                              fmt::arg("parameters", parameters),
                              fmt::arg("result", biased ? "__fmaf_rn(normal, p1[0], p2[0])" : "__fmul_rn(normal, p1[0])"));
    return element_kernel(s, std::move(anchor), {}, 1);
  }

  static Result<ElementKernel> lrn(const Stage& s) {
    const region::TensorRef& x = s.anchor.inputs[0];
    const auto& facts = s.anchor.as<ir::LocalResponse>();
    const std::int64_t window = facts.size, before = (window - 1) / 2;
    const auto size = element_bytes(x);
    if (window < 1) return fail(ErrorKind::bad_engine, fmt::format("lrn over {} channels", window));
    const float beta = static_cast<float>(facts.beta);
    std::string at = "0ll";
    for (std::size_t k = 0; k < s.space.size(); ++k) {
      if (k != 1) at += fmt::format(" + c{} * {}ll", k, x.strides[k] * size);
    }
    AnchorText anchor;
    anchor.inputs = {x};
    anchor.real = true;
    anchor.functions = float_function("octavo_power", [&](auto& m, int v) { return program::pow(m, v, m.imm(beta)); });
    anchor.body = fmt::format(R"(  {{
    const unsigned char* const pixel = x0 + {at};
    float e[1], squares = 0.0f;
    for (int k = max(0, c1 - {before}); k <= min({last}, c1 + {after}); ++k) {{
      {load}(e, pixel + k * {step}ll);
      squares = __fmaf_rn(e[0], e[0], squares);
    }}
    {load}(e, pixel + c1 * {step}ll);
    acc[0] = __fdiv_rn(e[0], octavo_power(__fmaf_rn({factor}, squares, {base})));
  }}
)",
                              fmt::arg("at", at), fmt::arg("before", before), fmt::arg("after", window - 1 - before),
                              fmt::arg("last", s.space[1] - 1), fmt::arg("load", load_function(x.dtype)),
                              fmt::arg("step", x.strides[1] * size),
                              fmt::arg("factor", float_text(static_cast<float>(facts.alpha) / static_cast<float>(window))),
                              fmt::arg("base", float_text(static_cast<float>(facts.bias))));
    return element_kernel(s, std::move(anchor), {}, 1);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(norm, NormFamily)

}  // namespace octavo::cuda
