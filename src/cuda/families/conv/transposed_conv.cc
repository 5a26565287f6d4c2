// conv.transposed: integer transposed convolutions as one convolution a phase. Results whose coordinates have the same residue of the
// stride read the same taps of the filter, at every stride-th position: each phase is a convolution without strides over the input,
// with those taps in reverse order, whose results lie `stride` apart. Tensor cores compute it (conv_mma.h); the phases share a text.
// Where the filter is as large as the stride, each phase has one tap and all read the same pixels: they are one convolution 1x1 with
// the channels of all phases, which reads its input once and stores neighbouring pixels together.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_mma.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::Op;
using Ints = std::vector<std::int64_t>;

/// One dimension of a phase: result r + stride * j reads input j - pad + t with tap first - stride * t, t in 0..taps-1.
struct PhaseAxis {
  std::int64_t taps = 0, first = 0, pad = 0, count = 0;
};

PhaseAxis axis_of(std::int64_t r, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
  const std::int64_t least = (r + pad) % stride;  // the smallest tap of the phase
  PhaseAxis a;
  a.taps = least < kernel ? (kernel - 1 - least) / stride + 1 : 0;
  a.first = least + (a.taps - 1) * stride;
  a.pad = (a.first - r - pad) / stride;
  a.count = (out - r + stride - 1) / stride;
  return a;
}

/// Every stride-th element of two dimensions, from (y, x) on.
region::TensorRef thinned(region::TensorRef t, std::int64_t y, std::int64_t x, std::int64_t down, std::int64_t right,
                          const ir::Shape& space) {
  t.offset += (y * t.strides[2] + x * t.strides[3]) * element_bytes(t);
  t.strides[2] *= down, t.strides[3] *= right;
  t.dims = space;
  return t;
}

Result<std::vector<region::Region>> phases_of(const Region& r) {
  const Stage& s = only(r);
  const region::TensorRef& w = *s.anchor.weights;
  const auto& window = s.anchor.as<ir::Window>();
  const Ints &strides = window.strides, &pads = window.pads, &dilations = window.dilations;
  if (s.space.size() != 4 || w.dims.size() != 4) return refuse("rank of the result", s.space.size(), "4");
  if (window.group != 1) return refuse("groups", window.group, "1");
  if (dilations != Ints{1, 1}) return refuse("dilations", fmt::format("{}x{}", dilations[0], dilations[1]), "1x1");
  if (strides[0] * strides[1] > 16) return refuse("phases", strides[0] * strides[1], "at most 16");
  std::vector<region::Region> out;
  for (std::int64_t y = 0; y < std::min(strides[0], s.space[2]); ++y) {
    for (std::int64_t x = 0; x < std::min(strides[1], s.space[3]); ++x) {
      const PhaseAxis down = axis_of(y, s.space[2], w.dims[2], strides[0], pads[0]),
                      right = axis_of(x, s.space[3], w.dims[3], strides[1], pads[1]);
      if (down.taps == 0 || right.taps == 0) return refuse("taps of a phase", 0, "some");
      region::Region one;
      one.stages = {s};
      Stage& p = one.stages[0];
      p.space = {s.space[0], s.space[1], down.count, right.count};
      p.anchor.op = Op::conv;
      p.anchor.facts = ir::Window{.strides = {1, 1}, .dilations = {1, 1}, .pads = {down.pad, right.pad, 0, 0}};
      region::TensorRef taps = w;  // [C, O, kh, kw] as [O, C, taps, taps]
      taps.offset += (down.first * w.strides[2] + right.first * w.strides[3]) * element_bytes(w);
      taps.dims = {w.dims[1], w.dims[0], down.taps, right.taps};
      taps.strides = {w.strides[1], w.strides[0], -strides[0] * w.strides[2], -strides[1] * w.strides[3]};
      p.anchor.weights = taps;
      for (region::Operand& o : p.operands) {
        if (std::any_of(o.div.begin(), o.div.end(), [](std::int64_t d) { return d != 1; }))
          return refuse("an operand", "repeats elements", "one element each");
        o.ref = thinned(o.ref, y, x, strides[0], strides[1], p.space);
      }
      for (region::TensorRef& t : p.stores) t = thinned(t, y, x, strides[0], strides[1], p.space);
      out.push_back(std::move(one));
    }
  }
  return out;
}

/// All phases as one convolution 1x1, if the filter is as large as the stride.
std::optional<ConvProducts> folded(const Region& r, const Plan& plan, const Target& target) {
  const Stage& s = only(r);
  const region::TensorRef &w = *s.anchor.weights, &x = s.anchor.inputs[0];
  const auto& window = s.anchor.as<ir::Window>();
  const Ints& strides = window.strides;
  if (s.space.size() != 4 || w.dims.size() != 4 || window.group != 1 || window.dilations != Ints{1, 1} ||
      window.pads != Ints{0, 0, 0, 0})
    return std::nullopt;
  const std::int64_t outputs = w.dims[1], inputs = w.dims[0], phases = strides[0] * strides[1];
  const bool one_tap = w.dims[2] == strides[0] && w.dims[3] == strides[1] && s.space[2] == x.dims[2] * strides[0] &&
                       s.space[3] == x.dims[3] * strides[1];
  const auto& weight_data = plan.buffers[static_cast<std::size_t>(w.buffer)].data;
  if (!one_tap || phases < 2 || phases > 16 || outputs % 16 != 0 || (weight_data.empty() && !s.anchor.weight_sum))
    return std::nullopt;
  const auto repeat = [&](auto& values) {
    const auto once = values;
    for (std::int64_t k = 1; k < phases; ++k) values.insert(values.end(), once.begin(), once.end());
  };
  Tail tail = tail_of(s, plan);
  for (std::size_t k = 0; k < tail.operands.size(); ++k) {
    region::TensorRef& ref = tail.operands[k].ref;
    if (!tail.constants[k] || ir::size_of(ref.dtype) != 4) return std::nullopt;
    ref.strides = {0, 1, 0, 0};
    repeat(*tail.constants[k]);
  }
  ir::Tensor weights(ir::DType::s8, {outputs * phases, inputs, 1, 1});
  const auto* from = s.anchor.weight_sum ? nullptr : weight_data.bytes().data() + w.offset;
  auto* to = weights.mutable_bytes().data();
  for (std::int64_t phase = 0; phase < phases && !s.anchor.weight_sum; ++phase) {
    const std::int64_t tap = phase / strides[1] * w.strides[2] + phase % strides[1] * w.strides[3];
    for (std::int64_t o = 0; o < outputs; ++o) {
      for (std::int64_t c = 0; c < inputs; ++c) *to++ = from[c * w.strides[0] + o * w.strides[1] + tap];
    }
  }
  Region one;  // without operands, which are in `tail`, and of a plan with these weights alone
  one.stages = {s};
  Stage& p = one.stages[0];
  p.operands.clear();
  p.space = {x.dims[0], outputs * phases, x.dims[2], x.dims[3]};
  p.anchor.op = Op::conv;
  p.anchor.facts = ir::default_facts(Op::conv);
  p.anchor.weights->buffer = 0, p.anchor.weights->offset = 0;
  p.anchor.weights->dims = weights.shape(), p.anchor.weights->strides = {inputs, 1, 1, 1};
  if (p.anchor.weight_zero.size() > 1) repeat(p.anchor.weight_zero);
  Fold fold{outputs, strides[1], {}};
  for (region::TensorRef& t : p.stores) {
    const auto size = element_bytes(t);
    fold.steps.push_back({t.strides[2] * size, t.strides[3] * size});
    t.strides[2] *= strides[0], t.strides[3] *= strides[1];
    t.dims = p.space;
  }
  Plan own;
  own.buffers.resize(1);
  own.buffers[0].data = std::move(weights);
  auto made = match_conv(one, own, target);
  if (!made) return std::nullopt;
  made->conv.tail.operands = std::move(tail.operands), made->conv.tail.constants = std::move(tail.constants);
  made->fold = std::move(fold);
  return std::move(*made);
}

struct TransposedConv {
  std::optional<ConvProducts> folded;  ///< all phases as one convolution
  std::vector<ConvProducts> phases;    ///< or each for itself
  double seconds = 0;                  ///< of the phases
};

class TransposedConvFamily final : public FamilyOf<TransposedConv, std::optional<ConvTile>> {
 public:
  std::string_view name() const override { return "conv.transposed"; }
  int version() const override { return 3; }
  bool about(const Region& r) const override {
    return is_single(r) && only(r).anchor.op == Op::conv_transpose && only(r).anchor.integer && only(r).anchor.weights &&
           !only(r).program.outputs.empty();
  }

  Result<TransposedConv> match(const Region& r, const Plan& plan, const Target& target) const override {
    TransposedConv out;
    out.folded = folded(r, plan, target);
    if (!out.folded) {
      OCTAVO_TRY(const std::vector<Region> phases, phases_of(r));
      for (std::size_t k = 0; k < phases.size(); ++k) {
        OCTAVO_TRY(out.phases.emplace_back(), match_conv(phases[k], plan, target));
        out.phases.back().function += fmt::format("_{}", k);
      }
      const region::TensorRef& w = *only(r).anchor.weights;
      const auto input = ir::count(only(r).anchor.inputs[0].dims);
      out.seconds = seconds_of_a_pass(r) + 4 * cost::kLaunch +
                    static_cast<double>(input) * static_cast<double>(ir::count(w.dims) / w.dims[0]) / cost::kProductsOfPhases;
    }
    OCTAVO_CHECK(emit(out, std::nullopt, target));  // a program that no epilogue can be
    return out;
  }
  /// Where all phases are one convolution, the tiles of that one.
  std::vector<Choice<std::optional<ConvTile>>> tactics(const TransposedConv& setting, const Target& target) const override {
    if (!setting.folded) return {{std::nullopt, setting.seconds}};
    std::vector<Choice<std::optional<ConvTile>>> out;
    for (const Choice<ConvTile>& c : conv_tactics(*setting.folded, target)) out.push_back({c.tile, c.seconds});
    return out;
  }
  Result<KernelText> emit(const TransposedConv& setting, const std::optional<ConvTile>& tile, const Target& target) const override {
    const auto best = [&](const ConvProducts& conv) { return conv_tactics(conv, target).at(0).tile; };
    if (const auto& one = setting.folded) return emit_conv(*one, tile ? *tile : best(*one), target);
    if (tile) return fail(ErrorKind::bad_input, "conv.transposed: parameters for phases that are not one convolution");
    KernelText out;
    for (std::size_t k = 0; k < setting.phases.size(); ++k) {
      OCTAVO_TRY(KernelText one, emit_conv(setting.phases[k], best(setting.phases[k]), target));
      for (Launch& l : one.launches) {
        for (Argument& a : l.arguments) {
          if (a.kind == Argument::Kind::constant) a.index += static_cast<std::int32_t>(out.constants.size());
          if (a.kind == Argument::Kind::workspace) a.offset += out.workspace_bytes;
        }
        out.launches.push_back(std::move(l));
      }
      out.text += fmt::format("#undef OCTAVO_GROUPS\nnamespace phase{} {{\n{}}}\n", k, one.text);
      for (PackedConstant& t : one.constants) out.constants.push_back(std::move(t));
      out.workspace_bytes += up(one.workspace_bytes, 256);
    }
    return out;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(transposed_conv, TransposedConvFamily)

}  // namespace octavo::cuda
