// cpu.staged.bands(<stage 0 tactic>,<stage 1 tactic>): a convolution and the pooling that alone reads it, band of rows by band, the
// rows between them in the worker's scratch instead of memory. The stages are ordinary kernels of any provider, made for regions
// that are one band high; every tensor of such a region is a buffer of its own, so that a band is reached by moving base addresses.
// Rows that the next band needs again are carried over; only the first band of a task computes its halo anew.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "cpu/family.h"
#include "cpu/provider.h"

namespace octavo::cpu {
namespace {

using region::TensorRef;
constexpr std::int64_t kBandBytes = 96 * 1024;  // of the rows between the stages: well inside L2
constexpr std::size_t kSlack = 64;              // readable and writable around an arena buffer

// The vertical geometry of a window operator.
struct Vertical {
  std::int64_t in, out, kernel, stride, dilation, pad;
};
Vertical vertical(const Stage& s) {
  const auto kernel = s.anchor.weights ? ir::Shape(s.anchor.weights->dims.begin() + 2, s.anchor.weights->dims.end())
                                       : ir::get_ints(s.anchor.attrs, "kernel");
  const auto first = [&](const char* key, std::int64_t fallback) {
    const auto v = ir::get_ints(s.anchor.attrs, key);
    return v.empty() ? fallback : v[0];
  };
  return {s.anchor.inputs[0].dims[2], s.space[2], kernel[0], first("strides", 1), first("dilations", 1), first("pads", 0)};
}

// Rows [begin, end) of a stage's result: which input rows it reads, and how much of its window is padding there.
struct Slab {
  std::int64_t rows, in_rows, top, bottom;
  auto operator<=>(const Slab&) const = default;
};
std::int64_t first_input(const Vertical& v, std::int64_t begin) {
  return std::clamp<std::int64_t>(begin * v.stride - v.pad, 0, v.in);
}
std::int64_t last_input(const Vertical& v, std::int64_t begin, std::int64_t end) {
  return std::clamp<std::int64_t>((end - 1) * v.stride - v.pad + (v.kernel - 1) * v.dilation + 1, first_input(v, begin), v.in);
}
Slab slab_of(const Vertical& v, std::int64_t begin, std::int64_t end) {
  const std::int64_t from = begin * v.stride - v.pad, to = (end - 1) * v.stride - v.pad + (v.kernel - 1) * v.dilation + 1;
  return {end - begin, last_input(v, begin, end) - first_input(v, begin), first_input(v, begin) - from,
          to - last_input(v, begin, end)};
}

// One band of a task: rows of stage 1's result, and the rows of stage 0's result that it adds to those carried over.
struct Band {
  std::int64_t begin, end;          // stage 1
  std::int64_t between_begin;       // stage 0 rows in scratch start here
  std::int64_t new_begin, new_end;  // stage 0 rows to compute
};
struct Schedule {
  std::vector<std::vector<Band>> tasks;  // of one image
  std::int64_t between_rows = 1;
};
Schedule schedule_of(const Region& r, int threads) {
  const Vertical v = vertical(r.stages[1]);
  const auto& space = r.stages[0].space;
  const auto size = static_cast<std::int64_t>(ir::size_of(r.stages[0].stores[0].dtype));
  const std::int64_t row_bytes = std::max<std::int64_t>(space[1] * space[3] * size, 1);
  const std::int64_t rows = std::clamp<std::int64_t>(kBandBytes / row_bytes / std::max<std::int64_t>(v.stride, 1), 1, v.out);
  const std::int64_t bands = (v.out + rows - 1) / rows;
  const std::int64_t count = std::clamp<std::int64_t>(threads <= 1 || space[0] >= threads ? 1 : threads, 1, bands);
  Schedule s;
  for (std::int64_t t = 0; t < count; ++t) {
    std::vector<Band> task;
    for (std::int64_t b = bands * t / count; b < bands * (t + 1) / count; ++b) {
      Band band;
      band.begin = b * rows;
      band.end = std::min(v.out, band.begin + rows);
      band.between_begin = first_input(v, band.begin);
      band.new_end = last_input(v, band.begin, band.end);
      band.new_begin = task.empty() ? band.between_begin : std::clamp(task.back().new_end, band.between_begin, band.new_end);
      s.between_rows = std::max(s.between_rows, band.new_end - band.between_begin);
      task.push_back(band);
    }
    s.tasks.push_back(std::move(task));
  }
  return s;
}

// A region of one stage, `slab` high, whose tensors are buffers 0, 1, ... in the order inputs, operands, stores, weights.
struct Piece {
  Region region;
  Plan plan;
};
Piece piece_of(const Region& whole, const Plan& plan, std::size_t stage_index, const Slab& slab, const TensorRef& between) {
  Piece p;
  p.region.name = whole.name;
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
  TensorRef& x = s.anchor.inputs[0];
  TensorRef& y = s.stores[0];
  if (stage_index == 0) y = between;
  if (stage_index == 1) x = between;
  own(x, slab.in_rows);
  for (auto& o : s.operands) own(o.ref, slab.rows);
  for (TensorRef& r : s.stores) own(r, slab.rows);
  if (s.anchor.weights) own(*s.anchor.weights, -1);
  s.space[0] = 1;
  s.space[2] = slab.rows;
  auto pads = ir::get_ints(s.anchor.attrs, "pads");
  if (pads.empty()) pads.assign(4, 0);
  pads[0] = slab.top;
  pads[2] = slab.bottom;
  s.anchor.attrs["pads"] = pads;
  p.region.stages.push_back(std::move(s));
  return p;
}

// Channel-last rows between the stages.
TensorRef between_of(const Region& r) {
  TensorRef t = r.stages[0].stores[0];
  const ir::Shape& d = r.stages[0].space;
  t.buffer = 1 << 30;  // no buffer of the plan
  t.offset = 0;
  t.dims = d;
  t.strides = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
  t.quantizer = r.stages[1].anchor.inputs[0].quantizer;
  return t;
}

std::set<Slab> slabs_of(const Region& r, const Schedule& schedule, std::size_t stage) {
  std::set<Slab> out;
  const Vertical v = vertical(r.stages[stage]);
  for (const auto& task : schedule.tasks) {
    for (const Band& b : task) {
      if (stage == 1) out.insert(slab_of(v, b.begin, b.end));
      if (stage == 0 && b.new_begin < b.new_end) out.insert(slab_of(v, b.new_begin, b.new_end));
    }
  }
  return out;
}

std::string refusal(const Region& r) {
  for (const Stage& s : r.stages) {
    if (s.space.size() != 4 || s.anchor.inputs.size() != 1 || s.anchor.inputs[0].dims.size() != 4)
      return "needs two spatial dimensions";
    for (const auto& o : s.operands) {
      if (!o.div.empty() && (o.div[0] != 1 || o.div[2] != 1)) return "an operand repeats along the height";
    }
  }
  if (ir::count(r.stages[1].space) == 0) return "no elements";
  if (r.stages[0].stores.size() != 1 || r.stages[0].space != r.stages[1].anchor.inputs[0].dims)
    return "the stages do not meet in one tensor";
  if (r.stages[0].stores[0].dtype != r.stages[1].anchor.inputs[0].dtype) return "the stages do not agree on the type between them";
  return "";
}

struct Choice {
  std::string tactic;
  const region::Provider* provider = nullptr;
  double seconds = 0;  // for all bands of an image
};
// The first provider's cheapest tactic that takes every height; `wanted` non-empty: that one.
std::optional<Choice> choose(const Region& r, const Plan& plan, const Schedule& schedule, std::size_t stage,
                             std::string_view wanted) {
  const TensorRef between = between_of(r);
  std::vector<Piece> pieces;
  for (const Slab& slab : slabs_of(r, schedule, stage)) pieces.push_back(piece_of(r, plan, stage, slab, between));
  for (const region::Provider* p : providers()) {
    std::map<std::string, std::pair<std::size_t, double>> taken;  // tactic -> pieces, seconds
    for (const Piece& piece : pieces) {
      for (const Offer& o : p->offers(piece.region, piece.plan)) {
        if (!o.refusal.empty() || (!wanted.empty() && o.tactic != wanted)) continue;
        ++taken[o.tactic].first;
        taken[o.tactic].second += o.cost;
      }
    }
    std::optional<Choice> best;
    for (const auto& [tactic, sum] : taken) {
      if (sum.first == pieces.size() && (!best || sum.second < best->seconds)) best = Choice{tactic, p, sum.second};
    }
    if (best) {
      std::size_t bands = 0;
      for (const auto& task : schedule.tasks) bands += task.size();
      best->seconds *= static_cast<double>(bands) / static_cast<double>(std::max<std::size_t>(pieces.size(), 1));
      return best;
    }
  }
  return std::nullopt;
}

// The two names in "cpu.staged.bands(a,b)".
std::optional<std::pair<std::string, std::string>> parse(std::string_view tactic) {
  const auto open = tactic.find('('), comma = tactic.find(','), close = tactic.rfind(')');
  if (open == std::string_view::npos || comma == std::string_view::npos || close != tactic.size() - 1 || comma < open)
    return std::nullopt;
  return std::pair{std::string(tactic.substr(open + 1, comma - open - 1)),
                   std::string(tactic.substr(comma + 1, close - comma - 1))};
}

class StagedKernel final : public Kernel {
 public:
  using Kernels = std::map<Slab, std::unique_ptr<Kernel>>;
  StagedKernel(const Region& r, Schedule schedule, Kernels first, Kernels second)
      : stages_(r.stages), schedule_(std::move(schedule)), between_(between_of(r)) {
    kernels_[0] = std::move(first);
    kernels_[1] = std::move(second);
    for (std::size_t k = 0; k < 2; ++k) {
      v_[k] = vertical(stages_[k]);
      for (const auto& [slab, kernel] : kernels_[k]) inner_scratch_ = std::max(inner_scratch_, kernel->scratch_bytes());
    }
    row_bytes_ = between_.strides[2] * static_cast<std::int64_t>(ir::size_of(between_.dtype));
    between_bytes_ = (static_cast<std::size_t>(schedule_.between_rows * row_bytes_) + 2 * kSlack + 63) / 64 * 64;
  }

  int tasks() const override { return static_cast<int>(stages_[1].space[0] * static_cast<std::int64_t>(schedule_.tasks.size())); }
  std::size_t scratch_bytes() const override { return between_bytes_ + inner_scratch_; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    std::byte* between = worker.scratch + kSlack;
    const Worker inner{worker.index, worker.count, worker.scratch + between_bytes_};
    for (int t = task_begin; t < task_end; ++t) {
      const std::int64_t n = t / static_cast<std::int64_t>(schedule_.tasks.size());
      const auto& bands = schedule_.tasks[static_cast<std::size_t>(t) % schedule_.tasks.size()];
      for (std::size_t b = 0; b < bands.size(); ++b) {
        const Band& band = bands[b];
        if (b > 0 && band.new_begin > band.between_begin) {  // carry over what both bands read
          std::memmove(between, between + (band.between_begin - bands[b - 1].between_begin) * row_bytes_,
                       static_cast<std::size_t>((band.new_begin - band.between_begin) * row_bytes_));
        }
        if (band.new_begin < band.new_end) {
          run_stage(memory, inner, 0, n, band.new_begin, band.new_end,
                    between + (band.new_begin - band.between_begin) * row_bytes_);
        }
        run_stage(memory, inner, 1, n, band.begin, band.end, between);
      }
    }
  }

 private:
  void run_stage(const Memory& memory, const Worker& worker, std::size_t k, std::int64_t n, std::int64_t begin, std::int64_t end,
                 std::byte* between) const {
    const Stage& s = stages_[k];
    const auto at = [&](const TensorRef& r, std::int64_t row) {
      const std::int64_t image = s.space[0] == 1 || r.dims[0] == 1 ? 0 : n * r.strides[0];
      return memory.at(r) + (image + row * r.strides[2]) * static_cast<std::int64_t>(ir::size_of(r.dtype));
    };
    Memory own;  // in piece_of's order
    own.base.push_back(k == 1 ? between : at(s.anchor.inputs[0], first_input(v_[0], begin)));
    for (const auto& o : s.operands) own.base.push_back(at(o.ref, o.ref.dims[2] == 1 ? 0 : begin));
    for (const TensorRef& r : s.stores) own.base.push_back(k == 0 ? between : at(r, begin));
    if (s.anchor.weights) own.base.push_back(memory.base[static_cast<std::size_t>(s.anchor.weights->buffer)]);
    const Kernel& kernel = *kernels_[k].at(slab_of(v_[k], begin, end));
    kernel.run(own, 0, kernel.tasks(), worker);
  }

  std::vector<Stage> stages_;
  Schedule schedule_;
  TensorRef between_;
  Kernels kernels_[2];
  Vertical v_[2];
  std::int64_t row_bytes_ = 1;
  std::size_t between_bytes_ = 0, inner_scratch_ = 0;
};

class StagedFamily final : public Family {
 public:
  std::string_view name() const override { return "cpu.staged.bands"; }
  bool per_isa() const override { return false; }
  bool about(const Region& r) const override {
    if (r.stages.size() != 2) return false;
    const region::Anchor &a = r.stages[0].anchor, &b = r.stages[1].anchor;
    return a.op == ir::Op::conv && a.weights && !a.inputs.empty() && (b.op == ir::Op::max_pool || b.op == ir::Op::avg_pool) &&
           !b.inputs.empty() && !r.stages[0].stores.empty() && !r.stages[1].stores.empty();
  }
  std::string name_for(const Region& r, const Plan& plan) const override {
    const auto c = choices(r, plan, std::nullopt);
    return c ? fmt::format("{}({},{})", name(), c->first.tactic, c->second.tactic) : std::string(name());
  }
  bool matches(std::string_view tactic, const Region&, const Plan&, Isa) const override {
    return tactic.substr(0, name().size() + 1) == "cpu.staged.bands(";
  }
  std::string why_not(const Region& r, const Plan& plan) const override {
    if (auto why = refusal(r); !why.empty()) return why;
    std::optional<std::pair<std::string, std::string>> wanted;
    if (!r.tactic.empty() && matches(r.tactic, r, plan, Isa::portable)) wanted = parse(r.tactic);
    if (!choices(r, plan, wanted)) return "no tactic takes bands of the convolution, or of the pooling";
    return "";
  }
  double cost(const Region& r, const Plan& plan, Isa) const override {
    const auto c = choices(r, plan, std::nullopt);
    return c ? (c->first.seconds + c->second.seconds) * static_cast<double>(r.stages[1].space[0]) : 0;
  }

  // packed[0]: s32 pairs (first, count) of the tensors behind it, for each height of stage 0 in order; equal tensors are stored
  // once.
  Result<std::vector<ir::Tensor>> pack(const Region& r, const Plan& plan, Isa) const override {
    const auto names = parse(r.tactic);
    if (!names) return fail(ErrorKind::internal, fmt::format("packing for tactic \"{}\": it does not name two tactics", r.tactic));
    const Schedule schedule = schedule_of(r, plan.threads);
    const auto c = choose(r, plan, schedule, 0, names->first);
    if (!c) return fail(ErrorKind::unsupported, fmt::format("packing for tactic \"{}\": no provider takes it", r.tactic));
    std::vector<std::int32_t> table;
    std::vector<ir::Tensor> out{ir::Tensor()};
    std::vector<std::vector<ir::Tensor>> seen;
    std::vector<std::int32_t> first;
    for (const Slab& slab : slabs_of(r, schedule, 0)) {
      const Piece piece = piece_of(r, plan, 0, slab, between_of(r));
      OCTAVO_TRY(auto packed, c->provider->pack(piece.region, piece.plan, c->tactic));
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
    out[0] = ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(table.size())}, table);
    return out;
  }

  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan& plan, Isa, Packed packed) const override {
    const auto names = parse(r.tactic);
    if (!names || packed.empty())
      return fail(ErrorKind::bad_engine, fmt::format("tactic \"{}\" with {} packed constants", r.tactic, packed.size()));
    Schedule schedule = schedule_of(r, plan.threads);
    StagedKernel::Kernels kernels[2];
    const auto* table = reinterpret_cast<const std::int32_t*>(packed[0]);
    for (std::size_t k = 0; k < 2; ++k) {
      const auto c = choose(r, plan, schedule, k, k == 0 ? names->first : names->second);
      if (!c) return fail(ErrorKind::unsupported, fmt::format("tactic \"{}\": its part for stage {} cannot run here", r.tactic, k));
      for (const Slab& slab : slabs_of(r, schedule, k)) {
        Piece piece = piece_of(r, plan, k, slab, between_of(r));
        piece.region.tactic = c->tactic;
        Packed own;
        if (k == 0) {
          const auto first = static_cast<std::size_t>(table[0]), count = static_cast<std::size_t>(table[1]);
          if (first > packed.size() || count > packed.size() - first)
            return fail(ErrorKind::bad_engine, "staged region: its packed table points outside");
          own = packed.subspan(first, count);
          table += 2;
        }
        OCTAVO_TRY(auto kernel, c->provider->instantiate(piece.region, piece.plan, own));
        kernels[k].emplace(slab, std::move(kernel));
      }
    }
    return std::make_unique<StagedKernel>(r, std::move(schedule), std::move(kernels[0]), std::move(kernels[1]));
  }

 private:
  static std::optional<std::pair<Choice, Choice>> choices(const Region& r, const Plan& plan,
                                                          const std::optional<std::pair<std::string, std::string>>& wanted) {
    if (!refusal(r).empty()) return std::nullopt;
    const Schedule schedule = schedule_of(r, plan.threads);
    auto first = choose(r, plan, schedule, 0, wanted ? wanted->first : "");
    auto second = choose(r, plan, schedule, 1, wanted ? wanted->second : "");
    if (!first || !second) return std::nullopt;
    return std::pair{*first, *second};
  }
};

}  // namespace

const Family& staged_family() {
  static const StagedFamily family;
  return family;
}

}  // namespace octavo::cpu
