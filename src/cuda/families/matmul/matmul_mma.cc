#include "cuda/families/matmul/matmul_mma.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "cuda/cost_model.h"
#include "cuda/text/pieces.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kSplit =
#include "cuda/text/split.inc"
    ;
constexpr std::string_view kColumns =
#include "cuda/families/matmul/matmul_columns.inc"
    ;
constexpr std::string_view kLoad =
#include "cuda/families/matmul/matmul_load.inc"
    ;
constexpr std::string_view kStep =
#include "cuda/families/matmul/matmul_step.inc"
    ;
constexpr std::string_view kText =
#include "cuda/families/matmul/matmul.inc"
    ;

std::string_view name_of(ProductType t) {
  switch (t) {
    case ProductType::u8: return "u8";
    case ProductType::bf16: return "bf16";
    case ProductType::f16: return "f16";
    case ProductType::tf32: return "tf32";
    default: return "f32";
  }
}

std::int64_t shared_bytes(const MatmulTile& t) {
  return std::int64_t{t.stages} * (t.m + t.n) * t.k;
}
int threads_of(const MatmulTile& t) {
  return 32 * t.warps_m * t.warps_n;
}
std::int64_t tiles_of(const ProductShape& s, const MatmulTile& t) {
  return parts(s.m(), t.m) * parts(s.n(), t.n) * s.batch();
}

/// Empty, or why the tile does not fit.
Reasons why_not_tile(const MatmulTile& t, const Target& target) {
  const auto power = [](int v) { return v >= 16 && v <= 256 && (v & (v - 1)) == 0; };
  if (!power(t.m) || !power(t.n)) return unmet("tile", fmt::format("{}x{}", t.m, t.n), "powers of two from 16 to 256");
  if (t.m % (16 * t.warps_m) != 0 || t.n % (16 * t.warps_n) != 0)
    return unmet("tile", fmt::format("{}x{} for {}x{} warps", t.m, t.n, t.warps_m, t.warps_n), "a multiple of 16x16 a warp");
  const int columns = t.n / t.warps_n;
  if (columns != 16 && columns != 32 && columns != 64) return unmet("columns a warp", columns, "16, 32 or 64");
  if (t.k != 32 && t.k != 64 && t.k != 128) return unmet("bytes a step", t.k, "32, 64 or 128");
  if (const int sums = t.m * t.n / threads_of(t); sums > 128) return unmet("sums a thread", sums, "at most 128");
  if (threads_of(t) > 1024 || t.blocks < 1 || t.stages < 2 || t.stages > 8)
    return unmet("threads, blocks, stages", fmt::format("{}, {}, {}", threads_of(t), t.blocks, t.stages),
                 "at most 1024, at least 1, 2 to 8");
  return why_not_shared(shared_bytes(t), t.blocks, target);
}

std::string define(const ProductShape& s, const MatmulTile& t) {
  std::string out = fmt::format("typedef {} octavo_offset;\n", s.wide_offsets() ? "long long" : "int") +
                    declare({{"kM", s.m()},
                             {"kN", s.n()},
                             {"kDepth", s.depth_bytes()},
                             {"kSize", bytes_of(s.type)},
                             {"kInner", s.inner},
                             {"kTileM", t.m},
                             {"kTileN", t.n},
                             {"kTileK", t.k},
                             {"kWarpsM", t.warps_m},
                             {"kWarpsN", t.warps_n},
                             {"kStages", t.stages},
                             {"kBlocksPerProcessor", t.blocks},
                             {"kZeroLeft", s.a.zero},
                             {"kZeroRight", s.b.zero}});
  out += fmt::format("constexpr long long kLeftOuter = {}, kLeftInner = {}, kRightOuter = {}, kRightInner = {};\n", s.a.outer,
                     s.a.inner, s.b.outer, s.b.inner);
  out += fmt::format("constexpr unsigned kFlipLeft = {}, kFlipRight = {};\n", s.a.flipped ? "0x80808080u" : "0u",
                     s.b.flipped ? "0x80808080u" : "0u");
  out += fmt::format("constexpr bool kTotalRows = {}, kTotalColumns = {}, kRounded = {};\n", s.b.zero != 0, s.a.zero != 0,
                     s.type == ProductType::tf32);
  const bool codes = s.type == ProductType::u8;
  const std::string product =
      codes ? fmt::format("{}{}", s.a.flipped ? "s8" : "u8", s.b.flipped ? "s8" : "u8") : std::string(name_of(s.type));
  out += fmt::format("#define OCTAVO_SPLIT {}\n#define OCTAVO_CODES {}\n", s.type == ProductType::f32 ? 1 : 0, codes ? 1 : 0);
  return out + fmt::format("#define OCTAVO_PRODUCT octavo_mma_{}\ntypedef {} octavo_sum;\n", product, codes ? "int" : "float");
}

/// What a multiprocessor of an H100 does in a clock, for an estimate.
double seconds_of(const ProductShape& s, const MatmulTile& t, const Target& target) {
  constexpr double kEpilogue = 20.0 / 128, kByteOfWord = 2.0 / 128;
  const auto tiles = static_cast<double>(tiles_of(s, t));
  const double depth = static_cast<double>(parts(s.depth_bytes(), t.k)) * t.k, m = t.m, n = t.n;
  const double warp_m = m / t.warps_m, warp_n = n / t.warps_n;
  const double times = s.type == ProductType::f32 ? 5 : 1;
  const double products = times * cost::product_clocks(m, depth, n, warp_m, warp_n, 1.3);
  double copied = depth * (m + n) / cost::kBytesFromL2;
  for (const ProductSide* side : {&s.a, &s.b}) {
    const double bytes = depth * (side == &s.a ? m : n);
    if (side->way != Way::copied) copied += bytes * kByteOfWord * (side->unit == 1 ? 8 : 1);
    if (side->way == Way::copied && side->unit < 16) copied += bytes / side->unit / 16;
  }
  const double program = m * n * kEpilogue;
  const double at_once = std::min<double>(tiles, static_cast<double>(target.multiprocessors) * t.blocks);
  const double rounds = std::ceil(tiles / (static_cast<double>(target.multiprocessors) * t.blocks));
  const double shared_by = std::max(1.0, at_once / target.multiprocessors);  // blocks of one multiprocessor
  const double latency = 1500 + 250.0 * depth / t.k / (t.stages - 1);
  const double one = std::max((std::max(products, copied) + program) * shared_by, products + program + latency);
  double bytes = 0;
  for (const region::TensorRef* r : {&s.a.ref, &s.b.ref}) bytes += static_cast<double>(region::tensor_bytes(*r));
  for (const region::TensorRef& r : s.tail.stores) bytes += static_cast<double>(region::tensor_bytes(r));
  return std::max(rounds * one / cost::kClock, bytes / cost::kMemory) + cost::kStart;
}

class MatmulMma final : public FamilyOf<ProductShape, MatmulTile> {
 public:
  explicit MatmulMma(ProductType type) : type_(type), name_(fmt::format("matmul.{}.mma", cuda::name_of(type))) {}
  std::string_view name() const override { return name_; }
  int version() const override { return type_ == ProductType::f16 || type_ == ProductType::bf16 ? 2 : 1; }
  bool about(const region::Region& r) const override { return r.stages.size() == 1 && product_type(r.stages[0]) == type_; }
  Result<ProductShape> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    if (type_ != ProductType::u8 && type_ != ProductType::f16) {
      if (auto why = why_no_wide_products(target); !why.empty()) return refuse(std::move(why));
    }
    OCTAVO_TRY(ProductShape s, read_product(only(r), plan, type_));
    if (auto why = emit_epilogue(s.tail, epilogue_shape(s, {}), 0).refusal; !why.empty()) return refuse(std::move(why));
    return s;
  }
  std::vector<Choice<MatmulTile>> tactics(const ProductShape& s, const Target& target) const override {
    static constexpr std::array<std::array<int, 5>, 19> kBases{{{128, 128, 2, 4, 1},
                                                                {128, 128, 2, 2, 1},
                                                                {128, 64, 4, 1, 2},
                                                                {128, 64, 2, 2, 2},
                                                                {64, 128, 2, 2, 2},
                                                                {64, 64, 2, 2, 4},
                                                                {64, 64, 4, 1, 4},
                                                                {128, 32, 4, 1, 4},
                                                                {64, 32, 4, 1, 6},
                                                                {32, 64, 2, 2, 6},
                                                                {32, 128, 1, 4, 4},
                                                                {32, 32, 2, 1, 8},
                                                                {16, 64, 1, 4, 6},
                                                                {16, 128, 1, 4, 4},
                                                                {16, 32, 1, 2, 8},
                                                                {128, 16, 4, 1, 4},
                                                                {64, 16, 4, 1, 6},
                                                                {32, 16, 2, 1, 8},
                                                                {16, 16, 1, 1, 8}}};
    std::vector<Choice<MatmulTile>> out;
    for (const auto& [m, n, warps_m, warps_n, blocks] : kBases) {
      if ((m > 16 && m >= 2 * s.m()) || (n > 16 && n >= 2 * s.n())) continue;
      for (const int k : {32, 64, 128}) {
        if (k > 32 && k >= 2 * s.depth_bytes()) continue;
        if (k == 32 && s.depth_bytes() >= 128) continue;
        for (const int stages : {2, 3, 4}) {
          if (stages > 2 && parts(s.depth_bytes(), k) < stages) continue;
          MatmulTile t{m, n, k, warps_m, warps_n, stages, blocks};
          while (t.blocks > 1 && !why_not_tile(t, target).empty()) --t.blocks;
          if (why_not_tile(t, target).empty()) out.push_back({t, seconds_of(s, t, target)});
        }
      }
    }
    put_in_order(out, [](const MatmulTile& t) { return std::array{t.m, t.n, t.k}; });
    return out;
  }
  Result<KernelText> emit(const ProductShape& s, const MatmulTile& tile, const Target& target) const override {
    if (auto why = why_not_tile(tile, target); !why.empty()) return refuse(std::move(why));
    const std::int64_t tiles = tiles_of(s, tile);
    if (tiles > INT32_MAX) return refuse("tiles", tiles, "less than 2^31");
    const EpilogueShape shape = epilogue_shape(s, tile);
    const EmittedEpilogue e = emit_epilogue(s.tail, shape, shape.padded_channels * 4);
    if (!e.refusal.empty()) return refuse(e.refusal);

    KernelText out;
    Launch launch = launch_of("octavo_matmul", tiles, threads_of(tile), shared_bytes(tile));
    if (s.batch() > 1)
      launch.counted = {s.batch(), 1, tiles / s.batch()};
    else if (s.swapped)
      launch.counted = {s.n(), tile.n, 1, "octavo_block() % kTilesN"};
    else
      launch.counted = {s.m(), tile.m, parts(s.n(), tile.n)};
    for (const ProductSide* side : {&s.a, &s.b})
      launch.arguments.push_back({Argument::Kind::buffer, side->ref.buffer, side->ref.offset});
    launch.arguments.push_back({Argument::Kind::constant, 0, 0});
    launch.arguments.insert(launch.arguments.end(), e.arguments.begin(), e.arguments.end());
    const std::vector<std::int32_t> start(static_cast<std::size_t>(s.n()),
                                          s.type == ProductType::u8 ? sums_begin_with(s.a, s.b, s.k, tile.k) : 0);
    out.constants.push_back(constants_with_start(start, e, shape.padded_channels));
    std::string text = std::string(kStep) + std::string(kText);
    replace_mark(text, "@PARAMETERS@",
                 "const unsigned char* left, const unsigned char* right, const unsigned char* constants" + e.parameters);
    replace_mark(text, "@POINTERS@", e.pointers);
    out.text = define(s, tile) + e.text + side_text("OctavoLeft", s.a, "kTileM", "kM", false) +
               side_text("OctavoRight", s.b, "kTileN", "kN", true) + load_text() +
               (type_ == ProductType::f32 ? std::string(kSplit) : "") + text;
    out.launches.push_back(std::move(launch));
    return out;
  }

 private:
  static EpilogueShape epilogue_shape(const ProductShape& s, const MatmulTile& t) {
    EpilogueShape e;
    e.rows = t.m / t.warps_m / 8, e.run = std::min(16, t.n / t.warps_n / 4);
    e.piece = piece_for(s.tail, e.run);
    e.padded_channels = parts(s.n(), t.n) * t.n;
    e.takes_bias = s.type == ProductType::u8, e.threads = threads_of(t), e.real = s.type != ProductType::u8;
    if (s.type == ProductType::u8) {
      e.accumulator = std::min(static_cast<double>(s.k) * s.a.largest() * s.b.largest(), 2147483648.0);
    }
    return e;
  }

  ProductType type_;
  std::string name_;
};

}  // namespace

std::int32_t sums_begin_with(const ProductSide& a, const ProductSide& b, std::int64_t k, std::int64_t step) {
  const std::int64_t padding = parts(k, step) * step - k;                        // zeros behind the depth, of either side
  const std::int64_t left = a.flipped ? -128 : 0, right = b.flipped ? -128 : 0;  // what they are multiplied as
  return static_cast<std::int32_t>(
      static_cast<std::uint64_t>(k * a.zero * b.zero - padding * left * right + padding * (a.zero * right + b.zero * left)));
}

std::string side_text(const char* name, const ProductSide& s, const char* tile, const char* count, bool permuted) {
  return fmt::format(
      "struct {} {{\n  static constexpr int kTile = {}, kCount = {}, kWay = {}, kUnit = {};\n  static constexpr octavo_offset kRow "
      "= {}, kStep = {};\n"
      "  static constexpr bool kPermuted = {};\n}};\n",
      name, tile, count, static_cast<int>(s.way), s.unit, s.row, s.depth, permuted);
}

std::string_view columns_text() {
  return kColumns;
}
std::string load_text() {
  return std::string(kColumns) + std::string(kLoad);
}
std::string_view step_text() {
  return kStep;
}

OCTAVO_DEFINE_FAMILY(matmul_u8, MatmulMma, ProductType::u8)
OCTAVO_DEFINE_FAMILY(matmul_bf16, MatmulMma, ProductType::bf16)
OCTAVO_DEFINE_FAMILY(matmul_f16, MatmulMma, ProductType::f16)
OCTAVO_DEFINE_FAMILY(matmul_tf32, MatmulMma, ProductType::tf32)
OCTAVO_DEFINE_FAMILY(matmul_f32, MatmulMma, ProductType::f32)

const Family& matmul_mma_family(ProductType type) {
  switch (type) {
    case ProductType::u8: return matmul_u8_family();
    case ProductType::bf16: return matmul_bf16_family();
    case ProductType::f16: return matmul_f16_family();
    case ProductType::tf32: return matmul_tf32_family();
    default: return matmul_f32_family();
  }
}

}  // namespace octavo::cuda
