// `check`: runs an engine and judges each region against the reference, which is fed with the engine's own inputs of that region.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/pipeline.h"
#include "base/result.h"
#include "ir/tensor.h"

namespace octavo::api {

struct CheckOptions {
  int threads = 0;  ///< 0: as the engine was built
  /// Float results: |engine - reference| <= float_tolerance * (largest finite |reference| of the tensor). Summation order is free
  /// for floats; where they are stored as bfloat16 or float16, one step of that type more.
  double float_tolerance = 1e-4;
  /// The model as imported, with the inputs of the plan's graph. Results are then compared with it, before laws and rewrites. Each is computed
  /// from the tensors that the engine stored before and that the model names. A region whose results the model does not name is compared with
  /// the regions that read it.
  const ir::Graph* model = nullptr;
  std::function<void(std::size_t region, std::size_t count)> progress;  ///< called before each region is judged
};

/// The first element of a tensor that differs from the reference.
struct Divergence {
  std::string tensor;
  ir::Shape index;                                          ///< in the logical (ONNX) order of the tensor
  double engine = 0, reference = 0;                         ///< as real values
  std::optional<std::int32_t> engine_code, reference_code;  ///< when the tensor holds codes
  bool reading = false;  ///< the region's input (or a network output) is not what was stored before: a fault of offsets or memory
};

struct RegionCheck {
  std::size_t region = 0;
  std::string name, tactic;
  std::int64_t elements = 0;    ///< compared
  std::int64_t different = 0;   ///< codes that differ, or floats outside the tolerance
  std::int64_t off_by_one = 0;  ///< of `different`: codes that differ by 1
  /// Behind a float accumulation, whose order is free: codes that a value next to a rounding tie may take (api/ties.h), bfloat16 and float16 off
  /// by one step: not in `different`.
  std::int64_t allowed = 0;
  double worst = 0;  ///< largest |engine - reference| / largest |reference| among floats
  std::optional<Divergence> first;
  std::map<std::string, double> float16;  ///< largest magnitude of each tensor that it stores in float16; infinite: beyond the end
  std::string skipped;                    ///< why nothing, or not everything, was compared; empty: all of it
  [[nodiscard]] bool ok() const { return different == 0; }
};

struct CheckReport {
  std::vector<RegionCheck> regions;  ///< in execution order
  std::vector<ir::Tensor> outputs;   ///< of the engine
  [[nodiscard]] bool ok() const;
  /// Everything was compared: no region is `skipped`.
  [[nodiscard]] bool complete() const;
  /// "region 3 "conv1 + relu1" (cpu.conv...): tensor "y" at [0,1,2,3]: engine code 17 (0.34), reference 18 (0.36)"; empty when ok.
  [[nodiscard]] std::string first_divergence() const;
};

/// Judges `engine`, whose plan belongs to `graph` (the normalized graph of the same build). 8-bit results must be equal bit for
/// bit; so must results with transcendentals, whose polynomials are shared. Cost: the reference, so seconds to minutes on real
/// models.
[[nodiscard]] Result<CheckReport> check(const std::shared_ptr<const engine::Engine>& engine, const ir::Graph& graph,
                                        const std::vector<ir::Tensor>& inputs, const CheckOptions& options = {});

/// Inputs for `check` when the user has none: uniform in [-1, 1) for floats, all codes for 8-bit types, small non-negative integers
/// else.
[[nodiscard]] std::vector<ir::Tensor> random_inputs(const region::Plan& plan, std::uint64_t seed);

/// The logical elements that a reference to memory shows, dense, as a tensor of `type`: 8-bit codes become floats when `type` is
/// float, and dimensions that the reference repeats (stride 0) are taken once. nullopt when the reference does not cover the type.
[[nodiscard]] std::optional<ir::Tensor> read_value(const region::Memory& memory, const region::TensorRef& ref,
                                                   const ir::TensorType& type);

}  // namespace octavo::api
