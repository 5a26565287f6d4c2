// Whole networks whose convolutions run on emulated AMX tiles, wherever such a tactic can be taken.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"
#include "region/provider.h"

namespace octavo::testing {

/// The emulation of this build needs AVX-512 VNNI and the cap to allow it.
[[nodiscard]] bool can_emulate_amx();

/// The CPU's providers behind one that offers the emulated tactics at no cost, so that plans take them. Nothing but tests sees it.
[[nodiscard]] const std::vector<const region::Provider*>& amx_first_providers();

struct OnAmx {
  std::vector<ir::Tensor> outputs;
  int layers = 0;           ///< regions on emulated tiles
  int convolutions = 0;     ///< all that are computed in integers
  std::int64_t dots = 0;    ///< products of tiles that ran
  bool float_sums = false;  ///< some layer sums floats in an order of its own
};
/// Plans the network with those providers, makes an engine of it, and runs that on one thread.
[[nodiscard]] Result<OnAmx> run_on_emulated_amx(const ir::Graph& graph, const plan::PlanOptions& options,
                                                const std::vector<ir::Tensor>& feeds);

}  // namespace octavo::testing
