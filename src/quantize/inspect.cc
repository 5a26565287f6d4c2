#include "quantize/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <cmath>

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

Counted count(const ir::Quantizer& q, std::span<const float> exact, std::span<const float> own) {
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

Result<std::vector<RoundedTensor>> inspect(const onnx::Model& model, const Data& data, int threads, const Progress& progress) {
  const ir::Graph& g = model.graph;
  std::vector<RoundedTensor> out;
  std::vector<Observable> observed;
  onnx::Model without = model;
  for (const ir::NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    const bool pair = n.op == ir::Op::dequantize && g.producer(n.inputs[0]).op == ir::Op::quantize;
    if (pair && !g.is_constant(g.producer(n.inputs[0]).inputs[0]))
      without.graph.replace_uses(n.outputs[0], g.producer(n.inputs[0]).inputs[0]);
    if (n.op == ir::Op::view && !g.is_constant(n.inputs[0])) without.graph.replace_uses(n.outputs[0], n.inputs[0]);
    if ((n.op != ir::Op::quantize && n.op != ir::Op::view) || !n.quantizer || n.quantizer->scale.size() != 1) continue;
    const ir::Value& v = g.value(n.inputs[0]);
    if (g.is_constant(n.inputs[0]) || v.type.dtype != ir::DType::f32 || v.name.empty()) continue;
    RoundedTensor t;
    t.name = v.name;
    t.quantizer = *n.quantizer;
    out.push_back(std::move(t));
    observed.push_back({v.name, v.type.shape, n.inputs[0], false});
  }
  if (out.empty()) {
    return fail(ErrorKind::usage,
                "the model has no activation behind a QuantizeLinear with one scale: there is nothing to look at on data\n  octavo "
                "quantize makes such a model");
  }
  without.graph.remove_dead();
  without.graph.touch();
  OCTAVO_TRY(const Network exact, Network::create(without, observed));
  OCTAVO_TRY(const Network own, Network::create(model, observed));
  std::vector<std::bitset<65536>> codes(out.size());
  const auto visit = [&](const Visit& v) -> Result<InOrder> {
    std::vector<Counted> here;
    for (std::size_t i = 0; i < out.size(); ++i)
      here.push_back(count(out[i].quantizer, v.runners[0].observed(i).data<float>(), v.runners[1].observed(i).data<float>()));
    return [&, here = std::move(here)] {
      for (std::size_t i = 0; i < out.size(); ++i) {
        const Counted& c = here[i];
        out[i].elements += c.elements;
        out[i].saturated += c.saturated;
        codes[i] |= c.codes;
        out[i].signal += c.signal;
        out[i].alike += c.alike;
        out[i].own += c.own;
      }
    };
  };
  OCTAVO_CHECK(for_each(data, {&exact, &own}, threads, visit, progress));
  for (std::size_t i = 0; i < out.size(); ++i) out[i].codes = static_cast<int>(codes[i].count());
  return out;
}

std::string inspection_svg(const std::vector<RoundedTensor>& tensors) {
  constexpr double kColumn = 14, kLeft = 60, kTop = 40, kHeight = 300, kMost = 60;
  const double wide = kColumn * static_cast<double>(tensors.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"16\">Signal to noise of each tensor, dB. Blue: this rounding alone. Red: all roundings before "
      "it.</text>\n",
      kLeft + wide + 20, kTop + kHeight + 40, kLeft);
  const auto y_of = [&](double db) { return kTop + kHeight * (1 - std::clamp(db, 0.0, kMost) / kMost); };
  for (double db = 0; db <= kMost; db += 10)
    out += fmt::format("<path d=\"M{} {:.1f}h{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                       kLeft, y_of(db), wide, kLeft - 6, y_of(db) + 4, db);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const double x = kLeft + kColumn * (static_cast<double>(i) + 0.5);
    std::string name;
    for (const char c : tensors[i].name) name += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
    const auto point = [&](double db, const char* color) {
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"><title>{}: {:.1f} dB</title></circle>\n", x,
                         y_of(db), color, name, db);
    };
    point(tensors[i].alike_sqnr(), "#3060a0");
    point(tensors[i].own_sqnr(), "#c03020");
  }
  return out + fmt::format("<text x=\"{}\" y=\"{}\">{} rounded tensors in the order of the network</text>\n</svg>\n", kLeft,
                           kTop + kHeight + 25, tensors.size());
}

}  // namespace octavo::quantize
