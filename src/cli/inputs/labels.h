// The right class of each sample: from a table, a list, or the names of folders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/inputs/data.h"

namespace octavo::cli {

/// Parallel to the samples. `source`: a .csv file with a header, of which the columns `file` and `class_index` count (files are found
/// by their last part); a text file with one number a line, in the order of the samples; or "folders": the class of a picture is the
/// place of its folder among the folders' names in order. Errors: io; bad_input for a missing column, a sample without a label, a label
/// that is no number or negative, a wrong number of lines.
[[nodiscard]] Result<std::vector<std::int64_t>> read_labels(const std::string& source, const FileData& data);

}  // namespace octavo::cli
