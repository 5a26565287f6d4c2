#include "cli/effect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/print.h"

namespace octavo::cli {
namespace {

std::string as_given(const Option& option) {
  if (option.flag()) return option.name();  // a flag
  return fmt::format("{} {}", option.name(), fmt::join(option.results(), " "));
}

}  // namespace

Option* has_effect(Arguments& app, Option* option, WhyNoEffect why) {
  app.conditions.push_back({option, std::move(why)});
  return option;
}

Option* has_effect_or_note(Arguments& app, Option* option, WhyNoEffect why) {
  app.conditions.push_back({option, std::move(why), true});
  return option;
}

void only_these(Arguments& app, std::function<bool()> active, std::set<std::string> names, std::string what) {
  const auto why = [active, what, names](const std::string&) {
    return active() ? fmt::format("{}\n  beside it have an effect: {}", what, fmt::join(names, ", ")) : std::string();
  };
  for (Option* option : app.options()) {
    if (!names.contains(option->name())) has_effect(app, option, why);
  }
}

void not_these(Arguments& app, std::function<bool()> active, const std::set<std::string>& names, const std::string& what) {
  for (const std::string& name : names)
    has_effect(app, app.get_option(name), [active, what](const std::string&) { return active() ? what : std::string(); });
}

void arrange(Arguments& app, std::function<void()> arrangement) {
  app.arrangements.push_back(std::move(arrangement));
}

Status check_effects(const Arguments& command) {
  for (const auto& arrangement : command.arrangements) arrangement();
  for (const Arguments::Condition& c : command.conditions) {
    if (c.option->count() == 0) continue;
    const std::string given = as_given(*c.option);
    const std::string why = c.why(given);
    if (why.empty()) continue;
    if (!c.note) return fail(ErrorKind::usage, fmt::format("{} has no effect: {}", given, why));
    say("note: {} has no effect: {}\n", given, why);
  }
  return {};
}

}  // namespace octavo::cli
