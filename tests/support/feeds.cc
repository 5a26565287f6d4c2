#include "support/feeds.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/half.h"

namespace octavo::testing {
namespace {

using Random = std::mt19937_64;

std::vector<float> scales_of(const ir::Graph& g) {
  std::vector<float> scales;
  for (const ir::NodeId id : g.order()) {
    if (g.node(id).op == ir::Op::constant || !g.node(id).quantizer) continue;
    for (const float s : g.node(id).quantizer->scale) scales.push_back(std::abs(s));
  }
  if (scales.empty()) scales.push_back(0.05F);
  return scales;
}

float pick(Random& random, const std::vector<float>& scales) {
  const float s = scales[random() % scales.size()];
  const auto k = static_cast<float>(static_cast<int>(random() % 300) - 150);
  const auto unit = static_cast<float>(random() >> 40) * 0x1p-23F - 1.0F;  // [-1, 1)
  switch (random() % 16) {
    case 0:
    case 1: return (k + 0.5F) * s;  // a tie
    case 2: return k * s;           // a code
    case 3: return unit * 2000.0F * s;
    case 4: return 0.0F;
    case 5: return -0.0F;
    case 6: return std::nextafter((k + 0.5F) * s, 1e9F);
    default: return unit * 140.0F * s;
  }
}

}  // namespace

std::vector<ir::Tensor> seeded_feeds(const ir::Graph& g, std::uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15ULL + 1);
  const std::vector<float> scales = scales_of(g);
  std::vector<ir::Tensor> feeds;
  for (const ir::ValueId in : g.inputs) {
    ir::Tensor t(g.type(in));
    for (std::int64_t i = 0; i < t.size(); ++i) {
      const auto k = static_cast<std::size_t>(i);
      const bool extreme = random() % 4 == 0;
      const std::uint64_t r = random() >> 32;
      switch (t.dtype()) {
        case ir::DType::f32: t.mutable_data<float>()[k] = pick(random, scales); break;
        case ir::DType::f64: t.mutable_data<double>()[k] = static_cast<double>(pick(random, scales)); break;
        case ir::DType::f16: t.mutable_data<std::uint16_t>()[k] = f32_to_f16(pick(random, scales)); break;
        case ir::DType::bf16: t.mutable_data<std::uint16_t>()[k] = f32_to_bf16(pick(random, scales)); break;
        case ir::DType::s8:
          t.mutable_data<std::int8_t>()[k] =
              static_cast<std::int8_t>(extreme ? (r % 2 ? 127 : -128) : static_cast<int>(r % 256) - 128);
          break;
        case ir::DType::u8:
          t.mutable_data<std::uint8_t>()[k] = static_cast<std::uint8_t>(extreme ? (r % 2 ? 255 : 0) : r % 256);
          break;
        case ir::DType::boolean: t.mutable_data<std::uint8_t>()[k] = static_cast<std::uint8_t>(r % 2); break;
        case ir::DType::s32: t.mutable_data<std::int32_t>()[k] = static_cast<std::int32_t>(r % 2); break;
        case ir::DType::s64: t.mutable_data<std::int64_t>()[k] = static_cast<std::int64_t>(r % 2); break;
        default: break;  // stays zero
      }
    }
    feeds.push_back(std::move(t));
  }
  return feeds;
}

std::string first_difference(const std::vector<ir::Tensor>& a, const std::vector<ir::Tensor>& b) {
  if (a.size() != b.size()) return fmt::format("{} and {} outputs", a.size(), b.size());
  for (std::size_t o = 0; o < a.size(); ++o) {
    if (a[o].type() != b[o].type())
      return fmt::format("output {}: {} and {}", o, ir::to_string(a[o].type()), ir::to_string(b[o].type()));
    const std::size_t width = ir::size_of(a[o].dtype());
    for (std::int64_t i = 0; i < a[o].size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * width;
      if (std::memcmp(a[o].bytes().data() + at, b[o].bytes().data() + at, width) == 0) continue;
      const double x = a[o].at(i), y = b[o].at(i);
      if (std::isnan(x) && std::isnan(y)) continue;
      return fmt::format("output {}, element {}: {} and {}{}", o, i, x, y, x == y ? " (signs of zero)" : "");
    }
  }
  return "";
}

}  // namespace octavo::testing
