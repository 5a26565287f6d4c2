#include "cli/trtexec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace octavo::cli {
namespace {

using enum TrtexecValue;
using Phase = TrtexecPhase;
using enum TrtexecTake;

constexpr auto kOptions = std::to_array<TrtexecOption>({
#define TRTEXEC(name, value, phase, take, becomes_text, text) {name, value, TrtexecPhase::phase, take, becomes_text, text},
#include "cli/trtexec.def"
});

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// "name:type,*:type" -> --precision=name=type...; the rule for everything else goes last, because the first that matches counts.
Result<std::vector<std::string>> precisions(const std::string& value, bool gpu) {
  const std::array<std::pair<std::string_view, std::string_view>, 5> kTypes = {
      {{"fp32", "float32"}, {"fp16", gpu ? "float16" : "float32"}, {"bf16", "bfloat16"}, {"int8", "int8"}, {"float32", "float32"}}};
  std::vector<std::string> rules, last;
  for (const std::string& part : split(value, ',')) {
    const std::size_t colon = part.rfind(':');
    const std::string type = colon == std::string::npos ? "" : part.substr(colon + 1);
    const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.first == type; });
    if (colon == std::string::npos || colon == 0 || known == kTypes.end()) {
      return fail(ErrorKind::usage,
                  fmt::format("--layerPrecisions: \"{}\" is not NAME:TYPE with a type of fp32, fp16, bf16 or int8\n"
                              "  octavo's own spelling: --precision NAME=float32",
                              part));
    }
    const std::string name = part.substr(0, colon);
    (name == "*" ? last : rules).push_back(fmt::format("--precision={}={}", name, known->second));
  }
  rules.insert(rules.end(), last.begin(), last.end());
  return rules;
}

Result<std::vector<std::string>> inputs(const std::string& value) {
  std::vector<std::string> out;
  for (const std::string& part : split(value, ',')) {
    const std::size_t colon = part.find(':');
    if (colon == std::string::npos || colon == 0)
      return fail(ErrorKind::usage, fmt::format("--loadInputs: \"{}\" is not NAME:FILE", part));
    out.push_back(fmt::format("--input={}={}", part.substr(0, colon), part.substr(colon + 1)));
  }
  return out;
}

/// What the meaning of some options depends on: the other ones.
struct Beside {
  bool gpu = false, fp16 = false, bf16 = false, best = false;  ///< --device cuda or --gpu; options that allow types
  bool opens_gpu = false;                                      ///< --device cuda without --gpu
  std::string tf32;                                            ///< the value of --allow, if it has tf32
};

/// The values of one of octavo's own options, "--x=v" or "--x v".
std::vector<std::string_view> values_of(std::string_view name, const std::vector<std::string>& arguments) {
  std::vector<std::string_view> values;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view a = arguments[i];
    if (a == name && i + 1 < arguments.size()) values.push_back(arguments[i + 1]);
    if (a.starts_with(name) && a.substr(name.size()).starts_with('=')) values.push_back(a.substr(name.size() + 1));
  }
  return values;
}

Beside beside_in(const std::vector<std::string>& arguments) {
  const auto given = [&](std::string_view name) { return std::find(arguments.begin(), arguments.end(), name) != arguments.end(); };
  const auto devices = values_of("--device", arguments);
  const bool cuda = std::any_of(devices.begin(), devices.end(), [](std::string_view d) { return d.starts_with("cuda"); });
  const bool by_name = !values_of("--gpu", arguments).empty();
  std::string tf32;
  for (const std::string_view types : values_of("--allow", arguments)) {
    if (types.find("tf32") != std::string_view::npos) tf32 = types;
  }
  return {.gpu = cuda || by_name,
          .fp16 = given("--fp16"),
          .bf16 = given("--bf16"),
          .best = given("--best"),
          .opens_gpu = cuda && !by_name,
          .tf32 = tf32};
}

/// --fp16, --bf16 and --best say together which types are allowed: the first of them, in this order, stands for all.
std::vector<std::string> allowed_types(std::string_view name, const Beside& beside) {
  const bool half = beside.gpu && (beside.fp16 || beside.best), brain = beside.bf16 || beside.best;
  const std::string_view speaks = brain ? (beside.bf16 ? "--bf16" : "--best") : "--fp16";
  if (name != speaks || (!half && !brain)) return {};
  return {fmt::format("--allow=int8,float32{}{}", brain ? ",bfloat16" : "", half ? ",float16" : "")};
}

/// Does another of these options say the types that this one allows?
bool spoken_for(std::string_view name, const Beside& beside) {
  if (name == "--best") return beside.bf16;
  return name == "--fp16" && beside.gpu && (beside.bf16 || beside.best);
}

/// An option that states what holds anyway, unless another one says the opposite.
Result<std::vector<std::string>> holds_unless(std::string_view name, bool contradicted, const std::string& why) {
  if (!contradicted) return std::vector<std::string>();
  return fail(ErrorKind::usage, fmt::format("{} beside {}", name, why));
}

/// Options whose meaning depends on their value, or on other options.
Result<std::vector<std::string>> special_case(const TrtexecOption& option, const std::string& argument, const std::string& value,
                                              const Beside& beside) {
  const auto refused = [&]() -> Result<std::vector<std::string>> {
    return fail(ErrorKind::usage, fmt::format("{} {}: {}", option.name, value, option.text));
  };
  const std::string_view name = option.name;
  if (name == "--fp16" || name == "--bf16" || name == "--best") return allowed_types(name, beside);
  if (name == "--layerPrecisions" || name == "--layerPrecision") return precisions(value, beside.gpu);
  if (name == "--loadInputs") return inputs(value);
  if (name == "--skipInference" || name == "--buildOnly") return std::vector<std::string>();
  if (name == "--noTF32") {
    return holds_unless(name, !beside.tf32.empty(),
                        fmt::format("--allow {}: one forbids tf32, the other allows it\n  leave out one of the two", beside.tf32));
  }
  if (name == "--cpuOnly") {
    return holds_unless(name, beside.opens_gpu,
                        "--device cuda: the build would open a GPU\n  leave out one of the two, or name the GPU with --gpu NAME, "
                        "which builds without opening one");
  }
  if (name == "--device") return is_number(value) ? std::vector<std::string>() : std::vector<std::string>{argument};
  if (name == "--threads") return value.empty() ? std::vector<std::string>() : std::vector<std::string>{argument};
  if (name == "--streams" || name == "--infStreams") return value == "1" ? Result<std::vector<std::string>>() : refused();
  if (name == "--hardwareCompatibilityLevel") return value == "none" ? Result<std::vector<std::string>>() : refused();
  return value == "0" ? Result<std::vector<std::string>>() : refused();  // --idleTime, --sleepTime
}

struct Argument {
  const TrtexecOption* option = nullptr;  ///< null: not trtexec's
  std::string whole, value;
};

/// "--x=v" and "--x v" as one; what follows an option without a value is another argument.
std::vector<Argument> parse(const std::vector<std::string>& arguments) {
  std::vector<Argument> out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    Argument parsed{trtexec_option(a), a, ""};
    const std::size_t equals = a.find('=');
    if (parsed.option != nullptr && parsed.option->take != same) {
      const bool apart = equals == std::string::npos && i + 1 < arguments.size() && !arguments[i + 1].starts_with('-') &&
                         (parsed.option->value == needed || (parsed.option->value == optional && is_number(arguments[i + 1])));
      if (equals != std::string::npos) parsed.value = a.substr(equals + 1);
      if (apart) {
        parsed.value = arguments[++i];
        parsed.whole += "=" + parsed.value;
      }
    }
    out.push_back(std::move(parsed));
  }
  return out;
}

Status translate(const Argument& argument, const Beside& beside, Translated& out) {
  const TrtexecOption* option = argument.option;
  if (option == nullptr || option->take == same) {
    out.arguments.push_back(argument.whole);
    return {};
  }
  if (option->take == refused)
    return fail(ErrorKind::usage,
                fmt::format("{} is an option of trtexec that octavo does not have: {}", option->name, option->text));
  if (option->value == needed && argument.value.empty())
    return fail(ErrorKind::usage, fmt::format("{}: a value is missing", option->name));
  if (option->take == nothing) {
    out.notes.push_back(fmt::format("{} has no effect: {}", option->name, option->text));
    return {};
  }
  std::vector<std::string> made;
  if (option->take == becomes) {
    made.push_back(std::string(option->becomes));
    if (const std::size_t hole = made[0].find("{}"); hole != std::string::npos) made[0].replace(hole, 2, argument.value);
  } else {
    OCTAVO_TRY(made, special_case(*option, argument.whole, argument.value, beside));
  }
  if (made.empty() && !spoken_for(option->name, beside))
    out.notes.push_back(fmt::format("{} has no effect: {}", option->name, option->text));
  const bool changed = !made.empty() && made[0] != argument.whole;
  if (changed) {
    std::string text;
    for (const std::string& m : made) text += " " + m;
    out.notes.push_back(fmt::format("{} is taken as{}", argument.whole, text));
  }
  out.arguments.insert(out.arguments.end(), made.begin(), made.end());
  return {};
}

}  // namespace

std::span<const TrtexecOption> trtexec_options() {
  return kOptions;
}

const TrtexecOption* trtexec_option(std::string_view argument) {
  const std::string_view name = argument.substr(0, argument.find('='));
  const auto found = std::find_if(kOptions.begin(), kOptions.end(), [&](const TrtexecOption& o) { return o.name == name; });
  return found == kOptions.end() ? nullptr : &*found;
}

Result<Translated> from_trtexec(const std::vector<std::string>& arguments) {
  Translated out;
  const std::vector<Argument> parsed = parse(arguments);
  const Beside beside = beside_in(arguments);
  for (const Argument& a : parsed) OCTAVO_CHECK(translate(a, beside, out));
  const auto allowed = values_of("--allow", arguments);
  if (!allowed.empty() && (beside.fp16 || beside.bf16 || beside.best)) {
    out.notes.push_back(fmt::format("--allow {} beside --fp16, --bf16 or --best: every type is allowed that one of them names",
                                    fmt::join(allowed, ",")));
  }
  return out;
}

using Calls = std::vector<std::vector<std::string>>;

Result<std::vector<std::vector<std::string>>> trtexec_commands(const std::vector<std::string>& arguments) {
  std::vector<std::string> build{"build"}, bench{"bench"}, both{"bench"};
  std::string model, engine, saved, opt, measuring;
  std::vector<std::string> shapes;  // with the option, and with a value that stands apart
  bool skip = false, range = false;
  // Values of options that octavo has itself may stand apart: they follow their option into its command.
  const Argument* before = nullptr;
  const auto all = parse(arguments);
  for (const Argument& a : all) {
    const bool value_of_before = a.option == nullptr && before != nullptr && before->option != nullptr &&
                                 before->option->value == needed && before->whole.find('=') == std::string::npos;
    const TrtexecOption* option = value_of_before ? before->option : a.option;
    const std::size_t equals = a.whole.find('=');
    const std::string value = value_of_before ? a.whole : equals == std::string::npos ? "" : a.whole.substr(equals + 1);
    before = &a;
    const std::string_view name = option == nullptr ? std::string_view() : option->name;
    if (name == "--onnx" || name == "--loadEngine" || name == "--saveEngine") {
      if (!value.empty()) (name == "--onnx" ? model : name == "--loadEngine" ? engine : saved) = value;
      continue;
    }
    if (name == "--skipInference" || name == "--buildOnly") {
      skip = true;
      continue;
    }
    if (name == "--optShapes") opt = value;
    range = range || name == "--minShapes" || name == "--maxShapes";
    both.push_back(a.whole);
    if (name == "--shapes") {
      shapes.push_back(a.whole);
      continue;
    }
    const Phase phase = option == nullptr ? Phase::both : option->phase;
    if (phase == Phase::run && option->take != nothing && !value_of_before) measuring = a.whole;
    if (phase != Phase::run) build.push_back(a.whole);
    if (phase != Phase::build) bench.push_back(a.whole);
  }
  if (model.empty() == engine.empty()) {
    return fail(ErrorKind::usage,
                "a call without a subcommand is taken as trtexec's, which needs --onnx=FILE or --loadEngine=FILE\n"
                "  octavo's own: octavo build MODEL.onnx -o ENGINE; octavo bench ENGINE; octavo --help");
  }
  if (!engine.empty()) {
    both.insert(both.begin() + 1, engine);  // options about building as well: bench says which have no effect
    return Calls{both};
  }
  const std::string_view unmeasured = skip ? "--skipInference and --buildOnly measure nothing"
                                           : "--gpu builds for a GPU that need not be in this machine, and measures nothing";
  skip = skip || !values_of("--gpu", arguments).empty();
  if (skip && !measuring.empty())
    return fail(ErrorKind::usage, fmt::format("{} has no effect: {}\n  leave out one of the two", measuring, unmeasured));
  if (skip && saved.empty())
    return fail(ErrorKind::usage, fmt::format("{}: without --saveEngine the build would write no file", unmeasured));
  if (!saved.empty()) {
    build.insert(build.begin() + 1, {model, "-o", saved});
    bench.insert(bench.begin() + 1, saved);
    // Of a file with plans for a whole range, --shapes says which one is measured, as for trtexec.
    if (skip || !range || opt.empty()) build.insert(build.end(), shapes.begin(), shapes.end());
    if (skip) return Calls{build};
    if (range && shapes.empty() && !opt.empty()) shapes.push_back("--shapes=" + opt);
    if (range) bench.insert(bench.end(), shapes.begin(), shapes.end());
    return Calls{build, bench};
  }
  both.insert(both.begin() + 1, model);  // built and measured in one process
  return Calls{both};
}

}  // namespace octavo::cli
