// octavo rebuild: engine files of an earlier version, built again from the models that they hold.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "api/load.h"
#include "cli/commands/commands.h"
#include "cli/file.h"
#include "cli/inputs/model.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "engine/set.h"
#include "engine/signature.h"
#include "engine/version.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

struct RebuildOptions {
  std::vector<std::string> paths;
  std::string timing_cache, verify, sign;
  bool all = false, dry_run = false, verbose = false;
};

/// The engine files that a path names: itself, or those in the folder and the folders in it, by their first bytes.
Result<std::vector<std::string>> files_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> out;
  fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored) && is_engine_file(at->path().string())) out.push_back(at->path().string());
  }
  if (error) return fail(ErrorKind::io, fmt::format("cannot read the folder \"{}\": {}", path, error.message()));
  std::sort(out.begin(), out.end());
  return out;
}

enum class Did { left, rebuilt };

Result<Did> rebuild_one(const RebuildOptions& o, const std::string& path, const std::string& verify, const std::string& sign) {
  OCTAVO_TRY(const auto file, engine::EngineFile::open(path, verify));
  const std::string was = fmt::format("Octavo {}, file format {}", file->made_by().version(), file->made_by().format);
  if (!o.all) {
    const auto loaded = engine::Engine::load_all(file, api::all_providers(), api::devices());
    if (loaded || !engine::Engine::is_outdated(*file, loaded.error())) {
      if (!loaded) return tl::unexpected<Error>(loaded.error());
      fmt::print("{}: current ({})\n", path, was);
      return Did::left;
    }
  }
  if (o.dry_run) {
    fmt::print("{}: {} ({})\n", path, file->model() ? "would be rebuilt" : "holds no model, build it again from its ONNX file",
               was);
    return Did::left;
  }
  if (file->is_signed() && sign.empty())
    return fail(
        ErrorKind::usage,
        fmt::format("engine \"{}\": it is signed, and what is built now would not be\n  give the key: octavo rebuild --sign "
                    "PRIVATE.pem (--verify PUBLIC.pem accepts files of that key only)",
                    path));
  Progress progress(o.verbose);
  api::LoadRequest request;
  request.looks_only = true;  // written for the GPU that the build named
  request.timing_cache = o.timing_cache;
  request.progress = progress.watcher(path);
  if (file->open_sections()) {
    OCTAVO_TRY(const auto open, api::rebuild_open(file, request));
    OCTAVO_CHECK(open->save(path, {}, sign));
  } else {
    OCTAVO_TRY(const engine::Engines engines, api::rebuild(file, request));
    OCTAVO_CHECK(engine::save_set(path, engines, {}, sign));
  }
  const std::string now = fmt::format("Octavo {}, file format {}", engine::kVersion, engine::kFormat);
  const std::string before = was != now ? was + "; now " : o.all ? "" : "its kernels were those of another build; now ";
  fmt::print("{}: rebuilt ({}{})\n", path, before, now);
  return Did::rebuilt;
}

Result<int> rebuild(const RebuildOptions& o) {
  std::string verify, sign;
  if (!o.verify.empty()) {
    OCTAVO_TRY(verify, engine::read_key(o.verify));
  }
  if (!o.sign.empty()) {
    OCTAVO_TRY(sign, engine::read_key(o.sign));
  }
  std::vector<std::string> files;
  for (const std::string& path : o.paths) {
    OCTAVO_TRY(const auto more, files_of(path));
    if (more.empty()) return fail(ErrorKind::usage, fmt::format("rebuild: the folder \"{}\" holds no engine file", path));
    files.insert(files.end(), more.begin(), more.end());
  }
  int code = 0, rebuilt = 0, left = 0, failed = 0;
  for (const std::string& path : files) {
    const auto did = rebuild_one(o, path, verify, sign);
    if (did) {
      ++(*did == Did::rebuilt ? rebuilt : left);
      continue;
    }
    ++failed;  // the others go on
    say("error: {}\n", did.error().message);
    if (code == 0) code = exit_code(did.error().kind);
  }
  if (files.size() > 1) fmt::print("{} rebuilt, {} left as they are, {} failed\n", rebuilt, left, failed);
  return code;
}

}  // namespace

Command add_rebuild(Arguments& app) {
  auto o = std::make_shared<RebuildOptions>();
  app.add_option("PATH", o->paths, "Engine files, or folders: every engine file in them and in the folders below")
      ->required()
      ->type_name("FILE|DIR");
  app.add_flag("--all", o->all, "Also rebuild files of this version");
  app.add_flag("-n,--dry-run", o->dry_run, "Only print what would be done");
  app.add_option("--timing-cache", o->timing_cache, "As for octavo build")->type_name("FILE");
  app.add_option("--verify", o->verify, "Accept only files signed with this public key")->type_name("PUBLIC.pem");
  app.add_option("--sign", o->sign, "Sign the files that are written; without it, signed files are refused")
      ->type_name("PRIVATE.pem");
  app.add_flag("-v,--verbose", o->verbose, "Print each step to stderr");
  app.footer(
      "An engine file holds the ONNX model and the options that it was built from (unless octavo build --no-model left it out). "
      "rebuild\n"
      "builds each file again on this machine, as octavo build does, and replaces it. If a file fails, it stays unchanged, and "
      "rebuild\n"
      "continues with the others.\n"
      "Examples: octavo rebuild models/\n"
      "          octavo rebuild --dry-run models/*.octavo");
  return [o] { return rebuild(*o); };
}

}  // namespace octavo::cli
