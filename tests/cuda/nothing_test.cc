// The family "nothing": regions whose every store has no elements. It starts no kernel, and no other family is asked, so that those may divide by extents.
#include <gtest/gtest.h>

#include "cuda/device/gpu_kernel.h"
#include "cuda/families/families.h"
#include "cuda/family_scene.h"
#include "cuda/provider.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

/// A stage that doubles floats of this shape, once or several times beside each other.
Scene doubled(const std::vector<ir::Shape>& shapes) {
  Scene s(1);
  s.region().stages.resize(shapes.size());
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    region::Stage& st = s.region().stages[k];
    st.space = shapes[k];
    st.operands = {{s.tensor(DType::f32, shapes[k], BufferKind::input), {}}};
    st.program.operand_count = 1;
    const int x = st.program.load(Op::load_f, 0);
    st.program.outputs = {{st.program.push(Op::add, x, x), DType::f32}};
    st.stores = {s.tensor(DType::f32, shapes[k], BufferKind::output)};
  }
  s.region().independent = shapes.size() > 1;
  return s;
}

TEST(Nothing, IsAboutRegionsThatStoreNoElement) {
  const cuda::Family& family = cuda::nothing_family();
  const auto about = [&](const std::vector<ir::Shape>& shapes) { return family.about(doubled(shapes).region()); };
  for (const ir::Shape& shape : {ir::Shape{0}, ir::Shape{0, 3, 4, 5}, ir::Shape{2, 3, 4, 0}, ir::Shape{0, 0}}) {
    EXPECT_TRUE(about({shape}));
    EXPECT_TRUE(about({shape, shape}));
    EXPECT_FALSE(about({shape, {2, 3}})) << "one of its stages stores something";
  }
  EXPECT_FALSE(about({{1}}));
  EXPECT_FALSE(about({{}})) << "a scalar is an element";
}

TEST(Nothing, StartsNoKernelAndHasATimeAllTheSame) {
  const cuda::Target target{"sm_80", 108, 163 * 1024};
  Scene s = doubled({{2, 0, 3, 4}});
  const auto all = cuda::nothing_family().candidates(s.region(), s.plan(), target);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(all[0].parameters.empty());
  EXPECT_GT(all[0].seconds, 0) << "estimates of 0 are those of regions without a tactic";
  const auto made = cuda::nothing_family().emit(s.region(), s.plan(), {}, target);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->text, "");
  EXPECT_TRUE(made->launches.empty() && made->constants.empty() && made->workspace_bytes == 0);
  EXPECT_FALSE(cuda::nothing_family().emit(s.region(), s.plan(), {{"tile", "1"}}, target)) << "it has no parameters";
}

TEST(Nothing, IsTheOnlyFamilyThatTheProviderAsks) {
  ASSERT_TRUE(cuda::nothing_family().alone());
  const auto as_text = [](std::string_view text) -> Result<std::string> { return std::string(text); };
  const auto provider = cuda::make_provider(cuda::Target{"sm_80", 108, 163 * 1024}, as_text);
  Scene s = doubled({{2, 0, 3, 4}});
  const auto offers = provider->offers(s.region(), s.plan());
  ASSERT_EQ(offers.size(), 1U);
  EXPECT_EQ(offers[0].tactic.family, "nothing");
  EXPECT_TRUE(offers[0].refusal.empty());
  const auto made = provider->compile(s.region(), s.plan(), offers[0].tactic);
  ASSERT_TRUE(made) << made.error().message;
  s.region().tactic = offers[0].tactic;
  s.region().launch = made->launch;
  const auto kernel = provider->load(s.region(), s.plan(), {{}, {}, made->launch});
  ASSERT_TRUE(kernel) << kernel.error().message;
  const auto* loaded = dynamic_cast<const cuda::GpuKernel*>(kernel->get());
  ASSERT_NE(loaded, nullptr);
  EXPECT_TRUE(loaded->starts().empty());
  EXPECT_EQ(loaded->architecture(), cuda::Architecture("sm_80"));

  Scene something = doubled({{2, 1, 3, 4}});
  for (const region::Offer& o : provider->offers(something.region(), something.plan())) EXPECT_NE(o.tactic.family, "nothing");
}

}  // namespace
}  // namespace octavo::testing
