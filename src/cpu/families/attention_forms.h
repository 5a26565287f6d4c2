// Programs of attention on codes that one pass over a tile computes (rows/attention_rows.h), found in the programs of its stages.
#pragma once

#include <optional>

#include "cpu/rows/attention_rows.h"
#include "program/program.h"

namespace octavo::cpu {

/// A program that scales integer sums, may round them to a grid, and may multiply or divide them by a number.
[[nodiscard]] std::optional<ScoreForm> score_form(const program::Program& p);
/// A program that rounds probabilities to u8 codes, and whose clamp has 0 in it.
[[nodiscard]] std::optional<ProbabilityForm> probability_form(const program::Program& p);

}  // namespace octavo::cpu
