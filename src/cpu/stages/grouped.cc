// cpu.grouped(<tactic>,<tactic>,...): independent stages as one region. The parts' tasks are the region's tasks, so small layers
// that read one tensor are spread over the threads at once, after one start instead of several, while their input is in cache.
#include <algorithm>
#include <optional>

#include "cpu/cost_model.h"
#include "cpu/family.h"
#include "cpu/provider.h"

namespace octavo::cpu {
namespace {

Region part_of(const Region& r, std::size_t stage) {
  Region part;
  part.name = fmt::format("{}, part {}", r.name, stage);
  part.stages = {r.stages[stage]};
  return part;
}

struct Choice {
  Tactic tactic;
  double seconds = 0;
};
/// The first provider's cheapest tactic.
std::optional<Choice> choose(const Region& part, const Plan& plan) {
  for (const region::Provider* p : providers()) {
    std::optional<Choice> best;
    for (Offer& o : p->offers(part, plan)) {
      if (o.refusal.empty() && (!best || o.cost < best->seconds)) best = Choice{std::move(o.tactic), o.cost};
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

class GroupedFamily final : public Family {
 public:
  std::string_view name() const override { return "grouped"; }
  bool per_isa() const override { return false; }
  bool about(const Region& r) const override { return r.independent && r.stages.size() >= 2; }
  Composed compose(const Region& r, const Plan& plan) const override {
    Composed out;
    double longest = 0;
    for (std::size_t i = 0; i < r.stages.size(); ++i) {
      auto c = choose(part_of(r, i), plan);
      if (!c) return {{}, 0, unmet(fmt::format("tactics for part {}", i), 0, "1")};
      out.parts.push_back(std::move(c->tactic));
      out.cost += c->seconds;
      longest = std::max(longest, c->seconds);
    }
    out.cost = std::max(longest, out.cost - kStart * static_cast<double>(r.stages.size() - 1));
    return out;
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    return r.stages.size() > 8 ? unmet("parts", r.stages.size(), "at most 8") : Reasons{};
  }
  double cost(const Region& r, const Plan& plan, Isa) const override { return compose(r, plan).cost; }

  // packed[0]: the count of the tensors of each part, which follow.
  Result<std::vector<ir::Tensor>> pack(const Region& r, const Plan& plan, Isa) const override {
    OCTAVO_TRY(const auto made_by, providers_of(r.tactic.parts, r.stages.size()));
    std::vector<std::int32_t> counts;
    std::vector<ir::Tensor> out{ir::Tensor()};
    for (std::size_t i = 0; i < made_by.size(); ++i) {
      OCTAVO_TRY(auto made, made_by[i]->compile(part_of(r, i), plan, r.tactic.parts[i]));
      std::vector<ir::Tensor>& packed = made.constants;
      counts.push_back(static_cast<std::int32_t>(packed.size()));
      std::move(packed.begin(), packed.end(), std::back_inserter(out));
    }
    out[0] = ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(counts.size())}, counts);
    return out;
  }

  Result<std::vector<std::int64_t>> packed_bytes(const Region& r, const Plan&, Isa) const override {
    return std::vector<std::int64_t>{static_cast<std::int64_t>(r.stages.size()) * 4};
  }
  bool packs_parts() const override { return true; }

  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan& plan, Isa, Packed packed) const override {
    OCTAVO_TRY(const auto made_by, providers_of(r.tactic.parts, r.stages.size()));
    const auto* counts = reinterpret_cast<const std::int32_t*>(packed[0]);
    std::size_t at = 1;
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (std::size_t i = 0; i < made_by.size(); ++i) {
      const auto count = static_cast<std::size_t>(counts[i]);
      if (counts[i] < 0 || count > packed.size() - at)
        return fail(ErrorKind::bad_engine,
                    fmt::format("part {} has {} packed constants, {} are left", i, counts[i], packed.size() - at));
      Region part = part_of(r, i);
      part.tactic = r.tactic.parts[i];
      const auto first = r.packed.begin() + static_cast<std::ptrdiff_t>(at);
      part.packed.assign(first, first + static_cast<std::ptrdiff_t>(count));
      OCTAVO_TRY(auto kernel, region::as_host_kernel(made_by[i]->load(part, plan, {packed.subspan(at, count), {}, {}})));
      kernels.push_back(std::move(kernel));
      at += count;
    }
    return std::make_unique<GroupedKernel>(std::move(kernels));
  }
};

}  // namespace

const Family& grouped_family() {
  static const GroupedFamily family;
  return family;
}

}  // namespace octavo::cpu
