#include "quantize/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace octavo::quantize {
namespace {

constexpr std::size_t kMostReturns = 16;  // layers that are tried in a narrower type again

class Searcher {
 public:
  Searcher(const Laboratory& laboratory, const AccuracyBound& bound) : lab_(laboratory), bound_(bound) {}

  Result<PrecisionSearch> run() {
    out_.float_score = lab_.float_score;
    OCTAVO_TRY(const CurvePoint all, measured({}));
    OCTAVO_CHECK(sensitivities());
    std::size_t count = 0;
    if (!holds(all)) {
      OCTAVO_CHECK(find_float32());
      OCTAVO_TRY(count, shortest([&](std::size_t n) { return prefix(n); }, order_.size()));
    }
    WideLayers chosen = prefix(count);
    OCTAVO_CHECK(give_back(chosen, count));
    for (std::size_t n = 1; n < order_.size(); n *= 2) {
      if (n != count) OCTAVO_CHECK(measured(prefix(n)));
    }
    OCTAVO_CHECK(measured(chosen));
    const auto same = [&](const CurvePoint& p) { return p.wide == chosen; };
    std::find_if(out_.curve.begin(), out_.curve.end(), same)->chosen = true;
    std::stable_sort(out_.curve.begin(), out_.curve.end(),
                     [](const CurvePoint& a, const CurvePoint& b) { return a.wide.size() < b.wide.size(); });
    for (Sensitivity& s : out_.layers)
      s.type = chosen.float32.contains(s.node) ? "float32" : chosen.bfloat16.contains(s.node) ? "bfloat16" : "int8";
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool holds(const CurvePoint& p) const {
    if (bound_.min_sqnr && p.sqnr < *bound_.min_sqnr) return false;
    return !bound_.max_drop || !p.score || !lab_.float_score || *lab_.float_score - *p.score <= *bound_.max_drop + 1e-12;
  }
  /// A point of the curve, measured once.
  Result<CurvePoint> measured(const WideLayers& wide) {
    const auto known = std::find_if(out_.curve.begin(), out_.curve.end(), [&](const CurvePoint& p) { return p.wide == wide; });
    if (known != out_.curve.end()) return *known;
    OCTAVO_TRY(CurvePoint p, lab_.measure(wide));
    out_.curve.push_back(p);
    return p;
  }
  [[nodiscard]] bool in_bfloat16(const std::string& node) const {
    return bfloat16_.contains(node) && !needs_float32_.contains(node);
  }
  /// The first `n` layers of the order in the type that each goes to.
  [[nodiscard]] WideLayers prefix(std::size_t n) const {
    WideLayers out;
    for (std::size_t i = 0; i < n; ++i) (in_bfloat16(order_[i]) ? out.bfloat16 : out.float32).insert(order_[i]);
    return out;
  }

  static double noise_of(double sqnr) { return std::isfinite(sqnr) ? std::pow(10.0, -sqnr / 10) : 0.0; }
  /// What gains nothing in the narrower type leaves it first, what makes no noise there last.
  static double weight_of(double sqnr, double gain) {
    const double noise = noise_of(sqnr);
    return noise <= 0 ? 0.0 : gain > 0 ? noise / gain : INFINITY;
  }
  static double gain_of(const std::map<std::string, double>& gains, const std::string& node) {
    const auto at = gains.find(node);
    return at == gains.end() ? 0 : at->second;
  }

  /// Each layer alone in int8, and alone in bfloat16: the others are float32, so that the noise is that of one.
  Status sensitivities() {
    const std::set<std::string> all(lab_.layers.begin(), lab_.layers.end());
    for (const std::string& node : lab_.layers) {
      WideLayers others{all, {}};
      others.float32.erase(node);
      Sensitivity s;
      s.node = node;
      OCTAVO_TRY(s.sqnr, lab_.noise(others));
      bool narrow = false;
      if (lab_.may_bfloat16.contains(node)) {
        others.bfloat16.insert(node);
        OCTAVO_TRY(s.sqnr_bfloat16, lab_.noise(others));
        narrow = *s.sqnr_bfloat16 > s.sqnr;
      }
      if (narrow) bfloat16_.insert(node);
      if (narrow || lab_.may_float32) order_.push_back(node);
      s.gain = gain_of(narrow ? lab_.gain_over_bfloat16 : lab_.gain, node);
      out_.layers.push_back(std::move(s));
    }
    std::stable_sort(out_.layers.begin(), out_.layers.end(), [&](const Sensitivity& a, const Sensitivity& b) {
      const double x = weight_of(a.sqnr, a.gain), y = weight_of(b.sqnr, b.gain);
      return x != y ? x > y : a.sqnr < b.sqnr;
    });
    const std::set<std::string> may(order_.begin(), order_.end());
    order_.clear();
    for (const Sensitivity& s : out_.layers) {
      if (may.contains(s.node)) order_.push_back(s.node);
      alone_[s.node] = s;
    }
    return {};
  }

  /// The least n for which wide(n) keeps the bound, by bisection: it fails at 0 and holds at `high`.
  Result<std::size_t> shortest(const std::function<WideLayers(std::size_t)>& wide, std::size_t high) {
    std::size_t low = 0;
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      OCTAVO_TRY(const CurvePoint p, measured(wide(middle)));
      (holds(p) ? high : low) = middle;
    }
    return high;
  }

  /// Which layers may not be bfloat16 for the bound to hold with no layer in int8; none where it holds with all in bfloat16.
  Status find_float32() {
    OCTAVO_TRY(const CurvePoint all, measured(prefix(order_.size())));
    if (holds(all)) return {};
    const bool narrower = !all.wide.bfloat16.empty();
    if (!narrower || !lab_.may_float32) return beyond(all);
    std::vector<std::string> order(all.wide.bfloat16.begin(), all.wide.bfloat16.end());
    const auto with = [&](std::size_t n) {
      WideLayers out = all.wide;
      for (std::size_t i = 0; i < n; ++i) {
        out.bfloat16.erase(order[i]);
        out.float32.insert(order[i]);
      }
      return out;
    };
    OCTAVO_TRY(const CurvePoint floats, measured(with(order.size())));
    if (!holds(floats)) return beyond(floats);
    const auto alone = [&](const std::string& node) { return *alone_.at(node).sqnr_bfloat16; };
    const auto weight = [&](const std::string& node) {
      return weight_of(alone(node), gain_of(lab_.gain, node) - gain_of(lab_.gain_over_bfloat16, node));
    };
    std::stable_sort(order.begin(), order.end(), [&](const std::string& a, const std::string& b) {
      const double x = weight(a), y = weight(b);
      return x != y ? x > y : alone(a) < alone(b);
    });
    OCTAVO_TRY(const std::size_t count, shortest(with, order.size()));
    needs_float32_ = {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count)};
    std::vector<std::string> back(needs_float32_.begin(), needs_float32_.end());
    std::stable_sort(back.begin(), back.end(), [&](const std::string& a, const std::string& b) { return alone(a) > alone(b); });
    for (std::size_t i = 0; count > 1 && i < std::min(back.size(), kMostReturns); ++i) {
      needs_float32_.erase(back[i]);
      OCTAVO_TRY(const CurvePoint p, measured(prefix(order_.size())));
      if (!holds(p)) needs_float32_.insert(back[i]);
    }
    return {};
  }

  [[nodiscard]] Status beyond(const CurvePoint& widest) const {
    const std::string types = widest.wide.bfloat16.empty()  ? "float"
                              : widest.wide.float32.empty() ? "bfloat16"
                                                            : "float32 or bfloat16";
    return fail(ErrorKind::usage,
                fmt::format("the bound does not hold with all {} layers in {} either (signal to noise {:.1f} dB): what is "
                            "rounded {}exceeds it\n  allow {}a larger loss",
                            widest.wide.size(), types, widest.sqnr,
                            lab_.may_float32 ? "outside of layers " : "to bfloat16, in int8, or outside of layers ",
                            lab_.may_float32 ? "" : "float32 as well, or "));
  }

  /// What left int8 early for its price may not be needed any more: what makes least noise comes back first.
  Status give_back(WideLayers& chosen, std::size_t count) {
    if (count < 2) return {};
    std::vector<std::string> back(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count));
    std::stable_sort(back.begin(), back.end(),
                     [&](const std::string& a, const std::string& b) { return alone_.at(a).sqnr > alone_.at(b).sqnr; });
    for (std::size_t i = 0; i < std::min(back.size(), kMostReturns); ++i) {
      WideLayers trial = chosen;
      trial.float32.erase(back[i]);
      trial.bfloat16.erase(back[i]);
      OCTAVO_TRY(const CurvePoint p, lab_.measure(trial));
      if (holds(p)) chosen = std::move(trial);
    }
    return {};
  }

  const Laboratory& lab_;
  const AccuracyBound& bound_;
  std::vector<std::string> order_;            ///< of out_.layers, those that may leave int8
  std::map<std::string, Sensitivity> alone_;  ///< out_.layers by node
  std::set<std::string> bfloat16_;            ///< layers that may be bfloat16, and make less noise in it than in int8
  std::set<std::string> needs_float32_;       ///< of these
  PrecisionSearch out_;
};

}  // namespace

Result<PrecisionSearch> search_precision(const Laboratory& laboratory, const AccuracyBound& bound) {
  return Searcher(laboratory, bound).run();
}

std::string curve_svg(const PrecisionSearch& search) {
  constexpr double kLeft = 70, kTop = 30, kWidth = 560, kHeight = 320;
  double fast = INFINITY, slow = 0, low = INFINITY, high = -INFINITY;
  for (const CurvePoint& p : search.curve) {
    if (!std::isfinite(p.sqnr)) continue;
    fast = std::min(fast, p.seconds);
    slow = std::max(slow, p.seconds);
    low = std::min(low, p.sqnr);
    high = std::max(high, p.sqnr);
  }
  const auto part = [](double x, double from, double to) { return to > from ? (x - from) / (to - from) : 0.5; };
  const auto x_of = [&](double s) { return kLeft + kWidth * part(s, fast, slow); };
  const auto y_of = [&](double q) { return kTop + kHeight * (1 - part(q, low, high)); };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<path d=\"M{2} {3}V{4}H{5}\" fill=\"none\" stroke=\"black\"/>\n"
      "<text x=\"{6}\" y=\"{7}\" text-anchor=\"middle\">estimated time of a run, ms</text>\n"
      "<text x=\"18\" y=\"{8}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {8})\">signal to noise at the outputs, "
      "dB</text>\n",
      kLeft + kWidth + 40, kTop + kHeight + 60, kLeft, kTop, kTop + kHeight, kLeft + kWidth, kLeft + kWidth / 2,
      kTop + kHeight + 45, kTop + kHeight / 2);
  const auto label = [&](double x, double y, const char* anchor, const std::string& text) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, text);
  };
  if (std::isfinite(fast)) {
    for (const double s : {fast, slow}) label(x_of(s), kTop + kHeight + 20, "middle", fmt::format("{:.3g}", 1e3 * s));
    for (const double q : {low, high}) label(kLeft - 8, y_of(q) + 4, "end", fmt::format("{:.1f}", q));
  }
  std::vector<const CurvePoint*> points;  // the chosen one first: labels that come later give way
  for (const CurvePoint& p : search.curve) {
    if (std::isfinite(p.sqnr)) points.push_back(&p);
  }
  std::stable_sort(points.begin(), points.end(), [](const CurvePoint* a, const CurvePoint* b) { return a->chosen > b->chosen; });
  std::vector<std::pair<double, double>> labels;
  for (const CurvePoint* p : points) {
    const double x = x_of(p->seconds), y = y_of(p->sqnr);
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x, y, p->chosen ? 7 : 4,
                       p->chosen ? "#c03020" : "#3060a0");
    const auto hidden = [&](const auto& l) { return std::abs(l.first - x) < 60 && std::abs(l.second - y) < 14; };
    if (std::any_of(labels.begin(), labels.end(), hidden)) continue;
    labels.emplace_back(x, y);
    const bool right = x > kLeft + kWidth - 60;
    label(right ? x - 9 : x + 9, y - 6, right ? "end" : "start",
          p->wide.bfloat16.empty() ? fmt::format("{} float", p->wide.float32.size())
                                   : fmt::format("{} bfloat16, {} float", p->wide.bfloat16.size(), p->wide.float32.size()));
  }
  return out + "</svg>\n";
}

}  // namespace octavo::quantize
