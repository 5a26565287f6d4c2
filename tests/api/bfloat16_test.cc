// bfloat16 layers and --max-error on real networks: built, judged region by region, saved and loaded, run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "api/check.h"
#include "api/pipeline.h"
#include "reference/evaluate.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;

fs::path model(const char* file) {
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  return (set ? fs::path(set) : fs::path(OCTAVO_SOURCE_DIR) / "../shared") / "models" / file;
}

PipelineOptions options(int effort = 0) {
  PipelineOptions o;
  o.threads = 1;
  o.plan.effort = effort;
  return o;
}

int regions(const Built& b, std::string_view precision) {
  int n = 0;
  for (const region::Region& r : b.engine->plan().regions) n += r.precision == precision;
  return n;
}

/// The inputs of the error's estimate (plan/permit_error.h): uniform in -1..1.
std::vector<ir::Tensor> uniform(const ir::Graph& g, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<ir::Tensor> out;
  for (const ir::ValueId v : g.inputs) {
    ir::Tensor t(g.type(v));
    for (float& x : t.mutable_data<float>()) x = static_cast<float>(static_cast<double>(random() >> 40) / (1 << 23) - 1.0);
    out.push_back(std::move(t));
  }
  return out;
}

std::vector<ir::Tensor> outputs(const std::shared_ptr<const engine::Engine>& e, const std::vector<ir::Tensor>& inputs) {
  const auto context = engine::Context::create(e, 1);
  EXPECT_TRUE(context);
  auto out = run(**context, inputs);
  EXPECT_TRUE(out);
  return std::move(*out);
}

/// Largest difference as a part of the largest magnitude.
double error(const std::vector<ir::Tensor>& exact, const std::vector<ir::Tensor>& found) {
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    double largest = 0, difference = 0;
    for (std::int64_t k = 0; k < exact[i].size(); ++k) {
      largest = std::max(largest, std::abs(exact[i].at(k)));
      difference = std::max(difference, std::abs(exact[i].at(k) - found[i].at(k)));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

/// Empty, or why nothing here computes in bfloat16.
std::string why_not(const Result<Built>& b) {
  return !b && b.error().message.find("is to compute in bfloat16, and nothing here can") != std::string::npos ? b.error().message
                                                                                                              : "";
}

struct Net {
  const char* file;
  double
      tolerance;  ///< of the outputs: 8 bits of significand, some tens of layers; more behind a softmax, which exponentiates errors
};
class Bfloat16Model : public testing::TestWithParam<Net> {};

TEST_P(Bfloat16Model, EveryLayerByRule) {
  const fs::path path = model(GetParam().file);
  if (!fs::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  auto o = options();
  o.plan.precisions = {{"*", "bfloat16"}};
  const auto built = build_file(path.string(), o);
  if (const std::string why = why_not(built); !why.empty()) GTEST_SKIP() << why;
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_GE(regions(*built, "bfloat16"), 10);
  EXPECT_EQ(built->permitted.float_layers, 0);
  for (const region::Region& r : built->engine->plan().regions) {
    if (r.precision != "bfloat16") continue;
    EXPECT_EQ(r.tactic, "cpu.conv.bf16.onednn") << r.name;
    EXPECT_TRUE(r.reason.starts_with("asked for by the rule \"*=bfloat16\"; bfloat16: ")) << r.reason;
  }
  const auto inputs = random_inputs(built->engine->plan(), 1);
  const auto report = check(built->engine, built->graph, inputs);
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->ok()) << report->first_divergence();
  for (const RegionCheck& r : report->regions) EXPECT_EQ(r.skipped, "") << r.name;
  const auto plain = build_file(path.string(), options());
  ASSERT_TRUE(plain) << plain.error().message;
  const double off = error(outputs(plain->engine, inputs), report->outputs);
  EXPECT_LE(off, GetParam().tolerance);
  EXPECT_GT(off, 1e-4) << "nothing was rounded";
  const fs::path file = fs::temp_directory_path() / (std::string("octavo_bf16_") + std::to_string(::getpid()));
  ASSERT_TRUE(built->engine->save(file.string()));
  const auto loaded = engine::Engine::load(file.string(), all_providers());
  fs::remove(file);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const auto again = outputs(*loaded, inputs);
  for (std::size_t i = 0; i < again.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(again[i].bytes(), report->outputs[i].bytes())) << "output " << i;
}
INSTANTIATE_TEST_SUITE_P(Real, Bfloat16Model,
                         testing::Values(Net{"tinycnn_cifar_fp32.onnx", 0.05}, Net{"mobilenetv1_025_224_fp32.onnx", 0.25},
                                         Net{"resnet20_cifar10_fp32.onnx", 0.05}),
                         [](const auto& net) { return fs::path(net.param.file).stem().string(); });

TEST(Bfloat16, AllowedItIsTakenWhereItWasMeasuredFaster) {
  const fs::path path = model("resnet20_cifar10_fp32.onnx");
  if (!fs::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  auto o = options(2);
  o.plan.allowed = {"float32", "bfloat16"};
  const auto built = build_file(path.string(), o);
  ASSERT_TRUE(built) << built.error().message;
  int asked = 0, impossible = 0;
  for (const region::Decision& d : built->engine->plan().decisions) {
    if (d.kind != "precision") continue;
    ++asked;
    ASSERT_EQ(d.answers.size(), 2U) << d.where;
    EXPECT_EQ(d.answers[0].name, "float32");
    EXPECT_EQ(d.answers[1].name, "bfloat16");
    EXPECT_GT(d.answers[0].seconds, 0);
    impossible += d.answers[1].seconds < 0;
    for (const region::Region& r : built->engine->plan().regions) {
      if (r.onnx_nodes.contains(d.where) && r.stages.back().anchor.weights) {
        EXPECT_EQ(r.precision, d.chosen) << d.where;
      }
    }
    if (d.chosen == "bfloat16") {
      EXPECT_LT(d.answers[1].seconds, d.answers[0].seconds) << d.where;
    }
  }
  EXPECT_GE(asked, 20);
  if (impossible > 0) GTEST_SKIP() << impossible << " layers: no kernel for bfloat16 here";
  const auto report = check(built->engine, built->graph, random_inputs(built->engine->plan(), 2));
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->ok()) << report->first_divergence();
}

TEST(Bfloat16, IsRefusedBelowTheProcessorsInstructions) {
  const fs::path path = model("tinycnn_cifar_fp32.onnx");
  if (!fs::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  auto o = options();
  o.plan.precisions = {{"*", "bfloat16"}};
  const char* before = std::getenv("OCTAVO_CPU");
  const std::string was = before ? before : "";
  ::setenv("OCTAVO_CPU", "portable", 1);
  const auto built = build_file(path.string(), o);
  before ? ::setenv("OCTAVO_CPU", was.c_str(), 1) : ::unsetenv("OCTAVO_CPU");
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().kind, ErrorKind::unsupported);
  EXPECT_NE(built.error().message.find("is to compute in bfloat16, and nothing here can: "), std::string::npos)
      << built.error().message;
  EXPECT_NE(built.error().message.find("allow float32 as well, or drop the rule"), std::string::npos) << built.error().message;
}

/// Coarse ranges: int8 alone is off by much. What is left under the limit is verified by running the engines.
TEST(MaxError, SomeLayersStayFloatAndTheLimitHolds) {
  const fs::path path = model("tinycnn_cifar_fp32.onnx");
  if (!fs::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  const auto plain = build_file(path.string(), options());
  ASSERT_TRUE(plain) << plain.error().message;
  auto o = options();
  const ir::Graph& g = plain->model.graph;
  std::map<ir::ValueId, ir::Tensor> bound;
  const auto calibration = uniform(g, 5);
  for (std::size_t i = 0; i < g.inputs.size(); ++i) bound.emplace(g.inputs[i], calibration[i]);
  std::vector<ir::ValueId> values;
  for (const ir::NodeId id : g.order()) {
    const ir::Op op = g.node(id).op;
    if (op == ir::Op::conv || op == ir::Op::gemm) values.push_back(g.node(id).inputs[0]);
  }
  const auto data = reference::evaluate_between(g, bound, values);
  ASSERT_TRUE(data);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float amax = 1e-6F;
    for (const float x : (*data)[i].data<float>()) amax = std::max(amax, std::abs(x));
    o.plan.ranges[g.value(values[i]).name] = amax / 127 * (i % 3 == 0 ? 8.0F : 1.2F);
  }
  const auto inputs = uniform(g, 1);
  const auto exact = outputs(plain->engine, inputs);
  const auto all = build_file(path.string(), o);
  ASSERT_TRUE(all) << all.error().message;
  const double limit = 0.02, without = error(exact, outputs(all->engine, inputs));
  ASSERT_GT(without, limit) << "the test cannot fail";
  for (const bool bfloat16 : {false, true}) {
    o.plan.max_error = limit;
    if (bfloat16) o.plan.allowed.insert("bfloat16");
    o.plan.effort = bfloat16 ? 2 : 0;
    const auto built = build_file(path.string(), o);
    ASSERT_TRUE(built) << built.error().message;
    EXPECT_GE(built->permitted.int8_layers, 1);
    EXPECT_GE(built->permitted.float_layers + built->permitted.bfloat16_layers, 1);
    EXPECT_LE(error(exact, outputs(built->engine, inputs)), limit + 1e-4) << "float sums are free in their order";
    int kept = 0;
    for (const region::Decision& d : built->engine->plan().decisions) {
      if (d.kind != "precision" || d.chosen == "int8") continue;
      ++kept;
      EXPECT_EQ(d.answers[0].name, "int8");
      EXPECT_TRUE(bfloat16 || d.reason.find("--max-error 0.02") != std::string::npos) << d.reason;
    }
    EXPECT_GE(kept, 1);
    const auto report = check(built->engine, built->graph, random_inputs(built->engine->plan(), 3));
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->ok()) << report->first_divergence();
  }
}

}  // namespace
}  // namespace octavo::api
