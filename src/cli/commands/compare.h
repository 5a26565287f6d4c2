// `octavo check A B`: two models on the same inputs, output by output.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/inputs/inputs.h"
#include "cli/inputs/model.h"
#include "cli/inputs/npy.h"

namespace octavo::cli {

struct CompareOptions {
  std::string other;    ///< a model or an engine file; empty with `against`: the first model
  std::string against;  ///< "onnxruntime" runs `other`; "": octavo does
  double rtol = 1e-4, atol = 1e-4;
  bool json = false;
};

/// Prints a table, or JSON. The exit code is 1 if an element of an output differs by more than atol + rtol * |the other's|. `first` is the engine that `model`
/// names, already built; `arrays` are those of the inputs (for values that decide shapes). Errors: usage for models with other inputs or outputs; those of loading; unsupported where ONNX Runtime
/// is not installed or does not run the model.
[[nodiscard]] Result<int> compare(const ModelOptions& model, const CompareOptions& options, const Loaded& first,
                                  const std::vector<Feed>& feeds, const Arrays& arrays, std::optional<Progress>& progress);

/// `path`, a model or an engine, built for the shapes and values of the inputs of `first`, which `model` names. Inputs of other names are matched
/// by position. Errors: usage for other inputs; those of loading.
[[nodiscard]] Result<Loaded> load_beside(const ModelOptions& model, const std::string& path, const Loaded& first,
                                         const Arrays& arrays, Progress& progress);

/// Options for building and loading `model`. If one of the two is an engine, the build options belong to the other.
[[nodiscard]] ModelOptions options_of_first(const ModelOptions& model, const std::string& other);

}  // namespace octavo::cli
