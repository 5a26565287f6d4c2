#include "cpu/amx_emulated.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "cpu/isa.h"
#include "cpu/jit/conv.h"
#include "cpu/scalar_region.h"

namespace octavo::testing {
namespace {

using cpu::jit::Code;
using cpu::jit::ConvSetting;
using cpu::jit::Dots;
using cpu::jit::TileConfig;
using region::Offer;
using region::Plan;
using region::Region;
using Xbyak::Reg64;

constexpr std::string_view kConv = "cpu.conv.u8s8.amx", kTransposed = "cpu.conv_transpose.u8s8.amx";

struct TileFile {
  std::optional<TileConfig> config;
  std::uint8_t tile[8][16][64] = {};
  TileCounts counts;
};
thread_local TileFile file;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "emulated AMX: %s\n", what);
  std::abort();
}

enum Op : std::int64_t { zero, load, store, dot };

/// As pushed by the generated code, lowest address first.
struct Request {
  std::int64_t operation;  ///< Op | tile << 8 | second << 16 | third << 24
  std::int64_t displacement, stride;
  std::byte* base;
};

void perform(const Request* r) {
  require(file.config.has_value(), "no configuration");
  const TileConfig& config = *file.config;
  const auto operand = [&](int i) { return static_cast<std::size_t>((r->operation >> (8 * i)) & 7); };
  const std::size_t t = operand(1);
  const std::size_t rows = config.rows[t], bytes = config.row_bytes[t];
  require(rows >= 1 && rows <= 16 && bytes >= 1 && bytes <= 64, "an operand is not configured");
  auto& tile = file.tile[t];
  const auto row = [&](std::size_t i) { return r->base + r->displacement + static_cast<std::int64_t>(i) * r->stride; };
  switch (r->operation & 255) {
    case zero: std::memset(tile, 0, sizeof tile); break;
    case load:
      std::memset(tile, 0, sizeof tile);
      ++file.counts.loads;
      for (std::size_t i = 0; i < rows; ++i) {
        std::memcpy(tile[i], row(i), bytes);
        if (reinterpret_cast<std::uintptr_t>(row(i)) % 64 + bytes > 64) ++file.counts.split_rows;
      }
      break;
    case store:
      for (std::size_t i = 0; i < rows; ++i) std::memcpy(row(i), tile[i], bytes);
      break;
    default: {
      const std::size_t a = operand(2), b = operand(3);
      require(t != a && t != b && a != b, "operands are not three tiles");
      require(config.rows[a] == rows && config.row_bytes[b] == bytes, "sums do not fit the operands");
      require(config.row_bytes[a] == config.rows[b] * 4 && bytes % 4 == 0, "the operands' depths differ");
      ++file.counts.dots;
      for (std::size_t m = 0; m < rows; ++m) {
        std::array<std::uint32_t, 16> sum{};
        std::memcpy(sum.data(), tile[m], 64);
        for (std::size_t k = 0; k < config.rows[b]; ++k) {
          for (std::size_t n = 0; n < bytes / 4; ++n) {
            for (std::size_t i = 0; i < 4; ++i) {
              const auto weight = static_cast<std::int8_t>(file.tile[b][k][4 * n + i]);
              sum[n] += static_cast<std::uint32_t>(static_cast<std::int32_t>(file.tile[a][m][4 * k + i]) * weight);
            }
          }
        }
        std::memset(tile[m], 0, 64);
        std::memcpy(tile[m], sum.data(), bytes);
      }
      for (std::size_t m = rows; m < 16; ++m) std::memset(tile[m], 0, 64);
    }
  }
}

/// Saves every register, runs perform() on the request above the return address, restores.
class Stub {
 public:
  Stub() {
    using namespace Xbyak::util;
    auto& c = code_;
    const std::array saved{rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15};
    c.pushfq();
    for (const auto& r : saved) c.push(r);
    c.lea(rdi, c.ptr[rsp + 8 * 17]);  // saved registers, flags, return address
    c.mov(rbp, rsp);
    c.sub(rsp, 32 * 64 + 64);
    c.and_(rsp, -64);
    for (int i = 0; i < 32; ++i) c.vmovups(c.ptr[rsp + i * 64], Xbyak::Zmm(i));
    for (int i = 0; i < 8; ++i) c.kmovq(c.ptr[rsp + 2048 + i * 8], Xbyak::Opmask(i));
    c.mov(rax, reinterpret_cast<std::uintptr_t>(&perform));
    c.call(rax);
    for (int i = 0; i < 32; ++i) c.vmovups(Xbyak::Zmm(i), c.ptr[rsp + i * 64]);
    for (int i = 0; i < 8; ++i) c.kmovq(Xbyak::Opmask(i), c.ptr[rsp + 2048 + i * 8]);
    c.mov(rsp, rbp);
    for (auto r = saved.rbegin(); r != saved.rend(); ++r) c.pop(*r);
    c.popfq();
    c.ret();
    c.ready(Xbyak::CodeArray::PROTECT_RE);
  }
  [[nodiscard]] std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(code_.getCode()); }

 private:
  Code code_;
};

class EmulatedTiles final : public cpu::jit::Tiles {
 public:
  void zero(Code& c, int tile) const override { call(c, Op::zero | tile << 8, c.rax, c.rax, 0); }
  void load(Code& c, int tile, const Reg64& base, const Reg64& stride, int displacement) const override {
    call(c, Op::load | tile << 8, base, stride, displacement);
  }
  void store(Code& c, int tile, const Reg64& base, const Reg64& stride, int displacement) const override {
    call(c, Op::store | tile << 8, base, stride, displacement);
  }
  void dot(Code& c, int sums, int pixels, int weights) const override {
    call(c, Op::dot | sums << 8 | pixels << 16 | weights << 24, c.rax, c.rax, 0);
  }
  void configure(const TileConfig& config) const override {
    require(config.palette == 1 && config.start_row == 0, "palette");
    std::memset(file.tile, 0, sizeof file.tile);
    ++file.counts.configures;
    file.config = config;
  }
  void release() const override { file.config.reset(); }

 private:
  static void call(Code& c, std::int64_t operation, const Reg64& base, const Reg64& stride, int displacement) {
    static const Stub stub;
    c.push(c.rax);
    c.push(base);
    c.push(stride);
    c.push(displacement);
    c.push(static_cast<std::uint32_t>(operation));
    c.mov(c.rax, stub.address());
    c.call(c.rax);
    c.lea(c.rsp, c.ptr[c.rsp + 32]);
    c.pop(c.rax);
  }
};

/// The provider's tactics, computed on emulated tiles: offered as if the processor had them.
class Provider final : public region::Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }

  [[nodiscard]] std::vector<Offer> offers(const Region& region, const Plan& plan) const override {
    std::vector<Offer> out;
    for (const auto tactic : {kConv, kTransposed}) {
      Offer& o = out.emplace_back();
      o.tactic = *region::parse_tactic(tactic);
      o.tactic.stores_in_place = tactic == kConv;
      const auto conv = match(region, plan, o.tactic);
      o.refusal = region::refusal_of(conv);
      o.cost = conv ? conv->seconds : 0;
    }
    return out;
  }
  [[nodiscard]] Result<region::Artifact> compile(const Region& region, const Plan& plan,
                                                 const region::Tactic& tactic) const override {
    OCTAVO_TRY(const ConvSetting conv, match(region, plan, tactic));
    region::Artifact made;
    OCTAVO_TRY(made.constants, cpu::jit::pack_conv(conv));
    return made;
  }
  [[nodiscard]] Result<std::unique_ptr<region::Kernel>> load(const Region& region, const Plan& plan,
                                                             const region::ArtifactView& artifact) const override {
    static const EmulatedTiles tiles;
    OCTAVO_TRY(ConvSetting conv, match(region, plan, region.tactic));
    return cpu::jit::load_conv(std::move(conv), packed_of(artifact.constants), tiles);
  }

 private:
  static Result<ConvSetting> match(const Region& region, const Plan& plan, const region::Tactic& tactic) {
    if (auto why = cpu::why_not(cpu::Isa::avx512vnni); !why.empty()) return region::refuse(why);
    cpu::jit::CodeOptions options = cpu::jit::CodeOptions::of(tactic.parameters);
    options.vbmi = cpu::has_vbmi();
    OCTAVO_TRY(ConvSetting conv, cpu::jit::match_conv(region, plan, options, Dots::amx));
    if (conv.shape.transposed == ("cpu." + tactic.family == kTransposed)) return conv;
    return region::refuse("operator", "of the other kind", tactic.family);
  }
};

}  // namespace

const region::Provider& emulated_amx_provider() {
  static const Provider provider;
  return provider;
}

TileCounts take_tile_counts() {
  return std::exchange(file.counts, {});
}

}  // namespace octavo::testing
