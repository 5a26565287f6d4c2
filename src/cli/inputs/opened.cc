#include "cli/inputs/opened.h"

#include <chrono>

#include "api/load.h"
#include "cli/inputs/model.h"
#include "cli/print.h"
#include "engine/part_plan.h"
#include "engine/signature.h"

namespace octavo::cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Result<std::shared_ptr<const api::Session>> OpenedFiles::session(const std::string& path) {
  if (const auto known = sessions_.find(path); known != sessions_.end()) return known->second;
  OCTAVO_TRY(auto session, api::Session::open(path));
  return sessions_[path] = std::move(session);
}

Result<std::shared_ptr<const engine::EngineFile>> OpenedFiles::file(const ModelOptions& options) {
  Loaded& loaded = at(options);
  if (loaded.file != nullptr) return loaded.file;
  const auto start = Clock::now();
  std::string key;
  if (!options.verify.empty()) {
    OCTAVO_TRY(key, engine::read_key(options.verify));
  }
  OCTAVO_TRY(loaded.file, engine::EngineFile::open(options.path, key));
  loaded.seconds = since(start);
  return loaded.file;
}

Result<std::vector<region::Plan>> OpenedFiles::plans(const ModelOptions& options) {
  std::vector<region::Plan> out;
  const auto from = [&](const engine::Engines& engines) {
    for (const auto& e : engines) out.push_back(e->plan());
    return out;
  };
  OCTAVO_TRY(const auto opened, file(options));
  if (const auto& ready = at(options).engines; !ready.empty()) return from(ready);
  if (!opened->made_by().outdated().empty()) {
    OCTAVO_TRY(const engine::Engines all, engines(options));
    return from(all);
  }
  OCTAVO_TRY(const auto parts, opened->parts());
  for (const engine::Part& part : parts) {
    OCTAVO_TRY(out.emplace_back(), engine::plan_of(part, opened->name()));
  }
  return out;
}

Result<engine::Engines> OpenedFiles::engines(const ModelOptions& options) {
  OCTAVO_CHECK(make_ready(options));
  return at(options).engines;
}

Result<std::shared_ptr<const api::OpenModel>> OpenedFiles::open(const ModelOptions& options) {
  OCTAVO_TRY(const auto opened, file(options));
  if (!opened->open_sections()) return std::shared_ptr<const api::OpenModel>();
  OCTAVO_CHECK(make_ready(options));
  return at(options).open;
}

Status OpenedFiles::make_ready(const ModelOptions& options) {
  OCTAVO_TRY(const auto opened, file(options));
  Loaded& loaded = at(options);
  if (!loaded.engines.empty()) return {};
  const auto start = Clock::now();
  Progress progress(options.verbose);
  api::LoadRequest request;
  request.device = options.build.device;
  request.looks_only = options.looks_only;
  request.rebuild_code = options.code == "rebuild";
  request.upgrade = !options.no_upgrade;
  request.timing_cache = options.build.timing.cache;
  request.progress = progress.watcher(options.path);
  request.warn = [](const std::string& sentence) { say("warning: {}\n", sentence); };
  OCTAVO_TRY(loaded.open, api::load_open(opened, request));
  if (loaded.open != nullptr) {
    loaded.engines = loaded.open->tuned();
  } else {
    OCTAVO_TRY(loaded.engines, api::load_engines(opened, request));
  }
  loaded.seconds += since(start);
  return {};
}

double OpenedFiles::seconds(const ModelOptions& options) {
  return at(options).seconds;
}

OpenedFiles::Loaded& OpenedFiles::at(const ModelOptions& options) {
  return engines_[{options.path, options.verify, options.code}];
}

}  // namespace octavo::cli
