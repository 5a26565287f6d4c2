// Placement fuzzing: random small quantized networks, the same network with its Q/DQ placed otherwise, and changes of meaning.
//
// Typical use (also for whole pipelines):
//   const ir::Graph original = random_network(seed);             // evaluate(original) is the truth
//   const ir::Graph placed = place_otherwise(original, seed, 12, counts);
//   EXPECT_EQ(hash(pipeline(placed)), hash(pipeline(original)));  // and equal outputs on seeded_feeds(original, seed)
//   const auto changed = change_meaning(original, Change::scale_ulp, seed);
//   EXPECT_NE(hash(pipeline(*changed)), hash(pipeline(original)));
// Everything is determined by the seed. Graphs are what the importer makes: `quantize` and `dequantize` nodes and constants, no
// views.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ir/graph.h"

namespace octavo::testing {

struct NetworkOptions {
  int min_blocks = 3, max_blocks = 9;
  bool rare_moves = true;       ///< gather_nd, tile, where, ... (planners may want networks of ordinary layers)
  bool half_arithmetic = true;  ///< some networks divide and multiply by their scales in float16 or bfloat16
  bool typed_edges = true;      ///< 8-bit network inputs and outputs
  bool shuffles = false;        ///< some splits are ShuffleNet units (other networks of the same seeds)
  bool reinterpret = true;      ///< quantize and dequantize with unequal parameters, double rounding
};
/// A network of 3 to 9 blocks over tensors of at most some 200 elements: convolutions (ordinary, 1x1, depthwise, grouped, strided,
/// dilated, transposed) with per-tensor or per-channel weights and no, float or s32 bias; gemm; residual adds and concats with
/// equal, unequal or partial labels; splits; pools; nearest and linear resizing; relu, clip, leaky relu, silu, hard swish, sigmoid;
/// squeeze-excite; moving operators; shared values and several outputs. Weights are coded constants, activations quantize +
/// dequantize pairs. Passes ir::verify. Values stay finite for seeded_feeds.
[[nodiscard]] ir::Graph random_network(std::uint64_t seed, const NetworkOptions& options = {});

/// A quantizer in float16 or bfloat16 whose codes do not all come back (quotients round to the next one): laws that put a view
/// before a quantize would change the result there, so such a network may keep more than one normal form.
[[nodiscard]] bool has_loose_codes(const ir::Graph& g);

/// How often each way of re-placing was used: "double pair", "pair below concat", ...
using PlacementCounts = std::map<std::string, int>;

/// The same meaning written otherwise: `steps` random uses of the laws in both directions (pairs moved above and below operators,
/// doubled, split by consumer; u8 and s8 spelling, per-axis spelling; weights as codes + dequantize or floats + pair, transposed;
/// relu and clip that do nothing; operands swapped), then other names and another node order. Inputs, outputs and their types stay.
/// Written without the rules under test.
[[nodiscard]] ir::Graph place_otherwise(const ir::Graph& g, std::uint64_t seed, int steps, PlacementCounts& counts);

/// A change of meaning that a normal form must not lose.
enum class Change { scale_ulp, zero_point, weight_code, pad };
inline constexpr Change kChanges[] = {Change::scale_ulp, Change::zero_point, Change::weight_code, Change::pad};
[[nodiscard]] std::string name_of(Change change);
/// nullopt if the graph has nothing to change that way.
[[nodiscard]] std::optional<ir::Graph> change_meaning(const ir::Graph& g, Change change, std::uint64_t seed);

/// A copy with the nodes added in a random order (producers first) and all value names but those of inputs replaced.
[[nodiscard]] ir::Graph shuffled(const ir::Graph& g, std::uint64_t seed);

}  // namespace octavo::testing
