// A device that is not the host: its memory, its executor, transfers, and memory of the caller's that lies in it. The device is made of
// host memory, runs nothing before somebody waits for it, and refuses addresses that are not its own.
#include "region/device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "engine/toy.h"
#include "plan/layout/memory.h"
#include "plan/layout/transfers.h"

namespace octavo::engine {
namespace {

using region::DeviceId;
using region::Memory;

/// What the fake device did, and which memory is its own.
struct Log {
  std::map<std::byte*, std::size_t> memory;
  std::vector<std::string> ran;
  int starts = 0, waits = 0, wrong_addresses = 0;
  void* stream = nullptr;
  [[nodiscard]] bool owns(const std::byte* at) const {
    return std::any_of(memory.begin(), memory.end(), [&](const auto& m) { return at >= m.first && at < m.first + m.second; });
  }
};

class FakeMemory final : public region::DeviceMemory {
 public:
  FakeMemory(std::size_t bytes, Log& log) : log_(log) {
    const std::size_t size = (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256;
    at_ = static_cast<std::byte*>(std::aligned_alloc(256, size));
    std::fill_n(at_, size, std::byte{0});
    log_.memory.emplace(at_, size);
  }
  ~FakeMemory() override {
    log_.memory.erase(at_);
    std::free(at_);
  }
  [[nodiscard]] std::byte* address() const override { return at_; }

 private:
  Log& log_;
  std::byte* at_ = nullptr;
};

/// A region of the toy, or a transfer.
class FakeKernel final : public region::Kernel {
 public:
  FakeKernel(const region::Region& r, bool transfer) : region(r), is_transfer(transfer), oracle(region.stages[0]) {}
  region::Region region;
  bool is_transfer;
  toy::OracleKernel oracle;
};

class FakeExecutor final : public region::Executor {
 public:
  FakeExecutor(const region::Plan& plan, std::vector<const region::Kernel*> kernels, Log& log)
      : plan_(plan), kernels_(std::move(kernels)), log_(log) {}

  Status start(std::size_t first, std::size_t last, const Memory& memory, void* stream) override {
    ++log_.starts;
    log_.stream = stream;
    for (std::size_t i = first; i < last; ++i) queue_.emplace_back(i, memory);
    return {};
  }
  Status wait() override {
    ++log_.waits;
    for (const auto& [index, memory] : queue_) run(index, memory);
    queue_.clear();
    return {};
  }

 private:
  void run(std::size_t index, const Memory& memory) {
    const auto& kernel = dynamic_cast<const FakeKernel&>(*kernels_[index]);
    log_.ran.push_back(kernel.region.name);
    const region::Stage& s = kernel.region.stages[0];
    const auto check = [&](const region::TensorRef& t) {
      const region::Buffer& b = plan_.buffers[static_cast<std::size_t>(t.buffer)];
      const bool caller = b.kind == region::BufferKind::input || b.kind == region::BufferKind::output;
      if (!caller && log_.owns(memory.at(t)) != (b.space != region::kHost)) ++log_.wrong_addresses;
    };
    for (const auto& t : s.anchor.inputs) check(t);
    for (const auto& o : s.operands) check(o.ref);
    for (const auto& t : s.stores) check(t);
    if (kernel.is_transfer) {
      std::memcpy(memory.at(s.stores[0]), memory.at(s.anchor.inputs[0]), static_cast<std::size_t>(s.space[0]));
      return;
    }
    std::vector<std::byte> scratch(kernel.oracle.scratch_bytes());
    kernel.oracle.run(memory, 0, kernel.oracle.tasks(), {0, 1, scratch.data()});
  }

  const region::Plan& plan_;
  std::vector<const region::Kernel*> kernels_;
  Log& log_;
  std::vector<std::pair<std::size_t, Memory>> queue_;
};

class FakeDevice final : public region::Device {
 public:
  explicit FakeDevice(Log& log) : log_(log) {}
  [[nodiscard]] std::string_view name() const override { return "fake"; }
  [[nodiscard]] Result<std::unique_ptr<region::DeviceMemory>> allocate(std::size_t bytes) const override {
    return std::make_unique<FakeMemory>(bytes, log_);
  }
  [[nodiscard]] Status write(std::byte* to, std::span<const std::byte> from) const override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return {};
  }
  [[nodiscard]] Status read(std::span<std::byte> to, const std::byte* from) const override {
    std::memcpy(to.data(), from, to.size());
    return {};
  }
  Result<std::shared_ptr<const void>> hold(std::span<const std::byte>) const override { return std::shared_ptr<const void>(); }
  void expect_transfers(std::span<const std::size_t>) const override {}
  [[nodiscard]] Result<std::unique_ptr<region::Executor>> executor(const region::Plan& plan,
                                                                   std::span<const region::Kernel* const> kernels) const override {
    return std::make_unique<FakeExecutor>(plan, std::vector(kernels.begin(), kernels.end()), log_);
  }

 private:
  Log& log_;
};

class FakeProvider final : public region::Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "fake"; }
  [[nodiscard]] std::string_view device() const override { return "fake"; }
  [[nodiscard]] std::vector<region::Offer> offers(const region::Region&, const region::Plan&) const override {
    return {{*region::parse_tactic("fake.any")}};
  }
  [[nodiscard]] Result<region::Artifact> compile(const region::Region&, const region::Plan&, const region::Tactic&) const override {
    return region::Artifact{};
  }
  [[nodiscard]] Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& plan,
                                                             const region::ArtifactView&) const override {
    return std::make_unique<FakeKernel>(r, region::is_transfer(r, plan));
  }
};

class DeviceRun : public ::testing::Test {
 protected:
  /// The toy with these regions on the device.
  static region::Plan plan(const std::vector<std::size_t>& on_device) {
    region::Plan p = toy::plan();
    p.devices.push_back({"fake", 0});
    for (const std::size_t i : on_device) p.regions[i].device = 1;
    plan::add_transfers(p);
    for (region::Region& r : p.regions) {
      if (r.device == 1) r.tactic = *region::parse_tactic("fake.any");
    }
    plan::plan_memory(p);
    return p;
  }
  std::shared_ptr<const Engine> engine(const std::vector<std::size_t>& on_device) {
    auto e = Engine::create(plan(on_device), all_, "", {&device_});
    EXPECT_TRUE(e) << (e ? "" : e.error().message);
    return e ? *e : nullptr;
  }
  /// A dense tensor of the toy in the device's memory, from an address so many bytes behind an aligned one.
  struct Held {
    std::unique_ptr<FakeMemory> memory;
    float* at;
  };
  Held held(std::size_t off = 0) {
    auto m = std::make_unique<FakeMemory>(4096, log_);
    auto* at = reinterpret_cast<float*>(m->address() + off);
    return {std::move(m), at};
  }

  Log log_;
  FakeDevice device_{log_};
  FakeProvider provider_;
  Providers all_{toy::providers()[0], &provider_};
};

TEST_F(DeviceRun, RegionsAndTransfersInOrder) {
  const auto x = toy::input();
  struct Case {
    std::vector<std::size_t> on_device;
    std::vector<std::string> ran;  // on the device
  };
  for (const Case& c : {Case{{}, {}}, Case{{0}, {"x: host to fake", "mul", "m: fake to host"}},
                        Case{{1}, {"m: host to fake", "add", "y: fake to host"}},
                        Case{{0, 1}, {"x: host to fake", "mul", "add", "y: fake to host"}}}) {
    const auto e = engine(c.on_device);
    ASSERT_NE(e, nullptr);
    auto context = Context::create(e, 2);
    ASSERT_TRUE(context) << context.error().message;
    for (int run = 0; run < 2; ++run) {
      log_.ran.clear();
      EXPECT_EQ(toy::run(**context, x), toy::expected(x)) << c.on_device.size() << " regions on the device";
      EXPECT_EQ(log_.ran, c.ran);
      EXPECT_EQ(log_.wrong_addresses, 0);
    }
    for (const region::Region& r : e->plan().regions) {
      if (!region::is_transfer(r, e->plan())) continue;
      EXPECT_EQ(r.reasons.size(), 2U) << r.name << ": where the bytes are, and who wants them elsewhere";
    }
  }
}

TEST_F(DeviceRun, MemoryOfTheDeviceTakesThePlaceOfTransfers) {
  const auto e = engine({0, 1});
  ASSERT_NE(e, nullptr);
  auto context = Context::create(e, 1);
  ASSERT_TRUE(context);
  const auto x = toy::input(), expected = toy::expected(x);
  for (const std::size_t off : {0, 4}) {  // aligned as the plan wants, and not
    const Held in = held(off), out = held(off);
    std::copy(x.begin(), x.end(), in.at);
    log_.ran.clear();
    const Address from{in.at, 1}, to{out.at, 1};
    ASSERT_TRUE((*context)->run({&from, 1}, {&to, 1}, nullptr));
    EXPECT_EQ(std::vector<float>(out.at, out.at + x.size()), expected);
    EXPECT_EQ(log_.ran.size(), off == 0 ? 2U : 4U) << "copies within the device where the address does not fit";
  }
  // Host memory again: what the device's memory stood for has its own place.
  EXPECT_EQ(toy::run(**context, x), expected);
}

TEST_F(DeviceRun, AStreamIsNotWaitedFor) {
  const auto e = engine({0, 1});
  ASSERT_NE(e, nullptr);
  auto context = Context::create(e, 1);
  ASSERT_TRUE(context);
  const auto x = toy::input();
  const Held in = held(), out = held();
  std::copy(x.begin(), x.end(), in.at);
  const Address from{in.at, 1}, to{out.at, 1};
  int stream = 0;
  log_.ran.clear();
  ASSERT_TRUE((*context)->run({&from, 1}, {&to, 1}, &stream));
  EXPECT_EQ(log_.stream, &stream);
  EXPECT_TRUE(log_.ran.empty()) << "the work is in the caller's queue";
  ASSERT_TRUE((*context)->run({&from, 1}, {&to, 1}, nullptr));  // waits for all
  EXPECT_EQ(std::vector<float>(out.at, out.at + x.size()), toy::expected(x));
}

TEST_F(DeviceRun, ObserversSeeEveryRegionDone) {
  const auto e = engine({1});
  ASSERT_NE(e, nullptr);
  auto context = Context::create(e, 1);
  ASSERT_TRUE(context);
  const auto x = toy::input();
  std::vector<float> y(x.size());
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  std::size_t before = 0, after = 0;
  Observer o;
  o.before = [&](std::size_t, const Memory&) { ++before; };
  o.after = [&](std::size_t i, const Memory&) {
    ++after;
    if (e->plan().regions[i].device == 1) EXPECT_EQ(log_.ran.back(), e->plan().regions[i].name);
  };
  ASSERT_TRUE((*context)->run(in, out, &o));
  EXPECT_EQ(y, toy::expected(x));
  EXPECT_EQ(before, e->plan().regions.size());
  EXPECT_EQ(after, before);
}

TEST_F(DeviceRun, WhatIsNotThereIsNamed) {
  auto e = Engine::create(plan({0}), all_);
  ASSERT_FALSE(e);
  EXPECT_EQ(e.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(e.error().message, "new engine: it needs device \"fake\"; here are: host");
  region::Plan wrong = plan({0});
  for (region::Region& r : wrong.regions) {
    if (r.name == "mul") r.tactic = *region::parse_tactic("toy.oracle");
  }
  e = Engine::create(wrong, all_, "", {&device_});
  ASSERT_FALSE(e);
  EXPECT_NE(e.error().message.find("runs on device \"fake\", its tactic \"toy.oracle\" on \"host\""), std::string::npos)
      << e.error().message;
  region::Plan lost = plan({0});
  for (region::Region& r : lost.regions) {
    if (r.name == "mul") r.device = region::kHost, r.tactic = *region::parse_tactic("toy.oracle");
  }
  e = Engine::create(lost, all_, "", {&device_});
  ASSERT_FALSE(e);
  EXPECT_NE(e.error().message.find("is in the memory of device 1, the region runs on device 0"), std::string::npos)
      << e.error().message;
  const auto host = engine({});
  const Held in = held(), out = held();
  auto context = Context::create(host, 1);
  const Address from{in.at, 1}, to{out.at, 1};
  const auto refused = (*context)->run({&from, 1}, {&to, 1}, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::bad_input);
}

TEST_F(DeviceRun, EngineFilesKeepDevices) {
  const auto e = engine({0, 1});
  ASSERT_NE(e, nullptr);
  const auto path = std::filesystem::temp_directory_path() / ("octavo-device-" + std::to_string(::getpid()));
  ASSERT_TRUE(e->save(path.string()));
  const auto back = Engine::load(path.string(), all_, {&device_});
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ((*back)->plan_hash(), e->plan_hash());
  auto context = Context::create(*back, 1);
  ASSERT_TRUE(context);
  EXPECT_EQ(toy::run(**context, toy::input()), toy::expected(toy::input()));
  const auto missing = Engine::load(path.string(), all_);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("it needs device \"fake\""), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace octavo::engine
