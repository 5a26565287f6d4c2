// The emulation itself: kernels that are right run and give the right values; each kind of mistake is found and named.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/emulation/emulated_test.h"

namespace octavo::testing {
namespace {

/// Runs `text`, whose kernel k takes an input of `in` bytes (byte i is i % 251) and an output of `out` bytes.
struct Outcome {
  std::string wrong;
  std::vector<unsigned char> out;
};
Outcome run(std::string_view text, std::size_t in, std::size_t out, const Grid& grid) {
  Outcome r;
  const auto library = emulate(text);
  if (!library) return {library.error().message, {}};
  const auto kernel = (*library)->find("k");
  if (!kernel) return {kernel.error().message, {}};
  GlobalMemory memory;
  std::byte* a = memory.allocate("the input", in, false);
  std::byte* b = memory.allocate("the output", out, true);
  for (std::size_t i = 0; i < in; ++i) a[i] = static_cast<std::byte>(i % 251);
  for (std::size_t i = 0; i < out; ++i) b[i] = std::byte{0xEE};
  r.wrong = run_grid(*kernel, grid, {a, b}, memory);
  r.out.resize(out);
  std::memcpy(r.out.data(), b, out);
  return r;
}

class Emulation : public EmulatedTest {};

// Each block turns 64 bytes around through shared memory.
constexpr std::string_view kReverse = R"(
OCTAVO_KERNEL(64, 1) k(const unsigned char* in, unsigned char* out) {
  __shared__ unsigned char tile[64];
  tile[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  octavo_barrier();
  out[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
}
)";

TEST_F(Emulation, SharedMemoryBehindABarrier) {
  const Outcome r = run(kReverse, 128, 128, {{2, 1, 1}, {64, 1, 1}, 0});
  ASSERT_EQ(r.wrong, "");
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(r.out[i], i / 64 * 64 + 63 - i % 64);
}

// As many as a region of a network can have operands; more than the emulation passes are an error.
TEST_F(Emulation, ManyParameters) {
  std::string text = "OCTAVO_KERNEL(1, 1) k(";
  for (int p = 0; p < 63; ++p) text += fmt::format("const unsigned char* p{}, ", p);
  text += "unsigned char* out) {\n  out[0] = p0[0];\n  out[1] = p62[1];\n}\n";
  const auto library = emulate(text);
  ASSERT_TRUE(library) << library.error().message;
  const auto kernel = (*library)->find("k");
  ASSERT_TRUE(kernel) << kernel.error().message;
  GlobalMemory memory;
  std::byte* first = memory.allocate("the first", 1, false);
  std::byte* last = memory.allocate("the last", 2, false);
  std::byte* out = memory.allocate("the output", 2, true);
  first[0] = std::byte{7}, last[0] = std::byte{8}, last[1] = std::byte{9};
  std::vector<void*> parameters(63, first);
  parameters.back() = last;
  parameters.push_back(out);
  EXPECT_EQ(run_grid(*kernel, {{1, 1, 1}, {1, 1, 1}, 0}, parameters, memory), "");
  EXPECT_EQ(out[0], std::byte{7});
  EXPECT_EQ(out[1], std::byte{9});
  parameters.push_back(out);
  EXPECT_EQ(run_grid(*kernel, {{1, 1, 1}, {1, 1, 1}, 0}, parameters, memory), "65 parameters, at most 64");
}

TEST_F(Emulation, AMissingBarrierIsFound) {
  const Outcome r = run(edited(std::string(kReverse), "octavo_barrier();", ""), 128, 128, {{2, 1, 1}, {64, 1, 1}, 0});
  EXPECT_NE(r.wrong.find("static shared memory, which nothing wrote"), std::string::npos) << r.wrong;
  // The same in an array that was written before: the old value would be read.
  const Outcome again = run(edited(std::string(kReverse), "  tile[threadIdx.x] = in",
                                   "  tile[threadIdx.x] = 0;\n  octavo_barrier();\n  tile[threadIdx.x] = in"),
                            128, 128, {{2, 1, 1}, {64, 1, 1}, 0});
  EXPECT_EQ(again.wrong, "");
  const Outcome raced = run(edited(edited(std::string(kReverse), "  tile[threadIdx.x] = in",
                                          "  tile[threadIdx.x] = 0;\n  octavo_barrier();\n  tile[threadIdx.x] = in"),
                                   "threadIdx.x];\n  octavo_barrier();", "threadIdx.x];\n"),
                            128, 128, {{2, 1, 1}, {64, 1, 1}, 0});
  EXPECT_NE(raced.wrong.find("with no barrier in between"), std::string::npos) << raced.wrong;
}

TEST_F(Emulation, AccessesOutsideOfBuffersAreFound) {
  EXPECT_NE(run(kReverse, 127, 128, {{2, 1, 1}, {64, 1, 1}, 0}).wrong.find("at byte 127 of the input, which has 127"),
            std::string::npos);
  EXPECT_NE(run(kReverse, 128, 100, {{2, 1, 1}, {64, 1, 1}, 0}).wrong.find("of the output, which has 100"), std::string::npos);
  EXPECT_NE(run(edited(std::string(kReverse), "in[block", "in[(long long)1e9 + block"), 128, 128, {{2, 1, 1}, {64, 1, 1}, 0})
                .wrong.find("of the"),
            std::string::npos);
  EXPECT_NE(run(edited(std::string(kReverse), "out[block", "((unsigned char*)in)[block"), 128, 128, {{2, 1, 1}, {64, 1, 1}, 0})
                .wrong.find("only read"),
            std::string::npos);
  EXPECT_NE(run(edited(std::string(kReverse), "tile[64]", "tile[63]"), 128, 128, {{2, 1, 1}, {64, 1, 1}, 0}).wrong, "");
}

TEST_F(Emulation, ResultsWrittenTwiceAreFound) {
  const Outcome blocks = run(edited(std::string(kReverse), "out[blockIdx.x * 64", "out[0"), 128, 128, {{2, 1, 1}, {64, 1, 1}, 0});
  EXPECT_NE(blocks.wrong.find(", which block 0 wrote"), std::string::npos) << blocks.wrong;
  const Outcome threads =
      run(edited(std::string(kReverse), "out[blockIdx.x * 64 + threadIdx.x", "out[blockIdx.x * 64 + threadIdx.x / 2"), 128, 128,
          {{2, 1, 1}, {64, 1, 1}, 0});
  EXPECT_NE(threads.wrong.find("with no barrier in between"), std::string::npos) << threads.wrong;
}

TEST_F(Emulation, BarriersThatNotAllThreadsReachAreFound) {
  const Outcome ended = run(edited(std::string(kReverse), "octavo_barrier();", "if (threadIdx.x == 5) return;\n octavo_barrier();"),
                            128, 128, {{2, 1, 1}, {64, 1, 1}, 0});
  EXPECT_NE(ended.wrong.find("cannot go on"), std::string::npos) << ended.wrong;
  const Outcome two = run(
      edited(std::string(kReverse), "octavo_barrier();", "if (threadIdx.x == 5)\n octavo_barrier();\n else\n octavo_barrier();"),
      128, 128, {{2, 1, 1}, {64, 1, 1}, 0});
  EXPECT_NE(two.wrong.find("different barriers"), std::string::npos) << two.wrong;
}

// The same with asynchronous copies, two in flight.
constexpr std::string_view kAsync = R"(
OCTAVO_KERNEL(4, 1) k(const unsigned char* in, unsigned char* out) {
  OCTAVO_SHARED(shared);
  octavo_copy_async<16, false>(shared + 16 * threadIdx.x, in + 16 * threadIdx.x);
  octavo_copy_commit();
  for (int i = 0; i < 3; ++i) {
    if (i < 2)
      octavo_copy_async<16, false>(shared + 64 * ((i + 1) & 1) + 16 * threadIdx.x, in + 64 * (i + 1) + 16 * threadIdx.x);
    octavo_copy_commit();
    octavo_copy_wait<1>();
    octavo_barrier();
    for (int k = 0; k < 16; ++k) out[64 * i + 16 * threadIdx.x + k] = shared[64 * (i & 1) + 63 - (16 * threadIdx.x + k)];
    octavo_barrier();  // last
  }
}
)";

TEST_F(Emulation, AsynchronousCopies) {
  const Grid grid{{1, 1, 1}, {4, 1, 1}, 128};
  const Outcome r = run(kAsync, 192, 192, grid);
  ASSERT_EQ(r.wrong, "");
  for (std::size_t i = 0; i < 192; ++i) EXPECT_EQ(r.out[i], i / 64 * 64 + 63 - i % 64);
  EXPECT_NE(run(edited(std::string(kAsync), "wait<1>", "wait<2>"), 192, 192, grid).wrong.find("no wait before"), std::string::npos);
  EXPECT_NE(run(edited(std::string(kAsync), "    octavo_barrier();\n", ""), 192, 192, grid).wrong, "");
  EXPECT_NE(run(edited(std::string(kAsync), "    octavo_barrier();  // last\n", ""), 192, 192, grid).wrong, "");
  EXPECT_NE(run(edited(std::string(kAsync), "in + 16 * threadIdx.x", "in + 1 + 16 * threadIdx.x"), 192, 192, grid)
                .wrong.find("not aligned"),
            std::string::npos);
  EXPECT_NE(run(kAsync, 192, 192, {{1, 1, 1}, {4, 1, 1}, 127}).wrong.find("which has 127"), std::string::npos);
}

// c[16][8] = a[16][32] b[8][32]: ldmatrix, mma, and a sum over the columns by shuffles.
constexpr std::string_view kMma = R"(
OCTAVO_KERNEL(32, 1) k(const unsigned char* in, int* out) {
  __shared__ __align__(16) unsigned char a[512], b[256];
  const int l = octavo_thread();
  for (int i = l; i < 512; i += 32) a[i] = in[i];
  for (int i = l; i < 256; i += 32) b[i] = in[512 + i];
  __syncwarp();
  unsigned fa[4], fb[2];
  octavo_load_matrices(fa, a + (l % 16) * 32 + l / 16 * 16);
  octavo_load_matrices(fb, b + (l % 8) * 32 + l / 8 % 2 * 16);
  int c[4] = {1, 1, 1, 1};
  octavo_mma_u8s8(c, fa, fb[0], fb[1]);
  for (int r = 0; r < 4; ++r) out[(l / 4 + r / 2 * 8) * 8 + l % 4 * 2 + r % 2] = c[r];
  int sum = c[0] + c[1];
  sum += octavo_shuffle_xor(sum, 1);
  sum += octavo_shuffle_xor(sum, 2);
  if (l % 4 == 0) out[128 + l / 4] = sum;
}
)";

TEST_F(Emulation, MatrixProductsAndShuffles) {
  const Outcome r = run(kMma, 768, 136 * 4, {{1, 1, 1}, {32, 1, 1}, 0});
  ASSERT_EQ(r.wrong, "");
  std::vector<int> out(136);
  std::memcpy(out.data(), r.out.data(), r.out.size());
  for (int row = 0; row < 16; ++row) {
    int all = 0;
    for (int column = 0; column < 8; ++column) {
      int sum = 1;
      for (int k = 0; k < 32; ++k) sum += (row * 32 + k) % 251 * static_cast<signed char>((512 + column * 32 + k) % 251);
      EXPECT_EQ(out[static_cast<std::size_t>(row * 8 + column)], sum) << row << " " << column;
      all += sum;
    }
    if (row < 8) {
      EXPECT_EQ(out[static_cast<std::size_t>(128 + row)], all);
    }
  }
  EXPECT_NE(
      run(edited(std::string(kMma), "__syncwarp();", ""), 768, 136 * 4, {{1, 1, 1}, {32, 1, 1}, 0}).wrong.find("static shared"),
      std::string::npos);
  EXPECT_NE(
      run(edited(std::string(kMma), "  int c[4]", "  if (l == 3) return;\n int c[4]"), 768, 136 * 4, {{1, 1, 1}, {32, 1, 1}, 0})
          .wrong.find("cannot go on"),
      std::string::npos);
}

// Blocks add to one sum; the last one stores it and clears the memory that they share.
constexpr std::string_view kSum = R"(
OCTAVO_KERNEL(32, 1) k(const unsigned char* in, int* out) {
  int* const sum = out + 1;
  int* const parts = out + 3;
  __shared__ int last;
  parts[blockIdx.x * 32 + threadIdx.x] = in[threadIdx.x];
  octavo_atomic_add(sum, in[threadIdx.x]);
  octavo_fence();
  octavo_barrier();
  if (threadIdx.x == 0) last = octavo_atomic_next(out + 2) == octavo_blocks() - 1;
  octavo_barrier();
  if (!last) return;
  if (threadIdx.x == 0) out[0] = octavo_read_shared_sum(sum) + parts[63];
}
)";

TEST_F(Emulation, SumsOverBlocks) {
  const auto library = emulate(kSum);
  ASSERT_TRUE(library) << library.error().message;
  const auto kernel = (*library)->find("k");
  ASSERT_TRUE(kernel);
  for (const bool broken : {false, true}) {
    GlobalMemory memory;
    std::byte* in = memory.allocate("the input", 32, false);
    auto* out = reinterpret_cast<int*>(memory.allocate("the output", (3 + 32 * 3) * 4, true));
    std::memset(in, 2, 32);
    EXPECT_EQ(run_grid(*kernel, {{3, 1, 1}, {32, 1, 1}, 0}, {in, out}, memory, 7), "");
    EXPECT_EQ(out[0], 3 * 64 + 2);
    if (!broken) continue;
    const auto bad = emulate(edited(std::string(kSum), "if (!last) return;", ""));
    ASSERT_TRUE(bad);
    EXPECT_NE(run_grid(*(*bad)->find("k"), {{3, 1, 1}, {32, 1, 1}, 0}, {in, out}, memory, 7), "");
  }
}

TEST_F(Emulation, TextThatDoesNotCompileIsAnError) {
  const auto library = emulate("this is no kernel");
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("octavo.cu"), std::string::npos) << library.error().message;
}

}  // namespace
}  // namespace octavo::testing
