// trtexec's options, taken as octavo's. The table is src/cli/trtexec.def; docs/from-trtexec.md prints it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace octavo::cli {

enum class TrtexecValue { none, needed, optional };
enum class TrtexecPhase { build, run, both };
enum class TrtexecTake { same, nothing, becomes, special, refused };

struct TrtexecOption {
  std::string_view name;
  TrtexecValue value;
  TrtexecPhase phase;
  TrtexecTake take;
  std::string_view becomes, text;
};
[[nodiscard]] std::span<const TrtexecOption> trtexec_options();
/// The row of "--name" or "--name=value"; null for options that trtexec does not have.
[[nodiscard]] const TrtexecOption* trtexec_option(std::string_view argument);

/// Arguments of a subcommand with trtexec's options replaced by octavo's. Options that octavo has itself, and everything that is not
/// in the table, stay as they are.
struct Translated {
  std::vector<std::string> arguments;
  std::vector<std::string> notes;  ///< for people: what an option became, or why it has no effect
};
/// Errors: usage, for options that are refused, and values that do not fit; the text says what to do instead.
[[nodiscard]] Result<Translated> from_trtexec(const std::vector<std::string>& arguments);

/// A call without a subcommand whose first argument is an option of trtexec, as octavo's commands: `build` and then `bench` of the
/// engine with --saveEngine (only `build` with --skipInference), else `bench` of the model or engine. Errors: as above; usage when
/// neither --onnx nor --loadEngine is given.
[[nodiscard]] Result<std::vector<std::vector<std::string>>> trtexec_commands(const std::vector<std::string>& arguments);

}  // namespace octavo::cli
