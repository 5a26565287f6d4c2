// Values that products read are stored with their rows together, and otherwise where that is asked for; both ways give the same bits.
#include "plan/layout/row_order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "reference/oracle_provider.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

// Patches of a picture behind a constant token, as vision transformers begin: the concatenation lies behind a Transpose that was moved below it.
constexpr const char* kTokens = R"(
graph "g"
x = input : f32[1,3,8,8]
w = constant f32[6,3,4,4] seed:1
y = conv x w {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[4,4]} from {"patches"}
r = reshape y {shape=[1,6,4]}
c = constant f32[1,6,1] seed:2
k = concat c r {axis=2} from {"tokens"}
t = transpose k {perm=[0,2,1]}
p = constant f32[1,5,6] seed:3
a = add t p from {"positions"}
f = relu a from {"relu"}
s = add f a from {"sum"}
m = reshape s {shape=[5,6]}
w2 = constant f32[6,4] seed:4
z = gemm m w2 from {"product"}
output z
)";

ir::Graph parsed(const std::string& text) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return std::move(*g);
}

/// Elements between the neighbours of a row where the product reads them.
std::int64_t row_stride(const region::Plan& plan) {
  for (const region::Region& r : plan.regions) {
    for (const region::Stage& s : r.stages) {
      if (!s.anchor.inputs.empty() && s.anchor.inputs[0].dims[0] == 5)
        return s.anchor.inputs[0].strides[1];  // five rows of a matrix
    }
  }
  return 0;
}
/// Regions that only move data.
std::int64_t copies(const region::Plan& plan) {
  return std::count_if(plan.regions.begin(), plan.regions.end(),
                       [](const region::Region& r) { return r.precision == region::Work::move; });
}

TEST(RowOrder, ProductsReadNeighboursUnlessForced) {
  const ir::Graph g = parsed(kTokens);
  const auto feeds = testing::seeded_feeds(g, 1);
  const auto want = reference::evaluate(g, feeds);
  ASSERT_TRUE(want) << want.error().message;
  const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  for (const bool forced : {false, true}) {
    plan::PlanOptions options;
    if (forced) options.forced.insert("row-order");
    const auto made = plan::make_plan(g, providers, options);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(row_stride(made->plan), 1);           // forced: the pass behind the concatenation moves the elements
    EXPECT_EQ(copies(made->plan), forced ? 3 : 2);  // the input's channels, the constant; forced: what the convolution stored
    const auto got = testing::run_plan(made->plan, providers, feeds);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(testing::first_difference(*want, *got), "") << "forced " << forced;
  }
}

/// A picture that the caller gives with its channels apart, as rows of a product.
std::string turned_product(int columns) {
  return fmt::format(R"(
graph "g"
x = input : f32[1,20,5]
t = transpose x {{perm=[0,2,1]}}
m = reshape t {{shape=[5,20]}}
w = constant f32[20,{}] seed:1
z = gemm m w from {{"product"}}
output z
)",
                     columns);
}

TEST(RowOrder, WideProductsOfAnInputReadACopyWithRowsTogether) {
  const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  for (const int columns : {15, 16}) {
    const ir::Graph g = parsed(turned_product(columns));
    const auto feeds = testing::seeded_feeds(g, 1);
    const auto want = reference::evaluate(g, feeds);
    ASSERT_TRUE(want) << want.error().message;
    const auto made = plan::make_plan(g, providers, {});
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(row_stride(made->plan), columns == 16 ? 1 : 5);
    EXPECT_EQ(copies(made->plan), columns == 16 ? 1 : 0);
    const auto got = testing::run_plan(made->plan, providers, feeds);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(testing::first_difference(*want, *got), "") << columns << " columns";
  }
}

// What has four dimensions, but no images: the states of a scan over a sequence.
TEST(RowOrder, ValuesThatNoOperatorOnImagesMeetsAreDense) {
  const auto strides = [](const std::string& reader) {
    const ir::Graph g = parsed(R"(
graph "g"
a = input : f32[1,6,5,1]
b = input : f32[1,6,1,4]
y = mul a b from {"states"}
)" + reader);
    const auto made = plan::make_plan(g, {&reference::oracle_provider()}, {});
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    for (const region::Region& r : made->plan.regions) {
      for (const region::Stage& s : r.stages) {
        if (!s.stores.empty() && s.stores[0].value == "y") return s.stores[0].strides;
      }
    }
    return plan::Strides{};
  };
  EXPECT_EQ(strides("z = cumulate y {axis=1}\noutput z\n"), (plan::Strides{120, 20, 4, 1}));
  EXPECT_EQ(strides("w = constant f32[2,6,1,1] seed:1\nz = conv y w\noutput z\n"), (plan::Strides{120, 1, 24, 6}));
  EXPECT_EQ(strides("t = transpose y {perm=[0,2,3,1]}\nz = cumulate t {axis=1}\noutput z\n"), (plan::Strides{120, 1, 24, 6}));
  EXPECT_EQ(strides("r = reshape y {shape=[1,6,20]}\nt = transpose r {perm=[0,2,1]}\nz = cumulate t {axis=1}\noutput z\n"),
            (plan::Strides{120, 1, 24, 6}));
}

TEST(RowOrder, WishesGoThroughMovesAndPointwiseOperators) {
  const ir::Graph g = parsed(kTokens);
  const auto wishes = plan::find_row_orders(g);
  const auto order = [&](const std::string& name) {
    for (const auto& [v, strides] : wishes) {
      if (g.value(v).name == name) return plan::order_of(g.type(v).shape, strides);
    }
    return std::vector<int>{};
  };
  EXPECT_EQ(order("s"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(order("a"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(order("k"), (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(order("x"), std::vector<int>{});  // a convolution reads it, not a product
}

TEST(RowOrder, ConnectedValuesAreOneChoice) {
  const ir::Graph g = parsed(kTokens);
  std::set<ir::ValueId> values;
  std::set<ir::ValueId> apart;
  for (const ir::NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    const std::string& name = g.value(n.outputs[0]).name;
    if (name == "k" || name == "a" || name == "s") values.insert(n.outputs[0]);
    if (name == "y" || name == "z") apart.insert(n.outputs[0]);
  }
  EXPECT_EQ(plan::connected(g, values), (std::vector<std::set<ir::ValueId>>{values}));
  EXPECT_EQ(plan::connected(g, apart).size(), 2U);  // a product lies between
}

}  // namespace
}  // namespace octavo
