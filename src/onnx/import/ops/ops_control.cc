// If, Loop and Scan. With a condition, a trip count or a length known at import the branch taken or the steps are lowered in place
// of the node. A branch that depends on data is computed both ways and selected from.
#include <algorithm>
#include <array>
#include <map>

#include "onnx/import/compose.h"
#include "onnx/import/importer.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

constexpr std::int64_t kMostNodes = 100000;  ///< of an unrolled loop

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
    const Sizes& sizes = n.importer().sizes();
    if (yes_type.shape == no_type.shape && !sizes.open(a[i]) && !sizes.open(b[i])) {
      n.set(i, c.where(condition, a[i], b[i]));
    } else {
      OCTAVO_TRY(const ValueId chosen, sized_choice(n, condition, a[i], b[i]));
      n.set(i, chosen);
    }
  }
  OCTAVO_CHECK(c.status());
  n.note("the condition is computed at run time: both branches are computed");
  return {};
}

/// The known value of v as a truth, or an error that says `role`.
Result<bool> known(NodeContext& n, ValueId v, std::string_view role) {
  const ir::Graph& g = n.graph();
  if (!g.is_constant(v) || g.payload(v).size() != 1)
    return n.unsupported("{} is computed at run time; export the unrolled model, or fix the input shapes", role);
  return g.payload(v).at(0) != 0;
}

Result<std::int64_t> most_steps(NodeContext& n, const pb::GraphProto& body, std::int64_t steps) {
  const std::int64_t nodes = std::max(1, body.node_size());
  if (steps > kMostNodes / nodes)
    return n.unsupported("{} steps of {} nodes; at most {} nodes are unrolled", steps, nodes, kMostNodes);
  return steps;
}

/// Trip count and condition, then the state; the body gives the next condition, the state and what is collected.
Status loop(NodeContext& n) {
  Compose c(n);
  const pb::GraphProto* body = n.attr_graph("body");
  if (!body) return n.bad("the body is missing");
  const auto states = static_cast<std::size_t>(std::max(n.proto().input_size() - 2, 0));
  if (static_cast<std::size_t>(body->input_size()) != states + 2 || static_cast<std::size_t>(body->output_size()) < states + 1)
    return n.bad("the body takes {} values and gives {}, the node carries {}", body->input_size(), body->output_size(), states);
  const std::size_t collected = static_cast<std::size_t>(body->output_size()) - states - 1;
  std::int64_t trips = kMostNodes / std::max(1, body->node_size());
  if (n.has(0)) {
    OCTAVO_TRY(const double given, n.constant_scalar(0, "the trip count"));
    OCTAVO_TRY(trips, most_steps(n, *body, static_cast<std::int64_t>(std::min(given, 1e15))));
  }
  bool go = true;
  if (n.has(1)) {
    OCTAVO_TRY(go, known(n, n.in(1), "its condition"));
  }
  std::vector<Importer::Given> state;
  std::map<std::size_t, Importer::Sequence> sequences;  // states that are no tensors
  for (std::size_t i = 0; i < states; ++i) {
    const std::string& name = n.proto().input(static_cast<int>(i + 2));
    if (const Importer::Sequence* s = name.empty() ? nullptr : n.importer().sequence(name); s != nullptr) {
      sequences[i] = *s;
      state.push_back({ir::kNone, DType::f32});
      continue;
    }
    if (!n.has(i + 2)) return n.unsupported("state {} is absent (an optional value)", i);
    state.push_back({n.in(i + 2), n.declared(i + 2)});
  }
  std::vector<std::vector<ValueId>> rows(collected);
  std::vector<DType> row_types(collected, DType::f32);
  std::int64_t step = 0;
  for (; go && step < trips; ++step) {
    std::vector<Importer::Given> given{{c.integers({}, {step}), DType::s64}, {c.mask({}, {true}), DType::boolean}};
    given.insert(given.end(), state.begin(), state.end());
    for (const auto& [i, s] : sequences) n.importer().set_sequence(body->input(static_cast<int>(i + 2)).name(), s);
    OCTAVO_TRY(const std::vector<Importer::Given> out,
               n.importer().inline_body(*body, given, fmt::format("{}/{}/", n.name(), step)));
    for (std::size_t i = 0; i < states; ++i) {
      const bool is_sequence = out[i + 1].value == ir::kNone;
      if (is_sequence != sequences.contains(i)) return n.bad("state {} is a sequence before a step or after it, and not both", i);
      if (is_sequence) sequences[i] = Importer::Sequence(*n.importer().sequence(body->output(static_cast<int>(i + 1)).name()));
      state[i] = out[i + 1];
    }
    for (std::size_t i = 0; i < collected; ++i) {
      if (out[states + 1 + i].value == ir::kNone) return n.unsupported("output {} collects sequences", states + i);
      rows[i].push_back(out[states + 1 + i].value);
      row_types[i] = out[states + 1 + i].type;
    }
    OCTAVO_TRY(go, known(n, out[0].value, fmt::format("the condition after step {}", step)));
  }
  if (go && !n.has(0)) return n.unsupported("it has no trip count and does not end after {} steps", step);
  for (std::size_t i = 0; i < states; ++i) {
    if (const auto s = sequences.find(i); s != sequences.end()) {
      n.importer().set_sequence(n.proto().output(static_cast<int>(i)), s->second);
      continue;
    }
    n.set(i, state[i].value);
    n.declare(i, state[i].type);
  }
  for (std::size_t i = 0; i < collected; ++i) {
    if (rows[i].empty()) return n.unsupported("it takes no step, so the shape of its output {} is not known", states + i);
    for (ValueId& v : rows[i]) {
      Shape shape = c.shape(v);
      shape.insert(shape.begin(), 1);
      v = c.reshape(v, shape);
    }
    n.set(states + i, c.concat(rows[i], 0));
    n.declare(states + i, row_types[i]);
  }
  n.note(fmt::format("unrolled: {} steps", step));
  return c.status();
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
