// Engines of one model for other extents, made of one that was planned and timed, in milliseconds: the plan is the same but for its extents, which are
// functions of the open dimensions (plan/parametric.h); constants are used where they are; only kernels are made.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/launch_table.h"
#include "api/pipeline.h"
#include "api/read_launches.h"
#include "api/session.h"
#include "api/shapes.h"
#include "base/result.h"
#include "cpu/code_shelf.h"
#include "engine/aligned.h"
#include "engine/device_arenas.h"
#include "engine/engine.h"
#include "onnx/import/import.h"
#include "plan/parametric.h"

namespace octavo::api {

/// Machine code that several plans of an engine file have, each once.
struct KeptCodes {
  std::vector<std::shared_ptr<const engine::AlignedBytes>> of;
  /// Its number.
  [[nodiscard]] std::size_t add(const std::shared_ptr<const engine::AlignedBytes>& code);
};

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
  /// Arenas of other devices for the largest shapes of a declared range are there from now on, where they are not more than 1 GB.
  void expect_arenas(engine::DeviceArenas& arenas) const;
  /// Bytes of the arenas of one run for the largest shapes of the range; 0: too large to say.
  [[nodiscard]] std::size_t most_arena_bytes() const;

  /// What a file has of one beside its JSON.
  struct Kept {
    std::span<const std::byte> data;
    const KeptCodes* codes = nullptr;  ///< null: kernels of another device are emitted and compiled here, as `create` does
    engine::Providers providers;       ///< empty: those of the host
  };
  /// For engine files, beside the plan of `base` and the decisions; `data`: longer contents of constants, and launches. `codes`: takes the machine code.
  [[nodiscard]] nlohmann::json to_json(std::vector<std::byte>& data, KeptCodes& codes) const;
  /// Trusts nothing of `j` and `kept`; machine code is checked against its launches as that of an engine is, and so far no driver gets it. `options`: those
  /// that `base` was built with. Errors: bad_engine.
  [[nodiscard]] static Result<std::shared_ptr<const Resizer>> from_json(const nlohmann::json& j, const Kept& kept,
                                                                        const PipelineOptions& options,
                                                                        std::shared_ptr<const engine::Engine> base,
                                                                        std::shared_ptr<const plan::Decided> decided);
  /// Shapes whose launches are known without emitting anything, from the least to the most of each dimension.
  [[nodiscard]] const LaunchTable& launches() const { return launches_; }

 private:
  /// An open dimension, and where it is.
  struct Dimension {
    std::vector<std::pair<std::string, std::size_t>> at;  ///< input, axis
    std::int64_t least = 1, most = 1;
  };
  using Code = std::shared_ptr<const engine::AlignedBytes>;
  Resizer() = default;
  [[nodiscard]] std::optional<plan::Point> point_of(const Shapes& shapes) const;
  [[nodiscard]] Shapes shapes_at(const plan::Point& point) const;
  [[nodiscard]] std::int64_t images_of(const Shapes& shapes) const;
  [[nodiscard]] Result<plan::Parametric> fit(const Session& session) const;
  /// Points of the range, among them its corners, that no two terms can mix up: the dimensions are never equal in all of them.
  [[nodiscard]] static std::vector<plan::Point> points_of(const plan::Point& least, const plan::Point& most);
  [[nodiscard]] bool on_device(std::size_t region) const;
  [[nodiscard]] Status open_regions();
  [[nodiscard]] Status make_kernels();
  [[nodiscard]] Status read_kernels(const nlohmann::json& j, std::span<const std::byte> data, const KeptCodes& codes);
  void read_forms();
  void hold_kernels();
  void expect_largest() const;
  void place_growing();
  [[nodiscard]] LaunchTable box() const;
  [[nodiscard]] Status restart(region::Plan& plan, const plan::Point& point,
                               std::map<region::BufferId, std::span<const std::byte>>& others) const;
  [[nodiscard]] Status verify(const region::Plan& plan) const;
  [[nodiscard]] std::vector<const std::string*> wanted_layouts() const;
  [[nodiscard]] Status emit_again(region::Plan& plan, const std::vector<std::size_t>& regions, std::vector<Code>& codes) const;
  [[nodiscard]] const region::Provider& provider_of(const region::Region& region) const;

  /// Machine code of all shapes so far.
  struct Codes {
    std::vector<Code> of;                                ///< by number (LaunchTable::Start::code)
    std::map<std::string, Code, std::less<>> by_source;  ///< by a hash of the source
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
  std::shared_ptr<Codes> codes_ = std::make_shared<Codes>();  ///< `by_source` under fork_safe_mutex()
  LaunchTable launches_;
  ReadLaunches read_;             ///< of launches_ and codes_
  mutable cpu::CodeShelf shelf_;  ///< of kernels of the host for all shapes
  std::shared_ptr<const engine::AlignedBytes> growing_;
  /// What engines for other shapes keep alive.
  struct Keeps {
    std::shared_ptr<const engine::AlignedBytes> growing;
    std::shared_ptr<Codes> codes;
    std::vector<std::unique_ptr<region::DeviceMemory>> memory;  ///< growing_ in the memory of other devices
  };
  std::shared_ptr<Keeps> keeps_;
  std::map<region::BufferId, std::byte*> placed_;  ///< in Keeps::memory
  std::vector<std::shared_ptr<const void>> held_;  ///< by the device: codes_
  std::map<region::BufferId, std::size_t> growing_at_;
  bool declared_ = false;  ///< the dimensions' ranges were given
  int cores_ = 1;          ///< of this machine
  bool of_file_ = false;   ///< extents are verified before anything follows them
};

}  // namespace octavo::api
