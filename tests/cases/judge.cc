#include "cases/judge.h"

#include "cases/amx_first.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "report/sentences.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo::cases {
namespace {

bool is_edge(const region::Region& r, const region::Plan& plan) {
  const auto outside = [&](const region::TensorRef& ref, region::BufferKind kind) {
    return ref.buffer >= 0 && plan.buffers[static_cast<std::size_t>(ref.buffer)].kind == kind;
  };
  for (const region::Stage& s : r.stages) {
    if (!s.anchor.none() && r.precision != region::Work::move) return false;
    for (const region::TensorRef& ref : s.anchor.inputs) {
      if (outside(ref, region::BufferKind::input)) return true;
    }
    for (const region::Operand& o : s.operands) {
      if (outside(o.ref, region::BufferKind::input)) return true;
    }
    for (const region::TensorRef& ref : s.stores) {
      if (outside(ref, region::BufferKind::output)) return true;
    }
  }
  return false;
}

}  // namespace

std::string reasons(const region::Plan& plan) {
  std::string out;
  for (const region::Region& r : plan.regions)
    out += r.name + " [" + to_string(r.precision) + ", " + r.tactic.name() + "] " + report::sentences(r.reasons) + "\n";
  for (const region::Decision& d : plan.decisions) {
    out += d.choice + " at " + d.where + ": " + d.candidates[d.chosen].name + ", " + report::sentences(d.reasons) + "\n";
    for (const auto& c : d.candidates)
      out += "    " + c.name + ": " + std::to_string(c.seconds * 1e6) + " us " + report::sentences(c.notes) + "\n";
  }
  return out;
}

const region::Decision* decision(const Facts& facts, const std::string& choice) {
  for (const region::Decision& d : facts.plan.decisions) {
    if (d.choice == choice) return &d;
  }
  return nullptr;
}

namespace {

void count(const region::Plan& plan, Facts& f) {
  f.hash = region::plan_hash(plan);
  f.listing = reasons(plan);
  for (const region::Region& r : plan.regions) {
    if (is_edge(r, plan)) {
      ++f.edges;
      continue;
    }
    bool anchored = false;
    for (const region::Stage& s : r.stages) {
      anchored = anchored || !s.anchor.none();
      if (s.anchor.weights && !s.anchor.integer) ++f.floats;
    }
    ++f.layers;
    f.copies += r.precision == region::Work::move;
    f.loose += !anchored && r.precision != region::Work::move;
  }
}

Result<std::vector<ir::Tensor>> compile_and_run(const Net& net, const Options& options, const std::vector<ir::Tensor>& feeds,
                                                Facts& f) {
  if (options.effort > 0) {
    plan::PlanOptions o;
    o.disabled = options.disabled;
    o.forced = options.forced;
    o.effort = options.effort;
    o.ranges = ir::symmetric(net.ranges);
    OCTAVO_TRY(const auto providers, api::providers("cpu"));
    OCTAVO_TRY(auto planned, plan::make_plan(net.graph, providers, o));
    count(planned.plan, f);
    f.plan = std::move(planned.plan);
    return testing::run_plan(f.plan, providers, feeds);
  }
  api::PipelineOptions o;
  o.plan.threads = 1;
  o.plan.disabled = options.disabled;
  o.plan.ranges = ir::symmetric(net.ranges);
  OCTAVO_TRY(const auto built, api::build_graph(net.graph, o));
  f.plan = built.engine->plan();
  count(f.plan, f);
  OCTAVO_TRY(const auto context, engine::Context::create(built.engine, 1));
  return api::run(*context, feeds);
}

}  // namespace

Facts judge(const Net& net, const Options& options) {
  Facts f;
  const ir::Graph& truth = options.reference ? *options.reference : net.graph;
  const auto feeds = testing::seeded_feeds(truth, 7);
  const auto want = reference::evaluate(truth, feeds);
  EXPECT_TRUE(want) << want.error().message;
  auto got = compile_and_run(net, options, feeds, f);
  EXPECT_TRUE(got) << got.error().message;
  if (!want || !got) return f;
  f.difference = testing::first_difference(*want, *got);
  if (testing::can_emulate_amx()) {
    plan::PlanOptions o;
    o.disabled = options.disabled, o.ranges = ir::symmetric(net.ranges);
    const auto amx = testing::run_on_emulated_amx(net.graph, o, feeds);
    EXPECT_TRUE(amx) << amx.error().message;
    if (amx) {
      EXPECT_EQ(amx->layers > 0, amx->dots > 0) << "tactics of AMX without products of tiles, or the other way around";
      if (f.difference.empty() && options.effort == 0)
        EXPECT_EQ(testing::first_difference(*want, amx->outputs), "") << "on emulated AMX tiles";
    }
  }
  f.outputs = std::move(*got);
  return f;
}

}  // namespace octavo::cases
