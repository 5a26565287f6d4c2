#include "quantize/correction/equalize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "onnx/edit/channels.h"

namespace octavo::quantize {
namespace {

/// Least and largest value of each channel.
struct Extent {
  std::vector<float> lo, hi;

  void include(std::span<const float> values, const ir::Shape& shape, int axis) {
    const auto channels = static_cast<std::size_t>(shape[static_cast<std::size_t>(axis)]);
    if (lo.empty()) lo.assign(channels, 0.0F), hi.assign(channels, 0.0F);
    std::size_t inner = 1;
    for (std::size_t d = static_cast<std::size_t>(axis) + 1; d < shape.size(); ++d) inner *= static_cast<std::size_t>(shape[d]);
    for (std::size_t i = 0; i < values.size(); i += inner) {
      float least = values[i], most = values[i];
      for (std::size_t k = 1; k < inner; ++k) {
        least = std::min(least, values[i + k]);
        most = std::max(most, values[i + k]);
      }
      const std::size_t c = i / inner % channels;
      if (!seen) lo[c] = least, hi[c] = most;
      lo[c] = std::min(lo[c], least);
      hi[c] = std::max(hi[c], most);
      if (c + 1 == channels) seen = true;
    }
  }
  void include(const Extent& other) {
    if (lo.empty()) {
      *this = other;
      return;
    }
    for (std::size_t c = 0; c < lo.size(); ++c) {
      lo[c] = std::min(lo[c], other.lo[c]);
      hi[c] = std::max(hi[c], other.hi[c]);
    }
  }
  /// With 0, as codes have one for it.
  [[nodiscard]] double range(std::size_t c, bool centered) const {
    if (centered) return static_cast<double>(hi[c]) - static_cast<double>(lo[c]);
    return static_cast<double>(std::max(hi[c], 0.0F)) - static_cast<double>(std::min(lo[c], 0.0F));
  }

 private:
  bool seen = false;  ///< all channels once
};

/// Of all samples, and of those with even and with odd numbers.
struct Extents {
  Extent all;
  std::array<Extent, 2> half;

  /// How many times as far other data may reach in this channel as these did. A channel that few samples excite would get a large factor,
  /// and other samples would leave the codes: where one half of the samples reaches r times as far as the other, r^power is kept free.
  [[nodiscard]] double headroom(std::size_t c, bool centered, double power) const {
    if (half[0].lo.empty() || half[1].lo.empty()) return 1;  // one sample: there is nothing to compare
    const auto [less, more] = std::minmax({half[0].range(c, centered), half[1].range(c, centered)});
    return less > 0 ? std::pow(more / less, power) : INFINITY;
  }
};
using ExtentsByName = std::map<std::string, Extents>;

std::vector<double> factors(const onnx::ChannelGroup& g, const ExtentsByName& extents, const EqualizeOptions& o) {
  const auto channels = static_cast<std::size_t>(g.channels);
  std::vector<double> part(channels, 0.0);  // of the widest channel of a tensor, the most among the tensors
  const bool centered = g.offsets && o.offsets;
  for (const std::string& t : g.read) {
    const Extents& e = extents.at(t);
    double widest = 0;
    for (std::size_t c = 0; c < channels; ++c) widest = std::max(widest, e.all.range(c, centered));
    for (std::size_t c = 0; c < channels && widest > 0; ++c) {
      const double range = e.all.range(c, centered);
      if (range > 0) part[c] = std::max(part[c], std::min(1.0, range * e.headroom(c, centered, o.headroom) / widest));
    }
  }
  const double exponent = g.depthwise ? 1.0 : g.additions ? o.chain_exponent : o.exponent;
  std::vector<double> out(channels, 1.0);
  for (std::size_t c = 0; c < channels; ++c) {
    if (!(part[c] > 1e-6)) continue;  // a channel that is always the same, or nearly
    out[c] = std::min(std::pow(part[c], -exponent), o.most);
    for (const auto& [tensor, bounds] : g.limits) {
      const Extent& e = extents.at(tensor).all;
      const auto keep = [&](double value, double bound) {
        if (value * 1.001 >= bound)
          out[c] = 1;  // reaches the bound already
        else if (value > 0)
          out[c] = std::min(out[c], bound / value);
      };
      if (std::isfinite(bounds.second)) keep(static_cast<double>(e.hi[c]), static_cast<double>(bounds.second));
      if (std::isfinite(bounds.first) && bounds.first < 0) keep(-static_cast<double>(e.lo[c]), -static_cast<double>(bounds.first));
    }
  }
  return out;
}

/// The middle of each channel of `tensor` after multiplication.
std::vector<double> centers(const Extent& e, const std::vector<double>& factor) {
  std::vector<double> out(factor.size());
  for (std::size_t c = 0; c < out.size(); ++c)
    out[c] = factor[c] * 0.5 * (static_cast<double>(e.lo[c]) + static_cast<double>(e.hi[c]));
  return out;
}

}  // namespace

Result<Equalized> equalize(const onnx::Parsed& parsed, const onnx::Model& model, const Data& data, int threads,
                           const EqualizeOptions& options, const Progress& progress) {
  OCTAVO_TRY(const auto editor, onnx::open_model(parsed));
  const std::vector<onnx::Layer> layers = onnx::weighted_layers(*editor);
  std::map<std::string, Observable> values;
  for (const ir::NodeId id : model.graph.order()) {
    for (const ir::ValueId v : model.graph.node(id).outputs) {
      const ir::Value& value = model.graph.value(v);
      if (!value.name.empty() && value.type.dtype == ir::DType::f32)
        values.emplace(value.name, Observable{value.name, value.type.shape, v, false});
    }
  }
  std::map<std::string, ir::Shape> shapes;
  for (const auto& [name, o] : values) shapes.emplace(name, o.shape);
  for (const auto& [alias, of] : model.aliases) {
    if (const auto at = values.find(of); at != values.end()) {
      values.emplace(alias, at->second);
      shapes.emplace(alias, at->second.shape);
    }
  }
  std::vector<onnx::ChannelGroup> groups = onnx::channel_groups(*editor, layers, shapes);
  std::erase_if(groups, [&](const onnx::ChannelGroup& g) {
    const auto known = [&](const std::string& t) {
      const auto at = shapes.find(t);
      return at != shapes.end() && at->second.size() > static_cast<std::size_t>(g.axis) &&
             at->second[static_cast<std::size_t>(g.axis)] == g.channels;
    };
    return g.channels < 2 || !std::all_of(g.read.begin(), g.read.end(), known) ||
           !std::all_of(g.limits.begin(), g.limits.end(), [&](const auto& l) { return known(l.first); });
  });
  if (groups.empty()) return Equalized{};
  std::vector<Observable> observed;
  std::vector<std::pair<std::string, int>> wanted;  // name and axis, parallel to `observed`
  std::set<std::string> have;
  const auto watch = [&](const std::string& t, int axis) {
    if (!have.insert(t).second) return;
    observed.push_back(values.at(t));
    wanted.emplace_back(t, axis);
  };
  for (const onnx::ChannelGroup& g : groups) {
    for (const std::string& t : g.read) watch(t, g.axis);
    for (const auto& [t, bounds] : g.limits) watch(t, g.axis);
  }
  OCTAVO_TRY(const Network network, Network::create(model, observed));
  ExtentsByName extents;
  std::mutex lock;
  const auto visit = [&](const Visit& v) -> Result<InOrder> {
    for (std::size_t i = 0; i < observed.size(); ++i) {
      Extent here;
      here.include(v.runners[0].observed(i).data<float>(), observed[i].shape, wanted[i].second);
      const std::lock_guard guard(lock);
      Extents& e = extents[wanted[i].first];
      e.all.include(here);
      e.half[v.sample % 2].include(here);
    }
    return InOrder();
  };
  OCTAVO_CHECK(for_each(data, {&network}, threads, visit, progress));
  std::vector<onnx::ChannelChange> changes;
  Equalized out;
  for (const onnx::ChannelGroup& g : groups) {
    onnx::ChannelChange change{factors(g, extents, options), {}};
    if (g.offsets && options.offsets) {
      for (const std::string& t : g.read) change.wanted_offset.emplace(t, centers(extents.at(t).all, change.factor));
    }
    out.tensors.insert(out.tensors.end(), g.read.begin(), g.read.end());
    changes.push_back(std::move(change));
  }
  onnx::change_channels(*editor, layers, groups, changes);
  out.model = onnx::parsed_of(std::move(*editor));
  return out;
}

}  // namespace octavo::quantize
