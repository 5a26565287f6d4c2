// A model whose input shapes, or values that decide shapes, are not all known, and the engines built from it so far, one for each set of
// shapes and values.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/pipeline.h"
#include "api/session.h"
#include "api/shapes.h"
#include "base/fork.h"
#include "base/result.h"
#include "onnx/import/import.h"

namespace octavo::api {

/// What the caller of a run has of an input: asked for once its value decides shapes; nothing where it cannot be read.
using ValueOf = std::function<std::optional<ir::Tensor>(const std::string& input)>;

/// Engines of one open model that are kept unless the caller says otherwise.
inline constexpr std::size_t kEnginesKept = 32;

class OpenModel {
 public:
  /// Reads the inputs; nothing is built. While dimensions are open, operators that are not covered are refused here already.
  /// `options.import.shapes` binds some or all of them.
  /// `ranges`: for no input, or for every one that stays open. `values`: of inputs that decide shapes, whatever a run brings. `most`:
  /// engines kept. `bytes`: of the session's model, for `bytes` below. Errors: usage for ranges that do not fit the inputs.
  [[nodiscard]] static Result<std::unique_ptr<OpenModel>> create(std::shared_ptr<const Session> session,
                                                                 std::shared_ptr<const std::vector<std::byte>> bytes,
                                                                 PipelineOptions options, ShapeRanges ranges = {},
                                                                 std::map<std::string, ir::Tensor> values = {},
                                                                 std::size_t most = kEnginesKept);

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
  /// same wait. At most `most` are kept: the one that was not asked for longest goes. A failed build is not remembered. Thread-safe;
  /// different shapes build at the same time.
  [[nodiscard]] Result<std::shared_ptr<const engine::Engine>> at(const Shapes& shapes, const ValueOf& value_of = {}) const;
  /// Is it one of those that are kept?
  [[nodiscard]] bool keeps(const engine::Engine* engine) const;
  /// The opt shapes of the ranges; empty when there are none.
  [[nodiscard]] Shapes opt() const;
  /// Those that are kept and built, in the order of their shapes and values.
  [[nodiscard]] engine::Engines all() const;

 private:
  struct Entry {
    bool building = true;
    std::uint64_t used = 0;  ///< when it was asked for last
    std::shared_ptr<const engine::Engine> engine;
    unsigned generation = fork_generation();  ///< of the process whose thread builds
    std::shared_ptr<std::condition_variable> done = std::make_shared<std::condition_variable>();
  };
  OpenModel() = default;
  [[nodiscard]] Status check(const Shapes& shapes) const;
  /// Shapes of all inputs, and the bytes of those whose values count.
  using Key = std::pair<Shapes, std::map<std::string, std::string>>;
  /// Takes the entry's engine, or leaves it null: the caller builds then.
  [[nodiscard]] std::shared_ptr<const engine::Engine> find_or_claim(const Key& key) const;
  void drop_oldest() const;

  std::shared_ptr<const Session> session_;
  std::shared_ptr<const std::vector<std::byte>> bytes_;
  PipelineOptions options_;
  onnx::Description description_;
  std::vector<onnx::InputInfo> inputs_, outputs_;
  ShapeRanges ranges_;
  std::map<std::string, ir::Tensor> values_;  ///< of inputs, given once for all engines
  bool open_ = false;
  std::size_t most_ = 1;
  // Under fork_safe_mutex():
  mutable std::map<Key, Entry> built_;
  mutable std::set<std::string> late_;
  mutable std::uint64_t clock_ = 0, builds_ = 0;
};

}  // namespace octavo::api
