// The options that all subcommands with a model share, and when they have an effect.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>

#include "api/device_name.h"
#include "cli/effect.h"
#include "cli/inputs/model.h"
#include "cli/inputs/shape_sets.h"
#include "cli/inputs/sources.h"
#include "cpu/cap.h"
#include "engine/source.h"
#include "plan/candidates/registry.h"
#include "plan/effort.h"

namespace octavo::cli {
namespace {

/// The files that the options apply to, as far as they are named.
std::vector<std::string> files_of(const ModelOptions& o) {
  std::vector<std::string> out = o.others ? o.others() : std::vector<std::string>();
  out.push_back(o.path);
  std::erase(out, "");
  return out;
}

/// A plan that `octavo explain --json` printed. Pipes are not looked into.
bool is_plan_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  char first = 0;
  std::ifstream(path) >> first;
  return first == '{';
}

/// Of an option that says how a model is built: why there is none to build.
std::string without_model(const ModelOptions& o, const Option& option, const std::string& given) {
  const std::vector<std::string> files = files_of(o);
  if (files.empty()) return "";  // the command says what is missing
  std::string plan;
  for (const std::string& file : files) {
    if (is_plan_file(file)) {
      plan = file;
      continue;
    }
    if (!is_engine_file(file)) return "";
    if (option.is("timing-cache")) {  // an engine that has to be built again reads it
      const auto opened = engine::EngineFile::open(file);
      if (opened && !(*opened)->made_by().outdated().empty()) return "";
    }
  }
  if (plan == o.path)
    return fmt::format("it applies to builds, and \"{}\" is a plan\n  give the ONNX model, or leave it out", plan);
  if (option.is("optShapes"))
    return fmt::format("it applies to builds, and \"{}\" is an engine, which is already built\n  the shapes of a run: --shapes {}",
                       o.path, fmt::join(option.results(), " "));
  return fmt::format(
      "it applies to builds, and \"{0}\" is an engine, which is already built\n  build it again: octavo build MODEL.onnx -o {0} "
      "{1}",
      o.path, given);
}

/// Of an option about engine files: why there is none.
std::string without_engine(const ModelOptions& o) {
  const std::vector<std::string> files = files_of(o);
  std::error_code ignored;
  for (const std::string& file : files) {
    if (is_engine_file(file) || !std::filesystem::is_regular_file(file, ignored)) return "";
  }
  return files.empty() ? "" : fmt::format("it applies to engine files, and \"{}\" is none\n  leave it out", o.path);
}

/// --device: an engine runs where it was built for.
std::string other_device(const ModelOptions& o, const std::string& given) {
  if (files_of(o) != std::vector<std::string>{o.path} || !is_engine_file(o.path)) return "";
  if (!o.build.cpu.empty() && !cpu::set_cap(o.build.cpu)) return "";  // the cap on instructions holds for what is loaded
  const auto plans = o.opened->plans(o);
  if (!plans) return "";  // the command says why
  const std::string on = api::device_of(plans->front());
  if (api::kind_of_device(o.build.device) == on) return "";
  return fmt::format("\"{0}\" is an engine that was built for {1}\n  build one: octavo build MODEL.onnx -o {0} {2}", o.path, on,
                     given);
}

}  // namespace

void add_model_options(Arguments& app, ModelOptions& o, bool engines) {
  const auto of_build = [&](Option* option) {
    o.of_build.push_back(option);
    if (engines) has_effect(app, option, [&o, option](const std::string& given) { return without_model(o, *option, given); });
  };
  const auto of_file = [&](Option* option) { has_effect(app, option, [&o](const std::string&) { return without_engine(o); }); };
  auto* model = app.add_option(engines ? "MODEL,--onnx,--loadEngine" : "MODEL,--onnx", o.path,
                               engines ? "ONNX model, or engine file" : "ONNX model");
  model->type_name("FILE")->use(FileUse::read);
  model->transform([](std::string& path) {  // a model may be read again when its engine is saved, an engine is mapped
    const Status kept = spool(path);
    return kept ? std::string() : kept.error().message;
  });
  app.add_option("--shapes", o.shapes,
                 "Shapes of inputs with open dimensions, for example image:1x3x224x224,mask:1x10. build takes the option several "
                 "times and makes one engine file "
                 "for all shapes")
      ->allow_extra_args(false)
      ->type_name("SHAPES");
  app.add_option("--batch", o.batch,
                 "Batch size, if the model leaves it open (default 1); run fills it with pictures or rows of arrays")
      ->check(Range{std::int64_t{1}, std::int64_t{65536}})
      ->type_name("N");
  app.add_option("--values", o.values,
                 "Values of an input that decides the shapes of tensors, for example k=3 or sizes=1,3,8,8; repeat for other "
                 "inputs. build also takes several values "
                 "of one input and makes one engine file for all")
      ->allow_extra_args(false)
      ->type_name("NAME=NUMBERS");
  of_build(
      app.add_option("--max-elements", o.max_elements,
                     "The upper bound of a size that the data decide, for example boxes=100; repeat for others. NAME is a tensor "
                     "with such a dimension, a tensor whose numbers are sizes, or a Loop, of which it bounds the steps. A run "
                     "that needs more is an error (docs/onnx.md)")
          ->allow_extra_args(false)
          ->type_name("NAME=N"));
  Option* opt =
      app.add_option("--optShapes", o.opt_shapes, "Like --shapes; with --minShapes and --maxShapes: the shapes to build first")
          ->type_name("SHAPES");
  of_build(opt);
  has_effect(app, opt, [&o](const std::string&) {
    return o.shapes.empty() || !o.min_shapes.empty() || !o.max_shapes.empty()
               ? std::string()
               : "--shapes says the shapes already, and there is no range (--minShapes, --maxShapes)\n  leave out one of the two";
  });
  of_build(
      app.add_option("--minShapes", o.min_shapes,
                     "The smallest shapes that may occur, with --optShapes and --maxShapes; smaller ones are refused. build makes "
                     "one engine file for every shape between, tuned for --optShapes (and every --shapes, if they are given too)")
          ->type_name("SHAPES"));
  of_build(app.add_option("--maxShapes", o.max_shapes, "The largest shapes that may occur; see --minShapes")->type_name("SHAPES"));
  app.add_option("--threads", o.build.plan.threads, "Number of threads to plan for and to run with (default: all cores)")
      ->check(Range{0, 1024})
      ->type_name("N");
  auto* device =
      app.add_option(
             "--device", o.build.device,
             "cpu, cuda (cuda:N is GPU number N), cuda,cpu (regions that the GPU has no kernel for run on the CPU), or reference, "
             "the slow evaluator that defines the results")
          ->type_name("NAME");
  app.add_option(
         "--cpu", o.build.cpu,
         fmt::format("Use at most these vector instructions, so that the engine also loads on processors that lack newer ones: {}",
                     cpu::known_caps()))
      ->type_name("LEVEL");
  of_build(app.add_option(
                  "--disable", o.build.plan.disabled,
                  fmt::format("Rewrite rules to switch off (docs/rules.md lists their names), and choices of the planner to leave "
                              "at their default: {}; round-to-scale-type: quotients by a float16 scale stay float32, as in ONNX "
                              "Runtime",
                              fmt::join(plan::choice_names(), ", ")))
               ->delimiter(',')
               ->allow_extra_args(false)
               ->type_name("RULE"));
  of_build(app.add_option("--force", o.build.plan.forced,
                          fmt::format("Choices for which the planner takes the alternative to the default where possible, even "
                                      "if it is slower: {} (docs/rules.md)",
                                      fmt::join(plan::forceable_choices(), ", ")))
               ->delimiter(',')
               ->allow_extra_args(false)
               ->type_name("CHOICE"));
  of_build(app.add_option("--effort,--builderOptimizationLevel", o.build.plan.effort,
                          fmt::format("Effort to find the fastest plan. {} (docs/planner.md)", plan::describe_efforts()))
               ->check(Range{0, plan::kMostEffort})
               ->type_name(fmt::format("0..{}", plan::kMostEffort)));
  of_build(app.add_option("--timing-cache,--timingCacheFile", o.build.timing.cache,
                          "File that keeps measured times between builds (docs/timing-cache.md; default: octavo/timing.txt in "
                          "$XDG_CACHE_HOME or ~/.cache); none: keep no "
                          "times")
               ->updates("FILE"));
  of_build(
      app.add_flag("--strict-timing", o.build.timing.strict, "Fail if the timing cache lacks a time, instead of measuring it"));
  of_build(app.add_option("--calibration,--calib", o.calibration,
                          "Ranges of the tensors of a float model: a TensorRT calibration table, or JSON (docs/tables.md)")
               ->reads("FILE"));
  of_build(app.add_option_function<std::string>(
                  "--qdq", [&o](const std::string& qdq) { o.build.plan.permit_pairs = qdq == "permit"; },
                  "Meaning of the model's Q/DQ pairs. demand (default): every pair rounds at its place. permit: pairs on "
                  "activations may be left out if that makes the model faster; results change (docs/implicit.md)")
               ->check(OneOf({"demand", "permit"}))
               ->type_name("demand|permit"));
  of_build(app.add_option("--precision,--layerPrecisions", o.precision,
                          "Types of layers, by a pattern of ONNX node or tensor names; the first match counts, for example "
                          "conv1=float32,*head*=int8")
               ->delimiter(',')
               ->allow_extra_args(false)
               ->type_name("PATTERN=TYPE"));
  of_build(app.add_option("--bind", o.bindings, "Type and layout of an input or output: NAME=uint8:hwc (docs/bindings.md)")
               ->delimiter(',')
               ->allow_extra_args(false)
               ->type_name("NAME=FORMAT"));
  of_build(
      app.add_option("--inputIOFormats", o.input_formats, "Type and layout of all inputs, in order, for example int8:hwc,fp16:chw")
          ->type_name("FORMATS"));
  of_build(app.add_option("--outputIOFormats", o.output_formats, "Type and layout of all outputs, in order")->type_name("FORMATS"));
  if (engines) {
    of_file(app.add_option("--verify", o.verify,
                           "Load an engine file only if it is signed with this public Ed25519 key (octavo build --sign signs)")
                ->reads("PUBLIC.pem"));
    of_file(app.add_option("--code", o.code,
                           "file (default): run the machine code in an engine file for a GPU; rebuild: do not use it, and compile "
                           "the kernels again from the plan (docs/hostile.md)")
                ->check(OneOf({"file", "rebuild"}))
                ->type_name("file|rebuild"));
    of_file(app.add_flag("--no-upgrade", o.no_upgrade,
                         "Refuse an engine file of an earlier version, which is otherwise built again from the model it holds"));
    has_effect(app, device, [&o](const std::string& given) { return other_device(o, given); });
  }
  of_build(
      app.add_option(
             "--max-error", o.build.plan.max_error,
             "Keep layers in float32 until no output changes by more than this part of its largest magnitude, for example 0.02 "
             "(estimated on random inputs; "
             "slow)")
          ->check(Range{0.0, 1e9})
          ->type_name("X"));
  of_build(app.add_option("--allow", o.allow,
                          "Types that layers without Q/DQ pairs may compute in (default: int8,float32; others: bfloat16, and "
                          "float16 and tf32 on a GPU). Without float32, a layer that can have none of them is an error; norms, "
                          "softmax and element-wise operators compute in float32 all the same")
               ->delimiter(',')
               ->allow_extra_args(false)
               ->type_name("TYPE"));
  app.add_flag("-v,--verbose", o.verbose, "Print each step to stderr, and which rewrite rules applied or were refused");
}

}  // namespace octavo::cli
