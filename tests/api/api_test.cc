// The public interface, used as another project would: octavo/octavo.h and nothing else. The model is the digits example.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "octavo/octavo.h"

namespace {

namespace fs = std::filesystem;
using octavo::BuildOptions;
using octavo::Engine;
using octavo::Exception;

const std::string kFloat = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_fp32.onnx";
const std::string kQdq = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_qdq.onnx";

std::vector<float> pictures(std::int64_t n, int seed = 0) {
  std::vector<float> x(static_cast<std::size_t>(n) * 256);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>((i * 2654435761U + static_cast<unsigned>(seed) * 97U) % 1000U) / 500.0F - 1.0F;
  return x;
}
octavo::Shape shape(std::int64_t n) {
  return {n, 1, 16, 16};
}
BuildOptions batch(std::int64_t n, int threads = 1) {
  BuildOptions o;
  o.shapes = {{"image", shape(n)}};
  o.threads = threads;
  o.effort = 0;  // nothing measured: every build is the same
  return o;
}
std::vector<float> head(const Engine& e, std::int64_t n, int seed = 0) {
  const auto x = pictures(n, seed);
  const auto y = e.run({{"image", octavo::view(x, shape(n))}});
  const auto values = y.at("head").as<float>();
  return {values.begin(), values.end()};
}
template <class F>
Exception thrown(const F& f) {
  try {
    f();
  } catch (const Exception& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {Exception::Kind::internal, "nothing"};
}

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "octavo_api_XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Api, BuildsRunsAndDescribes) {
  const Engine e = Engine::build(kQdq, batch(1));
  EXPECT_FALSE(e.open());
  ASSERT_EQ(e.inputs().size(), 1U);
  EXPECT_EQ(e.inputs()[0].name, "image");
  EXPECT_EQ(e.inputs()[0].shape, shape(1));
  EXPECT_EQ(e.outputs()[0].name, "head");
  EXPECT_EQ(e.outputs()[0].shape, (octavo::Shape{1, 10}));
  EXPECT_EQ(e.plan_hash().size(), 32U);
  EXPECT_EQ(e.threads(), 1);
  EXPECT_EQ(e.device(), "cpu");
  const auto layers = e.layers();
  ASSERT_FALSE(layers.empty());
  int convolutions = 0;
  for (const auto& l : layers) {
    EXPECT_FALSE(l.name.empty());
    EXPECT_FALSE(l.onnx_nodes.empty()) << l.name;
    EXPECT_TRUE(l.tactic.starts_with("cpu.")) << l.tactic;
    EXPECT_FALSE(l.reason.empty()) << l.name;
    EXPECT_FALSE(l.outputs.empty()) << l.name;
    if (!l.kind.starts_with("conv")) continue;
    ++convolutions;
    ASSERT_FALSE(l.inputs.empty());
    if (l.precision == "int8") {
      ASSERT_TRUE(l.inputs[0].quantization) << l.name;
      EXPECT_GT(l.inputs[0].quantization->scale.at(0), 0.0F);
      EXPECT_EQ(l.inputs[0].dtype, octavo::DType::u8);
    }
  }
  EXPECT_GT(convolutions, 3);
  EXPECT_EQ(head(e, 1).size(), 10U);
}

TEST(Api, BatchElementsAreIndependent) {
  const auto one = head(Engine::build(kQdq, batch(1)), 1);
  const auto three = head(Engine::build(kQdq, batch(3)), 3);
  ASSERT_EQ(three.size(), 30U);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(three[i], one[i]);
}

TEST(Api, ResultsDoNotDependOnThreads) {
  const Engine one = Engine::build(kQdq, batch(2, 1)), three = Engine::build(kQdq, batch(2, 3));
  EXPECT_EQ(head(one, 2), head(three, 2));
  const auto x = pictures(2);
  for (const int threads : {1, 2, 4}) {
    octavo::Context context(one, threads);
    std::vector<float> y(20);
    context.run({x.data()}, {y.data()});
    EXPECT_EQ(y, head(one, 2)) << threads << " threads";
  }
}

TEST(Api, ReferenceDeviceGivesTheSameBits) {
  BuildOptions o = batch(1);
  const auto cpu = head(Engine::build(kQdq, o), 1);
  o.device = "reference";
  const Engine reference = Engine::build(kQdq, o);
  EXPECT_EQ(reference.device(), "reference");
  for (const auto& l : reference.layers()) EXPECT_TRUE(l.tactic.starts_with("reference.")) << l.tactic;
  EXPECT_EQ(head(reference, 1), cpu);
}

TEST(Api, OpenShapesAreBoundByTheFirstRun) {
  const Engine e = Engine::build(kQdq);
  EXPECT_TRUE(e.open());
  EXPECT_EQ(e.inputs()[0].shape, (octavo::Shape{-1, 1, 16, 16}));
  ASSERT_EQ(e.outputs().size(), 1U);
  EXPECT_EQ(e.outputs()[0].name, "head");
  EXPECT_EQ(e.outputs()[0].shape, (octavo::Shape{-1, 10}));
  const auto early = thrown([&] { (void)e.layers(); });
  EXPECT_EQ(early.kind(), Exception::Kind::usage);
  EXPECT_STREQ(early.what(),
               "layers: no single engine is built yet, because the model has open dimensions: \"image\" [N,1,16,16]. Give `shapes` "
               "to build, or ask "
               "the engine of one set of shapes.");
  EXPECT_EQ(head(e, 1), head(Engine::build(kQdq, batch(1)), 1));
  EXPECT_EQ(e.plan_hash(), e.at({{"image", shape(1)}}).plan_hash()) << "one set of shapes: facts are about it";
  EXPECT_EQ(head(e, 3), head(Engine::build(kQdq, batch(3)), 3));
  EXPECT_EQ(thrown([&] { (void)e.plan_hash(); }).kind(), Exception::Kind::usage) << "two sets of shapes: ambiguous";
  EXPECT_EQ(e.at({{"image", shape(3)}}).inputs()[0].shape, shape(3));
  BuildOptions o;
  o.default_batch = 2;
  EXPECT_FALSE(Engine::build(kQdq, o).open());
}

TEST(Api, ProfilesBoundWhatOpenDimensionsMayBe) {
  BuildOptions o;
  o.threads = 1, o.effort = 0;
  o.profiles["image"] = {shape(1), shape(2), shape(3)};
  const Engine e = Engine::build(kQdq, o);
  EXPECT_TRUE(e.open());
  EXPECT_EQ(e.plan_hash(), Engine::build(kQdq, batch(2)).plan_hash()) << "opt is built already";
  EXPECT_EQ(head(e, 3), head(Engine::build(kQdq, batch(3)), 3));
  const auto outside = thrown([&] { (void)head(e, 4); });
  EXPECT_EQ(outside.kind(), Exception::Kind::bad_input);
  EXPECT_NE(std::string(outside.what()).find("has shape [4,1,16,16]: dimension 0 is 4, its profile goes from 1 to 3"),
            std::string::npos)
      << outside.what();
  const auto refused = [&](const octavo::Profile& p, const std::string& name = "image") {
    o.profiles = {{name, p}};
    const auto error = thrown([&] { (void)Engine::build(kQdq, o); });
    EXPECT_EQ(error.kind(), Exception::Kind::usage) << error.what();
    return std::string(error.what());
  };
  EXPECT_NE(refused({shape(2), shape(1), shape(3)}).find("min <= opt <= max"), std::string::npos);
  EXPECT_NE(refused({{1}, shape(1), shape(3)}).find("one rank"), std::string::npos);
  EXPECT_NE(refused({{1, 1, 8, 16}, shape(1), shape(3)}).find("dimensions that are fixed"), std::string::npos);
  EXPECT_NE(refused({shape(1), shape(1), shape(1)}, "picture").find("no input \"picture\""), std::string::npos);
}

TEST(Api, ThreadsShareAnOpenEngine) {
  const Engine e = Engine::build(kQdq);
  const auto one = head(Engine::build(kQdq, batch(1)), 1), two = head(Engine::build(kQdq, batch(2)), 2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        if (head(e, 1 + t % 2) != (t % 2 == 0 ? one : two)) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Api, SavesAndLoads) {
  const Folder folder;
  const Engine e = Engine::build(kQdq, batch(1, 2));
  e.save(folder / "a");
  Engine::build(kQdq, batch(1, 2)).save(folder / "b");
  EXPECT_EQ(bytes_of(folder / "a"), bytes_of(folder / "b")) << "two builds must be byte-identical";
  const Engine loaded = Engine::load(folder / "a");
  EXPECT_EQ(loaded.plan_hash(), e.plan_hash());
  EXPECT_EQ(loaded.threads(), std::min(2, Engine::build(kQdq).threads())) << "at most the cores of this machine";
  EXPECT_EQ(head(loaded, 1), head(e, 1));
  EXPECT_EQ(Engine::load(folder / "a", 3).threads(), 3);
  EXPECT_EQ(head(Engine::load(folder / "a", 3), 1), head(e, 1));
  ASSERT_EQ(loaded.layers().size(), e.layers().size());
  for (std::size_t i = 0; i < e.layers().size(); ++i) {
    EXPECT_EQ(loaded.layers()[i].reason, e.layers()[i].reason);
    EXPECT_EQ(loaded.layers()[i].onnx_nodes, e.layers()[i].onnx_nodes);
  }
  loaded.save(folder / "c");
  EXPECT_EQ(bytes_of(folder / "c"), bytes_of(folder / "a"));
}

/// One file for all shapes that an open engine was run with: loaded, it builds nothing, and runs nothing else.
TEST(Api, SavesAndLoadsSeveralShapes) {
  const Folder folder;
  BuildOptions o;
  o.threads = 1;
  o.effort = 0;
  const std::vector<float> x = pictures(8);
  const auto run = [&](const Engine& e, std::int64_t n) {
    return e.run({{"image", octavo::ConstView{x.data(), octavo::DType::f32, shape(n)}}}).begin()->second.bytes;
  };
  const Engine open = Engine::build(kQdq, o), other = Engine::build(kQdq, o);
  EXPECT_THROW(open.save(folder / "none"), Exception);
  for (const std::int64_t n : {1, 8, 3}) (void)run(open, n);
  for (const std::int64_t n : {3, 1, 8}) (void)run(other, n);
  open.save(folder / "a");
  other.save(folder / "b");
  EXPECT_EQ(bytes_of(folder / "a"), bytes_of(folder / "b")) << "whatever the order";
  open.at({{"image", shape(8)}}).save(folder / "one");
  EXPECT_LT(bytes_of(folder / "a").size(), 3 * bytes_of(folder / "one").size());
  const Engine loaded = Engine::load(folder / "a");
  ASSERT_TRUE(loaded.open());
  EXPECT_EQ(loaded.inputs()[0].shape, (octavo::Shape{-1, 1, 16, 16}));
  EXPECT_EQ(loaded.outputs()[0].shape[0], -1);
  for (const std::int64_t n : {1, 3, 8}) {
    EXPECT_EQ(run(loaded, n), run(open, n)) << n;
    EXPECT_EQ(loaded.at({{"image", shape(n)}}).plan_hash(), open.at({{"image", shape(n)}}).plan_hash());
  }
  const Exception refused = thrown([&] { (void)run(loaded, 4); });
  EXPECT_EQ(refused.kind(), Exception::Kind::bad_input);
  EXPECT_NE(
      std::string(refused.what()).find("input \"image\" has shape [4,1,16,16]: dimension 0 is 4, the engine was built for 1, 3, 8"),
      std::string::npos)
      << refused.what();
  EXPECT_EQ(thrown([&] { (void)loaded.layers(); }).kind(), Exception::Kind::usage);
  EXPECT_EQ(thrown([&] { (void)loaded.at({}); }).kind(), Exception::Kind::bad_input);
  loaded.save(folder / "c");
  EXPECT_EQ(bytes_of(folder / "c"), bytes_of(folder / "a"));
  EXPECT_EQ(loaded.bytes().size(), bytes_of(folder / "a").size());
}

TEST(Api, BytesAndPathsBuildTheSamePlan) {
  const std::string model = bytes_of(kQdq);
  const Engine e = Engine::build(std::as_bytes(std::span(model)), batch(1));
  EXPECT_EQ(e.plan_hash(), Engine::build(kQdq, batch(1)).plan_hash());
  EXPECT_NE(e.plan_hash(), Engine::build(kFloat, batch(1)).plan_hash());
}

TEST(Api, ErrorsHaveKindAndText) {
  const auto check = [](const Exception& e, Exception::Kind kind, const std::string& part) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  };
  check(thrown([] { (void)Engine::build("/absent/model.onnx"); }), Exception::Kind::io, "/absent/model.onnx");
  check(thrown([] { (void)Engine::load("/absent/engine"); }), Exception::Kind::io, "No such file");
  check(thrown([] { (void)Engine::load(kQdq); }), Exception::Kind::bad_engine, "looks like an ONNX model");
  BuildOptions o = batch(1);
  o.device = "abacus";
  check(thrown([&] { (void)Engine::build(kQdq, o); }), Exception::Kind::usage, "device \"abacus\" is not known");
  o = batch(1);
  o.threads = -1;
  check(thrown([&] { (void)Engine::build(kQdq, o); }), Exception::Kind::usage, "-1 threads");
  o = batch(1);
  o.disabled = {"no-such-rule"};
  check(thrown([&] { (void)Engine::build(kQdq, o); }), Exception::Kind::usage, "no-such-rule");
  o = {};
  o.shapes = {{"picture", shape(1)}};
  check(thrown([&] { (void)Engine::build(kQdq, o); }), Exception::Kind::usage,
        "input \"picture\", but the model has no such input; its inputs: \"image\"");
  const std::string garbage = "garbage, not a model";
  EXPECT_EQ(thrown([&] { (void)Engine::build(std::as_bytes(std::span(garbage))); }).kind(), Exception::Kind::bad_model);

  const Engine e = Engine::build(kQdq, batch(1));
  const auto x = pictures(2);
  check(thrown([&] {
          (void)e.run({{"image", octavo::view(x, shape(2))}});
        }),
        Exception::Kind::bad_input, "input \"image\" is f32[2,1,16,16], the engine was built for f32[1,1,16,16]");
  check(thrown([&] { (void)e.run(std::map<std::string, octavo::ConstView>{}); }), Exception::Kind::bad_input,
        "\"image\" f32[1,1,16,16] is missing");
  check(thrown([&] {
          (void)e.run({{"image", octavo::view(x, shape(1))}, {"other", octavo::view(x, shape(1))}});
        }),
        Exception::Kind::bad_input, "no input \"other\"");
  const Engine open = Engine::build(kQdq);
  check(thrown([&] {
          (void)open.at({{"image", {1, 1, 16, 17}}});
        }),
        Exception::Kind::bad_input, "[1,1,16,17], the model wants [N,1,16,16]");
  check(thrown([&] { (void)open.at({}); }), Exception::Kind::bad_input, "has open dimensions");
  octavo::Context context(open);
  std::vector<float> y(10);
  check(thrown([&] { context.run({x.data()}, {y.data()}); }), Exception::Kind::usage, "dimensions of the engine are open");
  check(thrown([&] { (void)context.shape_of(0); }), Exception::Kind::usage, "has not run yet");
  check(thrown([&] { (void)context.run({octavo::view(x, {1, 1, 16, 17})}); }), Exception::Kind::bad_input, "[1,1,16,17]");
  check(thrown([&] { (void)context.run(std::span<const octavo::ConstView>()); }), Exception::Kind::bad_input, "0 inputs given");
}

// Two threads, two contexts, one engine: run under TSan.
TEST(Api, TwoContextsOfOneEngine) {
  const Engine e = Engine::build(kQdq, batch(1));
  const auto expected0 = head(e, 1, 0), expected1 = head(e, 1, 1);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      octavo::Context context(e, 2);
      const auto x = pictures(1, t);
      std::vector<float> y(10);
      for (int i = 0; i < 20; ++i) {
        context.run({x.data()}, {y.data()});
        if (y != (t == 0 ? expected0 : expected1)) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Doctor, FindsNothingInAHealthyModelAndSaysWhatIsNoModel) {
  EXPECT_TRUE(octavo::doctor(kQdq).empty());
  const std::string bytes = bytes_of(kQdq);
  EXPECT_TRUE(octavo::doctor(std::as_bytes(std::span(bytes))).empty());
  EXPECT_EQ(thrown([] { (void)octavo::doctor("/no/such/file.onnx"); }).kind(), Exception::Kind::io);
  EXPECT_EQ(thrown([&] { (void)octavo::doctor(std::as_bytes(std::span(bytes).first(100))); }).kind(), Exception::Kind::bad_model);
  EXPECT_EQ(thrown([] { (void)octavo::doctor(kQdq, {"", "minmax.cache"}); }).kind(), Exception::Kind::usage);
}

/// Of the engines of an open model those run last are kept; what was dropped is built again, and handles outlive it.
TEST(Api, TheNumberOfEnginesIsLimited) {
  int builds = 0;
  std::string last;
  BuildOptions o;
  o.effort = 0;
  o.threads = 1;
  o.most_engines = 2;
  o.progress = [&](std::string_view step) {
    builds += step == "engine" && last != "engine" ? 1 : 0;
    last = step;
    return true;
  };
  const Engine engine = Engine::build(kFloat, o);
  ASSERT_TRUE(engine.open());
  const Engine held = engine.at({{"image", shape(1)}});
  const std::vector<float> x = pictures(3);
  for (const std::int64_t n : {1, 2, 1, 3, 1, 2}) {  // 3 drops 2, which was not run longest; then 2 is built again
    last.clear();
    (void)engine.run({{"image", octavo::ConstView{x.data(), octavo::DType::f32, shape(n)}}});
  }
  EXPECT_EQ(builds, 4);
  EXPECT_EQ(held.run({{"image", octavo::ConstView{x.data(), octavo::DType::f32, shape(1)}}}).size(), engine.outputs().size());
  o.most_engines = 0;
  EXPECT_THROW((void)Engine::build(kFloat, o), Exception);
}

/// y = NonZero(x), x f32[2,3].
constexpr char kNonZero[] =
    "\x08\x08\x3a\x34\x0a\x0f\x0a\x01\x78\x12\x01\x79\x22\x07\x4e\x6f\x6e\x5a\x65\x72\x6f\x12\x01\x67\x5a\x13\x0a\x01"
    "\x78\x12\x0e\x0a\x0c\x08\x01\x12\x08\x0a\x02\x08\x02\x0a\x02\x08\x03\x62\x09\x0a\x01\x79\x12\x04\x0a\x02\x08\x07"
    "\x42\x04\x0a\x00\x10\x0d";

TEST(Sizes, ThatDataDecide) {
  BuildOptions o;
  o.effort = 0;
  const Engine e = Engine::build(std::as_bytes(std::span(kNonZero, sizeof(kNonZero) - 1)), o);
  ASSERT_EQ(e.outputs().size(), 1U);
  EXPECT_EQ(e.outputs()[0].shape, (octavo::Shape{2, 6}));  // room for the most
  const std::vector<float> some{0, 1, 0, 2, 0, 3}, none(6), all(6, 1);
  const auto y = e.run({{"x", octavo::view(some, {2, 3})}}).at("y");
  EXPECT_EQ(y.shape, (octavo::Shape{2, 3}));
  const auto positions = y.as<std::int64_t>();
  EXPECT_EQ(std::vector<std::int64_t>(positions.begin(), positions.end()), (std::vector<std::int64_t>{0, 1, 1, 1, 0, 2}));
  EXPECT_EQ(e.run({{"x", octavo::view(none, {2, 3})}}).at("y").shape, (octavo::Shape{2, 0}));
  std::vector<std::int64_t> room(12);
  octavo::Context context(e);
  for (const auto& [x, count] : {std::pair(&some, 3), {&none, 0}, {&all, 6}}) {
    const void* in[] = {x->data()};
    void* out[] = {room.data()};
    std::vector<octavo::Shape> shapes;
    e.run(in, out, &shapes);
    ASSERT_EQ(shapes, (std::vector<octavo::Shape>{{2, count}}));
    context.run(in, out);
    EXPECT_EQ(context.shape_of(0), shapes[0]);
    if (count > 0) EXPECT_EQ(room[6 + static_cast<std::size_t>(count) - 1], 2);  // rows are as far apart as in the largest shape
  }
  EXPECT_EQ(thrown([&] { (void)context.shape_of(1); }).kind(), Exception::Kind::usage);
}

}  // namespace
