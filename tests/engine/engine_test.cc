#include "engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <thread>

#include "engine/toy.h"

// Counts allocations, to hold `run` to its promise.
namespace {
thread_local long allocations = 0;
}
// NOLINTBEGIN: replacing the global operators is the point
[[gnu::noinline]] void* operator new(std::size_t n) {
  ++allocations;
  if (void* p = std::malloc(n == 0 ? 1 : n)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(n);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
// NOLINTEND

namespace octavo::engine {
namespace {

std::shared_ptr<const Engine> made(region::Plan plan = toy::plan(), std::string graph = {}) {
  auto e = Engine::create(std::move(plan), toy::providers(), std::move(graph));
  EXPECT_TRUE(e) << (e ? "" : e.error().message);
  return e ? *e : nullptr;
}
std::unique_ptr<Context> context_of(const std::shared_ptr<const Engine>& e, int threads = 0) {
  auto c = Context::create(e, threads);
  EXPECT_TRUE(c) << (c ? "" : c.error().message);
  return std::move(*c);
}

TEST(Engine, RunsOnAnyNumberOfThreads) {
  const auto e = made();
  const auto x = toy::input();
  for (const int threads : {0, 1, 2, 3, 9}) {
    const auto c = context_of(e, threads);
    EXPECT_EQ(c->threads(), threads == 0 ? 1 : threads);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(toy::run(*c, x), toy::expected(x)) << threads << " threads, run " << i;
  }
}

TEST(Engine, BuffersAreAlignedWithSlack) {
  const auto e = made();
  for (const int id : {3, 4}) {
    const auto bytes = e->constant(id);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64, 0U);
    EXPECT_EQ(bytes.size(), 20U);
  }
  const auto c = context_of(e, 2);
  Observer seen;
  int calls = 0;
  seen.before = [&](std::size_t i, const region::Memory& m) {
    EXPECT_EQ(calls++, static_cast<int>(2 * i));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(m.base[2]) % 64, 0U);
  };
  seen.after = [&](std::size_t i, const region::Memory& m) {
    EXPECT_EQ(calls++, static_cast<int>(2 * i + 1));
    if (i == 0) {
      EXPECT_EQ(reinterpret_cast<const float*>(m.base[2])[0], toy::input()[0] * 3.0F);
    }
  };
  const auto x = toy::input();
  std::vector<float> y(x.size());
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  ASSERT_TRUE(c->run(in, out, &seen));
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(y, toy::expected(x));
}

// The toy kernel allocates its interpreter's scratch (one vector a task range); the engine itself adds nothing.
TEST(Engine, RunDoesNotAllocate) {
  struct Quiet final : region::HostKernel {
    void run(const region::Memory&, int, int, const region::Worker&) const override {}
  };
  struct QuietProvider final : region::Provider {
    std::string_view name() const override { return "toy"; }
    std::vector<region::Offer> offers(const region::Region&, const region::Plan&) const override {
      return {{*region::parse_tactic("toy.oracle")}};
    }
    Result<region::Artifact> compile(const region::Region&, const region::Plan&, const region::Tactic&) const override {
      return region::Artifact{};
    }
    Result<std::unique_ptr<region::Kernel>> load(const region::Region&, const region::Plan&,
                                                 const region::ArtifactView&) const override {
      return std::make_unique<Quiet>();
    }
  } provider;
  const auto e = Engine::create(toy::plan(), {&provider});
  ASSERT_TRUE(e) << e.error().message;
  for (const int threads : {1, 2}) {
    const auto c = context_of(*e, threads);
    const auto x = toy::input();
    std::vector<float> y(x.size());
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    ASSERT_TRUE(c->run(in, out));
    const long before = allocations;
    for (int i = 0; i < 10; ++i) (void)c->run(in, out);
    EXPECT_EQ(allocations - before, 0);
  }
}

TEST(Engine, RefusesWrongBindings) {
  const auto c = context_of(made());
  const auto x = toy::input();
  std::vector<float> y(x.size());
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  const auto none = c->run({}, out);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::bad_input);
  EXPECT_EQ(none.error().message, "run: 0 inputs and 1 outputs given, \"toy\" has 1 and 1");
  void* null_out[] = {nullptr};
  const auto null = c->run(in, null_out);
  ASSERT_FALSE(null);
  EXPECT_EQ(null.error().message, "run: output 0 \"y\" has no address");
  EXPECT_EQ(toy::run(*c, x), toy::expected(x)) << "a refused run must not spoil the next";
}

// Kernels are made on several threads: of several that cannot be made the first is named, each time.
TEST(Engine, OfManyRegionsTheFirstThatFailsIsNamed) {
  region::Plan p = toy::plan();
  for (int i = 0; i < 60; ++i) p.regions.push_back(p.regions[1]);
  ASSERT_TRUE(Engine::create(p, toy::providers()));
  for (const std::size_t broken : {17U, 18U, 40U, 61U}) p.regions[broken].tactic = *region::parse_tactic("cuda.conv");
  for (int round = 0; round < 20; ++round) {
    const auto e = Engine::create(p, toy::providers());
    ASSERT_FALSE(e);
    EXPECT_EQ(e.error().message, "new engine: region 17 \"add\": no provider for tactic \"cuda.conv\" (providers: toy)");
  }
}

TEST(Engine, UnknownTacticAndMissingInstructionsAreNamed) {
  region::Plan p = toy::plan();
  p.regions[1].tactic = *region::parse_tactic("cuda.conv");
  auto e = Engine::create(p, toy::providers());
  ASSERT_FALSE(e);
  EXPECT_EQ(e.error().kind, ErrorKind::internal);
  EXPECT_EQ(e.error().message, "new engine: region 1 \"add\": no provider for tactic \"cuda.conv\" (providers: toy)");
  p = toy::plan();
  p.regions[1].tactic = *region::parse_tactic("toy.avx1024");
  e = Engine::create(p, toy::providers());
  ASSERT_FALSE(e);
  EXPECT_EQ(e.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(e.error().message, "new engine: region 1 \"add\", tactic \"toy.avx1024\": this machine lacks toy.avx1024");
}

TEST(Engine, ConstantsMustHaveTheirBytes) {
  region::Plan p = toy::plan();
  p.buffers[3].bytes = 24;
  const auto e = Engine::create(std::move(p), toy::providers());
  ASSERT_FALSE(e);
  EXPECT_EQ(e.error().kind, ErrorKind::internal);
  EXPECT_EQ(e.error().message, "plan: constant buffer 3 \"w\" says 24 bytes and has 20");
}

TEST(Engine, ProfileTimesEveryRegion) {
  const auto c = context_of(made(), 2);
  const auto x = toy::input();
  std::vector<float> y(x.size());
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  const auto p = c->profile(in, out, 5);
  ASSERT_TRUE(p) << p.error().message;
  ASSERT_EQ(p->regions.size(), 2U);
  for (const RegionTime& t : p->regions) {
    EXPECT_GT(t.median, 0.0);
    EXPECT_LE(t.least, t.median);
  }
  EXPECT_GE(p->total.least, p->regions[0].least + p->regions[1].least);
  EXPECT_EQ(y, toy::expected(x));
  EXPECT_FALSE(c->profile(in, out, 0));
}

// Under TSan this is the proof that contexts share nothing they write.
TEST(Engine, TwoThreadsRunTwoContextsOfOneEngine) {
  const auto e = made();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      auto c = Context::create(e, 2);
      for (int i = 0; i < 200; ++i) {
        const auto x = toy::input(t * 1000 + i);
        if (toy::run(**c, x) != toy::expected(x)) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Engine, ContextKeepsItsEngineAlive) {
  auto e = made();
  const auto c = context_of(e);
  e.reset();
  const auto x = toy::input();
  EXPECT_EQ(toy::run(*c, x), toy::expected(x));
}

}  // namespace
}  // namespace octavo::engine
