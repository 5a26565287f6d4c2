// How much of each value of a graph matters to any of its results, by dimension: all of it, or the first elements, as many as a number that a run computes. Found from the
// results backwards: an operator that needs the first n rows of its result needs the first n rows of its operand, or all of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace octavo::plan {

/// base * times / per, rounded up.
struct Extent {
  ir::ValueId base = ir::kNone;
  std::int64_t times = 1, per = 1;
  bool operator==(const Extent&) const = default;
};

/// What of a dimension is needed: nothing is known to read it, so many, or all of it.
struct Need {
  enum class Kind : std::uint8_t { nothing, some, all } kind = Kind::nothing;
  Extent extent = {};
  static Need all() { return {Kind::all, {}}; }
  static Need some(const Extent& e) { return {Kind::some, e}; }
  bool operator==(const Need&) const = default;
};
using Needs = std::vector<Need>;  ///< of a value, one a dimension

class NeedFinder {
 public:
  /// The graph must outlive it.
  explicit NeedFinder(const ir::Graph& g);
  ~NeedFinder();
  NeedFinder(const NeedFinder&) = delete;
  NeedFinder& operator=(const NeedFinder&) = delete;

  /// `whole`: values of which all elements are needed.
  void find(const std::set<ir::ValueId>& whole = {});
  /// Empty: nothing reads it.
  [[nodiscard]] const Needs& of(ir::ValueId v) const;
  /// What the number v, an s64[] of the graph, is a multiple of.
  [[nodiscard]] Extent extent_of(ir::ValueId v) const;
  /// The output of the graph that says the count, and what is to be done with its value.
  [[nodiscard]] std::optional<std::pair<int, Extent>> output_of(const Extent& e) const;

 private:
  class Finder;
  std::unique_ptr<Finder> finder_;
};

}  // namespace octavo::plan
