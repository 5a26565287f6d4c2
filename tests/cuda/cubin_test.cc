// Machine code that an engine file gives: read, and held against its launches. A code made here by hand, so that every lie can be told; and, where
// there is an NVRTC, codes of its own.
#include "cuda/device/cubin.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cuda/device/compile_plan.h"

namespace octavo::cuda {
namespace {

/// One kernel "k" for sm_90 with two pointers, as NVRTC 13 lays it out: header, sections' names, strings, symbols, facts, text, section headers.
class Elf {
 public:
  Elf() {
    put(std::string("\x7f"
                    "ELF\x02\x01\x01\x41\x08",
                    9) +
        std::string(55, '\0'));
    const std::string names("\0.names\0.strings\0.symbols\0.nv.info.k\0.text.k\0.nv.shared.k\0", 58);
    section(1, 3, names);
    section(8, 3, std::string("\0k\0", 3));
    std::string symbol(48, '\0');  // the first is nothing
    symbol[24] = 1, symbol[28] = 0x12, symbol[30] = 5, symbol[40] = 64;
    section(17, 2, symbol, 2, 24);
    std::string facts;
    for (const int n : {1, 0})
      facts += std::string("\x04\x17\x0c\0\0\0\0\0", 8) + static_cast<char>(n) + '\0' + static_cast<char>(8 * n) +
               std::string("\0\0\xf0\x21\0", 5);
    facts += std::string("\x03\x19\x10\0", 4);
    facts += std::string("\x04\x05\x0c\0\0\1\0\0\1\0\0\0\1\0\0\0", 16);
    section(26, 0x70000000, facts);
    section(37, 1, std::string(64, '\xaa'));
    section(45, 8, "", 0, 0, 1024);
    const std::uint64_t at = bytes_.size();
    bytes_ += headers_;
    set<std::uint16_t>(16, 2), set<std::uint16_t>(18, 190), set<std::uint32_t>(20, 1);
    set<std::uint64_t>(40, at), set<std::uint32_t>(48, 0x6005a04), set<std::uint16_t>(52, 64), set<std::uint16_t>(58, 64);
    set<std::uint16_t>(60, 7), set<std::uint16_t>(62, 1);
  }
  template <class T>
  Elf& set(std::size_t at, T value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
    return *this;
  }
  /// A field of a section's header: 4 type, 24 where, 32 bytes, 40 link.
  template <class T>
  Elf& set_section(std::size_t section, std::size_t field, T value) {
    std::uint64_t at = 0;
    std::memcpy(&at, bytes_.data() + 40, 8);
    return set(at + section * 64 + field, value);
  }
  Elf& replace(const std::string& from, const std::string& to) {
    bytes_.replace(bytes_.find(from), from.size(), to);
    return *this;
  }
  std::string bytes_;

 private:
  void put(const std::string& s) { bytes_ += s; }
  void section(std::uint32_t name, std::uint32_t type, const std::string& data, std::uint32_t link = 0, std::uint64_t entry = 0,
               std::uint64_t bytes = 0) {
    if (headers_.empty()) headers_.resize(64);  // the first is nothing
    std::string h(64, '\0');
    const auto at = [&](std::size_t offset, auto v) { std::memcpy(h.data() + offset, &v, sizeof v); };
    at(0, name), at(4, type), at(24, std::uint64_t{bytes_.size()}), at(32, bytes > 0 ? bytes : std::uint64_t{data.size()}),
        at(40, link), at(56, entry);
    headers_ += h;
    bytes_ += data;
  }
  std::string headers_;
};

Launch launch() {
  Launch l;
  l.function = "k";
  l.grid = {10, 1, 1}, l.block = {128, 1, 1};
  l.arguments.resize(2);
  return l;
}

std::string said(const Elf& elf, const Launch& l = launch(), Architecture architecture = "sm_90a") {
  const Launch* const one = &l;
  const Status s = check_machine_code(std::as_bytes(std::span(elf.bytes_)), architecture, {&one, 1});
  if (!s) EXPECT_EQ(s.error().kind, ErrorKind::bad_engine);
  static const CodeCheck remembers = remembering_check();  // of all codes of these tests
  for (int again = 0; again < 2; ++again) {
    const Status known = remembers(std::as_bytes(std::span(elf.bytes_)), architecture, {&one, 1});
    EXPECT_EQ(known ? "" : known.error().message, s ? "" : s.error().message);
  }
  return s ? "fits" : s.error().message;
}

void expect(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Cubin, ReadsWhatNvrtcWrites) {
  ASSERT_EQ(said(Elf()), "fits");
  const Elf elf;
  const auto read = read_cubin(std::as_bytes(std::span(elf.bytes_)));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->sm, 90);
  ASSERT_EQ(read->kernels.size(), 1U);
  EXPECT_EQ(read->kernels[0].name, "k");
  EXPECT_EQ(read->kernels[0].parameters, 2);
  EXPECT_EQ(read->kernels[0].parameter_bytes, 16);
  EXPECT_EQ(read->kernels[0].shared_bytes, 1024);
  EXPECT_EQ(read->kernels[0].most_threads, 256);
  EXPECT_EQ(said(Elf().set<unsigned char>(8, 7).set<std::uint32_t>(48, 0x5a055a)), "fits") << "as CUDA 12 writes the architecture";
}

TEST(Cubin, EachLieIsNamed) {
  Elf empty;
  empty.bytes_.clear();
  expect(said(empty), "0 bytes, an ELF header needs 64");
  expect(said(Elf().set<char>(1, 'F')), "not an ELF file of 64 bits");
  expect(said(Elf().set<char>(4, 1)), "not an ELF file of 64 bits");
  expect(said(Elf().set<std::uint16_t>(18, 62)), "for machine 62 (CUDA is 190)");
  expect(said(Elf().set<std::uint32_t>(48, 0x6005004)), "it is for sm_80, the plan for sm_90a");
  expect(said(Elf(), launch(), "sm_100a"), "it is for sm_90, the plan for sm_100a");
  expect(said(Elf(), launch(), Architecture()), "the plan for no architecture");
  expect(said(Elf().set<std::uint64_t>(40, UINT64_MAX - 10)), "do not lie in its");
  expect(said(Elf().set<std::uint16_t>(60, 60000)), "60000 section headers");
  expect(said(Elf().set<std::uint16_t>(62, 7)), "the names of sections are in section 7 of 7");
  expect(said(Elf().set<std::uint16_t>(56, 3).set<std::uint16_t>(54, 56).set<std::uint64_t>(32, 1 << 20)), "3 segments at 1048576");
  for (const std::size_t s : {1U, 2U, 3U, 4U, 5U}) {
    expect(said(Elf().set_section<std::uint64_t>(s, 24, 1 << 20)), fmt::format("section {} is at 1048576", s));
    expect(said(Elf().set_section<std::uint64_t>(s, 32, UINT64_MAX)), fmt::format("section {} is at", s));
  }
  expect(said(Elf().set_section<std::uint32_t>(3, 40, 99)), "section 3 names section 99 of 7");
  expect(said(Elf().set_section<std::uint32_t>(3, 40, 5)), "section 5 is taken for strings, and is none");
  expect(said(Elf().set_section<std::uint32_t>(4, 0, 5000)), "a name at 5000 of 58 bytes of strings");
  expect(said(Elf().set_section<std::uint64_t>(5, 32, 63)), "kernel \"k\" is at 0+64 of 63 bytes");
  expect(said(Elf().replace(std::string("\x04\x05\x0c\0", 4), std::string("\x04\x05\x50\0", 4))),
         "the facts of kernel \"k\" are cut off");
}

TEST(Cubin, LaunchesAreHeldAgainstTheCode) {
  Launch l = launch();
  l.function = "other";
  expect(said(Elf(), l), "a launch of \"other\", its kernels are: k");
  // The driver reads as many arguments as the code says, from an array as long as the launch.
  for (const std::size_t given : {0U, 1U, 3U}) {
    l = launch();
    l.arguments.resize(given);
    expect(said(Elf(), l), fmt::format("kernel \"k\" takes 2 parameters of 16 bytes, the launch gives {} pointers", given));
  }
  expect(said(Elf().replace(std::string("\x03\x19\x10\0", 4), std::string("\x03\x19\x40\0", 4))), "takes 2 parameters of 64 bytes");
  l = launch();
  l.grid[1] = 65536;
  expect(said(Elf(), l), "a grid of 10x65536x1 blocks");
  l = launch();
  l.block = {16, 4, 65};
  expect(said(Elf(), l), "of 16x4x65 threads");
  l = launch();
  l.block = {257, 1, 1};
  expect(said(Elf(), l), "started with 257 threads a block, it takes 256");
  l = launch();
  l.shared_bytes = 228 << 10;
  expect(said(Elf(), l), "bytes of shared memory beside its own 1024");
}

/// Any bytes: an answer, and no access out of bounds (run this under AddressSanitizer).
TEST(Cubin, MutatedCodeIsReadOrRefused) {
  std::mt19937_64 random(3);
  const Elf good;
  int read = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    Elf elf = good;
    const int edits = 1 + static_cast<int>(random() % 4);
    for (int k = 0; k < edits; ++k) {
      const std::size_t at = random() % elf.bytes_.size();
      elf.bytes_[at] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    if (random() % 8 == 0) elf.bytes_.resize(random() % elf.bytes_.size());
    const std::vector<char> exact(elf.bytes_.begin(), elf.bytes_.end());  // nothing readable behind it
    ++(read_cubin(std::as_bytes(std::span(exact))) ? read : refused);
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(Cubin, FitsWhatNvrtcMakesOfOurKernels) {
  for (const Architecture architecture : std::initializer_list<Architecture>{"sm_80", "sm_90a", "sm_100a"}) {
    const auto code = nvrtc_compiler(architecture)(
        "OCTAVO_KERNEL(128, 1) k(const float* a, float* b) {\n  __shared__ float s[128];\n  s[threadIdx.x] = a[threadIdx.x];\n"
        "  __syncthreads();\n  b[threadIdx.x] = s[127 - threadIdx.x];\n}\n");
    if (!code && code.error().kind == ErrorKind::unsupported) GTEST_SKIP() << code.error().message;
    ASSERT_TRUE(code) << code.error().message;
    const Launch l = launch();
    const Launch* const one = &l;
    const auto check = [&](const std::string& bytes) {
      return check_machine_code(std::as_bytes(std::span(bytes)), architecture, {&one, 1});
    };
    const Status fits = check(*code);
    EXPECT_TRUE(fits) << architecture.text() << ": " << fits.error().message;
    EXPECT_FALSE(check(code->substr(0, code->size() - 1))) << "the driver would read one byte behind it";
  }
}

}  // namespace
}  // namespace octavo::cuda
