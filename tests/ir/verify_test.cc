// Each invariant broken once: the verifier must say so.
#include "ir/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ir/text.h"

namespace octavo::ir {
namespace {

Graph good() {
  auto g = parse(R"(
x = input : f32[1,2,4,4]
w = constant s8[3,2,1,1] q=s8[axis=0](0.1,0.2,0.3;0,0,0) (1,2,3,4,5,6)
b = constant f32[3] (1,2,3)
v = view x q=u8(0.02,128)
c = conv v w b
r = relu c
output r as "y"
)");
  EXPECT_TRUE(g) << g.error().message;
  return std::move(*g);
}

Node& named(Graph& g, std::string_view name) {
  for (NodeId id = 0; id < g.node_capacity(); ++id) {
    if (g.node(id).name == name) return g.node(id);
  }
  ADD_FAILURE() << name;
  return g.node(0);
}

TEST(Verify, AcceptsAGoodGraph) {
  const Graph g = good();
  EXPECT_TRUE(verify(g)) << verify(g).error().message;
  EXPECT_TRUE(verify(Graph{}));
}

TEST(Verify, CatchesEachBrokenInvariant) {
  struct Case {
    const char* why;
    std::function<void(Graph&)> break_it;
  };
  const Case cases[] = {
      {"operand %999 does not exist", [](Graph& g) { named(g, "r").inputs = {999}; }},
      {"operand %-7 does not exist", [](Graph& g) { named(g, "r").inputs = {-7}; }},
      {"defined by the dead node", [](Graph& g) { named(g, "c").dead = true; }},
      {"has no output", [](Graph& g) { named(g, "c").outputs.clear(); }},
      {"as its definition", [](Graph& g) { g.value(g.outputs[0]).producer = 0; }},
      {"as its definition", [](Graph& g) { g.value(g.outputs[0]).output_index = 1; }},
      {"does not exist", [](Graph& g) { named(g, "r").outputs = {77}; }},
      {"depends on its own result", [](Graph& g) { named(g, "v").inputs = {g.outputs[0]}; }},
      {"operands, needs", [](Graph& g) { named(g, "r").inputs.push_back(g.inputs[0]); }},
      {"operand 0 is absent", [](Graph& g) { named(g, "r").inputs = {kNone}; }},
      {"inferred f32[1,3,4,4]",
       [](Graph& g) {
         g.value(g.outputs[0]).type.shape = {1, 3, 4, 5};
       }},
      {"inferred f32[1,3,4,4]", [](Graph& g) { g.value(g.outputs[0]).type.dtype = DType::f16; }},
      {"has no quantizer", [](Graph& g) { named(g, "v").quantizer.reset(); }},
      {"not positive", [](Graph& g) { named(g, "v").quantizer->scale = {-1}; }},
      {"2 entries, needs 1",
       [](Graph& g) {
         named(g, "v").quantizer = Quantizer{DType::u8, {1, 1}, {0, 0}, -1, DType::f32};
       }},
      {"carries a quantizer", [](Graph& g) { named(g, "r").quantizer = per_tensor(DType::u8, 1); }},
      {"2 entries, needs 3",
       [](Graph& g) {
         named(g, "w").quantizer = Quantizer{DType::s8, {1, 1}, {0, 0}, 0, DType::f32};
       }},
      {"codes s8, quantizer u8", [](Graph& g) { named(g, "w").quantizer = per_tensor(DType::u8, 1); }},
      {"the constant has no payload", [](Graph& g) { named(g, "b").payload = {}; }},
      {"payload f32[1,3], value f32[3]",
       [](Graph& g) {
         named(g, "b").payload = named(g, "b").payload.reshaped({1, 3});
       }},
      {"payload s32[3], value f32[3]", [](Graph& g) { named(g, "b").payload = Tensor(DType::s32, {3}); }},
      {"carries a payload", [](Graph& g) { named(g, "r").payload = Tensor(DType::f32, {1}); }},
      {"has no origin", [](Graph& g) { named(g, "r").origin.clear(); }},
      {"is not one finite scale >= 0", [](Graph& g) { g.value(g.outputs[0]).range = symmetric(NAN); }},
      {"is not one finite scale >= 0", [](Graph& g) { g.value(g.outputs[0]).range = symmetric(-1.0F); }},
      {"is not one finite scale >= 0", [](Graph& g) { g.value(g.outputs[0]).range = per_tensor(DType::u8, 1.0F, 256); }},
      {"graph output %55 does not exist", [](Graph& g) { g.outputs = {55}; }},
      {"graph output", [](Graph& g) { named(g, "r").dead = true; }},
      {"1 outputs, 2 output names", [](Graph& g) { g.output_names.push_back("z"); }},
      {"is not defined by a live input node", [](Graph& g) { g.inputs.push_back(g.outputs[0]); }},
      {"is listed twice", [](Graph& g) { g.inputs.push_back(g.inputs[0]); }},
      {"is not among the graph's inputs", [](Graph& g) { g.inputs.clear(); }},
      {"graph input %-1 does not exist", [](Graph& g) { g.inputs.push_back(kNone); }},
  };
  for (const Case& c : cases) {
    Graph g = good();
    c.break_it(g);
    g.touch();
    const Status status = verify(g);
    ASSERT_FALSE(status) << "not caught: " << c.why;
    EXPECT_NE(status.error().message.find(c.why), std::string::npos) << "said: " << status.error().message << "\nwanted: " << c.why;
    EXPECT_EQ(status.error().kind, ErrorKind::internal);
  }
}

}  // namespace
}  // namespace octavo::ir
