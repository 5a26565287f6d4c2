// From an ONNX model to an engine in one call, keeping what the command line and the tests want to look at on the way.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "engine/engine.h"
#include "engine/memory_check.h"
#include "ir/graph.h"
#include "onnx/import/import.h"
#include "plan/decided.h"
#include "plan/precision/permit.h"
#include "rewrite/rule.h"
#include "tune/measured_costs.h"

namespace octavo::api {

/// What --timing-cache says to go without one.
inline constexpr std::string_view kNoCache = "none";

struct PipelineOptions {
  /// Or "reference", or "cuda" ("cuda:1": another GPU than the first; "cuda:sm_86", "cuda:RTX 4090": one that need not be here, at effort 0), or
  /// "cuda,cpu": regions that the GPU has no kernel for run on the CPU.
  std::string device = "cpu";
  /// "avx2": plan and build with at most these vector instructions (cpu::known_caps), for a lesser processor; empty: what this
  /// one has.
  std::string cpu;
  onnx::ImportOptions import;
  /// Called with the present step ("import", "plan: choice 3 of 96", "engine") when it begins and up to 20 times a second while
  /// it lasts; false: the build stops with an error. In the building thread.
  TaskWatcher progress;
  plan::PlanOptions plan = for_every_core();  ///< plan.threads 0: engine::available_cores()
  /// Ranges are given by hand: each must be of a tensor of the model. Tables of files may hold more.
  bool ranges_by_hand = false;
  /// The engine holds its model for a later rebuild: what `source` gives, or the session's (api/session.h; build_bytes has none).
  bool keep_model = true;
  std::shared_ptr<const engine::ModelSource> source;
  engine::Notes notes;  ///< Engine::notes
  /// Measured costs (effort > 0): where they come from.
  struct Timing {
    std::string cache;                                 ///< timing cache file, read first and extended atomically; empty: the user's
                                                       ///< (tune::user_cache); kNoCache: measured for this build only
    bool strict = false;                               ///< a miss is an error
    std::function<void(const std::string& line)> log;  ///< each key and time as used
  } timing;

 private:
  [[nodiscard]] static plan::PlanOptions for_every_core() {
    plan::PlanOptions o;
    o.threads = 0;
    return o;
  }
};

/// The planner's options of a build, whatever command asks: `plan` with its number of threads, and ranges under the names that the
/// graph has (a range for another name of a tensor is one for the tensor: the wider counts).
[[nodiscard]] plan::PlanOptions planner_options(const PipelineOptions& options, const onnx::Model& model);

/// The measured costs of one build or one question about it: read from the timing cache, and what was measured goes back there.
/// `options` gets them; nothing at effort 0, off the cpu, or where it has costs already. Must outlive the planning.
class Measuring {
 public:
  [[nodiscard]] Status begin(const PipelineOptions& build, const engine::Providers& providers, plan::PlanOptions& options);
  [[nodiscard]] Status keep(const PipelineOptions& build) const;

 private:
  std::optional<tune::MeasuredCosts> costs_;
  std::string file_;  ///< of the timing cache; empty: none
};

struct Built {
  onnx::Model model;                        ///< model.graph is the graph as imported
  ir::Graph graph;                          ///< the normalized graph; the plan's graph_inputs/graph_outputs are its ValueIds
  std::vector<rewrite::RunReport> reports;  ///< of laws and rules, in the order of the passes
  plan::PermitReport permitted;             ///< implicit quantization: what the ranges made of the network
  /// What the plan was made of, for other shapes of the model: that of `engine`, and where it runs image by image that of the whole batch.
  std::vector<std::shared_ptr<const plan::Decided>> decided;
  std::shared_ptr<const engine::Engine> engine;
};

/// What plans for a device may use, in order of preference. Errors: `usage` for an unknown device, naming the known ones.
[[nodiscard]] Result<engine::Providers> providers(std::string_view device);
/// Every provider, for loading engine files. `device`: which GPU "cuda" is ("cuda:1"); others mean the first.
[[nodiscard]] engine::Providers all_providers(std::string_view device = "cuda");
/// What the parameters of a tactic mean, whichever provider's it is; those of its parts apart. For report::details.
[[nodiscard]] std::vector<region::ParameterRow> parameters_of(const region::Tactic& tactic);
/// Every device beside the host, for the same.
[[nodiscard]] engine::Devices devices(std::string_view device = "cuda");
/// Before a build plans and compiles for it: an error with the way out if the device is a GPU of this machine that cannot be opened.
[[nodiscard]] Status check_gpu(std::string_view device);
/// "cpu", "reference" or "cuda": where an engine's regions run, told from its tactics.
[[nodiscard]] std::string device_of(const region::Plan& plan);

/// A device that can be opened here: as --device takes it ("cpu", "cuda:1"), and what times taken on it are true for.
struct DeviceHere {
  std::string name, description;
};
/// The host first. Opens every GPU.
[[nodiscard]] std::vector<DeviceHere> devices_here();
/// The description of what the engine runs on: its device beside the host, or this machine.
[[nodiscard]] std::string runs_on(const engine::Engine& engine);

/// "demand" or "permit", as --qdq takes it. Errors: `usage` for anything else.
[[nodiscard]] Result<bool> permits_pairs(std::string_view qdq);
/// The device and the instruction set are known and the thread count is not negative.
[[nodiscard]] Status check_options(const PipelineOptions& options);

/// Session::build of a model that nobody else asks about.
[[nodiscard]] Result<Built> build_file(const std::string& path, const PipelineOptions& options = {});
[[nodiscard]] Result<Built> build_bytes(std::span<const std::byte> model, const PipelineOptions& options = {},
                                        const std::string& folder = "");
/// The same from a graph, for tests: `model` holds nothing but the graph.
[[nodiscard]] Result<Built> build_graph(ir::Graph graph, const PipelineOptions& options = {});

/// Runs a context on dense tensors, parallel to the plan's inputs; gives the outputs. `bad_input` names the input that does not
/// fit. `memory`: the run is one of engine::check_memory, without the observer, and this is what it found.
[[nodiscard]] Result<std::vector<ir::Tensor>> run(engine::Context& context, const std::vector<ir::Tensor>& inputs,
                                                  const engine::Observer* observer = nullptr,
                                                  engine::MemoryReport* memory = nullptr);

}  // namespace octavo::api
