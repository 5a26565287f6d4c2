#include "ir/facts.h"

#include <gtest/gtest.h>

#include "ir/canonical.h"

namespace octavo::ir {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr Op kOps[] = {
#define OP(id, text, least, most, traits) Op::id,
#include "ir/ops.def"
};

Attrs needed(Op op) {
  if (op == Op::max_pool || op == Op::avg_pool || op == Op::max_pool_index) return {{"kernel", Ints{3, 3}}};
  return {};
}

// Facts, attributes and facts again: the same for every operator, with the defaults spelled out or left out.
TEST(Facts, ComeBackFromTheirAttributes) {
  for (const Op op : kOps) {
    const auto facts = facts_of(op, needed(op), 4);
    ASSERT_TRUE(facts) << name_of(op) << ": " << facts.error().message;
    EXPECT_TRUE(fit(op, *facts)) << name_of(op);
    const auto again = facts_of(op, attrs_of(*facts), 4);
    ASSERT_TRUE(again) << name_of(op) << ": " << again.error().message;
    EXPECT_EQ(*again, *facts) << name_of(op);
    const auto fewer = facts_of(op, without_defaults(op, attrs_of(*facts)), 4);
    ASSERT_TRUE(fewer) << name_of(op);
    EXPECT_EQ(*fewer, *facts) << name_of(op) << ": a default of without_defaults is another one here";
  }
}

// Every enumerator of every struct is spelled and read back.
TEST(Facts, TextsAreEnumerators) {
  const auto read = [](Op op, const char* key, const char* text) {
    auto attrs = needed(op);
    attrs[key] = std::string(text);
    const auto facts = facts_of(op, attrs, 4);
    ASSERT_TRUE(facts) << facts.error().message;
    EXPECT_EQ(std::get<std::string>(attrs_of(*facts).at(key)), text);
  };
  for (const auto text : kSpelling<PadMode>) read(Op::pad, "mode", text.data());
  for (const auto text : kSpelling<Coordinates>) read(Op::resize_linear, "coordinate_mode", text.data());
  for (const auto text : kSpelling<MathFunction>) read(Op::math, "function", text.data());
  for (const auto text : kSpelling<BitFunction>) read(Op::bitwise, "function", text.data());
  for (const auto text : kSpelling<Combine>) read(Op::scatter, "reduction", text.data());
  for (const auto text : kSpelling<Interpolation>) read(Op::grid_sample, "mode", text.data());
  for (const auto text : kSpelling<Outside>) read(Op::grid_sample, "padding_mode", text.data());
  for (const auto text : kSpelling<CellKind>) read(Op::recurrent, "cell", text.data());
  for (const auto text : kSpelling<Direction>) read(Op::recurrent, "direction", text.data());
  for (const auto text : kSpelling<BlockOrder>) read(Op::depth_to_space, "mode", text.data());
  read(Op::recurrent, "activations", "Sigmoid,Tanh,ScaledTanh");
  read(Op::conv, "compute", "tf32");
}

TEST(Facts, DefaultsAndAxesAreFilledIn) {
  const auto window = std::get<Window>(*facts_of(Op::conv, {{"strides", Ints{2, 2}}}, 4));
  EXPECT_EQ(window, (Window{.strides = {2, 2}, .dilations = {1, 1}, .pads = {0, 0, 0, 0}}));
  EXPECT_EQ(std::get<Window>(*facts_of(Op::conv_transpose, {}, 3)).output_padding, (Shape{0}));
  EXPECT_EQ(std::get<Along>(*facts_of(Op::softmax, {}, 3)).axis, 2);
  EXPECT_EQ(std::get<Along>(*facts_of(Op::softmax, {{"axis", std::int64_t{-3}}}, 3)).axis, 0);
  EXPECT_EQ(std::get<Reduction>(*facts_of(Op::reduce_sum, {{"axes", Ints{-1, 0}}}, 3)).axes, (Shape{2, 0}));
  EXPECT_EQ(std::get<Slice>(*facts_of(Op::slice, {{"starts", Ints{1, 2}}, {"ends", Ints{3, 4}}}, 2)).steps, (Shape{1, 1}));
  const auto nearest = std::get<ResizeNearest>(*facts_of(Op::resize_nearest, {{"index2", Ints{0, 0, 1}}}, 4));
  EXPECT_EQ(nearest.index, (std::vector<Shape>{{}, {}, {0, 0, 1}, {}}));
}

TEST(Facts, WrongAttributesAreNamed) {
  const auto error = [](Op op, const Attrs& attrs, std::size_t rank = 4) {
    const auto facts = facts_of(op, attrs, rank);
    return facts ? std::string("accepted") : facts.error().message;
  };
  EXPECT_EQ(error(Op::conv, {{"pads", Ints{1, 1}}}), "conv: attribute pads has 2 entries, needs 4");
  EXPECT_EQ(error(Op::conv, {{"group", 2.0}}), "conv: attribute group is a number, which it cannot be");
  EXPECT_EQ(error(Op::max_pool, {}), "max_pool: attribute kernel has 0 entries, needs 2");
  EXPECT_EQ(error(Op::softmax, {{"axis", std::int64_t{4}}}), "softmax: attribute axis is 4, of 4 dimensions");
  EXPECT_EQ(error(Op::pad, {{"mode", std::string("wrap")}}),
            "pad: attribute mode is \"wrap\", not one of \"constant\", \"reflect\", \"edge\"");
  EXPECT_EQ(error(Op::cast, {{"to", std::string("f31")}}), "cast: attribute to is \"f31\", which it cannot be");
  EXPECT_EQ(error(Op::relu, {{"anything", std::int64_t{1}}}), "accepted");
}

}  // namespace
}  // namespace octavo::ir
