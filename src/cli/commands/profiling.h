// Times of whole runs and of regions, and the files that trtexec writes: for `profile`, `build` and `bench`.
#pragma once

#include <string>
#include <vector>

#include "cli/inputs/inputs.h"
#include "cli/inputs/model.h"

namespace octavo::cli {

struct ProfileOptions {
  int runs = 50;
  std::string profile, layers, times, metadata, output, verbosity = "detailed";
  bool separate = false, dump = false, dump_layers = false;
  /// Something that needs runs.
  [[nodiscard]] bool runs_wanted() const { return dump || !profile.empty() || !times.empty() || !output.empty(); }
  /// Any of them.
  [[nodiscard]] bool wanted() const { return runs_wanted() || dump_layers || !layers.empty(); }
};
/// --exportProfile, --exportLayerInfo, --exportTimes, --exportOutput, --separateProfileRun, --dumpProfile, --dumpLayerInfo,
/// --profilingVerbosity, --runs; not --exportMetadata, which means another file for `build`.
void add_profile_options(Arguments& app, ProfileOptions& options);

/// The files that the options name can be written. To be asked before a build.
[[nodiscard]] Status check_profile_outputs(const ProfileOptions& options);

/// --exportLayerInfo and --dumpLayerInfo: nothing has to run for them.
[[nodiscard]] Status export_layers(const ProfileOptions& options, const region::Plan& plan);

/// Runs `runs` times whole and `runs` times region by region, on each feed in turn; writes the files that the options name, and
/// prints the table if `table` or --dumpProfile asks for it. No feeds: seeded random inputs. --exportOutput holds the outputs of
/// the first feed. Returns 0, the exit code.
[[nodiscard]] Result<int> run_profile(const ProfileOptions& options, const Loaded& loaded, const std::vector<Feed>& feeds,
                                      bool table);

/// For commands that do something else in the first place: what of all this the options ask for.
[[nodiscard]] Result<int> profile_if_wanted(const ProfileOptions& options, const Loaded& loaded);

}  // namespace octavo::cli
