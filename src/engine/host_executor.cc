#include "engine/host_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "region/counted.h"
#include "region/counted_tasks.h"

namespace octavo::engine {

Result<std::unique_ptr<HostExecutor>> HostExecutor::create(const region::Plan& plan, std::vector<const region::HostKernel*> kernels,
                                                           std::vector<const ShorterKernels*> shorter, int threads,
                                                           std::shared_ptr<CoreLoad> load, bool lent) {
  std::unique_ptr<HostExecutor> e(new HostExecutor);
  e->plan_ = &plan;
  e->kernels_ = std::move(kernels);
  e->shorter_ = std::move(shorter);
  e->some_.resize(e->kernels_.size());
  for (std::size_t i = 0; i < e->kernels_.size(); ++i) {
    const region::HostKernel* k = e->kernels_[i];
    e->chosen_.push_back({k, -1, k == nullptr ? 0 : k->tasks()});
    if (k == nullptr || plan.regions[i].count < 0) continue;
    int most = k->tasks();
    for (const ShorterKernel& s : *e->shorter_[i]) most = std::max(most, s.kernel->tasks());
    e->some_[i].reserve(static_cast<std::size_t>(most));  // a run allocates nothing
  }
  e->threads_ = threads;
  if (!lent) {
    OCTAVO_TRY(e->own_pool_, ThreadPool::create(threads, std::move(load)));
  } else if (threads < 1) {
    return fail(ErrorKind::usage, fmt::format("context: {} threads asked for, needs at least 1", threads));
  }
  e->pool_ = e->own_pool_.get();
  std::size_t scratch = 0;
  for (const region::HostKernel* k : e->kernels_) scratch = std::max(scratch, k == nullptr ? 0 : k->scratch_bytes());
  for (const ShorterKernels* list : e->shorter_) {
    for (const ShorterKernel& k : *list) scratch = std::max(scratch, k.kernel->scratch_bytes());
  }
  e->scratch_stride_ = round_up(scratch) + kAlignment;
  std::size_t shared = 0;
  for (const region::HostKernel* k : e->kernels_) {
    const std::size_t bytes = k == nullptr || plan.images > 1 ? 0 : k->shared_bytes();  // an image is one worker's
    e->shared_at_.push_back(bytes == 0 ? kNone : shared);
    shared += round_up(bytes);
  }
  const std::size_t total = e->scratch_stride_ * static_cast<std::size_t>(e->threads_);
  try {
    if (!lent) e->scratch_ = AlignedBytes(total);
    e->shared_ = AlignedBytes(shared);
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::io, fmt::format("context: no memory for scratch of {} bytes", total + shared));
  }
  e->scratch_at_ = e->scratch_.data();
  e->kept_.resize(static_cast<std::size_t>(e->threads_));
  e->workers_ = plan.images > 1 ? 1 : e->threads_;
  for (std::size_t i = 0; i < e->kernels_.size(); ++i) {
    for (int w = 0; w < e->workers_; ++w) e->ahead_.push_back(e->read_after(i, w, e->workers_));
  }
  return e;
}

/// What the worker reads first in the region after this one, or in the one after that where the next reads little. Behind the last
/// region comes the first: of the next run.
const std::byte* HostExecutor::read_after(std::size_t region, int worker, int workers) const {
  for (std::size_t k = 1; k <= 2; ++k) {
    const region::HostKernel* next = kernels_[(region + k) % kernels_.size()];
    if (next == nullptr) continue;
    const int active = std::min(next->tasks(), workers);
    if (worker >= active) continue;
    const std::byte* at = next->first_read(ThreadPool::first_task(next->tasks(), worker, active));
    if (at != nullptr) return at;
  }
  return nullptr;
}

/// The least kernel that has room for the elements that there are.
void HostExecutor::choose(std::size_t region, const region::Memory& memory) {
  Chosen& chosen = chosen_[region];
  chosen = {kernels_[region], -1, kernels_[region]->tasks()};
  const ShorterKernels& list = *shorter_[region];
  if (!counts_ || plan_->regions[region].count < 0) return;
  std::int64_t extent = region::counted_extent(plan_->regions[region], memory);
  if (region::searches_counted(plan_->regions[region])) extent = std::max<std::int64_t>(extent, 1);
  if (extent == 0) {
    chosen = {nullptr, 0, 0};
    return;
  }
  const auto at = std::find_if(list.begin(), list.end(), [&](const ShorterKernel& k) { return k.extent >= extent; });
  if (at != list.end()) chosen = {at->kernel.get(), at->extent, at->kernel->tasks()};
  leave_out(region, extent);
}

/// Of the kernel's tasks those that compute one of the first `wanted` elements. Most kernels have them in the order of elements.
void HostExecutor::leave_out(std::size_t region, std::int64_t wanted) {
  const region::Region& r = plan_->regions[region];
  Chosen& chosen = chosen_[region];
  const int dim = r.stages.back().counted, all = chosen.tasks;
  const std::int64_t extent = chosen.extent >= 0 ? chosen.extent : region::room_of(r);
  const auto* known = dynamic_cast<const region::CountedTasks*>(chosen.kernel);
  if (known == nullptr || dim < 0 || extent <= wanted || region::searches_counted(r)) return;
  std::vector<int>& list = some_[region];
  list.clear();
  std::int64_t next = extent;
  for (int t = 0; t < all; ++t) {
    const std::int64_t first = known->first_element(t, dim, extent);
    if (first < wanted)
      list.push_back(t);
    else
      next = std::min(next, first);
  }
  chosen.tasks = static_cast<int>(list.size());
  if (chosen.tasks == all) return;
  chosen.listed = list.back() + 1 != chosen.tasks;
  chosen.extent = next;
}

Status HostExecutor::start(std::size_t first, std::size_t last, const region::Memory& memory, void*) {
  const std::int64_t run = region_run_ + 1;
  region_run_ += static_cast<std::int64_t>(last - first);
  const auto tasks = [&](int job) {  // asked once for each job, when those before are done
    const std::size_t index = first + static_cast<std::size_t>(job);
    choose(index, memory);
    return chosen_[index].tasks;
  };
  const auto count = static_cast<std::size_t>(pool_->size());
  pool_->run_all(static_cast<int>(last - first), tasks, [&](int job, int begin, int end, int worker) {
    const std::size_t index = first + static_cast<std::size_t>(job), w = static_cast<std::size_t>(worker);
    const region::HostKernel& kernel = *chosen_[index].kernel;
    const int all = chosen_[index].tasks, active = std::min(all, pool_->size());
    Kept& kept = kept_[w];
    if (kept.region_run != run + job) kept = {.region_run = run + job};
    const std::byte* ahead = ahead_[index * count + w];
    if (worker < active && end < ThreadPool::first_task(all, worker + 1, active))
      ahead = kernel.first_read(chosen_[index].listed ? some_[index][static_cast<std::size_t>(end)]
                                                      : end);  // more of this worker's share follows
    stretches(index, begin, end, [&](int from, int to) {
      kernel.run(memory, from, to, {worker, pool_->size(), scratch_of(worker), ahead, &kept.what, shared_of(index)});
    });
  });
  return {};
}

void HostExecutor::run_alone(std::size_t index, const region::Memory& memory, int worker) {
  const region::HostKernel& kernel = *kernels_[index];
  kernel.run(memory, 0, kernel.tasks(), {0, 1, scratch_of(worker), ahead_[index]});
}

}  // namespace octavo::engine
