#include "cli/effect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/print.h"

namespace octavo::cli {
namespace {

/// Every add_X of commands.h gets a Subcommand.
Subcommand& subcommand(CLI::App& app) {
  return dynamic_cast<Subcommand&>(app);
}

std::string as_given(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return option.get_name();  // a flag
  return fmt::format("{} {}", option.get_name(), fmt::join(option.results(), " "));
}

}  // namespace

CLI::Option* has_effect(CLI::App& app, CLI::Option* option, WhyNoEffect why) {
  subcommand(app).conditions.push_back({option, std::move(why)});
  return option;
}

CLI::Option* has_effect_or_note(CLI::App& app, CLI::Option* option, WhyNoEffect why) {
  subcommand(app).conditions.push_back({option, std::move(why), true});
  return option;
}

void only_these(CLI::App& app, std::function<bool()> active, std::set<std::string> names, std::string what) {
  const auto why = [active, what, names](const std::string&) {
    return active() ? fmt::format("{}\n  beside it have an effect: {}", what, fmt::join(names, ", ")) : std::string();
  };
  for (CLI::Option* option : app.get_options()) {
    if (!names.contains(option->get_name())) has_effect(app, option, why);
  }
}

void not_these(CLI::App& app, std::function<bool()> active, const std::set<std::string>& names, const std::string& what) {
  for (const std::string& name : names)
    has_effect(app, app.get_option(name), [active, what](const std::string&) { return active() ? what : std::string(); });
}

void arrange(CLI::App& app, std::function<void()> arrangement) {
  subcommand(app).arrangements.push_back(std::move(arrangement));
}

Status check_effects(const Subcommand& command) {
  for (const auto& arrangement : command.arrangements) arrangement();
  for (const Subcommand::Condition& c : command.conditions) {
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
