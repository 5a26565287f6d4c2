// cpu.grouped(<tactic>,<tactic>,...): independent stages as one region. The parts' tasks are the region's tasks, so small layers
// that read one tensor are spread over the threads at once, after one start instead of several, while their input is in cache.
#include <algorithm>
#include <optional>

#include "cpu/cost_model.h"
#include "cpu/stages/parts.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

Region part_of(const Region& r, std::size_t stage) {
  Region part;
  part.name = fmt::format("{}, part {}", r.name, stage);
  part.stages = {r.stages[stage]};
  return part;
}

/// The cheapest tactic of the least rank.
std::optional<Offer> choose(const Region& part, const Plan& plan) {
  for (const int rank : kRanks) {
    std::optional<Offer> best;
    for (Offer& o : offers_of_rank(part, plan, rank)) {
      if (o.refusal.empty() && (!best || o.cost < best->cost)) best = std::move(o);
    }
    if (best) return best;
  }
  return std::nullopt;
}

class GroupedKernel final : public Kernel {
 public:
  explicit GroupedKernel(std::vector<std::unique_ptr<region::HostKernel>> parts) : parts_(std::move(parts)) {
    for (const auto& p : parts_) {
      first_.push_back(tasks_);
      tasks_ += p->tasks();
      scratch_ = std::max(scratch_, p->scratch_bytes());
    }
  }
  int tasks() const override { return tasks_; }
  std::size_t scratch_bytes() const override { return scratch_; }
  void run(const Memory& memory, int task_begin, int task_end, const Worker& given) const override {
    Worker worker = given;
    worker.kept = nullptr;  // parts have the scratch in turns
    worker.shared = nullptr;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const int begin = std::max(task_begin, first_[i]) - first_[i], end = std::min(task_end - first_[i], parts_[i]->tasks());
      if (begin < end) parts_[i]->run(memory, begin, end, worker);
    }
  }

 private:
  std::vector<std::unique_ptr<region::HostKernel>> parts_;
  std::vector<int> first_;
  int tasks_ = 0;
  std::size_t scratch_ = 0;
};

/// The parts are matched one by one, in the plan that they are parts of.
struct GroupedSetting {
  std::vector<Region> regions = {};
  const Plan* plan = nullptr;
  std::vector<Tactic> parts = {};
  double seconds = 0;
};

class GroupedFamily final : public FamilyOf<GroupedSetting> {
 public:
  GroupedFamily() : FamilyOf({.name = "grouped", .levels = kAnyIsa, .composed = true}) {}
  bool about(const Region& r) const override { return r.independent && r.stages.size() >= 2; }
  Match<GroupedSetting> match(const Request& q) const override {
    const Region& r = q.region;
    if (r.stages.size() > 8) return refuse("parts", r.stages.size(), "at most 8");
    GroupedSetting t{{}, &q.plan, {q.parts.begin(), q.parts.end()}};
    for (std::size_t i = 0; i < r.stages.size(); ++i) t.regions.push_back(part_of(r, i));
    if (q.parts.empty()) {
      double longest = 0;
      for (const Region& part : t.regions) {
        auto c = choose(part, q.plan);
        if (!c) return refuse(fmt::format("tactics for part {}", t.parts.size()), 0, "1");
        t.parts.push_back(std::move(c->tactic));
        t.seconds += c->cost;
        longest = std::max(longest, c->cost);
      }
      t.seconds = std::max(longest, t.seconds - kStart * static_cast<double>(r.stages.size() - 1));
    }
    OCTAVO_CHECK(check_parts(t.parts, r.stages.size()));
    return t;
  }
  double cost(const GroupedSetting& t, Isa) const override { return t.seconds; }
  std::vector<Tactic> parts(const GroupedSetting& t) const override { return t.parts; }

  // packed[0]: the count of the tensors of each part, which follow.
  std::vector<std::int64_t> packed_bytes(const GroupedSetting& t) const override {
    return {static_cast<std::int64_t>(t.regions.size()) * 4};
  }
  Result<std::vector<ir::Tensor>> pack(const GroupedSetting& t) const override {
    std::vector<std::int32_t> counts;
    std::vector<ir::Tensor> out{ir::Tensor()};
    for (std::size_t i = 0; i < t.regions.size(); ++i) {
      OCTAVO_TRY(std::vector<ir::Tensor> packed, pack_part(t.regions[i], *t.plan, t.parts[i]));
      counts.push_back(static_cast<std::int32_t>(packed.size()));
      std::move(packed.begin(), packed.end(), std::back_inserter(out));
    }
    out[0] = ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(counts.size())}, counts);
    return out;
  }
  std::optional<std::string> layout(const GroupedSetting& t) const override {
    std::string out;
    for (std::size_t i = 0; i < t.regions.size(); ++i) {
      const auto part = layout_of_part(t.regions[i], *t.plan, t.parts[i]);
      if (!part) return std::nullopt;
      out += *part + " ; ";
    }
    return out;
  }
  Result<std::unique_ptr<Kernel>> load(GroupedSetting t, Packed packed) const override {
    const auto* counts = reinterpret_cast<const std::int32_t*>(packed[0].data());
    std::size_t at = 1;
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (std::size_t i = 0; i < t.regions.size(); ++i) {
      const auto count = static_cast<std::size_t>(counts[i]);
      if (counts[i] < 0 || count > packed.size() - at)
        return fail(ErrorKind::bad_engine,
                    fmt::format("part {} has {} packed constants, {} are left", i, counts[i], packed.size() - at));
      OCTAVO_TRY(auto kernel, load_part(t.regions[i], *t.plan, t.parts[i], packed.subspan(at, count)));
      kernels.push_back(std::move(kernel));
      at += count;
    }
    return std::make_unique<GroupedKernel>(std::move(kernels));
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(grouped, GroupedFamily)

}  // namespace octavo::cpu
