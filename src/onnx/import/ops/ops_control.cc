// If, Loop and Scan. With a condition, a trip count or a length known at import the branch taken or the steps are lowered in place
// of the node. A branch that depends on data is lowered both ways and selected from; so is each step of a Loop whose steps data decide, up to a bound.
#include <algorithm>
#include <array>

#include "onnx/import/compose.h"
#include "onnx/import/importer.h"
#include "onnx/import/ops/unrolled.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

Result<std::vector<ValueId>> inline_branch(NodeContext& n, const pb::GraphProto& graph, const std::string& prefix) {
  OCTAVO_TRY(std::vector<ValueId> values, n.importer().inline_graph(graph, n.name() + prefix));
  if (values.size() != n.output_count()) return n.bad("the branch has {} outputs, the node {}", values.size(), n.output_count());
  return values;
}

Status branch(NodeContext& n) {
  const pb::GraphProto* yes = n.attr_graph("then_branch");
  const pb::GraphProto* no = n.attr_graph("else_branch");
  if (!yes || !no) return n.bad("then_branch or else_branch is missing");
  if (ir::count(n.shape(0)) != 1) return n.bad("the condition is {}, needs one element", ir::to_string(n.type(0)));
  if (n.constant(0)) {
    OCTAVO_TRY(const double condition, n.constant_scalar(0, "the condition"));
    const pb::GraphProto& taken = condition != 0 ? *yes : *no;
    OCTAVO_TRY(const std::vector<ValueId> values, inline_branch(n, taken, "/"));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int at = static_cast<int>(i);
      if (values[i] == ir::kNone) {
        n.importer().set_sequence(n.proto().output(at), Importer::Sequence(*n.importer().sequence(taken.output(at).name())));
      } else {
        n.set(i, values[i]);
      }
    }
    n.note(condition != 0 ? "the condition is true: then_branch is taken" : "the condition is false: else_branch is taken");
    return {};
  }
  Compose c(n);
  OCTAVO_TRY(const std::vector<ValueId> a, inline_branch(n, *yes, "/then/"));
  OCTAVO_TRY(const std::vector<ValueId> b, inline_branch(n, *no, "/else/"));
  const ValueId condition = c.reshape(n.in(0), {});
  OCTAVO_CHECK(c.status());
  n.importer().sizes().conditions.push_back({condition, true});
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == ir::kNone || b[i] == ir::kNone)
      return n.unsupported("its condition \"{}\" is computed at run time and its branches give a sequence (\"{}\")",
                           n.input_name(0), yes->output(static_cast<int>(i)).name());
    const TensorType yes_type = n.type_of(a[i]), no_type = n.type_of(b[i]);
    if (yes_type.dtype != no_type.dtype || yes_type.shape.size() != no_type.shape.size()) {
      return n.unsupported(
          "its condition \"{}\" is computed at run time and its branches give {} and {}; fix the input shapes, or "
          "export without data-dependent branches",
          n.input_name(0), ir::to_string(yes_type), ir::to_string(no_type));
    }
    OCTAVO_TRY(const ValueId chosen, selected(n, c, condition, a[i], b[i]));
    n.set(i, chosen);
  }
  OCTAVO_CHECK(c.status());
  n.note("the condition is computed at run time: both branches are lowered, and one of them is selected");
  return {};
}

struct ScanShape {
  const pb::GraphProto* body;
  std::size_t states, inputs, collected;
  Ints in_axes, out_axes, in_back, out_back;
};

/// The state after the last step, then what was collected.
Result<std::vector<Importer::Given>> scan_once(NodeContext& n, Compose& c, const ScanShape& s, std::vector<Importer::Given> state,
                                               const std::vector<Importer::Given>& inputs, const std::string& prefix) {
  const auto extent = [&](std::size_t i) { return c.shape(inputs[i].value)[static_cast<std::size_t>(s.in_axes[i])]; };
  OCTAVO_TRY(const std::int64_t steps, most_steps(n, *s.body, extent(0)));
  for (std::size_t i = 1; i < s.inputs; ++i) {
    if (extent(i) != steps) return n.bad("the scanned inputs have {} and {} steps", steps, extent(i));
  }
  if (steps == 0) return n.unsupported("a scan over no elements");
  std::vector<std::vector<ValueId>> rows(s.collected);
  std::vector<Importer::Given> last;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<Importer::Given> given = state;
    for (std::size_t i = 0; i < s.inputs; ++i) {
      const std::int64_t at = s.in_back[i] != 0 ? steps - 1 - step : step;
      Shape shape = c.shape(inputs[i].value);
      shape.erase(shape.begin() + s.in_axes[i]);
      given.push_back({c.reshape(c.slice(inputs[i].value, s.in_axes[i], at, at + 1), shape), inputs[i].type});
    }
    OCTAVO_CHECK(c.status());
    OCTAVO_TRY(last, n.importer().inline_body(*s.body, given, fmt::format("{}/{}/", prefix, step)));
    for (const Importer::Given& g : last) {
      if (g.value == ir::kNone) return n.unsupported("its body gives a sequence; only tensors are supported");
    }
    for (std::size_t i = 0; i < s.states; ++i) state[i] = last[i];
    for (std::size_t i = 0; i < s.collected; ++i) rows[i].push_back(last[s.states + i].value);
  }
  for (std::size_t i = 0; i < s.collected; ++i) {
    Shape shape = c.shape(rows[i][0]);
    OCTAVO_TRY(const std::int64_t axis, n.axis(s.out_axes[i], static_cast<std::int64_t>(shape.size()) + 1));
    shape.insert(shape.begin() + axis, 1);
    for (ValueId& v : rows[i]) v = c.reshape(v, shape);
    if (s.out_back[i] != 0) std::reverse(rows[i].begin(), rows[i].end());
    state.push_back({c.concat(rows[i], axis), last[s.states + i].type});
  }
  OCTAVO_CHECK(c.status());
  return state;
}

/// Opset 8 has sequence lengths first and a batch dimension; from 9 on the state and what is scanned.
Status scan(NodeContext& n) {
  Compose c(n);
  ScanShape s{n.attr_graph("body"),
              0,
              static_cast<std::size_t>(std::max<std::int64_t>(n.attr_int("num_scan_inputs", 0), 0)),
              0,
              {},
              {},
              {},
              {}};
  if (!s.body) return n.bad("the body is missing");
  const bool batched = n.opset() < 9;
  const std::size_t first = batched ? 1 : 0;  // the lengths
  if (batched && n.has(0)) return n.unsupported("sequence_lens of Scan; convert the model to opset 9 or newer");
  if (s.inputs < 1 || n.operands() < first + s.inputs) return n.bad("num_scan_inputs {} of {} inputs", s.inputs, n.operands());
  s.states = n.operands() - first - s.inputs;
  const auto outputs = static_cast<std::size_t>(s.body->output_size());
  if (static_cast<std::size_t>(s.body->input_size()) != s.states + s.inputs || outputs < s.states || outputs != n.output_count())
    return n.bad("the body takes {} values and gives {}", s.body->input_size(), outputs);
  s.collected = outputs - s.states;
  s.in_axes = n.attr_ints("scan_input_axes", Ints(s.inputs, 0));
  s.out_axes = n.attr_ints("scan_output_axes", Ints(s.collected, 0));
  s.in_back = n.attr_ints(batched ? "directions" : "scan_input_directions", Ints(s.inputs, 0));
  s.out_back = n.attr_ints("scan_output_directions", Ints(s.collected, 0));
  if (s.in_axes.size() != s.inputs || s.in_back.size() != s.inputs || s.out_axes.size() != s.collected ||
      s.out_back.size() != s.collected)
    return n.bad("axes and directions must have one entry for each scanned value");
  std::vector<Importer::Given> all;
  for (std::size_t i = first; i < n.operands(); ++i) {
    if (!n.has(i)) return n.bad("input {} is missing", i);
    all.push_back({n.in(i), n.declared(i)});
  }
  if (batched && c.shape(all[0].value).empty()) return n.bad("the first state is a scalar: it has no batch");
  const std::int64_t batch = batched ? c.shape(all[0].value)[0] : 1;
  std::vector<std::vector<Importer::Given>> results;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<Importer::Given> mine = all;
    for (Importer::Given& v : mine) {
      if (!batched) break;
      const Shape shape = c.shape(v.value);
      if (shape.empty() || shape[0] != batch) return n.bad("the batch of {} is not {}", ir::to_string(shape), batch);
      v.value = c.reshape(c.slice(v.value, 0, b, b + 1), Shape(shape.begin() + 1, shape.end()));
    }
    const auto split = mine.begin() + static_cast<std::ptrdiff_t>(s.states);
    for (std::size_t i = 0; i < s.inputs; ++i) {
      OCTAVO_TRY(s.in_axes[i],
                 n.axis(s.in_axes[i], static_cast<std::int64_t>(c.shape(split[static_cast<std::ptrdiff_t>(i)].value).size())));
    }
    OCTAVO_TRY(auto out, scan_once(n, c, s, {mine.begin(), split}, {split, mine.end()},
                                   batched ? fmt::format("{}/b{}", n.name(), b) : n.name()));
    results.push_back(std::move(out));
  }
  if (results.empty()) return n.bad("the batch is empty");
  for (std::size_t i = 0; i < outputs; ++i) {
    std::vector<ValueId> parts;
    for (const auto& r : results) {
      Shape shape = c.shape(r[i].value);
      shape.insert(shape.begin(), 1);
      parts.push_back(batched ? c.reshape(r[i].value, shape) : r[i].value);
    }
    n.set(i, c.concat(parts, 0));
    n.declare(i, results[0][i].type);
  }
  return c.status();
}

constexpr std::array kControlRows{
    OpRow{"If", "", 1, 0, 1, 1, branch},
    OpRow{"Loop", "", 1, 0, 0, -1, loop},
    OpRow{"Scan", "", 8, 0, 0, -1, scan},
};

}  // namespace

Family control_ops() {
  return kControlRows;
}

}  // namespace octavo::onnx
