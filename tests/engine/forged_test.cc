// Engines that a hostile writer made: valid networks of every kernel family, saved, with fields of the plan and bytes of the
// constants changed under right checksums. Loading refuses, or what runs stays inside its memory (AddressSanitizer watches:
// cmake --preset asan). Repeat one: OCTAVO_FUZZ_SEED=n OCTAVO_FUZZ_ROUNDS=1, named by OCTAVO_FUZZ_VERBOSE=1.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

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
#include "plan/plan.h"
#include "support/costs.h"
#include "support/placement.h"

namespace octavo::engine {
namespace {

using nlohmann::json;

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
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    add(fmt::format("random network {}", seed), testing::random_network(seed), seed % 3 == 0);
  return out;
}

/// Every tactic of the networks, as in the plans' JSON, so that a region can be given another's; and families that nobody knows.
struct Tactics {
  std::vector<json> whole;
  std::vector<std::string> families{"none", "", "staged", "grouped", "staged.row_tiles"};
};
Tactics tactics_of(const std::vector<Network>& all) {
  Tactics out;
  std::set<std::string> seen;
  for (const Network& n : all) {
    const json plan = json::parse(region::to_json(n.engine->plan()));
    for (const json& r : plan["regions"]) {
      if (!seen.insert(r["tactic"].dump()).second) continue;
      out.whole.push_back(r["tactic"]);
      out.families.push_back(r["tactic"]["family"]);
    }
  }
  return out;
}

/// One engine file taken apart: the plan's JSON and the constants' bytes.
struct Parts {
  json plan;
  std::string summary;
  std::map<std::uint32_t, std::string> constants;
};

class Forger {
 public:
  Forger(std::uint64_t seed, const Tactics& tactics) : random_(seed), tactics_(tactics) {}

  std::string forge(Parts& p) {
    const std::size_t edits = 1 + below(3);
    for (std::size_t i = 0; i < edits; ++i) edit(p);
    return said_;
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % std::max<std::size_t>(1, n)); }
  void say(const std::string& what) { said_ += (said_.empty() ? "" : "; ") + what; }

  std::int64_t extreme(std::int64_t was) {
    const std::int64_t near[] = {was + 1, was - 1, was * 2, was / 2, was + 64, -was, was * 3, 0, 1, 2, -1, 7, 64, 255, 1000};
    const std::int64_t far[] = {65536,    1L << 20, (1L << 31) - 1, 1L << 31,  1L << 32,  -(1L << 31), 1L << 40,
                                1L << 47, 1L << 48, (1L << 62) + 1, INT64_MAX, INT64_MIN, 4096,        1L << 24};
    return below(3) == 0 ? far[below(std::size(far))] : near[below(std::size(near))];
  }

  /// A random place, deeper ones as likely as shallow ones.
  static void collect(json& j, const std::string& path, std::vector<std::pair<std::string, json*>>& out) {
    if (j.is_structured()) {
      std::size_t i = 0;
      for (auto it = j.begin(); it != j.end(); ++it, ++i) {
        const std::string key = j.is_object() ? it.key() : std::to_string(i);
        if (key == "decisions" || key == "alternatives" || key == "reasons" || key == "onnx_nodes" || key == "name") continue;
        out.emplace_back(path + "/" + key, &*it);
        collect(*it, path + "/" + key, out);
      }
    }
  }

  void edit(Parts& p) {
    if (below(5) == 0 && !p.constants.empty()) return edit_constant(p);
    std::vector<std::pair<std::string, json*>> places;
    collect(p.plan, "", places);
    const auto& [path, at] = places[below(places.size())];
    if (path.ends_with("/tactic") && below(2) == 0) {
      *at = tactics_.whole[below(tactics_.whole.size())];
      say(path + ": of another region");
    } else if (at->is_number_integer()) {
      const std::int64_t to = extreme(at->get<std::int64_t>());
      say(fmt::format("{}: {} -> {}", path, at->dump(), to));
      *at = to;
    } else if (at->is_number()) {
      *at = below(2) == 0 ? 1e38 : -1.0;
      say(path + ": a float");
    } else if (at->is_boolean()) {
      *at = !at->get<bool>();
      say(path + ": flipped");
    } else if (at->is_string()) {
      const std::string was = *at;
      *at = text_for(path, was, places);
      say(fmt::format("{}: \"{}\" -> \"{}\"", path, was.substr(0, 80), at->get<std::string>().substr(0, 80)));
    } else if (at->is_array() && !at->empty()) {
      edit_list(path, *at);
    } else if (at->is_object() && !at->empty()) {
      auto it = at->begin();
      std::advance(it, static_cast<std::ptrdiff_t>(below(at->size())));
      say(path + "/" + it.key() + ": removed");
      at->erase(it);
    }
  }

  std::string text_for(const std::string& path, const std::string& was, const std::vector<std::pair<std::string, json*>>& places) {
    static const char* kTypes[] = {"f32", "u8", "s8", "s16", "s32", "s64", "bool", "f64", "f16", "bf16", "u16", "u64"};
    if (path.ends_with("/dtype") || path.ends_with("/type")) return kTypes[below(std::size(kTypes))];
    if (path.ends_with("/family")) return tactics_.families[below(tactics_.families.size())];
    if (below(2) == 0) {  // a text of the same field elsewhere
      const std::string field = path.substr(path.rfind('/'));
      std::vector<const json*> same;
      for (const auto& [other, value] : places) {
        if (value->is_string() && other.ends_with(field)) same.push_back(value);
      }
      return same[below(same.size())]->get<std::string>();
    }
    std::string text = was;
    if (text.empty()) return "x";
    const std::size_t at = below(text.size());
    switch (below(3)) {
      case 0: text[at] = "0123456789-,:[]{}e. %"[below(21)]; break;
      case 1: text.erase(at, 1 + below(4)); break;
      default: text.insert(at, std::to_string(extreme(3)));
    }
    return text;
  }

  void edit_list(const std::string& path, json& list) {
    const std::size_t i = below(list.size()), j = below(list.size());
    switch (below(4)) {
      case 0:
        list.erase(i);
        say(fmt::format("{}: entry {} removed", path, i));
        break;
      case 1:
        list.push_back(json(list[i]));
        say(fmt::format("{}: entry {} repeated", path, i));
        break;
      case 2:
        std::swap(list[i], list[j]);  // of regions: an order in which one reads what a later one writes
        say(fmt::format("{}: entries {} and {} swapped", path, i, j));
        break;
      default: list[i] = json(list[j]); say(fmt::format("{}: entry {} is entry {}", path, i, j));
    }
  }

  void edit_constant(Parts& p) {
    auto it = p.constants.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(below(p.constants.size())));
    auto& [id, bytes] = *it;
    const std::size_t size = bytes.size();
    switch (below(4)) {
      case 0: bytes.resize(below(2) == 0 ? below(size) : size / 2); break;
      case 1: bytes.resize(size - std::min<std::size_t>(size, 1 + below(64))); break;
      case 2: bytes.resize(size + 1 + below(64)); break;
      default:
        for (std::size_t k = 0; k < 1 + below(8) && size >= 4; ++k) {
          const auto v = static_cast<std::int32_t>(extreme(1));
          bytes.replace(below(size - 3), 4, reinterpret_cast<const char*>(&v), 4);
        }
    }
    if (id < p.plan["buffers"].size()) p.plan["buffers"][id]["bytes"] = bytes.size();
    say(fmt::format("constant {} has {} bytes, had {}", id, bytes.size(), size));
  }

  std::mt19937_64 random_;
  const Tactics& tactics_;
  std::string said_;
};

class ForgedEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path fast = "/dev/shm";  // an engine is synced when it is written
    std::error_code code;
    const bool there = std::filesystem::is_directory(fast, code) && ::access(fast.c_str(), W_OK) == 0;
    folder_ = (there ? fast : std::filesystem::temp_directory_path()) / fmt::format("octavo-forged-{}", ::getpid());
    std::filesystem::create_directory(folder_);
    networks_ = networks();
    tactics_ = tactics_of(networks_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Parts parts_of(const Network& n) const {
    const std::string path = (folder_ / "good").string();
    EXPECT_TRUE(n.engine->save(path));
    auto file = MappedFile::open(path);
    EXPECT_TRUE(file);
    const auto sections = read_sections((*file)->bytes(), path);
    EXPECT_TRUE(sections);
    Parts p;
    for (const Section& s : *sections) {
      std::string bytes(reinterpret_cast<const char*>(s.bytes.data()), s.bytes.size());
      if (s.kind == SectionKind::plan) p.plan = json::parse(bytes);
      if (s.kind == SectionKind::summary) p.summary = bytes;
      if (s.kind == SectionKind::constant) p.constants[s.id] = std::move(bytes);
    }
    return p;
  }

  Result<std::shared_ptr<const Engine>> load(const Parts& p) const {
    const std::string path = (folder_ / "forged").string(), plan = p.plan.dump();
    const auto bytes = [](const std::string& s) { return std::as_bytes(std::span(s)); };
    std::vector<Section> sections{{SectionKind::plan, 0, bytes(plan)}, {SectionKind::summary, 0, bytes(p.summary)}};
    for (const auto& [id, data] : p.constants) sections.push_back({SectionKind::constant, id, bytes(data)});
    EXPECT_TRUE(write_file(path, sections));
    return Engine::load(path, cpu::providers());
  }

  /// Runs on buffers of exactly the sizes that the plan states. False: it would take more memory or time than a test may.
  static bool run(const std::shared_ptr<const Engine>& engine) {
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
    EXPECT_TRUE((*context)->run(in, out));
    return true;
  }

  std::filesystem::path folder_;
  std::vector<Network> networks_;
  Tactics tactics_;
};

TEST_F(ForgedEngine, UntouchedPartsLoadAndRun) {
  for (const Network& n : networks_) {
    const auto e = load(parts_of(n));
    ASSERT_TRUE(e) << n.name << ": " << e.error().message;
    EXPECT_TRUE(run(*e)) << n.name;
  }
}

TEST_F(ForgedEngine, RefusedOrHarmless) {
  const std::uint64_t first = number_from("OCTAVO_FUZZ_SEED", 1);
  const std::uint64_t rounds = number_from("OCTAVO_FUZZ_ROUNDS", std::getenv("OCTAVO_LONG") != nullptr ? 4000 : 100);
  const bool verbose = std::getenv("OCTAVO_FUZZ_VERBOSE") != nullptr;
  int refused = 0, ran = 0, large = 0;
  for (const Network& n : networks_) {
    const Parts good = parts_of(n);
    for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
      Parts p = good;
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
  const auto refusal = [&](const Parts& p) {
    const auto e = load(p);
    return e ? std::string("loaded") : e.error().message;
  };
  int short_packed = 0;
  for (const Network& n : networks_) {
    const Parts good = parts_of(n);
    for (std::size_t r = 0; r < good.plan["regions"].size(); ++r) {
      for (const json& id : good.plan["regions"][r]["packed"]) {  // every packed constant, one element short and one long
        for (const int more : {-4, 4}) {
          Parts p = good;
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
      Parts p = good;
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
    Parts p = good;
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
  ASSERT_EQ(sections->front().kind, SectionKind::set);
  const std::size_t constants = static_cast<std::size_t>(
      std::count_if(sections->begin(), sections->end(), [](const Section& s) { return s.kind == SectionKind::constant; }));
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
  for (Section& s : with) s.id = s.kind == SectionKind::plan && s.id == 2 ? 3 : s.id;
  expect(load_all(good, with), "there are 3 plans");
  with = *sections;
  for (Section& s : with) {  // plan 2 is plan 1 once more, with constants of its own
    if (s.id != 2 || s.kind == SectionKind::constant) continue;
    for (const Section& other : *sections)
      if (other.kind == s.kind && other.id == 1) s.bytes = other.bytes;
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
