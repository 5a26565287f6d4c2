// octavo run: pictures and arrays through a model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "api/nonfinite.h"
#include "cli/commands/commands.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cli/inputs/inputs.h"
#include "cli/inputs/late.h"
#include "cli/inputs/model.h"
#include "cli/outputs/hint.h"
#include "cli/outputs/results.h"
#include "cli/print.h"
#include "region/sizes.h"

namespace octavo::cli {
namespace {

struct RunOptions {
  ModelOptions model;
  InputOptions input;
  std::string output, format, labels;
  int top = 5;
  bool top_given = false;
  bool debug_memory = false;
  bool count_nonfinite = false;
};

/// A line a tensor, the first where it begins. To stderr: stdout may be the results.
void say_nonfinite(const std::vector<api::NonFiniteTensor>& found) {
  if (found.empty()) say("no NaN and no infinity in inputs and float tensors\n");
  for (const auto& t : found) {
    say("tensor \"{}\"{}: {} NaN, {} infinite of {} elements\n", t.name,
        t.onnx_nodes.empty() ? " (input)" : fmt::format(" ({})", fmt::join(t.onnx_nodes, ", ")), t.nan, t.infinite, t.elements);
  }
}

void warn_labels(const RunOptions& o, const ResultStyle& style, const region::Plan& plan) {
  const std::int64_t classes = classes_of(plan);
  if (classes == 0 && o.top_given)
    say("warning: --top {} is not used, because the outputs of the model are not scores of classes\n", o.top);
  if (o.labels.empty()) return;
  if (classes == 0) {
    say("warning: --labels \"{}\" is not used, because the outputs of the model are not scores of classes\n", o.labels);
  } else if (classes != static_cast<std::int64_t>(style.labels.size())) {
    say("warning: --labels \"{}\" has {} names, but the model has {} classes, so names may be wrong\n", o.labels,
        style.labels.size(), classes);
  }
}

Status write_items(const RunOptions& o, ResultFormat format, const std::vector<Item>& items, const region::Plan& plan,
                   const ResultStyle& style) {
  std::vector<std::byte> bytes;
  std::string text;
  switch (format) {
    case ResultFormat::text:
      for (const Item& item : items) text += text_of(item, plan, style);
      break;
    case ResultFormat::json: text = json_of(items, plan, style); break;
    case ResultFormat::csv: {
      OCTAVO_TRY(text, csv_of(items, plan, style));
      break;
    }
    case ResultFormat::npy: {
      OCTAVO_TRY(bytes, npy_of(items, plan));
      break;
    }
    case ResultFormat::npz: {
      OCTAVO_TRY(bytes, npz_of(items, plan));
      break;
    }
  }
  const std::string_view all =
      bytes.empty() ? std::string_view(text) : std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!o.output.empty() && o.output != "-") return write_file(o.output, all);
  (void)std::fwrite(all.data(), 1, all.size(), stdout);  // run_main sees what is lost
  return {};
}

Result<int> run(const RunOptions& o) {
  OCTAVO_TRY(const ResultFormat format, result_format(o.format, o.output));
  OCTAVO_CHECK(check_outputs({o.output}));
  if (o.debug_memory && o.count_nonfinite)
    return fail(ErrorKind::usage, "--debug-memory and --count-nonfinite both watch every region: give one of them");
  ResultStyle style{{}, o.top};
  if (!o.labels.empty()) {
    OCTAVO_TRY(style.labels, read_lines(o.labels));
  }
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  OCTAVO_TRY(const auto declared, declared_inputs(o.model));
  OCTAVO_TRY(const auto given, read_inputs(o.input, declared));
  OCTAVO_TRY(const auto loaded, load(o.model, *progress, shapes_of(given, declared, o.model.batch), 1, given.arrays));
  const auto& plan = loaded.engine->plan();
  const std::string stored = stored_recipe(*loaded.engine);
  OCTAVO_TRY(const auto feeds, Feeds::create(given, o.input.recipe, stored, plan));
  if (!given.pictures.empty()) hint_preprocessing(loaded, o.input.recipe, stored, given.picture_input, feeds.recipe());
  warn_labels(o, style, plan);
  const auto begun = std::chrono::steady_clock::now();
  OCTAVO_TRY(const auto context, engine::Context::create(loaded.engine, loaded.threads));

  const bool at_once = format == ResultFormat::text && (o.output.empty() || o.output == "-");
  std::optional<api::NonFiniteCounter> counter;
  if (o.count_nonfinite) counter.emplace(*loaded.engine);
  std::vector<Item> items;
  std::int64_t written = 0;  // with --debug-memory
  std::vector<std::string> faults;
  int code = 0;  // of the first file that could not be read
  std::size_t unreadable = 0;
  const auto left_out = [&](const std::vector<Error>& errors) {
    for (const Error& e : errors) {
      say("error: {}\n", e.message);
      if (unreadable++ == 0) code = exit_code(e.kind);
    }
  };
  left_out(given.unreadable);
  for (std::size_t f = 0; f < feeds.size(); ++f) {
    progress->step(feeds.size() == 1 ? "run" : fmt::format("run {} of {}", f + 1, feeds.size()));
    OCTAVO_TRY(const Feed feed, feeds.at(f));
    left_out(feed.unreadable);
    if (feed.used == 0) continue;
    engine::MemoryReport memory;
    OCTAVO_TRY(auto outputs,
               api::run(*context, feed.tensors, counter ? &counter->observer() : nullptr, o.debug_memory ? &memory : nullptr));
    written += memory.elements;
    for (const engine::MemoryFault& fault : memory.faults) faults.push_back(engine::describe(fault, plan));
    ir::cut_results(outputs, plan.sizes);
    if (f == 0) progress->step(start_text(loaded, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count()));
    for (Item& item : items_of(feed, outputs, plan)) {
      if (at_once) {
        fmt::print("{}", text_of(item, plan, style));
      } else {
        items.push_back(std::move(item));
      }
    }
  }
  progress.reset();
  if (!at_once) OCTAVO_CHECK(write_items(o, format, items, plan, style));
  if (counter) say_nonfinite(counter->found());
  if (unreadable > 0) say("{} file{} could not be read; the others were run\n", unreadable, unreadable == 1 ? "" : "s");
  if (!o.debug_memory) return code;
  say("memory: {} elements of results, each written by its region; {} faults\n", written, faults.size());
  for (const std::string& fault : faults) say("  {}\n", fault);
  if (!faults.empty()) say("  this is a fault of Octavo: please report it with the model\n");
  return faults.empty() ? code : 1;
}

}  // namespace

Command add_run(Arguments& app) {
  auto o = std::make_shared<RunOptions>();
  add_model_options(app, o->model, true);
  add_input_options(app, o->input);
  app.add_option("-o,--output", o->output,
                 "Write the outputs to this file, in the format of its ending (.npz, .npy, .json, .csv or .txt); - for stdout (see "
                 "--format)")
      ->writes("FILE");
  app.add_option("--format", o->format, "Format of the outputs, instead of the file's ending: text, json, csv, npy or npz")
      ->type_name("FORMAT");
  app.add_option("--labels", o->labels, "File with the names of the classes, one on each line")->reads("FILE");
  app.add_option("--top", o->top, "How many classes to print (default 5)")->check(Range{1, 1000})->type_name("K");
  app.add_flag("--debug-memory", o->debug_memory,
               "Run in memory filled with patterns and name each region that leaves a result unwritten or writes outside of its "
               "results; exit code 1 if one does (slow)");
  app.add_flag(
      "--count-nonfinite", o->count_nonfinite,
      "Count NaN and infinities in the inputs and in every float tensor that a layer stores, and say where they begin; slower");
  app.footer(
      "Prints the best classes of a classifier with their scores, and the range of each output of other models. Folders of "
      "pictures, and arrays\n"
      "with more rows than the input, run batch by batch. Output files hold the whole outputs, each with the name of its input.\n"
      "Examples:\n"
      "  octavo run model.onnx --input a.jpg b.jpg --preset torch --labels classes.txt --top 1\n"
      "  octavo run model.octavo --input photos/ --batch 8 --output scores.csv\n"
      "  octavo run model.octavo --input image=x.npy --input mask=y.npy --output out.npz\n"
      "  curl -s https://example.org/a.jpg | octavo run model.octavo --input - --output - --format json");
  const auto* top = app.get_option("--top");
  arrange(app, [o = o.get(), top] {
    o->top_given = top->count() > 0;
    o->input.go_on = true;
    take_model_from(o->input.inputs, o->model);
  });
  not_these(
      app,
      [o = o.get()] {
        const auto format = result_format(o->format, o->output);
        return format && (*format == ResultFormat::npy || *format == ResultFormat::npz);
      },
      {"--top", "--labels"},
      "the results are whole arrays, without names of classes\n  write .txt, .json or .csv, or leave it out");
  return [o] { return run(*o); };
}

}  // namespace octavo::cli
