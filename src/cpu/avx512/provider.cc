#include "cpu/avx512/provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cpu/avx512/conv.h"
#include "cpu/avx512/depthwise.h"
#include "cpu/avx512/gather.h"
#include "cpu/avx512/rolling.h"
#include "cpu/family.h"
#include "cpu/isa.h"

namespace octavo::cpu {
namespace avx512 {
namespace {

using ir::Op;
using region::Offer;
using region::Plan;
using region::Region;

constexpr std::string_view kConv = "cpu.conv.u8s8.avx512vnni.jit", kTransposed = "cpu.conv_transpose.u8s8.avx512vnni.jit",
                           kDepthwise = "cpu.depthwise.u8s8.avx512vnni.jit", kRolling = "cpu.depthwise.u8s8.avx512vnni.rolling",
                           kGather = "cpu.gather.avx512vbmi.jit", kConvAmx = "cpu.conv.u8s8.amx",
                           kTransposedAmx = "cpu.conv_transpose.u8s8.amx";

constexpr bool on_tiles(std::string_view tactic) {
  return tactic == kConvAmx || tactic == kTransposedAmx;
}

class Provider final : public region::Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu.avx512.jit"; }

  [[nodiscard]] std::vector<Offer> offers(const Region& region, const Plan& plan) const override {
    std::vector<Offer> out;
    const Op op = region.stages.empty() ? Op::input : region.stages.front().anchor.op;
    if (op == Op::conv || op == Op::conv_transpose) {
      out.push_back(offer(region, plan, op == Op::conv ? kConv : kTransposed));
    }
    if (op == Op::conv && ir::get_int(region.stages.front().anchor.attrs, "group", 1) > 1) {
      DepthwisePlan dw;
      Offer& o = out.emplace_back();
      o.tactic = kDepthwise;
      o.refusal = make_plan(region, plan, dw);
      o.cost = dw.seconds;
      RollingPlan rolling;
      Offer& p = out.emplace_back();
      p.tactic = kRolling;
      p.refusal = make_plan(region, plan, rolling);
      p.cost = rolling.seconds;
    }
    if (op == Op::gather) {
      GatherPlan gather;
      Offer& o = out.emplace_back();
      o.tactic = kGather;
      o.refusal = make_plan(region, gather);
      o.cost = gather.seconds;
    }
    if (op == Op::conv || op == Op::conv_transpose) out.push_back(offer(region, plan, op == Op::conv ? kConvAmx : kTransposedAmx));
    return out;
  }

  [[nodiscard]] Result<std::vector<ir::Tensor>> pack(const Region& region, const Plan& plan,
                                                     std::string_view tactic) const override {
    if (tactic == kRolling) {
      RollingPlan rolling;
      OCTAVO_CHECK(status(region, tactic, make_plan(region, plan, rolling)));
      return checked(pack_rolling(region, plan, rolling), packed_bytes(rolling));
    }
    if (tactic == kDepthwise) {
      DepthwisePlan dw;
      OCTAVO_CHECK(status(region, tactic, make_plan(region, plan, dw)));
      return checked(pack_depthwise(region, plan, dw), packed_bytes(dw));
    }
    if (tactic == kGather) {
      GatherPlan gather;
      OCTAVO_CHECK(status(region, tactic, make_plan(region, gather)));
      return std::vector<ir::Tensor>{};
    }
    ConvPlan conv;
    OCTAVO_CHECK(status(region, tactic, make_plan(region, plan, tactic, conv)));
    return checked(pack_conv(region, plan, conv), packed_bytes(conv));
  }

  [[nodiscard]] Result<std::unique_ptr<region::Kernel>> instantiate(const Region& region, const Plan& plan,
                                                                    std::span<const std::byte* const> packed) const override {
    if (region.tactic == kRolling) {
      RollingPlan rolling;
      OCTAVO_CHECK(status(region, region.tactic, make_plan(region, plan, rolling)));
      OCTAVO_CHECK(check_packed(region, plan, packed.size(), packed_bytes(rolling)));
      return make_rolling(region, std::move(rolling), packed);
    }
    if (region.tactic == kDepthwise) {
      DepthwisePlan dw;
      OCTAVO_CHECK(status(region, region.tactic, make_plan(region, plan, dw)));
      OCTAVO_CHECK(check_packed(region, plan, packed.size(), packed_bytes(dw)));
      return make_depthwise(region, std::move(dw), packed, has_vbmi());
    }
    if (region.tactic == kGather) {
      GatherPlan gather;
      OCTAVO_CHECK(status(region, region.tactic, make_plan(region, gather)));
      OCTAVO_CHECK(check_packed(region, plan, packed.size(), {}));
      return make_gather(region, std::move(gather));
    }
    ConvPlan conv;
    OCTAVO_CHECK(status(region, region.tactic, make_plan(region, plan, region.tactic, conv)));
    OCTAVO_CHECK(check_packed(region, plan, packed.size(), packed_bytes(conv)));
    return make_conv(region, std::move(conv), packed, has_vbmi());
  }

 private:
  static Offer offer(const Region& region, const Plan& plan, std::string_view tactic) {
    ConvPlan conv;
    Offer o;
    o.tactic = tactic;
    o.refusal = make_plan(region, plan, tactic, conv);
    o.cost = conv.seconds;
    return o;
  }
  /// Sizes of the packed constants: weights, initial accumulators; then lines and their flags.
  static std::vector<std::int64_t> packed_bytes(const ConvPlan& p) {
    std::vector<std::int64_t> bytes{std::max<std::int64_t>(64, p.weight_bytes), p.init_count * 4};
    if (p.forms) bytes.insert(bytes.end(), {p.init_count * 8, p.init_count / 4});
    if (p.curve) bytes.insert(bytes.end(), {p.init_count * 8, p.init_count / 4, kCurveFloats * 4});
    return bytes;
  }
  static std::vector<std::int64_t> packed_bytes(const RollingPlan& p) { return avx512::packed_bytes(p); }
  static std::vector<std::int64_t> packed_bytes(const DepthwisePlan& p) { return {p.weight_bytes, p.init_count * 4}; }
  static Result<std::vector<ir::Tensor>> checked(Result<std::vector<ir::Tensor>> packed, const std::vector<std::int64_t>& bytes) {
    const auto same = [](const ir::Tensor& t, std::int64_t n) { return static_cast<std::int64_t>(t.bytes().size()) == n; };
    if (packed && !std::equal(packed->begin(), packed->end(), bytes.begin(), bytes.end(), same))
      return fail(ErrorKind::internal, "packing for generated code: not the sizes that loading expects");
    return packed;
  }
  static std::string make_plan(const Region& region, const Plan& plan, std::string_view tactic, ConvPlan& conv) {
    if (tactic != kConv && tactic != kTransposed && !on_tiles(tactic)) return "this provider has no such tactic";
    if (auto why = why_not(on_tiles(tactic) ? Isa::amx : Isa::avx512vnni); !why.empty()) return why;
    if (auto why = plan_conv(region, plan, has_vbmi(), conv, on_tiles(tactic) ? Dots::amx : Dots::vnni); !why.empty()) return why;
    if (conv.shape.transposed != (tactic == kTransposed || tactic == kTransposedAmx))
      return "the tactic is for the other kind of convolution";
    return "";
  }
  static std::string make_plan(const Region& region, const Plan& plan, DepthwisePlan& dw) {
    if (auto why = why_not(Isa::avx512vnni); !why.empty()) return why;
    return plan_depthwise(region, plan, has_vbmi(), dw);
  }
  static std::string make_plan(const Region& region, const Plan& plan, RollingPlan& rolling) {
    if (auto why = why_not(Isa::avx512vnni); !why.empty()) return why;
    return plan_rolling(region, plan, has_vbmi(), rolling);
  }
  static std::string make_plan(const Region& region, GatherPlan& gather) {
    if (auto why = why_not(Isa::avx512vnni); !why.empty()) return why;
    return plan_gather(region, has_vbmi(), gather);
  }
  static Status status(const Region& region, std::string_view tactic, const std::string& why) {
    if (why.empty()) return {};
    return fail(ErrorKind::unsupported, fmt::format("region \"{}\", tactic {}: {}", region.name, tactic, why));
  }
};

}  // namespace
}  // namespace avx512

const region::Provider& avx512_provider() {
  static const avx512::Provider provider;
  return provider;
}

}  // namespace octavo::cpu
