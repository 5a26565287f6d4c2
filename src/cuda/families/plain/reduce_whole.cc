// reduce.whole: sum, product, maximum and minimum of integers over any dimensions, in 64 bits, wrapped into the type. A block a result.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

using ir::Op;

constexpr const char* kReduceWholeBody = R"(
  __shared__ long long parts[kBlock];
  const int mine = octavo_thread();
  long long rest = octavo_block(), base = 0;
  octavo_first(rest, base);
  long long sum = kStart;
  for (long long k = mine; k < kCount; k += kBlock) sum = octavo_folded(sum, octavo_x0(t, base + octavo_step(k)));
  parts[mine] = sum;
  for (int half = kBlock / 2; half > 0; half /= 2) {
    octavo_barrier();
    if (mine < half) parts[mine] = sum = octavo_folded(sum, parts[mine + half]);
  }
  if (mine == 0) octavo_put0(t, octavo_block(), sum);
)";

class ReduceWholeFamily final : public PlainFamily {
 public:
  ReduceWholeFamily() : PlainFamily("reduce.whole", {Op::reduce_sum, Op::reduce_prod, Op::reduce_max, Op::reduce_min}, 1) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::Reduction>();
    const ir::Shape& x = s.anchor.inputs[0].dims;
    OCTAVO_TRY(const std::vector<char> reduced, reduced_dims(s));
    ir::Shape y;
    for (std::size_t d = 0; d < x.size(); ++d) {
      if (reduced[d] == 0)
        y.push_back(x[d]);
      else if (facts.keepdims)
        y.push_back(1);
    }
    return std::vector<ir::Shape>{y};
  }

  Result<PlainText> text(const Stage& s) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    if (reads_floats(x) || !s.program.outputs.empty())
      return refuse("type of the input", ir::name_of(x.dtype), "integers that no program reads");
    OCTAVO_TRY(const std::vector<char> reduced, reduced_dims(s));
    const ir::Shape dense = ir::dense_strides(x.dims);
    std::string kept, along;
    std::int64_t count = 1, results = 1;
    for (std::size_t d = x.dims.size(); d-- > 0;) {
      std::string& text = reduced[d] != 0 ? along : kept;
      text += fmt::format("  at += rest % {0}ll * {1}ll;\n  rest /= {0}ll;\n", std::max<std::int64_t>(x.dims[d], 1), dense[d]);
      (reduced[d] != 0 ? count : results) *= x.dims[d];
    }
    const auto [start, folded] = fold_of(s.anchor.op);
    PlainText t;
    int block = 32;
    while (block < 1024 && block * 8 < count) block *= 2;
    t.functions = fmt::format(
        "constexpr int kBlock = {};\nconstexpr long long kCount = {}, kStart = {};\nOCTAVO_DEVICE void octavo_first(long long "
        "rest, long long& at) {{\n{}}}\n"
        "OCTAVO_DEVICE long long octavo_step(long long rest) {{\n  long long at = 0;\n{}  return at;\n}}\n"
        "OCTAVO_DEVICE long long octavo_folded(long long a, long long b) {{ return {}; }}\n",
        block, count, start, kept, along, folded);
    t.passes = {in_order({kReduceWholeBody, results * block, block, true})};
    t.work = static_cast<double>(ir::count(x.dims));
    t.chain = static_cast<double>(count) / block;
    return t;
  }

 private:
  static Result<std::vector<char>> reduced_dims(const Stage& s) {
    const ir::Shape& x = s.anchor.inputs[0].dims;
    const ir::Shape& axes = s.anchor.as<ir::Reduction>().axes;
    std::vector<char> reduced(x.size(), axes.empty() ? 1 : 0);
    for (const std::int64_t a : axes) {
      if (a < 0 || a >= static_cast<std::int64_t>(x.size()))
        return fail(ErrorKind::bad_engine, fmt::format("axis {} of {}", a, ir::to_string(x)));
      reduced[static_cast<std::size_t>(a)] = 1;
    }
    return reduced;
  }
  static std::pair<const char*, const char*> fold_of(Op op) {
    switch (op) {
      case Op::reduce_max: return {"-9223372036854775807ll - 1", "a > b ? a : b"};
      case Op::reduce_min: return {"9223372036854775807ll", "a < b ? a : b"};
      case Op::reduce_prod: return {"1", "(long long)((unsigned long long)a * (unsigned long long)b)"};
      default: return {"0", "(long long)((unsigned long long)a + (unsigned long long)b)"};
    }
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(reduce_whole, ReduceWholeFamily)

}  // namespace octavo::cuda
