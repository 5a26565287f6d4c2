#include "cli/outputs/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <vector>

#include "cli/print.h"
#include "quantize/detection/detection.h"
#include "quantize/search/run_time.h"

namespace octavo::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string time_left(double seconds) {
  if (seconds < 1) return "less than a second more";
  return seconds < 90 ? fmt::format("about {:.0f} s more", seconds) : fmt::format("about {:.0f} min more", seconds / 60);
}

std::string list(const std::string& what, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  constexpr std::size_t kMost = 8;
  std::string text = what + ":\n";
  for (std::size_t i = 0; i < std::min(lines.size(), kMost); ++i) text += "  " + lines[i] + "\n";
  if (lines.size() > kMost) text += fmt::format("  and {} more\n", lines.size() - kMost);
  return text;
}

std::string db(double x) {
  return std::isfinite(x) ? fmt::format("{:.1f} dB", x) : "no error";
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : x[x.size() / 2];
}

std::string search_text(const quantize::PrecisionSearch& s) {
  const bool small = std::any_of(s.curve.begin(), s.curve.end(), [](const auto& p) { return !p.wide.bfloat16.empty(); });
  std::string text = fmt::format("layers in {}, signal to noise{}, estimated time of a run on one thread:\n",
                                 small ? "bfloat16, in float" : "float", s.float_score ? ", score" : "");
  for (const auto& p : s.curve) {
    text +=
        fmt::format("{}  {:>4}  {:>8}  {}{:>9.3f} ms{}{}\n", small ? fmt::format("  {:>4}", p.wide.bfloat16.size()) : "",
                    p.wide.float32.size(), db(p.sqnr), p.score ? fmt::format("{:.1f} %  ", 100 * *p.score) : "", 1e3 * p.seconds,
                    p.without_kernel.empty() ? "" : fmt::format("  ({} of bfloat16 as float32)", p.without_kernel.size()),
                    p.chosen ? "  chosen" : "");
  }
  if (s.float_score) text += fmt::format("score in float: {:.1f} %\n", 100 * *s.float_score);
  std::vector<std::string> worst;
  for (const auto& l : s.layers) {
    worst.push_back(fmt::format("{}: {}, int8 saves {:.1f} us{}", l.node, db(l.sqnr), 1e6 * l.gain,
                                small ? ", " + l.type + " now" : std::string()));
  }
  return text + list("signal to noise at the outputs when only this layer is int8, sorted by noise for each second that int8 saves",
                     worst);
}

std::string scores_text(const quantize::ScoreChoice& s) {
  const std::string first(quantize::name_of(s.first));
  if (!s.minmax) {
    return fmt::format(
        "ranges by {}: the data contain no object (no cell has a score above {:g} in float), so minmax was not tried\n", first,
        quantize::kObjectScore);
  }
  const bool minmax = s.chosen == quantize::Method::minmax;
  return fmt::format(
      "ranges by {}: scores at {} objects change by {:.4f} on average instead of {:.4f} with ranges by {} (on the calibration "
      "data; --method chooses one)\n",
      minmax ? "minmax" : first, s.objects, minmax ? *s.minmax : s.change, minmax ? s.change : *s.minmax,
      minmax ? first : "minmax");
}

std::string gains_text(const std::vector<quantize::Gain>& gains) {
  std::string text = gains.empty() ? "" : "signal to noise at the outputs with one correction after the other:\n";
  for (std::size_t i = 0; i < gains.size(); ++i) {
    const std::string gain = i == 0 ? "" : fmt::format("{:+.1f} dB", gains[i].sqnr - gains[i - 1].sqnr);
    text += fmt::format("  {:>9}  {:>9}  {}{}\n", db(gains[i].sqnr), gain, i == 0 ? "" : "+ ", gains[i].correction);
  }
  return text;
}

}  // namespace

std::function<void(const std::string&, std::size_t, std::size_t)> quantize_watcher(Progress& progress, bool verbose) {
  return [&progress, verbose, current = std::string(), begun = Clock::now()](const std::string& step, std::size_t done,
                                                                             std::size_t count) mutable {
    if (step != current) {
      current = step;
      begun = Clock::now();
      if (verbose && done < count) return progress.step(step);
    }
    if (done == 0 || count == 0) return progress.step(step);
    if (verbose && done != count) return;
    const double spent = std::chrono::duration<double>(Clock::now() - begun).count();
    const double left = spent / static_cast<double>(done) * static_cast<double>(count - done);
    progress.step(done == count ? fmt::format("{}: all {} done", step, count)
                                : fmt::format("{}: {} of {} done, {}", step, done, count, time_left(left)));
  };
}

void print_warnings(const FileData& data, const quantize::Outcome& outcome) {
  constexpr std::size_t kMost = 8;
  for (const auto* warnings : {&data.warnings(), &outcome.warnings}) {
    for (std::size_t i = 0; i < std::min(warnings->size(), kMost); ++i) say("warning: {}\n", (*warnings)[i]);
    if (warnings->size() > kMost) say("warning: and {} more\n", warnings->size() - kMost);
  }
}

std::string outcome_text(const quantize::Outcome& out, bool symmetric) {
  std::map<std::string, std::size_t> methods;
  for (const auto& t : out.tensors) ++methods[std::string(quantize::name_of(t.method))];
  std::string names;
  for (const auto& [name, n] : methods) names += fmt::format("{}{} {}", names.empty() ? "" : ", ", n, name);
  std::size_t int8 = 0;
  const std::size_t small = out.bfloat16().size();
  std::vector<std::string> reasons;
  std::vector<double> before, after;
  for (const auto& l : out.layers) {
    int8 += l.int8 ? 1 : 0;
    if (!l.int8) reasons.push_back(fmt::format("{} ({}): {}", l.node, l.op, l.why_float));
    if (l.fitted != 0) {
      before.push_back(l.nearest);
      after.push_back(l.fitted);
    }
  }
  std::string text = fmt::format("{} samples; ranges of {} tensors{} ({})\n{} layers int8, {}{} float\n", out.samples,
                                 out.tensors.size(), symmetric ? "" : " with zero points", names, int8,
                                 small > 0 ? fmt::format("{} bfloat16, ", small) : "", out.layers.size() - int8 - small);
  if (out.raised_from != 0)
    text += fmt::format("the model's opset {} became 13, the first with a scale for each channel\n", out.raised_from);
  if (out.scores) text += scores_text(*out.scores);
  if (!after.empty()) {
    text += fmt::format(
        "signal to noise of a layer's results (median of {} layers): {} with weights rounded to nearest, {} with the weights that "
        "were written\n",
        after.size(), db(median(before)), db(median(after)));
  }
  text += gains_text(out.gains);
  if (!out.nearest.empty())
    text += fmt::format("signal to noise at the outputs without corrections: {}\n", db(quantize::sqnr_of(out.nearest)));
  text += fmt::format(
      "signal to noise at the outputs: {}\n",
      out.outputs.empty() ? "unknown: not measured" : db(quantize::sqnr_of(out.outputs)) + " (on the calibration data)");
  if (out.outputs.size() > 1) {
    std::vector<std::string> lines;
    for (const auto& e : out.outputs) lines.push_back(fmt::format("{}: {}", e.name, db(e.sqnr())));
    text += list("of each output", lines);
  }
  if (out.search) text += search_text(*out.search);
  return text + list(small > 0 ? "layers that stay float or bfloat16" : "layers that stay float", reasons) +
         list("tensors without a range, because they were 0 in every sample", out.without_range);
}

std::string build_text(const quantize::Outcome& out, const std::string& model) {
  const auto nodes = out.bfloat16();
  if (nodes.empty()) return "";
  std::string rules;
  for (const auto& rule : quantize::rules_for(nodes, "bfloat16")) {
    std::string pattern;
    for (const char c : rule.pattern) {
      if (c == '\'') {
        pattern += "'\\''";  // as a shell wants it
      } else {
        pattern += c == ',' ? '?' : c;  // the comma separates rules
      }
    }
    rules += fmt::format("{}{}={}", rules.empty() ? "" : ",", pattern, rule.type.name());
  }
  return fmt::format(
      "the model holds these {} layers in float32: building it with them in bfloat16 takes\n  octavo build {} --precision "
      "'{}'\nbfloat16-emulated instead computes the same values on any processor, as slowly as float32\n",
      nodes.size(), model, rules);
}

}  // namespace octavo::cli
