// cpu.staged.row_tiles(<tactic>,<tactic>,...): a chain of 2 to 4 stages, each of which alone reads the one before (conv + pooling,
// depthwise + 1x1, quantize + conv, ...), row tile by row tile, the rows between them in the worker's scratch instead of memory. A
// stage reads the one before by its anchor, or as an operand of its epilogue (a residual branch's convolution and the one that adds it);
// then its anchor reads from outside.
// The stages are ordinary kernels of any provider, made for regions that are one row tile high; every tensor of such a region is a
// buffer of its own, so that a row tile is reached by moving base addresses. Rows that the next row tile needs again are carried over; only
// the first row tile of a task computes its halo anew.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "cpu/family.h"
#include "cpu/provider.h"
#include "cpu/stages/staged_rows.h"
#include "region/forwarded.h"
#include "region/in_place.h"

namespace octavo::cpu {
namespace {

using region::TensorRef;
using staged::first_input;
using staged::Rows;
using staged::Schedule;
using staged::schedule_of;
using staged::Slab;
using staged::slab_of;
using staged::slabs_of;
using staged::Vertical;
using staged::vertical;
constexpr std::size_t kMostStages = 4;
constexpr std::size_t kSlack = 64;  // readable and writable around an arena buffer

// Channel-last rows between stage k and the next.
TensorRef between_of(const Region& r, std::size_t k) {
  TensorRef t = r.stages[k].stores[0];
  const ir::Shape& d = r.stages[k].space;
  t.buffer = 1 << 30;  // no buffer of the plan
  t.offset = 0;
  t.dims = d;
  t.strides = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
  const Stage& next = r.stages[k + 1];
  if (!region::read_by_epilogue(r, k + 1)) t.quantizer = next.anchor.inputs[0].quantizer;
  for (const auto& o : next.operands) {
    if (region::forwarded(r, k + 1, o.ref)) t.quantizer = o.ref.quantizer;
  }
  return t;
}

// A region of one stage, `slab` high, whose tensors are buffers 0, 1, ... in the order inputs, operands, stores, weights.
struct Piece {
  Region region;
  Plan plan;
};
Piece piece_of(const Region& whole, const Plan& plan, std::size_t stage_index, const Slab& slab) {
  Piece p;
  p.region.name = fmt::format("{}, stage {}", whole.name, stage_index);
  Stage s = whole.stages[stage_index];
  p.plan.threads = 1;
  const auto own = [&](TensorRef& r, std::int64_t height) {
    const bool kept = static_cast<std::size_t>(r.buffer) < plan.buffers.size();
    region::Buffer b;
    if (kept) b = plan.buffers[static_cast<std::size_t>(r.buffer)];
    if (!kept) b.bytes = height * r.strides[2] * static_cast<std::int64_t>(ir::size_of(r.dtype));
    b.binding = -1;
    if (b.kind == region::BufferKind::output) b.kind = region::BufferKind::input;  // no slack around it, whatever the name
    if (height >= 0) {
      r.dims[0] = 1;
      r.dims[2] = r.dims[2] == 1 && r.strides[2] == 0 ? 1 : height;
      r.offset = 0;
    }
    r.buffer = static_cast<region::BufferId>(p.plan.buffers.size());
    p.plan.buffers.push_back(std::move(b));
  };
  if (stage_index + 1 < whole.stages.size()) s.stores[0] = between_of(whole, stage_index);
  for (auto& o : s.operands) {
    if (region::forwarded(whole, stage_index, o.ref)) o.ref = between_of(whole, stage_index - 1);
  }
  if (!s.anchor.none() && region::forwarded(whole, stage_index, s.anchor.inputs[0]))
    s.anchor.inputs[0] = between_of(whole, stage_index - 1);
  if (!s.anchor.none()) own(s.anchor.inputs[0], slab.in_rows);
  for (auto& o : s.operands) own(o.ref, slab.rows);
  for (TensorRef& r : s.stores) own(r, slab.rows);
  if (s.anchor.weights) own(*s.anchor.weights, -1);
  s.space[0] = 1;
  s.space[2] = slab.rows;
  if (!s.anchor.none()) {
    auto pads = ir::get_ints(s.anchor.attrs, "pads");
    if (pads.empty()) pads.assign(4, 0);
    pads[0] = slab.top;
    pads[2] = slab.bottom;
    s.anchor.attrs["pads"] = pads;
  }
  p.region.stages.push_back(std::move(s));
  return p;
}

std::ptrdiff_t readers_within(const Region& r, region::BufferId buffer) {
  std::ptrdiff_t n = 0;
  for (const Stage& s : r.stages) {
    for (const TensorRef& t : s.anchor.inputs) n += t.buffer == buffer ? 1 : 0;
    for (const auto& o : s.operands) n += o.ref.buffer == buffer ? 1 : 0;
  }
  return n;
}

std::string refusal(const Region& r) {
  if (r.stages.size() > kMostStages) return fmt::format("{} stages, at most {}", r.stages.size(), kMostStages);
  for (std::size_t k = 0; k < r.stages.size(); ++k) {
    const Stage& s = r.stages[k];
    const bool pass = s.anchor.none() && (k == 0 || region::read_by_epilogue(r, k));
    if (s.space.size() != 4 || (!pass && (s.anchor.inputs.size() != 1 || s.anchor.inputs[0].dims.size() != 4)))
      return "needs two spatial dimensions";
    for (const auto& o : s.operands) {
      if (!o.div.empty() && (o.div[0] != 1 || o.div[2] != 1)) return "an operand repeats along the height";
    }
    for (const auto& o : s.operands) {
      if (o.ref.dims.size() == 4 && o.ref.dims[2] == 1 && o.ref.strides[2] != 0 && s.space[2] > 1)
        return "an operand of one row is not broadcast by strides";
    }
    if (!s.anchor.none()) {
      const Vertical v = vertical(s);
      const auto pads = ir::get_ints(s.anchor.attrs, "pads");
      if (std::max(v.pad, pads.size() > 2 ? pads[2] : 0) >= (v.kernel - 1) * v.dilation + 1)
        return "a window may lie wholly in the padding";
    }
    if (k == 0) continue;
    const TensorRef* met = nullptr;
    for (const TensorRef& t : s.anchor.inputs) met = region::forwarded(r, k, t) ? &t : met;
    for (const auto& o : s.operands) met = region::forwarded(r, k, o.ref) ? &o.ref : met;
    const Stage& before = r.stages[k - 1];
    if (met == nullptr || before.stores.size() != 1 || before.space != met->dims) return "the stages do not meet in one tensor";
    if (before.stores[0].dtype != met->dtype) return "the stages do not agree on the type between them";
    if (readers_within(r, met->buffer) != 1) return "what is between two stages is read twice";
    if (!region::same_places(before.stores[0], *met)) return "what is between is read at another place";
    for (const auto& o : s.operands) {
      const bool repeats = std::any_of(o.div.begin(), o.div.end(), [](std::int64_t d) { return d != 1; });
      if (repeats && region::forwarded(r, k, o.ref)) return "what is between is read at another place";
    }
  }
  if (ir::count(r.stages.back().space) == 0 || ir::count(r.stages.front().space) == 0) return "no elements";
  return "";
}

struct Choice {
  Tactic tactic;
  double seconds = 0;  // for all row tiles of an image
};
// The first provider's cheapest tactic that takes every height.
std::optional<Choice> choose(const Region& r, const Plan& plan, const Schedule& schedule, std::size_t stage) {
  std::vector<Piece> pieces;
  for (const Slab& slab : slabs_of(r, schedule, stage)) pieces.push_back(piece_of(r, plan, stage, slab));
  struct Taken {
    std::size_t pieces = 0;
    Choice choice;
  };
  for (const region::Provider* p : providers()) {
    std::map<std::string, Taken> taken;
    for (const Piece& piece : pieces) {
      for (Offer& o : p->offers(piece.region, piece.plan)) {
        if (!o.refusal.empty()) continue;
        Taken& t = taken[o.tactic.name()];
        ++t.pieces;
        t.choice.seconds += o.cost;
        t.choice.tactic = std::move(o.tactic);
      }
    }
    std::optional<Choice> best;
    for (auto& [name, t] : taken) {
      if (t.pieces == pieces.size() && (!best || t.choice.seconds < best->seconds)) best = std::move(t.choice);
    }
    if (best) {
      std::size_t row_tiles = 0;
      for (const auto& task : schedule.tasks) row_tiles += task.size();
      best->seconds *= static_cast<double>(row_tiles) / static_cast<double>(std::max<std::size_t>(pieces.size(), 1));
      return best;
    }
  }
  return std::nullopt;
}

class StagedKernel final : public Kernel {
 public:
  using Kernels = std::map<Slab, std::unique_ptr<region::HostKernel>>;
  StagedKernel(Region r, Schedule schedule, std::vector<Kernels> kernels)
      : region_(std::move(r)), stages_(region_.stages), schedule_(std::move(schedule)), kernels_(std::move(kernels)) {
    for (std::size_t k = 0; k < stages_.size(); ++k) {
      v_.push_back(vertical(stages_[k]));
      for (const auto& [slab, kernel] : kernels_[k]) inner_scratch_ = std::max(inner_scratch_, kernel->scratch_bytes());
      if (k + 1 == stages_.size()) continue;
      const TensorRef between = between_of(region_, k);
      row_bytes_.push_back(between.strides[2] * static_cast<std::int64_t>(ir::size_of(between.dtype)));
      between_at_.push_back(between_bytes_ + kSlack);
      between_bytes_ += (static_cast<std::size_t>(schedule_.between_rows[k] * row_bytes_[k]) + 2 * kSlack + 63) / 64 * 64;
    }
  }

  int tasks() const override {
    return static_cast<int>(stages_.back().space[0] * static_cast<std::int64_t>(schedule_.tasks.size()));
  }
  std::size_t scratch_bytes() const override { return between_bytes_ + inner_scratch_; }

  const std::byte* first_read(int task) const override { return first_of(row_tiles_of(task), 0, 0); }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    for (int t = task_begin; t < task_end; ++t) {
      const std::int64_t n = t / static_cast<std::int64_t>(schedule_.tasks.size());
      const auto& row_tiles = row_tiles_of(t);
      for (std::size_t b = 0; b < row_tiles.size(); ++b) {
        for (std::size_t k = 0; k < stages_.size(); ++k) {
          const Rows& rows = row_tiles[b][k];
          const bool last = k + 1 == stages_.size();
          if (!last && b > 0 && rows.new_begin > rows.begin &&
              rows.begin > row_tiles[b - 1][k].begin) {  // carry over what is read again
            std::byte* at = worker.scratch + between_at_[k];
            std::memmove(at, at + (rows.begin - row_tiles[b - 1][k].begin) * row_bytes_[k],
                         static_cast<std::size_t>((rows.new_begin - rows.begin) * row_bytes_[k]));
          }
          if (rows.new_begin == rows.end) continue;
          const bool end = last && b + 1 == row_tiles.size();
          const std::byte* ahead = !end               ? first_of(row_tiles, last ? b + 1 : b, last ? 0 : k + 1)
                                   : t + 1 < task_end ? first_read(t + 1)
                                                      : worker.ahead;
          run_stage(memory, {worker.index, worker.count, worker.scratch, ahead}, k, n, rows);
        }
      }
    }
  }

 private:
  void run_stage(const Memory& memory, const Worker& worker, std::size_t k, std::int64_t n, const Rows& rows) const {
    const Stage& s = stages_[k];
    const std::int64_t begin = rows.new_begin;
    const auto at = [&](const TensorRef& r, std::int64_t row) {
      const std::int64_t image = s.space[0] == 1 || r.dims[0] == 1 ? 0 : n * r.strides[0];
      return memory.at(r) + (image + row * r.strides[2]) * static_cast<std::int64_t>(ir::size_of(r.dtype));
    };
    Memory own;  // in piece_of's order
    const auto read = [&](const TensorRef& r, std::int64_t row) {
      own.base.push_back(region::forwarded(region_, k, r) ? worker.scratch + between_at_[k - 1] : at(r, row));
    };
    if (!s.anchor.none()) read(s.anchor.inputs[0], first_input(v_[k], begin));
    for (const auto& o : s.operands) read(o.ref, o.ref.dims[2] == 1 ? 0 : begin);
    for (const TensorRef& r : s.stores)
      own.base.push_back(k + 1 < stages_.size() ? worker.scratch + between_at_[k] + (begin - rows.begin) * row_bytes_[k]
                                                : at(r, begin));
    if (s.anchor.weights) own.base.push_back(memory.base[static_cast<std::size_t>(s.anchor.weights->buffer)]);
    const region::HostKernel& kernel = *kernels_[k].at(slab_of(v_[k], begin, rows.end));
    kernel.run(own, 0, kernel.tasks(), Worker{worker.index, worker.count, worker.scratch + between_bytes_, worker.ahead});
  }

  [[nodiscard]] const std::vector<staged::RowTile>& row_tiles_of(int task) const {
    return schedule_.tasks[static_cast<std::size_t>(task) % schedule_.tasks.size()];
  }
  /// The constants that are read first from stage k of row tile b on; null where nobody says.
  [[nodiscard]] const std::byte* first_of(const std::vector<staged::RowTile>& row_tiles, std::size_t b, std::size_t k) const {
    for (; k < stages_.size(); ++k) {
      const Rows& rows = row_tiles[b][k];
      if (rows.new_begin < rows.end) return kernels_[k].at(slab_of(v_[k], rows.new_begin, rows.end))->first_read(0);
    }
    return nullptr;
  }

  Region region_;
  const std::vector<Stage>& stages_;
  Schedule schedule_;
  std::vector<Kernels> kernels_;
  std::vector<Vertical> v_;
  std::vector<std::int64_t> row_bytes_;
  std::vector<std::size_t> between_at_;
  std::size_t between_bytes_ = 0, inner_scratch_ = 0;
};

class StagedFamily final : public Family {
 public:
  std::string_view name() const override { return "staged.row_tiles"; }
  bool per_isa() const override { return false; }
  bool about(const Region& r) const override {
    if (r.independent || r.stages.size() < 2) return false;
    for (std::size_t k = 0; k < r.stages.size(); ++k) {
      const region::Anchor& a = r.stages[k].anchor;
      const bool window = (a.op == ir::Op::conv && a.weights) || a.op == ir::Op::max_pool || a.op == ir::Op::avg_pool;
      if (r.stages[k].stores.empty() || !(window ? !a.inputs.empty() : a.none() && (k == 0 || region::read_by_epilogue(r, k))))
        return false;
    }
    return true;
  }
  bool forwards_stages() const override { return true; }
  std::vector<Tactic> parts_for(const Region& r, const Plan& plan) const override {
    std::vector<Tactic> parts;
    for (Choice& c : choices(r, plan)) parts.push_back(std::move(c.tactic));
    return parts;
  }
  std::string why_not(const Region& r, const Plan&) const override { return refusal(r); }
  std::string why_no_parts(const Region& r, const Plan& plan) const override {
    return choices(r, plan).empty() ? "no tactic takes row tiles of one of the stages" : "";
  }
  double cost(const Region& r, const Plan& plan, Isa) const override {
    double sum = 0;
    for (const Choice& c : choices(r, plan)) sum += c.seconds;
    return sum * static_cast<double>(r.stages.back().space[0]);
  }

  // packed[0]: s32 pairs (first, count) of the tensors behind it, for each height of each stage in order; equal tensors of a stage
  // are stored once.
  Result<std::vector<ir::Tensor>> pack(const Region& r, const Plan& plan, Isa) const override {
    OCTAVO_TRY(const auto made_by, providers_of(r.tactic.parts, r.stages.size()));
    const Schedule schedule = schedule_of(r, plan.threads);
    std::vector<std::int32_t> table;
    std::vector<ir::Tensor> out{ir::Tensor()};
    for (std::size_t k = 0; k < made_by.size(); ++k) {
      std::vector<std::vector<ir::Tensor>> seen;
      std::vector<std::int32_t> first;
      for (const Slab& slab : slabs_of(r, schedule, k)) {
        const Piece piece = piece_of(r, plan, k, slab);
        OCTAVO_TRY(auto made, made_by[k]->compile(piece.region, piece.plan, r.tactic.parts[k]));
        std::vector<ir::Tensor>& packed = made.constants;
        const auto same = [&](const std::vector<ir::Tensor>& other) {
          return std::equal(packed.begin(), packed.end(), other.begin(), other.end(), ir::same_bytes);
        };
        const auto found = std::find_if(seen.begin(), seen.end(), same);
        if (found == seen.end()) {
          first.push_back(static_cast<std::int32_t>(out.size()));
          out.insert(out.end(), packed.begin(), packed.end());
          seen.push_back(std::move(packed));
          table.push_back(first.back());
          table.push_back(static_cast<std::int32_t>(seen.back().size()));
        } else {
          table.push_back(first[static_cast<std::size_t>(found - seen.begin())]);
          table.push_back(static_cast<std::int32_t>(found->size()));
        }
      }
    }
    out[0] = ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(table.size())}, table);
    return out;
  }

  Result<std::vector<std::int64_t>> packed_bytes(const Region& r, const Plan& plan, Isa) const override {
    const Schedule schedule = schedule_of(r, plan.threads);
    std::int64_t heights = 0;
    for (std::size_t k = 0; k < r.stages.size(); ++k) heights += static_cast<std::int64_t>(slabs_of(r, schedule, k).size());
    return std::vector<std::int64_t>{heights * 8};
  }
  bool packs_parts() const override { return true; }

  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan& plan, Isa, Packed packed) const override {
    OCTAVO_TRY(const auto made_by, providers_of(r.tactic.parts, r.stages.size()));
    Schedule schedule = schedule_of(r, plan.threads);
    std::vector<StagedKernel::Kernels> kernels(r.stages.size());
    const auto* table = reinterpret_cast<const std::int32_t*>(packed[0]);
    for (std::size_t k = 0; k < r.stages.size(); ++k) {
      for (const Slab& slab : slabs_of(r, schedule, k)) {
        Piece piece = piece_of(r, plan, k, slab);
        piece.region.tactic = r.tactic.parts[k];
        const auto first = static_cast<std::size_t>(table[0]), count = static_cast<std::size_t>(table[1]);
        table += 2;
        if (first > packed.size() || count > packed.size() - first)
          return fail(ErrorKind::bad_engine, fmt::format("stage {}: packed constants {}.. ({} of them), the region has {}", k,
                                                         table[-2], table[-1], packed.size()));
        for (std::size_t i = first; i < first + count; ++i) {
          piece.region.packed.push_back(static_cast<region::BufferId>(piece.plan.buffers.size()));
          piece.plan.buffers.push_back(plan.buffers[static_cast<std::size_t>(r.packed[i])]);
        }
        OCTAVO_TRY(auto kernel,
                   region::as_host_kernel(made_by[k]->load(piece.region, piece.plan, {packed.subspan(first, count), {}, {}})));
        kernels[k].emplace(slab, std::move(kernel));
      }
    }
    return std::make_unique<StagedKernel>(r, std::move(schedule), std::move(kernels));
  }

 private:
  /// One a stage, or none when a stage has no tactic.
  static std::vector<Choice> choices(const Region& r, const Plan& plan) {
    if (!refusal(r).empty()) return {};
    const Schedule schedule = schedule_of(r, plan.threads);
    std::vector<Choice> out;
    for (std::size_t k = 0; k < r.stages.size(); ++k) {
      auto c = choose(r, plan, schedule, k);
      if (!c) return {};
      out.push_back(std::move(*c));
    }
    return out;
  }
};

}  // namespace

const Family& staged_family() {
  static const StagedFamily family;
  return family;
}

}  // namespace octavo::cpu
