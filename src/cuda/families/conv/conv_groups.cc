#include "cuda/families/conv/conv_groups.h"

#include <algorithm>
#include <cstring>

#include "cuda/families/families.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::int64_t kLeastTile = 16, kTile = 32;  ///< channels of tiles that groups are padded to

}  // namespace

std::optional<ConvProducts> with_padded_groups(const Region& r, const Plan& plan, const Target& target, ConvType type) {
  if (r.stages.size() != 1) return std::nullopt;
  const Stage& s = only(r);
  const region::TensorRef& w = *s.anchor.weights;
  const std::int64_t groups = s.anchor.as<ir::Window>().group;
  if (s.space.size() != 4 || w.dims.size() != 4 || s.space[1] % groups != 0) return std::nullopt;
  const std::int64_t of_group = s.space[1] / groups, padded = of_group <= kLeastTile ? kLeastTile : up(of_group, kTile);
  if (padded == of_group) return std::nullopt;
  const auto source = [&](std::int64_t channel) {  // of a padded channel; those that are added have the last one's constants
    return channel / padded * of_group + std::min(channel % padded, of_group - 1);
  };
  const auto widened = [&](auto& values) {
    const auto given = values;
    values.resize(static_cast<std::size_t>(groups * padded));
    for (std::size_t c = 0; c < values.size(); ++c)
      values[c] = given[static_cast<std::size_t>(source(static_cast<std::int64_t>(c)))];
  };
  Tail tail = tail_of(s, plan);
  for (std::size_t k = 0; k < tail.operands.size(); ++k) {
    if (!tail.constants[k]) return std::nullopt;
    tail.operands[k].ref.strides = {0, 1, 0, 0};
    widened(*tail.constants[k]);
  }
  const auto size = static_cast<std::size_t>(ir::size_of(w.dtype));
  ir::Tensor weights(w.dtype, {groups * padded, w.dims[1], w.dims[2], w.dims[3]});
  if (!s.anchor.weight_sum) {
    const auto* from = plan.buffers[static_cast<std::size_t>(w.buffer)].data.bytes().data() + w.offset;
    auto* to = weights.mutable_bytes().data();
    for (std::int64_t o = 0; o < groups * padded; ++o) {
      // A weight less its zero point is zero.
      const auto& zeros = s.anchor.weight_zero;
      const int zero = zeros.empty() ? 0 : zeros[zeros.size() == 1 ? 0 : static_cast<std::size_t>(source(o))];
      const bool added = o % padded >= of_group;
      for (std::int64_t c = 0; c < w.dims[1]; ++c) {
        for (std::int64_t y = 0; y < w.dims[2]; ++y) {
          for (std::int64_t x = 0; x < w.dims[3]; ++x, to += size) {
            if (added)
              std::memset(to, zero, size);
            else
              std::memcpy(to,
                          from + static_cast<std::size_t>(source(o) * w.strides[0] + c * w.strides[1] + y * w.strides[2] +
                                                          x * w.strides[3]) *
                                     size,
                          size);
          }
        }
      }
    }
  }
  Region one;  // without operands, which are in `tail`, and of a plan with these weights alone
  one.stages = {s};
  Stage& p = one.stages[0];
  p.operands.clear();
  p.space[1] = groups * padded;
  p.anchor.weights->buffer = 0, p.anchor.weights->offset = 0;
  p.anchor.weights->dims = weights.shape(), p.anchor.weights->strides = ir::dense_strides(weights.shape());
  if (p.anchor.weight_zero.size() > 1) widened(p.anchor.weight_zero);
  Fold fold{padded, 1, {}, of_group};
  for (const region::TensorRef& t : p.stores) fold.steps.push_back({of_group * t.strides[1] * element_bytes(t), 0});
  Plan own;
  own.buffers.resize(1);
  own.buffers[0].data = std::move(weights);
  auto made = match_conv(one, own, target, type);
  if (!made) return std::nullopt;
  made->conv.tail.operands = std::move(tail.operands), made->conv.tail.constants = std::move(tail.constants);
  made->fold = std::move(fold);
  return std::move(*made);
}

}  // namespace octavo::cuda
