#include "cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/nearest.h"
#include "cli/trtexec.h"

namespace octavo::cli {
namespace {

/// Every spelling of an option that people may write.
std::set<std::string> option_names(const CLI::App& app) {
  std::set<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.insert("--" + name);
    for (const std::string& name : option->get_snames()) names.insert("-" + name);
  }
  return names;
}

std::string unknown_option(const CLI::App& app, const CLI::App& sub, const std::string& command, const std::string& option) {
  std::string text = fmt::format("\"{}\" is not an option of {}", option, command);
  std::vector<std::string> others;
  for (const CLI::App* other : app.get_subcommands({})) {
    if (other != &sub && option_names(*other).contains(option)) others.push_back("octavo " + other->get_name());
  }
  if (!others.empty()) text += fmt::format("; it is one of {}", fmt::join(others, ", "));
  if (option == "--batch" || option == "-b") {
    text += "\n  the batch of an engine is part of its shapes, as in: --shapes image:8x3x224x224";
  } else if (!option.starts_with("--")) {
    if (option.size() > 2) text += "; options of more than one letter begin with --";
    text += kBenchmarkApp;
  } else if (others.empty()) {
    std::set<std::string> known = option_names(sub);
    for (const TrtexecOption& o : trtexec_options()) known.insert(std::string(o.name));
    if (const auto near = nearest(known, option); !near.empty()) text += fmt::format("; nearest: {}", fmt::join(near, ", "));
  }
  return text;
}

}  // namespace

std::string usage_text(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* sub = &app;
  std::string command = "octavo";
  for (auto deeper = sub->get_subcommands(); !deeper.empty(); deeper = sub->get_subcommands()) {
    sub = deeper.front();
    command += " " + sub->get_name();
  }
  std::string text = error.what();
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const bool missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const std::vector<std::string> left = extra || missing ? app.remaining(true) : std::vector<std::string>();
  const auto option = std::ranges::find_if(left, [](const std::string& a) { return a.size() > 1 && a[0] == '-'; });
  if (option != left.end()) {  // perhaps meant as the option that is missing
    text = unknown_option(app, *sub, command, option->substr(0, option->find('=')));
  } else if (extra && !left.empty()) {
    text = fmt::format("{} takes no argument \"{}\" here", command, left[0]);
  } else if (missing && text.starts_with("--output")) {
    text += fmt::format(", as in: {} model.onnx -o {}", command, sub->get_name() == "view" ? "report.html" : "model.octavo");
  } else if (missing && sub != &app && !sub->get_subcommands({}).empty()) {
    std::vector<std::string> names;
    for (const CLI::App* one : sub->get_subcommands({})) names.push_back(one->get_name());
    text = fmt::format("{} takes one of {}", command, fmt::join(names, ", "));
  }
  return fmt::format("{}\n  see: {} --help", text, command);
}

bool is_model_name(std::string_view argument) {
  return argument.ends_with(".onnx") || argument.ends_with(".octavo");
}

bool is_bundled_by_mistake(std::string_view argument) {
  constexpr std::string_view kTheirs[] = {"-hint", "-op", "-ol"};
  const std::string_view name = argument.substr(0, argument.find('='));
  return std::ranges::find(kTheirs, name) != std::end(kTheirs);
}

}  // namespace octavo::cli
