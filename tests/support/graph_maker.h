// What generators of random graphs share: the random numbers, and nodes with inferred types, origins and names.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::testing {

class GraphMaker {
 protected:
  /// `who` is the generator, for messages; `first` sets the sequence of numbers apart from those of other generators with the same seed.
  GraphMaker(std::string_view who, std::uint64_t seed, std::uint64_t first)
      : who_(who), seed_(seed), random_(seed * 0x9e3779b97f4a7c15ULL + first) {}

  int below(std::int64_t n) { return n <= 1 ? 0 : static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<std::int64_t>(list.size())));
  }

  [[nodiscard]] const ir::Shape& shape(ir::ValueId v) const { return g_.type(v).shape; }
  std::set<std::string> origin() { return {"node_" + std::to_string(next_++)}; }
  [[nodiscard]] std::string name() const { return "v" + std::to_string(next_); }
  ir::ValueId op(ir::Op o, std::vector<ir::ValueId> in, ir::Attrs attrs = {}) {
    ir::Node n;
    n.op = o;
    n.inputs = std::move(in);
    n.attrs = std::move(attrs);
    n.origin = origin();
    const auto types = ir::infer(g_, n);
    if (!types) {  // a mistake of the generator, not of what is tested
      fmt::print(stderr, "{}({}): {}\n", who_, seed_, types.error().message);
      std::abort();
    }
    return g_.node(g_.add_node(std::move(n), *types, {name()})).outputs[0];
  }

  std::string_view who_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  ir::Graph g_;
  int next_ = 0;
};

}  // namespace octavo::testing
