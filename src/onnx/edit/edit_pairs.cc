#include <fmt/format.h>

#include <map>
#include <set>

#include "onnx/edit/convert.h"
#include "onnx/edit/edit.h"

namespace octavo::onnx {

namespace {

using Names = std::map<std::string, int>;

struct Pair {
  int quantize = -1, dequantize = -1;  ///< nodes; -1: not among the names
};

Result<Pair> find_pair(const Editor& model, const Names& by_name, const std::set<std::string>& names) {
  Pair out;
  for (const std::string& name : names) {
    const auto at = by_name.find(name);
    if (at == by_name.end()) return fail(ErrorKind::usage, fmt::format("changing a pair: no node \"{}\"", name));
    const auto& type = model.graph().node(at->second).op_type();
    if (type == "QuantizeLinear") out.quantize = at->second;
    if (type == "DequantizeLinear") out.dequantize = at->second;
  }
  return out;
}

/// The readers of the pair's tensor read its rounded value. Returns how many inputs that are.
Result<int> share_pair(Editor& model, const Names& by_name, const SharedPair& s, std::string& tensor) {
  OCTAVO_TRY(const Pair pair, find_pair(model, by_name, s.pair));
  int reads = 0;
  if (pair.quantize < 0 || pair.dequantize < 0) return reads;
  tensor = model.graph().node(pair.quantize).input(0);
  const std::string rounded = model.graph().node(pair.dequantize).output(0);
  for (const std::string& name : s.readers) {
    const auto at = by_name.find(name);
    if (at == by_name.end()) continue;
    auto* n = model.graph().mutable_node(at->second);
    if (s.pair.contains(name)) continue;
    for (auto& in : *n->mutable_input()) {
      if (in != tensor) continue;
      in = rounded;
      ++reads;
    }
  }
  return reads;
}

/// The pair's readers read its tensor, and the pair goes behind `m.behind`. False if nobody makes that.
Result<bool> move_pair(Editor& model, const Names& by_name, const Names& producer, const MovedPair& m) {
  OCTAVO_TRY(const Pair pair, find_pair(model, by_name, m.pair));
  if (pair.quantize < 0 || pair.dequantize < 0 || !producer.contains(m.behind)) return false;
  auto* quantize = model.graph().mutable_node(pair.quantize);
  const std::string rounded = model.graph().node(pair.dequantize).output(0);
  model.rename_uses(rounded, quantize->input(0));
  model.rename_uses(m.behind, rounded);
  quantize->set_input(0, m.behind);
  return true;
}

}  // namespace

Result<EditedPairs> edit_pairs(const Parsed& parsed, const PairEdits& edits, const std::string& out) {
  OCTAVO_TRY(Editor model, Editor::open(parsed));
  Names by_name, producer;
  for (int i = 0; i < model.graph().node_size(); ++i) {
    by_name[model.node_name(i)] = i;
    for (const auto& o : model.graph().node(i).output()) producer[o] = i;
  }
  EditedPairs done;
  OCTAVO_TRY(done.not_found, add_pairs(model, edits.add));
  done.added = static_cast<int>(edits.add.size() - done.not_found.size());
  for (const SharedPair& s : edits.share) {
    std::string tensor;
    OCTAVO_TRY(const int reads, share_pair(model, by_name, s, tensor));
    if (reads > 0) {
      ++done.shared;
    } else {
      done.not_found.push_back(tensor);
    }
  }
  for (const MovedPair& m : edits.move) {
    OCTAVO_TRY(const bool moved, move_pair(model, by_name, producer, m));
    if (moved) {
      ++done.moved;
    } else {
      done.not_found.push_back(m.behind);
    }
  }
  std::set<int> gone, quantizers;
  std::map<std::string, std::string> instead;
  for (const std::string& name : edits.drop) {
    const auto at = by_name.find(name);
    if (at == by_name.end())
      return fail(ErrorKind::usage, fmt::format("dropping pairs of {}: no node \"{}\"", parsed.name(), name));
    const auto& n = model.graph().node(at->second);
    if (n.op_type() == "QuantizeLinear") quantizers.insert(at->second);
    if (n.op_type() != "DequantizeLinear") continue;
    const auto q = producer.find(n.input(0));
    if (q == producer.end() || model.graph().node(q->second).op_type() != "QuantizeLinear")
      return fail(ErrorKind::usage,
                  fmt::format("dropping pairs of {}: \"{}\" is not behind a QuantizeLinear", parsed.name(), name));
    instead[n.output(0)] = model.graph().node(q->second).input(0);
    gone.insert(at->second);
    ++done.dropped;
  }
  const auto root = [&](std::string name) {
    for (auto at = instead.find(name); at != instead.end(); at = instead.find(name)) name = at->second;
    return name;
  };
  for (const auto& [from, to] : instead) {
    model.rename_uses(from, root(to));
    for (const auto& o : model.graph().output()) {
      if (o.name() != from) continue;
      auto* keep = model.graph().add_node();
      keep->set_op_type("Identity");
      keep->set_name(model.fresh(from + "_identity"));
      keep->add_input(root(to));
      keep->add_output(from);
    }
  }
  std::set<std::string> read;  // a QuantizeLinear goes when nothing reads its codes any more
  for (int i = 0; i < model.graph().node_size(); ++i) {
    if (gone.contains(i)) continue;
    for (const auto& in : model.graph().node(i).input()) read.insert(in);
  }
  for (const int i : quantizers) {
    if (!read.contains(model.graph().node(i).output(0))) gone.insert(i);
  }
  model.remove_nodes(gone);
  OCTAVO_CHECK(model.sort());
  OCTAVO_CHECK(model.save(out));
  return done;
}

}  // namespace octavo::onnx
