// Region keys: what changes one and what does not, programs that differ in wiring alone, and regions made from keys.
#include "region/key.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "program/random_program.h"
#include "region/from_key.h"
#include "region/toy_plan.h"

namespace octavo::region {
namespace {

using Change = std::function<void(Plan&)>;

/// The toy plan with programs whose instructions are in a known order.
Plan known_plan() {
  using program::Op;
  Plan p = toy_plan();
  program::Program conv;
  for (const Op op : {Op::acc_i, Op::i2f}) conv.push(op, static_cast<int>(conv.code.size()) - 1);
  conv.code[0].args[0] = -1;
  conv.load(Op::load_f, 0);
  conv.load(Op::load_f, 1);
  conv.push(Op::fma, 1, 2, 3);
  conv.imm_f(0);
  conv.push(Op::max, 4, 5);
  conv.imm_f(255);
  conv.push(Op::min, 6, 7);
  conv.push(Op::f2i, 8);
  conv.outputs = {{9, ir::DType::u8}, {4, ir::DType::f32}};
  p.regions[0].stages[0].program = conv;
  program::Program decode;
  decode.load(Op::load_i, 0);
  decode.push(Op::i2f, 0);
  decode.imm_f(0.5F);
  decode.push(Op::mul, 1, 2);
  decode.outputs = {{3, ir::DType::f32}};
  p.regions[1].stages[0].program = decode;
  return p;
}

std::string key_after(const Change& change) {
  Plan p = known_plan();
  change(p);
  return key(p.regions[0], p);
}

Stage& stage(Plan& p) {
  return p.regions[0].stages[0];
}

TEST(RegionKey, IsSpelledForPeople) {
  const Plan p = known_plan();
  EXPECT_EQ(
      key(p.regions[0], p),
      "conv pads=1,1,1,1 io:u8[1,4,6,6] w s8[8,4,3,3] zero[8] : acc_i i2f load_f load_f fma imm_f max imm_f min f2i store(9,4), "
      "f32[1,8,6,6]c, io:f32[1,8,3,3]/1,1,2,2 > u8[1,8,6,6]nhwc io:f32[1,8,6,6]nhwc");
  EXPECT_EQ(key(p.regions[1], p), "pointwise : load_i i2f imm_f mul, u8[1,8,6,6]nhwc > io:f32[1,8,6,6](0,-36,-6,-1)");
}

TEST(RegionKey, ChangesWithWhatTimeDependsOn) {
  const std::string before = key_after([](Plan&) {});
  const std::pair<const char*, Change> changes[] = {
      {"operator", [](Plan& p) { stage(p).anchor.op = ir::Op::conv_transpose; }},
      {"integer", [](Plan& p) { stage(p).anchor.integer = false; }},
      {"attribute",
       [](Plan& p) {
         stage(p).anchor.as<ir::Window>().pads = {1, 1, 1, 0};
       }},
      {"group", [](Plan& p) { stage(p).anchor.as<ir::Window>().group = 2; }},
      {"input shape", [](Plan& p) { stage(p).anchor.inputs[0].dims[2] = 5; }},
      {"input layout",
       [](Plan& p) {
         stage(p).anchor.inputs[0] = channels_last(0, ir::DType::u8, {1, 4, 6, 6});
       }},
      {"whose memory the input is", [](Plan& p) { p.buffers[0].kind = BufferKind::arena; }},
      {"weights shape", [](Plan& p) { stage(p).anchor.weights->dims[2] = 1; }},
      {"weights type", [](Plan& p) { stage(p).anchor.weights->dtype = ir::DType::f32; }},
      {"weight zero points", [](Plan& p) { stage(p).anchor.weight_zero.clear(); }},
      {"operand layout",
       [](Plan& p) {
         stage(p).operands[0].ref.strides = {0, 0, 0, 0};
       }},
      {"operand type", [](Plan& p) { stage(p).operands[0].ref.dtype = ir::DType::f16; }},
      {"upsampling",
       [](Plan& p) {
         stage(p).operands[1].div = {1, 1, 2, 3};
       }},
      {"store type", [](Plan& p) { stage(p).stores[0].dtype = ir::DType::s8; }},
      {"store strides", [](Plan& p) { stage(p).stores[0].strides[3] = 16; }},
      {"number of stores", [](Plan& p) { stage(p).stores.pop_back(), stage(p).program.outputs.pop_back(); }},
      {"which value is stored", [](Plan& p) { stage(p).program.outputs[1].value = 1; }},
      {"operation", [](Plan& p) { stage(p).program.code[6].op = program::Op::min; }},
      {"operands of an operation", [](Plan& p) { std::swap(stage(p).program.code[4].args[1], stage(p).program.code[4].args[2]); }},
      {"which operand is loaded", [](Plan& p) { std::swap(stage(p).program.code[2].imm, stage(p).program.code[3].imm); }},
      {"a further stage", [](Plan& p) { p.regions[0].stages.push_back(p.regions[1].stages[0]); }},
  };
  std::map<std::string, const char*> seen{{before, "unchanged"}};
  for (const auto& [what, change] : changes) {
    const auto [at, fresh] = seen.emplace(key_after(change), what);
    EXPECT_TRUE(fresh) << what << " and " << at->second << ": " << at->first;
  }
  const auto shifted = [](std::int32_t by) {
    return key_after([by](Plan& p) { stage(p).program.push_imm(program::Op::shl_i, by, 9); });
  };
  EXPECT_NE(shifted(3), shifted(4)) << "a width is part of the instruction";
  EXPECT_NE(key_after([](Plan& p) { p.regions[0].stages.push_back(p.regions[0].stages[0]); }),
            key_after([](Plan& p) { p.regions[0].stages.push_back(p.regions[0].stages[0]), p.regions[0].independent = true; }));
}

TEST(RegionKey, DoesNotChangeWithAnythingElse) {
  const std::string before = key_after([](Plan&) {});
  const std::pair<const char*, Change> changes[] = {
      {"weights", [](Plan& p) { p.buffers[2].data.mutable_bytes()[5] = std::byte{77}; }},
      {"weight zero point", [](Plan& p) { stage(p).anchor.weight_zero[0] = 9; }},
      {"scale", [](Plan& p) { stage(p).anchor.inputs[0].quantizer = ir::per_tensor(ir::DType::u8, 0.7F, 9); }},
      {"constant of the program", [](Plan& p) { stage(p).program.code[5].imm = 12345; }},
      {"tensor name", [](Plan& p) { stage(p).stores[0].value = "toy.another"; }},
      {"buffer name", [](Plan& p) { p.buffers[4].name = "toy.another"; }},
      {"region name", [](Plan& p) { p.regions[0].name = "toy.another"; }},
      {"provenance", [](Plan& p) { p.regions[0].onnx_nodes = {"toy.another"}, p.regions[0].reasons.clear(); }},
      {"tactic", [](Plan& p) { p.regions[0].tactic = *region::parse_tactic("toy.another"), p.regions[0].packed = {3}; }},
      {"address", [](Plan& p) { p.buffers[4].arena_offset = 4096, stage(p).stores[0].offset = 64; }},
      {"threads", [](Plan& p) { p.threads = 7; }},  // beside the key in the cache
  };
  for (const auto& [what, change] : changes) EXPECT_EQ(key_after(change), before) << what;
  Plan tables = known_plan();
  for (const std::uint8_t entry : {1, 2}) {
    Plan p = known_plan();
    stage(p).program.tables.emplace_back().fill(entry);
    stage(p).program.push_imm(program::Op::table, 0, 9);
    if (entry == 1) tables = p;
    EXPECT_EQ(key(p.regions[0], p), key(tables.regions[0], tables));
  }
}

/// What of a program a key has to tell apart.
std::string structure(const program::Program& p) {
  std::string out;
  for (const program::Instr& i : p.code) {
    out += std::string(program::info(i.op).name);
    for (const int a : i.args) out += "," + std::to_string(a);
    const bool constant = i.op == program::Op::imm_f || i.op == program::Op::imm_i;
    if (program::has_immediate(i.op) && !constant) out += "@" + std::to_string(i.imm);
    out += ";";
  }
  for (const auto& o : p.outputs) out += ">" + std::to_string(o.value);
  return out;
}

/// The toy's convolution with another program; stores by the types of its results.
Plan with_program(const program::Program& made) {
  Plan p = toy_plan();
  Stage& s = stage(p);
  s.program = made;
  s.operands = {s.operands[0], s.operands[0], s.operands[0]};
  s.operands[0].ref.dtype = ir::DType::u8;
  s.stores.clear();
  for (const program::Output& o : made.outputs) s.stores.push_back(channels_last(4, o.type, {1, 8, 6, 6}));
  return p;
}

TEST(RegionKey, ProgramsOfDifferentWiringNeverShareOne) {
  std::map<std::string, std::string> seen;  // key -> structure
  std::size_t programs = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    program::Program made = program::random_program(seed, 25);
    std::mt19937 random(seed);
    for (int k = 0; k < 8; ++k) {
      const Plan p = with_program(made);
      const auto [at, fresh] = seen.emplace(key(p.regions[0], p), structure(made));
      EXPECT_EQ(at->second, structure(made)) << "seed " << seed << ": " << at->first;
      ++programs;
      // The same operations, one operand moved to another value.
      auto& i = made.code[random() % made.code.size()];
      const auto operands = program::info(i.op).operands.size();
      const auto index = static_cast<int>(&i - made.code.data());
      if (operands > 0 && index > 0) i.args[random() % operands] = static_cast<int>(random() % static_cast<unsigned>(index));
    }
  }
  EXPECT_EQ(programs, 16000U);
  EXPECT_GT(seen.size(), 8000U) << "the changes are changes";
}

TEST(FromKey, ComesBackToTheSameKey) {
  const char* keys[] = {
      ("conv pads=1,1,1,1 u8[1,16,16,16]nhwc w s8[16,16,3,3] : acc_i load_i add_i i2f load_f mul imm_f div imm_f max imm_f min f2i "
       "table, "
       "s32[1,16,16,16]c, f32[1,16,16,16]c > u8[1,16,16,16]nhwc ; max_pool kernel=2,2 strides=2,2 stage0:u8[1,16,16,16]nhwc : "
       "acc_i > "
       "u8[1,16,8,8]nhwc"),
      ("conv u8[1,8,4,4]nhwc w s8[4,8,1,1] : acc_i i2f > f32[1,4,4,4]nhwc || conv u8[1,8,4,4]nhwc w s8[4,8,1,1] : acc_i i2f > "
       "f32[1,4,4,4](128,1,32,8)"),
      "pointwise : load_f load_f add imm_f max, io:f32[2,3,8,8], f32[2,3,8,8]one > io:f32[2,3,8,8]nhwc",
      "reshape float u8[1,8,4,4]nhwc : > u8[1,8,4,4]",
      "conv float f32[1,8,4,4]nhwc w f32[4,8,1,1] : acc_f load_f add, f32[1,4,4,4]c > f32[1,4,4,4]nhwc",
      "reduce_mean float axes=2,3 f32[1,8,4,4]nhwc : acc_f > f32[1,8,1,1]",
  };
  int made = 0;
  for (const char* k : keys) {
    const auto plan = plan_from_key(k, 3);
    ASSERT_TRUE(plan) << k << "\n" << plan.error().message;
    EXPECT_EQ(key(plan->regions[0], *plan), k);
    EXPECT_EQ(plan->threads, 3);
    EXPECT_EQ(plan->regions[0].independent, std::string(k).find("||") != std::string::npos);
    ++made;
  }
  EXPECT_EQ(made, 6);
  const auto shared = plan_from_key(keys[1], 1);
  EXPECT_EQ(shared->regions[0].stages[0].anchor.inputs[0].buffer, shared->regions[0].stages[1].anchor.inputs[0].buffer);
  const auto chain = plan_from_key(keys[0], 1);
  EXPECT_EQ(chain->regions[0].stages[0].stores[0].buffer, chain->regions[0].stages[1].anchor.inputs[0].buffer);
}

TEST(FromKey, RandomProgramsComeBack) {
  for (unsigned seed = 0; seed < 500; seed += 2) {  // even: an integer accumulator
    const program::Program made = program::random_program(seed);
    const Plan p = with_program(made);
    const std::string k = key(p.regions[0], p);
    const auto back = plan_from_key(k, 1);
    ASSERT_TRUE(back) << "seed " << seed << ": " << k << "\n" << back.error().message;
    EXPECT_EQ(structure(back->regions[0].stages[0].program), structure(made)) << "seed " << seed;
  }
}

TEST(FromKey, SaysWhatItCannotRead) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "is not OPERATOR TENSORS"},
      {"conv", "is not OPERATOR TENSORS"},
      {"plans 5f1c 77aa", "is not OPERATOR TENSORS"},
      {"sonv u8[1,4] : acc_i > u8[1,4]", "\"sonv\" is no operator"},
      {"input u8[1,4] : acc_i > u8[1,4]", "\"input\" is no operator"},
      {"pointwise : load_j, u8[1,4] > u8[1,4]", "\"load_j\" is no operation"},
      {"pointwise : load_i #5f1c, u8[1,4] > u8[1,4]", "\"#5f1c\" is no operation"},
      {"pointwise : load_i add_i, u8[1,4] > u8[1,4]", "takes 2 operands, 1 are there"},
      {"pointwise : load_i@x, u8[1,4] > u8[1,4]", "what follows @"},
      {"pointwise : load_i i2f(9), u8[1,4] > u8[1,4]", "not defined before"},
      {"pointwise : load_i, u9[1,4] > u8[1,4]", "no element type"},
      {"pointwise : load_i, u8[1,4 > u8[1,4]", "dimensions that are no numbers"},
      {"pointwise : load_i, u8[1,-4] > u8[1,4]", "too large"},
      {"pointwise : load_i, u8[1,4]x > u8[1,4]", "what is \"x\"?"},
      {"pointwise : load_i, u8[1,4](1) > u8[1,4]", "strides that are not one number a dimension"},
      {"pointwise : load_i, u8[1,4] > u8[1,5]", "leave buffer"},
      {"pointwise : load_f, f32[65536,65536] > f32[65536,65536]", "more than 8 GiB"},
      {"pointwise : load_f, f32[4294967296,4294967296] > f32[1]", "too large"},
      {"pointwise : load_f(), f32[1,4] > f32[1,4]", "not spelled as this version spells keys"},
  };
  for (const auto& [text, why] : wrong) {
    const auto plan = plan_from_key(text, 1);
    ASSERT_FALSE(plan) << text;
    EXPECT_NE(plan.error().message.find("region key: "), std::string::npos) << plan.error().message;
    EXPECT_NE(plan.error().message.find(why), std::string::npos) << text << "\n" << plan.error().message;
  }
}

TEST(FromKey, DamagedKeysAreErrorsOrOtherKeys) {
  const Plan p = toy_plan();
  const std::string whole = key(p.regions[0], p);
  int errors = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    std::string damaged = whole;
    for (int k = 0; k < 2; ++k) {
      const auto at = random() % damaged.size();
      if (random() % 2 == 0) {
        damaged.erase(at, random() % 9);
      } else {
        damaged[at] = "0123456789,:;>()[]/ @wz-"[random() % 24];
      }
      if (damaged.empty()) break;
    }
    const auto plan = plan_from_key(damaged, 1);
    errors += !plan;
    if (plan) {
      EXPECT_EQ(key(plan->regions[0], *plan), damaged) << "seed " << seed;
      EXPECT_TRUE(verify(*plan)) << "seed " << seed;
    }
  }
  EXPECT_GT(errors, 1000);
  EXPECT_LT(errors, 3000);
}

TEST(FromKey, MadeUpValuesAreNeverSlowOnes) {
  for (const ir::DType type : {ir::DType::f32, ir::DType::f16, ir::DType::bf16}) {
    const ir::Tensor t = seeded_constant(type, 4000);
    for (std::int64_t i = 0; i < t.size(); ++i) {
      EXPECT_TRUE(t.at(i) == 0 || std::isnormal(static_cast<float>(t.at(i)))) << ir::name_of(type) << " " << i;
      EXPECT_LE(std::abs(t.at(i)), 1) << ir::name_of(type) << " " << i;
    }
  }
}

}  // namespace
}  // namespace octavo::region
