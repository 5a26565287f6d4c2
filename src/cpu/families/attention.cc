// cpu.attention.f32.queries.<isa>: scores = A x B with their program (scale, mask, roundings), softmax over the keys with its own, and the
// product with a third matrix: three stages, query tile by query tile, so that scores never leave the first- and second-level caches.
// A tile lies transposed, [key][query]: each lane of a vector has a query of its own, so that the maximum, the exponentials and their sum
// need nothing across lanes although the sum keeps the reference's order. Every element is the sum, in the same order, that the
// families of the three operators compute: bit for bit the same (tests/cpu/attention_test.cc).
#include <algorithm>
#include <cstring>

#include "cpu/families/attention_tile.h"
#include "cpu/old_family.h"
#include "cpu/parameters.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const RowKernels& rows, AttentionSetting setting, std::int64_t width, TileProgram scores, TileProgram softmax,
                  Epilogue product, Isa isa)
      : k_(rows),
        panel_(panel_columns(isa)),
        width_(width),
        t_(std::move(setting)),
        scores_(std::move(scores)),
        softmax_(std::move(softmax)),
        product_(std::move(product)) {
    const auto floats = [&](std::int64_t n) { return place(static_cast<std::size_t>(n) * sizeof(float)); };
    at_scores_ = place(scores_.scratch_bytes());
    at_softmax_ = place(softmax_.scratch_bytes());
    at_product_ = place(product_.scratch_bytes());
    at_queries_ = floats(t_.features * width_);
    at_tile_ = floats(t_.keys * width_);
    at_sums_ = floats(width_);
    at_keys_ = floats(gathers_keys() ? t_.keys * t_.features : 0);
    at_values_ = floats(t_.keys * t_.padded());
    at_out_ = floats(width_ * t_.padded());
  }

  int tasks() const override { return static_cast<int>(std::min<std::int64_t>(t_.batch * t_.tiles(width_), 4096)); }
  std::size_t scratch_bytes() const override { return bytes_; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    scores_.prepare(worker.scratch + at_scores_);
    softmax_.prepare(worker.scratch + at_softmax_);
    product_.prepare(worker.scratch + at_product_);
    Memory own[] = {scores_.operands_of(memory), softmax_.operands_of(memory)};
    const std::int64_t units = t_.batch * t_.tiles(width_);
    std::int64_t have = worker.kept == nullptr ? region::kNothingKept : *worker.kept;  // the batch whose values are packed
    for (std::int64_t u = units * task_begin / tasks(); u < units * task_end / tasks(); ++u) {
      const std::int64_t batch = u / t_.tiles(width_);
      const Index origin = t_.origin_of(u, width_);
      if (have != batch) pack(memory, worker.scratch, origin);
      have = batch;
      one(memory, own, worker.scratch, origin);
    }
    if (worker.kept != nullptr) *worker.kept = have;
  }

 private:
  /// Rows of factors that are neighbours are read where they are.
  [[nodiscard]] bool gathers_keys() const { return t_.k.row != 1 && t_.features != 1; }
  std::size_t place(std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += line(bytes);
    return at;
  }
  static float* floats(std::byte* scratch, std::size_t at) { return reinterpret_cast<float*>(scratch + at); }

  void pack(const Memory& memory, std::byte* scratch, const Index& origin) const {
    pack_panels(k_, floats(scratch, at_values_), panel_, t_.v.at<float>(memory, origin), t_.keys, t_.columns, t_.v.row, t_.v.col);
    if (gathers_keys())
      gather_matrix(k_, floats(scratch, at_keys_), t_.features, t_.k.at<float>(memory, origin), t_.keys, t_.features, t_.k.col,
                    t_.k.row);
  }

  /// A tile of queries, from origin on.
  void one(const Memory& memory, Memory* own, std::byte* scratch, const Index& origin) const {
    float *tile = floats(scratch, at_tile_), *queries = floats(scratch, at_queries_), *sums = floats(scratch, at_sums_);
    auto* bytes = reinterpret_cast<std::byte*>(tile);
    const std::int64_t first = origin[t_.rank - 2], some = std::min(width_, t_.queries - first),
                       used = std::min(width_, (some + kColumns - 1) / kColumns * kColumns);
    if (some < used) std::fill(queries, queries + t_.features * width_, 0.0F);
    gather_matrix(k_, queries, width_, t_.q.at<float>(memory, origin) + first * t_.q.row, t_.features, some, t_.q.col, t_.q.row);
    const float* keys = gathers_keys() ? floats(scratch, at_keys_) : t_.k.at<float>(memory, origin);
    std::memset(tile, 0, static_cast<std::size_t>(t_.keys * width_) * sizeof(float));
    k_.multiply(tile, width_, keys, gathers_keys() ? t_.features : t_.k.col, t_.keys, queries, width_, t_.features, used);
    scores_.run(k_, own[0], scratch + at_scores_, origin, tile, bytes, t_.keys, some);
    k_.exp_columns(tile, width_, t_.keys, used, sums);
    k_.divide_columns(tile, width_, t_.keys, used, sums);
    softmax_.run(k_, own[1], scratch + at_softmax_, origin, tile, bytes, t_.keys, some);

    const std::int64_t padded = t_.padded();
    float* direct = padded == t_.columns ? stored_row(product_, memory, origin, t_.rank - 1) : nullptr;
    float* to = direct == nullptr ? floats(scratch, at_out_) : direct;
    const std::int64_t step = direct == nullptr ? padded : product_.space().stores.front().strides[t_.rank - 2] / 4;
    for (std::int64_t r = 0; r < some; ++r) std::memset(to + r * step, 0, static_cast<std::size_t>(padded) * sizeof(float));
    const float* values = floats(scratch, at_values_);
    for (std::int64_t j = 0; j < padded; j += panel_) {
      const std::int64_t columns = std::min(panel_, padded - j);
      k_.multiply_turned(to + j, step, tile, width_, some, values + j * t_.keys, columns, t_.keys, columns);
    }
    if (direct == nullptr)
      store_sums(product_, memory, scratch + at_product_, origin, t_.rank - 2, t_.rank - 1, to, step, some, t_.columns);
  }

  const RowKernels& k_;
  std::int64_t panel_, width_;
  AttentionSetting t_;
  TileProgram scores_, softmax_;
  Epilogue product_;
  std::size_t bytes_ = 0;
  std::size_t at_scores_ = 0, at_softmax_ = 0, at_product_ = 0, at_queries_ = 0, at_tile_ = 0, at_sums_ = 0, at_keys_ = 0,
              at_values_ = 0, at_out_ = 0;
};

class AttentionFamily final : public OldFamily {
 public:
  std::string_view name() const override { return "attention.f32.queries"; }
  bool forwards_stages() const override { return true; }
  bool about(const Region& r) const override {
    return is_attention(r) && !r.stages[0].anchor.integer && !r.stages[2].anchor.integer;
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const auto made = parts_of(r, Isa::portable);
    return refusal_of(made);
  }
  double cost(const Region& r, const Plan&, Isa isa) const override {
    const auto t = attention_setting(r, ir::DType::f32);
    if (!t) return 0;
    const auto scores = static_cast<double>(ir::count(r.stages[0].space)), queries = static_cast<double>(t->batch * t->queries);
    const double products = scores * static_cast<double>(t->features + t->columns) / 20.0;
    const double packed = static_cast<double>(t->batch) * static_cast<double>(t->keys) * static_cast<double>(t->columns) +
                          queries * static_cast<double>(t->features + t->columns);
    return (products + scores * 4.0 + packed * 1.5) * slowdown(isa) * kSecondsPerCycle + 0.5e-6;
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa isa, OldPacked) const override {
    OCTAVO_TRY(Parts p, parts_of(r, isa));
    return std::make_unique<AttentionKernel>(row_kernels(isa), std::move(p.setting), attention_width(r.tactic, isa),
                                             std::move(p.scores), std::move(p.softmax), std::move(p.product), isa);
  }
  std::vector<Parameters> parameter_sets(const Region& r, const Plan&, Isa isa) const override {
    const auto t = attention_setting(r, ir::DType::f32);
    return t ? attention_widths(*t, isa) : std::vector<Parameters>{};
  }
  std::span<const ParameterRow> parameter_rows() const override {
    static constexpr std::array kParameters{kRows};
    return kParameters;
  }

 private:
  struct Parts {
    AttentionSetting setting;
    TileProgram scores, softmax;
    Epilogue product;
  };
  static Result<Parts> parts_of(const Region& r, Isa isa) {
    Parts p;
    OCTAVO_TRY(p.setting, attention_setting(r, ir::DType::f32));
    const std::int64_t width = attention_width(r.tactic, isa);
    OCTAVO_TRY(p.scores, TileProgram::of(r.stages[0], isa, width));
    OCTAVO_TRY(p.softmax, TileProgram::of(r.stages[1], isa, width));
    OCTAVO_TRY(p.product, row_epilogue(r.stages[2], isa, p.setting.rank - 2, p.setting.rank - 1));
    return p;
  }
};

}  // namespace

const Family& attention_family() {
  static const Adapted<AttentionFamily> family;
  return family;
}

}  // namespace octavo::cpu
