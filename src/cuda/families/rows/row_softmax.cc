// softmax.rows: softmax and log_softmax of floats along the innermost dimension in memory, a warp a row. Exponentials are computed once, and
// added up in the reference's blocks and pairs, a thread a block, from shared memory: the results are the reference's bits.
#include "cuda/families/float_function.h"
#include "cuda/families/rows/rows.h"
#include "cuda/text/pieces.h"
#include "cuda/text/sums.h"

namespace octavo::cuda {
namespace {

using ir::Op;

constexpr const char* kTake = R"(        OCTAVO_UNROLL
        for (int v = 0; v < kRun; ++v) largest = octavo_gt(e[v], largest, e[v], largest);
)";
constexpr const char* kStaged = R"(    OCTAVO_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = __int_as_float(octavo_shuffle_xor(__float_as_int(largest), mask));
      largest = octavo_gt(other, largest, other, largest);
    }
    if (lane == 0) squares[row] = largest;
    for (int i = lane * kRun; i < kExtent; i += 32 * kRun) {
      float e[kRun];
      octavo_staged(e, octavo_place(tile, row, i));
      OCTAVO_UNROLL
      for (int v = 0; v < kRun; ++v) e[v] = octavo_exp(__fsub_rn(e[v], largest));
      octavo_stage(octavo_place(tile, row, i), e);
    }
)";
constexpr const char* kSums = R"(  for (int c = octavo_thread(); c < rows * kChains; c += 32 * kWarps)
    parts[c] = octavo_chain<false>(tile + c * kPitch, octavo_terms(c % kChains), 0.0f);
)";

class RowSoftmaxFamily final : public RowFamily {
 public:
  std::string_view name() const override { return "softmax.rows"; }
  int version() const override { return 2; }
  bool about(const Region& r) const override { return softmax_family().about(r); }

 protected:
  Result<RowKernel> kernel(const Stage& s) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    const auto rank = static_cast<std::int64_t>(s.space.size());
    const std::int64_t axis = s.anchor.as<ir::Along>().axis;
    if (!ir::is_float(x.dtype)) return refuse("type of the input", ir::name_of(x.dtype), "a float type");
    if (x.dims != s.space || axis < 0 || axis >= rank)
      return fail(ErrorKind::bad_engine, fmt::format("softmax over axis {} of {}", axis, ir::to_string(x.dims)));
    OCTAVO_TRY(Rows rows, Rows::of(s, static_cast<std::size_t>(axis), static_cast<std::size_t>(axis) + 1));
    const bool log = s.anchor.op == Op::log_softmax;
    RowText text;
    text.chain = kSumBlock;
    text.open = rows.open_extent();
    text.functions = text.open                                     ? total_of_open_blocks("kChains")
                     : rows.chains(kSumBlock) <= Rows::kMostChains ? total_of_blocks(rows.chains(kSumBlock))
                                                                   : "";  // more are refused
    text.functions +=
        float_function("octavo_exp", [](auto& m, int v) { return program::exp(m, v); }) +
        (log ? float_function("octavo_log", [](auto& m, int v) { return program::log(m, v); }) : std::string(share_text()));
    text.take = kTake;
    text.staged = kStaged;
    text.chains = kSums;
    text.before = log ? "    const float sum = octavo_log(octavo_total(parts + row * kChains)), largest = squares[row];\n"
                      : "    const float sum = octavo_total(parts + row * kChains), inverse = __fdiv_rn(1.0f, sum);\n";
    text.each = log ? "      octavo_load_x(e, x + at.x + i * kSize);\n      OCTAVO_UNROLL\n"
                      "      for (int v = 0; v < kRun; ++v) acc[v] = __fsub_rn(__fsub_rn(e[v], largest), sum);\n"
                    : "      OCTAVO_UNROLL\n      for (int v = 0; v < kRun; ++v) acc[v] = octavo_share(e[v], sum, inverse);\n";
    return RowKernel{std::move(rows), std::move(text)};
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(row_softmax, RowSoftmaxFamily)

}  // namespace octavo::cuda
