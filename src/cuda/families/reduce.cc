// reduce: maximum, minimum, sum, mean, product and Euclidean norm over any axes, of u8 codes and floats. Up to 256 threads share the
// elements that meet in one run of results, and fold what they have through shared memory: float sums are taken in blocks of 128 elements of a
// thread, in another order than the reference's. The maximum and the minimum of a NaN are NaN.
#include <algorithm>

#include "cuda/families/element_family.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;

class ReduceFamily final : public ElementFamily {
 public:
  ReduceFamily()
      : ElementFamily("reduce", {{Op::reduce_max, Op::reduce_min, Op::reduce_mean, Op::reduce_sum, Op::reduce_prod, Op::reduce_l2},
                                 1,
                                 Results::programmed}) {}
  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    const Op op = s.anchor.op;
    const bool codes = x.dtype == DType::u8 && s.anchor.integer;
    const bool sums = op == Op::reduce_sum || op == Op::reduce_mean;
    if (!codes && (!ir::is_float(x.dtype) || load_function(x.dtype).empty()))
      return refuse("type of the input", ir::name_of(x.dtype), "codes or a float type");
    if (codes && !sums && op != Op::reduce_max && op != Op::reduce_min)
      return refuse("reduction of codes", ir::name_of(op), "a sum, a mean, a maximum or a minimum");
    const auto size = element_bytes(x);
    std::vector<char> reduced(x.dims.size(), 0);
    const ir::Shape& axes = s.anchor.as<ir::Reduction>().axes;
    for (const std::int64_t a : axes) reduced[static_cast<std::size_t>(a)] = 1;
    if (axes.empty()) std::fill(reduced.begin(), reduced.end(), 1);
    const bool keep = s.space.size() == x.dims.size();
    std::string first = "0ll", steps;
    std::int64_t count = 1;
    std::size_t next = 0, from = 0, along = 0;
    for (std::size_t k = 0; k < x.dims.size(); ++k) {
      const std::size_t at = keep ? k : next;
      if (reduced[k] == 0 || keep) ++next;
      if (reduced[k] != 0) {
        count *= x.dims[k];
        continue;
      }
      if (at >= s.space.size() || s.space[at] != x.dims[k])
        return fail(ErrorKind::bad_engine,
                    fmt::format("reducing {} does not give {}", ir::to_string(x.dims), ir::to_string(s.space)));
      first += fmt::format(" + c{} * {}ll", at, x.strides[k] * size);
      if ((x.dims[k] > 1 || (x.open.dims >> k & 1) != 0) && (x.strides[k] == 1 || along == 0)) from = k, along = at;
    }
    if (count == 0) return refuse("elements to reduce", 0, "some");
    if (count >= (std::int64_t{1} << 31)) return refuse("elements to reduce", count, "less than 2^31");
    for (std::size_t k = x.dims.size(); k-- > 0;) {
      if (reduced[k] == 0 || x.dims[k] == 1) continue;
      steps += fmt::format("      at += (rest % {0}) * {1}ll;\n      rest /= {0};\n", x.dims[k], x.strides[k] * size);
    }
    // With few results, several threads share the elements of one. A power of two, so that results of a block are whole.
    const std::int64_t results =
        ir::count(s.space) / ((s.open & 1) != 0 ? std::max<std::int64_t>(s.space[0], 1) : 1);  // of any batch: of an image
    std::int64_t shared = 1;
    while (shared < 256 && results / 4 * shared < 65536 && shared * 8 < count) shared *= 2;
    const char* type = codes ? "int" : "float";
    const std::int32_t zero = codes && sums && x.quantizer ? x.quantizer->zero_point[0] : 0;
    std::string start, fold, add;
    switch (op) {
      case Op::reduce_max:
        start = codes ? "0" : "__int_as_float((int)0xff800000u)";
        fold = codes ? "(e > a ? e : a)" : "octavo_gt(e, a, e, octavo_eq(e, e, a, e))";
        break;
      case Op::reduce_min:
        start = codes ? "255" : "__int_as_float((int)0x7f800000u)";
        fold = codes ? "(e < a ? e : a)" : "octavo_lt(e, a, e, octavo_eq(e, e, a, e))";
        break;
      case Op::reduce_prod: start = "1.0f", fold = "__fmul_rn(a, e)"; break;
      case Op::reduce_l2: start = "0.0f", fold = "__fmaf_rn(e, e, a)", add = "__fadd_rn(a, e)"; break;
      default:
        start = codes ? "0" : "0.0f", fold = codes ? fmt::format("a + (e - {})", zero) : "__fadd_rn(a, e)",
        add = codes ? "a + e" : fold;
    }
    if (add.empty()) add = fold;
    std::string finish;
    if (!codes && op == Op::reduce_mean)
      finish = fmt::format("acc[v] = __fdiv_rn(acc[v], {});", float_text(static_cast<float>(count)));
    if (op == Op::reduce_l2) finish = "acc[v] = __fsqrt_rn(acc[v]);";
    AnchorText anchor;
    anchor.inputs = {x};
    anchor.real = !codes;
    anchor.functions = fmt::format(
        "OCTAVO_DEVICE {0} octavo_fold({0} a, {0} e) {{ return {1}; }}\nOCTAVO_DEVICE {0} octavo_add({0} a, {0} e) {{ return {2}; "
        "}}\n",
        type, fold, add);
    anchor.shared = static_cast<int>(shared);
    if (!finish.empty()) anchor.finish = fmt::format("  for (int v = 0; v < kRun; ++v) {}\n", finish);
    anchor.body =
        fmt::format(R"(  {{
    OCTAVO_UNROLL
    for (int v = 0; v < kRun; ++v) acc[v] = {start};
    for (int i = share; i < {count};) {{
      {type} part[kRun];
      OCTAVO_UNROLL
      for (int v = 0; v < kRun; ++v) part[v] = {start};
      for (int left = 128; left > 0 && i < {count}; --left, i += {shared}) {{
        long long at = {first};
        int rest = i;
{steps}        {type} e[kRun];
        {load}(e, x0 + at);
        OCTAVO_UNROLL
        for (int v = 0; v < kRun; ++v) part[v] = octavo_fold(part[v], e[v]);
      }}
      OCTAVO_UNROLL
      for (int v = 0; v < kRun; ++v) acc[v] = octavo_add(acc[v], part[v]);
    }}
  }}
)",
                    fmt::arg("start", start), fmt::arg("count", count), fmt::arg("shared", shared), fmt::arg("first", first),
                    fmt::arg("steps", steps), fmt::arg("type", type), fmt::arg("load", load_function(x.dtype)));
    return element_kernel(s, std::move(anchor), {followed_along(x, from, along, s.space)}, 4);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(reduce, ReduceFamily)

}  // namespace octavo::cuda
