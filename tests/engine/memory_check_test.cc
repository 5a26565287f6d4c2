// engine::check_memory on kernels that leave results unwritten or write elsewhere, and on right ones.
#include "engine/memory_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "engine/toy.h"
#include "support/planted.h"

namespace octavo::engine {
namespace {

/// The toy provider, whose region "mul" runs the first `tasks` tasks, each followed by `then`.
testing::Planted faulty(int tasks, const testing::Then::After& then) {
  static const toy::OracleProvider real;
  return {real, [=](const region::Region& r, std::unique_ptr<region::HostKernel> kernel) -> std::unique_ptr<region::HostKernel> {
            if (r.name != "mul") return kernel;
            return std::make_unique<testing::Then>(std::move(kernel), then, tasks);
          }};
}

struct Outcome {
  std::vector<std::string> faults;
  std::int64_t elements = 0;
  std::vector<float> y;
};
Outcome check(const Providers& providers, const std::vector<float>& x, int threads = 1) {
  auto engine = Engine::create(toy::plan(), providers);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  if (!engine) return {};
  auto context = Context::create(*engine, threads);
  EXPECT_TRUE(context);
  Outcome out;
  out.y.resize(x.size());
  const void* in[] = {x.data()};
  void* to[] = {out.y.data()};
  const auto report = check_memory(**context, in, to);
  EXPECT_TRUE(report) << (report ? "" : report.error().message);
  if (!report) return out;
  out.elements = report->elements;
  for (const MemoryFault& f : report->faults) out.faults.push_back(describe(f, (*engine)->plan()));
  return out;
}

TEST(MemoryCheck, RightKernelsHaveNoFaultsAndTheirResults) {
  for (const int threads : {1, 2, 3}) {
    const Outcome out = check(toy::providers(), toy::input(), threads);
    EXPECT_EQ(out.faults, std::vector<std::string>());
    EXPECT_EQ(out.elements, 2 * toy::kRows * toy::kColumns);
    EXPECT_EQ(out.y, toy::expected(toy::input()));
  }
}

TEST(MemoryCheck, ResultsThatEqualThePatternAreNoFaults) {
  std::vector<float> x = toy::input();
  std::memset(x.data(), 0xFF, 3 * sizeof(float));  // NaN, whose bits arithmetic passes on
  EXPECT_EQ(check(toy::providers(), x).faults, std::vector<std::string>());
}

TEST(MemoryCheck, NamesWhatWasNotWritten) {
  const testing::Planted provider = faulty(static_cast<int>(toy::kRows) - 1, nullptr);
  EXPECT_EQ(check({&provider}, toy::input()).faults,
            std::vector<std::string>{
                R"(region 0 "mul" (toy.oracle): 5 of 30 elements of its result "out" were not written, the first is [5, 0])"});
}

TEST(MemoryCheck, NamesWhatWasWrittenElsewhere) {
  // The result begins at byte 64 of the arena and has 120; 64 on each side are its own.
  const testing::Planted provider =
      faulty(static_cast<int>(toy::kRows), [](const region::Memory& m) { *(m.base[2] + 120 + 64 + 3) = std::byte{1}; });
  EXPECT_EQ(check({&provider}, toy::input()).faults,
            std::vector<std::string>{
                R"(region 0 "mul" (toy.oracle): 1 bytes outside of its results were written, the first is byte 251 of the arena)"});
}

TEST(MemoryCheck, AKernelWithoutTasksIsRefused) {
  const testing::Planted provider = faulty(0, nullptr);
  const auto engine = Engine::create(toy::plan(), {&provider});
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("divides its work into no tasks"), std::string::npos) << engine.error().message;
}

}  // namespace
}  // namespace octavo::engine
