// What is said of arguments that a command cannot take.
#pragma once

#include <string>
#include <string_view>

#include "cli/arguments.h"

namespace octavo::cli {

inline constexpr std::string_view kBenchmarkApp =
    "\n  docs/from-openvino.md lists the options of benchmark_app with their equivalents, for example: octavo bench model.onnx "
    "--threads 4 "
    "--seconds 10";

/// The message for arguments that were refused: the first unknown option with the nearest that the command has and the commands that do
/// have it, a missing option with an example; else the parser's own text.
[[nodiscard]] std::string usage_text(const Arguments& app, const Arguments::Outcome& refused);

/// Whether an argument is a model or an engine by its name.
[[nodiscard]] bool is_model_name(std::string_view argument);

/// Options of benchmark_app that begin with the letter of one of ours, which would be read as that letter and a value.
[[nodiscard]] bool is_bundled_by_mistake(std::string_view argument);

}  // namespace octavo::cli
