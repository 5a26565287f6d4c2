// What a model that cannot be imported is told: kind and text.
#include <gtest/gtest.h>

#include "onnx/build_model.h"

namespace octavo::onnx {
namespace {

using namespace testing;

void expect_error(const ModelBuilder& b, ErrorKind kind, const std::string& part) {
  const auto m = b.import();
  ASSERT_FALSE(m) << "expected an error with: " << part;
  EXPECT_EQ(static_cast<int>(m.error().kind), static_cast<int>(kind)) << m.error().message;
  EXPECT_NE(m.error().message.find(part), std::string::npos) << "text: " << m.error().message << "\nwanted: " << part;
}

TEST(Unsupported, ListsEveryNodeInOneText) {
  ModelBuilder b;
  b.input("x", {2, 3}).output("y");
  b.node("TfIdfVectorizer", {"x"}, {"d"}).name("first");
  b.node("Relu", {"d"}, {"r"}).name("depends_on_first");
  b.node("StringNormalizer", {"r"}, {"s"}).name("second");
  b.node("Fancy", {"x"}, {"f"}).name("third").domain("my.domain");
  b.node("Sum", {"s", "f"}, {"y"});
  const auto m = b.import();
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(
      m.error().message,
      "importing the model: 3 of 5 nodes cannot be compiled:\n"
      "  TfIdfVectorizer (opset 17), node \"first\", index 0: not supported yet; cut the model around it, or express it with "
      "supported operators\n"
      "    inputs: x f32[2,3]\n"
      "  StringNormalizer (opset 17), node \"second\", index 2: not supported yet; cut the model around it, or express it with "
      "supported operators\n"
      "    inputs: r\n"
      "  Fancy (domain my.domain, opset 0), node \"third\", index 3: an operator of the domain \"my.domain\"; export with standard "
      "ONNX "
      "operators\n"
      "    inputs: x f32[2,3]\n"
      "  by operator: StringNormalizer x1 TfIdfVectorizer x1 my.domain.Fancy x1");
}

/// No shape would cure it: told before the shapes are known, and instead of asking for them.
TEST(Unsupported, BeforeAnyShapeIsKnown) {
  ModelBuilder b;
  b.input("x", {2, -1}).output("y");
  b.node("TfIdfVectorizer", {"x"}, {"d"}).name("first");
  b.node("Relu", {"d"}, {"y"});
  expect_error(b, ErrorKind::unsupported,
               "1 of 2 nodes cannot be compiled:\n  TfIdfVectorizer (opset 17), node \"first\", index 0: not");
  const std::string bytes = b.proto.SerializeAsString();
  const Status told = check_model(*Parsed::bytes(std::as_bytes(std::span(bytes)), ""));
  ASSERT_FALSE(told);
  EXPECT_NE(told.error().message.find("node \"first\""), std::string::npos) << told.error().message;

  ModelBuilder good;
  good.input("x", {2, -1}).output("y");
  good.node("Relu", {"x"}, {"y"});
  expect_error(good, ErrorKind::usage, "--shapes");
  const std::string fine = good.proto.SerializeAsString();
  EXPECT_TRUE(check_model(*Parsed::bytes(std::as_bytes(std::span(fine)), "")));
}

TEST(Unsupported, ListsTenAndCountsTheRest) {
  ModelBuilder b;
  b.input("x", {2});
  for (int i = 0; i < 13; ++i) {
    b.node("TfIdfVectorizer", {"x"}, {"d" + std::to_string(i)});
    b.output("d" + std::to_string(i));
  }
  expect_error(b, ErrorKind::unsupported, "... and 3 more");
  expect_error(b, ErrorKind::unsupported, "by operator: TfIdfVectorizer x13");
}

TEST(Unsupported, DeadNodesDoNotMatter) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  b.node("TfIdfVectorizer", {"x"}, {"d"});
  b.node("Relu", {"x"}, {"y"});
  EXPECT_EQ(b.error(), "");
}

TEST(Unsupported, RemovedOperatorsAreExplained) {
  ModelBuilder b(7);
  b.input("x", {1, 3, 4, 4}).output("y");
  b.node("Crop", {"x"}, {"y"}).ints("border", {0, 0, 1, 1});
  expect_error(b, ErrorKind::unsupported, "removed in 1.5; write it as Slice");
}

TEST(Unsupported, AttributesNobodyKnowsAreNotIgnored) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  b.node("Relu", {"x"}, {"y"}).f("max", 6);
  expect_error(b, ErrorKind::unsupported, "attribute \"max\" is not one that Octavo knows for this operator in opset 17");
}

TEST(Unsupported, ASecondOutputThatIsRead) {
  ModelBuilder b;
  b.input("x", {1, 1, 4, 4}).output("y").output("i");
  b.node("LRN", {"x"}, {"y", "i"}).i("size", 3);
  expect_error(b, ErrorKind::unsupported, "its output 1 (\"i\") is read");
}

TEST(Unsupported, RunTimeShapes) {
  ModelBuilder b;
  b.input("x", {6}).input("s", {2}, kS64).output("y");
  b.node("Reshape", {"x", "s"}, {"y"});
  expect_error(b, ErrorKind::unsupported, "the target shape \"s\" is computed at run time");
}

TEST(Unsupported, OperatorsOfAnotherOpset) {
  ModelBuilder b(13);
  b.input("x", {1, 1, 2, 2}).output("y").floats("s", {4}, {1, 1, 2, 2});
  b.node("Upsample", {"x", "s"}, {"y"});
  expect_error(b, ErrorKind::unsupported, "supported in opset 7 to 9 only");
}

TEST(BadModel, Cycle) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  b.node("Add", {"x", "q"}, {"p"}).name("head");
  b.node("Relu", {"p"}, {"q"});
  b.node("Relu", {"q"}, {"y"});
  expect_error(b, ErrorKind::bad_model, "the graph has a cycle through node 0 (Add \"head\")");
}

TEST(BadModel, MissingTensor) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  b.node("Add", {"x", "nowhere"}, {"y"}).name("sum");
  expect_error(b, ErrorKind::bad_model, "node 0 (Add \"sum\") reads tensor \"nowhere\", which nothing defines");
}

TEST(BadModel, MissingOutput) {
  ModelBuilder b;
  b.input("x", {2}).output("nowhere");
  expect_error(b, ErrorKind::bad_model, "tensor \"nowhere\" is read, but nothing defines it");
  ModelBuilder none;
  none.input("x", {2});
  expect_error(none, ErrorKind::bad_model, "no outputs");
}

TEST(BadModel, TensorsDefinedTwice) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  b.node("Relu", {"x"}, {"y"});
  b.node("Neg", {"x"}, {"y"});
  expect_error(b, ErrorKind::bad_model, "tensor \"y\" is defined twice: by node 1 (Neg) and by node 0");
  ModelBuilder input;
  input.input("x", {2}).output("x");
  input.node("Relu", {"x"}, {"x"});
  expect_error(input, ErrorKind::bad_model, "defined twice");
}

TEST(BadModel, DataThatDoesNotFitItsShape) {
  ModelBuilder b;
  b.input("x", {2}).output("y").floats("k", {3}, {1, 2});
  b.node("Add", {"x", "k"}, {"y"});
  expect_error(b, ErrorKind::bad_model, "tensor \"k\" (float[3]) has 8 bytes of data, its shape needs 12; the file is damaged");
  ModelBuilder negative;
  negative.input("x", {2}).output("y").floats("k", {-3}, {1});
  negative.node("Add", {"x", "k"}, {"y"});
  expect_error(negative, ErrorKind::bad_model, "negative dimension");
  ModelBuilder huge;
  huge.input("x", {2}).output("y").floats("k", {1L << 31, 1L << 31, 1L << 31}, {1});
  huge.node("Add", {"x", "k"}, {"y"});
  expect_error(huge, ErrorKind::bad_model, "more than 2^40 elements");
}

TEST(BadModel, HugeInputsAndResults) {
  ModelBuilder b;
  b.input("x", {1L << 40, 1L << 40}).output("y");
  b.node("Relu", {"x"}, {"y"});
  expect_error(b, ErrorKind::bad_model, "more than 2^40 elements");
  ModelBuilder grown;
  grown.input("x", {1L << 30, 1}).input("z", {1, 1L << 30}).output("y");
  grown.node("Add", {"x", "z"}, {"y"});
  expect_error(grown, ErrorKind::bad_model, "2^40");
}

TEST(BadModel, TypesAndShapesThatContradict) {
  ModelBuilder b;
  b.input("x", {2}).input("i", {2}, kS64).output("y");
  b.node("Add", {"x", "i"}, {"y"}).name("mix");
  expect_error(b, ErrorKind::bad_model, "node \"mix\" (Add, index 0)");
  ModelBuilder out;
  out.input("x", {2}).output("y", kS64);
  out.node("Relu", {"x"}, {"y"});
  expect_error(out, ErrorKind::bad_model, "output \"y\" is declared as int64, but it is computed as f32[2]");
  ModelBuilder conv;
  conv.input("x", {1, 3, 8, 8}).ramp("w", {4, 2, 3, 3}).output("y");
  conv.node("Conv", {"x", "w"}, {"y"}).name("c");
  expect_error(conv, ErrorKind::bad_model, "the weights expect 2 input channels (group 1), the data has 3");
}

TEST(BadModel, AttributesOfAWrongTypeOrLength) {
  ModelBuilder b;
  b.input("x", {1, 3, 8, 8}).ramp("w", {4, 3, 3, 3}).output("y");
  b.node("Conv", {"x", "w"}, {"y"}).f("group", 1);
  expect_error(b, ErrorKind::bad_model, "attribute group has the type FLOAT, needs INT");
  ModelBuilder pads;
  pads.input("x", {1, 3, 8, 8}).ramp("w", {4, 3, 3, 3}).output("y");
  pads.node("Conv", {"x", "w"}, {"y"}).ints("pads", {1, 1});
  expect_error(pads, ErrorKind::bad_model, "pads has 2 entries, needs 4");
}

TEST(BadModel, NumberOfInputs) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  b.node("Add", {"x"}, {"y"});
  expect_error(b, ErrorKind::bad_model, "1 inputs, the operator takes 2");
}

TEST(BadModel, ElementTypes) {
  ModelBuilder b;
  b.input("x", {2}).output("y").constant<std::uint8_t>("k", {2}, {0}, pb::TensorProto::STRING);
  b.node("DequantizeLinear", {"k", "x"}, {"y"});
  expect_error(b, ErrorKind::unsupported, "element type string is not supported; do text processing outside");
  ModelBuilder in;
  in.input("x", {2}, pb::TensorProto::FLOAT8E4M3FN).output("y");
  in.node("Relu", {"x"}, {"y"});
  expect_error(in, ErrorKind::unsupported, "its operand \"x\" is f8e4m3fn, a type that only stores; cast it first");
}

}  // namespace
}  // namespace octavo::onnx
