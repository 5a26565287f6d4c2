// softmax: softmax and log_softmax of floats along one axis, in two launches: the largest element and the sum of each row into the
// workspace, then each result by itself. A short row is one thread's; a long one is a block's, as long as it fits its shared memory. Both add the
// exponentials in the reference's order. exp and log are the named functions of program/math.h.
#include "cuda/cost_model.h"
#include "cuda/families/element_family.h"
#include "cuda/families/float_function.h"
#include "cuda/text/sums.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::Op;

constexpr std::int64_t kShortRow = 64, kLongestRow = 10240;

// A thread a row.
constexpr const char* kBriefRows = R"(OCTAVO_KERNEL(256, 1) octavo_rows(const unsigned char* x0, unsigned char* w{open}) {{
  octavo_wait_for_previous();
  unsigned rest = (unsigned)octavo_block() * 256u + (unsigned)octavo_thread();
  if (rest >= {rows}) return;
  float* const out = (float*)w + 2ll * rest;
  long long base = 0;
{split}  float largest = __int_as_float((int)0xff800000u), sum = 0.0f, e[1];
  for (int i = 0; i < {extent}; ++i) {{
    {load}(e, x0 + base + i * {step});
    largest = octavo_gt(e[0], largest, e[0], largest);
  }}
  for (int i = 0; i < {extent}; ++i) {{
    {load}(e, x0 + base + i * {step});
    sum = __fadd_rn(sum, octavo_exp(__fsub_rn(e[0], largest)));
  }}
  out[0] = largest;
  out[1] = {sum};
}}
)";
// A block a row, a thread a block of its sum.
constexpr const char* kLongRows = R"(OCTAVO_KERNEL(256, 1) octavo_rows(const unsigned char* x0, unsigned char* w{open}) {{
  octavo_wait_for_previous();
  __shared__ float row[{room}], parts[256];
  unsigned rest = (unsigned)octavo_block();
  float* const out = (float*)w + 2ll * rest;
  long long base = 0;
{split}  float largest = __int_as_float((int)0xff800000u), sum = 0.0f, e[1];
  for (int i = octavo_thread(); i < {extent}; i += 256) {{
    {load}(e, x0 + base + i * {step});
    row[i] = e[0];
    largest = octavo_gt(e[0], largest, e[0], largest);
  }}
  parts[octavo_thread()] = largest;
  octavo_barrier();
  for (int i = 0; i < 256; ++i) largest = octavo_gt(parts[i], largest, parts[i], largest);
  for (int i = octavo_thread(); i < {extent}; i += 256) row[i] = octavo_exp(__fsub_rn(row[i], largest));
  octavo_barrier();
  if (octavo_thread() * {block} < {extent}) {{
    for (int i = octavo_thread() * {block}; i < {extent} && i < octavo_thread() * {block} + {block}; ++i) sum = __fadd_rn(sum, row[i]);
    parts[octavo_thread()] = sum;
  }}
  octavo_barrier();
  if (octavo_thread() != 0) return;
  sum = octavo_total(parts);
  out[0] = largest;
  out[1] = {sum};
}}
)";

class SoftmaxFamily final : public ElementFamily {
 public:
  SoftmaxFamily() : ElementFamily("softmax", {{Op::softmax, Op::log_softmax}, 1, Results::programmed}, 2) {}
  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    if (!ir::is_float(x.dtype) || load_function(x.dtype).empty())
      return refuse("type of the input", ir::name_of(x.dtype), "a float type");
    const auto rank = static_cast<std::int64_t>(s.space.size());
    const std::int64_t axis = s.anchor.as<ir::Along>().axis;
    if (x.dims != s.space || axis >= rank)
      return fail(ErrorKind::bad_engine, fmt::format("softmax over axis {} of {}", axis, ir::to_string(x.dims)));
    const auto a = static_cast<std::size_t>(axis);
    const std::int64_t extent = s.space[a], rows = ir::count(s.space) / extent;
    if (extent > kLongestRow) return refuse("elements of a row", extent, fmt::format("at most {}", kLongestRow));
    if (rows >= (std::int64_t{1} << 31)) return refuse("rows", rows, "less than 2^31");
    const auto size = element_bytes(x);
    std::string split, base = "0ll", row = "0", element = "0ll";
    std::int64_t step = 1;
    AnchorText anchor;
    OpenNumbers before;  // of the rows' kernel
    const auto is_open = [&](std::size_t k) { return (s.open >> k & 1) != 0; };
    bool open_step = false;
    for (std::size_t k = s.space.size(); k-- > 0;) {
      const bool open_stride = (x.open.strides >> k & 1) != 0;
      element += fmt::format(" + c{} * {}", k, anchor.numbers.put({x.strides[k] * size, open_stride}, "ll"));
      if (k == a || (s.space[k] == 1 && !is_open(k))) continue;
      split += fmt::format("  base += (rest % {0}) * {1};\n  rest /= {0};\n", before.put({s.space[k], is_open(k)}, "u"),
                           before.put({x.strides[k] * size, open_stride}, "ll"));
      row += fmt::format(" + c{} * {}", k, anchor.numbers.put({step, open_step}));
      open_step = open_step || is_open(k);
      step *= s.space[k];
    }
    const bool log = s.anchor.op == Op::log_softmax, brief = extent <= kShortRow;
    anchor.inputs = {x};
    anchor.real = true;
    anchor.workspace_bytes = rows * 8;
    anchor.functions = float_function("octavo_exp", [](auto& m, int v) { return program::exp(m, v); }) +
                       float_function("octavo_log", [](auto& m, int v) { return program::log(m, v); });
    const std::string all = before.put({rows, open_step}, "u"), of_row = before.put({extent, is_open(a)}),
                      step_of_row = before.put({x.strides[a] * size, (x.open.strides >> a & 1) != 0}, "ll");
    if (!brief)
      anchor.functions += is_open(a) ? total_of_open_blocks(fmt::format("({} + {}) / {}", of_row, kSumBlock - 1, kSumBlock))
                                     : total_of_blocks(parts(extent, kSumBlock));
    anchor.functions +=
        fmt::format(fmt::runtime(brief ? kBriefRows : kLongRows), fmt::arg("rows", all), fmt::arg("open", before.parameters()),
                    fmt::arg("split", split), fmt::arg("extent", of_row), fmt::arg("room", is_open(a) ? kLongestRow : extent),
                    fmt::arg("block", kSumBlock), fmt::arg("step", step_of_row), fmt::arg("load", load_function(x.dtype)),
                    fmt::arg("sum", log ? "octavo_log(sum)" : "sum"));
    Launch l = launch_of("octavo_rows", brief ? (rows + 255) / 256 : rows, 256);
    l.counted = {rows, brief ? 256 : 1};
    l.arguments = {{Argument::Kind::buffer, x.buffer, x.offset}, {Argument::Kind::workspace, 0, 0}};
    before.add_to(l);
    anchor.before = {std::move(l)};
    anchor.body = fmt::format(R"(  {{
    const float* const row = (const float*)w + 2ll * ({row});
    float e[1];
    {load}(e, x0 + {element});
    acc[0] = {result};
  }}
)",
                              fmt::arg("row", row), fmt::arg("load", load_function(x.dtype)), fmt::arg("element", element),
                              fmt::arg("result", log ? "__fsub_rn(__fsub_rn(e[0], row[0]), row[1])"
                                                     : "__fdiv_rn(octavo_exp(__fsub_rn(e[0], row[0])), row[1])"));
    return element_kernel(s, std::move(anchor), {}, 1);
  }

 protected:
  /// What one thread adds up of a long row after another, as measured on attention of ViT-B/16 on an H100.
  double seconds(const Region& r) const override {
    return seconds_of_a_pass(r) + static_cast<double>(ir::count(only(r).space)) * cost::kTermOfRow;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(softmax, SoftmaxFamily)

}  // namespace octavo::cuda
