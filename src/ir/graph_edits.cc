// Who reads a value, which nodes nobody needs, and how both are kept up to date while rules edit the graph: rewriting applies a rule as often as the graph has nodes, so
// neither may cost as much as the graph is large each time.
#include <algorithm>
#include <utility>

#include "ir/graph.h"

namespace octavo::ir {
namespace {

std::size_t idx(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

void Graph::touch() {
  if (notes_.on)
    notes_.stale = true;
  else
    users_valid_ = false;
}

void Graph::find_users() const {
  users_.assign(values_.size(), {});
  for (NodeId id = 0; id < node_capacity(); ++id) {
    const Node& n = node(id);
    if (n.dead) continue;
    for (std::size_t slot = 0; slot < n.inputs.size(); ++slot) {
      if (n.inputs[slot] != kNone) users_[idx(n.inputs[slot])].emplace_back(id, static_cast<int>(slot));
    }
  }
  users_valid_ = true;
}

const std::vector<std::pair<NodeId, int>>& Graph::users(ValueId v) const {
  if (notes_.on) {
    if (notes_.stale) read_again();
  } else if (!users_valid_ || users_.size() != values_.size()) {
    find_users();
  }
  return users_[idx(v)];
}

int Graph::remove_dead() {
  std::vector<char> live(nodes_.size(), 0);
  for (const NodeId id : order()) live[idx(id)] = 1;
  int removed = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (live[i] != 0 || nodes_[i].dead) continue;
    nodes_[i].dead = true;
    nodes_[i].payload = {};
    ++removed;
  }
  if (removed > 0) {
    users_valid_ = false;
    if (notes_.on) note_edits(true);
  }
  return removed;
}

void Graph::note_edits(bool on) {
  if (!on && notes_.on && notes_.stale) read_again();
  notes_ = {};
  if (!on) return;
  find_users();
  notes_.on = true;
  notes_.edits.all = true;  // also what was dead before, which the first `settle` removes
  notes_.read.resize(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].dead) notes_.read[i] = nodes_[i].inputs;
  }
  notes_.outputs = outputs;
}

void Graph::note(NodeId id) {
  if (notes_.node.size() <= idx(id)) notes_.node.resize(nodes_.size(), 0);
  if (std::exchange(notes_.node[idx(id)], char{1}) == 0) notes_.edits.nodes.push_back(id);
}

void Graph::note_value(ValueId id) {
  if (notes_.value.size() <= idx(id)) notes_.value.resize(values_.size(), 0);
  if (std::exchange(notes_.value[idx(id)], char{1}) == 0) notes_.edits.values.push_back(id);
}

void Graph::drop_edits() {
  if (notes_.stale) read_again();
  for (const NodeId id : notes_.edits.nodes) notes_.node[idx(id)] = 0;
  for (const ValueId v : notes_.edits.values) notes_.value[idx(v)] = 0;
  notes_.edits.nodes.clear();
  notes_.edits.values.clear();
}

void Graph::read_again() const {
  users_.resize(values_.size());
  notes_.read.resize(nodes_.size());
  for (const NodeId id : notes_.edits.nodes) read_again(id);
  notes_.stale = false;
}

void Graph::read_again(NodeId id) const {
  const Node& n = node(id);
  const std::vector<ValueId> now = n.dead ? std::vector<ValueId>{} : n.inputs;
  std::vector<ValueId>& known = notes_.read[idx(id)];
  if (known == now) return;
  for (std::size_t slot = 0; slot < known.size(); ++slot) {
    if (known[slot] == kNone) continue;
    auto& readers = users_[idx(known[slot])];
    readers.erase(std::lower_bound(readers.begin(), readers.end(), std::pair(id, static_cast<int>(slot))));
    notes_.suspects.push_back(value(known[slot]).producer);
  }
  for (std::size_t slot = 0; slot < now.size(); ++slot) {
    if (now[slot] == kNone) continue;
    auto& readers = users_[idx(now[slot])];
    const std::pair entry(id, static_cast<int>(slot));
    readers.insert(std::lower_bound(readers.begin(), readers.end(), entry), entry);
  }
  known = now;
}

void Graph::remove(NodeId id) {
  note(id);
  nodes_[idx(id)].dead = true;
  nodes_[idx(id)].payload = {};
  read_again(id);
}

Edits Graph::settle() {
  if (notes_.edits.all) {
    if (remove_dead() == 0) note_edits(true);
    notes_.edits.all = false;
    return {.all = true, .nodes = {}, .values = {}};
  }
  read_again();
  if (notes_.outputs != outputs) {
    for (const ValueId v : notes_.outputs) notes_.suspects.push_back(std::as_const(*this).value(v).producer);
    notes_.outputs = outputs;
  }
  while (!notes_.suspects.empty()) {
    const NodeId id = notes_.suspects.back();
    notes_.suspects.pop_back();
    const Node& n = nodes_[idx(id)];
    if (n.dead) continue;
    const bool read =
        std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return !users_[idx(v)].empty() || output_uses(v) > 0; });
    const bool given = n.op == Op::input && std::find(inputs.begin(), inputs.end(), n.outputs[0]) != inputs.end();
    if (!read && !given) remove(id);
  }
  Edits edits = notes_.edits;
  drop_edits();
  return edits;
}

}  // namespace octavo::ir
