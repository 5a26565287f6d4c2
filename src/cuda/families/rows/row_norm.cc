// norm.rows: layer_norm and instance_norm of floats whose rows (the elements from `axis` on; a plane) lie in one piece, a warp a row. Mean and
// deviation are added up in the reference's blocks and pairs (reference/sums.h), a thread a block: the results are the reference's bits.
#include "cuda/families/rows/rows.h"
#include "cuda/text/sums.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::Op;

constexpr const char* kStatistics = R"(  for (int c = octavo_thread(); c < rows * kChains; c += 32 * kWarps)
    parts[c] = octavo_chain<false>(tile + c * kPitch, octavo_terms(c % kChains), 0.0f);
  octavo_barrier();  // behind the means
  for (int c = octavo_thread(); c < rows * kChains; c += 32 * kWarps)
    squares[c] = octavo_chain<true>(tile + c * kPitch, octavo_terms(c % kChains), __fdiv_rn(octavo_total(parts + c / kChains * kChains), {n}));
)";
constexpr const char* kMoments = R"(    const float mean = __fdiv_rn(octavo_total(parts + row * kChains), {n});
    const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(octavo_total(squares + row * kChains), {n}), {epsilon})));
)";

class RowNormFamily final : public RowFamily {
 public:
  std::string_view name() const override { return "norm.rows"; }
  int version() const override { return 2; }
  bool about(const Region& r) const override { return norm_family().about(r) && only(r).anchor.op != Op::lrn; }

 protected:
  Result<RowKernel> kernel(const Stage& s) const override {
    for (const region::TensorRef& x : s.anchor.inputs) {
      if (!ir::is_float(x.dtype)) return refuse("type of an input", ir::name_of(x.dtype), "a float type");
    }
    if (s.anchor.inputs.size() < 2) return refuse("inputs", s.anchor.inputs.size(), "a tensor, its scale and perhaps a bias");
    const auto rank = static_cast<std::int64_t>(s.space.size());
    const bool instance = s.anchor.op == Op::instance_norm;
    const std::int64_t axis = instance ? 2 : s.anchor.as<ir::LayerNorm>().axis;
    if (s.anchor.inputs[0].dims != s.space || axis < 1 || axis > rank)
      return fail(ErrorKind::bad_engine, fmt::format("a norm from axis {} of {} on gives {}", axis,
                                                     ir::to_string(s.anchor.inputs[0].dims), ir::to_string(s.space)));
    // Scale and bias: a channel each, or broadcast to the row's dimensions.
    std::vector<std::vector<std::int64_t>> parameters;
    for (std::size_t k = 1; k < s.anchor.inputs.size(); ++k) {
      const region::TensorRef& p = s.anchor.inputs[k];
      const std::size_t end = instance ? 2 : s.space.size();
      if (p.dims.size() > end)
        return fail(ErrorKind::bad_engine, fmt::format("a norm of {} by {}", ir::to_string(s.space), ir::to_string(p.dims)));
      std::vector<std::int64_t> strides(s.space.size(), 0);
      for (std::size_t d = 0; d < p.dims.size(); ++d) {
        if (p.dims[d] != 1) strides[end - p.dims.size() + d] = p.strides[d];
      }
      parameters.push_back(std::move(strides));
    }
    OCTAVO_TRY(Rows rows, Rows::of(s, static_cast<std::size_t>(axis), s.space.size(), parameters));
    const std::string n = float_text(static_cast<float>(rows.extent()));
    const double epsilon = instance ? s.anchor.as<ir::InstanceNorm>().epsilon : s.anchor.as<ir::LayerNorm>().epsilon;
    RowText text;
    text.chain = kSumBlock;
    if (rows.chains(kSumBlock) <= Rows::kMostChains) text.functions = total_of_blocks(rows.chains(kSumBlock));  // more are refused
    text.chains = fmt::format(kStatistics, fmt::arg("n", n));
    text.before = fmt::format(kMoments, fmt::arg("n", n), fmt::arg("epsilon", float_text(static_cast<float>(epsilon))));
    text.each = fmt::format(R"(      OCTAVO_UNROLL
      for (int v = 0; v < kRun; ++v) {{
        const float normal = __fmul_rn(__fsub_rn(e[v], mean), inverse);
        acc[v] = {};
      }}
)",
                            s.anchor.inputs.size() > 2 ? "__fmaf_rn(normal, ep1[v], ep2[v])" : "__fmul_rn(normal, ep1[v])");
    return RowKernel{std::move(rows), std::move(text)};
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(row_norm, RowNormFamily)

}  // namespace octavo::cuda
