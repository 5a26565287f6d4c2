// Providers whose kernels do something else than the real ones: for tests of what finds mistakes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "region/host_kernel.h"
#include "region/provider.h"

namespace octavo::testing {

/// A kernel of host threads that runs `real` and then `after`: all of its tasks as one, or the first `tasks` of them.
class Then final : public region::HostKernel {
 public:
  using After = std::function<void(const region::Memory&)>;
  Then(std::unique_ptr<region::HostKernel> real, After after, std::optional<int> tasks = std::nullopt)
      : real_(std::move(real)), after_(std::move(after)), tasks_(tasks) {}
  [[nodiscard]] int tasks() const override { return tasks_.value_or(1); }
  [[nodiscard]] std::size_t scratch_bytes() const override { return real_->scratch_bytes(); }
  void run(const region::Memory& memory, int begin, int end, const region::Worker& worker) const override {
    real_->run(memory, tasks_ ? begin : 0, tasks_ ? end : real_->tasks(), worker);
    if (after_) after_(memory);
  }

 private:
  std::unique_ptr<region::HostKernel> real_;
  After after_;
  std::optional<int> tasks_;
};

/// Passes everything on to a provider of the host, which outlives it; `plant` gets each kernel that is loaded and gives what runs instead.
class Planted final : public region::Provider {
 public:
  using Plant = std::function<std::unique_ptr<region::HostKernel>(const region::Region&, std::unique_ptr<region::HostKernel>)>;
  Planted(const region::Provider& real, Plant plant) : real_(real), plant_(std::move(plant)) {}
  [[nodiscard]] std::string_view name() const override { return real_.name(); }
  [[nodiscard]] bool knows(const region::Tactic& t) const override { return real_.knows(t); }
  [[nodiscard]] std::vector<region::Offer> offers(const region::Region& r, const region::Plan& p) const override {
    return real_.offers(r, p);
  }
  [[nodiscard]] Result<region::Artifact> compile(const region::Region& r, const region::Plan& p,
                                                 const region::Tactic& t) const override {
    return real_.compile(r, p, t);
  }
  [[nodiscard]] Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& p,
                                                             const region::ArtifactView& artifact) const override {
    OCTAVO_TRY(auto kernel, region::as_host_kernel(real_.load(r, p, artifact)));
    return plant_(r, std::move(kernel));
  }

 private:
  const region::Provider& real_;
  Plant plant_;
};

}  // namespace octavo::testing
