// A model whose input shapes, or values that decide shapes, are not all known, and the engines built from it so far, one for each set of
// shapes and values.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/pipeline.h"
#include "api/resizer.h"
#include "api/session.h"
#include "api/shapes.h"
#include "base/fork.h"
#include "base/result.h"
#include "engine/run_resources.h"
#include "engine/source.h"
#include "onnx/import/import.h"

namespace octavo::api {

struct LoadRequest;

/// What the caller of a run has of an input: asked for once its value decides shapes; nothing where it cannot be read.
using ValueOf = std::function<std::optional<ir::Tensor>(const std::string& input)>;

/// How an engine for shapes is made that occur for the first time in a run. Those of `tune`, and the first of all, are always timed.
/// nearest: by the decisions of the nearest shapes that were tuned; nothing is timed. tune: timed. background: as nearest, and a thread times those
/// that occur often, one after the other; the engine is then another one, with the same 8-bit results.
enum class Late : std::uint8_t { nearest, tune, background };
/// Errors: usage for any other word.
[[nodiscard]] Result<Late> late_named(std::string_view word);
/// Runs of one shape after which the thread of Late::background times it.
inline constexpr std::uint64_t kOften = 3;

/// Engines of one open model that are kept unless the caller says otherwise: so many that were planned, with constants of their own; and so many that were made of
/// them by other extents alone (Resizer), with so many regions together. A region of these has little more than its machine code and what a context knows of it, about
/// 14 KB; on another device than the host its part of captured launches: it counts as several.
inline constexpr std::size_t kEnginesKept = 32, kResizedKept = 4096, kRegionsKept = std::size_t{1} << 16, kRegionsOfDevice = 8;

class OpenModel {
 public:
  /// Reads the inputs; nothing is built. While dimensions are open, operators that are not covered are refused here already.
  /// `options.import.shapes` binds some or all of them.
  /// `ranges`: for no input, or for every one that stays open. `values`: of inputs that decide shapes, whatever a run brings. `most`:
  /// engines kept, all together; nothing: kEnginesKept and its neighbours. `bytes`: of the session's model, for `bytes` below. Errors: usage for ranges that do not fit the inputs.
  [[nodiscard]] static Result<std::unique_ptr<OpenModel>> create(std::shared_ptr<const Session> session,
                                                                 std::shared_ptr<const std::vector<std::byte>> bytes,
                                                                 PipelineOptions options, ShapeRanges ranges = {},
                                                                 std::map<std::string, ir::Tensor> values = {},
                                                                 std::optional<std::size_t> most = {}, Late mode = Late::nearest);
  /// Of an engine file that serves a range of shapes (api/open_file.h): by its plans, which nothing has to import or plan for; where extents are no such
  /// functions by the decisions and the model that the file holds. `engines`: its plans. `providers`: those that load kernels of a GPU. `request`: with rebuild_code
  /// machine code of the file is not used, and compiled again; its device is the one that new shapes are built for. Errors: bad_engine.
  [[nodiscard]] static Result<std::unique_ptr<OpenModel>> of_file(const engine::EngineFile& file, engine::Engines engines,
                                                                  const engine::Providers& providers, const LoadRequest& request);
  ~OpenModel();
  OpenModel(const OpenModel&) = delete;
  OpenModel& operator=(const OpenModel&) = delete;

  /// False when the options leave no dimension open, and no build found an input whose value decides shapes: `at` then needs nothing.
  [[nodiscard]] bool open() const { return open_ || !late().empty(); }
  /// Inputs whose values decide shapes, as far as builds have found them: an engine is built for each set of these values.
  [[nodiscard]] std::set<std::string> late() const;
  /// As declared, with the dimensions that the options bind filled in; -1 where open.
  [[nodiscard]] const std::vector<onnx::InputInfo>& inputs() const { return inputs_; }
  /// As declared; empty when the file does not say enough.
  [[nodiscard]] const std::vector<onnx::InputInfo>& outputs() const { return outputs_; }

  /// What the model says of itself.
  [[nodiscard]] const onnx::Description& description() const { return description_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return *bytes_; }
  /// Engines built so far, those among them that are no longer kept.
  [[nodiscard]] std::uint64_t builds() const;

  /// The engine for these shapes (every open input must be named) and values, built by the first caller while others that ask for the
  /// same wait. At most `most` are kept: the one of its kind that was not asked for longest goes. A failed build is not remembered. Thread-safe;
  /// different shapes build at the same time.
  [[nodiscard]] Result<std::shared_ptr<const engine::Engine>> at(const Shapes& shapes, const ValueOf& value_of = {}) const;
  /// The same, planned and timed for these shapes by the effort of the options, whatever there was; other shapes follow its decisions from then on.
  [[nodiscard]] Result<std::shared_ptr<const engine::Engine>> tune(const Shapes& shapes, const ValueOf& value_of = {}) const;
  /// Takes an engine that was planned and timed elsewhere, by the options of this model, for `shapes` of all inputs.
  [[nodiscard]] Status adopt(const Shapes& shapes, const Built& built) const;
  /// Writes what was tuned as one file that serves the whole range (api/open_file.h). Plans the opt shapes where nothing was tuned. Errors: usage without a
  /// range, or where shapes depend on values of inputs, or where shapes of the range can only be planned and the model is not kept; io.
  [[nodiscard]] Status save(const std::string& path, const engine::Notes& notes = {}, const std::string& private_key = {}) const;
  /// Is there a range for every open input?
  [[nodiscard]] bool ranged() const { return open_ && !ranges_.empty(); }
  [[nodiscard]] const ShapeRanges& ranges() const { return ranges_; }
  /// Why shapes of the range are planned, by the decisions of tuned ones, when they first occur; empty: their plans follow from tuned ones.
  [[nodiscard]] std::string why_planned() const;
  /// The plans that were tuned, of a file in its order.
  [[nodiscard]] engine::Engines tuned() const;
  /// Of all contexts of its engines.
  [[nodiscard]] const std::shared_ptr<engine::RunResources>& resources() const { return resources_; }
  /// Bytes of the arenas of one run for the largest shapes of the range; 0: not known.
  [[nodiscard]] std::size_t most_arena_bytes() const;
  /// Of plans that run on the host alone: memory that a run of the largest shapes of the declared range takes with so many threads is there from now on, where it is not
  /// more than 1 GB. Cost: that of one first run of a shape without running it, and of touching the memory.
  void expect_largest(int threads) const;
  /// Waits until the thread of Late::background has nothing left to do.
  void wait_for_background() const;
  /// Those that are kept. Under fork_safe_mutex().
  [[nodiscard]] std::set<const engine::Engine*> kept() const;
  /// The opt shapes of the ranges; empty when there are none.
  [[nodiscard]] Shapes opt() const;
  /// Those that are kept and built, in the order of their shapes and values.
  [[nodiscard]] engine::Engines all() const;

  friend Result<std::shared_ptr<const OpenModel>> rebuild_open(const std::shared_ptr<const engine::EngineFile>& file,
                                                               const LoadRequest& request);

 private:
  struct Entry {
    bool building = true, tuned = false;
    std::uint64_t runs = 0;
    std::uint64_t used = 0;  ///< when it was asked for last
    std::shared_ptr<const engine::Engine> engine;
    unsigned generation = fork_generation();  ///< of the process whose thread builds
    std::shared_ptr<std::condition_variable> done = std::make_shared<std::condition_variable>();
  };
  /// Shapes that were tuned, and what was decided for them (Built::decided).
  struct Donor {
    Shapes shapes;
    std::vector<std::shared_ptr<const plan::Decided>> decided;
    std::vector<std::shared_ptr<const Resizer>> resizers;  ///< parallel to decided; null: extents have to be planned
    engine::Engines bases;                                 ///< parallel to decided; null: none was made
    std::string why_planned;                               ///< why a resizer is missing
  };
  /// What a new shape takes over.
  struct Follow {
    std::shared_ptr<const plan::Decided> decided;
    std::shared_ptr<const Resizer> resizer;
  };
  OpenModel() = default;
  [[nodiscard]] Status check(const Shapes& shapes) const;
  /// Shapes of all inputs, and the bytes of those whose values count.
  using Key = std::pair<Shapes, std::map<std::string, std::string>>;
  /// Takes the entry's engine, or leaves it null: the caller builds then.
  [[nodiscard]] std::shared_ptr<const engine::Engine> find_or_claim(const Key& key) const;
  void drop_oldest() const;
  [[nodiscard]] Shapes complete(const Shapes& shapes) const;
  [[nodiscard]] Result<std::shared_ptr<const engine::Engine>> find(const Shapes& shapes, const ValueOf& value_of, bool tune) const;
  [[nodiscard]] Follow nearest(const Shapes& shapes) const;
  [[nodiscard]] Donor donor_of(const PipelineOptions& options, const Shapes& shapes, const Built& built,
                               onnx::LateValues& given) const;
  [[nodiscard]] Result<Built> build(const PipelineOptions& options, const Follow& follow, onnx::LateValues& given) const;
  [[nodiscard]] std::shared_ptr<const plan::Decided> preferences(const Shapes& shapes) const;
  void keep_donor(Donor donor) const;
  [[nodiscard]] Status cover_range() const;
  [[nodiscard]] std::vector<Shapes> corners() const;
  [[nodiscard]] Result<std::shared_ptr<const Session>> session() const;
  void tune_later(const Key& key) const;
  void tune_in_background() const;

  mutable std::shared_ptr<const void> holds_;  ///< what the session's model lies in
  /// Of a file: null until an engine has to be planned. Under fork_safe_mutex().
  mutable std::shared_ptr<const Session> session_;
  std::shared_ptr<const engine::ModelSource> source_;  ///< of a file that holds its model
  std::string file_;                                   ///< the name of the engine file; empty: of a model
  std::shared_ptr<engine::RunResources> resources_ = std::make_shared<engine::RunResources>();
  std::shared_ptr<const std::vector<std::byte>> bytes_;
  PipelineOptions options_;
  onnx::Description description_;
  std::vector<onnx::InputInfo> inputs_, outputs_;
  ShapeRanges ranges_;
  std::map<std::string, ir::Tensor> values_;  ///< of inputs, given once for all engines
  bool open_ = false;
  std::optional<std::size_t> most_;
  // Under fork_safe_mutex():
  mutable std::map<Key, Entry> built_;
  mutable std::set<std::string> late_;
  mutable std::uint64_t clock_ = 0, builds_ = 0;
  mutable std::vector<Donor> donors_;
  mutable std::vector<Key> to_tune_;
  mutable std::shared_ptr<std::thread> worker_;  ///< runs while there is something to tune
  mutable bool working_ = false;
  mutable unsigned worker_generation_ = 0;
  mutable std::atomic<bool> stopping_ = false;
  Late mode_ = Late::nearest;
};

}  // namespace octavo::api
