#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "region/toy_plan.h"

namespace octavo::region {
namespace {

TEST(PlanJson, ComesBackEqual) {
  Plan plan = toy_plan();
  plan.regions[0].name = "caf\xc3\xa9 \"conv\"\n";
  const std::string text = to_json(plan);
  const auto back = from_json(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_json(*back), text);
  for (Buffer& b : plan.buffers) b.data = {};  // constants' bytes are not part of the text
  EXPECT_EQ(plan_hash(*back), plan_hash(plan));

  const Region& r = back->regions[0];
  EXPECT_EQ(r.name, plan.regions[0].name);
  EXPECT_EQ(r.onnx_nodes, plan.regions[0].onnx_nodes);
  EXPECT_EQ(r.alternatives[0].seconds, 1.5e-5);
  EXPECT_EQ(r.graph_inputs, plan.regions[0].graph_inputs);
  EXPECT_EQ(r.packed, plan.regions[0].packed);
  const Stage &s = r.stages[0], &t = plan.regions[0].stages[0];
  EXPECT_EQ(s.program, t.program);
  EXPECT_EQ(s.space, t.space);
  EXPECT_EQ(s.anchor.weight_zero, t.anchor.weight_zero);
  EXPECT_EQ(s.stores[0].quantizer, t.stores[0].quantizer);
  EXPECT_EQ(s.stores[0].strides, t.stores[0].strides);
  EXPECT_EQ(s.stores[0].value, "codes");
  EXPECT_EQ(s.operands[1].div, t.operands[1].div);
  EXPECT_EQ(s.anchor.facts, t.anchor.facts);
}

// Numbers that JSON has no words for, and lists of results: facts come back with the same bits.
TEST(PlanJson, FactsComeBackWithTheirBits) {
  for (const double bound :
       {-0.0, -static_cast<double>(INFINITY), std::nan(""), static_cast<double>(1e-45F), static_cast<double>(0.1F), 3.0}) {
    Plan plan;
    plan.inputs = {{"x", {ir::DType::s32, {4}}}};
    plan.outputs = {{"y", {ir::DType::s32, {4}}}};
    plan.buffers = {Buffer{.kind = BufferKind::input, .bytes = 16, .binding = 0},
                    Buffer{.kind = BufferKind::output, .bytes = 16, .binding = 0}};
    Stage s;
    s.space = {4};
    s.anchor.op = ir::Op::clip;
    s.anchor.facts = ir::Clip{.min = bound, .max = INFINITY};
    s.anchor.inputs = {TensorRef{0, 0, ir::DType::s32, {4}, {1}, std::nullopt, "x"}};
    s.anchor.store_results = {0};
    s.stores = {TensorRef{1, 0, ir::DType::s32, {4}, {1}, std::nullopt, "y"}};
    plan.regions.emplace_back();
    plan.regions[0].tactic = *parse_tactic("toy.clip");
    plan.regions[0].stages = {s};
    const auto back = from_json(to_json(plan));
    ASSERT_TRUE(back) << back.error().message;
    const Anchor& a = back->regions[0].stages[0].anchor;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(a.as<ir::Clip>().min), std::bit_cast<std::uint64_t>(bound)) << bound;
    EXPECT_EQ(a.as<ir::Clip>().max, INFINITY);
    EXPECT_EQ(a.store_results, std::vector<std::int64_t>{0});
    EXPECT_EQ(plan_hash(*back), plan_hash(plan));
  }
}

TEST(PlanJson, TextOfAnyBytesDoesNotThrow) {
  Plan plan = toy_plan();
  plan.model_name = "\xff\xfe bad utf-8 \x01";
  plan.regions[0].onnx_nodes = {"\xc0"};
  const auto back = from_json(to_json(plan));
  EXPECT_TRUE(back) << back.error().message;
}

TEST(PlanJson, MistakesNameTheirPlace) {
  using nlohmann::json;
  struct Case {
    const char *pointer, *value, *why;
  };
  const Case cases[] = {
      {"/format", "3", "format 3, this version reads 2"},
      {"/threads", "0", "threads is 0, must be in 1..65536"},
      {"/threads", "\"2\"", "threads is not an integer"},
      {"/threads", "2.5", "threads is not an integer"},
      {"/devices/0/arena_bytes", "18446744073709551615", "arena_bytes is not an integer"},
      {"/devices/0/arena_bytes", "-1", "arena_bytes is -1"},
      {"/devices/0/arena_bytes", "null", "arena_bytes is not an integer"},
      {"/buffers", "{}", "\"buffers\" is not a list"},
      {"/buffers/1", "7", "buffers[1]: not an object"},
      {"/buffers/1/kind", "\"heap\"", "buffers[1]: \"heap\" is not a kind of buffer"},
      {"/inputs/0/dtype", "\"u7\"", "inputs[0]: \"u7\" is not a type"},
      {"/inputs/0/quantizer", "\"u8(1)\"", "\"u8(1)\" is not a quantizer"},
      {"/inputs/0/name", "[]", "\"name\" is not a text"},
      {"/regions/0/stages/0/anchor/op", "\"convolution\"", "regions[0].stages[0]: \"convolution\" is not an operator"},
      {"/regions/0/stages/0/anchor/attrs", "[]", "\"attrs\" is not an object"},
      {"/regions/0/stages/0/anchor/attrs/pads", "{\"g\":1}", "not a float"},
      {"/regions/0/stages/0/anchor/attrs/pads", "[1,1,1,1.5]", "not an integer"},
      {"/regions/0/stages/0/anchor/attrs/pads", "[1]", "attribute pads has 1 entries, needs 4"},
      {"/regions/0/stages/0/anchor/attrs/strides", "\"a\"", "attribute strides is \"a\", which it cannot be"},
      {"/regions/0/stages/0/anchor/attrs/group", "2.5", "attribute group is a number, which it cannot be"},
      {"/regions/0/stages/0/anchor/attrs/compute", "\"fp4\"", "attribute compute is \"fp4\", not one of"},
      {"/regions/0/stages/0/anchor/integer", "1", "\"integer\" is not true or false"},
      {"/regions/0/stages/0/program", "\"v0 = acc_x\"", "reading a program"},
      {"/regions/0/stages/0/operands/1/div", "[1,1,0,1]", "div[2]: an entry is 0"},
      {"/regions/0/stages/0/stores/0/strides", "[1,2,3]", "3 strides"},
      {"/regions/0/stages/0/stores/0/offset", "9999999", "store 0: offset 9999999"},
      {"/regions/0/onnx_nodes/0", "5", "not a text"},
      {"/regions/0/precision", "\"int7\"", "\"int7\" is not a precision"},
      {"/regions/0/alternatives/0/seconds", "\"fast\"", "not a float"},
      {"/regions/0/reasons/0/cause", "\"magic\"", "\"magic\" is not a cause"},
      {"/regions/0/reasons/0/cause", "7", "a reason has no cause"},
      {"/regions/0/reasons/0/input", "7", "the reason \"integer_anchor\" has no \"input\" of the right kind"},
      {"/regions/0/reasons/0/more", "7", "the reason \"integer_anchor\" has 4 fields, needs 3"},
      {"/regions/0/reasons", "\"because\"", "\"reasons\" is not a list"},
      {"/regions/0/alternatives/0/reasons", "[{}]", "a reason has no cause"},
      {"/decisions/0/chosen", "9", "chosen is 9"},
      {"/decisions/0/candidates", "[]", "a decision without candidates"},
  };
  const json good = json::parse(to_json(toy_plan()));
  for (const Case& c : cases) {
    json bad = good;
    bad[json::json_pointer(c.pointer)] = json::parse(c.value);
    const auto plan = from_json(bad.dump());
    ASSERT_FALSE(plan) << c.pointer << " = " << c.value << " was accepted";
    EXPECT_EQ(plan.error().kind, ErrorKind::bad_engine);
    EXPECT_NE(plan.error().message.find(c.why), std::string::npos) << "said: " << plan.error().message << "\nwanted: " << c.why;
  }
  for (const char* text : {"", "{", "[]", "null", "{}", "\xff", "{\"format\":1}"}) EXPECT_FALSE(from_json(text)) << text;
  EXPECT_FALSE(from_json(std::string(200000, '[')));  // deep nesting
}

/// Every field of every object left out, or replaced by something of another kind.
TEST(PlanJson, NoFieldCanBeLeftOutOrReplacedUnseen) {
  using nlohmann::json;
  const json good = json::parse(to_json(toy_plan()));
  const std::set<std::string> optional{"quantizer", "value", "weights", "weight_zero"};
  int refused = 0;
  const json fields = good.flatten();
  for (const auto& [pointer, value] : fields.items()) {
    for (const char* other : {"null", "-1", "1e300", "\"\"", "[]", "{}", "true", "99999999999999"}) {
      json bad = good;
      bad[json::json_pointer(pointer)] = json::parse(other);
      const auto plan = from_json(bad.dump());  // names may be any text; everything else must be refused or still be a valid plan
      if (!plan) {
        ++refused;
      } else {
        EXPECT_TRUE(verify(*plan)) << pointer << " = " << other;
      }
    }
    const std::string parent = pointer.substr(0, pointer.rfind('/')), key = pointer.substr(pointer.rfind('/') + 1);
    json bad = good;
    json& object = bad[json::json_pointer(parent)];
    if (!object.is_object()) continue;
    object.erase(key);
    if (!optional.contains(key) && pointer.find("/attrs/") == std::string::npos) {
      EXPECT_FALSE(from_json(bad.dump())) << pointer << " left out";
    } else {
      (void)from_json(bad.dump());
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(PlanJson, MutatedTextNeverCrashes) {
  const std::string good = to_json(toy_plan());
  int accepted = 0;
  for (unsigned seed = 1; seed <= 4000; ++seed) {
    std::mt19937 random(seed);
    std::string text = good;
    for (unsigned k = 0; k < 1 + seed % 3; ++k) {
      const std::size_t at = random() % text.size();
      switch (random() % 5) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 30); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 60)); break;
        case 3: text[at] = "0123456789-,.e[]{}\""[random() % 19]; break;
        default: text.insert(at, std::string(1 + random() % 20, static_cast<char>('0' + random() % 10))); break;
      }
    }
    const auto plan = from_json(text);
    if (!plan) continue;
    ++accepted;
    EXPECT_TRUE(verify(*plan)) << "seed " << seed;
    const auto again = from_json(to_json(*plan));
    EXPECT_TRUE(again) << "seed " << seed;
  }
  EXPECT_GT(accepted, 50) << "mutations of names leave a valid plan";
}

TEST(PlanHash, DependsOnWhatRunsOnly) {
  const std::string h = plan_hash(toy_plan());
  EXPECT_EQ(h.size(), 32U);
  const auto differs = [&](auto&& change) {
    Plan p = toy_plan();
    change(p);
    return plan_hash(p) != h;
  };
  const auto stage = [](Plan& p) -> Stage& { return p.regions[0].stages[0]; };
  EXPECT_FALSE(differs([](Plan&) {}));
  EXPECT_FALSE(differs([](Plan& p) { p.model_name = "other"; }));
  EXPECT_FALSE(differs([](Plan& p) { p.inputs[0].name = p.buffers[0].name = "other"; }));
  EXPECT_FALSE(
      differs([](Plan& p) { p.regions[0].name = "other", p.regions[0].precision = Work::mixed, p.regions[0].reasons.clear(); }));
  EXPECT_FALSE(differs([](Plan& p) { p.regions[0].onnx_nodes.clear(), p.regions[0].alternatives.clear(); }));
  EXPECT_FALSE(differs([](Plan& p) { p.regions[0].graph_inputs.clear(), p.regions[0].graph_outputs = {1}; }));
  EXPECT_FALSE(differs([&](Plan& p) { stage(p).stores[0].value = "other"; }));

  EXPECT_TRUE(differs([](Plan& p) { p.threads = 3; }));
  EXPECT_TRUE(differs([](Plan& p) { p.devices[0].arena_bytes += 64; }));
  EXPECT_TRUE(differs([](Plan& p) { p.buffers[4].arena_offset += 64; }));
  EXPECT_TRUE(differs([](Plan& p) { p.inputs[0].quantizer->zero_point[0] = 4; }));
  EXPECT_TRUE(differs([](Plan& p) { p.outputs[0].type.dtype = ir::DType::f16; }));
  EXPECT_TRUE(differs([](Plan& p) {
    p.buffers[2].data = p.buffers[2].data.clone();
    p.buffers[2].data.mutable_data<std::int8_t>()[287] = 6;
  })) << "one weight code";
  EXPECT_TRUE(differs([](Plan& p) { p.regions[0].tactic.family += "x"; }));
  EXPECT_TRUE(differs([](Plan& p) { p.regions[0].packed.clear(); }));
  EXPECT_TRUE(differs([](Plan& p) { std::swap(p.regions[0], p.regions[1]); }));
  EXPECT_TRUE(differs([&](Plan& p) { stage(p).anchor.as<ir::Window>().pads = {1, 1, 1, 2}; }));
  EXPECT_TRUE(differs([&](Plan& p) { stage(p).anchor.weight_zero[0] = 0; }));
  EXPECT_TRUE(differs([&](Plan& p) { stage(p).anchor.inputs[0].quantizer->scale[0] = std::nextafter(0.1F, 1.0F); })) << "one ulp";
  EXPECT_TRUE(differs([&](Plan& p) { stage(p).program.code[4].op = program::Op::load_i; }));
  EXPECT_TRUE(differs([&](Plan& p) { stage(p).stores[0].strides[0] = 0; }));
  EXPECT_TRUE(differs([&](Plan& p) { stage(p).operands[1].div[2] = 1; }));
}

}  // namespace
}  // namespace octavo::region
