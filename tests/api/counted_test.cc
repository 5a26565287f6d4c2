// Regions of which a run computes the elements that data count: results equal the reference's, the work falls with the count, and nothing behind it is read.
#include "region/counted.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "api/check.h"
#include "api/counted_scene.h"
#include "cpu/provider.h"
#include "engine/engine.h"
#include "engine/memory_check.h"
#include "ir/output_sizes.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "region/counted_tasks.h"
#include "region/sizes.h"

namespace octavo {
namespace {

using testing::difference;
using testing::feeds_of;
using testing::feeds_of_any;
using testing::head;
using testing::kRoom;

struct Ran {
  std::vector<ir::Tensor> results;      ///< of the model, in their shapes
  std::int64_t rows = 0, all_rows = 0;  ///< that counted regions computed, and have room for
};

Ran run(engine::Context& context, const std::vector<ir::Tensor>& feeds) {
  const region::Plan& plan = context.engine().plan();
  std::vector<const void*> in;
  std::vector<void*> out;
  Ran ran;
  for (const ir::Tensor& t : feeds) in.push_back(t.bytes().data());
  for (const auto& b : plan.outputs) {
    ran.results.emplace_back(b.type);
    std::fill(ran.results.back().mutable_bytes().begin(), ran.results.back().mutable_bytes().end(), std::byte{0xFF});
  }
  for (ir::Tensor& t : ran.results) out.push_back(t.mutable_bytes().data());
  const auto status = context.run(in, out);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  ir::cut_results(ran.results, plan.sizes);
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (plan.regions[i].count < 0) continue;
    const std::int64_t room = region::room_of(plan.regions[i]);
    ran.rows += context.computed(i) < 0 ? room : context.computed(i);
    ran.all_rows += room;
  }
  return ran;
}

/// A run whose every access of memory is looked at; a fault fails the test.
struct Judged {
  std::vector<ir::Tensor> results;
  std::int64_t elements = 0;  ///< that were judged
};
Judged judged(engine::Context& context, const std::vector<ir::Tensor>& feeds) {
  const region::Plan& plan = context.engine().plan();
  std::vector<const void*> in;
  std::vector<void*> out;
  Judged j;
  for (const ir::Tensor& t : feeds) in.push_back(t.bytes().data());
  for (const auto& b : plan.outputs) j.results.emplace_back(b.type);
  for (ir::Tensor& t : j.results) out.push_back(t.mutable_bytes().data());
  const auto report = engine::check_memory(context, in, out);
  EXPECT_TRUE(report) << (report ? "" : report.error().message);
  if (!report) return j;
  for (const auto& f : report->faults) ADD_FAILURE() << engine::describe(f, plan);
  j.elements = report->elements;
  return j;
}

TEST(Counted, ResultsAreTheReferencesAndTheWorkFallsWithTheCount) {
  const ir::Graph g = head();
  auto planned = plan::make_plan(g, cpu::providers(), {});
  ASSERT_TRUE(planned) << planned.error().message;
  ASSERT_TRUE(region::verify(planned->plan)) << region::verify(planned->plan).error().message;
  std::set<std::string> counted;
  for (const region::Region& r : planned->plan.regions) {
    if (r.count >= 0) counted.insert(ir::name_of(r.stages[0].anchor.op).data());
  }
  for (const char* op : {"gather", "conv", "softmax", "avg_pool"}) EXPECT_TRUE(counted.contains(op)) << op;
  const std::string path = std::filesystem::temp_directory_path() / "octavo_counted_test.octavo";
  const auto made = engine::Engine::create(planned->plan, cpu::providers());
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_TRUE((*made)->save(path));
  const auto loaded = engine::Engine::load(path, cpu::providers());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->plan_hash(), (*made)->plan_hash());
  for (const int threads : {1, 2, 3, 4}) {
    auto context = engine::Context::create(threads == 2 ? *loaded : *made, threads);
    ASSERT_TRUE(context);
    for (const std::int64_t count : {std::int64_t{300}, std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{3},
                                     std::int64_t{20}, std::int64_t{31}, std::int64_t{32}, std::int64_t{33}, std::int64_t{299}}) {
      const auto feeds = feeds_of(g, count, static_cast<std::uint64_t>(count) + 7);
      auto want = reference::evaluate(g, feeds);
      ASSERT_TRUE(want) << want.error().message;
      ir::cut_results(*want, g.sizes);
      const Ran ran = run(**context, feeds);
      EXPECT_LT(difference(ran.results, *want), 1e-4) << count << " boxes, " << threads << " threads";
      EXPECT_LE(ran.rows, count == 300 ? ran.all_rows : ran.all_rows * std::max<std::int64_t>(count * 3 / 2, 1) / kRoom) << count;
      EXPECT_EQ(ran.rows == 0, count == 0) << count;
    }
  }
}

TEST(Counted, EveryElementThatCountsIsWritten) {
  const ir::Graph g = head();
  auto planned = plan::make_plan(g, cpu::providers(), {});
  ASSERT_TRUE(planned) << planned.error().message;
  const auto made = engine::Engine::create(planned->plan, cpu::providers());
  ASSERT_TRUE(made) << made.error().message;
  auto context = engine::Context::create(*made, 2);
  ASSERT_TRUE(context);
  std::int64_t all = 0;
  for (const std::int64_t count : {300, 0, 20}) {
    const auto feeds = feeds_of(g, count, 3);
    auto want = reference::evaluate(g, feeds);
    ASSERT_TRUE(want);
    Judged got = judged(**context, feeds);
    if (count == kRoom) all = got.elements;
    EXPECT_LE(got.elements, all) << count;
    EXPECT_EQ(got.elements == all, count == kRoom) << count;
    ir::cut_results(got.results, planned->plan.sizes);
    ir::cut_results(*want, g.sizes);
    EXPECT_LT(difference(got.results, *want), 1e-4) << count;
  }
}

/// The reference has values for all elements: the check computes them.
TEST(Counted, RegionsAreCheckedWhole) {
  const ir::Graph g = head();
  auto planned = plan::make_plan(g, cpu::providers(), {});
  ASSERT_TRUE(planned) << planned.error().message;
  const auto made = engine::Engine::create(planned->plan, cpu::providers());
  ASSERT_TRUE(made) << made.error().message;
  const auto report = api::check(*made, planned->graph, feeds_of(g, 20, 5), {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok()) << report->first_divergence();
  EXPECT_TRUE(report->complete());
}

/// What a result of its own reads as a whole is computed as a whole.
TEST(Counted, ARegionThatIsReadWholeComputesAll) {
  for (const bool whole : {false, true}) {
    auto g = ir::parse(std::string(R"(
graph "g"
x = input : f32[64,16]
keep = input : f32[64]
at, n = non_zero keep
r = gather x at {axis=0}
s = softmax r {axis=1}
y = relu s
)") + (whole ? "t = reduce_sum s {axes=[0], keepdims=0}\n" : "") +
                       "output y\n" + (whole ? "output t\n" : "") + "output n\n" + (whole ? "size 0 0 2\n" : "size 0 0 1\n"));
    ASSERT_TRUE(g) << g.error().message;
    auto planned = plan::make_plan(*g, cpu::providers(), {});
    ASSERT_TRUE(planned) << planned.error().message;
    for (const region::Region& r : planned->plan.regions) {
      if (r.stages[0].anchor.op != ir::Op::softmax) continue;
      bool only_row = true;  // the region with the sum's operand is not among those
      for (const ir::ValueId v : r.graph_outputs) only_row = only_row && planned->graph.value(v).name != "s";
      EXPECT_EQ(r.count >= 0, !whole || only_row);
    }
  }
}

/// What fills the elements behind the last one, for a sum, is a region of its own: the product in front of it computes fewer rows.
TEST(Counted, AFillIsNotPartOfTheProductInFrontOfIt) {
  std::string counting;
  for (int i = 0; i < 64; ++i) counting += (i == 0 ? "" : ",") + std::to_string(i);
  auto g = ir::parse(R"(
graph "g"
x = input : f32[64,16]
keep = input : f32[64]
at, n = non_zero keep
r = gather x at {axis=0}
w = constant f32[16,32] seed:1
m = matmul r w
a = relu m
i = constant s64[64,1] ()" +
                     counting +
                     R"()
here = less i n
zero = constant f32[] (0)
f = where here a zero
t = reduce_sum f {axes=[0], keepdims=0}
output t
output n
size -2 0 1
)");
  ASSERT_TRUE(g) << g.error().message;
  auto planned = plan::make_plan(*g, cpu::providers(), {});
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ(region::shown_outputs(planned->plan), 1U);
  bool product = false;
  for (const region::Region& r : planned->plan.regions) {
    if (r.stages[0].anchor.op != ir::Op::conv && r.stages[0].anchor.op != ir::Op::matmul) continue;
    product = true;
    EXPECT_GE(r.count, 0);
  }
  EXPECT_TRUE(product);
}

/// Two branches, of which a run takes one; as import writes it. And what only a condition behind a first one asks for.
ir::Graph branches() {
  auto g = ir::parse(R"(
graph "branches"
x = input : f32[48,32]
p = input : f32[]
zero = constant f32[] (0)
c = greater p zero
d = not c
w = constant f32[32,32] seed:1
u = constant f32[32,32] seed:2
a = matmul x w
ar = relu a
ax = softmax ar {axis=1}
b = matmul x u
bt = reduce_max b {axes=[1], keepdims=1}
y = where c ax b
small = constant f32[] (0.5)
total = reduce_sum b {axes=[0,1], keepdims=0}
large = greater total small
e = and d large
q = matmul b w
z = where e q x
yes = cast c {to="s64"}
no = cast d {to="s64"}
both = cast e {to="s64"}
output y
output z
output yes
output no
output both
size -2 0 2
size -2 1 3
size -2 2 4
)");
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return std::move(*g);
}

TEST(Counted, OnlyTheBranchThatIsTakenIsComputed) {
  const ir::Graph g = branches();
  auto planned = plan::make_plan(g, cpu::providers(), {});
  ASSERT_TRUE(planned) << planned.error().message;
  ASSERT_TRUE(region::verify(planned->plan)) << region::verify(planned->plan).error().message;
  const auto read = region::from_json(region::to_json(planned->plan));
  ASSERT_TRUE(read) << read.error().message;
  const auto made = engine::Engine::create(planned->plan, cpu::providers());
  ASSERT_TRUE(made) << made.error().message;
  std::map<std::string, std::size_t> of;  // by the value
  for (std::size_t i = 0; i < planned->plan.regions.size(); ++i) {
    EXPECT_EQ(read->regions[i].count, planned->plan.regions[i].count);
    for (const ir::ValueId v : planned->plan.regions[i].graph_outputs) of[planned->graph.value(v).name] = i;
  }
  for (const char* name : {"ax", "b", "q"}) {
    ASSERT_TRUE(of.contains(name)) << name;
    EXPECT_TRUE(region::all_or_nothing(planned->plan.regions[of.at(name)])) << name;
  }
  for (const int threads : {1, 2, 4}) {
    auto context = engine::Context::create(*made, threads);
    ASSERT_TRUE(context);
    std::set<std::string> seen;
    for (const float p : {1.0F, -1.0F, 0.0F, 2.0F}) {
      for (const std::uint64_t seed : {1, 2, 3, 4}) {
        auto feeds = feeds_of_any(g, seed);
        feeds[1].mutable_data<float>()[0] = p;
        const auto want = reference::evaluate(g, feeds);
        ASSERT_TRUE(want) << want.error().message;
        const Ran ran = run(**context, feeds);
        EXPECT_LT(difference(ran.results, {(*want)[0], (*want)[1]}), 1e-4) << p;
        const bool large = (*want)[4].at(0) != 0;
        EXPECT_EQ((*context)->computed(of.at("ax")), p > 0 ? -1 : 0);
        EXPECT_EQ((*context)->computed(of.at("b")), p > 0 ? 0 : -1);
        EXPECT_EQ((*context)->computed(of.at("q")), p <= 0 && large ? -1 : 0);
        seen.insert(p > 0 ? "first" : large ? "both" : "second");
      }
    }
    EXPECT_EQ(seen.size(), 3U);  // else the seeds are poor
  }
  auto context = engine::Context::create(*made, 2);
  ASSERT_TRUE(context);
  for (const float p : {1.0F, -1.0F}) {  // what is left out is not written, and the rest is
    auto feeds = feeds_of_any(g, 7);
    feeds[1].mutable_data<float>()[0] = p;
    judged(**context, feeds);
  }
  const auto report = api::check(*made, planned->graph, feeds_of_any(g, 9), {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok()) << report->first_divergence();
}

/// A search and updates of what data count: they stop at the count, and have results even where nothing is there.
TEST(Counted, SearchesAndUpdatesStopAtTheCount) {
  const auto g = ir::parse(R"(
graph "search"
x = input : f32[64,8]
keep = input : f32[64]
data = input : f32[64,8]
at, n = non_zero keep
r = gather x at {axis=0}
best = reduce_max r {axes=[1], keepdims=0}
least = constant f32[] (0.5)
good = greater best least
at2, n2 = non_zero good n
z = gather r at2 {axis=0, counted=[0]}
one = reshape at {shape=[64,1]}
y = scatter data one r n {axis=0, kind="nd", reduction="none"}
output z
output y
output n2
output n
size 0 0 2
size -2 0 3
size -2 1 2
)");
  ASSERT_TRUE(g) << g.error().message;
  auto planned = plan::make_plan(*g, cpu::providers(), {});
  ASSERT_TRUE(planned) << planned.error().message;
  ASSERT_TRUE(region::verify(planned->plan)) << region::verify(planned->plan).error().message;
  std::size_t search = planned->plan.regions.size();
  for (std::size_t i = 0; i < planned->plan.regions.size(); ++i) {
    if (region::searches_counted(planned->plan.regions[i])) search = i;
  }
  ASSERT_LT(search, planned->plan.regions.size());
  EXPECT_GE(planned->plan.regions[search].count, 0);
  const auto made = engine::Engine::create(planned->plan, cpu::providers());
  ASSERT_TRUE(made) << made.error().message;
  for (const int threads : {1, 3}) {
    auto context = engine::Context::create(*made, threads);
    ASSERT_TRUE(context);
    for (const std::int64_t count : {64, 0, 1, 5, 20, 63, 0}) {
      auto feeds = feeds_of_any(*g, static_cast<std::uint64_t>(count) + 3);
      auto keep = feeds[1].mutable_data<float>();
      for (std::int64_t i = 0; i < 64; ++i) keep[static_cast<std::size_t>(i)] = (i * 5 + 3) % 64 < count ? 1.0F : 0.0F;
      auto want = reference::evaluate(*g, feeds);
      ASSERT_TRUE(want) << want.error().message;
      ir::cut_results(*want, g->sizes);
      const Ran ran = run(**context, feeds);
      EXPECT_EQ(difference(ran.results, *want), 0) << count << " rows, " << threads << " threads";
      const std::int64_t searched = (*context)->computed(search);
      EXPECT_GE(searched < 0 ? 64 : searched, count);
      EXPECT_LE(searched < 0 ? 64 : searched, std::max<std::int64_t>(count * 2, 1));
      judged(**context, feeds);
      const auto checked = api::check(*made, planned->graph, feeds, {});
      ASSERT_TRUE(checked) << checked.error().message;
      EXPECT_TRUE(checked->ok()) << checked->first_divergence();
    }
  }
}

TEST(Counted, DamagedCountsAreRefused) {
  const ir::Graph g = head();
  auto planned = plan::make_plan(g, cpu::providers(), {});
  ASSERT_TRUE(planned) << planned.error().message;
  const region::Plan& plan = planned->plan;
  const auto first = std::find_if(plan.regions.begin(), plan.regions.end(), [](const region::Region& r) { return r.count >= 0; });
  ASSERT_NE(first, plan.regions.end());
  const auto at = static_cast<std::size_t>(first - plan.regions.begin());
  const auto text = region::to_json(plan);
  const auto read = region::from_json(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->regions[at].count, first->count);
  EXPECT_EQ(read->regions[at].stages[0].counted, first->stages[0].counted);
  const auto refused = [&](const char* why, const auto& damage) {
    region::Plan bad = plan;
    damage(bad.regions[at]);
    const Status status = region::verify(bad);
    ASSERT_FALSE(status) << why;
    EXPECT_NE(status.error().message.find(why), std::string::npos) << status.error().message;
  };
  refused("which is no output of one number", [](region::Region& r) { r.count = 1 << 20; });
  refused("which is no output of one number", [](region::Region& r) { r.count = r.stages[0].stores[0].buffer; });
  refused("a count times 0 / 1", [](region::Region& r) { r.count_times = 0; });
  refused("a count times 1 / -1", [](region::Region& r) { r.count_per = -1; });
  refused("its counted dimension of stage 0 is 9", [](region::Region& r) { r.stages[0].counted = 9; });
  refused("its counted dimension of stage 0 is -2", [](region::Region& r) { r.stages[0].counted = -2; });
  region::Plan early = plan;
  early.regions[0].count = first->count;
  for (region::Stage& s : early.regions[0].stages) s.counted = 0;
  ASSERT_FALSE(region::verify(early));
  EXPECT_NE(region::verify(early).error().message.find("which no earlier region stores"), std::string::npos);
}

/// Kernels that know of their tasks which elements they compute: those tasks alone, so that the rows of convolutions of one image each are exactly the count.
TEST(Counted, ConvolutionsComputeTheImagesThatCount) {
  const ir::Graph g = head();
  const auto planned = plan::make_plan(g, cpu::providers(), {});
  ASSERT_TRUE(planned) << planned.error().message;
  const auto made = engine::Engine::create(planned->plan, cpu::providers());
  ASSERT_TRUE(made) << made.error().message;
  const auto context = engine::Context::create(*made, 2);
  ASSERT_TRUE(context);
  int known = 0;
  for (const std::int64_t count : {1, 5, 20, 75, 150, 151, 299}) {
    (void)run(**context, feeds_of(g, count, 7));
    for (std::size_t i = 0; i < planned->plan.regions.size(); ++i) {
      const region::Region& r = planned->plan.regions[i];
      const auto* tasks = dynamic_cast<const region::CountedTasks*>((*made)->host_kernel(i));
      if (r.count < 0 || tasks == nullptr) continue;
      const std::int64_t computed = (*context)->computed(i);
      ++known;
      EXPECT_GE(computed < 0 ? kRoom : computed, count) << r.name << ", " << r.tactic.name();
      const bool images = r.stages[0].anchor.op == ir::Op::conv && r.stages[0].space[2] > 1;
      if (images) EXPECT_EQ(computed, count) << r.name << ", " << r.tactic.name();
    }
  }
  EXPECT_GT(known, 0);  // gathers at least, on every machine
}

TEST(Counted, ExtentsAreTwoForEachPowerOfTwo) {
  EXPECT_EQ(region::counted_extents(2), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(region::counted_extents(12), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(region::counted_extents(13), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 8, 12}));
}

/// Steps and branches are all computed on a GPU, so their conditions are not counts there; other counts keep their places.
TEST(Counted, ConditionsAreNoCountsWhereAllBranchesAreComputed) {
  ir::Graph g = branches();
  ir::drop_conditions(g);
  EXPECT_EQ(g.outputs.size(), 2U);
  EXPECT_TRUE(g.sizes.empty());
  ir::Graph h = head();
  const auto outputs = h.outputs;
  ir::drop_conditions(h);
  EXPECT_EQ(h.outputs, outputs);
}

}  // namespace
}  // namespace octavo
