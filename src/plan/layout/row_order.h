// Which values are stored so that the products of matrices that read them find a row's elements side by side.
//
// Candidate row-order:  y = f(x), stored in the order of x  <==>  y stored with the dimension last that products read along
//   Why    a value that is made from a transposed one would be stored in its order. Products that read it along another dimension then
//          load elements far apart, which only the slow kernels take; the pass that makes y moves them once.
//   Exact  bit for bit: elements keep their bits.
//   Needs  a concatenation or a region without a window that is read by a product with constant weights, through pointwise operators and
//          moves; all such values that hang together are one choice.
//   Order  on the default plan. Default: with that dimension last.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "ir/graph.h"
#include "plan/layout/layout.h"

namespace octavo::plan {

/// Strides that products wish for, by value; only the order that they imply counts.
[[nodiscard]] std::map<ir::ValueId, Strides> find_row_orders(const ir::Graph& g);

/// Values of any rank whose last dimension is the features of products with constant weights, or what a layer_norm of the last dimension alone
/// gave: such products and norms write and read rows, so that a value of rank 4 among them is no image with the channels in dimension 1.
[[nodiscard]] std::set<ir::ValueId> find_features_last(const ir::Graph& g);

/// `values`, split into those that are made from each other, through moves too. In the order of the graph.
[[nodiscard]] std::vector<std::set<ir::ValueId>> connected(const ir::Graph& g, const std::set<ir::ValueId>& values);

}  // namespace octavo::plan
