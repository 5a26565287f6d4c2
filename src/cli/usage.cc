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
std::set<std::string> option_names(const Arguments& app) {
  std::set<std::string> names;
  for (const Option* option : app.options()) {
    const std::vector<std::string> spellings = option->spellings();
    names.insert(spellings.begin(), spellings.end());
  }
  return names;
}

std::string unknown_option(const Arguments& app, const Arguments& sub, const std::string& command, const std::string& option) {
  std::string text = fmt::format("\"{}\" is not an option of {}", option, command);
  std::vector<std::string> others;
  for (const Arguments* other : app.subcommands()) {
    if (other != &sub && option_names(*other).contains(option)) others.push_back("octavo " + other->name());
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

std::string usage_text(const Arguments& app, const Arguments::Outcome& refused) {
  using Kind = Arguments::Outcome::Kind;
  const Arguments* sub = &app;
  std::string command = "octavo";
  for (const Arguments* deeper = sub; deeper != nullptr;) {
    const auto all = sub->subcommands();
    const auto called = std::ranges::find_if(all, [](const Arguments* s) { return s->parsed(); });
    deeper = called == all.end() ? nullptr : *called;
    if (deeper == nullptr) break;
    sub = deeper;
    command += " " + sub->name();
  }
  std::string text = refused.text;
  const bool extra = refused.kind == Kind::unknown, missing = refused.kind == Kind::missing;
  const std::vector<std::string>& left = refused.left;
  const auto option = std::ranges::find_if(left, [](const std::string& a) { return a.size() > 1 && a[0] == '-'; });
  if (option != left.end()) {  // perhaps meant as the option that is missing
    text = unknown_option(app, *sub, command, option->substr(0, option->find('=')));
  } else if (extra && !left.empty()) {
    text = fmt::format("{} takes no argument \"{}\" here", command, left[0]);
  } else if (missing && text.starts_with("--output")) {
    text += fmt::format(", as in: {} model.onnx -o {}", command, sub->name() == "view" ? "report.html" : "model.octavo");
  } else if (missing && sub != &app && !sub->subcommands().empty()) {
    std::vector<std::string> names;
    for (const Arguments* one : sub->subcommands()) names.push_back(one->name());
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
