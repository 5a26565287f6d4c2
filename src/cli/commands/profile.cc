// octavo profile: the time of each region, and the files that trtexec writes.
#include "cli/commands/commands.h"
#include "cli/commands/profiling.h"
#include "cli/effect.h"
#include "cli/inputs/late.h"

namespace octavo::cli {
namespace {

struct ProfileCommandOptions {
  ModelOptions model;
  InputOptions input;
  ProfileOptions profile;
};

Result<int> profile(const ProfileCommandOptions& o) {
  OCTAVO_CHECK(check_profile_outputs(o.profile));
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  std::vector<Feed> feeds;
  Loaded loaded;
  if (o.input.inputs.empty()) {
    OCTAVO_TRY(loaded, load(o.model, *progress));
  } else {
    OCTAVO_TRY(const auto declared, declared_inputs(o.model));
    OCTAVO_TRY(const auto given, read_inputs(o.input, declared));
    OCTAVO_TRY(loaded, load(o.model, *progress, shapes_of(given, declared, o.model.batch), 1, given.arrays));
    OCTAVO_TRY(feeds, make_feeds(given, o.input.recipe, *loaded.engine));
  }
  progress.reset();
  return run_profile(o.profile, loaded, feeds, true);
}

}  // namespace

Command add_profile(Arguments& app) {
  auto o = std::make_shared<ProfileCommandOptions>();
  add_model_options(app, o->model, true);
  add_input_options(app, o->input);
  add_profile_options(app, o->profile);
  app.add_option("--exportMetadata", o->profile.metadata, "Write throughput, latency and device as JSON")->writes("FILE");
  app.footer(
      "Inputs are random unless --input gives data; several samples run in turn.\n"
      "Example: octavo profile model.onnx --exportProfile m.profile.json --exportLayerInfo m.graph.json");
  arrange(app, [o = o.get()] { take_model_from(o->input.inputs, o->model); });
  return [o] { return profile(*o); };
}

}  // namespace octavo::cli
