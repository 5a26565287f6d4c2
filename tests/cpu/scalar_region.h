// Brute force for tests of kernels: one element at a time, straight from the contract in region/region.h. And a scene: a plan with
// one region and its memory, twice, so that what a kernel wrote can be compared byte for byte with what it should have written, and
// with what it should have left alone.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cpu/isa.h"
#include "region/host_kernel.h"
#include "region/refusal.h"
#include "region/region.h"

namespace octavo::testing {

/// Runs every stage in order on `memory`. Anchors: none, conv, conv_transpose (1 to 3 spatial dimensions), max_pool, avg_pool,
/// reduce_*, pad, resize_nearest, gather, tile, slice, transpose, depth_to_space, space_to_depth, reshape (plain copy). Others abort the test
/// program.
void scalar_region(const region::Region& region, const region::Memory& memory);

/// Constants as kernels take them, where only their addresses are known: kernels do not look at sizes.
[[nodiscard]] inline std::vector<std::span<const std::byte>> packed_of(std::span<const std::byte* const> constants) {
  std::vector<std::span<const std::byte>> out;
  for (const std::byte* at : constants) out.emplace_back(at, std::size_t{0});
  return out;
}

/// One region, its buffers and its constants. Everything random comes from `seed`.
class Scene {
 public:
  explicit Scene(std::uint32_t seed) : seed_(seed), rng_(seed) { region_.stages.emplace_back(); }

  /// Its programs are marked, as a planner's are.
  region::Region& region();
  region::Stage& stage() { return region_.stages[0]; }
  region::Plan& plan() { return plan_; }
  /// The plan with buffers for what a tactic packed, which the region then names: what load checks sizes by.
  region::Plan with_packed(const std::vector<ir::Tensor>& packed);
  std::mt19937& rng() { return rng_; }
  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }

  /// A new buffer and a reference to all of it. `order`: dimensions from outermost to innermost in memory (empty: as given). `gap`:
  /// elements of other data after each innermost row (a slice of a wider tensor). Codes: half of them extremes. Floats: in [-scale,
  /// scale].
  region::TensorRef tensor(ir::DType dtype, ir::Shape dims, region::BufferKind kind = region::BufferKind::arena,
                           std::vector<int> order = {}, int gap = 0, float scale = 4.0F);
  /// NHWC strides for NCHW dims.
  region::TensorRef nhwc(ir::DType dtype, ir::Shape dims, region::BufferKind kind = region::BufferKind::arena, int gap = 0);
  /// A constant along one dimension of a space of `rank` dimensions.
  region::TensorRef along(ir::DType dtype, const ir::Shape& space, int axis, float scale = 1.0F);
  /// Constants with the given values, zero strides elsewhere.
  region::TensorRef constant_along(const std::vector<float>& values, const ir::Shape& space, int axis);
  region::TensorRef constant_along(const std::vector<std::int32_t>& values, const ir::Shape& space, int axis);

  /// An int8 epilogue for an integer accumulator: fma(float(acc), scale[c], bias[c]), / out scale, clamp, + zero point, stored as
  /// u8.
  void requantize(int channel_axis, float acc_scale, ir::DType out = ir::DType::u8);

  /// Runs the tactic of this provider alone and the brute force. Returns "" or the first difference with how to repeat it;
  /// "skip: ..." when the tactic was refused because of the instruction set. `tolerance` 0: every byte; else floats may differ by
  /// tolerance * (1 + |expected|), bfloat16 by one step more. `ignored`: a buffer whose contents do not matter, beside those that
  /// the tactic keeps from memory.
  std::string compare(const region::Provider& provider, const std::string& tactic, float tolerance = 0, int ignored = -1);
  std::uint32_t seed() const { return seed_; }
  /// A tactic for each stage: where there are some, `compare` takes what these give, one stage after the other, for what should have been written.
  std::vector<std::string> apart;
  std::map<std::string, std::string> parameters;  ///< put on the tactic that the provider offers

  std::vector<std::vector<std::byte>> memory;  ///< initial contents, with guards before and after

 private:
  [[nodiscard]] std::string run_apart(const region::Provider& provider, const region::Memory& at) const;
  [[nodiscard]] region::Memory addresses(std::vector<std::vector<std::byte>>& bytes) const;

  std::uint32_t seed_;
  std::mt19937 rng_;
  region::Region region_;
  region::Plan plan_;
};

}  // namespace octavo::testing

/// The string that Scene::compare gave: "" passes, "skip: ..." skips.
#define EXPECT_RUNS(expr)                                               \
  do {                                                                  \
    const std::string difference = (expr);                              \
    if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference; \
    ASSERT_EQ(difference, "");                                          \
  } while (false)
