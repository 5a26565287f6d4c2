// Where the time of a region of several stages goes: its stages as regions of their own, one after the other, and in row tiles.
//   octavo_stage_bench KIB,KIB,... < KEYS      one region key a line (docs/timing-cache.md); one thread
// For each key: each stage apart (its best tactic by estimate), then for each size of row tiles the time of the whole, of each stage's
// kernels, and what is left: starting kernels, carrying rows over. All forms run in turn; medians.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "cpu/provider.h"
#include "cpu/stages/piece.h"
#include "cpu/stages/schedule.h"
#include "cpu/stages/staged_kernel.h"
#include "region/artifact.h"
#include "region/from_key.h"
#include "region/host_kernel.h"

namespace {

using namespace octavo;
using Clock = std::chrono::steady_clock;
using region::Plan;
using region::Region;

constexpr std::size_t kSlack = 64;
constexpr int kRounds = 301;

template <class T>
T must(Result<T> r) {
  if (r) return std::move(*r);
  fmt::print(stderr, "{}\n", r.error().message);
  std::exit(1);
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// Memory of a plan: random codes, constants as they are.
struct Arena {
  explicit Arena(const Plan& plan) {
    std::mt19937 random(1);
    for (const region::Buffer& b : plan.buffers) add(b, random);
  }
  void add(const region::Buffer& b, std::mt19937& random) {
    const auto bytes =
        static_cast<std::size_t>(b.kind == region::BufferKind::constant ? std::max<std::int64_t>(b.bytes, 64) : b.bytes);
    auto& block = blocks.emplace_back(new (std::align_val_t(64)) std::byte[bytes + 3 * kSlack], Free{});
    for (std::size_t i = 0; i < bytes; ++i) block.get()[i + kSlack] = static_cast<std::byte>(random());
    if (b.kind == region::BufferKind::constant && !b.data.bytes().empty())
      std::memcpy(block.get() + kSlack, b.data.bytes().data(), b.data.bytes().size());
    memory.base.push_back(block.get() + kSlack);
  }
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  std::vector<std::unique_ptr<std::byte[], Free>> blocks;
  region::Memory memory;
};

class Timed final : public region::HostKernel {
 public:
  Timed(std::unique_ptr<region::HostKernel> inner, double* seconds, int* calls)
      : inner_(std::move(inner)), seconds_(seconds), calls_(calls) {}
  int tasks() const override { return inner_->tasks(); }
  std::size_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  const std::byte* first_read(int task) const override { return inner_->first_read(task); }
  void run(const region::Memory& memory, int begin, int end, const region::Worker& worker) const override {
    const auto from = Clock::now();
    inner_->run(memory, begin, end, worker);
    *seconds_ += std::chrono::duration<double>(Clock::now() - from).count();
    ++*calls_;
  }

 private:
  std::unique_ptr<region::HostKernel> inner_;
  double* seconds_;
  int* calls_;
};

/// The region's cheapest tactic by estimate, as plans without times take it.
std::pair<region::Tactic, const region::Provider*> elect(const Region& r, const Plan& plan) {
  for (const region::Provider* p : cpu::providers()) {
    const region::Offer* best = nullptr;
    const auto offers = p->offers(r, plan);
    for (const region::Offer& o : offers) {
      if (o.refusal.empty() && (best == nullptr || std::pair(o.rank, o.cost) < std::pair(best->rank, best->cost))) best = &o;
    }
    if (best != nullptr) return {best->tactic, p};
  }
  fmt::print(stderr, "no tactic\n");
  std::exit(1);
}

struct Ready {
  std::string name;
  std::unique_ptr<region::HostKernel> kernel;
  std::unique_ptr<Arena> arena;  ///< of a piece
  region::Memory memory;
  std::vector<std::byte> scratch;
  std::vector<double> times;
  void run_once() {
    region::Worker w;
    w.scratch = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
    std::int64_t kept = -1;
    w.kept = &kept;
    kernel->run(memory, 0, kernel->tasks(), w);
  }
  double time() {
    const auto from = Clock::now();
    run_once();
    return std::chrono::duration<double>(Clock::now() - from).count() * 1e6;
  }
};

/// Compiles and loads; constants are added to the memory.
std::unique_ptr<region::HostKernel> load(Region& r, Plan& plan, const region::Tactic& tactic, const region::Provider& p,
                                         Arena& arena) {
  r.tactic = tactic;
  const std::size_t before = plan.buffers.size(), at = arena.memory.base.size();
  region::keep_artifact(must(p.compile(r, plan, tactic)), r, plan);
  std::mt19937 random(2);
  for (std::size_t i = before; i < plan.buffers.size(); ++i) arena.add(plan.buffers[i], random);
  std::vector<const std::byte*> constants;
  for (const auto id : r.packed) constants.push_back(arena.memory.base[at + static_cast<std::size_t>(id) - before]);
  return must(region::as_host_kernel(p.load(r, plan, {constants, {}, {}})));
}

void profile(const std::string& key, const std::vector<std::string>& sizes) {
  Plan plan = must(region::plan_from_key(key, 1));
  const Region whole = plan.regions[0];
  Arena arena(plan);
  std::vector<Ready> apart;
  for (const region::Stage& s : whole.stages) {
    Region one;
    one.stages = {s};
    one.name = "stage";
    const auto [tactic, provider] = elect(one, plan);
    Ready ready;
    ready.name = tactic.name();
    ready.kernel = load(one, plan, tactic, *provider, arena);
    apart.push_back(std::move(ready));
  }
  struct Form {
    std::string size;
    Ready ready;
    std::vector<double> seconds;  ///< by stage, of one run
    std::vector<int> calls;
    std::vector<std::vector<double>> parts;
    std::size_t tiles = 0;
    Ready plain;
  };
  std::vector<std::unique_ptr<Form>> forms;
  for (const std::string& kib : sizes) {
    auto f = std::make_unique<Form>();
    f->size = kib;
    Region r = whole;
    if (kib != "0") r.tactic.parameters = {{std::string(cpu::staged::kTile.name), kib}};
    const cpu::staged::Schedule schedule = cpu::staged::schedule_of(r, r.tactic.parameters, 1);
    region::Tactic tactic;
    const region::Provider* provider = nullptr;
    for (const region::Provider* p : cpu::providers()) {
      for (const region::Offer& o : p->offers(whole, plan)) {
        if (o.refusal.empty() && o.tactic.parts.size() == whole.stages.size()) tactic = o.tactic, provider = p;
      }
    }
    if (provider == nullptr) {
      fmt::print("  no tactic in row tiles\n");
      return;
    }
    tactic.parameters = r.tactic.parameters;
    f->seconds.assign(whole.stages.size(), 0);
    f->calls.assign(whole.stages.size(), 0);
    f->parts.resize(whole.stages.size());
    for (const auto& t : schedule.tasks) f->tiles += t.size();
    std::vector<cpu::staged::Kernels> kernels(whole.stages.size());
    f->ready.arena = std::make_unique<Arena>(Plan());
    for (std::size_t k = 0; k < whole.stages.size(); ++k) {
      const region::Provider* by = nullptr;
      for (const region::Provider* p : cpu::providers()) {
        if (p->knows(tactic.parts[k])) by = p;
      }
      for (const auto& slab : cpu::staged::slabs_of(r, schedule, k)) {
        auto piece = cpu::staged::piece_of(r, plan, k, slab);
        kernels[k].emplace(slab, std::make_unique<Timed>(load(piece.region, piece.plan, tactic.parts[k], *by, *f->ready.arena),
                                                         &f->seconds[k], &f->calls[k]));
      }
    }
    f->ready.name = tactic.name();
    f->ready.kernel = cpu::staged::staged_kernel(r, schedule, std::move(kernels));
    f->plain.name = tactic.name();
    f->plain.kernel = load(r, plan, tactic, *provider, arena);
    forms.push_back(std::move(f));
  }
  const auto finish = [&](Ready& ready) {
    ready.memory = arena.memory;
    ready.scratch.resize(ready.kernel->scratch_bytes() + 256);
  };
  for (Ready& a : apart) finish(a);
  for (auto& f : forms) finish(f->ready), finish(f->plain);
  std::vector<double> sums;
  std::vector<std::vector<double>> ratios(forms.size());
  for (int round = 0; round < kRounds; ++round) {
    double sum = 0;
    for (Ready& a : apart) a.times.push_back(a.time()), sum += a.times.back();
    sums.push_back(sum);
    for (std::size_t i = 0; i < forms.size(); ++i) {
      Form& f = *forms[i];
      f.plain.times.push_back(f.plain.time());
      ratios[i].push_back(f.plain.times.back() / sum);
      std::fill(f.seconds.begin(), f.seconds.end(), 0);
      std::fill(f.calls.begin(), f.calls.end(), 0);
      f.ready.times.push_back(f.ready.time());
      for (std::size_t k = 0; k < f.seconds.size(); ++k) f.parts[k].push_back(f.seconds[k] * 1e6);
    }
  }
  fmt::print("{}\n  apart {:8.1f} us:", key.substr(0, 60), median(sums));
  for (Ready& a : apart) fmt::print("  {:.1f}", median(a.times));
  fmt::print("   |");
  for (std::size_t k = 0; k < apart.size(); ++k) {
    const auto& s = whole.stages[k].space;
    fmt::print(" [{}x{}x{} {}]", s[1], s[2], s[3], apart[k].name);
  }
  fmt::print("\n");
  for (std::size_t i = 0; i < forms.size(); ++i) {
    Form& f = *forms[i];
    double inside = 0;
    fmt::print("  {:>4} KiB {:8.1f} us ({:.3f}), timed {:.1f}, {} tiles:", f.size, median(f.plain.times), median(ratios[i]),
               median(f.ready.times), f.tiles);
    for (std::size_t k = 0; k < f.parts.size(); ++k)
      fmt::print("  {:.1f}/{}", median(f.parts[k]), f.calls[k]), inside += median(f.parts[k]);
    fmt::print("  rest {:.1f}   {}\n", median(f.ready.times) - inside, f.ready.name);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> sizes;
  std::stringstream list(argc > 1 ? argv[1] : "0");
  for (std::string s; std::getline(list, s, ',');) sizes.push_back(s);
  for (std::string key; std::getline(std::cin, key);) {
    if (!key.empty()) profile(key, sizes);
  }
  return 0;
}
