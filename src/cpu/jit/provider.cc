#include "cpu/jit/provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cpu/family.h"
#include "cpu/isa.h"
#include "cpu/jit/conv.h"
#include "cpu/jit/depthwise.h"
#include "cpu/jit/depthwise_lanes.h"
#include "cpu/jit/gather.h"
#include "cpu/jit/sliding_window.h"

namespace octavo::cpu {
namespace jit {
namespace {

using ir::Op;
using region::Offer;
using region::Plan;
using region::Region;
using region::Tactic;

constexpr std::string_view kConv = "conv.u8s8.avx512vnni.jit", kTransposed = "conv_transpose.u8s8.avx512vnni.jit",
                           kDepthwise = "depthwise.u8s8.avx512vnni.jit",
                           kSlidingWindow = "depthwise.u8s8.avx512vnni.sliding_window", kGather = "gather.avx512vbmi.jit",
                           kConvAmx = "conv.u8s8.amx", kTransposedAmx = "conv_transpose.u8s8.amx",
                           kConvFloat = "conv.f32.avx512.jit", kTransposedFloat = "conv_transpose.f32.avx512.jit",
                           kDepthwiseFloat = "depthwise.f32.avx512.jit", kConvFloat8 = "conv.f32.avx2.jit",
                           kTransposedFloat8 = "conv_transpose.f32.avx2.jit", kDepthwiseFloat8 = "depthwise.f32.avx2.jit",
                           kConvPairs = "conv.u8s8.avx2.jit", kTransposedPairs = "conv_transpose.u8s8.avx2.jit",
                           kDepthwisePairs = "depthwise.u8s8.avx2.jit", kConvBf16 = "conv.bf16.avx512bf16.jit",
                           kTransposedBf16 = "conv_transpose.bf16.avx512bf16.jit", kConvBf16Amx = "conv.bf16.amx",
                           kTransposedBf16Amx = "conv_transpose.bf16.amx", kDepthwiseBf16 = "depthwise.bf16.avx512.jit";

/// Families whose sums are floats: the same generator for all instruction sets.
struct FloatFamily {
  std::string_view name;
  Op op;
  bool depthwise;
  Isa isa;
  int lanes;
  Dots dots = Dots::floats;
};
constexpr std::array kFloatFamilies{
    FloatFamily{kConvFloat, Op::conv, false, Isa::avx512, 16},
    FloatFamily{kTransposedFloat, Op::conv_transpose, false, Isa::avx512, 16},
    FloatFamily{kDepthwiseFloat, Op::conv, true, Isa::avx512, 16},
    FloatFamily{kConvFloat8, Op::conv, false, Isa::avx2, 8},
    FloatFamily{kTransposedFloat8, Op::conv_transpose, false, Isa::avx2, 8},
    FloatFamily{kDepthwiseFloat8, Op::conv, true, Isa::avx2, 8},
    FloatFamily{kConvBf16, Op::conv, false, Isa::avx512vnni, 16, Dots::bf16},
    FloatFamily{kTransposedBf16, Op::conv_transpose, false, Isa::avx512vnni, 16, Dots::bf16},
    FloatFamily{kConvBf16Amx, Op::conv, false, Isa::amx, 16, Dots::bf16_tiles},
    FloatFamily{kTransposedBf16Amx, Op::conv_transpose, false, Isa::amx, 16, Dots::bf16_tiles},
    FloatFamily{kDepthwiseBf16, Op::conv, true, Isa::avx512vnni, 16, Dots::bf16},
};
/// nullptr: not of floats.
constexpr const FloatFamily* float_family(std::string_view family) {
  const auto* found = std::find_if(kFloatFamilies.begin(), kFloatFamilies.end(), [&](const auto& f) { return f.name == family; });
  return found == kFloatFamilies.end() ? nullptr : &*found;
}
constexpr bool is_depthwise_float(std::string_view family) {
  const FloatFamily* f = float_family(family);
  return f != nullptr && f->depthwise;
}
/// Narrow vectors where there are no wide ones.
bool is_offered(const FloatFamily& f) {
  return f.lanes == 16 || best_isa() < Isa::avx512;
}

/// By the generator whose lanes of 32 bits are channels.
constexpr bool is_depthwise_lanes(std::string_view family) {
  return is_depthwise_float(family) || family == kDepthwisePairs;
}
constexpr bool on_tiles(std::string_view family) {
  const FloatFamily* f = float_family(family);
  return f != nullptr ? on_tiles(f->dots) : family == kConvAmx || family == kTransposedAmx;
}
constexpr bool on_pairs(std::string_view family) {
  return family == kConvPairs || family == kTransposedPairs || family == kDepthwisePairs;
}
/// As for floats: where there are no wide vectors.
bool offers_pairs() {
  return best_isa() < Isa::avx512;
}
constexpr bool of_floats(std::string_view family) {
  return float_family(family) != nullptr;
}
constexpr bool is_conv(std::string_view family) {
  return family == kConv || family == kTransposed || on_tiles(family) || family == kConvPairs || family == kTransposedPairs ||
         (of_floats(family) && !is_depthwise_float(family));
}
constexpr bool is_transposed(std::string_view family) {
  const FloatFamily* f = float_family(family);
  return f != nullptr ? f->op == Op::conv_transpose
                      : family == kTransposed || family == kTransposedAmx || family == kTransposedPairs;
}
/// What this machine has, for code of the family.
Target target_for(std::string_view family) {
  Target target = Target::here();
  if (const FloatFamily* f = float_family(family)) target.lanes = f->lanes;
  if (on_pairs(family)) target.lanes = 8, target.vbmi = false;
  return target;
}
constexpr Dots dots_of(std::string_view family) {
  if (const FloatFamily* f = float_family(family)) return f->dots;
  return on_tiles(family) ? Dots::amx : on_pairs(family) ? Dots::pairs : Dots::vnni;
}

/// The family's tactic for code made for `target`.
Tactic tactic_of(std::string_view family, const Target& target) {
  Tactic t;
  t.provider = "cpu";
  t.family = family;
  t.required.emplace_back(name_of(on_tiles(family)    ? Isa::amx
                                  : on_pairs(family)  ? Isa::avx2
                                  : of_floats(family) ? float_family(family)->isa
                                                      : Isa::avx512vnni));
  if (of_bf16(dots_of(family))) t.required.emplace_back("avx512bf16");
  if (target.vbmi || family == kGather) t.required.emplace_back("avx512vbmi");
  target.write(t);
  t.stores_in_place = family == kConv || family == kConvAmx || family == kConvPairs ||
                      (of_floats(family) && is_conv(family) && !is_transposed(family));
  std::sort(t.required.begin(), t.required.end());
  return t;
}
/// Parameters that make no difference to the code are not in the tactic, so that it runs wherever it can.
Tactic tactic_of(std::string_view family, const Region& region, Target target, bool looks_up) {
  target.vbmi = target.vbmi && looks_up;
  target.multiply = target.multiply && !on_tiles(family) && divides(region);
  return tactic_of(family, target);
}

/// Sets of parameters that differ from `here` in one thing each.
class Variants {
 public:
  explicit Variants(const Target& here) : here_(here) {}
  template <class Change>
  void add(const Change& change) {
    Target t = here_;
    change(t);
    if (std::find(all_.begin(), all_.end(), t) == all_.end() && !(t == here_)) all_.push_back(t);
  }
  [[nodiscard]] std::vector<Target> take() { return std::move(all_); }

 private:
  Target here_;
  std::vector<Target> all_;
};

/// What could be done otherwise than the estimates have it, with the products computed by vpdpbusd or tiles.
std::vector<Target> variants_of(const ConvPlan& usual, const Target& here) {
  const Phase& ph = usual.phases.front();
  Variants out(here);
  if (usual.dots == Dots::floats || usual.dots == Dots::pairs || usual.dots == Dots::bf16) {
    const int lanes = usual.epilogue.lanes;
    for (const int vectors : {1, 2, 3, 4}) {
      if (vectors < (lanes == 16 ? 2 : 1) || vectors > (lanes == 16 ? 4 : 3)) continue;
      if (vectors <= ceil_div(usual.oc, lanes) && vectors != ph.blocks.front().vectors)
        out.add([&](Target& t) { t.vectors = vectors; });
    }
  }
  if (!on_tiles(usual.dots)) {
    const int most = most_pixels(ph.blocks.front().vectors, ph.all_quads(), usual.epilogue);
    for (const int pixels : {most - 1, most - 2, most / 2}) {
      if (pixels >= 2) out.add([&](Target& t) { t.pixels = pixels; });
    }
  }
  for (const std::int64_t row_tiles : {ph.row_tiles / 2, ph.row_tiles * 2}) {
    if (row_tiles >= 1 && row_tiles != ph.row_tiles && row_tiles <= ph.rows) out.add([&](Target& t) { t.row_tiles = row_tiles; });
  }
  if (ph.parts > 1 && ph.row_tiles > 1) out.add([&](Target& t) { t.blocks_first = ph.parts_first ? 0 : 1; });
  if (ph.blocks.size() > 1) {  // of one block nothing is fetched
    for (const int blocks : {0, 2}) out.add([&](Target& t) { t.prefetch = blocks; });
  }
  return out.take();
}

/// The same of a depthwise convolution: `rows` by default, others that could be; how it is divided.
std::vector<Target> variants_of(const RowTasks& tasks, std::int64_t rows, const std::vector<std::int64_t>& others,
                                const Target& here) {
  Variants out(here);
  for (const std::int64_t r : others) {
    if (r >= 1 && r != rows) out.add([&](Target& t) { t.rows = r; });
  }
  for (const int ahead : {2, 8}) out.add([&](Target& t) { t.prefetch = ahead; });
  if (tasks.count > 1) {
    out.add([&](Target& t) { t.blocks_first = tasks.rows > 0 ? 1 : 0; });
    out.add([&](Target& t) { t.row_tiles = tasks.count * std::int64_t{2}; });
  }
  return out.take();
}

class Provider final : public region::Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  [[nodiscard]] bool knows(const Tactic& t) const override {
    return t.provider == name() && (is_conv(t.family) || t.family == kDepthwise || is_depthwise_lanes(t.family) ||
                                    t.family == kSlidingWindow || t.family == kGather);
  }

  [[nodiscard]] std::vector<Offer> offers(const Region& region, const Plan& plan) const override {
    std::vector<Offer> out;
    const Op op = region.stages.empty() ? Op::input : region.stages.front().anchor.op;
    const Target target = Target::here();
    if ((op == Op::conv || op == Op::conv_transpose) && !region.stages.front().anchor.integer) offer_floats(region, plan, out);
    if (op == Op::conv || op == Op::conv_transpose) {
      out.push_back(offer_conv(region, plan, op == Op::conv ? kConv : kTransposed));
      if (offers_pairs()) out.push_back(offer_conv(region, plan, op == Op::conv ? kConvPairs : kTransposedPairs));
    }
    if (op == Op::conv && region.stages.front().anchor.as<ir::Window>().group > 1) {
      Reasons why = why_lacking(tactic_of(kDepthwise, {}).required);
      DepthwisePlan dw;
      if (why.empty()) why = plan_depthwise(region, plan, target, dw);
      out.push_back(offer(tactic_of(kDepthwise, region, target, !dw.epilogue.tables.empty()), std::move(why), dw.seconds));
      why = why_lacking(tactic_of(kSlidingWindow, {}).required);
      SlidingWindowPlan sliding_window;
      if (why.empty()) why = plan_sliding_window(region, plan, target, sliding_window);
      out.push_back(offer(tactic_of(kSlidingWindow, region, {.vbmi = target.vbmi}, !sliding_window.epilogue.tables.empty()),
                          std::move(why), sliding_window.seconds));
      if (offers_pairs()) out.push_back(offer_depthwise_lanes(region, plan, kDepthwisePairs));
    }
    if (op == Op::gather) {
      Reasons why = why_lacking(tactic_of(kGather, {}).required);
      GatherPlan gather;
      if (why.empty()) why = plan_gather(region, gather);
      out.push_back(offer(tactic_of(kGather, {}), std::move(why), gather.seconds));
    }
    if (op == Op::conv || op == Op::conv_transpose) {
      out.push_back(offer_conv(region, plan, op == Op::conv ? kConvAmx : kTransposedAmx));
    }
    return out;
  }

  /// Smaller tiles, fewer or more row tiles, tasks in the other order, other distances of what is fetched ahead.
  [[nodiscard]] std::vector<Offer> variants(const Region& region, const Plan& plan) const override {
    std::vector<Offer> out;
    if (region.stages.size() != 1 || region.stages.front().anchor.op != Op::conv) return out;
    const bool floats = !region.stages.front().anchor.integer;
    for (const std::string_view family : {kConv, kConvAmx, kConvPairs, kConvFloat, kConvFloat8, kConvBf16, kConvBf16Amx}) {
      if (of_floats(family) != floats || (floats && !is_offered(*float_family(family)))) continue;
      if (on_pairs(family) && !offers_pairs()) continue;
      const Target here = target_for(family);
      ConvPlan usual;
      if (!why_lacking(tactic_of(family, {}).required).empty() || !make_plan(region, plan, family, here, usual).empty()) continue;
      if (usual.phases.empty()) continue;
      for (const Target& target : variants_of(usual, here)) {
        ConvPlan conv;
        if (!make_plan(region, plan, family, target, conv).empty()) continue;
        out.push_back({tactic_of(family, region, target, conv.curve || !conv.epilogue.tables.empty()), {}, conv.seconds});
      }
    }
    if (floats) {
      for (const std::string_view family : {best_isa() >= Isa::avx512 ? kDepthwiseFloat : kDepthwiseFloat8, kDepthwiseBf16})
        add_depthwise_lanes_variants(region, plan, family, out);
      return out;
    }
    if (offers_pairs()) add_depthwise_lanes_variants(region, plan, kDepthwisePairs, out);
    const Target here = Target::here();
    if (!why_lacking(tactic_of(kDepthwise, {}).required).empty()) return out;
    if (DepthwisePlan usual; plan_depthwise(region, plan, here, usual).empty()) {
      for (const Target& target : variants_of(usual.tasks, usual.rows, {1, 2, 4}, here)) {
        DepthwisePlan dw;
        if (!plan_depthwise(region, plan, target, dw).empty()) continue;
        out.push_back({tactic_of(kDepthwise, region, target, !dw.epilogue.tables.empty()), {}, dw.seconds});
      }
    }
    const Target permutes{.vbmi = here.vbmi};
    if (SlidingWindowPlan usual; plan_sliding_window(region, plan, permutes, usual).empty()) {
      const std::int64_t all = usual.shape.out_h, some = usual.row_tile == all ? all / 2 : usual.row_tile * 2;
      for (const Target& target : variants_of(usual.tasks, usual.row_tile, {some, usual.row_tile / 2, all}, permutes)) {
        SlidingWindowPlan dw;
        if (!plan_sliding_window(region, plan, target, dw).empty()) continue;
        Target written = target;
        written.vbmi = target.vbmi && !dw.epilogue.tables.empty();
        out.push_back({tactic_of(kSlidingWindow, written), {}, dw.seconds});
      }
    }
    return out;
  }

  [[nodiscard]] Result<region::Artifact> compile(const Region& region, const Plan& plan, const Tactic& tactic) const override {
    OCTAVO_TRY(const Target target, target_of(region, tactic));
    region::Artifact made;
    if (tactic.family == kSlidingWindow) {
      SlidingWindowPlan sliding_window;
      OCTAVO_CHECK(status(region, tactic, plan_sliding_window(region, plan, target, sliding_window)));
      OCTAVO_TRY(made.constants, checked(pack_sliding_window(region, plan, sliding_window), packed_bytes(sliding_window)));
    } else if (tactic.family == kDepthwise) {
      DepthwisePlan dw;
      OCTAVO_CHECK(status(region, tactic, plan_depthwise(region, plan, target, dw)));
      OCTAVO_TRY(made.constants, checked(pack_depthwise(region, plan, dw), packed_bytes(dw)));
    } else if (is_depthwise_lanes(tactic.family)) {
      DepthwiseLanesPlan dw;
      OCTAVO_CHECK(status(region, tactic, plan_depthwise_lanes(region, plan, target, dots_of(tactic.family), dw)));
      OCTAVO_TRY(made.constants, checked(pack_depthwise_lanes(region, plan, dw), packed_bytes(dw)));
    } else if (tactic.family == kGather) {
      GatherPlan gather;
      OCTAVO_CHECK(status(region, tactic, plan_gather(region, gather)));
    } else {
      ConvPlan conv;
      OCTAVO_CHECK(status(region, tactic, make_plan(region, plan, tactic.family, target, conv)));
      OCTAVO_TRY(made.constants, checked(pack_conv(region, plan, conv), packed_bytes(conv)));
    }
    return made;
  }

  [[nodiscard]] Result<std::unique_ptr<region::Kernel>> load(const Region& region, const Plan& plan,
                                                             const region::ArtifactView& artifact) const override {
    const Tactic& tactic = region.tactic;
    const auto packed = artifact.constants;
    OCTAVO_TRY(const Target target, target_of(region, tactic));
    OCTAVO_CHECK(status(region, tactic, why_lacking(tactic.required)));
    if (tactic.family == kSlidingWindow) {
      SlidingWindowPlan sliding_window;
      OCTAVO_CHECK(status(region, tactic, plan_sliding_window(region, plan, target, sliding_window)));
      OCTAVO_CHECK(check_packed(region, plan, packed.size(), packed_bytes(sliding_window)));
      return make_sliding_window(region, std::move(sliding_window), packed);
    }
    if (tactic.family == kDepthwise) {
      DepthwisePlan dw;
      OCTAVO_CHECK(status(region, tactic, plan_depthwise(region, plan, target, dw)));
      OCTAVO_CHECK(check_packed(region, plan, packed.size(), packed_bytes(dw)));
      return make_depthwise(region, std::move(dw), packed, target.vbmi);
    }
    if (is_depthwise_lanes(tactic.family)) {
      DepthwiseLanesPlan dw;
      OCTAVO_CHECK(status(region, tactic, plan_depthwise_lanes(region, plan, target, dots_of(tactic.family), dw)));
      OCTAVO_CHECK(check_packed(region, plan, packed.size(), packed_bytes(dw)));
      return make_depthwise_lanes(region, std::move(dw), packed, target.vbmi);
    }
    if (tactic.family == kGather) {
      GatherPlan gather;
      OCTAVO_CHECK(status(region, tactic, plan_gather(region, gather)));
      OCTAVO_CHECK(check_packed(region, plan, packed.size(), {}));
      return make_gather(region, std::move(gather));
    }
    ConvPlan conv;
    OCTAVO_CHECK(status(region, tactic, make_plan(region, plan, tactic.family, target, conv)));
    OCTAVO_CHECK(check_packed(region, plan, packed.size(), packed_bytes(conv)));
    return make_conv(region, std::move(conv), packed, target.vbmi);
  }

 private:
  static Offer offer(Tactic tactic, Reasons refusal, double seconds) {
    if (auto why = why_lacking(tactic.required); !why.empty()) refusal = std::move(why);
    return {std::move(tactic), std::move(refusal), seconds};
  }
  static Offer offer_conv(const Region& region, const Plan& plan, std::string_view family) {
    ConvPlan conv;
    const Target target = target_for(family);
    if (auto why = why_lacking(tactic_of(family, {}).required); !why.empty()) return {tactic_of(family, {}), std::move(why)};
    Reasons why = make_plan(region, plan, family, target, conv);
    return offer(tactic_of(family, region, target, conv.curve || !conv.epilogue.tables.empty()), std::move(why), conv.seconds);
  }
  /// A convolution of floats: channels in lanes where every group has one, products of all channels otherwise.
  static void offer_floats(const Region& region, const Plan& plan, std::vector<Offer>& out) {
    const Op op = region.stages.front().anchor.op;
    const region::Anchor& anchor = region.stages.front().anchor;
    const bool groups = anchor.as<ir::Window>().group > 1, bf16 = anchor.weights && anchor.weights->dtype == ir::DType::bf16;
    for (const FloatFamily& f : kFloatFamilies) {
      if (f.op != op || !is_offered(f) || (f.depthwise && !groups) || of_bf16(f.dots) != bf16) continue;
      out.push_back(f.depthwise ? offer_depthwise_lanes(region, plan, f.name) : offer_conv(region, plan, f.name));
    }
  }
  static Offer offer_depthwise_lanes(const Region& region, const Plan& plan, std::string_view family) {
    const Target target = target_for(family);
    DepthwiseLanesPlan dw;
    Reasons why = why_lacking(tactic_of(family, {}).required);
    if (why.empty()) why = plan_depthwise_lanes(region, plan, target, dots_of(family), dw);
    return offer(tactic_of(family, region, target, !dw.epilogue.tables.empty()), std::move(why), dw.seconds);
  }
  static void add_depthwise_lanes_variants(const Region& region, const Plan& plan, std::string_view family,
                                           std::vector<Offer>& out) {
    if (!why_lacking(tactic_of(family, {}).required).empty()) return;
    const Target here = target_for(family);
    DepthwiseLanesPlan usual;
    if (!plan_depthwise_lanes(region, plan, here, dots_of(family), usual).empty()) return;
    for (const Target& target : variants_of(usual.tasks, usual.rows, {usual.rows / 2, usual.rows * 2, usual.shape.out_h}, here)) {
      DepthwiseLanesPlan dw;
      if (!plan_depthwise_lanes(region, plan, target, dots_of(family), dw).empty()) continue;
      out.push_back({tactic_of(family, region, target, !dw.epilogue.tables.empty()), {}, dw.seconds});
    }
  }
  /// What the tactic's code is made for, if the tactic is one of this version's.
  static Result<Target> target_of(const Region& region, const Tactic& tactic) {
    Target target = Target::of(tactic);
    target.lanes = target_for(tactic.family).lanes;
    if (auto own = check_tactic(tactic, tactic_of(tactic.family, target)); !own)
      return tl::unexpected<Error>(
          Error{own.error().kind, fmt::format("region \"{}\": {}", region.name, own.error().message), own.error().reasons});
    return target;
  }
  /// Sizes of the packed constants: weights, initial accumulators; then lines and their flags.
  static std::vector<std::int64_t> packed_bytes(const ConvPlan& p) {
    std::vector<std::int64_t> bytes{std::max<std::int64_t>(64, p.weight_bytes), p.init_count * 4};
    if (p.forms) bytes.insert(bytes.end(), {p.init_count * 8, p.init_count / 4});
    if (p.curve) bytes.insert(bytes.end(), {p.init_count * 8, p.init_count / 4, kCurveFloats * 4});
    return bytes;
  }
  static std::vector<std::int64_t> packed_bytes(const SlidingWindowPlan& p) { return jit::packed_bytes(p); }
  static std::vector<std::int64_t> packed_bytes(const DepthwiseLanesPlan& p) { return {p.weight_bytes, p.init_count * 4}; }
  static std::vector<std::int64_t> packed_bytes(const DepthwisePlan& p) { return {p.weight_bytes, p.init_count * 4}; }
  static Result<std::vector<ir::Tensor>> checked(Result<std::vector<ir::Tensor>> packed, const std::vector<std::int64_t>& bytes) {
    const auto same = [](const ir::Tensor& t, std::int64_t n) { return static_cast<std::int64_t>(t.bytes().size()) == n; };
    if (packed && !std::equal(packed->begin(), packed->end(), bytes.begin(), bytes.end(), same))
      return fail(ErrorKind::internal, "packing for generated code: not the sizes that loading expects");
    return packed;
  }
  static Reasons make_plan(const Region& region, const Plan& plan, std::string_view family, const Target& target, ConvPlan& conv) {
    if (!is_conv(family)) return unmet("family", family, "one of this provider's");
    if (auto why = plan_conv(region, plan, target, conv, dots_of(family)); !why.empty()) return why;
    if (conv.shape.transposed != is_transposed(family))
      return unmet("operator", conv.shape.transposed ? "ConvTranspose" : "Conv", "the other");
    return {};
  }
  static Status status(const Region& region, const Tactic& tactic, const Reasons& why) {
    if (why.empty()) return {};
    return fail(ErrorKind::unsupported, fmt::format("region \"{}\", tactic {}: {}", region.name, tactic.name(), in_words(why)));
  }
};

}  // namespace
}  // namespace jit

const region::Provider& jit_provider() {
  static const jit::Provider provider;
  return provider;
}

}  // namespace octavo::cpu
