// The code of a generated convolution, and all that it depends on. Emission is given these alone, so kernels for which they are equal can have one code: equal
// layers, and one layer for other numbers of pixels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/jit/conv_plan.h"
#include "cpu/jit/emitter.h"

namespace octavo::cpu::jit {

class Tiles;

/// Of a phase.
struct CodePhase {
  std::vector<std::int64_t> segments;  ///< Phase::segments
  std::int64_t quads = 0, steps = 0, depth = 0;
  std::int64_t pixel_bytes = 0;   ///< of tiles alone
  bool fetches = false;           ///< weights of blocks to come
  bool fetches_on_tiles = false;  ///< so many of them that tiles do, too
  bool behind = false;            ///< as many pixels as kPixelsBehind
  [[nodiscard]] std::int64_t all_quads() const { return static_cast<std::int64_t>(segments.size()) * quads; }
  bool operator==(const CodePhase&) const = default;

  [[nodiscard]] static CodePhase of(const ConvSetting& plan, const Phase& phase);
};

/// Of the whole convolution.
struct CodeSetting {
  Dots dots = Dots::vnni;
  bool starts_at_zero = false;  ///< ConvSetting::starts_at_zero
  bool vbmi = false;
  int lanes = 16;   ///< of the constants
  int columns = 1;  ///< of the pixel table
  bool operator==(const CodeSetting&) const = default;

  [[nodiscard]] static CodeSetting of(const ConvSetting& plan);
};

/// The function of one tile shape.
struct CodePiece {
  std::size_t phase = 0, form = 0;  ///< of TileCodeKey::phases and epilogues
  Tile tile;
  std::int64_t tiles = 0;  ///< about so many follow each other: the fewest that give the same code
  bool operator==(const CodePiece&) const = default;
};

/// What is generated, in order.
struct TileCodeKey {
  CodeSetting setting;
  const Tiles* instructions = nullptr;
  std::vector<CodePhase> phases;
  std::vector<LoweredEpilogue> epilogues;  ///< by form; empty ones are not used
  std::vector<CodePiece> pieces;
  bool operator==(const TileCodeKey&) const = default;

  /// A piece that may be there; its number. `count`: tiles of a block over a row tile.
  std::size_t add(CodePiece piece, std::int64_t count);
  [[nodiscard]] std::uint64_t hash() const;
};

/// Where each piece's function begins.
struct TileCode {
  Code code;
  std::vector<std::size_t> at;
};

/// The code, of the thread's shelf where there is one (cpu/code_shelf.h). Throws what Xbyak throws.
[[nodiscard]] std::shared_ptr<const TileCode> tile_code(const TileCodeKey& key);

}  // namespace octavo::cpu::jit
