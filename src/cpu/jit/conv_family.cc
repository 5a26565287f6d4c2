// The generated convolutions: one generator (conv.h), a row for each kind of products and each operator.
#include <algorithm>

#include "cpu/jit/conv.h"
#include "cpu/jit/generated_family.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace jit {
namespace {

struct ConvFamilyKind {
  std::string_view name;
  ir::Op op;
  Dots dots;
  int lanes;
  std::array<Isa, 1> level;
  [[nodiscard]] bool transposed() const { return op == ir::Op::conv_transpose; }
};
constexpr auto kConv = ir::Op::conv, kTransposed = ir::Op::conv_transpose;
constexpr std::array kConvFamilyKinds{
    ConvFamilyKind{"conv.f32.avx512.jit", kConv, Dots::floats, 16, {Isa::avx512}},
    ConvFamilyKind{"conv_transpose.f32.avx512.jit", kTransposed, Dots::floats, 16, {Isa::avx512}},
    ConvFamilyKind{"conv.f32.avx2.jit", kConv, Dots::floats, 8, {Isa::avx2}},
    ConvFamilyKind{"conv_transpose.f32.avx2.jit", kTransposed, Dots::floats, 8, {Isa::avx2}},
    ConvFamilyKind{"conv.bf16.avx512bf16.jit", kConv, Dots::bf16, 16, {Isa::avx512vnni}},
    ConvFamilyKind{"conv_transpose.bf16.avx512bf16.jit", kTransposed, Dots::bf16, 16, {Isa::avx512vnni}},
    ConvFamilyKind{"conv.bf16.amx", kConv, Dots::bf16_tiles, 16, {Isa::amx}},
    ConvFamilyKind{"conv_transpose.bf16.amx", kTransposed, Dots::bf16_tiles, 16, {Isa::amx}},
    ConvFamilyKind{"conv.u8s8.avx512vnni.jit", kConv, Dots::vnni, 16, {Isa::avx512vnni}},
    ConvFamilyKind{"conv_transpose.u8s8.avx512vnni.jit", kTransposed, Dots::vnni, 16, {Isa::avx512vnni}},
    ConvFamilyKind{"conv.u8s8.avx2.jit", kConv, Dots::pairs, 8, {Isa::avx2}},
    ConvFamilyKind{"conv_transpose.u8s8.avx2.jit", kTransposed, Dots::pairs, 8, {Isa::avx2}},
    ConvFamilyKind{"conv.u8s8.amx", kConv, Dots::amx, 16, {Isa::amx}},
    ConvFamilyKind{"conv_transpose.u8s8.amx", kTransposed, Dots::amx, 16, {Isa::amx}}};

/// What could be done otherwise than the estimates have it.
std::vector<Parameters> variants_of(const ConvSetting& usual) {
  if (usual.phases.empty()) return {};
  const Phase& ph = usual.phases.front();
  Variants out(usual.options);
  if (!on_tiles(usual.dots) && usual.dots != Dots::vnni) {
    const int lanes = usual.epilogue.lanes;
    for (const int vectors : {1, 2, 3, 4}) {
      if (vectors < (lanes == 16 ? 2 : 1) || vectors > (lanes == 16 ? 4 : 3)) continue;
      if (vectors <= ceil_div(usual.oc, lanes) && vectors != ph.blocks.front().vectors)
        out.add([&](CodeOptions& t) { t.vectors = vectors; });
    }
  }
  if (!on_tiles(usual.dots)) {
    const int most = most_pixels(ph.blocks.front().vectors, ph.all_quads(), usual.epilogue);
    for (const int pixels : {most - 1, most - 2, most / 2}) {
      if (pixels >= 2) out.add([&](CodeOptions& t) { t.pixels = pixels; });
    }
  }
  for (const std::int64_t row_tiles : {ph.row_tiles / 2, ph.row_tiles * 2}) {
    if (row_tiles >= 1 && row_tiles != ph.row_tiles && row_tiles <= ph.rows)
      out.add([&](CodeOptions& t) { t.row_tiles = row_tiles; });
  }
  if (ph.parts > 1 && ph.row_tiles > 1) out.add([&](CodeOptions& t) { t.blocks_first = ph.parts_first ? 0 : 1; });
  if (ph.blocks.size() > 1) {  // of one block nothing is fetched
    for (const int blocks : {0, 2}) out.add([&](CodeOptions& t) { t.prefetch = blocks; });
  }
  return out.take();
}

class ConvFamily final : public GeneratedFamily<ConvSetting> {
 public:
  explicit ConvFamily(const ConvFamilyKind& kind)
      : GeneratedFamily({.name = kind.name,
                         .levels = kind.level,
                         .required = capabilities_of(kind.dots),
                         .parameters = kCodeParameters,
                         .rank = 0,
                         .stores_in_place = !kind.transposed()},
                        kind.lanes),
        kind_(kind) {}
  bool about(const Region& r) const override {
    return is_one(r, kind_.op) && (!of_floats(kind_.dots) || takes_floats(only(r), kind_.dots));
  }
  Match<ConvSetting> match(const Request& q) const override { return match_conv(q.region, q.plan, options_of(q), kind_.dots); }
  Parameters parameters(const ConvSetting& conv, const Parameters& given) const override {
    return with_effect(given, conv.curve || !conv.epilogue.tables.empty(), conv.divides && !on_tiles(conv.dots));
  }
  std::vector<Parameters> variants(const ConvSetting& conv) const override {
    return kind_.transposed() ? std::vector<Parameters>{} : variants_of(conv);
  }
  std::vector<std::int64_t> packed_bytes(const ConvSetting& conv) const override { return jit::packed_bytes(conv); }
  Result<std::vector<ir::Tensor>> pack(const ConvSetting& conv) const override { return pack_conv(conv); }
  std::optional<std::string> layout(const ConvSetting& conv) const override { return layout_of(conv); }
  Result<std::unique_ptr<Kernel>> load(ConvSetting conv, Packed packed) const override {
    return load_conv(std::move(conv), packed);
  }

 private:
  const ConvFamilyKind& kind_;
};

}  // namespace
}  // namespace jit

OCTAVO_DEFINE_FAMILIES(generated_conv, jit::ConvFamily, jit::kConvFamilyKinds)

}  // namespace octavo::cpu
