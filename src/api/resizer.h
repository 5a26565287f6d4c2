// Engines of one model for other extents, made of one that was planned and timed, in milliseconds: the plan is the same but for its extents, which are
// functions of the open dimensions (plan/parametric.h); constants are used where they are; only kernels are made.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/pipeline.h"
#include "api/session.h"
#include "api/shapes.h"
#include "base/result.h"
#include "engine/aligned.h"
#include "engine/engine.h"
#include "onnx/import/import.h"
#include "plan/parametric.h"

namespace octavo::api {

class Resizer {
 public:
  /// `base`: the engine for `shapes` (of all inputs), which has the plan of `decided`. The kernels of a GPU are compiled once more here, for all shapes of the
  /// range (cuda/text/open.h). `ranges`: of the open dimensions; without them it
  /// tries how far the model goes. `providers`: that the base was made with; empty: those of the options' device. Cost: some plannings without times. Errors: `unsupported`, why extents are no such functions; those of planning.
  [[nodiscard]] static Result<std::shared_ptr<const Resizer>> create(const Session& session, const PipelineOptions& options,
                                                                     const std::vector<onnx::InputInfo>& inputs,
                                                                     const ShapeRanges& ranges, const Shapes& shapes,
                                                                     std::shared_ptr<const engine::Engine> base,
                                                                     std::shared_ptr<const plan::Decided> decided,
                                                                     engine::Providers providers = {});

  /// The engine for these shapes of all inputs. Errors: `unsupported` where it cannot be made in this way, and has to be planned.
  [[nodiscard]] Result<std::shared_ptr<const engine::Engine>> at(const Shapes& shapes) const;
  /// Are these shapes among those that the extents hold for?
  [[nodiscard]] bool covers(const Shapes& shapes) const { return point_of(shapes).has_value(); }
  /// Bytes of the arenas of one run for the largest shapes of the range; 0: too large to say.
  [[nodiscard]] std::size_t most_arena_bytes() const;

  /// For engine files, beside the plan of `base` and the decisions; `data`: longer contents of constants.
  [[nodiscard]] nlohmann::json to_json(std::vector<std::byte>& data) const;
  /// Trusts nothing of `j` and `data`. `options`: those that `base` was built with. Errors: bad_engine.
  [[nodiscard]] static Result<std::shared_ptr<const Resizer>> from_json(const nlohmann::json& j, std::span<const std::byte> data,
                                                                        const PipelineOptions& options,
                                                                        std::shared_ptr<const engine::Engine> base,
                                                                        std::shared_ptr<const plan::Decided> decided);

 private:
  /// An open dimension, and where it is.
  struct Dimension {
    std::vector<std::pair<std::string, std::size_t>> at;  ///< input, axis
    std::int64_t least = 1, most = 1;
  };
  Resizer() = default;
  [[nodiscard]] std::optional<plan::Point> point_of(const Shapes& shapes) const;
  [[nodiscard]] Shapes shapes_at(const plan::Point& point) const;
  [[nodiscard]] std::int64_t images_of(const Shapes& shapes) const;
  [[nodiscard]] Result<plan::Parametric> fit(const Session& session) const;
  [[nodiscard]] Status open_kernels();
  [[nodiscard]] Status restart(region::Plan& plan, std::map<region::BufferId, std::span<const std::byte>>& others) const;
  [[nodiscard]] const region::Provider& provider_of(const region::Region& region) const;

  using Code = std::shared_ptr<const engine::AlignedBytes>;
  /// Machine code by source, of all shapes so far.
  struct Codes {
    std::map<std::string, Code, std::less<>> of;
    std::uint64_t late = 0;  ///< compiled when a shape came
  };
  [[nodiscard]] Status prepare();
  [[nodiscard]] Result<region::Plan> plan_at(const plan::Point& point, const Shapes& shapes) const;

  PipelineOptions options_;
  Shapes base_shapes_;
  std::vector<Dimension> dimensions_;
  std::shared_ptr<const engine::Engine> base_;
  std::shared_ptr<const plan::Decided> decided_;
  region::Plan plan_;  ///< of the base, of one image, without what was measured
  plan::Parametric extents_;
  std::vector<std::string> layouts_;  ///< of packed constants, by region
  engine::Providers providers_;
  std::shared_ptr<Codes> codes_ = std::make_shared<Codes>();  ///< under fork_safe_mutex()
  std::shared_ptr<const engine::AlignedBytes> growing_;
  std::shared_ptr<const void> keeps_;              ///< growing_ and codes_
  std::vector<std::shared_ptr<const void>> held_;  ///< by the device: codes_
  std::map<region::BufferId, std::size_t> growing_at_;
  bool of_file_ = false;  ///< extents are verified before they are used
};

}  // namespace octavo::api
