// Options that have an effect only beside certain other arguments. Each declares this where it is declared itself; run_main asks once,
// before the command runs, so that no option is dropped silently.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace octavo::cli {

/// Asked after parsing, with the option as it was given ("--bind image=uint8"): why it has no effect beside the other arguments, and what to
/// do instead; empty where it has one.
using WhyNoEffect = std::function<std::string(const std::string& given)>;

/// A subcommand that knows when its options have an effect.
class Subcommand final : public CLI::App {
 public:
  Subcommand(const std::string& name, const std::string& help) : CLI::App(help, name) {}

  struct Condition {
    const CLI::Option* option = nullptr;
    WhyNoEffect why;
    bool note = false;  ///< said, and the command runs
  };
  std::vector<Condition> conditions;
  std::vector<std::function<void()>> arrangements;  ///< what settles the arguments after parsing
};

/// The option is refused where `why` gives a reason. Returns the option.
CLI::Option* has_effect(CLI::App& app, CLI::Option* option, WhyNoEffect why);
/// For options that scripts of trtexec carry: the reason is printed as a note, and the command runs.
CLI::Option* has_effect_or_note(CLI::App& app, CLI::Option* option, WhyNoEffect why);
/// While `active`, every option but these (by their names, "--json") is refused; `what` says what the command does then.
void only_these(CLI::App& app, std::function<bool()> active, std::set<std::string> names, std::string what);
/// While `active`, these options are refused, for the reason `what`.
void not_these(CLI::App& app, std::function<bool()> active, const std::set<std::string>& names, const std::string& what);
/// Runs after parsing, before conditions are asked: a model that is named among the inputs, say.
void arrange(CLI::App& app, std::function<void()> arrangement);

/// Settles the arguments, and refuses the first option that was given and has no effect. Errors: usage.
[[nodiscard]] Status check_effects(const Subcommand& command);

}  // namespace octavo::cli
