#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>

#include "cli/commands.h"
#include "cli/file.h"
#include "cli/inputs.h"
#include "cli/model.h"

namespace octavo::cli {
namespace {

struct Options {
  ModelOptions model;
  InputOptions input;
  std::string output, labels;
  int top = 5;
};

/// Rows and classes of a classifier's only output: [N,C], or [N,C,1,1].
std::optional<std::pair<std::int64_t, std::int64_t>> classes_of(const region::Plan& plan) {
  if (plan.outputs.size() != 1) return std::nullopt;
  const ir::Shape& shape = plan.outputs[0].type.shape;
  if (shape.size() < 2 || shape[1] < 2 || ir::count(shape) != shape[0] * shape[1]) return std::nullopt;
  return std::pair(shape[0], shape[1]);
}

void print_top(const ir::Tensor& scores, std::int64_t row, std::int64_t classes, int top, const std::vector<std::string>& labels) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(classes));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto score = [&](std::int64_t c) { return scores.at(row * classes + c); };
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return score(a) > score(b); });
  for (int k = 0; k < top && k < classes; ++k) {
    const std::int64_t c = order[static_cast<std::size_t>(k)];
    const std::string label = static_cast<std::size_t>(c) < labels.size() ? " " + labels[static_cast<std::size_t>(c)] : "";
    fmt::print("  {:>9.4f}  {}{}\n", score(c), c, label);
  }
}

/// For outputs that are not a list of classes: type, shape and range.
void print_range(const std::string& name, const ir::Tensor& t) {
  double lo = INFINITY, hi = -INFINITY, sum = 0;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    lo = std::min(lo, t.at(i));
    hi = std::max(hi, t.at(i));
    sum += t.at(i);
  }
  fmt::print("  {} {}: {:.6g} to {:.6g}, mean {:.6g}\n", name, ir::to_string(t.type()), lo, hi,
             sum / static_cast<double>(std::max<std::int64_t>(t.size(), 1)));
}

/// Outputs of several runs, one behind the other in dimension 0.
ir::Tensor stacked(const std::vector<ir::Tensor>& parts) {
  if (parts.size() == 1 || parts[0].shape().empty()) return parts[0];
  ir::Shape shape = parts[0].shape();
  shape[0] *= static_cast<std::int64_t>(parts.size());
  ir::Tensor whole(parts[0].dtype(), shape);
  auto to = whole.mutable_bytes().begin();
  for (const auto& part : parts) to = std::copy(part.bytes().begin(), part.bytes().end(), to);
  return whole;
}

Result<int> run(const Options& o) {
  std::vector<std::string> labels;
  if (!o.labels.empty()) {
    OCTAVO_TRY(labels, read_lines(o.labels));
  }
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  OCTAVO_TRY(const auto declared, declared_inputs(o.model));
  OCTAVO_TRY(const auto given, read_inputs(o.input, declared));
  OCTAVO_TRY(const auto loaded, load(o.model, *progress, shapes_of(given, declared)));
  const auto& plan = loaded.engine->plan();
  OCTAVO_TRY(const auto feeds, make_feeds(given, o.input, plan));
  const auto begun = std::chrono::steady_clock::now();
  OCTAVO_TRY(const auto context, engine::Context::create(loaded.engine, loaded.threads));

  std::vector<std::vector<ir::Tensor>> results;
  for (std::size_t f = 0; f < feeds.size(); ++f) {
    progress->step(feeds.size() == 1 ? "run" : fmt::format("run {} of {}", f + 1, feeds.size()));
    OCTAVO_TRY(results.emplace_back(), api::run(*context, feeds[f].tensors));
    if (f == 0) progress->step(start_text(loaded, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count()));
  }
  progress.reset();
  if (!o.output.empty()) {
    Arrays arrays;
    for (std::size_t j = 0; j < plan.outputs.size(); ++j) {
      std::vector<ir::Tensor> parts;
      for (const auto& outputs : results) parts.push_back(outputs[j]);
      arrays.insert_or_assign(plan.outputs[j].name, stacked(parts));
    }
    OCTAVO_TRY(const auto bytes, format_npz(arrays));
    OCTAVO_CHECK(write_file(o.output, bytes));
    return 0;
  }
  for (std::size_t f = 0; f < feeds.size(); ++f) {
    const auto classes = classes_of(plan);
    if (!classes) {
      if (!feeds[f].name.empty()) fmt::print("{}\n", feeds[f].name);
      for (std::size_t j = 0; j < plan.outputs.size(); ++j) print_range(plan.outputs[j].name, results[f][j]);
      continue;
    }
    for (std::int64_t row = 0; row < classes->first; ++row) {
      std::string which = feeds[f].name;
      if (classes->first > 1) which += fmt::format("{}row {}", which.empty() ? "" : ", ", row);
      if (!which.empty()) fmt::print("{}{}", which, o.top == 1 ? "" : "\n");
      print_top(results[f][0], row, classes->second, o.top, labels);
    }
  }
  return 0;
}

}  // namespace

Command add_run(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_model_options(app, o->model, true);
  add_input_options(app, o->input);
  app.add_option("-o,--output", o->output, "Write the outputs to this .npz file instead of printing them")->type_name("FILE");
  app.add_option("--labels", o->labels, "Names of the classes, one a line")->type_name("FILE");
  app.add_option("--top", o->top, "How many classes to print (default 5)")->check(CLI::Range(1, 1000))->type_name("K");
  app.footer(
      "A classifier's best classes are printed with their scores; of other models, the range of each output. Several pictures run "
      "one after\n"
      "the other; an array that is k times as long as the input in dimension 0 runs in k parts.\n"
      "Examples:\n"
      "  octavo run model.onnx --input a.jpg --input b.jpg --preset torch --labels classes.txt --top 1\n"
      "  octavo run model.octavo --input image=x.npy --input mask=y.npy --output out.npz");
  return [o] { return run(*o); };
}

}  // namespace octavo::cli
