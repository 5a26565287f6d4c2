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
#include "cpu/provider.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "reference/oracle_provider.h"
#include "report/sentences.h"
#include "support/costs.h"
#include "support/feeds.h"
#include "support/placement.h"
#include "support/run_plan.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;

fs::path model(const char* file) {
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  return (set ? fs::path(set) : fs::path(OCTAVO_SOURCE_DIR) / "../shared") / "models" / file;
}

PipelineOptions options(int effort = 0) {
  PipelineOptions o;
  o.plan.threads = 1;
  o.plan.effort = effort;
  return o;
}

int regions(const Built& b, std::string_view precision) {
  int n = 0;
  for (const region::Region& r : b.engine->plan().regions) n += to_string(r.precision) == precision;
  return n;
}

/// The inputs of the error's estimate (plan/precision/permit_error.h): uniform in -1..1.
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
class Bfloat16Model : public ::testing::TestWithParam<Net> {};

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
    if (r.precision != ir::DType::bf16) continue;
    EXPECT_NE(r.tactic.name().find(".bf16."), std::string::npos) << r.name << ": " << r.tactic.name();
    const std::string why = report::sentences(r.reasons);
    EXPECT_TRUE(why.starts_with("asked for by the rule \"*=bfloat16\"; bfloat16: ")) << why;
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
                         ::testing::Values(Net{"tinycnn_cifar_fp32.onnx", 0.05}, Net{"mobilenetv1_025_224_fp32.onnx", 0.25},
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
    if (d.choice != "precision") continue;
    ++asked;
    ASSERT_EQ(d.candidates.size(), 2U) << d.where;
    EXPECT_EQ(d.candidates[0].name, "float32");
    EXPECT_EQ(d.candidates[1].name, "bfloat16");
    EXPECT_GT(d.candidates[0].seconds, 0);
    impossible += d.candidates[1].seconds < 0;
    for (const region::Region& r : built->engine->plan().regions) {
      if (r.onnx_nodes.contains(d.where) && r.stages.back().anchor.weights) {
        EXPECT_EQ(to_string(r.precision), d.candidates[d.chosen].name) << d.where;
      }
    }
    if (d.candidates[d.chosen].name == "bfloat16") {
      EXPECT_LT(d.candidates[1].seconds, d.candidates[0].seconds) << d.where;
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
  EXPECT_NE(built.error().message.find("is to compute in bfloat16, and nothing here can:"), std::string::npos)
      << built.error().message;
  EXPECT_NE(built.error().message.find("allow float32 as well, or drop the rule"), std::string::npos) << built.error().message;
}

/// A random network without its pairs: float, with float weights.
ir::Graph float_network(std::uint64_t seed) {
  testing::NetworkOptions o;
  o.typed_edges = o.half_arithmetic = o.reinterpret = false;
  ir::Graph g = testing::random_network(seed, o);
  for (const ir::NodeId id : g.order()) {
    const ir::Node n = g.node(id);
    if (n.op == ir::Op::constant && n.quantizer) {
      auto values = reference::evaluate_between(g, {}, {n.outputs[0]});
      EXPECT_TRUE(values) << "seed " << seed;
      if (values) g.replace_uses(n.outputs[0], g.add_constant(std::move((*values)[0]), g.value(n.outputs[0]).name));
    }
    if (n.op == ir::Op::dequantize && g.producer(n.inputs[0]).op == ir::Op::quantize)
      g.replace_uses(n.outputs[0], g.producer(n.inputs[0]).inputs[0]);
  }
  g.remove_dead();
  return g;
}

/// Whatever types are chosen where: the plan, run one scalar at a time, gives the bits of the graph that it was made from.
TEST(Bfloat16, ArbitraryChoicesInArbitraryNetworks) {
  const std::uint64_t graphs = std::getenv("OCTAVO_LONG") ? 4000 : 200;
  const std::vector<const region::Provider*> oracle{&reference::oracle_provider()};
  std::map<std::string, int> seen;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= graphs && !HasFailure(); ++seed) {
    const ir::Graph g = float_network(seed);
    testing::ArbitraryCosts costs(seed);
    costs.whole_plans = seed % 4 == 0;
    plan::PlanOptions o;
    o.costs = &costs;
    o.effort = seed % 3 == 0 ? 0 : 2;
    o.disabled = {"segments", "by-image"};  // sums in another order; a graph of one image
    o.allowed.insert("bfloat16");
    o.verify = true;
    if (seed % 3 == 0) o.precisions = {{"*", "bfloat16"}};
    int at = 0;
    for (const ir::NodeId id : g.order()) {
      const std::string& name = g.value(g.node(id).outputs[0]).name;
      if (seed % 2 == 0 && g.node(id).op != ir::Op::constant && !name.empty() && ++at % 3 != 0)
        o.ranges[name] = ir::symmetric(0.03F);
    }
    const auto planned = plan::make_plan(g, oracle, o);
    if (!planned && planned.error().kind == ErrorKind::usage && !o.precisions.empty()) {
      ++refused;  // no layer has weights, or some weights are computed
      continue;
    }
    ASSERT_TRUE(planned) << "seed " << seed << ": " << planned.error().message;
    ASSERT_TRUE(region::verify(planned->plan)) << "seed " << seed << ": " << region::verify(planned->plan).error().message;
    for (const region::Region& r : planned->plan.regions) ++seen[to_string(r.precision)];
    const auto feeds = testing::seeded_feeds(planned->graph, seed);
    const auto want = reference::evaluate(planned->graph, feeds);
    ASSERT_TRUE(want) << "seed " << seed << ": " << want.error().message;
    const auto got = testing::run_plan(planned->plan, oracle, feeds, seed % 2 == 0);
    ASSERT_TRUE(got) << "seed " << seed << ": " << got.error().message;
    ASSERT_EQ(testing::first_difference(*want, *got), "") << "seed " << seed;
  }
  EXPECT_LT(refused, graphs / 4);
  EXPECT_GT(seen["bfloat16"], 100);
  EXPECT_GT(seen["float32"], 100);
  EXPECT_GT(seen["int8"], 20);
}

/// The same rule for bfloat16 and for its emulation: the graphs have the same values, whatever becomes one region.
TEST(Bfloat16, EmulatedItIsTheSameInArbitraryNetworks) {
  const std::vector<const region::Provider*> oracle{&reference::oracle_provider()};
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    const ir::Graph g = float_network(seed);
    plan::PlanOptions o;
    o.disabled = {"segments", "by-image"};
    o.precisions = {{"*", "bfloat16"}};
    const auto small = plan::make_plan(g, oracle, o);
    o.precisions = {{"*", "bfloat16-emulated"}};
    const auto emulated = plan::make_plan(g, oracle, o);
    ASSERT_EQ(small.has_value(), emulated.has_value()) << "seed " << seed;
    if (!small) continue;  // no layer has weights, or some weights are computed
    for (const region::Region& r : emulated->plan.regions) EXPECT_NE(r.precision, ir::DType::bf16) << "seed " << seed;
    const auto feeds = testing::seeded_feeds(small->graph, seed);
    const auto want = reference::evaluate(small->graph, feeds);
    ASSERT_TRUE(want) << "seed " << seed;
    const auto got = testing::run_plan(emulated->plan, oracle, feeds, seed % 2 == 0);
    ASSERT_TRUE(got) << "seed " << seed << ": " << got.error().message;
    ASSERT_EQ(testing::first_difference(*want, *got), "") << "seed " << seed;
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

/// The kernels of this processor compute an emulated network region by region as the reference evaluates the bfloat16 one.
TEST(Bfloat16, EmulatedItIsJudgedRegionByRegion) {
  const std::string path = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_fp32.onnx";
  auto o = options();
  o.plan.precisions = {{"*", "bfloat16-emulated"}};
  const auto built = build_file(path, o);
  ASSERT_TRUE(built) << built.error().message;
  const auto inputs = random_inputs(built->engine->plan(), 1);
  const auto report = check(built->engine, built->graph, inputs);
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->ok()) << report->first_divergence();
  for (const RegionCheck& r : report->regions) EXPECT_EQ(r.skipped, "") << r.name;
  const auto plain = build_file(path, options());
  ASSERT_TRUE(plain);
  const double off = error(outputs(plain->engine, inputs), report->outputs);
  EXPECT_LE(off, 0.05);
  EXPECT_GT(off, 1e-4) << "nothing was rounded";
  // The bfloat16 network itself, planned for the reference: what it says of the same input.
  o.plan.precisions = {{"*", "bfloat16"}};
  const auto small = plan::make_plan(built->model.graph, {&reference::oracle_provider()}, o.plan);
  ASSERT_TRUE(small) << small.error().message;
  const auto want = reference::evaluate(small->graph, inputs);
  ASSERT_TRUE(want);
  EXPECT_LE(error(*want, report->outputs), 0.01);
}

/// Ranges of the graph's activations on made-up data, every third one eight times as wide as it should be.
std::map<std::string, float> coarse_ranges(const ir::Graph& g) {
  std::map<ir::ValueId, ir::Tensor> bound;
  const auto calibration = uniform(g, 5);
  for (std::size_t i = 0; i < g.inputs.size(); ++i) bound.emplace(g.inputs[i], calibration[i]);
  std::vector<ir::ValueId> values;
  for (const ir::NodeId id : g.order()) {
    const ir::Op op = g.node(id).op;
    if (op == ir::Op::conv || op == ir::Op::gemm) values.push_back(g.node(id).inputs[0]);
  }
  const auto data = reference::evaluate_between(g, bound, values);
  std::map<std::string, float> ranges;
  EXPECT_TRUE(data);
  if (!data) return ranges;
  for (std::size_t i = 0; i < values.size(); ++i) {
    float amax = 1e-6F;
    for (const float x : (*data)[i].data<float>()) amax = std::max(amax, std::abs(x));
    ranges[g.value(values[i]).name] = amax / 127 * (i % 3 == 0 ? 8.0F : 1.2F);
  }
  return ranges;
}

/// Coarse ranges: int8 alone is off by much. What is left under the limit is verified by running the engines.
TEST(MaxError, SomeLayersStayFloatAndTheLimitHolds) {
  const fs::path path = model("tinycnn_cifar_fp32.onnx");
  if (!fs::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  const auto plain = build_file(path.string(), options());
  ASSERT_TRUE(plain) << plain.error().message;
  auto o = options();
  const ir::Graph& g = plain->model.graph;
  o.plan.ranges = ir::symmetric(coarse_ranges(g));
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
      if (d.choice != "precision" || d.candidates[d.chosen].name == "int8") continue;
      ++kept;
      EXPECT_EQ(d.candidates[0].name, "int8");
      EXPECT_TRUE(bfloat16 || report::sentences(d.reasons).find("--max-error 0.02") != std::string::npos)
          << report::sentences(d.reasons);
    }
    EXPECT_GE(kept, 1);
    const auto report = check(built->engine, built->graph, random_inputs(built->engine->plan(), 3));
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->ok()) << report->first_divergence();
  }
}

/// Arbitrary times of regions; of whole plans the second is always the slower one, so that the plan of effort 0 stands in the end.
class MeasuredIsSlower final : public testing::ArbitraryCosts {
 public:
  using ArbitraryCosts::ArbitraryCosts;
  Result<std::optional<Pair>> compare(const region::Plan&, const region::Plan&) override { return std::optional(Pair{1e-3, 2e-3}); }
};

/// What the plan of effort 0 decided is told of it, also when it stands in place of the one with times.
TEST(MaxError, ThePlanWithoutTimesKeepsItsDecisions) {
  const fs::path path = model("tinycnn_cifar_fp32.onnx");
  if (!fs::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  const auto plain = build_file(path.string(), options());
  ASSERT_TRUE(plain) << plain.error().message;
  plan::PlanOptions o = options().plan;
  o.ranges = ir::symmetric(coarse_ranges(plain->model.graph));
  o.max_error = 0.02;
  o.effort = 0;
  const auto unmeasured = plan::make_plan(plain->model.graph, cpu::providers(), o);
  ASSERT_TRUE(unmeasured) << unmeasured.error().message;
  const auto kept = [](const region::Plan& p) {
    std::set<std::string> nodes;
    for (const region::Decision& d : p.decisions) {
      if (d.choice == "precision" && d.candidates[d.chosen].name != "int8") nodes.insert(d.where);
    }
    return nodes;
  };
  ASSERT_FALSE(kept(unmeasured->plan).empty()) << "the test cannot fail";
  int stood = 0, timed = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    MeasuredIsSlower costs(seed);
    o.costs = &costs;
    o.effort = 2;
    const auto made = plan::make_plan(plain->model.graph, cpu::providers(), o);
    ASSERT_TRUE(made) << made.error().message;
    if (region::plan_hash(made->plan) != region::plan_hash(unmeasured->plan)) continue;
    ++stood;
    EXPECT_EQ(kept(made->plan), kept(unmeasured->plan)) << "seed " << seed;
    // All regions say what was measured of them, also those that the other plan did not have.
    for (const region::Region& r : made->plan.regions) {
      EXPECT_GT(r.seconds, 0) << r.name;
      for (const region::Alternative& a : r.alternatives) {
        EXPECT_LT(a.estimate, 0) << r.name << ", " << a.tactic;
        timed += a.seconds >= 0 ? 1 : 0;
      }
      EXPECT_EQ(
          std::count_if(r.alternatives.begin(), r.alternatives.end(), [&](const auto& a) { return a.tactic == r.tactic.name(); }),
          1)
          << r.name;
    }
  }
  EXPECT_GE(stood, 1);
  EXPECT_GE(timed, 5 * stood);
}

}  // namespace
}  // namespace octavo::api
