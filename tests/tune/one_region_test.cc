// Copies of a region that is timed: each has constants of its own, though they have the same bytes.
#include "tune/one_region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "api/pipeline.h"
#include "ir/text.h"

namespace octavo {
namespace {

TEST(OneRegion, EachCopyHasConstantsOfItsOwn) {
  const auto graph = ir::parse(R"(graph "g"
x = input : f32[1,16,8,8]
w = constant f32[16,16,3,3] seed:1
y = conv x w {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv"}
output y
)");
  ASSERT_TRUE(graph) << graph.error().message;
  api::PipelineOptions options;
  options.plan.threads = 1;
  options.plan.effort = 0;
  const auto built = api::build_graph(*graph, options);
  ASSERT_TRUE(built) << built.error().message;
  const region::Plan& plan = built->engine->plan();
  const auto conv =
      std::find_if(plan.regions.begin(), plan.regions.end(), [](const region::Region& r) { return !r.packed.empty(); });
  ASSERT_NE(conv, plan.regions.end());
  region::Artifact artifact;
  artifact.constants.push_back(ir::Tensor::of<float>({4}, {1, 2, 3, 4}));
  const region::Plan copies = tune::one_region(*conv, plan, artifact, 3);
  ASSERT_EQ(copies.regions.size(), 3U);
  std::set<region::BufferId> own;
  for (const region::Region& r : copies.regions) {
    ASSERT_EQ(r.packed.size(), 1U);
    own.insert(r.packed[0]);
  }
  EXPECT_EQ(own.size(), 3U) << "copies that share constants are timed with warm caches";
}

}  // namespace
}  // namespace octavo
