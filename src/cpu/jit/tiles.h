// AMX tile instructions, as the generator emits them: eight tiles of up to 16 rows of 64 bytes.
#pragma once

#include <array>
#include <cstdint>

#include "cpu/jit/emitter.h"

namespace octavo::cpu::jit {

/// What ldtilecfg reads (palette 1). How generated convolutions use the tiles: 0..3 sums of 16 channels (two blocks of pixels by
/// two vectors), 4 and 5 pixels, 6 and 7 weights.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0;
  std::array<std::uint8_t, 14> reserved{};
  std::array<std::uint16_t, 16> row_bytes{};
  std::array<std::uint8_t, 16> rows{};

  /// `pixels` rows a tile, `depth` bytes of reduction (a multiple of 4, at most 64).
  static TileConfig of(int pixels, int depth);
  bool operator==(const TileConfig& o) const = default;
};
static_assert(sizeof(TileConfig) == 64);

/// The instructions of this processor. Tests put an emulation in their place: it changes no register or flag.
class Tiles {
 public:
  virtual ~Tiles() = default;
  virtual void zero(Code& c, int tile) const;
  /// Rows at base + displacement, `stride` bytes apart. A row that crosses a cache line costs 3.3 clocks instead of half of one.
  virtual void load(Code& c, int tile, const Xbyak::Reg64& base, const Xbyak::Reg64& stride, int displacement) const;
  virtual void store(Code& c, int tile, const Xbyak::Reg64& base, const Xbyak::Reg64& stride, int displacement) const;
  /// sums += pixels (u8) * weights (s8), 32 bits, wrapping.
  virtual void dot(Code& c, int sums, int pixels, int weights) const;
  /// sums (f32) += pixels * weights, pairs of bfloat16; what is less than the least normal number counts as 0.
  virtual void dot_bf16(Code& c, int sums, int pixels, int weights) const;
  /// For the calling thread. Some 225 clocks.
  virtual void configure(const TileConfig& config) const;
  virtual void release() const;

  static const Tiles& native();
};

}  // namespace octavo::cpu::jit
