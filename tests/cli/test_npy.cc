// .npy and .npz: what numpy writes is read, what we write reads back, and no damaged file does harm or passes for a good one.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cli/inputs/npy.h"

namespace octavo::cli {
namespace {

std::vector<std::byte> to_bytes(std::string_view text) {
  const auto b = std::as_bytes(std::span(text));
  return {b.begin(), b.end()};
}

/// A version 1 file with this header and data.
std::vector<std::byte> npy(std::string header, std::size_t data) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  for (std::size_t i = 0; i < data; ++i) file += static_cast<char>(i);
  return to_bytes(file);
}

std::string error_of(const std::vector<std::byte>& file) {
  const auto t = parse_npy(file, "x.npy");
  return t ? "no error" : t.error().message;
}

TEST(Npy, ReadsBackWhatItWrites) {
  const ir::Shape shapes[] = {{}, {1}, {0}, {7}, {2, 3}, {1, 3, 5, 7}, {0, 4}};
  const ir::DType types[] = {ir::DType::f32, ir::DType::f16, ir::DType::f64, ir::DType::s8,
                             ir::DType::u8,  ir::DType::s32, ir::DType::s64, ir::DType::boolean};
  for (const auto& shape : shapes) {
    for (const auto type : types) {
      ir::Tensor t(type, shape);
      for (std::size_t i = 0; i < t.mutable_bytes().size(); ++i)
        t.mutable_bytes()[i] = static_cast<std::byte>(type == ir::DType::boolean ? i % 2 : 37 * i);
      const auto file = format_npy(t);
      EXPECT_EQ(file.size() % ir::size_of(type), 0U);
      const auto back = parse_npy(file, "x.npy");
      ASSERT_TRUE(back) << back.error().message;
      EXPECT_EQ(back->type(), t.type());
      EXPECT_TRUE(std::ranges::equal(back->bytes(), t.bytes()));
    }
  }
}

TEST(Npy, FortranOrderBecomesRowMajor) {
  const auto t = parse_npy(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", 6), "x.npy");
  ASSERT_TRUE(t) << t.error().message;
  const std::vector<std::uint8_t> expected{0, 2, 4, 1, 3, 5};
  EXPECT_TRUE(std::ranges::equal(t->data<std::uint8_t>(), expected));
}

TEST(Npy, SaysWhatIsWrong) {
  EXPECT_EQ(error_of(to_bytes("hello, this is text")), "reading x.npy: not a .npy file (it does not start with \\x93NUMPY)");
  EXPECT_EQ(error_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 20)),
            "reading x.npy: shape [2,3] of '<f4' does not fit the 20 bytes that follow the header");
  EXPECT_EQ(error_of(npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", 8)),
            "reading x.npy: element type '<c8' is not supported");
  EXPECT_EQ(error_of(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 4)),
            "reading x.npy: big-endian; save it with array.astype(array.dtype.newbyteorder('<'))");
  EXPECT_EQ(error_of(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4)),
            "reading x.npy: the header is not the dictionary that numpy.save writes");
  EXPECT_EQ(error_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }", 4)),
            "reading x.npy: shape [99999999999,99999999999] of '<f4' does not fit the 4 bytes that follow the header");
  EXPECT_EQ(error_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (1,), }", 4)),
            "reading x.npy: the header is not the dictionary that numpy.save writes");
}

/// Found by fuzz_npy: the product of the extents before the 0 overflowed.
TEST(Npy, NoElementsWhateverTheOtherExtents) {
  const auto t = parse_npy(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (99999999999, 99999999999, 0), }", 0), "x.npy");
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->size(), 0);
  EXPECT_EQ(ir::count({99999999999, 99999999999, 0}), 0);
}

Arrays two_arrays() {
  return {{"input", ir::Tensor::of<float>({2, 2}, {1, 2, 3, 4})}, {"mask", ir::Tensor::of<std::uint8_t>({3}, {0, 128, 255})}};
}

TEST(Npz, ReadsBackWhatItWrites) {
  const auto arrays = two_arrays();
  const auto file = format_npz(arrays);
  ASSERT_TRUE(file);
  EXPECT_EQ(*file, *format_npz(arrays)) << "the same arrays must give the same bytes";
  const auto back = parse_npz(*file, "x.npz");
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->size(), 2U);
  for (const auto& [name, t] : arrays) EXPECT_TRUE(ir::same_bytes(back->at(name), t)) << name;
}

/// Every prefix, and 4000 files with one to four bytes changed: an error or the right arrays, never a crash (run under ASan as
/// well).
TEST(Npz, SurvivesDamage) {
  const auto good = *format_npz(two_arrays());
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_FALSE(parse_npz(std::span(good).first(n), "x.npz")) << "prefix of " << n << " bytes";
  }
  const unsigned seed = 11;
  std::mt19937 rng(seed);
  int refused = 0;
  for (int k = 0; k < 4000; ++k) {
    auto bad = good;
    for (unsigned i = 0, n = 1 + rng() % 4; i < n; ++i) bad[rng() % bad.size()] ^= static_cast<std::byte>(1U << rng() % 8);
    const auto result = parse_npz(bad, "x.npz");
    refused += result ? 0 : 1;
    if (result) {
      for (const auto& [name, t] : *result) EXPECT_LT(t.size(), 1000) << "seed " << seed << ", file " << k;
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace octavo::cli
