#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "program/program.h"
#include "region/counted.h"
#include "region/key.h"
#include "region/stage_graph.h"
#include "report/costs.h"
#include "report/decisions.h"
#include "report/explain.h"
#include "report/sentences.h"

namespace octavo::report {
namespace {

using region::TensorRef;

std::string percent(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

/// "in vector kernels: 100.0 % of 1.6 M int8 MAC, 98.2 % of 80.9 kB moved": of what there is any.
std::string vector_shares(const Totals& t) {
  std::vector<std::string> parts;
  const auto add = [&](std::int64_t vector, std::int64_t all, std::string_view unit) {
    if (all > 0) parts.push_back(fmt::format("{} of {}", percent(vector, all), amount(all, unit)));
  };
  add(t.int8_macs_vector, t.int8_macs, "int8 MAC");
  add(t.float_macs_vector, t.float_macs, "float MAC");
  add(t.bytes_vector, t.bytes, "B moved");
  return parts.empty() ? "" : fmt::format("in vector kernels: {}\n", fmt::join(parts, ", "));
}

/// The region's name, and how many ONNX nodes beside those it names went into it (Q/DQ mostly).
std::string nodes_of(const region::Region& r) {
  std::size_t named = 0;
  for (std::size_t at = 0; at < r.name.size();) {
    const auto end = std::min(r.name.find(" + ", at), r.name.size());
    named += r.onnx_nodes.contains(r.name.substr(at, end - at)) ? 1 : 0;
    at = end + 3;
  }
  return r.onnx_nodes.size() > named ? fmt::format("{} (+{})", r.name, r.onnx_nodes.size() - named) : r.name;
}

std::string describe(const TensorRef& ref) {
  std::string text = fmt::format("\"{}\" {}", ref.value, ir::to_string(ir::TensorType{ref.dtype, ref.dims}));
  if (ref.quantizer) text += fmt::format(" through {}", brief(*ref.quantizer));
  return text;
}

void line(std::string& out, std::string_view label, std::string_view text) {
  out += fmt::format("  {:<14}{}\n", label, text);
}

/// The parameters of a tactic and of its parts, each with its meaning.
void add_parameters(std::string& out, const region::Tactic& tactic, const Meanings& meanings) {
  const std::vector<region::ParameterRow> rows = meanings(tactic);
  for (const auto& [name, value] : tactic.parameters) {
    const auto row = std::ranges::find(rows, name, &region::ParameterRow::name);
    line(out, "parameter",
         row == rows.end() ? fmt::format("{}={}", name, value) : fmt::format("{}={}: {}", name, value, row->meaning));
  }
  for (const region::Tactic& part : tactic.parts) add_parameters(out, part, meanings);
}

}  // namespace

std::string brief(const ir::Quantizer& q) {
  if (q.entries() <= 4) return ir::to_string(q);
  const auto [least, most] = std::ranges::minmax_element(q.scale);
  return fmt::format("{}[axis={}] with {} scales from {} to {}", ir::name_of(q.type), q.axis, q.entries(), *least, *most);
}

std::string working_memory(const region::Plan& plan) {
  const std::int64_t host = plan.devices[region::kHost].arena_bytes * plan.lanes;
  if (plan.devices.size() < 2) return fmt::format("{} of working memory", amount(host, "B"));
  std::string text = fmt::format("{} of working memory on the GPU", amount(plan.devices[1].arena_bytes * plan.lanes, "B"));
  if (host > 0) text += fmt::format(" and {} on the host", amount(host, "B"));
  return text;
}

std::string summary(const region::Plan& plan) {
  const Totals t = totals_of(plan);
  const auto counted =
      std::count_if(plan.regions.begin(), plan.regions.end(), [](const region::Region& r) { return r.count >= 0; });
  return fmt::format(
      "{} region{}: {} int8, {} float, {} other; planned for {} thread{}{}; {}\n"
      "{}{}{}",
      t.regions, t.regions == 1 ? "" : "s", t.int8_regions, t.float_regions, t.regions - t.int8_regions - t.float_regions,
      region::threads_of(plan), region::threads_of(plan) == 1 ? "" : "s",
      plan.images > 1 ? fmt::format("; the {} images of a batch run one by one, {} of them in parallel", plan.images, plan.lanes)
                      : "",
      working_memory(plan),
      plan.decided_for.empty()
          ? ""
          : fmt::format("decisions taken over from the plan for {}; nothing was timed for these shapes\n", plan.decided_for),
      counted == 0
          ? ""
          : fmt::format("{} of the regions compute{} only as many elements as the data of each run need (--all says which)\n",
                        counted, counted == 1 ? "s" : ""),
      vector_shares(t));
}

std::string table(const region::Plan& plan) {
  std::size_t precision = 9, tactic = 6, nodes = 10;
  const auto widen = [](std::size_t& column, std::size_t cell) {
    constexpr std::size_t widest = 44;  // a longer cell pushes the rest of its own line only
    if (cell <= widest) column = std::max(column, cell);
  };
  for (const auto& r : plan.regions) {
    widen(precision, to_string(r.precision).size());
    widen(tactic, r.tactic.name().size());
    widen(nodes, nodes_of(r).size());
  }
  std::string out = fmt::format("{:>4}  {:<{}}  {:<{}}  {:<{}}  {}\n", "#", "precision", precision, "tactic", tactic, "ONNX nodes",
                                nodes, "reason");
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const auto& r = plan.regions[i];
    out += fmt::format("{:>4}  {:<{}}  {:<{}}  {:<{}}  {}\n", i, to_string(r.precision), precision, r.tactic.name(), tactic,
                       nodes_of(r), nodes, sentences(r.reasons));
  }
  return out + summary(plan);
}

std::string details(const region::Plan& plan, const std::vector<std::size_t>& regions, const Meanings& meanings) {
  std::string out;
  for (const std::size_t i : regions) {
    const auto& r = plan.regions[i];
    const Costs costs = costs_of(r, plan);
    if (!out.empty()) out += '\n';
    out += fmt::format("region {}: {}\n", i, r.name);
    line(out, "precision", to_string(r.precision));
    line(out, "tactic", fmt::format("{} ({})", r.tactic.name(), r.tactic.vector ? "vector kernel" : "portable code"));
    add_parameters(out, r.tactic, meanings);
    if (r.seconds >= 0)
      line(out, "time", fmt::format("{:.4g} us, {}", r.seconds * 1e6, measured(plan) ? "measured" : "an estimate"));
    if (region::all_or_nothing(r)) {
      line(out, "counted", fmt::format("left out in runs in which \"{}\" is 0", region::count_of(r, plan)));
    } else if (r.count >= 0) {
      line(out, "counted",
           fmt::format("dimension {} of \"{}\", up to {} elements: a run computes about as many as \"{}\" says{}",
                       r.stages.back().counted, r.stages.back().stores.front().value, region::room_of(r), region::count_of(r, plan),
                       r.count_times == 1 && r.count_per == 1 ? "" : fmt::format(", x {} / {}", r.count_times, r.count_per)));
    }
    line(out, "reason", sentences(r.reasons));
    if (const auto way = way_out(r); !way.empty()) line(out, "to change it", way);
    for (const auto& d : decisions_about(r, plan)) line(out, "weighed", d);
    line(out, "ONNX nodes", fmt::format("{}", fmt::join(r.onnx_nodes, ", ")));
    if (const std::string key = region::key_of(r, plan); !key.empty()) line(out, "key", key);
    line(out, "work",
         fmt::format("{}, {}", amount(costs.macs, costs.integer ? "int8 MAC" : "MAC"), amount(costs.bytes, "B moved")));
    const auto kept = region::kept_from_memory(r);
    for (std::size_t s = 0; s < r.stages.size(); ++s) {
      const auto& stage = r.stages[s];
      const std::string which = r.stages.size() == 1 ? "" : fmt::format("stage {}: ", s);
      line(out, "anchor",
           fmt::format("{}{} over {}", which, stage.anchor.none() ? "none" : ir::name_of(stage.anchor.op),
                       ir::to_string(stage.space)));
      const auto place = [&](const region::TensorRef& ref) {
        return kept.contains(ref.buffer) ? std::string("kept in cache, row tile by row tile") : "in " + place_of(ref, plan);
      };
      for (const auto& ref : stage.anchor.inputs) {
        const auto from = region::forwarded_from(r, s, ref);
        line(out, "reads",
             fmt::format("{}, {}{}", describe(ref), place(ref), from ? fmt::format(", from stage {}", from->stage) : ""));
      }
      if (stage.anchor.weights) {
        const auto& codes = stage.anchor.weight_codes;
        line(out, "weights",
             describe(*stage.anchor.weights) +
                 (codes ? fmt::format(", the values of codes of {} bits, {} with a scale", codes->bits, codes->block) : ""));
      }
      for (const auto& operand : stage.operands) {
        const auto from = region::forwarded_from(r, s, operand.ref);
        line(out, "operand", describe(operand.ref) + (from ? fmt::format(", from stage {}", from->stage) : ""));
      }
      line(out, "program", program::print(stage.program));
      for (const auto& ref : stage.stores) line(out, "stores", fmt::format("{}, {}", describe(ref), place(ref)));
    }
    for (const auto& a : r.alternatives) {
      line(out, "alternative", fmt::format("{}: {}", a.tactic, described(a)));
    }
  }
  return out;
}

}  // namespace octavo::report
