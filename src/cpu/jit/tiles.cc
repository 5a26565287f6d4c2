#include "cpu/jit/tiles.h"

namespace octavo::cpu::jit {

using Xbyak::Reg64;
using Xbyak::Tmm;

TileConfig TileConfig::of(int pixels, int depth) {
  TileConfig c;
  for (std::size_t t = 0; t < 8; ++t) {
    c.rows[t] = static_cast<std::uint8_t>(t < 6 ? pixels : depth / 4);
    c.row_bytes[t] = static_cast<std::uint16_t>(t == 4 || t == 5 ? depth : 64);
  }
  return c;
}

void Tiles::zero(Code& c, int tile) const {
  c.tilezero(Tmm(tile));
}
void Tiles::load(Code& c, int tile, const Reg64& base, const Reg64& stride, int displacement) const {
  c.tileloadd(Tmm(tile), c.ptr[base + stride + displacement]);
}
void Tiles::store(Code& c, int tile, const Reg64& base, const Reg64& stride, int displacement) const {
  c.tilestored(c.ptr[base + stride + displacement], Tmm(tile));
}
void Tiles::dot(Code& c, int sums, int pixels, int weights) const {
  c.tdpbusd(Tmm(sums), Tmm(pixels), Tmm(weights));
}
void Tiles::dot_bf16(Code& c, int sums, int pixels, int weights) const {
  c.tdpbf16ps(Tmm(sums), Tmm(pixels), Tmm(weights));
}
void Tiles::configure(const TileConfig& config) const {
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}
void Tiles::release() const {
  __asm__ volatile("tilerelease");
}

const Tiles& Tiles::native() {
  static const Tiles tiles;
  return tiles;
}

}  // namespace octavo::cpu::jit
