#include "cases/judge.h"

#include "reference/evaluate.h"
#include "support/feeds.h"

namespace octavo::cases {
namespace {

bool is_edge(const region::Region& r, const region::Plan& plan) {
  const auto outside = [&](const region::TensorRef& ref, region::BufferKind kind) {
    return ref.buffer >= 0 && plan.buffers[static_cast<std::size_t>(ref.buffer)].kind == kind;
  };
  for (const region::Stage& s : r.stages) {
    if (!s.anchor.none() && r.precision != "move") return false;
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
  for (const region::Region& r : plan.regions) out += r.name + " [" + r.precision + ", " + r.tactic + "] " + r.reason + "\n";
  for (const region::Decision& d : plan.decisions) out += d.kind + " at " + d.where + ": " + d.chosen + ", " + d.reason + "\n";
  return out;
}

Facts judge(const Net& net, const Options& options) {
  Facts f;
  api::PipelineOptions o;
  o.threads = 1;
  o.disabled = options.disabled;
  o.plan.effort = options.effort;
  o.plan.ranges = net.ranges;
  const auto built = api::build_graph(net.graph, o);
  EXPECT_TRUE(built) << built.error().message;
  if (!built) return f;
  f.engine = built->engine;
  const region::Plan& plan = f.engine->plan();
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
    f.copies += r.precision == "move";
    f.loose += !anchored && r.precision != "move";
  }
  const ir::Graph& truth = options.reference ? *options.reference : net.graph;
  const auto feeds = testing::seeded_feeds(truth, 7);
  const auto want = reference::evaluate(truth, feeds);
  EXPECT_TRUE(want) << want.error().message;
  const auto context = engine::Context::create(f.engine, 1);
  EXPECT_TRUE(context) << context.error().message;
  if (!want || !context) return f;
  auto got = api::run(**context, feeds);
  EXPECT_TRUE(got) << got.error().message;
  if (!got) return f;
  f.difference = testing::first_difference(*want, *got);
  f.outputs = std::move(*got);
  return f;
}

}  // namespace octavo::cases
