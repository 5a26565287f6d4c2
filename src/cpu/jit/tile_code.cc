#include "cpu/jit/tile_code.h"

#include <algorithm>

#include "cpu/code_shelf.h"
#include "cpu/jit/amx_code.h"
#include "cpu/jit/conv_code.h"

namespace octavo::cpu::jit {

CodePhase CodePhase::of(const ConvSetting& plan, const Phase& phase) {
  CodePhase out{.segments = phase.segments, .quads = phase.quads, .steps = phase.steps, .depth = phase.depth};
  out.fetches = phase.ahead > 0;
  out.behind = phase.pixels >= kPixelsBehind;
  if (on_tiles(plan.dots)) {
    out.pixel_bytes = phase.pixel_bytes();
    out.fetches_on_tiles = phase.ahead > 0 && plan.weight_bytes > kNearBytes && phase.blocks.size() > 1;
  }
  return out;
}

CodeSetting CodeSetting::of(const ConvSetting& plan) {
  return {plan.dots, plan.starts_at_zero(), plan.options.vbmi, plan.epilogue.lanes, plan.epilogue.columns};
}

std::size_t TileCodeKey::add(CodePiece piece, std::int64_t count) {
  // Pieces of one shape are one function, whose number of tiles is that of the first.
  const auto same = std::find_if(pieces.begin(), pieces.end(), [&](const CodePiece& p) {
    return p.phase == piece.phase && p.form == piece.form && p.tile == piece.tile;
  });
  if (same != pieces.end()) return static_cast<std::size_t>(same - pieces.begin());
  const CodePhase& phase = phases[piece.phase];
  piece.tiles = on_tiles(setting.dots) ? fewest_amx_tiles(phase, piece.tile, count) : fewest_conv_tiles(phase, piece.tile, count);
  pieces.push_back(piece);
  return pieces.size() - 1;
}

std::uint64_t TileCodeKey::hash() const {
  std::uint64_t h = 14695981039346656037U;
  const auto add = [&](auto v) { h = (h ^ static_cast<std::uint64_t>(v)) * 1099511628211U; };
  add(setting.dots), add(setting.columns);
  for (const CodePhase& p : phases) {
    add(p.quads), add(p.depth);
    for (const std::int64_t s : p.segments) add(s);
  }
  for (const LoweredEpilogue& e : epilogues) {
    for (const Instr& i : e.code) add(i.op), add(i.imm);
  }
  for (const CodePiece& p : pieces) add(p.form), add(p.tile.pixels), add(p.tile.vectors), add(p.tile.tail), add(p.tiles);
  return h;
}

std::shared_ptr<const TileCode> tile_code(const TileCodeKey& key) {
  const auto make = [&]() -> std::shared_ptr<const TileCode> {
    auto out = std::make_shared<TileCode>();
    ConstantPool pool(out->code, key.setting.lanes);
    for (const CodePiece& p : key.pieces) {
      const CodePhase& phase = key.phases[p.phase];
      const LoweredEpilogue& epilogue = key.epilogues[p.form];
      out->at.push_back(on_tiles(key.setting.dots)
                            ? emit_amx_tile(out->code, pool, key.setting, epilogue, phase, p.tile, *key.instructions, p.tiles)
                            : emit_conv_tile(out->code, pool, key.setting, epilogue, phase, p.tile, p.tiles));
    }
    pool.emit();
    out->code.finish();
    return out;
  };
  CodeShelf* const shelf = ShelfScope::shelf();
  return shelf == nullptr ? make() : shelf->get(key, key.hash(), make);
}

}  // namespace octavo::cpu::jit
