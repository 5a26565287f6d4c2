// The packed constants of a generated convolution: weights in the order of the reduction, first values of the accumulators, and
// what shorter epilogues need.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "cpu/jit/constants.h"
#include "cpu/jit/conv.h"

namespace octavo::cpu::jit {
namespace {

/// Of element k of a segment, channel c of the block, in the block's packed weights.
std::int64_t weight_at(const ConvSetting& conv, const Phase& ph, const Block& b, std::int64_t segment, std::int64_t k,
                       std::int64_t c) {
  const std::int64_t of_quad = 4 / conv.factor, lanes = conv.epilogue.lanes;
  if (ph.steps == 0) return ((segment * ph.quads + k / of_quad) * b.vectors * lanes + c) * of_quad + k % of_quad;
  const std::int64_t depth = ph.depth / conv.factor, tile = (segment * ph.steps + k / depth) * b.vectors + c / lanes;
  return ((tile * (depth / of_quad) + k % depth / of_quad) * lanes + c % lanes) * of_quad + k % of_quad;
}

/// Of floats: groups are not merged, and rows of the input are not put together. `Weight`: float, or the bits of bfloat16.
template <class Weight>
Result<std::vector<ir::Tensor>> pack_floats(const ConvSetting& conv, ir::DType type) {
  OCTAVO_TRY(const auto* w, conv.weights.data<Weight>("weights"));
  OCTAVO_TRY(const std::vector<float> bias, conv.bias.values<float>(conv.shape.o));
  const auto bytes = static_cast<std::int64_t>(sizeof(Weight));
  ir::Tensor weights(type, {std::max<std::int64_t>(64, conv.weight_bytes) / bytes}), init(ir::DType::f32, {conv.init_count});
  auto* wp = weights.mutable_data<Weight>().data();
  auto* ip = init.mutable_data<float>().data();
  const Conv2d& s = conv.shape;
  const std::int64_t step = (s.transposed ? 1 : s.ic()) * s.kh * s.kw;
  for (const Phase& ph : conv.phases) {
    const std::size_t per_row = ph.segments.size() / std::max<std::size_t>(1, ph.y.offset.size());
    const bool joined = per_row != ph.x.offset.size();
    for (const Block& b : ph.blocks) {
      for (std::size_t segment = 0; segment < ph.segments.size(); ++segment) {
        for (std::int64_t k = 0; k < ph.segment_bytes / bytes; ++k) {
          const auto column = joined ? static_cast<std::size_t>(k / conv.ic) : segment % per_row;
          const auto* from = w + s.weight_index(b.first_channel, k % conv.ic, ph.y.tap[segment / per_row], ph.x.tap[column]);
          for (std::int64_t c = 0; c < b.channels; ++c)
            wp[b.weights / bytes + weight_at(conv, ph, b, static_cast<std::int64_t>(segment), k, c)] = from[c * step];
        }
      }
      for (std::int64_t c = 0; c < b.channels && !bias.empty(); ++c)
        ip[b.init + c] = bias[static_cast<std::size_t>(b.first_channel + c)];
    }
  }
  return std::vector<ir::Tensor>{std::move(weights), std::move(init)};
}

/// Of codes. `Weight`: std::int8_t, or of pairs std::int16_t, which has room for a weight minus its zero point.
template <class Weight>
Result<std::vector<ir::Tensor>> pack_codes(const ConvSetting& conv, ir::DType type) {
  OCTAVO_TRY(const auto* w, conv.weights.data<std::int8_t>("weights"));
  const auto bytes = static_cast<std::int64_t>(sizeof(Weight));
  ir::Tensor weights(type, {std::max<std::int64_t>(64, conv.weight_bytes) / bytes}), init(ir::DType::s32, {conv.init_count});
  auto wp = weights.mutable_data<Weight>();
  auto ip = init.mutable_data<std::int32_t>();
  const Conv2d& s = conv.shape;
  const std::int64_t step = (s.transposed ? 1 : s.ic()) * s.kh * s.kw;  // between the weights of a group's output channels
  OCTAVO_TRY(const std::vector<std::int32_t> bias, conv.bias.values<std::int32_t>(conv.shape.o));
  std::vector<LineBlock> lines;
  for (const Phase& ph : conv.phases) {
    for (const Block& b : ph.blocks) {
      auto* to = wp.data() + b.weights / bytes;
      std::vector<std::int64_t> sums(static_cast<std::size_t>(b.vectors * conv.epilogue.lanes), 0);
      auto& limits =
          lines.emplace_back(LineBlock{.first_channel = b.first_channel, .init = b.init, .limits = {}, .offsets = {}}).limits;
      limits.resize(static_cast<std::size_t>(b.channels));
      const std::size_t taps_x = ph.x.offset.size();
      // Element k of a segment is tap (k / ic) of its row, input channel k % ic of the merged group; or of its rows, one after the
      // other, of which the last may be none.
      const auto together = static_cast<std::size_t>(ph.together);
      const std::size_t once = ph.segments.size() / static_cast<std::size_t>(conv.halves);
      const std::size_t per_row = once / std::max<std::size_t>(1, (ph.y.offset.size() + together - 1) / together);
      const std::int64_t elements = ph.segment_bytes / conv.factor, row_elements = elements / ph.together;
      for (std::size_t seg = 0; seg < ph.segments.size(); ++seg) {
        for (std::int64_t k = 0; k < elements; ++k) {
          const std::size_t row = seg % once / per_row * together + static_cast<std::size_t>(k / row_elements);
          if (row >= ph.y.tap.size()) break;
          const std::int64_t ky = ph.y.tap[row];
          const auto column = static_cast<std::size_t>(k % row_elements / conv.ic) + (per_row == taps_x ? seg % once % per_row : 0);
          const std::int64_t in = k % row_elements % conv.ic;
          // The block's channels that belong to the group of this input channel; their weights are equally far apart.
          const std::int64_t first = ((b.group * conv.merge) + in / s.ic()) * s.oc();
          const std::int64_t from = std::max<std::int64_t>(0, first - b.first_channel);
          const std::int64_t until = std::min(b.channels, first + s.oc() - b.first_channel);
          if (from >= until) continue;
          const auto* at = w + s.weight_index(b.first_channel + from, in % s.ic(), ky, ph.x.tap[column]);
          for (std::int64_t c = from; c < until; ++c, at += step) {
            const std::int32_t whole = *at - weight_zero_of(conv.weight_zero, b.first_channel + c);
            const std::int32_t weight = conv.halves == 1 ? whole : half_of_weight(whole, seg < once);
            to[weight_at(conv, ph, b, static_cast<std::int64_t>(seg), k, c)] = static_cast<Weight>(weight);
            sums[static_cast<std::size_t>(c)] += weight;
            limits[static_cast<std::size_t>(c)] += 255 * std::abs(std::int64_t{weight});
          }
        }
      }
      for (std::size_t c = 0; c < sums.size(); ++c) {
        std::int64_t first = -static_cast<std::int64_t>(conv.zero_in_sums()) * sums[c];
        if (!bias.empty() && c < limits.size()) {
          const std::int64_t added = bias[static_cast<std::size_t>(b.first_channel) + c];
          first += added;
          limits[c] += std::abs(added);
        }
        ip[static_cast<std::size_t>(b.init) + c] =
            static_cast<std::int32_t>(static_cast<std::uint32_t>(first));  // wraps, as sums do
      }
    }
  }
  std::vector<ir::Tensor> packed{std::move(weights), std::move(init)};
  if (conv.forms || conv.curve) {
    OCTAVO_TRY(auto more, conv.forms ? pack_forms(conv.channels, conv.forms->requant, lines, conv.init_count)
                                     : pack_curve(conv.channels, conv.codes, *conv.curve, lines, conv.init_count));
    for (auto& t : more) packed.push_back(std::move(t));
  }
  return packed;
}

}  // namespace

std::string layout_of(const ConvSetting& conv) {
  std::string out = fmt::format("{} merged {} of {} halves {} zero {} lanes {} bias {} forms {} curve {} {}:", conv.ic, conv.merge,
                                conv.oc, conv.halves, conv.zero_in_sums(), conv.epilogue.lanes, conv.has_bias,
                                conv.forms.has_value(), conv.curve.has_value(), conv.init_count);
  for (const Phase& ph : conv.phases) {
    out += fmt::format(" | {},{} taps {} {} together {} segments {} of {} quads {} steps {} {}", ph.y.offset.size(),
                       ph.x.offset.size(), fmt::join(ph.y.tap, ","), fmt::join(ph.x.tap, ","), ph.together, ph.segments.size(),
                       ph.segment_bytes, ph.quads, ph.steps, ph.depth);
    for (const Block& b : ph.blocks)
      out += fmt::format(" {}+{}:{}@{},{}", b.first_channel, b.channels, b.vectors, b.weights, b.init);
  }
  return out;
}

Result<std::vector<ir::Tensor>> pack_conv(const ConvSetting& conv) {
  if (conv.dots == Dots::floats) return pack_floats<float>(conv, ir::DType::f32);
  if (of_bf16(conv.dots)) return pack_floats<std::uint16_t>(conv, ir::DType::bf16);
  if (conv.dots == Dots::pairs) return pack_codes<std::int16_t>(conv, ir::DType::s16);
  return pack_codes<std::int8_t>(conv, ir::DType::s8);
}

}  // namespace octavo::cpu::jit
