#include "cpu/avx512/provider.h"

#include <fmt/format.h>

#include "cpu/avx512/conv.h"
#include "cpu/isa.h"

namespace octavo::cpu {
namespace avx512 {
namespace {

using ir::Op;
using region::Offer;

constexpr std::string_view kConv = "cpu.conv.u8s8.avx512vnni.jit", kTransposed = "cpu.conv_transpose.u8s8.avx512vnni.jit";

class Provider final : public region::Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu.avx512.jit"; }

  [[nodiscard]] std::vector<Offer> offers(const region::Region& region, const region::Plan& plan) const override {
    std::vector<Offer> out;
    const Op op = region.stages.empty() ? Op::input : region.stages.front().anchor.op;
    if (op != Op::conv && op != Op::conv_transpose) return out;
    Offer& o = out.emplace_back();
    o.tactic = op == Op::conv ? kConv : kTransposed;
    o.refusal = why_not(Isa::avx512vnni);
    ConvPlan conv;
    if (o.refusal.empty()) o.refusal = plan_conv(region, plan, has_vbmi(), conv);
    o.cost = conv.seconds;
    return out;
  }

  [[nodiscard]] Result<std::vector<ir::Tensor>> pack(const region::Region& region, const region::Plan& plan,
                                                     std::string_view tactic) const override {
    ConvPlan conv;
    if (auto why = check(tactic, region, plan, conv); !why) return tl::unexpected<Error>(why.error());
    return pack_conv(region, plan, conv);
  }

  [[nodiscard]] Result<std::unique_ptr<region::Kernel>> instantiate(const region::Region& region, const region::Plan& plan,
                                                                    std::span<const std::byte* const> packed) const override {
    ConvPlan conv;
    if (auto why = check(region.tactic, region, plan, conv); !why) return tl::unexpected<Error>(why.error());
    return make_conv(region, std::move(conv), packed, has_vbmi());
  }

 private:
  static Status check(std::string_view tactic, const region::Region& region, const region::Plan& plan, ConvPlan& conv) {
    std::string why;
    if (tactic != kConv && tactic != kTransposed) why = "unknown tactic";
    if (why.empty()) why = why_not(Isa::avx512vnni);
    if (why.empty()) why = plan_conv(region, plan, has_vbmi(), conv);
    if (why.empty() && conv.shape.transposed != (tactic == kTransposed)) why = "the tactic is for the other kind of convolution";
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
