#include <fmt/format.h>

#include <filesystem>

#include "cli/commands.h"
#include "cli/model.h"
#include "report/explain.h"

namespace octavo::cli {
namespace {

struct Options {
  ModelOptions model;
  std::string output;
};

Result<int> build(const Options& o) {
  Loaded loaded;
  {
    Progress progress(o.model.verbose);
    OCTAVO_TRY(loaded, load(o.model, progress));
    if (!loaded.built)
      return fail(ErrorKind::usage, fmt::format("\"{}\" is an engine already; build takes an ONNX model", o.model.path));
    progress.step(fmt::format("write {}", o.output));
    OCTAVO_CHECK(loaded.engine->save(o.output));
  }
  std::error_code ignored;
  fmt::print("{}: {:.1f} kB, plan {}\n{}", o.output, static_cast<double>(std::filesystem::file_size(o.output, ignored)) / 1e3,
             loaded.engine->plan_hash(), report::summary(loaded.engine->plan()));
  return 0;
}

}  // namespace

Command add_build(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_model_options(app, o->model, false);
  app.add_option("-o,--output,--saveEngine", o->output, "Engine file to write")->required()->type_name("ENGINE");
  app.footer("Example: octavo build model.onnx -o model.octavo --shapes image:1x3x224x224 --threads 4");
  return [o] { return build(*o); };
}

}  // namespace octavo::cli
