// cpu.attention.u8u8.queries.<isa>: attention whose two products are of 8-bit codes (products/products.h), query tile by query tile as
// attention_tile.h says: exact sums of codes, scores, softmax, the codes of the probabilities, exact sums with the values. Bit for bit what
// matmul.u8u8.rows, softmax.block and matmul.u8u8.rows give (tests/cpu/attention_codes_test.cc). Usual programs run in one pass each
// (attention_forms.h), others as they are.
#include <algorithm>

#include "cpu/families/attention_forms.h"
#include "cpu/families/attention_tile.h"
#include "cpu/families/code_products.h"
#include "cpu/old_family.h"
#include "cpu/parameters.h"
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

struct Parts {
  AttentionSetting setting;
  TileProgram scores, softmax;
  std::optional<ScoreForm> score_form;
  std::optional<ProbabilityForm> probability_form;
  Epilogue product;
};

class AttentionCodesKernel final : public Kernel {
 public:
  AttentionCodesKernel(Parts parts, std::int64_t width, std::int32_t probability_zero, Isa isa)
      : k_(row_kernels(isa)),
        a_(attention_rows(isa)),
        p_(code_products(isa)),
        parts_(std::move(parts)),
        t_(parts_.setting),
        width_(width),
        zero_(probability_zero) {
    const auto groups = [&](std::int64_t depth) { return padded_to((depth + p_.group - 1) / p_.group, p_.depth_step); };
    features_ = groups(t_.features), keys_ = groups(t_.keys);
    const std::int64_t key_rows = padded_to(t_.keys, p_.row_step), value_rows = padded_to(t_.columns, p_.row_step);
    at_scores_ = place(parts_.scores.scratch_bytes());
    at_softmax_ = place(parts_.softmax.scratch_bytes());
    at_product_ = place(parts_.product.scratch_bytes());
    at_keys_ = dwords(key_rows * features_);
    at_key_terms_ = dwords(key_rows);
    at_values_ = dwords(value_rows * keys_);
    at_value_terms_ = dwords(value_rows);
    at_queries_ = dwords(features_ * width_);
    at_terms_ = dwords(width_);
    at_packing_ = dwords(std::max({key_rows * features_, value_rows * keys_, features_ * width_}));
    at_tile_ = dwords(key_rows * width_);
    at_sums_ = dwords(width_);
    at_codes_ = place(parts_.probability_form ? 0 : static_cast<std::size_t>(t_.keys * width_));
    at_probabilities_ = dwords(keys_ * width_);
    at_turned_ = dwords(value_rows * width_);
    at_out_ = dwords(t_.columns * width_);
  }

  int tasks() const override { return static_cast<int>(std::min<std::int64_t>(t_.batch * t_.tiles(width_), 4096)); }
  std::size_t scratch_bytes() const override { return bytes_; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    parts_.scores.prepare(worker.scratch + at_scores_);
    parts_.softmax.prepare(worker.scratch + at_softmax_);
    parts_.product.prepare(worker.scratch + at_product_);
    Memory own[] = {parts_.scores.operands_of(memory), parts_.softmax.operands_of(memory)};
    p_.begin();
    const std::int64_t units = t_.batch * t_.tiles(width_);
    std::int64_t have = worker.kept == nullptr ? region::kNothingKept : *worker.kept;  // the batch whose keys and values are packed
    for (std::int64_t u = units * task_begin / tasks(); u < units * task_end / tasks(); ++u) {
      const std::int64_t batch = u / t_.tiles(width_);
      const Index origin = t_.origin_of(u, width_);
      if (have != batch) pack(memory, worker.scratch, origin);
      have = batch;
      one(memory, own, worker.scratch, origin);
    }
    p_.end();
    if (worker.kept != nullptr) *worker.kept = have;
  }

 private:
  std::size_t place(std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += line(bytes);
    return at;
  }
  std::size_t dwords(std::int64_t n) { return place(static_cast<std::size_t>(n) * 4); }
  template <class T = std::uint32_t>
  static T* at(std::byte* scratch, std::size_t place) {
    return reinterpret_cast<T*>(scratch + place);
  }
  static std::int32_t zero_of(const AttentionMatrix& m) { return m.ref.quantizer->zero_point[0]; }
  /// Row i, column j of the turned matrix are column i, row j of the one that is there.
  static CodeMatrix turned(const AttentionMatrix& m, const Memory& memory, const Index& origin) {
    return {m.at<std::uint8_t>(memory, origin), m.col, m.row, zero_of(m)};
  }

  /// Keys and values of a batch, as left matrices: scores and results come out turned.
  void pack(const Memory& memory, std::byte* scratch, const Index& origin) const {
    auto *keys = at(scratch, at_keys_), *values = at(scratch, at_values_), *packing = at(scratch, at_packing_);
    p_.pack_left(keys, features_, turned(t_.k, memory, origin), t_.keys, t_.features, features_, packing);
    p_.row_terms(at<std::int32_t>(scratch, at_key_terms_), keys, features_, t_.keys, features_, zero_of(t_.q));
    p_.pack_left(values, keys_, turned(t_.v, memory, origin), t_.columns, t_.keys, keys_, packing);
    p_.row_terms(at<std::int32_t>(scratch, at_value_terms_), values, keys_, t_.columns, keys_, zero_);
  }

  /// A tile of queries, from origin on.
  void one(const Memory& memory, Memory* own, std::byte* scratch, const Index& origin) const {
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
    const bool alone = parts_.score_form && p_.multiply_alone != nullptr;
    if (alone) {
      p_.multiply_alone(products, width_, keys, features_, t_.keys, queries, width_, used, features_);
    } else {
      p_.multiply(products, width_, key_terms, terms, keys, features_, t_.keys, queries, width_, used, features_);
    }
    if (parts_.score_form) {
      a_.scores(tile, width_, t_.keys, used, zero_of(t_.q) == 128 ? nullptr : key_terms, alone ? terms : nullptr,
                *parts_.score_form);
    } else {
      parts_.scores.run(k_, own[0], scratch + at_scores_, origin, tile, reinterpret_cast<std::byte*>(tile), t_.keys, some);
    }
    k_.exp_columns(tile, width_, t_.keys, used, sums);
    if (parts_.probability_form) {
      a_.pack_codes({probabilities, width_, keys_, p_.group, zero_, zero_of(t_.v), terms}, tile, width_, t_.keys, used, sums,
                    *parts_.probability_form);
    } else {
      k_.divide_columns(tile, width_, t_.keys, used, sums);
      parts_.softmax.run(k_, own[1], scratch + at_softmax_, origin, tile, reinterpret_cast<std::byte*>(codes), t_.keys, some);
      p_.pack_right(probabilities, width_, {codes, width_, 1, zero_}, t_.keys, some, keys_, packing);
      p_.column_terms(terms, probabilities, width_, used, keys_, t_.keys, zero_of(t_.v), zero_);
    }
    auto *results = at<std::int32_t>(scratch, at_turned_), *out = at<std::int32_t>(scratch, at_out_);
    p_.multiply(results, width_, at<std::int32_t>(scratch, at_value_terms_), terms, at(scratch, at_values_), keys_, t_.columns,
                probabilities, width_, used, keys_);
    k_.transpose(reinterpret_cast<float*>(out), t_.columns, reinterpret_cast<const float*>(results), width_, t_.columns, used);
    store_sums(parts_.product, memory, scratch + at_product_, origin, t_.rank - 2, t_.rank - 1, reinterpret_cast<const float*>(out),
               t_.columns, some, t_.columns);
  }

  const RowKernels& k_;
  const AttentionRows& a_;
  const CodeProducts& p_;
  Parts parts_;
  const AttentionSetting& t_;
  std::int64_t width_, features_ = 0, keys_ = 0;  ///< groups of the depth of both products
  std::int32_t zero_;                             ///< of the probabilities
  std::size_t bytes_ = 0;
  std::size_t at_scores_ = 0, at_softmax_ = 0, at_product_ = 0, at_keys_ = 0, at_key_terms_ = 0, at_values_ = 0,
              at_value_terms_ = 0, at_queries_ = 0, at_terms_ = 0, at_packing_ = 0, at_tile_ = 0, at_sums_ = 0, at_codes_ = 0,
              at_probabilities_ = 0, at_turned_ = 0, at_out_ = 0;
};

class AttentionCodesFamily final : public OldFamily {
 public:
  std::string_view name() const override { return "attention.u8u8.queries"; }
  std::span<const Isa> levels() const override { return kDotIsas; }
  bool forwards_stages() const override { return true; }
  bool about(const Region& r) const override {
    return is_attention(r) && (r.stages[0].anchor.integer || r.stages[2].anchor.integer);
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const auto made = parts_of(r, Isa::portable);
    return refusal_of(made);
  }
  double cost(const Region& r, const Plan&, Isa isa) const override {
    const auto t = attention_setting(r, ir::DType::u8);
    if (!t) return 0;
    const auto scores = static_cast<double>(ir::count(r.stages[0].space)), queries = static_cast<double>(t->batch * t->queries);
    const double packed = static_cast<double>(t->batch * t->keys) * static_cast<double>(t->columns + t->features) +
                          queries * static_cast<double>(t->features + 4 * t->columns);
    const double products = scores * static_cast<double>(t->features + t->columns) * clocks_of_product(isa);
    return (products + (scores * 3.0 + packed * 0.5) * slowdown(isa)) * kSecondsPerCycle + 0.5e-6;
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa isa, OldPacked) const override {
    OCTAVO_TRY(Parts p, parts_of(r, isa));
    return std::make_unique<AttentionCodesKernel>(std::move(p), attention_width(r.tactic, isa),
                                                  r.stages[2].anchor.inputs[0].quantizer->zero_point[0], isa);
  }
  std::vector<Parameters> parameter_sets(const Region& r, const Plan&, Isa isa) const override {
    const auto t = attention_setting(r, ir::DType::u8);
    return t ? attention_widths(*t, isa) : std::vector<Parameters>{};
  }
  std::span<const ParameterRow> parameter_rows() const override {
    static constexpr std::array kParameters{kRows};
    return kParameters;
  }

 private:
  static Result<Parts> parts_of(const Region& r, Isa isa) {
    Parts p;
    const Stage &scores = r.stages[0], &product = r.stages[2];
    if (!scores.anchor.integer || !product.anchor.integer)
      return refuse("products of codes", "one", "both: the probabilities are codes too");
    OCTAVO_TRY(p.setting, attention_setting(r, ir::DType::u8));
    for (const region::TensorRef* t : {&scores.anchor.inputs[0], &scores.anchor.inputs[1], &product.anchor.inputs[0],
                                       &product.anchor.inputs[1], &r.stages[1].stores[0]}) {
      if (Reasons why = why_no_codes(*t); !why.empty()) return refuse(std::move(why));
    }
    const std::int64_t width = attention_width(r.tactic, isa);
    OCTAVO_TRY(p.scores, TileProgram::of(scores, isa, width));
    OCTAVO_TRY(p.softmax, TileProgram::of(r.stages[1], isa, width));
    p.score_form = score_form(scores.program);
    p.probability_form = probability_form(r.stages[1].program);
    OCTAVO_TRY(p.product, row_epilogue(product, isa, p.setting.rank - 2, p.setting.rank - 1));
    return p;
  }
};

}  // namespace

const Family& attention_codes_family() {
  static const Adapted<AttentionCodesFamily> family;
  return family;
}

}  // namespace octavo::cpu
