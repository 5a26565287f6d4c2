#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/nearest.h"
#include "cli/commands/accuracy.h"
#include "cli/commands/commands.h"
#include "cli/commands/view.h"
#include "cli/effect.h"
#include "cli/own_inputs.h"
#include "cli/print.h"
#include "cli/trtexec.h"
#include "cli/usage.h"
#include "cpu/isa.h"
#include "engine/version.h"

namespace octavo::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  octavo run model.onnx --input photo.jpg --preset torch --labels classes.txt\n"
    "  octavo build model.onnx -o model.octavo --threads 4\n"
    "  octavo bench model.octavo --json\n"
    "  octavo explain model.onnx --node conv1\n"
    "  octavo view model.onnx -o report.html\n"
    "  octavo serve model.onnx --port 8000        (of the Python package)\n"
    "  octavo doctor --system\n"
    "  octavo check model.onnx --input photo.jpg --preset torch\n"
    "\n"
    "Exit codes: 0 success, 1 check found a difference or doctor an error, 2 usage, 3 damaged model, 4 unsupported model, 5 bad "
    "input, 6 bad engine "
    "file,\n"
    "7 file cannot be read or written, 8 check could not compare everything, 70 internal error (a bug in Octavo).";

/// `octavo serve` is written in Python: the Python package's command `octavo` takes it before this one sees it.
Command add_serve(Arguments& app) {
  app.allow_extras();
  app.footer(
      "This is the compiled command without the server. The Python package has both:\n"
      "  pip install \"$(ls dist/octavo-*.whl)[serve]\"     (make wheel makes the file)\n"
      "  octavo serve model.onnx --port 8000     or: python -m octavo serve model.onnx --port 8000");
  return []() -> Result<int> {
    return fail(ErrorKind::usage,
                "octavo serve is part of the Python package, and this is the compiled command alone\n"
                "  make wheel; pip install \"$(ls dist/octavo-*.whl)[serve]\"; then its octavo serve, or python -m octavo serve");
  };
}

int print_error(const Error& error) {
  say("error: {}\n", error.message);
  return exit_code(error.kind);
}

/// What is still buffered must reach stdout: output that is lost is an error, whatever the command was about to return.
int finish(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return print_error(
      {ErrorKind::io, fmt::format("cannot write the output: {}", errno != 0 ? std::strerror(errno) : "stdout takes no more")});
}

/// One command: `arguments` begin with the subcommand.
int run_command(const std::vector<std::string>& arguments) {
  Arguments app("octavo", "Compiles 8-bit neural networks from ONNX and runs them on a CPU or an NVIDIA GPU.");
  app.footer(kFooter);
  app.version("--version", fmt::format("octavo {} ({})", engine::kVersion, cpu::name_of(cpu::detected_isa())));
  app.require_subcommand();
  struct Entry {
    const char *name, *help;
    Command (*add)(Arguments&);
  };
  const Entry entries[] = {
      {"build", "Compile a model and write an engine file", add_build},
      {"run", "Run a model on pictures or arrays", add_run},
      {"bench", "Measure the time a run takes", add_bench},
      {"profile", "Time each region of the plan; write the files that trtexec writes", add_profile},
      {"explain", "Show what runs: each region with its ONNX nodes, precision, tactic and reason", add_explain},
      {"view", "Write a page that shows the plan as a graph, with times, memory and the ONNX graph", add_view},
      {"check",
       "Compare each region of a model with the reference, bit for bit; or compare two models, or a model with ONNX Runtime",
       add_check},
      {"serve", "Answer requests over HTTP and gRPC (a command of the Python package)", add_serve},
      {"doctor",
       "Find scales, biases and ranges that are probably wrong, and show where each node runs; --system: describe this machine",
       add_doctor},
      {"advise", "Show which Q/DQ pairs to drop, add, move or share, and how much time each change saves", add_advise},
      {"quantize", "Quantize a float model on data: write ranges, a model with Q/DQ pairs, or an engine", add_quantize},
      {"eval", "Compare models, engines and tables on data: accuracy and signal to noise", add_eval},
      {"convert", "Turn a Q/DQ model into a calibration table and a float model, or the other way around", add_convert},
      {"rebuild", "Build engine files of an earlier version again, from the models that they hold", add_rebuild},
      {"cache", "Show, compare, merge, pin and prune timing caches", add_cache}};
  std::vector<std::pair<const Arguments*, Command>> commands;
  for (const Entry& entry : entries) {
    Arguments* sub = app.add_subcommand(entry.name, entry.help);
    sub->footer(kFooter);  // of those that have none
    commands.emplace_back(sub, entry.add(*sub));
  }
  if (!arguments.empty() && !arguments[0].starts_with('-') &&
      std::ranges::none_of(entries, [&](const Entry& e) { return arguments[0] == e.name; })) {
    if (is_model_name(arguments[0])) {
      return print_error(
          {ErrorKind::usage, fmt::format("\"{0}\" is a file, and a command must come first, as in: octavo bench {0}\n"
                                         "  see: octavo --help",
                                         arguments[0])});
    }
    std::set<std::string> names;
    for (const Entry& e : entries) names.insert(e.name);
    return print_error({ErrorKind::usage, fmt::format("\"{}\" is not a command; nearest: {}\n  see: octavo --help", arguments[0],
                                                      fmt::join(nearest(names, arguments[0]), ", "))});
  }
  if (arguments.empty())
    return print_error({ErrorKind::usage, "no command given, such as build, run or explain\n  see: octavo --help"});
  if (const auto found = std::ranges::find_if(arguments, is_bundled_by_mistake); found != arguments.end())
    return print_error(
        {ErrorKind::usage, fmt::format("\"{}\" is not an option of octavo {}{}", *found, arguments[0], kBenchmarkApp)});
  for (const auto& [sub, command] : commands) {
    if (sub->name() != arguments[0]) continue;
    if (const Status given = check_empty_values(*sub, arguments); !given) return print_error(given.error());
  }
  const Arguments::Outcome outcome = app.parse(arguments);
  if (outcome.kind == Arguments::Outcome::Kind::print) {
    std::fputs(outcome.text.c_str(), stdout);
    return finish(outcome.code);
  }
  if (outcome.kind != Arguments::Outcome::Kind::parsed) return print_error({ErrorKind::usage, usage_text(app, outcome)});
  try {
    for (const auto& [sub, command] : commands) {
      if (!sub->parsed()) continue;
      if (const Status sound = check_effects(*sub); !sound) return print_error(sound.error());
      if (const Status apart = check_own_inputs(*sub); !apart) return print_error(apart.error());
      const auto result = command();
      return finish(result ? *result : print_error(result.error()));
    }
  } catch (const std::bad_alloc&) {
    return print_error({ErrorKind::io, "out of memory"});
  } catch (const std::system_error& e) {  // fmt::print: what is behind stdout takes no more
    return print_error({ErrorKind::io, fmt::format("cannot write the output: {}", e.code().message())});
  }
  return 0;
}

/// A subcommand where trtexec's options mean something. Not view, which has a --profile of its own.
bool takes_models(std::string_view command) {
  constexpr std::string_view kCommands[] = {"build", "run", "bench", "profile", "explain", "check", "doctor", "advise"};
  return std::find(std::begin(kCommands), std::end(kCommands), command) != std::end(kCommands);
}

/// One command with trtexec's options among its own.
int run_translated(std::vector<std::string> arguments) {
  if (!arguments.empty() && takes_models(arguments[0])) {
    auto translated = from_trtexec({arguments.begin() + 1, arguments.end()});
    if (!translated) return print_error(translated.error());
    for (const std::string& note : translated->notes) say("note: {}\n", note);
    arguments.resize(1);
    arguments.insert(arguments.end(), translated->arguments.begin(), translated->arguments.end());
  }
  return run_command(arguments);
}

/// A call without a subcommand, as trtexec is called.
bool looks_like_trtexec(const std::vector<std::string>& arguments) {
  return !arguments.empty() && arguments[0] != "--help" && trtexec_option(arguments[0]) != nullptr;
}

}  // namespace

int run_main(int argc, const char* const* argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (!looks_like_trtexec(arguments)) return run_translated(arguments);
  const auto commands = trtexec_commands(arguments);
  if (!commands) return print_error(commands.error());
  int code = 0;
  for (std::size_t i = 0; i < commands->size() && code == 0; ++i) {
    say("octavo {}\n", fmt::join((*commands)[i], " "));  // so that the next call can be this one
    code = run_translated((*commands)[i]);
  }
  return code;
}

}  // namespace octavo::cli
