// Engines that a hostile writer made: valid networks of every kernel family, saved, with fields of the plan and bytes of the
// constants changed under right checksums. Loading refuses, or what runs stays inside its memory (AddressSanitizer watches:
// cmake --preset asan). Repeat one: OCTAVO_FUZZ_SEED=n OCTAVO_FUZZ_ROUNDS=1, named by OCTAVO_FUZZ_VERBOSE=1.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "cpu/provider.h"
#include "engine/engine.h"
#include "engine/file.h"
#include "engine/set.h"
#include "ir/text.h"
#include "onnx/build_model.h"
#include "plan/plan.h"
#include "support/costs.h"
#include "support/forger.h"
#include "support/fuzz_setting.h"
#include "support/placement.h"

namespace octavo::engine {
namespace {

using nlohmann::json;
using testing::ForgedParts;
using testing::ForgedTactics;
using testing::Forger;

std::uint64_t number_from(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

using testing::CountRegions;

/// An inverted residual with two heads: conv, depthwise, a residual branch; as stages and side by side under CountRegions.
constexpr const char* kBlock = R"(graph "block"
x = input : f32[2,8,9,9]
q = view x q=u8(0.03,100) from {"q"}
w1 = constant s8[40,8,1,1] q=s8(0.02,0) seed:1
w2 = constant s8[40,1,3,3] q=s8(0.02,0) seed:2
w3 = constant s8[8,40,1,1] q=s8(0.02,0) seed:3
w4 = constant s8[6,8,3,3] q=s8(0.02,0) seed:4
w5 = constant s8[5,8,1,1] q=s8(0.02,0) seed:5
a = conv q w1 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"expand"}
ar = relu a from {"relu1"}
av = view ar q=u8(0.02,0) from {"av"}
b = conv av w2 {dilations=[1,1], group=40, pads=[1,1,1,1], strides=[1,1]} from {"depthwise"}
br = relu b from {"relu2"}
bv = view br q=u8(0.03,0) from {"bv"}
c = conv bv w3 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"project"}
s = add c q from {"add"}
cv = view s q=u8(0.05,128) from {"cv"}
h1 = conv cv w4 {dilations=[2,2], group=1, pads=[2,2,2,2], strides=[2,2]} from {"head1"}
h2 = conv cv w5 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"head2"}
v1 = view h1 q=u8(0.1,128) from {"v1"}
v2 = view h2 q=u8(0.2,128) from {"v2"}
output v1
output v2
)";

/// Float: conv, depthwise, a transposed conv, pools, softmax.
constexpr const char* kFloat = R"(graph "float"
x = input : f32[1,8,10,10]
w1 = constant f32[16,8,3,3] seed:1
w2 = constant f32[16,1,3,3] seed:2
w3 = constant f32[16,4,2,2] seed:3
a = conv x w1 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}
r = relu a
b = conv r w2 {dilations=[1,1], group=16, pads=[1,1,1,1], strides=[2,2]}
c = conv_transpose b w3 {dilations=[1,1], group=1, output_padding=[0,0], pads=[0,0,0,0], strides=[2,2]}
s = softmax c {axis=1}
output s
output b
)";

/// Rows that data select, and a product, an activation and a sum of them: regions whose extents a counter decides.
Result<ir::Graph> counted() {
  onnx::testing::ModelBuilder m;
  m.input("x", {12, 8}).output("y").output("sum").floats("half", {}, {0.01F}).ramp("w", {8, 24});
  m.node("ReduceMax", {"x"}, {"top"}).ints("axes", {1}).i("keepdims", 0);
  m.node("Greater", {"top", "half"}, {"keep"});
  m.node("NonZero", {"keep"}, {"at"});
  m.node("Transpose", {"at"}, {"rows"});
  m.node("GatherND", {"x", "rows"}, {"taken"});
  m.node("MatMul", {"taken", "w"}, {"product"});
  m.node("Sigmoid", {"product"}, {"y"});
  m.node("ReduceSum", {"y"}, {"sum"}).i("keepdims", 0);
  OCTAVO_TRY(auto model, m.import());
  return std::move(model.graph);
}

struct Network {
  std::string name;
  std::shared_ptr<const Engine> engine;
};

std::vector<Network> networks() {
  std::vector<Network> out;
  const auto add = [&](const std::string& name, const ir::Graph& g, bool count) {
    for (const int threads : {1, 3}) {
      CountRegions costs;
      plan::PlanOptions o;
      o.threads = threads;
      if (count) o.costs = &costs, o.effort = 3;
      auto p = plan::make_plan(g, cpu::providers(), o);
      ASSERT_TRUE(p) << name << ": " << p.error().message;
      auto e = Engine::create(std::move(p->plan), cpu::providers(), "");
      ASSERT_TRUE(e) << name << ": " << e.error().message;
      out.push_back({fmt::format("{}, {} threads", name, threads), *e});
    }
  };
  for (const char* text : {kBlock, kFloat}) {
    auto g = ir::parse(text);
    if (!g) ADD_FAILURE() << g.error().message;
    if (!g) return out;
    add(g->name, *g, false);
    add(g->name + " in few regions", *g, true);
  }
  auto rows = counted();
  if (!rows) ADD_FAILURE() << rows.error().message;
  if (!rows) return out;
  add("counted", *rows, false);
  EXPECT_TRUE(std::ranges::any_of(out.back().engine->plan().regions, [](const region::Region& r) { return r.count >= 0; }));
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    add(fmt::format("random network {}", seed), testing::random_network(seed), seed % 3 == 0);
  return out;
}

class ForgedEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path fast = "/dev/shm";  // an engine is synced when it is written
    std::error_code code;
    const bool there = std::filesystem::is_directory(fast, code) && ::access(fast.c_str(), W_OK) == 0;
    folder_ = (there ? fast : std::filesystem::temp_directory_path()) / fmt::format("octavo-forged-{}", ::getpid());
    std::filesystem::create_directory(folder_);
    networks_ = networks();
    for (const Network& n : networks_) tactics_.add(n.engine->plan());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ForgedParts parts_of(const Network& n) const {
    const std::string path = (folder_ / "good").string();
    EXPECT_TRUE(n.engine->save(path));
    auto file = MappedFile::open(path);
    EXPECT_TRUE(file);
    const auto sections = read_sections((*file)->bytes(), path);
    EXPECT_TRUE(sections);
    ForgedParts p;
    for (const Section& s : *sections) {
      std::string bytes(reinterpret_cast<const char*>(s.bytes.data()), s.bytes.size());
      if (s.name == section::kPlan) p.plan = json::parse(bytes);
      if (s.name == section::kSummary) p.summary = bytes;
      if (s.name == section::kConstant) p.constants[s.id] = std::move(bytes);
    }
    return p;
  }

  Result<std::shared_ptr<const Engine>> load(const ForgedParts& p) const {
    const std::string path = (folder_ / "forged").string(), plan = p.plan.dump();
    const auto bytes = [](const std::string& s) { return std::as_bytes(std::span(s)); };
    std::vector<Section> sections{{section::kPlan, 0, bytes(plan)}, {section::kSummary, 0, bytes(p.summary)}};
    for (const auto& [id, data] : p.constants) sections.push_back({section::kConstant, id, bytes(data)});
    EXPECT_TRUE(write_file(path, sections));
    return Engine::load(path, cpu::providers());
  }

  /// Runs on buffers of exactly the sizes that the plan states. False: it would take more memory or time than a test may.
  static bool run(const std::shared_ptr<const Engine>& engine, bool sound = false) {
    constexpr std::int64_t kMost = std::int64_t{1} << 24;
    const region::Plan& plan = engine->plan();
    std::int64_t total = plan.devices[region::kHost].arena_bytes;
    for (const region::Buffer& b : plan.buffers) total += b.bytes;
    for (std::size_t i = 0; i < plan.regions.size(); ++i)
      total += static_cast<std::int64_t>(engine->host_kernel(i)->scratch_bytes());
    if (total > kMost) return false;
    auto context = Context::create(engine, 2);
    EXPECT_TRUE(context) << context.error().message;
    std::vector<std::vector<std::byte>> held;
    std::vector<const void*> in(plan.inputs.size(), &plan);
    std::vector<void*> out(plan.outputs.size(), nullptr);
    for (const region::Buffer& b : plan.buffers) {
      if (b.kind != region::BufferKind::input && b.kind != region::BufferKind::output) continue;
      held.emplace_back(static_cast<std::size_t>(b.bytes), std::byte{0x3d});
      const auto binding = static_cast<std::size_t>(b.binding);
      if (b.kind == region::BufferKind::input)
        in[binding] = held.back().data();
      else
        out[binding] = held.back().data();
    }
    const Status done = (*context)->run(in, out);
    EXPECT_TRUE(done || (!sound && !done.error().message.empty())) << done.error().message;  // forged: a bound may be too small
    return true;
  }

  std::filesystem::path folder_;
  std::vector<Network> networks_;
  ForgedTactics tactics_;
};

TEST_F(ForgedEngine, UntouchedPartsLoadAndRun) {
  for (const Network& n : networks_) {
    const auto e = load(parts_of(n));
    ASSERT_TRUE(e) << n.name << ": " << e.error().message;
    EXPECT_TRUE(run(*e, true)) << n.name;
  }
}

TEST_F(ForgedEngine, RefusedOrHarmless) {
  const std::uint64_t first = number_from("OCTAVO_FUZZ_SEED", 1);
  const std::uint64_t rounds = number_from("OCTAVO_FUZZ_ROUNDS", testing::rounds(30, 100, 500));
  const bool verbose = std::getenv("OCTAVO_FUZZ_VERBOSE") != nullptr;
  int refused = 0, ran = 0, large = 0;
  for (const Network& n : networks_) {
    const ForgedParts good = parts_of(n);
    for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
      ForgedParts p = good;
      const std::string what = Forger(seed, tactics_).forge(p);
      const std::string where = fmt::format("{}: OCTAVO_FUZZ_SEED={}: {}", n.name, seed, what);
      if (verbose) std::fprintf(stderr, "%s\n", where.c_str());
      const auto e = load(p);
      if (!e) {
        ++refused;
        EXPECT_FALSE(e.error().message.empty()) << where;
        continue;
      }
      ++(run(*e) ? ran : large);
    }
  }
  std::printf("%zu networks x %llu forged engines: %d refused, %d ran, %d loaded and too large to run here\n", networks_.size(),
              static_cast<unsigned long long>(rounds), refused, ran, large);
  if (rounds > 10) {
    EXPECT_GT(refused, ran / 2);
    EXPECT_GT(ran, 0) << "names may change";
  }
}

/// What must be refused, by name.
TEST_F(ForgedEngine, EachLieIsNamed) {
  const auto refusal = [&](const ForgedParts& p) {
    const auto e = load(p);
    return e ? std::string("loaded") : e.error().message;
  };
  int short_packed = 0;
  for (const Network& n : networks_) {
    const ForgedParts good = parts_of(n);
    for (std::size_t r = 0; r < good.plan["regions"].size(); ++r) {
      for (const json& id : good.plan["regions"][r]["packed"]) {  // every packed constant, one element short and one long
        for (const int more : {-4, 4}) {
          ForgedParts p = good;
          std::string& bytes = p.constants[id.get<std::uint32_t>()];
          if (bytes.size() < 4) continue;
          bytes.resize(bytes.size() + static_cast<std::size_t>(more));
          p.plan["buffers"][id.get<std::size_t>()]["bytes"] = bytes.size();
          const std::string said = refusal(p);
          EXPECT_NE(said.find("packed constant"), std::string::npos)
              << n.name << ", region " << r << ", constant " << id << ": " << said;
          ++short_packed;
        }
      }
      ForgedParts p = good;
      p.plan["regions"][r]["tactic"]["family"] = "conjured";
      // Also: what some tactics alone may do, store in an operand's place and keep what their stages forward out of the arena.
      const std::string conjured = refusal(p);
      EXPECT_TRUE(conjured.find("no tactic \"cpu.conjured") != std::string::npos ||
                  conjured.find("share bytes of the arena") != std::string::npos ||
                  conjured.find("bytes at 0 of an arena") != std::string::npos)
          << conjured;
      p = good;
      p.plan["regions"][r]["packed"].push_back(0);
      EXPECT_NE(refusal(p), "loaded") << n.name << ", region " << r;
    }
    ForgedParts p = good;
    p.plan["devices"][0]["arena_bytes"] = std::int64_t{1} << 47;
    EXPECT_NE(refusal(p).find("this process may use"), std::string::npos) << refusal(p);
    p = good;
    p.plan["buffers"][0]["bytes"] = std::int64_t{1} << 40;
    EXPECT_NE(refusal(p).find("its binding"), std::string::npos) << refusal(p);
  }
  EXPECT_GT(short_packed, 20);
}

/// Files of several engines: the table that says which constants are whose, and what it must not say.
TEST_F(ForgedEngine, SetsOfEngines) {
  const std::string path = (folder_ / "set").string();
  Engines engines;
  for (const char* shape : {"f32[1,8,10,10]", "f32[2,8,10,10]", "f32[1,8,12,12]"}) {
    std::string text = kFloat;
    text.replace(text.find("f32[1,8,10,10]"), 14, shape);
    auto p = plan::make_plan(*ir::parse(text), cpu::providers(), {});
    ASSERT_TRUE(p) << p.error().message;
    auto e = Engine::create(std::move(p->plan), cpu::providers(), "");
    ASSERT_TRUE(e) << e.error().message;
    engines.push_back(*e);
  }
  ASSERT_TRUE(save_set(path, engines));
  EXPECT_FALSE(save_set(path + "2", {engines[0], engines[0]})) << "two for the same shapes";
  EXPECT_FALSE(save_set(path + "2", {engines[0], networks_[0].engine})) << "of other models";
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  auto sections = read_sections((*file)->bytes(), path);
  ASSERT_TRUE(sections);
  ASSERT_EQ(sections->front().name, section::kSet);
  const std::size_t constants = static_cast<std::size_t>(
      std::count_if(sections->begin(), sections->end(), [](const Section& s) { return s.name == section::kConstant; }));
  std::size_t single = 0;
  for (const region::Buffer& b : engines[0]->plan().buffers) single += b.kind == region::BufferKind::constant ? 1 : 0;
  EXPECT_LT(constants, 3 * single) << "equal constants are there once";
  const std::string good(reinterpret_cast<const char*>(sections->front().bytes.data()), sections->front().bytes.size());
  const auto load_all = [&](const std::string& table, std::vector<Section> with) {
    with.front().bytes = std::as_bytes(std::span(table));
    EXPECT_TRUE(write_file(path + "-forged", with));
    auto all = Engine::load_all(path + "-forged", cpu::providers());
    for (std::size_t k = 0; all && k < all->size(); ++k) EXPECT_TRUE(run((*all)[k]));
    return all ? std::string("loaded") : all.error().message;
  };
  EXPECT_EQ(load_all(good, *sections), "loaded");
  const auto one = Engine::load(path, cpu::providers());
  ASSERT_FALSE(one);
  EXPECT_NE(one.error().message.find("engines for 3 sets of shapes"), std::string::npos) << one.error().message;
  const auto expect = [&](const std::string& said, const std::string& part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  json table = json::parse(good);
  expect(load_all("{", *sections), "lists no plans");
  expect(load_all(R"({"plans": 3})", *sections), "lists no plans");
  expect(load_all(R"({"plans": [{"constants": []}]})", *sections), "1 plans in the set section");
  for (const json& pair : {json{0, constants}, json{-1, 0}, json{UINT64_MAX, 0}, json{"0", 0}, json{0}, json(7)}) {
    json t = table;
    t["plans"][1]["constants"][0] = pair;
    expect(load_all(t.dump(), *sections), "is no pair of a buffer");
  }
  json t = table;
  t["plans"][1]["constants"].push_back(json(t["plans"][1]["constants"][0]));
  expect(load_all(t.dump(), *sections), "is no pair of a buffer");
  t = table;
  t["plans"][1]["constants"].erase(0);
  EXPECT_NE(load_all(t.dump(), *sections), "loaded");
  t = table;
  t["plans"].push_back(json(t["plans"][0]));
  expect(load_all(t.dump(), *sections), "no plan section");
  auto with = *sections;
  for (Section& s : with) s.id = s.name == section::kPlan && s.id == 2 ? 3 : s.id;
  expect(load_all(good, with), "there are 3 plans");
  with = *sections;
  for (Section& s : with) {  // plan 2 is plan 1 once more, with constants of its own
    if (s.id != 2 || s.name == section::kConstant) continue;
    for (const Section& other : *sections)
      if (other.name == s.name && other.id == 1) s.bytes = other.bytes;
  }
  t = table;
  t["plans"][2] = t["plans"][1];
  const std::string twice = load_all(t.dump(), with);
  EXPECT_TRUE(twice.find("two are for") != std::string::npos || twice.find("belongs to no plan") != std::string::npos) << twice;
  with = *sections;
  std::swap(with[1], with[2]);
  EXPECT_EQ(load_all(good, with), "loaded") << "the order of sections says nothing";
  std::mt19937_64 random(5);
  int refused = 0, loaded = 0;
  for (int i = 0; i < 300; ++i) {  // pairs exchanged: a constant of another size, or of the same and other contents
    t = table;
    auto& mine = t["plans"][random() % 3]["constants"];
    auto& pair = mine[random() % mine.size()];
    pair[random() % 2] = random() % (constants + 2);
    ++(load_all(t.dump(), *sections) == "loaded" ? loaded : refused);
  }
  EXPECT_GT(refused, 100);
  std::printf("sets: %d refused, %d loaded and ran\n", refused, loaded);
}

}  // namespace
}  // namespace octavo::engine
