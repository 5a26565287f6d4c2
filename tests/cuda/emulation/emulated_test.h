// What tests on the emulation begin with.
#pragma once

#include <gtest/gtest.h>

#include "cuda/emulation/emulator.h"

namespace octavo::testing {

/// Skips, and is counted as skipped, where the build cannot emulate.
class EmulatedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_emulate()) GTEST_SKIP() << "a sanitizer does not know the stacks of fibers";
  }
};

/// `text` with one place changed; fails where it does not have the place.
inline std::string edited(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "the text has no \"" << from << "\" any more";
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace octavo::testing
