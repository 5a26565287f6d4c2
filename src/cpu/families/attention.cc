// cpu.attention.f32.queries.<isa>: scores = A x B with their program (scale, mask, roundings), softmax over the keys with its own, and the
// product with a third matrix: three stages, query tile by query tile, so that scores never leave the first- and second-level caches.
// A tile lies transposed, [key][query]: each lane of a vector has a query of its own, so that the maximum, the exponentials and their sum
// need nothing across lanes although the sum keeps the reference's order. Every element is the sum, in the same order, that the
// families of the three operators compute: bit for bit the same (tests/cpu/attention_test.cc).
#include <algorithm>
#include <cstring>

#include "cpu/families/attention_tile.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

class FloatAttention final : public AttentionKernel {
 public:
  explicit FloatAttention(AttentionSetting setting) : AttentionKernel(std::move(setting)), panel_(panel_columns(t_.isa)) {
    at_queries_ = dwords(t_.features * width_);
    at_tile_ = dwords(t_.keys * width_);
    at_sums_ = dwords(width_);
    at_keys_ = dwords(gathers_keys() ? t_.keys * t_.features : 0);
    at_values_ = dwords(t_.keys * t_.padded());
    at_out_ = dwords(width_ * t_.padded());
  }

 private:
  /// Rows of factors that are neighbours are read where they are.
  [[nodiscard]] bool gathers_keys() const { return t_.k.row != 1 && t_.features != 1; }
  static float* floats(std::byte* scratch, std::size_t at) { return reinterpret_cast<float*>(scratch + at); }

  void pack(const Memory& memory, std::byte* scratch, const Index& origin) const override {
    pack_panels(k_, floats(scratch, at_values_), panel_, t_.v.at<float>(memory, origin), t_.keys, t_.columns, t_.v.row, t_.v.col);
    if (gathers_keys())
      gather_matrix(k_, floats(scratch, at_keys_), t_.features, t_.k.at<float>(memory, origin), t_.keys, t_.features, t_.k.col,
                    t_.k.row);
  }

  /// A tile of queries, from origin on.
  void one(const Memory& memory, Operands& own, std::byte* scratch, const Index& origin) const override {
    float *tile = floats(scratch, at_tile_), *queries = floats(scratch, at_queries_), *sums = floats(scratch, at_sums_);
    const std::int64_t first = origin[t_.rank - 2], some = std::min(width_, t_.queries - first),
                       used = std::min(width_, (some + kColumns - 1) / kColumns * kColumns);
    if (some < used) std::fill(queries, queries + t_.features * width_, 0.0F);
    gather_matrix(k_, queries, width_, t_.q.at<float>(memory, origin) + first * t_.q.row, t_.features, some, t_.q.col, t_.q.row);
    const float* keys = gathers_keys() ? floats(scratch, at_keys_) : t_.k.at<float>(memory, origin);
    std::memset(tile, 0, static_cast<std::size_t>(t_.keys * width_) * sizeof(float));
    k_.multiply(tile, width_, keys, gathers_keys() ? t_.features : t_.k.col, t_.keys, queries, width_, t_.features, used);
    run_scores(own, scratch, origin, tile, some);
    k_.exp_columns(tile, width_, t_.keys, used, sums);
    k_.divide_columns(tile, width_, t_.keys, used, sums);
    run_softmax(own, scratch, origin, tile, tile, some);

    const std::int64_t padded = t_.padded();
    float* direct = padded == t_.columns ? stored_row(t_.product, memory, origin, t_.rank - 1) : nullptr;
    float* to = direct == nullptr ? floats(scratch, at_out_) : direct;
    const std::int64_t step = direct == nullptr ? padded : t_.product.space().stores.front().strides[t_.rank - 2] / 4;
    for (std::int64_t r = 0; r < some; ++r) std::memset(to + r * step, 0, static_cast<std::size_t>(padded) * sizeof(float));
    const float* values = floats(scratch, at_values_);
    for (std::int64_t j = 0; j < padded; j += panel_) {
      const std::int64_t columns = std::min(panel_, padded - j);
      k_.multiply_turned(to + j, step, tile, width_, some, values + j * t_.keys, columns, t_.keys, columns);
    }
    if (direct == nullptr) store(memory, scratch, origin, to, step, some);
  }

  std::int64_t panel_;
  std::size_t at_queries_ = 0, at_tile_ = 0, at_sums_ = 0, at_keys_ = 0, at_values_ = 0, at_out_ = 0;
};

class AttentionFamily final : public KernelFamily<AttentionSetting, FloatAttention> {
 public:
  AttentionFamily()
      : KernelFamily({.name = "attention.f32.queries", .version = 2, .parameters = kAttentionParameters, .forwards_stages = true}) {
  }
  bool about(const Region& r) const override {
    return is_attention(r) && !r.stages[0].anchor.integer && !r.stages[2].anchor.integer;
  }
  Match<AttentionSetting> match(const Request& q) const override { return attention_setting(q, ir::DType::f32); }
  double cost(const AttentionSetting& t, Isa isa) const override {
    const double scores = t.all_scores(), queries = static_cast<double>(t.batch * t.queries);
    const double products = scores * static_cast<double>(t.features + t.columns) / 20.0;
    const double packed = static_cast<double>(t.batch) * static_cast<double>(t.keys) * static_cast<double>(t.columns) +
                          queries * static_cast<double>(t.features + t.columns);
    return (products + scores * 4.0 + packed * 1.5) * slowdown(isa) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<Parameters> variants(const AttentionSetting& t) const override { return attention_variants(t); }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(attention, AttentionFamily)

}  // namespace octavo::cpu
