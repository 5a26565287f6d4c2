// Names-free identity of graphs: structural hashes, value numbering, canonical operand and node order.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace octavo::ir {

/// Structural hash of every value: op, attributes, quantizer, payload and input hashes; graph inputs by position and type.
/// Names, origins, ids and range do not enter. Commutative operands are hashed in sorted order.
[[nodiscard]] std::vector<std::uint64_t> value_hashes(const Graph& g);
/// Merges nodes with equal op, attributes, quantizer, payload and inputs; sorts commutative operands. Returns merges done.
int number_values(Graph& g);
/// Digest of the whole graph: outputs in order, through value_hashes.
[[nodiscard]] std::uint64_t graph_hash(const Graph& g);
/// A copy with dead nodes dropped and nodes, values numbered in canonical order.
[[nodiscard]] Graph compact(const Graph& g);
/// True if swapping the two operands changes no bit of the result: commutative operators, except max and min, which answer with
/// their second operand when the two are 0 and -0 or one is NaN. (Not even on integers: laws move them between codes and floats.)
[[nodiscard]] bool commutes(Op op);
/// The attributes without those that only spell out a default (strides of 1, pads of 0, group 1, ...). Hashes and comparisons use
/// these, so that a node that spells its defaults and one that leaves them out are the same node.
[[nodiscard]] Attrs without_defaults(Op op, const Attrs& attrs);
/// Order-dependent digest of attributes (keys, kinds, exact bits).
[[nodiscard]] std::uint64_t hash_attrs(const Attrs& attrs, std::uint64_t seed = 0);
[[nodiscard]] std::uint64_t hash_quantizer(const Quantizer& q, std::uint64_t seed = 0);
[[nodiscard]] std::uint64_t hash_tensor(const Tensor& t, std::uint64_t seed = 0);

}  // namespace octavo::ir
