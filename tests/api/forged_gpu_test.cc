// Engine files for a GPU that a hostile writer made. Their machine code and launches are used as they are or not at all; the rest is data, as in
// files for the CPU: up to the driver, loading refuses or gives an engine. With kernels made anew (cuda::remake_kernels) a plan that loads runs
// inside of its memory, which the emulation of the kernels watches.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "api/check.h"
#include "cuda/device/cubin.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/provider.h"
#include "engine/part_plan.h"
#include "engine/set.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "support/costs.h"
#include "support/forger.h"
#include "support/fuzz_setting.h"
#include "support/placement.h"

namespace octavo::testing {
namespace {

namespace fs = std::filesystem;
using engine::Engine;
using engine::Section;

const cuda::Target kTarget{"sm_80", 108, 163 * 1024}, kHopper{"sm_90a", 132, 227 * 1024};
Result<std::string> as_text(std::string_view t) {
  return std::string(t);  // the emulation runs texts
}

class ForgedGpuEngine : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    folder_ = fs::temp_directory_path() / fmt::format("octavo-forged-gpu-{}", ::getpid());
    fs::create_directory(folder_);
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::shared_ptr<const Engine> build(const ir::Graph& graph) const { return build(graph, *provider_, {}, device_.get()); }
  static std::shared_ptr<const Engine> build(const ir::Graph& graph, const region::Provider& provider, plan::PlanOptions how,
                                             const region::Device* device) {
    how.usual = cuda::usual_choices(), how.priced = cuda::priced_choices();
    auto planned = plan::make_plan(graph, {&provider}, how);
    if (!planned) return nullptr;  // an operator that no kernel computes
    region::Plan* const plan = &planned->plan;
    EXPECT_TRUE(provider.finish({&plan, 1}, 1));
    auto e = Engine::create(std::move(planned->plan), {&provider}, "", {device});
    EXPECT_TRUE(e) << e.error().message;
    return e ? *e : nullptr;
  }
  ForgedParts parts_of(const Engine& engine) const {
    const std::string path = (folder_ / "good").string();
    EXPECT_TRUE(engine.save(path));
    const auto file = engine::EngineFile::open(path);
    EXPECT_TRUE(file) << file.error().message;
    ForgedParts p;
    for (const Section& s : (*file)->container().sections) {
      std::string bytes(reinterpret_cast<const char*>(s.bytes.data()), s.bytes.size());
      if (s.name == engine::section::kPlan) p.plan = json::parse(bytes);
      if (s.name == engine::section::kSummary) p.summary = bytes;
      if (s.name == engine::section::kConstant) p.constants[s.id] = std::move(bytes);
    }
    return p;
  }
  std::shared_ptr<const engine::EngineFile> file_of(const ForgedParts& p) const {
    const std::string path = (folder_ / "forged").string(), plan = p.plan.dump();
    const auto bytes = [](const std::string& s) { return std::as_bytes(std::span(s)); };
    std::vector<Section> sections{{engine::section::kPlan, 0, bytes(plan)}, {engine::section::kSummary, 0, bytes(p.summary)}};
    for (const auto& [id, data] : p.constants) sections.push_back({engine::section::kConstant, id, bytes(data)});
    EXPECT_TRUE(engine::write_file(path, sections));
    auto file = engine::EngineFile::open(path);
    EXPECT_TRUE(file) << file.error().message;
    return *file;
  }
  /// The plan of a file with kernels made anew.
  static Result<region::Plan> remade(const engine::EngineFile& file, const cuda::Target& target = kTarget) {
    OCTAVO_TRY(const auto parts, file.parts());
    OCTAVO_TRY(region::Plan plan, engine::plan_with_constants(parts.at(0), "forged"));
    OCTAVO_CHECK(cuda::remake_kernels(plan, target, as_text, 1));
    return plan;
  }
  std::vector<ir::Graph> graphs() const {
    std::vector<ir::Graph> out;
    auto digits = onnx::import_file(OCTAVO_SOURCE_DIR "/examples/digits/digits_qdq.onnx", {});
    EXPECT_TRUE(digits);
    out.push_back(std::move(digits->graph));
    for (std::uint64_t seed = 1; seed <= 10; ++seed) out.push_back(random_network(seed));
    return out;
  }

  /// Convolutions whose rows the copying unit gathers, on a GPU that has one: their launches hold images.
  std::shared_ptr<const Engine> with_images() const {
    auto graph = ir::parse(R"(
graph "images"
x = input : f32[2,32,9,7]
q = view x q=u8(0.03,128) from {"q"}
w1 = constant s8[64,32,3,3] q=s8(0.02,0) seed:1
w2 = constant s8[64,64,3,3] q=s8(0.02,0) seed:2
a = conv q w1 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[2,2]} from {"a"}
ar = relu a from {"relu"}
av = view ar q=u8(0.3,0) from {"av"}
b = conv av w2 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"b"}
bv = view b q=u8(3.0,128) from {"bv"}
output bv
)");
    EXPECT_TRUE(graph) << graph.error().message;
    PreferFamily costs("im2col");
    plan::PlanOptions how;
    how.costs = &costs, how.effort = 1;
    return graph ? build(*graph, *hopper_, how, device_.get()) : nullptr;
  }

  /// Attention whose mask is a constant, so that a table says which keys a tile of queries reads; and its result resized, by a table of pixels.
  std::shared_ptr<const Engine> with_tables() const {
    std::string mask;
    for (int i = 0; i < 40 * 40; ++i) mask += fmt::format("{}{}", i == 0 ? "" : ",", i % 40 > i / 40 ? "-inf" : "0");
    const std::string head = "graph \"g\"\nq = input : f32[1,2,40,16]\nk = input : f32[1,2,16,40]\nv = input : f32[1,2,40,16]\n";
    auto graph = ir::parse(head + "c = constant f32[] (0.25)\nm = constant f32[40,40] (" + mask +
                           ")\ns = matmul q k\nd = mul s c\ne = add d m\np = softmax e {axis=3}\ny = matmul p v\nz = resize_linear "
                           "y {scales=[1.0,1.0,2.0,1.0]}\noutput z\n");
    EXPECT_TRUE(graph) << graph.error().message;
    plan::PlanOptions how;
    how.precisions = {{"*", "bfloat16"}};
    return graph ? build(*graph, *provider_, how, device_.get()) : nullptr;
  }

  fs::path folder_;
  std::unique_ptr<const region::Device> device_ = emulated_device();
  std::unique_ptr<const region::Provider> provider_ = cuda::make_provider(kTarget, as_text),
                                          hopper_ = cuda::make_provider(kHopper, as_text);
};

/// Kernels made anew from a file are those that the build made, though the file has no weights but packed ones: the same launches and texts.
TEST_F(ForgedGpuEngine, RemadeKernelsAreThoseOfTheBuild) {
  int same = 0;
  for (const ir::Graph& graph : graphs()) {
    const auto engine = build(graph);
    if (engine == nullptr) continue;
    const auto file = file_of(parts_of(*engine));
    const auto plan = remade(*file);
    ASSERT_TRUE(plan) << plan.error().message;
    for (std::size_t i = 0; i < plan->regions.size(); ++i) {
      const region::Region &was = engine->plan().regions[i], &is = plan->regions[i];
      EXPECT_EQ(is.launch, was.launch) << was.name;
      ASSERT_EQ(is.code < 0, was.code < 0) << was.name;
      if (was.code < 0) continue;
      EXPECT_NE(is.code, was.code) << "the file's code is not used";
      EXPECT_TRUE(std::ranges::equal(plan->buffers[static_cast<std::size_t>(is.code)].data.bytes(), engine->constant(was.code)))
          << was.name << ", " << was.tactic.name();
      ++same;
    }
  }
  EXPECT_GT(same, 100);
}

/// What the file says of code and launches makes no difference then.
TEST_F(ForgedGpuEngine, CodeAndLaunchesOfTheFileAreNotUsed) {
  const auto engine = build(graphs()[0]);
  ASSERT_NE(engine, nullptr);
  ForgedParts p = parts_of(*engine);
  for (json& r : p.plan["regions"]) {
    if (r.contains("code") && r["code"].is_number_integer() && r["code"].get<int>() >= 0) {
      std::string& code = p.constants[r["code"].get<std::uint32_t>()];
      std::fill(code.begin(), code.end(), '\xcc');
    }
    json launch = json::parse(r["launch"].get<std::string>());
    launch["launches"] = "malicious", launch["workspace"] = -7;
    r["launch"] = launch.dump();
  }
  const auto file = file_of(p);
  const auto as_it_is = Engine::load_all(file, {provider_.get()}, {device_.get()});
  EXPECT_FALSE(as_it_is);
  auto plan = remade(*file);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto made = Engine::create(std::move(*plan), {provider_.get()}, "", {device_.get()});
  ASSERT_TRUE(made) << made.error().message;
  auto one = engine::Context::create(engine, 1), other = engine::Context::create(*made, 1);
  ASSERT_TRUE(one && other);
  const auto inputs = api::random_inputs(engine->plan(), 1);
  const auto expected = api::run(**one, inputs), actual = api::run(**other, inputs);
  ASSERT_TRUE(expected && actual) << actual.error().message;
  EXPECT_TRUE(ir::same_bytes((*expected)[0], (*actual)[0]));
}

/// Every number of a launch with images, at its limits and beyond: what an image says lies inside of its tensor's buffer, or the file is refused. Kernels made
/// anew do not read any of it.
TEST_F(ForgedGpuEngine, ImagesOfLaunches) {
  const auto engine = with_images();
  ASSERT_NE(engine, nullptr);
  const ForgedParts good = parts_of(*engine);
  ASSERT_TRUE(Engine::load_all(file_of(good), {hopper_.get()}, {device_.get()}));
  int images = 0, refused = 0, loaded = 0;
  for (std::size_t r = 0; r < good.plan["regions"].size(); ++r) {
    const std::string text = good.plan["regions"][r]["launch"];
    if (text.find("\"images\"") == std::string::npos) continue;
    ++images;
    const json flat = json::parse(text).flatten();
    for (const auto& [path, was] : flat.items()) {
      if (!was.is_number_integer()) continue;
      const auto v = was.get<std::int64_t>();
      constexpr std::int64_t kWrap = std::int64_t{1} << 32;
      for (const std::int64_t to : {v + 1, v - 1, -v - 1, std::int64_t{INT32_MAX}, kWrap + v, kWrap - 1, kWrap / 2, INT64_MAX}) {
        json other = flat;
        other[path] = to;
        ForgedParts p = good;
        p.plan["regions"][r]["launch"] = other.unflatten().dump();
        const auto all = Engine::load_all(file_of(p), {hopper_.get()}, {device_.get()});
        ++(all ? loaded : refused);
        const bool far = to < INT32_MIN || to > INT32_MAX;
        if (far && path.find("/parameters/") != std::string::npos && was != 0) EXPECT_FALSE(all) << path << ": " << to;
        if (far && path.find("/images/") != std::string::npos) EXPECT_FALSE(all) << path << ": " << to;
      }
    }
    ForgedParts p = good;
    json none = json::parse(text);
    none["launches"] = json::array();
    p.plan["regions"][r]["launch"] = none.dump();
    const auto plan = remade(*file_of(p), kHopper);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->regions[r].launch, text);
  }
  EXPECT_EQ(images, 2) << "convolutions are of other families now";
  EXPECT_GT(refused, loaded);
}

/// One byte of each packed constant is changed. Tables say where kernels read (which elements, which keys), so each one
/// must be what the family packs. Only weights that the file has in no other form are taken as they are.
TEST_F(ForgedGpuEngine, PackedConstantsAreThoseOfTheFamilies) {
  std::vector<std::shared_ptr<const Engine>> engines{with_tables()};
  ASSERT_NE(engines[0], nullptr);
  for (const ir::Graph& graph : graphs()) {
    if (auto e = build(graph)) engines.push_back(std::move(e));
  }
  std::map<std::string, int> refused, taken;
  for (const auto& engine : engines) {
    const ForgedParts good = parts_of(*engine);
    ASSERT_TRUE(remade(*file_of(good)));
    for (const region::Region& r : engine->plan().regions) {
      for (std::size_t i = 0; i < r.packed.size(); ++i) {
        ForgedParts p = good;
        std::string& bytes = p.constants[static_cast<std::uint32_t>(r.packed[i])];
        if (bytes.empty()) continue;
        bytes.back() ^= 0x40;
        const auto plan = remade(*file_of(p));
        ++(plan ? taken : refused)[r.tactic.family];
        if (!plan) {
          EXPECT_EQ(plan.error().kind, ErrorKind::bad_engine);
          EXPECT_NE(plan.error().message.find(" of packed constant "), std::string::npos) << plan.error().message;
          continue;
        }
        EXPECT_TRUE(std::ranges::any_of(r.stages, [](const region::Stage& s) { return s.anchor.weights.has_value(); }))
            << r.name << ", " << r.tactic.name() << ": constant " << i;
      }
    }
  }
  for (const char* family : {"move", "resize", "attention.bf16.mma"}) EXPECT_GT(refused[family], 0) << family;
  EXPECT_FALSE(taken.empty()) << "files have weights in another form now";
}

/// Plans changed under right checksums: refused, or an engine; never a crash. Each as it is, and with kernels made anew.
TEST_F(ForgedGpuEngine, LoadingRefusesOrGivesAnEngine) {
  const auto number = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
  };
  const std::uint64_t first = number("OCTAVO_FUZZ_SEED", 1), rounds = number("OCTAVO_FUZZ_ROUNDS", testing::rounds(20, 60, 300));
  const std::uint64_t most_runs = number("OCTAVO_FUZZ_RUNS", testing::rounds(6, 6, 30));  // a kernel takes a second to compile
  const bool verbose = std::getenv("OCTAVO_FUZZ_VERBOSE") != nullptr;
  std::vector<std::shared_ptr<const Engine>> engines;
  ForgedTactics tactics;
  for (const ir::Graph& graph : graphs()) {
    if (auto e = build(graph)) {
      tactics.add(e->plan());
      engines.push_back(std::move(e));
    }
  }
  const std::size_t older = engines.size();
  engines.push_back(with_images());
  ASSERT_NE(engines.back(), nullptr);
  tactics.add(engines.back()->plan());
  int refused = 0, loaded = 0, not_remade = 0, again = 0, ran = 0, found = 0;
  for (std::size_t n = 0; n < engines.size(); ++n) {
    const ForgedParts good = parts_of(*engines[n]);
    const region::Provider* const provider = n < older ? provider_.get() : hopper_.get();
    for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
      ForgedParts p = good;
      const std::string where = fmt::format("network {}: OCTAVO_FUZZ_SEED={}: {}", n, seed, Forger(seed, tactics).forge(p));
      if (verbose) std::fprintf(stderr, "%s\n", where.c_str());
      const auto file = file_of(p);
      const auto all = Engine::load_all(file, {provider}, {device_.get()});
      ++(all ? loaded : refused);
      if (!all) EXPECT_FALSE(all.error().message.empty()) << where;
      auto plan = remade(*file, n < older ? kTarget : kHopper);
      if (!plan) {
        ++not_remade;
        EXPECT_NE(plan.error().kind, ErrorKind::internal) << where << ": " << plan.error().message;
        continue;
      }
      std::int64_t total = 0;
      for (const region::Buffer& b : plan->buffers) total += b.bytes;
      for (const region::DeviceUse& d : plan->devices) total += d.arena_bytes;
      if (total > (1 << 22)) continue;
      const auto made = Engine::create(std::move(*plan), {provider}, "", {device_.get()});
      if (!made) continue;
      ++again;
      if (static_cast<std::uint64_t>(ran) >= most_runs || (rounds > 1 && seed % 7 != 0)) continue;
      const auto context = engine::Context::create(*made, 1);
      if (!context) continue;
      const auto result = api::run(**context, api::random_inputs((*made)->plan(), 1));
      ++ran;
      const std::string wrong = result ? "" : result.error().message;
      found += wrong.empty() ? 0 : 1;
      for (const char* outside : {", which has", "at an address of no buffer", "behind a static shared array"})
        EXPECT_EQ(wrong.find(outside), std::string::npos) << where << ": " << wrong;
    }
  }
  std::printf(
      "%zu networks: %d refused and %d loaded as they are; made anew: %d refused, %d loaded, of which %d ran (%d with races)\n",
      engines.size(), refused, loaded, not_remade, again, ran, found);
  if (rounds > 10) {
    EXPECT_GT(refused, loaded / 2);
    EXPECT_GT(again, 0) << "names may change";
    EXPECT_GT(ran, 0);
  }
}

/// Real machine code up to the driver: without a GPU, where NVRTC is there. What no driver may see is refused before.
TEST_F(ForgedGpuEngine, MachineCodeIsReadBeforeTheDriver) {
  const auto compiler = cuda::nvrtc_compiler(kTarget.architecture);
  const auto checking = cuda::make_provider(kTarget, compiler, cuda::check_machine_code);
  auto graph = ir::parse(R"(
graph "g"
x = input : f32[1,16,6,6]
q = view x q=u8(0.03,128) from {"q"}
p = max_pool q {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} from {"pool"}
output p
)");
  ASSERT_TRUE(graph);
  auto planned = plan::make_plan(*graph, {checking.get()}, {});
  ASSERT_TRUE(planned) << planned.error().message;
  region::Plan* const plan = &planned->plan;
  if (const Status compiled = checking->finish({&plan, 1}, 2); !compiled) GTEST_SKIP() << compiled.error().message;
  const auto engine = Engine::create(std::move(planned->plan), {checking.get()}, "", {device_.get()});
  ASSERT_TRUE(engine) << engine.error().message;
  const ForgedParts good = parts_of(**engine);
  const auto said = [&](const ForgedParts& p) {
    const auto e = Engine::load_all(file_of(p), {checking.get()}, {device_.get()});
    return e ? std::string("loaded") : e.error().message;
  };
  ASSERT_EQ(said(good), "loaded");
  int tried = 0;
  for (std::size_t r = 0; r < good.plan["regions"].size(); ++r) {
    const json& region = good.plan["regions"][r];
    if (!region.contains("code") || region["code"].get<int>() < 0) continue;
    const auto id = region["code"].get<std::uint32_t>();
    const auto refused = [&](ForgedParts p, const std::string& part) {
      p.plan["buffers"][id]["bytes"] = p.constants[id].size();
      const std::string text = said(p);
      EXPECT_NE(text.find(part), std::string::npos) << text;
      ++tried;
    };
    ForgedParts p = good;
    p.constants[id].replace(16, 4, "MZ\x90\0", 4);
    refused(p, "it is not an ELF file of 64 bits");
    p = good;
    p.constants[id][16 + 18] = 62;
    refused(p, "for machine 62");
    json launches = json::parse(region["launch"].get<std::string>());
    for (const auto& [key, value, part] :
         std::vector<std::tuple<std::string, json, std::string>>{{"function", "octavo_nothing", "a launch of \"octavo_nothing\""},
                                                                 {"block", {1024, 1024, 1}, "threads"},
                                                                 {"parameters", json::array(), "the launch gives 0 pointers"},
                                                                 {"shared", 1 << 19, "bytes of shared memory"}}) {
      json other = launches;
      other["launches"][0][key] = value;
      p = good;
      p.plan["regions"][r]["launch"] = other.dump();
      refused(p, part);
    }
  }
  EXPECT_GT(tried, 0);
}

}  // namespace
}  // namespace octavo::testing
