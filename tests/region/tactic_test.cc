// Tactics as values: their spelling reads back, and partial spellings select.
#include "region/tactic.h"

#include <gtest/gtest.h>

namespace octavo::region {
namespace {

TEST(Tactic, SpellingReadsBack) {
  for (const char* name : {"cpu.conv", "cpu.conv.u8s8.jit@3", "cuda.conv{stages=3,tile=128x64x64}",
                           "cpu.staged(cpu.a@2{x=1},cpu.b(cpu.c,cpu.d{y=-2}))"}) {
    const auto t = parse_tactic(name);
    ASSERT_TRUE(t) << t.error().message;
    EXPECT_EQ(t->name(), name);
  }
  const auto sorted = parse_tactic("cuda.conv{tile=2,stages=3}");
  ASSERT_TRUE(sorted);
  EXPECT_EQ(sorted->name(), "cuda.conv{stages=3,tile=2}");
  EXPECT_EQ(sorted->provider, "cuda");
  EXPECT_EQ(sorted->family, "conv");
  EXPECT_EQ(sorted->parameters.at("tile"), "2");
}

TEST(Tactic, OtherTextsAreRefused) {
  for (const char* name : {"", "cpu", ".conv", "cpu.", "cpu.conv@1", "cpu.conv@", "cpu.conv@x", "cpu.conv{", "cpu.conv{a}",
                           "cpu.conv{a=}", "cpu.conv{a=1", "cpu.conv{a=1,a=2}", "cpu.conv()", "cpu.conv(cpu.a", "cpu.conv(cpu.a,)",
                           "cpu.conv x", "cpu.conv@99999999999", "cpu.a(cpu.a(cpu.a(cpu.a(cpu.a))))"}) {
    const auto t = parse_tactic(name);
    ASSERT_FALSE(t) << name;
    EXPECT_EQ(t.error().kind, ErrorKind::usage);
    EXPECT_NE(t.error().message.find("is not a tactic"), std::string::npos) << t.error().message;
  }
  EXPECT_FALSE(parse_tactic("cpu." + std::string(1 << 20, 'a')));
}

TEST(Tactic, WhatIsLeftOutMayBeAnything) {
  const auto selected = [](const char* wanted, const char* tactic) {
    return selects(*parse_tactic(wanted), *parse_tactic(tactic));
  };
  EXPECT_TRUE(selected("cpu.a", "cpu.a{x=1}"));
  EXPECT_TRUE(selected("cpu.a{x=1}", "cpu.a{x=1,y=2}"));
  EXPECT_FALSE(selected("cpu.a{x=2}", "cpu.a{x=1}"));
  EXPECT_FALSE(selected("cpu.a{x=1}", "cpu.a"));
  EXPECT_FALSE(selected("cpu.a", "cpu.a@2"));
  EXPECT_FALSE(selected("cpu.a", "cuda.a"));
  EXPECT_TRUE(selected("cpu.s", "cpu.s(cpu.a,cpu.b)"));
  EXPECT_TRUE(selected("cpu.s(cpu.a,cpu.b)", "cpu.s(cpu.a{x=1},cpu.b)"));
  EXPECT_FALSE(selected("cpu.s(cpu.a)", "cpu.s(cpu.a,cpu.b)"));
}

TEST(Tactic, RequirementsOfPartsAreCollected) {
  Tactic a, b;
  a.required = {"two", "three"};
  b.required = {"one", "two"};
  EXPECT_EQ(required_by({a, b}), (std::vector<std::string>{"one", "three", "two"}));
}

}  // namespace
}  // namespace octavo::region
