// What tests on the emulation begin with.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda/emulation/emulator.h"

namespace octavo::testing {

/// Skips, and is counted as skipped, where the build cannot emulate.
class EmulatedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_emulate()) GTEST_SKIP() << "a sanitizer does not know the stacks of fibers";
  }
};

/// What the kernel `name` of `text` makes of words of 4 bytes, a multiple of 1024: it gets (in, out), and blocks of 256 threads that take 1024 words each. Empty where it failed.
template <class Word>
std::vector<Word> run_on_words(const std::string& text, const std::string& name, const std::vector<Word>& in) {
  static_assert(sizeof(Word) == 4);
  const auto library = emulate(text);
  EXPECT_TRUE(library) << (library ? "" : library.error().message);
  if (!library) return {};
  const auto kernel = (*library)->find(name);
  EXPECT_TRUE(kernel) << (kernel ? "" : kernel.error().message);
  if (!kernel) return {};
  const std::size_t bytes = in.size() * 4;
  GlobalMemory memory;
  std::byte* const from = memory.allocate("in", bytes, false);
  std::byte* const to = memory.allocate("out", bytes, true);
  std::memcpy(from, in.data(), bytes);
  EXPECT_EQ(run_grid(*kernel, {{static_cast<int>(in.size() / 1024), 1, 1}, {256, 1, 1}, 0}, {from, to}, memory, 1), "");
  std::vector<Word> out(in.size());
  std::memcpy(out.data(), to, bytes);
  return out;
}

/// `text` with one place changed; fails where it does not have the place.
inline std::string edited(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "the text has no \"" << from << "\" any more";
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace octavo::testing
