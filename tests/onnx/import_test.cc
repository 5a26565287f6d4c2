// The frame of import: header, inputs and shapes, names and origins, constants, types.
#include "onnx/import/import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/half.h"
#include "ir/verify.h"
#include "onnx/build_model.h"
#include "reference/evaluate.h"

namespace octavo::onnx {
namespace {

using namespace testing;
using ::testing::Test;

ModelBuilder relu_of(const Dims& dims, int opset = 17) {
  ModelBuilder b(opset);
  b.input("x", dims).output("y");
  b.node("Relu", {"x"}, {"y"}).name("act");
  return b;
}

TEST(Import, KeepsNamesTypesAndOrigins) {
  ModelBuilder b = relu_of({2, 3});
  b.proto.set_producer_name("maker");
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  const ir::Graph& g = m->graph;
  EXPECT_EQ(m->opset, 17);
  EXPECT_EQ(m->producer, "maker");
  ASSERT_EQ(g.inputs.size(), 1U);
  EXPECT_EQ(g.value(g.inputs[0]).name, "x");
  EXPECT_EQ(g.output_names, std::vector<std::string>{"y"});
  EXPECT_EQ(g.value(g.outputs[0]).name, "y");
  EXPECT_EQ(g.producer(g.outputs[0]).origin, std::set<std::string>{"act"});
  EXPECT_EQ(ir::to_string(g.type(g.outputs[0])), "f32[2,3]");
}

TEST(Import, UnnamedAndRepeatedNodesGetUniqueOrigins) {
  ModelBuilder b;
  b.input("x", {4}).output("y");
  b.node("Relu", {"x"}, {"a"});
  b.node("Neg", {"a"}, {"b"}).name("same");
  b.node("Abs", {"b"}, {"y"}).name("same");
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  std::set<std::string> names;
  for (const ir::Node* n : nodes_of(m->graph)) names.insert(n->origin.begin(), n->origin.end());
  EXPECT_EQ(names, (std::set<std::string>{"Relu_0", "same", "same_2"}));
}

TEST(Import, SortsNodesThatAreOutOfOrder) {
  ModelBuilder b;
  b.input("x", {4}).output("y");
  b.node("Neg", {"a"}, {"y"});
  b.node("Relu", {"x"}, {"a"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "relu neg");
}

TEST(Import, SaysWhyANodeIsGone) {
  ModelBuilder b;
  b.input("x", {2, 3}).output("y").ints("t", {3, 2});
  b.node("Identity", {"x"}, {"i"}).name("id");
  b.node("Shape", {"x"}, {"s"}).name("shape");
  b.node("Reshape", {"i", "s"}, {"r"}).name("same_shape");
  b.node("Relu", {"r"}, {"y"}).name("act");
  b.node("Neg", {"x"}, {"unused"}).name("dead");
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "relu");
  const std::map<std::string, std::string> fates(m->absorbed.begin(), m->absorbed.end());
  EXPECT_EQ(fates.at("id"), "no effect at inference");
  EXPECT_EQ(fates.at("shape"), "folded into a constant");
  EXPECT_EQ(fates.at("same_shape"), "no effect at inference");
  EXPECT_EQ(fates.at("dead"), "reaches no output");
  EXPECT_EQ(fates.size(), 4U);
  EXPECT_EQ(m->aliases.at("i"), "x");
}

/// What a device that computes in float16 may take as such: the file's type of each node's result, behind casts too.
TEST(Import, SaysWhichNodesAreFloat16) {
  const auto model = [](int type) {
    ModelBuilder b;
    b.input("x", {2}, type).output("y", type);
    b.node("Relu", {"x"}, {"a"}).name("half");
    b.node("Cast", {"a"}, {"c"}).name("up").i("to", kFloat);
    b.node("Exp", {"c"}, {"e"}).name("wide");
    b.node("Cast", {"e"}, {"d"}).name("down").i("to", kHalf);
    b.node("Neg", {"d"}, {"n"}).name("again");
    b.node("Shape", {"n"}, {"s"}).name("shape");
    b.node("Cast", {"n"}, {"y"}).name("last").i("to", type);
    return b.import();
  };
  const auto m = model(kHalf);
  ASSERT_TRUE(m) << m.error().message;
  using ir::DType;
  EXPECT_EQ(m->float_types, (std::map<std::string, DType>{{"half", DType::f16},
                                                          {"up", DType::f32},
                                                          {"wide", DType::f32},
                                                          {"down", DType::f16},
                                                          {"again", DType::f16},
                                                          {"last", DType::f16}}));
  ModelBuilder plain;
  plain.input("x", {2}).output("y").node("Relu", {"x"}, {"y"});
  const auto f32 = plain.import();
  ASSERT_TRUE(f32) << f32.error().message;
  EXPECT_TRUE(f32->float_types.empty());
}

TEST(Import, AnInputMayBeAnOutputAndAnOutputMayBeListedUnderTwoNames) {
  ModelBuilder b;
  b.input("x", {2}).output("p").output("q");
  b.node("Identity", {"x"}, {"p"});
  b.node("Identity", {"x"}, {"q"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(m->graph.outputs, (std::vector<ir::ValueId>{m->graph.inputs[0], m->graph.inputs[0]}));
  EXPECT_EQ(m->graph.output_names, (std::vector<std::string>{"p", "q"}));
}

TEST(Import, InitializersListedAsInputsAreConstants) {
  ModelBuilder b;
  b.input("x", {2}).input("w", {2}).floats("w", {2}, {1, 2}).output("y");
  b.node("Add", {"x", "w"}, {"y"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(m->graph.inputs.size(), 1U);
  EXPECT_EQ(m->inputs.size(), 1U);
}

TEST(Shapes, ListsSymbolicInputsWithoutImporting) {
  const std::string bytes = relu_of({-1, 3, -2, -9}).bytes();
  const auto inputs = inputs_of(*Parsed::bytes({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, ""));
  ASSERT_TRUE(inputs);
  ASSERT_EQ(inputs->size(), 1U);
  const InputInfo& x = inputs->front();
  EXPECT_EQ(x.name, "x");
  EXPECT_EQ(x.dims, (ir::Shape{-1, 3, -1, -1}));
  EXPECT_EQ(x.symbols, (std::vector<std::string>{"N", "", "H", ""}));
  EXPECT_TRUE(x.symbolic());
  EXPECT_EQ(x.shape_text(), "[N,3,H,?]");
}

TEST(Shapes, WordsForUnknownAreNoSymbols) {
  for (const char* word : {"?", "-1", "None", "unk", "unknown", "*"}) {
    ModelBuilder b;
    b.input("x", {-1, 3, -1, -1}).output("y").node("Relu", {"x"}, {"y"});
    auto* shape = b.proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    for (const int d : {0, 2, 3}) shape->mutable_dim(d)->set_dim_param(word);
    ImportOptions options;
    options.shapes["x"] = {2, 3, 8, 9};
    const auto m = b.import(options);
    ASSERT_TRUE(m) << word << ": " << m.error().message;
    EXPECT_EQ(m->inputs[0].symbols, (std::vector<std::string>{"", "", "", ""}));
    for (const int d : {0, 2, 3}) shape->mutable_dim(d)->set_dim_param("unk__7");  // names one dimension
    EXPECT_NE(b.error(options).find("dimension 2 (unk__7) is 8 here and 2"), std::string::npos) << b.error(options);
  }
}

TEST(Shapes, BatchDefaultsToOneAndIsNoted) {
  const auto m = relu_of({-1, 3}).import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ir::to_string(m->graph.type(m->graph.inputs[0])), "f32[1,3]");
  ASSERT_EQ(m->notes.size(), 1U);
  EXPECT_EQ(m->notes[0], "input \"x\" [N,3] is bound to [1,3]");
  ImportOptions options;
  options.default_batch = 0;
  EXPECT_EQ(relu_of({-1, 3}).error(options),
            "importing the model: input \"x\" has a symbolic shape [N,3]: dimension 0 (\"N\") needs a value; pass --shapes=x:Nx3 "
            "with numbers");
}

TEST(Shapes, OtherSymbolsNeedAValue) {
  const auto m = relu_of({-1, 3, -2, -3}).import();
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().kind, ErrorKind::usage);
  EXPECT_NE(m.error().message.find("--shapes=x:1x3xHxW"), std::string::npos) << m.error().message;
  ImportOptions options;
  options.shapes["x"] = {2, 3, 8, 9};
  const auto bound = relu_of({-1, 3, -2, -3}).import(options);
  ASSERT_TRUE(bound) << bound.error().message;
  EXPECT_EQ(ir::to_string(bound->graph.type(bound->graph.outputs[0])), "f32[2,3,8,9]");
}

TEST(Shapes, OneSymbolHasOneValue) {
  ModelBuilder b;
  b.input("a", {-1, 3}).input("b", {-1, 3}).output("y");
  b.node("Add", {"a", "b"}, {"y"});
  ImportOptions options;
  options.shapes["b"] = {5, 3};
  const auto m = b.import(options);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ir::to_string(m->graph.type(m->graph.inputs[0])), "f32[5,3]");
  options.shapes["a"] = {4, 3};
  EXPECT_NE(b.error(options).find("dimension 0 (N) is 5 here and 4 for input \"a\""), std::string::npos) << b.error(options);
}

TEST(Shapes, MistakesAreNamed) {
  ImportOptions options;
  options.shapes["z"] = {1};
  EXPECT_NE(relu_of({2}).error(options).find("no such input; its inputs: \"x\" [2]"), std::string::npos)
      << relu_of({2}).error(options);
  options.shapes = {{"x", {2, 2}}};
  EXPECT_NE(relu_of({2}).error(options).find("rank 2 instead of 1"), std::string::npos);
  options.shapes = {{"x", {3}}};
  EXPECT_NE(relu_of({2}).error(options).find("dimension 0 is fixed to 2"), std::string::npos);
  options.shapes = {{"x", {-4}}};
  EXPECT_NE(relu_of({-1}).error(options).find("negative"), std::string::npos);
}

TEST(Opset, OutsideTheRangeIsRefusedWithTheWayOut) {
  EXPECT_NE(relu_of({2}, 0).error().find("opset 0; opsets 1 to 28 are supported. Convert it"), std::string::npos)
      << relu_of({2}, 0).error();
  EXPECT_NE(relu_of({2}, 99).error().find("opset_version=28 or less"), std::string::npos);
  for (int opset = 1; opset <= 28; ++opset) EXPECT_EQ(relu_of({2}, opset).error(), "") << opset;
}

TEST(Types, HalfIsF32InsideAndItsOwnTypeOutside) {
  ModelBuilder b;
  b.input("x", {2}, kHalf).output("y", kHalf);
  b.constant<std::uint16_t>("k", {2}, {f32_to_f16(0.5F), f32_to_f16(3.0F)}, kHalf);
  b.node("Mul", {"x", "k"}, {"y"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  const ir::Graph& g = m->graph;
  EXPECT_EQ(ops_of(g), "cast mul cast");
  EXPECT_EQ(ir::to_string(g.type(g.inputs[0])), "f16[2]");
  EXPECT_EQ(ir::to_string(g.type(g.outputs[0])), "f16[2]");
  ir::Tensor x(ir::DType::f16, {2});
  x.mutable_data<std::uint16_t>()[0] = f32_to_f16(2.0F);
  x.mutable_data<std::uint16_t>()[1] = f32_to_f16(-1.0F);
  const auto y = reference::evaluate(g, {x});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_EQ((*y)[0].at(0), 1.0);
  EXPECT_EQ((*y)[0].at(1), -3.0);
}

TEST(Types, AHalfScaleSetsTheArithmetic) {
  ModelBuilder b(19);
  b.input("x", {2}, kHalf).output("y", kHalf);
  b.constant<std::uint16_t>("s", {}, {f32_to_f16(0.1F)}, kHalf).constant<std::uint8_t>("z", {}, {7}, kU8);
  b.node("QuantizeLinear", {"x", "s", "z"}, {"q"});
  b.node("DequantizeLinear", {"q", "s", "z"}, {"y"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "cast quantize dequantize cast");
  const ir::Quantizer& q = *nodes_of(m->graph)[1]->quantizer;
  EXPECT_EQ(q.arith, ir::DType::f16);
  EXPECT_EQ(q.scale[0], f16_to_f32(f32_to_f16(0.1F)));
}

TEST(Types, CastToHalfRoundsConstantsAndIsLeftOutAtRunTime) {
  ModelBuilder b;
  b.input("x", {1}).floats("k", {1}, {0.1F}).output("y", kHalf);
  b.node("Cast", {"x"}, {"h"}).i("to", kHalf).name("narrow");
  b.node("Cast", {"k"}, {"kh"}).i("to", kHalf);
  b.node("Mul", {"h", "kh"}, {"y"});
  const auto m = b.import();
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(ops_of(m->graph), "mul cast");
  const ir::Node& mul = *nodes_of(m->graph)[0];
  EXPECT_EQ(m->graph.payload(mul.inputs[1]).data<float>()[0], f16_to_f32(f32_to_f16(0.1F)));
  EXPECT_EQ(m->notes,
            std::vector<std::string>{"node \"narrow\" (Cast, index 0): the cast to f16 is left out: intermediate values stay f32"});
}

class TemporaryFolder : public Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("octavo_onnx_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_ / "inside");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  ModelBuilder external(const std::string& location, const std::string& offset = "", const std::string& length = "") {
    ModelBuilder b;
    b.input("x", {2}).output("y").floats("k", {2}, {});
    auto* t = b.proto.mutable_graph()->mutable_initializer(0);
    t->clear_raw_data();
    t->set_data_location(pb::TensorProto::EXTERNAL);
    for (const auto& [key, v] :
         {std::pair<std::string, std::string>{"location", location}, {"offset", offset}, {"length", length}}) {
      if (v.empty()) continue;
      auto* e = t->add_external_data();
      e->set_key(key);
      e->set_value(v);
    }
    b.node("Add", {"x", "k"}, {"y"});
    return b;
  }
  std::string outcome(const ModelBuilder& b) {
    const auto m = b.import({}, (folder_ / "inside").string());
    return m ? "" : m.error().message;
  }
  void write(const std::filesystem::path& path, std::size_t bytes) {
    std::ofstream(path, std::ios::binary) << std::string(bytes, 'a');
  }
  std::filesystem::path folder_;
};

TEST_F(TemporaryFolder, ExternalDataIsReadFromItsOffset) {
  const float values[3] = {9, 1, 2};
  std::ofstream(folder_ / "inside/w.bin", std::ios::binary).write(reinterpret_cast<const char*>(values), sizeof(values));
  const ModelBuilder b = external("w.bin", "4", "8");
  std::ofstream(folder_ / "inside/m.onnx", std::ios::binary) << b.bytes();
  const auto m = import_file((folder_ / "inside/m.onnx").string());
  ASSERT_TRUE(m) << m.error().message;
  const ir::Tensor& k = m->graph.payload(nodes_of(m->graph)[0]->inputs[1]);
  EXPECT_EQ(k.at(0), 1.0);
  EXPECT_EQ(k.at(1), 2.0);
}

TEST_F(TemporaryFolder, ExternalDataCannotLeaveTheFolder) {
  write(folder_ / "secret.bin", 8);
  std::filesystem::create_symlink(folder_ / "secret.bin", folder_ / "inside/link.bin");
  for (const std::string& location :
       {std::string("../secret.bin"), (folder_ / "secret.bin").string(), std::string("link.bin"), std::string("./../secret.bin")}) {
    EXPECT_NE(outcome(external(location)).find("leads out of the folder"), std::string::npos)
        << location << ": " << outcome(external(location));
  }
}

TEST_F(TemporaryFolder, ExternalDataMustFit) {
  write(folder_ / "inside/w.bin", 8);
  EXPECT_EQ(outcome(external("w.bin")), "");
  EXPECT_NE(outcome(external("w.bin", "1")).find("needs 8 bytes at offset 1, but \"w.bin\" has 8 bytes"), std::string::npos);
  EXPECT_NE(outcome(external("w.bin", "18446744073709551615")).find("needs 8 bytes"), std::string::npos);
  EXPECT_NE(outcome(external("w.bin", "-1")).find("not a number"), std::string::npos);
  EXPECT_NE(outcome(external("w.bin", "0", "4")).find("length is 4 bytes, the shape needs 8"), std::string::npos);
  EXPECT_NE(outcome(external("none.bin")).find("is not a file"), std::string::npos);
  EXPECT_NE(outcome(external("")).find("no location"), std::string::npos);
  EXPECT_NE(external("w.bin").error().find("pass the path of the model instead"), std::string::npos);
}

TEST_F(TemporaryFolder, FilesThatAreNoModels) {
  const auto kind = [&](const std::string& path) {
    const auto m = import_file(path);
    EXPECT_FALSE(m);
    return m ? ErrorKind::internal : m.error().kind;
  };
  EXPECT_EQ(kind((folder_ / "none.onnx").string()), ErrorKind::io);
  EXPECT_EQ(kind(folder_.string()), ErrorKind::io);
  write(folder_ / "empty.onnx", 0);
  EXPECT_EQ(kind((folder_ / "empty.onnx").string()), ErrorKind::bad_model);
  write(folder_ / "text.onnx", 1000);
  EXPECT_EQ(kind((folder_ / "text.onnx").string()), ErrorKind::bad_model);
}

}  // namespace
}  // namespace octavo::onnx
