// octavo rebuild: engine files of an earlier version, built again from the models that they hold.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "api/load.h"
#include "cli/commands/commands.h"
#include "cli/file.h"
#include "cli/inputs/model.h"
#include "cli/inputs/sign_option.h"
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
  bool all = false, dry_run = false, verbose = false, sign_unsigned = false;
};

/// PEM texts, empty where there is none.
struct Keys {
  std::string verify, sign;
  std::string own;  ///< the public half of `sign`
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

/// A file that may be built again, and signed where there is a key for it: with --sign alone, the owner of the key has signed it before. What
/// is signed says that its owner vouches for it, and a file that anybody may have put there is not that.
Result<std::shared_ptr<const engine::EngineFile>> open_trusted(const RebuildOptions& o, const std::string& path, const Keys& keys) {
  if (!keys.verify.empty() || keys.own.empty()) return engine::EngineFile::open(path, keys.verify);
  auto signed_by_us = engine::EngineFile::open(path, keys.own);
  if (signed_by_us || signed_by_us.error().kind != ErrorKind::bad_engine) return signed_by_us;
  OCTAVO_TRY(auto file, engine::EngineFile::open(path));
  if (file->is_signed())
    return fail(ErrorKind::bad_engine,
                fmt::format("{}\n  if another key signed it on purpose: octavo rebuild --verify OLD_PUBLIC.pem "
                            "--sign {}",
                            signed_by_us.error().message, o.sign));
  if (o.sign_unsigned) return file;
  return fail(
      ErrorKind::bad_engine,
      fmt::format("engine \"{}\": it is not signed, and --sign alone signs only files that its key signed before\n  to sign it "
                  "all the same, whoever wrote it: octavo rebuild --sign {} --sign-unsigned",
                  path, o.sign));
}

Result<Did> rebuild_one(const RebuildOptions& o, const std::string& path, const Keys& keys) {
  OCTAVO_TRY(const auto file, open_trusted(o, path, keys));
  const std::string was = fmt::format("Octavo {}, file format {}", file->made_by().version(), file->made_by().format);
  if (!o.all) {
    const auto loaded = engine::Engine::load_all(file, api::all_providers(), api::devices_elsewhere());
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
  if (file->is_signed() && keys.sign.empty())
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
    OCTAVO_CHECK(open->save(path, {}, keys.sign));
  } else {
    OCTAVO_TRY(const engine::Engines engines, api::rebuild(file, request));
    OCTAVO_CHECK(engine::save_set(path, engines, {}, keys.sign));
  }
  const std::string now = fmt::format("Octavo {}, file format {}", engine::kVersion, engine::kFormat);
  const std::string before = was != now ? was + "; now " : o.all ? "" : "its kernels were those of another build; now ";
  fmt::print("{}: rebuilt ({}{})\n", path, before, now);
  return Did::rebuilt;
}

Result<int> rebuild(const RebuildOptions& o) {
  Keys keys;
  if (!o.verify.empty()) {
    OCTAVO_TRY(keys.verify, engine::read_key(o.verify));
  }
  OCTAVO_TRY(keys.sign, signing_key(o.sign));
  if (!keys.sign.empty()) {
    OCTAVO_TRY(keys.own, engine::public_half(keys.sign));
  }
  std::vector<std::string> files;
  for (const std::string& path : o.paths) {
    OCTAVO_TRY(const auto more, files_of(path));
    if (more.empty()) return fail(ErrorKind::usage, fmt::format("rebuild: the folder \"{}\" holds no engine file", path));
    files.insert(files.end(), more.begin(), more.end());
  }
  int code = 0, rebuilt = 0, left = 0, failed = 0;
  for (const std::string& path : files) {
    const auto did = rebuild_one(o, path, keys);
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
      ->updates("FILE|DIR");
  app.add_flag("--all", o->all, "Also rebuild files of this version");
  app.add_flag("-n,--dry-run", o->dry_run, "Only print what would be done");
  app.add_option("--timing-cache", o->timing_cache, "As for octavo build")->updates("FILE");
  auto* verify = app.add_option("--verify", o->verify, "Accept only files signed with this public key")->reads("PUBLIC.pem");
  auto* sign =
      app.add_option("--sign", o->sign,
                     "Sign the files that are written; without it, signed files are refused. Only files that this key signed "
                     "before are accepted, or, with --verify, those of that key")
          ->reads("PRIVATE.pem");
  app.add_flag("--sign-unsigned", o->sign_unsigned,
               "With --sign: also accept files without a signature, and sign them, whoever wrote them")
      ->needs(sign)
      ->excludes(verify);
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
