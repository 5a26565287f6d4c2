#include "quantize/metrics/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <cmath>
#include <map>
#include <tuple>

#include "quant/weight_scales.h"

namespace octavo::quantize {
namespace {

double decibel(double signal, double noise) {
  return noise > 0 ? 10 * std::log10(signal / noise) : INFINITY;
}

struct Counted {
  std::uint64_t elements = 0, saturated = 0;
  std::bitset<65536> codes;
  double signal = 0, alike = 0, own = 0;
};

Counted count_codes(const ir::Quantizer& q, std::span<const float> exact, std::span<const float> own) {
  Counted c;
  const double scale = static_cast<double>(q.scale[0]), zero = q.zero_point[0], lo = static_cast<double>(q.lo()),
               hi = static_cast<double>(q.hi());
  c.elements = exact.size();
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double x = static_cast<double>(exact[i]), y = static_cast<double>(own[i]);
    const double wanted = std::nearbyint(y / scale) + zero, code = std::clamp(wanted, lo, hi);
    if (wanted != code) ++c.saturated;
    if (std::isfinite(code)) c.codes.set(static_cast<std::size_t>(code - lo) & 65535U);
    const double rounded = (std::clamp(std::nearbyint(x / scale) + zero, lo, hi) - zero) * scale;
    c.signal += x * x;
    c.alike += (rounded - x) * (rounded - x);
    c.own += (y - x) * (y - x);
  }
  return c;
}

}  // namespace

double RoundedTensor::alike_sqnr() const {
  return decibel(signal, alike);
}
double RoundedTensor::own_sqnr() const {
  return decibel(signal, own);
}

double RoundedLayer::sqnr() const {
  return decibel(signal, noise);
}

namespace {

/// What is looked at, and the networks that show it.
class Inspector {
 public:
  Inspector(const onnx::Model& model, const Implicit& implicit) : model_(model), implicit_(implicit), exact_(model) {}

  Result<Inspection> run(const Data& data, int threads, const Progress& progress) {
    implicit_.planned != nullptr ? find_views() : find_pairs();
    if (out_.tensors.empty()) {
      return fail(
          ErrorKind::usage,
          implicit_.planned != nullptr
              ? "with these ranges no layer is int8: there is nothing to measure on data"
              : "the model has no activation behind a QuantizeLinear with one scale: there is nothing to measure on data\n  "
                "octavo quantize makes such a model; give --calibration for a float model with a table");
    }
    add_layers();
    add_outputs();
    exact_.graph.touch();
    OCTAVO_TRY(const Network exact, Network::create(exact_, all()));
    plan::PlanOptions options = implicit_.planned != nullptr ? implicit_.options : plan::PlanOptions();
    OCTAVO_TRY(const Network own, Network::create(model_, tensors_, options));
    OCTAVO_CHECK(for_each(
        data, {&exact, &own}, threads, [&](const Visit& v) { return visit(v); }, progress));
    for (std::size_t i = 0; i < out_.tensors.size(); ++i) out_.tensors[i].codes = static_cast<int>(codes_[i].count());
    for (std::size_t i = 0; i < out_.layers.size(); ++i) sums_[i].into(out_.layers[i]);
    return std::move(out_);
  }

 private:
  /// Of one layer's results, channel by channel.
  struct Sums {
    std::vector<double> sum, squares;
    double noise = 0, count = 0;
    void add(const Sums& other) {
      sum.resize(other.sum.size());
      squares.resize(other.sum.size());
      for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += other.sum[c], squares[c] += other.squares[c];
      noise += other.noise;
      count += other.count;
    }
    void into(RoundedLayer& layer) const {
      layer.noise = noise;
      const double each = count / static_cast<double>(std::max<std::size_t>(sum.size(), 1));
      for (std::size_t c = 0; c < sum.size() && each > 0; ++c) layer.signal += squares[c] - sum[c] * sum[c] / each;
    }
  };

  void look_at(const std::string& name, ir::ValueId v, const ir::Quantizer& q) {
    if (q.scale.size() != 1 || name.empty() || !seen_.insert(name + ir::to_string(q)).second) return;
    RoundedTensor t;
    t.name = name;
    t.quantizer = q;
    out_.tensors.push_back(std::move(t));
    tensors_.push_back({name, model_.graph.type(v).shape, v, false});
  }

  void find_pairs() {
    const ir::Graph& g = model_.graph;
    for (const ir::NodeId id : g.order()) {
      const ir::Node& n = g.node(id);
      const bool pair = n.op == ir::Op::dequantize && g.producer(n.inputs[0]).op == ir::Op::quantize;
      if (pair && !g.is_constant(g.producer(n.inputs[0]).inputs[0])) {
        const ir::Node& q = g.producer(n.inputs[0]);
        exact_.graph.replace_uses(n.outputs[0], q.inputs[0]);
        if (q.quantizer) rounded_.emplace(n.outputs[0], std::pair{q.inputs[0], *q.quantizer});
      }
      if ((n.op != ir::Op::quantize && n.op != ir::Op::view) || !n.quantizer) continue;
      if (n.op == ir::Op::view && !g.is_constant(n.inputs[0])) {
        exact_.graph.replace_uses(n.outputs[0], n.inputs[0]);
        rounded_.emplace(n.outputs[0], std::pair{n.inputs[0], *n.quantizer});
      }
      const ir::Value& v = g.value(n.inputs[0]);
      if (!g.is_constant(n.inputs[0]) && v.type.dtype == ir::DType::f32) look_at(v.name, n.inputs[0], *n.quantizer);
    }
  }

  void find_views() {
    const ir::Graph& p = *implicit_.planned;
    for (const ir::NodeId id : model_.graph.order()) {
      for (const ir::ValueId v : model_.graph.node(id).outputs) {
        const ir::Value& value = model_.graph.value(v);
        if (!value.name.empty() && value.type.dtype == ir::DType::f32) named_.emplace(value.name, v);
      }
    }
    for (const ir::NodeId id : p.order()) {
      const ir::Node& n = p.node(id);
      if (n.op != ir::Op::view || !n.quantizer || p.is_constant(n.inputs[0])) continue;
      for (const ir::ValueId end : {n.inputs[0], n.outputs[0]}) {
        const auto at = named_.find(p.value(end).name);
        if (at == named_.end()) continue;
        look_at(at->first, at->second, *n.quantizer);
        views_.emplace(at->second, *n.quantizer);
        break;
      }
    }
  }

  /// Each int8 layer once more, behind the rounding of its own data, in the float network.
  void add_layers() {
    const ir::Graph& g = model_.graph;
    for (const ir::NodeId id : g.order()) {
      const ir::Node& n = g.node(id);
      if (n.op != ir::Op::conv && n.op != ir::Op::conv_transpose && n.op != ir::Op::gemm) continue;
      const bool known =
          g.is_constant(n.inputs[1]) && g.type(n.inputs[1]).dtype == ir::DType::f32 && !g.producer(n.inputs[1]).quantizer;
      ir::ValueId x = n.inputs[0], w = n.inputs[1];
      ir::Quantizer q;
      if (implicit_.planned != nullptr) {
        const bool int8 =
            std::any_of(n.origin.begin(), n.origin.end(), [&](const auto& o) { return implicit_.layers.contains(o); });
        const auto view = views_.find(x);
        const auto range = implicit_.options.ranges.find(g.value(x).name);
        if (!int8 || !known || (view == views_.end() && range == implicit_.options.ranges.end())) continue;
        q = view != views_.end() ? view->second : range->second;
        w = exact_.graph.add_quantizer(ir::Op::view, w, quant::weight_quantizer(g, n), g.type(w), n.origin);
      } else {
        const auto pair = rounded_.find(x);
        if (pair == rounded_.end()) continue;
        std::tie(x, q) = pair->second;
      }
      ir::Node alone = exact_.graph.node(id);
      alone.inputs[0] = exact_.graph.add_quantizer(ir::Op::view, x, q, g.type(x), n.origin);
      alone.inputs[1] = w;
      alone.outputs.clear();
      const std::string name = n.origin.empty() ? g.value(n.outputs[0]).name : *n.origin.begin();
      const ir::NodeId made = exact_.graph.add_node(std::move(alone), {g.type(n.outputs[0])}, {name + " (alone)"});
      out_.layers.push_back({name, g.value(x).name, 0, 0});
      results_.push_back({name + " (float)", g.type(n.outputs[0]).shape, n.outputs[0], false});
      alone_.push_back({name + " (alone)", g.type(n.outputs[0]).shape, exact_.graph.node(made).outputs[0], false});
      axes_.push_back(n.op == ir::Op::gemm ? static_cast<int>(g.type(n.outputs[0]).shape.size()) - 1 : 1);
    }
    codes_.resize(out_.tensors.size());
    sums_.resize(out_.layers.size());
  }

  void add_outputs() {
    for (const std::string& name : model_.graph.output_names) out_.outputs.push_back({name, 0, 0});
  }

  [[nodiscard]] std::vector<Observable> all() const {
    std::vector<Observable> out = tensors_;
    out.insert(out.end(), results_.begin(), results_.end());
    out.insert(out.end(), alone_.begin(), alone_.end());
    return out;
  }

  [[nodiscard]] Sums sums(const ir::Tensor& exact, const ir::Tensor& rounded, int axis) const {
    const auto a = exact.data<float>(), b = rounded.data<float>();
    const auto channels = static_cast<std::size_t>(exact.shape()[static_cast<std::size_t>(axis)]);
    std::size_t inner = 1;
    for (std::size_t d = static_cast<std::size_t>(axis) + 1; d < exact.shape().size(); ++d)
      inner *= static_cast<std::size_t>(exact.shape()[d]);
    Sums s;
    s.sum.resize(channels);
    s.squares.resize(channels);
    s.count = static_cast<double>(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::size_t c = i / inner % channels;
      const double x = static_cast<double>(a[i]), e = static_cast<double>(b[i]) - x;
      s.sum[c] += x;
      s.squares[c] += x * x;
      s.noise += e * e;
    }
    return s;
  }

  Result<InOrder> visit(const Visit& v) {
    std::vector<Counted> here;
    std::vector<Sums> layers;
    std::vector<OutputError> outputs = errors_of(v.runners[0], v.runners[1], out_.outputs.size());
    const std::size_t tensors = out_.tensors.size(), count = out_.layers.size();
    for (std::size_t i = 0; i < tensors; ++i)
      here.push_back(
          count_codes(out_.tensors[i].quantizer, v.runners[0].observed(i).data<float>(), v.runners[1].observed(i).data<float>()));
    for (std::size_t i = 0; i < count; ++i)
      layers.push_back(sums(v.runners[0].observed(tensors + i), v.runners[0].observed(tensors + count + i), axes_[i]));
    return [this, here = std::move(here), layers = std::move(layers), outputs = std::move(outputs)] {
      add_errors(out_.outputs, outputs);
      for (std::size_t i = 0; i < here.size(); ++i) {
        const Counted& c = here[i];
        RoundedTensor& t = out_.tensors[i];
        t.elements += c.elements;
        t.saturated += c.saturated;
        codes_[i] |= c.codes;
        t.signal += c.signal;
        t.alike += c.alike;
        t.own += c.own;
      }
      for (std::size_t i = 0; i < layers.size(); ++i) sums_[i].add(layers[i]);
    };
  }

  const onnx::Model& model_;
  const Implicit& implicit_;
  onnx::Model exact_;  ///< without the roundings, and with each layer once more behind its own
  Inspection out_;
  std::vector<Observable> tensors_, results_, alone_;  ///< the latter two parallel to the layers
  std::vector<int> axes_;                              ///< of the layers' channels
  std::set<std::string> seen_;
  std::map<ir::ValueId, std::pair<ir::ValueId, ir::Quantizer>> rounded_;  ///< result of a pair -> what it rounds
  std::map<ir::ValueId, ir::Quantizer> views_;
  std::map<std::string, ir::ValueId> named_;
  std::vector<std::bitset<65536>> codes_;
  std::vector<Sums> sums_;
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

}  // namespace

Result<Inspection> inspect(const onnx::Model& model, const Implicit& implicit, const Data& data, int threads,
                           const Progress& progress) {
  return Inspector(model, implicit).run(data, threads, progress);
}

std::string inspection_svg(const Inspection& inspection) {
  constexpr double kColumn = 14, kLeft = 60, kTop = 40, kHeight = 260, kMost = 60, kPanel = kTop + kHeight + 50;
  const double wide =
      kColumn * static_cast<double>(std::max<std::size_t>({inspection.tensors.size(), inspection.layers.size(), 40}));
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kLeft + wide + 20, 2 * kPanel);
  const auto y_of = [&](int panel, double db) {
    return panel * kPanel + kTop + kHeight * (1 - std::clamp(db, 0.0, kMost) / kMost);
  };
  const auto axes = [&](int panel, const std::string& title, const std::string& below) {
    out += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n<text x=\"{}\" y=\"{}\">{}</text>\n", kLeft, panel * kPanel + 16, title,
                       kLeft, panel * kPanel + kTop + kHeight + 25, below);
    for (double db = 0; db <= kMost; db += 10)
      out += fmt::format("<path d=\"M{} {:.1f}h{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                         kLeft, y_of(panel, db), wide, kLeft - 6, y_of(panel, db) + 4, db);
  };
  const auto point = [&](int panel, std::size_t i, double db, const char* color, const std::string& name) {
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"><title>{}: {:.1f} dB</title></circle>\n",
                       kLeft + kColumn * (static_cast<double>(i) + 0.5), y_of(panel, db), color, escaped(name), db);
  };
  axes(0, "Signal to noise of each tensor, dB. Blue: this rounding alone. Red: all roundings before it.",
       fmt::format("{} rounded tensors in the order of the network", inspection.tensors.size()));
  for (std::size_t i = 0; i < inspection.tensors.size(); ++i) {
    point(0, i, inspection.tensors[i].alike_sqnr(), "#3060a0", inspection.tensors[i].name);
    point(0, i, inspection.tensors[i].own_sqnr(), "#c03020", inspection.tensors[i].name);
  }
  axes(1, "Signal to noise of each layer's results, dB, when it alone is rounded.",
       fmt::format("{} int8 layers in the order of the network", inspection.layers.size()));
  for (std::size_t i = 0; i < inspection.layers.size(); ++i)
    point(1, i, inspection.layers[i].sqnr(), "#207040", inspection.layers[i].node);
  return out + "</svg>\n";
}

}  // namespace octavo::quantize
