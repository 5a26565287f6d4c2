#include "cli/commands/roundings.h"

#include <fmt/format.h>

#include "api/pipeline.h"
#include "cli/file.h"
#include "plan/advice/price_roundings.h"
#include "report/roundings.h"

namespace octavo::cli {

Result<int> explain_roundings(const ModelOptions& o, bool json, const BuildWithout& without) {
  OCTAVO_CHECK(check_outputs({without.costly, without.all}));
  std::optional<Progress> progress(std::in_place, o.verbose);
  OCTAVO_TRY(const Declared declared, declared_inputs(o));
  if (declared.is_engine) {
    return fail(ErrorKind::usage, fmt::format("--roundings: \"{}\" is an engine, but the times without a rounding need a new plan\n"
                                              "  give the ONNX model that it was built from",
                                              o.path));
  }
  OCTAVO_TRY(const api::PipelineOptions build, pipeline_options(o));
  OCTAVO_CHECK(api::check_options(build));
  OCTAVO_TRY(const auto session, session_of(o));
  OCTAVO_TRY(const auto imported, session->imported(build.import));
  const onnx::Model& model = *imported;
  OCTAVO_TRY(const auto providers, api::providers(build.device));
  plan::PlanOptions options = api::planner_options(build, model);
  api::Measuring measuring;
  const TaskScope task(progress->watcher(o.path));
  OCTAVO_CHECK(measuring.begin(build, providers, options));
  const bool measured = options.costs != nullptr;
  progress->step("leave out every rounding");
  OCTAVO_TRY(auto roundings, plan::price_roundings(model.graph, providers, options));
  OCTAVO_CHECK(measuring.keep(build));
  if (!without.costly.empty() && roundings.costly == 0) {
    return fail(
        ErrorKind::usage,
        fmt::format(
            "--build-without {}: none of the {} roundings that the placement of Q/DQ demands costs time\n"
            "  the engine of `octavo build` is already the one without costly roundings; --build-without-all leaves out the others "
            "too",
            without.costly, roundings.each.size()));
  }
  if (!without.all.empty() && roundings.each.empty()) {
    return fail(
        ErrorKind::usage,
        fmt::format(
            "--build-without-all {}: there are no roundings inside regions, and no tensors stored in float32 as well as in 8 bits\n"
            "  the engine of `octavo build` is already the one without any",
            without.all));
  }
  const auto make = [&](const std::string& file, ir::Graph& graph) -> Status {
    if (file.empty()) return {};
    progress->step(fmt::format("build {}", file));
    OCTAVO_TRY(const api::Built built, api::build_graph(std::move(graph), build));
    return built.engine->save(file);
  };
  OCTAVO_CHECK(make(without.costly, roundings.without_costly.graph));
  OCTAVO_CHECK(make(without.all, roundings.all.graph));
  progress.reset();
  fmt::print("{}", json ? report::to_json(roundings, measured) : report::text(roundings, measured));
  return 0;
}

Result<std::string> roundings_summary(const Loaded& loaded, const ModelOptions& options) {
  if (!loaded.built || !options.calibration.empty()) return std::string();
  const plan::PlanOptions plan = api::planner_options(options.build, loaded.built->model);
  OCTAVO_TRY(const auto found, plan::roundings_of(loaded.built->model.graph, plan));
  return report::summary(found);
}

}  // namespace octavo::cli
