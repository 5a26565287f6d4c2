// A model whose input shapes are not all known: its bytes, and the engines built so far, one for each set of shapes.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/pipeline.h"
#include "base/fork.h"
#include "base/result.h"
#include "onnx/import/import.h"

namespace octavo::api {

using Shapes = std::map<std::string, ir::Shape>;

/// Of one input: every dimension of a shape must lie between min and max.
struct ShapeRange {
  ir::Shape min, opt, max;
};
using ShapeRanges = std::map<std::string, ShapeRange>;

class OpenModel {
 public:
  /// Reads the inputs; nothing is built. While dimensions are open, operators that are not covered are refused here already.
  /// `options.import.shapes` binds some or all of them.
  /// `ranges`: for no input, or for every one that stays open. Errors: usage for ranges that do not fit the inputs.
  [[nodiscard]] static Result<std::unique_ptr<OpenModel>> create(std::vector<std::byte> model, PipelineOptions options,
                                                                 std::string folder, ShapeRanges ranges = {});

  /// False when the options leave no dimension open: `at` then needs no shapes.
  [[nodiscard]] bool open() const { return open_; }
  /// As declared, with the dimensions that the options bind filled in; -1 where open.
  [[nodiscard]] const std::vector<onnx::InputInfo>& inputs() const { return inputs_; }
  /// As declared; empty when the file does not say enough.
  [[nodiscard]] const std::vector<onnx::InputInfo>& outputs() const { return outputs_; }

  /// The engine for these shapes (every open input must be named), built by the first caller while others that ask for the same
  /// wait. A failed build is not remembered. Thread-safe; different shapes build at the same time.
  [[nodiscard]] Result<std::shared_ptr<const engine::Engine>> at(const Shapes& shapes) const;
  /// The opt shapes of the ranges; empty when there are none.
  [[nodiscard]] Shapes opt() const;
  /// The only engine built so far; null when there is none or more than one.
  [[nodiscard]] std::shared_ptr<const engine::Engine> only() const;

 private:
  struct Entry {
    bool building = true;
    std::shared_ptr<const engine::Engine> engine;
    unsigned generation = fork_generation();  ///< of the process whose thread builds
    std::shared_ptr<std::condition_variable> done = std::make_shared<std::condition_variable>();
  };
  OpenModel() = default;
  [[nodiscard]] Status check(const Shapes& shapes) const;

  std::vector<std::byte> model_;
  PipelineOptions options_;
  std::string folder_;
  std::vector<onnx::InputInfo> inputs_, outputs_;
  ShapeRanges ranges_;
  bool open_ = false;
  mutable std::map<Shapes, Entry> built_;  ///< under fork_safe_mutex()
};

}  // namespace octavo::api
