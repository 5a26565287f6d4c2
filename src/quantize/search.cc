#include "quantize/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace octavo::quantize {
namespace {

using Names = std::set<std::string>;

constexpr std::size_t kMostReturns = 16;  // layers that are tried in int8 again

class Searcher {
 public:
  Searcher(const Laboratory& laboratory, const AccuracyBound& bound) : lab_(laboratory), bound_(bound) {}

  Result<PrecisionSearch> run() {
    out_.float_score = lab_.float_score;
    OCTAVO_TRY(CurvePoint all, lab_.measure({}));
    const bool enough = holds(all);
    out_.curve.push_back(std::move(all));
    OCTAVO_CHECK(sensitivities());
    std::size_t count = 0;
    if (!enough) {
      OCTAVO_TRY(count, shortest_prefix());
    }
    Names chosen = prefix(count);
    OCTAVO_CHECK(give_back(chosen, count));
    for (std::size_t n = 1; n < out_.layers.size(); n *= 2) {
      if (n == count) continue;
      OCTAVO_TRY(CurvePoint p, lab_.measure(prefix(n)));
      out_.curve.push_back(std::move(p));
    }
    const auto same = [&](const CurvePoint& p) { return p.in_float == chosen; };
    if (std::none_of(out_.curve.begin(), out_.curve.end(), same)) {
      OCTAVO_TRY(CurvePoint p, lab_.measure(chosen));
      out_.curve.push_back(std::move(p));
    }
    std::find_if(out_.curve.begin(), out_.curve.end(), same)->chosen = true;
    std::stable_sort(out_.curve.begin(), out_.curve.end(),
                     [](const CurvePoint& a, const CurvePoint& b) { return a.in_float.size() < b.in_float.size(); });
    for (Sensitivity& s : out_.layers) s.in_float = chosen.contains(s.node);
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool holds(const CurvePoint& p) const {
    if (bound_.min_sqnr && p.sqnr < *bound_.min_sqnr) return false;
    return !bound_.max_drop || !p.score || !lab_.float_score || *lab_.float_score - *p.score <= *bound_.max_drop + 1e-12;
  }
  [[nodiscard]] Names prefix(std::size_t n) const {
    Names out;
    for (std::size_t i = 0; i < n; ++i) out.insert(out_.layers[i].node);
    return out;
  }

  Status sensitivities() {
    const Names all(lab_.layers.begin(), lab_.layers.end());
    for (const std::string& node : lab_.layers) {
      Names others = all;
      others.erase(node);
      Sensitivity s;
      s.node = node;
      OCTAVO_TRY(s.sqnr, lab_.noise(others));
      if (const auto at = lab_.gain.find(node); at != lab_.gain.end()) s.gain = at->second;
      out_.layers.push_back(std::move(s));
    }
    // What gains nothing in int8 goes first, what makes no noise last.
    const auto weight = [](const Sensitivity& s) {
      const double noise = std::isfinite(s.sqnr) ? std::pow(10.0, -s.sqnr / 10) : 0.0;
      return noise <= 0 ? 0.0 : s.gain > 0 ? noise / s.gain : INFINITY;
    };
    std::stable_sort(out_.layers.begin(), out_.layers.end(), [&](const Sensitivity& a, const Sensitivity& b) {
      const double x = weight(a), y = weight(b);
      return x != y ? x > y : a.sqnr < b.sqnr;
    });
    return {};
  }

  Result<std::size_t> shortest_prefix() {
    std::size_t low = 0, high = out_.layers.size();  // the bound fails at `low` and holds at `high`
    OCTAVO_TRY(CurvePoint last, lab_.measure(prefix(high)));
    if (!holds(last)) {
      return fail(ErrorKind::usage,
                  fmt::format("the bound does not hold with all {} layers in float either (signal to noise {:.1f} dB): what is "
                              "rounded outside of layers exceeds it\n  allow a larger loss",
                              high, last.sqnr));
    }
    out_.curve.push_back(std::move(last));
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      OCTAVO_TRY(CurvePoint p, lab_.measure(prefix(middle)));
      (holds(p) ? high : low) = middle;
      out_.curve.push_back(std::move(p));
    }
    return high;
  }

  /// What went to float early for its price may not be needed any more: what makes least noise comes back first.
  Status give_back(Names& chosen, std::size_t count) {
    if (count < 2) return {};
    std::vector<Sensitivity> back(out_.layers.begin(), out_.layers.begin() + static_cast<std::ptrdiff_t>(count));
    std::stable_sort(back.begin(), back.end(), [](const Sensitivity& a, const Sensitivity& b) { return a.sqnr > b.sqnr; });
    for (std::size_t i = 0; i < std::min(back.size(), kMostReturns); ++i) {
      Names trial = chosen;
      trial.erase(back[i].node);
      OCTAVO_TRY(CurvePoint p, lab_.measure(trial));
      if (holds(p)) chosen = std::move(trial);
    }
    return {};
  }

  const Laboratory& lab_;
  const AccuracyBound& bound_;
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
    label(right ? x - 9 : x + 9, y - 6, right ? "end" : "start", fmt::format("{} float", p->in_float.size()));
  }
  return out + "</svg>\n";
}

}  // namespace octavo::quantize
