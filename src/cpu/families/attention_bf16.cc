// cpu.attention.bf16.queries.<level>: attention whose two products are of bfloat16 (products/bf16_products.h), query tile by query tile as
// attention_tile.h says: float sums of bfloat16, scores, softmax in float32, the probabilities rounded to bfloat16, float sums with the values. Bit
// for bit what matmul.bf16.rows, softmax.block and matmul.bf16.rows give (tests/cpu/attention_bf16_test.cc). Keys and values are packed once a
// batch, as left matrices, so that scores and results come out turned, [key][query] and [column][query].
#include <algorithm>

#include "cpu/families/attention_tile.h"
#include "cpu/families/bf16_levels.h"
#include "cpu/old_family.h"
#include "cpu/parameters.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

struct Parts {
  AttentionSetting setting;
  TileProgram scores, softmax;
  bool rounds_only = false;  ///< softmax's program is its rounding to bfloat16
  Epilogue product;
  bool rounds_product = false;  ///< and so is the product's
};

/// Values are rounded where they are stored; a program may say so, too.
bool rounds_only(const program::Program& p) {
  const std::size_t n = p.code.size();
  return (n == 1 || (n == 2 && p.code[1].op == program::Op::to_bf16)) && p.code[0].op == program::Op::acc_f &&
         p.outputs.size() == 1 && p.outputs[0].value == static_cast<int>(n) - 1 && p.outputs[0].type == ir::DType::bf16;
}

class AttentionBf16Kernel final : public Kernel {
 public:
  AttentionBf16Kernel(Parts parts, std::int64_t width, const Bf16Level& level)
      : k_(row_kernels(level.isa)), p_(*level.products()), parts_(std::move(parts)), t_(parts_.setting), width_(width) {
    features_ = in_pairs(t_.features, p_.depth_step), keys_ = in_pairs(t_.keys, p_.depth_step);
    const std::int64_t key_rows = in_steps(t_.keys, p_.row_step), value_rows = in_steps(t_.columns, p_.row_step);
    at_scores_ = place(parts_.scores.scratch_bytes());
    at_softmax_ = place(parts_.softmax.scratch_bytes());
    at_product_ = place(parts_.product.scratch_bytes());
    at_keys_ = dwords(key_rows * features_);
    at_values_ = dwords(value_rows * keys_);
    at_queries_ = dwords(features_ * width_);
    at_tile_ = dwords(key_rows * width_);
    at_sums_ = dwords(width_);
    at_rounded_ = dwords(parts_.rounds_only ? 0 : (t_.keys * width_ + 1) / 2);
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
      if (have != batch) {
        p_.pack_left(at(worker.scratch, at_keys_), features_, turned(t_.k, memory, origin), t_.keys, t_.features, features_);
        p_.pack_left(at(worker.scratch, at_values_), keys_, turned(t_.v, memory, origin), t_.columns, t_.keys, keys_);
      }
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
  /// Row i, column j of the turned matrix are column i, row j of the one that is there.
  static Bf16Matrix turned(const AttentionMatrix& m, const Memory& memory, const Index& origin) {
    return {m.at<std::uint16_t>(memory, origin), m.col, m.row};
  }

  /// A tile of queries, from origin on.
  void one(const Memory& memory, Memory* own, std::byte* scratch, const Index& origin) const {
    const std::int64_t first = origin[t_.rank - 2], some = std::min(width_, t_.queries - first),
                       used = in_steps(some, kBf16Columns);
    auto *tile = at<float>(scratch, at_tile_), *sums = at<float>(scratch, at_sums_);
    auto *queries = at(scratch, at_queries_), *probabilities = at(scratch, at_probabilities_);

    Bf16Matrix q = turned(t_.q, memory, origin);
    q.data += first * t_.q.row;
    p_.pack_right(queries, width_, q, t_.features, some, features_);
    p_.multiply(tile, width_, at(scratch, at_keys_), features_, t_.keys, queries, width_, used, features_);
    parts_.scores.run(k_, own[0], scratch + at_scores_, origin, tile, reinterpret_cast<std::byte*>(tile), t_.keys, some);
    k_.exp_columns(tile, width_, t_.keys, used, sums);
    if (parts_.rounds_only) {
      p_.pack_quotients(probabilities, tile, width_, sums, t_.keys, used, keys_);
    } else {
      auto* rounded = at<std::uint16_t>(scratch, at_rounded_);
      k_.divide_columns(tile, width_, t_.keys, used, sums);
      parts_.softmax.run(k_, own[1], scratch + at_softmax_, origin, tile, reinterpret_cast<std::byte*>(rounded), t_.keys, some);
      p_.pack_right(probabilities, width_, {rounded, width_, 1}, t_.keys, some, keys_);
    }
    auto *results = at<float>(scratch, at_turned_), *out = at<float>(scratch, at_out_);
    p_.multiply(results, width_, at(scratch, at_values_), keys_, t_.columns, probabilities, width_, used, keys_);
    k_.transpose(out, t_.columns, results, width_, t_.columns, some);
    auto* const direct =
        parts_.rounds_product ? row_of_store<std::uint16_t>(parts_.product, memory, origin, t_.rank - 1, Elem::bf16) : nullptr;
    if (direct != nullptr)
      return p_.store_rounded(direct, parts_.product.space().stores.front().strides[t_.rank - 2] / 2, out, t_.columns, some,
                              t_.columns);
    store_sums(parts_.product, memory, scratch + at_product_, origin, t_.rank - 2, t_.rank - 1, out, t_.columns, some, t_.columns);
  }

  const RowKernels& k_;
  const Bf16Products& p_;
  Parts parts_;
  const AttentionSetting& t_;
  std::int64_t width_, features_ = 0, keys_ = 0;  ///< pairs of the depth of both products
  std::size_t bytes_ = 0;
  std::size_t at_scores_ = 0, at_softmax_ = 0, at_product_ = 0, at_keys_ = 0, at_values_ = 0, at_queries_ = 0, at_tile_ = 0,
              at_sums_ = 0, at_rounded_ = 0, at_probabilities_ = 0, at_turned_ = 0, at_out_ = 0;
};

class AttentionBf16Family final : public OldFamily {
 public:
  explicit AttentionBf16Family(const Bf16Level& level)
      : level_(level), name_(fmt::format("attention.bf16.queries.{}", level.name())) {}
  std::string_view name() const override { return name_; }
  bool per_isa() const override { return false; }
  std::vector<std::string_view> required() const override { return level_.required(); }
  bool forwards_stages() const override { return true; }
  bool about(const Region& r) const override {
    const auto small = [](const Stage& s) {
      return !s.anchor.integer &&
             std::any_of(s.anchor.inputs.begin(), s.anchor.inputs.end(), [](const auto& t) { return t.dtype == ir::DType::bf16; });
    };
    return is_attention(r) && (small(r.stages[0]) || small(r.stages[2]));
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const auto made = parts_of(r, Isa::portable);
    return refusal_of(made);
  }
  double cost(const Region& r, const Plan&, Isa) const override {
    const auto t = attention_setting(r, ir::DType::bf16);
    if (!t) return 0;
    const auto scores = static_cast<double>(ir::count(r.stages[0].space)), queries = static_cast<double>(t->batch * t->queries);
    const double packed = static_cast<double>(t->batch * t->keys) * static_cast<double>(t->columns + t->features) +
                          queries * static_cast<double>(t->features + 4 * t->columns);
    const double products = scores * static_cast<double>(t->features + t->columns) * level_.clocks_of_product();
    return (products + scores * 2.5 + packed * 0.4) * kSecondsPerCycle + 0.5e-6;
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa, OldPacked) const override {
    if (level_.products() == nullptr) return refuse("kernels of this build", "without them", level_.name());
    OCTAVO_TRY(Parts p, parts_of(r, level_.isa));
    return std::make_unique<AttentionBf16Kernel>(std::move(p), attention_width(r.tactic, level_.isa), level_);
  }
  std::vector<Parameters> parameter_sets(const Region& r, const Plan&, Isa) const override {
    const auto t = attention_setting(r, ir::DType::bf16);
    return t ? attention_widths(*t, level_.isa) : std::vector<Parameters>{};
  }
  std::span<const ParameterRow> parameter_rows() const override {
    static constexpr std::array kParameters{kRows};
    return kParameters;
  }

 private:
  Result<Parts> parts_of(const Region& r, Isa isa) const {
    Parts p;
    const Stage& softmax = r.stages[1];
    OCTAVO_TRY(p.setting, attention_setting(r, ir::DType::bf16));
    const std::int64_t width = attention_width(r.tactic, level_.isa);
    OCTAVO_TRY(p.scores, TileProgram::of(r.stages[0], isa, width));
    OCTAVO_TRY(p.softmax, TileProgram::of(softmax, isa, width));
    p.rounds_only = rounds_only(softmax.program);
    p.rounds_product = rounds_only(r.stages[2].program);
    OCTAVO_TRY(p.product, row_epilogue(r.stages[2], isa, p.setting.rank - 2, p.setting.rank - 1));
    return p;
  }

  Bf16Level level_;
  std::string name_;
};

}  // namespace

Families attention_bf16_families() {
  static const Adapted<AttentionBf16Family> tiles(kBf16Tiles), registers(kBf16Registers);
  return {&tiles, &registers};
}

}  // namespace octavo::cpu
