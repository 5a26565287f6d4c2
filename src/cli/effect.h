// Options that have an effect only beside certain other arguments. Each declares this where it is declared itself; run_main asks once,
// before the command runs, so that no option is dropped silently.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "base/result.h"
#include "cli/arguments.h"

namespace octavo::cli {

/// The option is refused where `why` gives a reason. Returns the option.
Option* has_effect(Arguments& app, Option* option, WhyNoEffect why);
/// For options that scripts of trtexec carry: the reason is printed as a note, and the command runs.
Option* has_effect_or_note(Arguments& app, Option* option, WhyNoEffect why);
/// While `active`, every option but these (by their names, "--json") is refused; `what` says what the command does then.
void only_these(Arguments& app, std::function<bool()> active, std::set<std::string> names, std::string what);
/// While `active`, these options are refused, for the reason `what`.
void not_these(Arguments& app, std::function<bool()> active, const std::set<std::string>& names, const std::string& what);
/// Runs after parsing, before conditions are asked: a model that is named among the inputs, say.
void arrange(Arguments& app, std::function<void()> arrangement);

/// Settles the arguments, and refuses the first option that was given and has no effect. Errors: usage.
[[nodiscard]] Status check_effects(const Arguments& command);

}  // namespace octavo::cli
