// cpu.attention.u8u8.queries.<isa>: attention whose two products are of 8-bit codes (products/products.h), query tile by query tile as
// attention_tile.h says: exact sums of codes, scores, softmax, the codes of the probabilities, exact sums with the values. Bit for bit what
// matmul.u8u8.rows, softmax.block and matmul.u8u8.rows give (tests/cpu/attention_codes_test.cc). Usual programs run in one pass each
// (attention_forms.h), others as they are.
#include <algorithm>

#include "cpu/families/attention_forms.h"
#include "cpu/families/attention_tile.h"
#include "cpu/families/code_products.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

const AttentionRows& attention_rows(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return avx512_attention();
  if (isa >= Isa::avx2) return avx2_attention();
#endif
  (void)isa;
  return portable_attention();
}

struct AttentionCodesSetting {
  AttentionSetting attention = {};
  std::optional<ScoreForm> score_form = {};
  std::optional<ProbabilityForm> probability_form = {};
  std::int32_t zero = 0;  ///< of the probabilities
};

class CodeAttention final : public AttentionKernel {
 public:
  explicit CodeAttention(AttentionCodesSetting setting)
      : AttentionKernel(std::move(setting.attention)),
        a_(attention_rows(t_.isa)),
        p_(code_products(t_.isa)),
        score_form_(setting.score_form),
        probability_form_(setting.probability_form),
        zero_(setting.zero) {
    const auto groups = [&](std::int64_t depth) { return padded_to((depth + p_.group - 1) / p_.group, p_.depth_step); };
    features_ = groups(t_.features), keys_ = groups(t_.keys);
    const std::int64_t key_rows = padded_to(t_.keys, p_.row_step), value_rows = padded_to(t_.columns, p_.row_step);
    at_keys_ = dwords(key_rows * features_);
    at_key_terms_ = dwords(key_rows);
    at_values_ = dwords(value_rows * keys_);
    at_value_terms_ = dwords(value_rows);
    at_queries_ = dwords(features_ * width_);
    at_terms_ = dwords(width_);
    at_packing_ = dwords(std::max({key_rows * features_, value_rows * keys_, features_ * width_}));
    at_tile_ = dwords(key_rows * width_);
    at_sums_ = dwords(width_);
    at_codes_ = place(probability_form_ ? 0 : static_cast<std::size_t>(t_.keys * width_));
    at_probabilities_ = dwords(keys_ * width_);
    at_turned_ = dwords(value_rows * width_);
    at_out_ = dwords(t_.columns * width_);
  }

 private:
  void begin() const override { p_.begin(); }
  void end() const override { p_.end(); }
  static std::int32_t zero_of(const AttentionMatrix& m) { return m.ref.quantizer->zero_point[0]; }
  /// Row i, column j of the turned matrix are column i, row j of the one that is there.
  static CodeMatrix turned(const AttentionMatrix& m, const Memory& memory, const Index& origin) {
    return {m.at<std::uint8_t>(memory, origin), m.col, m.row, zero_of(m)};
  }

  /// Keys and values of a batch, as left matrices: scores and results come out turned.
  void pack(const Memory& memory, std::byte* scratch, const Index& origin) const override {
    auto *keys = at(scratch, at_keys_), *values = at(scratch, at_values_), *packing = at(scratch, at_packing_);
    p_.pack_left(keys, features_, turned(t_.k, memory, origin), t_.keys, t_.features, features_, packing);
    p_.row_terms(at<std::int32_t>(scratch, at_key_terms_), keys, features_, t_.keys, features_, zero_of(t_.q));
    p_.pack_left(values, keys_, turned(t_.v, memory, origin), t_.columns, t_.keys, keys_, packing);
    p_.row_terms(at<std::int32_t>(scratch, at_value_terms_), values, keys_, t_.columns, keys_, zero_);
  }

  void one(const Memory& memory, Operands& own, std::byte* scratch, const Index& origin) const override {
    const std::int64_t first = origin[t_.rank - 2], some = std::min(width_, t_.queries - first),
                       used = padded_to(some, kDotColumns);
    auto *tile = at<float>(scratch, at_tile_), *sums = at<float>(scratch, at_sums_);
    auto* terms = at<std::int32_t>(scratch, at_terms_);
    auto *queries = at(scratch, at_queries_), *probabilities = at(scratch, at_probabilities_), *packing = at(scratch, at_packing_);
    auto* codes = at<std::uint8_t>(scratch, at_codes_);

    CodeMatrix q = turned(t_.q, memory, origin);
    q.data += first * t_.q.row;
    p_.pack_right(queries, width_, q, t_.features, some, features_, packing);
    p_.column_terms(terms, queries, width_, used, features_, t_.features, zero_of(t_.k), zero_of(t_.q));
    const auto* key_terms = at<std::int32_t>(scratch, at_key_terms_);
    const auto* keys = at(scratch, at_keys_);
    auto* products = reinterpret_cast<std::int32_t*>(tile);
    const bool alone = score_form_ && p_.multiply_alone != nullptr;
    if (alone) {
      p_.multiply_alone(products, width_, keys, features_, t_.keys, queries, width_, used, features_);
    } else {
      p_.multiply(products, width_, key_terms, terms, keys, features_, t_.keys, queries, width_, used, features_);
    }
    if (score_form_) {
      a_.scores(tile, width_, t_.keys, used, zero_of(t_.q) == 128 ? nullptr : key_terms, alone ? terms : nullptr, *score_form_);
    } else {
      run_scores(own, scratch, origin, tile, some);
    }
    k_.exp_columns(tile, width_, t_.keys, used, sums);
    if (probability_form_) {
      a_.pack_codes({probabilities, width_, keys_, p_.group, zero_, zero_of(t_.v), terms}, tile, width_, t_.keys, used, sums,
                    *probability_form_);
    } else {
      k_.divide_columns(tile, width_, t_.keys, used, sums);
      run_softmax(own, scratch, origin, tile, codes, some);
      p_.pack_right(probabilities, width_, {codes, width_, 1, zero_}, t_.keys, some, keys_, packing);
      p_.column_terms(terms, probabilities, width_, used, keys_, t_.keys, zero_of(t_.v), zero_);
    }
    auto *results = at<std::int32_t>(scratch, at_turned_), *out = at<std::int32_t>(scratch, at_out_);
    p_.multiply(results, width_, at<std::int32_t>(scratch, at_value_terms_), terms, at(scratch, at_values_), keys_, t_.columns,
                probabilities, width_, used, keys_);
    k_.transpose(reinterpret_cast<float*>(out), t_.columns, reinterpret_cast<const float*>(results), width_, t_.columns, used);
    store(memory, scratch, origin, out, t_.columns, some);
  }

  const AttentionRows& a_;
  const CodeProducts& p_;
  std::optional<ScoreForm> score_form_;
  std::optional<ProbabilityForm> probability_form_;
  std::int64_t features_ = 0, keys_ = 0;  ///< groups of the depth of both products
  std::int32_t zero_;                     ///< of the probabilities
  std::size_t at_keys_ = 0, at_key_terms_ = 0, at_values_ = 0, at_value_terms_ = 0, at_queries_ = 0, at_terms_ = 0, at_packing_ = 0,
              at_tile_ = 0, at_sums_ = 0, at_codes_ = 0, at_probabilities_ = 0, at_turned_ = 0, at_out_ = 0;
};

class AttentionCodesFamily final : public KernelFamily<AttentionCodesSetting, CodeAttention> {
 public:
  AttentionCodesFamily()
      : KernelFamily({.name = "attention.u8u8.queries",
                      .version = 2,
                      .levels = kDotIsas,
                      .parameters = kAttentionParameters,
                      .forwards_stages = true}) {}
  bool about(const Region& r) const override {
    return is_attention(r) && (r.stages[0].anchor.integer || r.stages[2].anchor.integer);
  }
  Match<AttentionCodesSetting> match(const Request& q) const override {
    const Stage &scores = q.region.stages[0], &softmax = q.region.stages[1], &product = q.region.stages[2];
    if (!scores.anchor.integer || !product.anchor.integer)
      return refuse("products of codes", "one", "both: the probabilities are codes too");
    AttentionCodesSetting t;
    OCTAVO_TRY(t.attention, attention_setting(q, ir::DType::u8));
    for (const region::TensorRef* m : {&scores.anchor.inputs[0], &scores.anchor.inputs[1], &product.anchor.inputs[0],
                                       &product.anchor.inputs[1], &softmax.stores[0]}) {
      if (Reasons why = why_no_codes(*m); !why.empty()) return refuse(std::move(why));
    }
    t.score_form = score_form(scores.program);
    t.probability_form = probability_form(softmax.program);
    t.zero = product.anchor.inputs[0].quantizer->zero_point[0];
    return t;
  }
  double cost(const AttentionCodesSetting& setting, Isa isa) const override {
    const AttentionSetting& t = setting.attention;
    const double scores = t.all_scores(), queries = static_cast<double>(t.batch * t.queries);
    const double packed = static_cast<double>(t.batch * t.keys) * static_cast<double>(t.columns + t.features) +
                          queries * static_cast<double>(t.features + 4 * t.columns);
    const double products = scores * static_cast<double>(t.features + t.columns) * clocks_of_product(isa);
    return (products + (scores * 3.0 + packed * 0.5) * slowdown(isa)) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<Parameters> variants(const AttentionCodesSetting& t) const override { return attention_variants(t.attention); }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(attention_codes, AttentionCodesFamily)

}  // namespace octavo::cpu
