// Parts of large regions: smaller regions of the same kernels that lose results and what those read, and nothing else.
#include "tune/part.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "api/pipeline.h"
#include "ir/text.h"
#include "tune/timing_cache.h"

namespace octavo {
namespace {

// Strides of 2, a transposed convolution, an addition of two branches, a pooling, and one that needs every row.
constexpr const char* kNet = R"(
graph "g"
x = input : f32[1,16,512,256]
q = view x q=u8(0.03,128) from {"q"}
w = constant s8[32,16,3,3] q=s8(0.01,0) seed:1
y = conv q w {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[2,2]} from {"conv"}
v = view y q=u8(0.05,0) from {"v"}
w2 = constant s8[32,32,3,3] q=s8(0.01,0) seed:2
z = conv v w2 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv2"}
s = add z v from {"add"}
t = view s q=u8(0.06,0) from {"t"}
p = max_pool t {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} from {"pool"}
w3 = constant f32[32,8,2,2] seed:3
u = conv_transpose p w3 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[2,2]} from {"up"}
m = softmax u {axis=2} from {"softmax"}
output m
)";

api::PipelineOptions options(int effort, const std::string& cache) {
  api::PipelineOptions o;
  o.plan.threads = 1;
  o.plan.effort = effort;
  o.timing.cache = cache;
  return o;
}

Result<api::Built> build(int effort, const std::string& cache) {
  auto g = ir::parse(kNet);
  EXPECT_TRUE(g) << g.error().message;
  return api::build_graph(*g, options(effort, cache));
}

TEST(Part, LosesRowsAndNothingElse) {
  const auto built = build(0, std::string(api::kNoCache));
  ASSERT_TRUE(built) << built.error().message;
  const region::Plan& plan = built->engine->plan();
  int parts = 0, strided = 0, transposed = 0;
  for (const region::Region& r : plan.regions) {
    const auto part = tune::part_of(r, plan, 64e-3, 2e-3);
    const bool every_row = r.onnx_nodes.contains("softmax");
    EXPECT_EQ(part.has_value(), !every_row) << r.name;
    if (!part) continue;
    ++parts;
    ASSERT_EQ(part->region.stages.size(), r.stages.size());
    const auto rows = [](const region::Region& of) { return static_cast<double>(of.stages.back().space[2]); };
    EXPECT_DOUBLE_EQ(part->scale, rows(r) / rows(part->region)) << r.name;
    EXPECT_GE(part->scale, 4) << r.name;
    for (std::size_t k = 0; k < r.stages.size(); ++k) {
      const region::Stage &s = r.stages[k], &shorter = part->region.stages[k];
      EXPECT_EQ(shorter.anchor.facts, s.anchor.facts);
      for (std::size_t j = 0; j < s.stores.size(); ++j) {
        EXPECT_EQ(shorter.stores[j].dims, shorter.space);
        EXPECT_EQ(shorter.stores[j].strides, s.stores[j].strides);
        const auto& b = part->plan.buffers[static_cast<std::size_t>(shorter.stores[j].buffer)];
        if (b.kind == region::BufferKind::arena)
          EXPECT_LT(b.bytes, plan.buffers[static_cast<std::size_t>(s.stores[j].buffer)].bytes) << r.name;
      }
      if (s.anchor.none()) continue;
      const region::TensorRef &in = s.anchor.inputs[0], &less = shorter.anchor.inputs[0];
      EXPECT_EQ(less.strides, in.strides);
      const std::int64_t read = in.dims[2] - less.dims[2], made = s.space[2] - shorter.space[2];
      if (r.onnx_nodes.contains("conv") && s.anchor.op == ir::Op::conv && in.dims[2] == 512) {
        ++strided;
        EXPECT_EQ(read, 2 * made);
      }
      if (s.anchor.op == ir::Op::conv_transpose) {
        ++transposed;
        EXPECT_EQ(2 * read, made);
      }
    }
  }
  EXPECT_GE(parts, 3);
  EXPECT_EQ(strided, 1);
  EXPECT_EQ(transposed, 1);
}

TEST(Part, NoneOfWhatIsShort) {
  const auto built = build(0, std::string(api::kNoCache));
  ASSERT_TRUE(built) << built.error().message;
  const region::Plan& plan = built->engine->plan();
  for (const region::Region& r : plan.regions) {
    EXPECT_FALSE(tune::part_of(r, plan, 3e-3, 2e-3)) << r.name;
    EXPECT_FALSE(tune::part_of(r, plan, 0, 2e-3)) << r.name;
  }
}

/// A build that times parts has a time for every region, and the next build takes them from the cache.
TEST(Part, BuildsAgree) {
  const auto file = std::filesystem::temp_directory_path() / ("octavo_part_" + std::to_string(::getpid()));
  std::string first;
  for (int i = 0; i < 2; ++i) {
    const auto built = build(2, file.string());
    ASSERT_TRUE(built) << built.error().message;
    if (i == 0) first = built->engine->plan_hash();
    EXPECT_EQ(built->engine->plan_hash(), first);
    for (const region::Region& r : built->engine->plan().regions) EXPECT_GT(r.seconds, 0) << r.name;
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace octavo
