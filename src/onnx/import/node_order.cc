// The order in which nodes are lowered: those that an output needs, producers first.
#include <algorithm>
#include <queue>

#include "onnx/import/importer.h"

namespace octavo::onnx {

void collect_reads(const pb::NodeProto& node, std::vector<std::string>& out) {
  for (const std::string& name : node.input()) {
    if (!name.empty()) out.push_back(name);
  }
  for (const pb::AttributeProto& a : node.attribute()) {
    if (!a.has_g()) continue;
    std::unordered_set<std::string> inner;
    std::vector<std::string> reads;
    for (const auto& i : a.g().input()) inner.insert(i.name());
    for (const auto& t : a.g().initializer()) inner.insert(t.name());
    for (const auto& n : a.g().node()) {
      collect_reads(n, reads);
      for (const std::string& o : n.output()) inner.insert(o);
    }
    for (const auto& o : a.g().output()) reads.push_back(o.name());
    for (std::string& name : reads) {
      if (!inner.contains(name)) out.push_back(std::move(name));
    }
  }
}

Result<std::vector<int>> Importer::sort_nodes(const pb::GraphProto& graph_proto, bool all_live) {
  const int n = graph_proto.node_size();
  std::unordered_map<std::string, int> producer;
  for (int i = 0; i < n; ++i) {
    for (const std::string& o : graph_proto.node(i).output()) {
      if (o.empty()) continue;
      const auto [it, fresh] = producer.try_emplace(o, i);
      if (!fresh || (depth_ == 0 && (values_.contains(o) || initializers_.contains(o)))) {
        return fail(ErrorKind::bad_model,
                    fmt::format("tensor \"{}\" is defined twice: by node {} ({}) and {}", o, i, graph_proto.node(i).op_type(),
                                fresh ? std::string("as an input or initializer") : fmt::format("by node {}", it->second)));
      }
    }
  }
  std::vector<std::vector<std::string>> reads(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) collect_reads(graph_proto.node(i), reads[static_cast<std::size_t>(i)]);
  std::vector<char> live(static_cast<std::size_t>(n), all_live ? 1 : 0);
  std::vector<int> stack;
  const auto want = [&](const std::string& tensor_name) {
    read_.insert(tensor_name);
    const auto it = producer.find(tensor_name);
    if (it == producer.end() || live[static_cast<std::size_t>(it->second)] != 0) return;
    live[static_cast<std::size_t>(it->second)] = 1;
    stack.push_back(it->second);
  };
  for (const auto& o : graph_proto.output()) want(o.name());
  if (all_live) {
    for (const auto& names : reads) read_.insert(names.begin(), names.end());
  }
  while (!stack.empty()) {
    const int i = stack.back();
    stack.pop_back();
    for (const std::string& name : reads[static_cast<std::size_t>(i)]) want(name);
  }
  // Kahn's algorithm, the smallest index first: the file's own order when that is sound.
  std::vector<int> waits(static_cast<std::size_t>(n), 0);
  std::vector<std::vector<int>> readers(static_cast<std::size_t>(n));
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  int wanted = 0;
  for (int i = 0; i < n; ++i) {
    if (live[static_cast<std::size_t>(i)] == 0) continue;
    ++wanted;
    for (const std::string& name : reads[static_cast<std::size_t>(i)]) {
      if (const auto it = producer.find(name); it != producer.end()) {
        readers[static_cast<std::size_t>(it->second)].push_back(i);
        ++waits[static_cast<std::size_t>(i)];
      } else if (!values_.contains(name) && !initializers_.contains(name) && !sequences_.contains(name)) {
        return fail(ErrorKind::bad_model, fmt::format("node {} ({} \"{}\") reads tensor \"{}\", which nothing defines", i,
                                                      graph_proto.node(i).op_type(), graph_proto.node(i).name(), name));
      }
    }
    if (waits[static_cast<std::size_t>(i)] == 0) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (const int r : readers[static_cast<std::size_t>(i)]) {
      if (--waits[static_cast<std::size_t>(r)] == 0) ready.push(r);
    }
  }
  if (static_cast<int>(order.size()) != wanted) {
    const auto stuck = std::find_if(waits.begin(), waits.end(), [](int w) { return w > 0; }) - waits.begin();
    return fail(ErrorKind::bad_model,
                fmt::format("the graph has a cycle through node {} ({} \"{}\")", stuck,
                            graph_proto.node(static_cast<int>(stuck)).op_type(), graph_proto.node(static_cast<int>(stuck)).name()));
  }
  for (int i = 0; i < n; ++i) {
    if (live[static_cast<std::size_t>(i)] == 0) fates_.emplace_back(unique_name(graph_proto.node(i), i, ""), kReachesNoOutput);
  }
  return order;
}

}  // namespace octavo::onnx
