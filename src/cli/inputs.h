// --input FILE and --input NAME=FILE: pictures and arrays to feed a model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/image.h"
#include "cli/model.h"
#include "cli/npy.h"

namespace octavo::cli {

struct InputOptions {
  std::vector<std::string> inputs;
  std::string preset, resize, crop, letterbox, scale, mean, std, layout;
  bool bgr = false;
};
void add_input_options(CLI::App& app, InputOptions& options);

/// Everything named by --input, read but not yet shaped for the model: arrays by input name, and pictures for one input.
struct Given {
  Arrays arrays;
  std::string picture_input;                            ///< the input that takes pictures; empty: none
  std::vector<std::pair<std::string, Image>> pictures;  ///< path, pixels
};
/// Fails when a file cannot be read, names no input, or an input is left without one.
[[nodiscard]] Result<Given> read_inputs(const InputOptions& options, const Declared& declared);
/// Shapes that the arrays give to open dimensions of the model's inputs.
[[nodiscard]] Shapes shapes_of(const Given& given, const Declared& declared);

/// One run's tensors, parallel to the plan's inputs, and what to call it.
struct Feed {
  std::string name;
  std::vector<ir::Tensor> tensors;
};
/// One feed a picture; or one for all arrays; or, when each array is k times as long in dimension 0 as its input, k feeds of that
/// length.
[[nodiscard]] Result<std::vector<Feed>> make_feeds(const Given& given, const InputOptions& options, const region::Plan& plan);

}  // namespace octavo::cli
