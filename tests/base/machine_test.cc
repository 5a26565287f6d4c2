#include "base/machine.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(Machine, TextReadsBack) {
  for (MachineModel m : {standard_machine(), this_machine(), MachineModel{48 << 10, 2 << 20, 0, 96, 32, 2.45e9}}) {
    const auto back = parse_machine(to_string(m));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(to_string(*back), to_string(m));
  }
  EXPECT_EQ(to_string(standard_machine()), "l1=32768 l2=1048576 l3=33554432 cores=2 vector=64 clock=4.5e+09");
  const auto part = parse_machine("l2=524288");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->l2_bytes, 512 << 10);
  EXPECT_EQ(part->l1_bytes, standard_machine().l1_bytes) << "what is not said is the standard machine's";
}

TEST(Machine, WrongTextsAreRefused) {
  for (const char* text : {"l2", "l2=", "l2=x", "l2=-1", "l2=0", "l4=1", "cores=1e9", "clock=inf", "l2=1 l2 3"}) {
    const auto m = parse_machine(text);
    ASSERT_FALSE(m) << text;
    EXPECT_EQ(m.error().kind, ErrorKind::usage);
    EXPECT_NE(m.error().message.find("machine model: "), std::string::npos) << m.error().message;
  }
}

TEST(Machine, ThisOneIsPlausible) {
  const MachineModel& m = this_machine();
  EXPECT_GE(m.l1_bytes, 8 << 10);
  EXPECT_GE(m.l2_bytes, m.l1_bytes);
  EXPECT_GE(m.cores, 1);
  EXPECT_GT(m.clock_hz, 1e8);
}

}  // namespace
}  // namespace octavo
