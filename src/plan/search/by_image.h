// Candidate by-image:  f(x[0..N-1])  <==>  f(x[0]), ..., f(x[N-1])
//   Why    the tensors of one image fit into a second-level cache, those of N images do not; and threads that compute an image each
//          never wait for one another.
//   Exact  yes: no operator of the network combines images, so every element is computed from the same operands in the same way.
//   Needs  every input and output has the images in dimension 0, and every operator in between keeps them there; weights are read
//          again for every image.
//   Order  last: the network of one image is planned like any other, for one thread. Default: the whole batch.
#pragma once

#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"
#include "plan/plan.h"

namespace octavo::plan {

/// The same network for one image: dimension 0 of all inputs becomes 1. Value and node ids stay. Otherwise the node that mixes
/// images, or why there is nothing to divide.
[[nodiscard]] tl::expected<ir::Graph, Reason> one_image(const ir::Graph& g);

/// The plan of one image as a plan of `images`, `threads` at a time.
void repeat(region::Plan& plan, std::int64_t images, int threads);

/// Keeps `planned` or puts the plan by images in its place, whichever is faster: first by the sum of regions' prices, then, where
/// the costs can run plans, by whole runs, which must be faster by more than 1 %. Adds a Decision. Nothing happens where the
/// effort compares no plans, with one image, or where the choice is disabled.
[[nodiscard]] Status choose_images(const ir::Graph& g, const PlanContext& context, const PlanOnce& plan_once, Planned& planned);

}  // namespace octavo::plan
