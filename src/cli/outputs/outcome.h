// What came of quantizing, for people: progress while it runs, warnings and figures behind it.
#pragma once

#include <functional>
#include <string>

#include "cli/inputs/data.h"
#include "cli/progress.h"
#include "quantize/quantize.h"

namespace octavo::cli {

/// For quantize::Options::progress: steps with the time that is left. `progress` must outlive it.
[[nodiscard]] std::function<void(const std::string& step, std::size_t done, std::size_t count)> quantize_watcher(Progress& progress,
                                                                                                                 bool verbose);
/// Prints the warnings about the data and the outcome to stderr.
void print_warnings(const FileData& data, const quantize::Outcome& outcome);
/// Samples, ranges, layers, signal to noise, the search, and what stays float and why. `symmetric`: the ranges have no zero points.
[[nodiscard]] std::string outcome_text(const quantize::Outcome& outcome, bool symmetric);
/// How to build the model that was written as `model`, where layers of it are to be bfloat16; otherwise empty.
[[nodiscard]] std::string build_text(const quantize::Outcome& outcome, const std::string& model);

}  // namespace octavo::cli
