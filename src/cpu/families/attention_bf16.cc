// cpu.attention.bf16.queries.<level>: attention whose two products are of bfloat16 (products/bf16_products.h), query tile by query tile as
// attention_tile.h says: float sums of bfloat16, scores, softmax in float32, the probabilities rounded to bfloat16, float sums with the values. Bit
// for bit what matmul.bf16.rows, softmax.block and matmul.bf16.rows give (tests/cpu/attention_bf16_test.cc). Keys and values are packed once a
// batch, as left matrices, so that scores and results come out turned, [key][query] and [column][query].
#include <algorithm>

#include "cpu/families/attention_tile.h"
#include "cpu/families/bf16_levels.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

struct AttentionBf16Setting {
  AttentionSetting attention = {};
  bool rounds_only = false;     ///< softmax's program is its rounding to bfloat16
  bool rounds_product = false;  ///< and so is the product's
};

/// Values are rounded where they are stored; a program may say so, too.
bool rounds_only(const program::Program& p) {
  const std::size_t n = p.code.size();
  return (n == 1 || (n == 2 && p.code[1].op == program::Op::to_bf16)) && p.code[0].op == program::Op::acc_f &&
         p.outputs.size() == 1 && p.outputs[0].value == static_cast<int>(n) - 1 && p.outputs[0].type == ir::DType::bf16;
}

class Bf16Attention final : public AttentionKernel {
 public:
  explicit Bf16Attention(AttentionBf16Setting setting)
      : AttentionKernel(std::move(setting.attention)),
        p_(*bf16_products(t_.isa)),
        rounds_only_(setting.rounds_only),
        rounds_product_(setting.rounds_product) {
    features_ = pairs(t_.features), keys_ = pairs(t_.keys);
    const std::int64_t key_rows = padded_to(t_.keys, p_.row_step), value_rows = padded_to(t_.columns, p_.row_step);
    at_keys_ = dwords(key_rows * features_);
    at_values_ = dwords(value_rows * keys_);
    at_queries_ = dwords(features_ * width_);
    at_tile_ = dwords(key_rows * width_);
    at_sums_ = dwords(width_);
    at_rounded_ = dwords(rounds_only_ ? 0 : (t_.keys * width_ + 1) / 2);
    at_probabilities_ = dwords(keys_ * width_);
    at_turned_ = dwords(value_rows * width_);
    at_out_ = dwords(t_.columns * width_);
  }

 private:
  void begin() const override { p_.begin(); }
  void end() const override { p_.end(); }
  [[nodiscard]] std::int64_t pairs(std::int64_t depth) const { return padded_to((depth + 1) / 2, p_.depth_step); }
  /// Row i, column j of the turned matrix are column i, row j of the one that is there.
  static Bf16Matrix turned(const AttentionMatrix& m, const Memory& memory, const Index& origin) {
    return {m.at<std::uint16_t>(memory, origin), m.col, m.row};
  }

  void pack(const Memory& memory, std::byte* scratch, const Index& origin) const override {
    p_.pack_left(at(scratch, at_keys_), features_, turned(t_.k, memory, origin), t_.keys, t_.features, features_);
    p_.pack_left(at(scratch, at_values_), keys_, turned(t_.v, memory, origin), t_.columns, t_.keys, keys_);
  }

  void one(const Memory& memory, Operands& own, std::byte* scratch, const Index& origin) const override {
    const std::int64_t first = origin[t_.rank - 2], some = std::min(width_, t_.queries - first),
                       used = padded_to(some, kBf16Columns);
    auto *tile = at<float>(scratch, at_tile_), *sums = at<float>(scratch, at_sums_);
    auto *queries = at(scratch, at_queries_), *probabilities = at(scratch, at_probabilities_);

    Bf16Matrix q = turned(t_.q, memory, origin);
    q.data += first * t_.q.row;
    p_.pack_right(queries, width_, q, t_.features, some, features_);
    p_.multiply(tile, width_, at(scratch, at_keys_), features_, t_.keys, queries, width_, used, features_);
    run_scores(own, scratch, origin, tile, some);
    k_.exp_columns(tile, width_, t_.keys, used, sums);
    if (rounds_only_) {
      p_.pack_quotients(probabilities, tile, width_, sums, t_.keys, used, keys_);
    } else {
      auto* rounded = at<std::uint16_t>(scratch, at_rounded_);
      k_.divide_columns(tile, width_, t_.keys, used, sums);
      run_softmax(own, scratch, origin, tile, rounded, some);
      p_.pack_right(probabilities, width_, {rounded, width_, 1}, t_.keys, some, keys_);
    }
    auto *results = at<float>(scratch, at_turned_), *out = at<float>(scratch, at_out_);
    p_.multiply(results, width_, at(scratch, at_values_), keys_, t_.columns, probabilities, width_, used, keys_);
    k_.transpose(out, t_.columns, results, width_, t_.columns, some);
    auto* const direct =
        rounds_product_ ? row_of_store<std::uint16_t>(t_.product, memory, origin, t_.rank - 1, Elem::bf16) : nullptr;
    if (direct != nullptr)
      return p_.store_rounded(direct, t_.product.space().stores.front().strides[t_.rank - 2] / 2, out, t_.columns, some,
                              t_.columns);
    store(memory, scratch, origin, out, t_.columns, some);
  }

  const Bf16Products& p_;
  bool rounds_only_, rounds_product_;
  std::int64_t features_ = 0, keys_ = 0;  ///< pairs of the depth of both products
  std::size_t at_keys_ = 0, at_values_ = 0, at_queries_ = 0, at_tile_ = 0, at_sums_ = 0, at_rounded_ = 0, at_probabilities_ = 0,
              at_turned_ = 0, at_out_ = 0;
};

class AttentionBf16Family final : public FamilyOf<AttentionBf16Setting> {
 public:
  explicit AttentionBf16Family(const Bf16Level& level)
      : FamilyOf({.name = level.attention,
                  .version = 2,
                  .levels = level.isa,
                  .required = {"avx512bf16"},
                  .parameters = kAttentionParameters,
                  .forwards_stages = true}),
        level_(level) {}
  bool about(const Region& r) const override {
    const auto small = [](const Stage& s) {
      return !s.anchor.integer &&
             std::any_of(s.anchor.inputs.begin(), s.anchor.inputs.end(), [](const auto& t) { return t.dtype == ir::DType::bf16; });
    };
    return is_attention(r) && (small(r.stages[0]) || small(r.stages[2]));
  }
  Match<AttentionBf16Setting> match(const Request& q) const override {
    AttentionBf16Setting t{{}, rounds_only(q.region.stages[1].program), rounds_only(q.region.stages[2].program)};
    OCTAVO_TRY(t.attention, attention_setting(q, ir::DType::bf16));
    return t;
  }
  double cost(const AttentionBf16Setting& setting, Isa) const override {
    const AttentionSetting& t = setting.attention;
    const double scores = t.all_scores(), queries = static_cast<double>(t.batch * t.queries);
    const double packed = static_cast<double>(t.batch * t.keys) * static_cast<double>(t.columns + t.features) +
                          queries * static_cast<double>(t.features + 4 * t.columns);
    const double products = scores * static_cast<double>(t.features + t.columns) * level_.clocks_of_product;
    return (products + scores * 2.5 + packed * 0.4) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<Parameters> variants(const AttentionBf16Setting& t) const override { return attention_variants(t.attention); }
  Result<std::unique_ptr<Kernel>> load(AttentionBf16Setting t, Packed) const override {
    if (bf16_products(t.attention.isa) == nullptr) return refuse("kernels of this build", "without them", level_.attention);
    return std::make_unique<Bf16Attention>(std::move(t));
  }

 private:
  const Bf16Level& level_;
};

}  // namespace

OCTAVO_DEFINE_FAMILIES(attention_bf16, AttentionBf16Family, kBf16Levels)

}  // namespace octavo::cpu
