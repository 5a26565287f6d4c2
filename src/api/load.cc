#include "api/load.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "api/device_name.h"
#include "api/open_model.h"
#include "api/session.h"
#include "base/write_file.h"
#include "cuda/device/absent_gpu.h"
#include "engine/part_plan.h"
#include "engine/set.h"
#include "engine/signature.h"
#include "engine/version.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;

/// A folder for the external data of one model, gone with this object.
class Folder {
 public:
  static Result<std::unique_ptr<Folder>> create() {
    std::error_code ignored;
    const fs::path parent = fs::temp_directory_path(ignored);
    std::string path = ((parent.empty() ? fs::path("/tmp") : parent) / "octavo-model-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr)
      return fail(ErrorKind::io,
                  fmt::format("no temporary folder \"{}\" for a model's external data: {}", path, std::strerror(errno)));
    return std::unique_ptr<Folder>(new Folder(std::move(path)));
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// Names are the file's: they must not lead out.
  Status add(const std::string& name, std::span<const std::byte> bytes) const {
    const fs::path relative(name);
    bool inside = !name.empty() && name.find('\0') == std::string::npos && relative.is_relative();
    for (const fs::path& part : relative) inside = inside && part != "..";
    if (!inside || relative.filename().empty())
      return fail(ErrorKind::bad_engine,
                  fmt::format("external data \"{}\" of the model in the engine leads out of its folder", name.c_str()));
    std::error_code error;
    const fs::path full = fs::path(path_) / relative;
    fs::create_directories(full.parent_path(), error);
    return write_file(full.string(), bytes, "external data");
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string built_again(const engine::EngineFile& file) {
  return fmt::format(
      "engine \"{}\" was built by Octavo {} (file format {}) with kernels that this Octavo {} does not have: the "
      "engine is built again from its model at each load; octavo rebuild {} builds it once",
      file.name(), file.made_by().version(), file.made_by().format, engine::kVersion, file.name());
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

engine::Devices devices_for(const LoadRequest& request) {
  return request.looks_only ? devices_elsewhere() : devices(request.device);
}

/// A plan with a device beside the host, or with a region that says to have machine code.
bool has_code(const region::Plan& plan) {
  return plan.devices.size() > 1 ||
         std::any_of(plan.regions.begin(), plan.regions.end(), [](const region::Region& r) { return r.code >= 0; });
}

/// The engines of a file whose GPU kernels are made anew. What is in the file is then data: plans that are verified, and constants. If only one plan of several has
/// code, the others are made in the same way: none is loaded with what the file has of code.
Result<engine::Engines> load_remade(const std::shared_ptr<const engine::EngineFile>& opened, const LoadRequest& request) {
  const engine::EngineFile& file = *opened;
  OCTAVO_TRY(const std::vector<engine::Part> parts, file.parts());
  std::vector<region::Plan> plans;
  for (const engine::Part& part : parts) {
    OCTAVO_TRY(plans.emplace_back(), engine::plan_of(part, file.name()));
  }
  if (std::none_of(plans.begin(), plans.end(), has_code))
    return engine::Engine::load_all(opened, all_providers(request.device), devices_for(request));
  const std::shared_ptr<const engine::ModelSource> model = file.model();
  engine::Engines out;
  for (const engine::Part& part : parts) {
    OCTAVO_TRY(region::Plan plan, engine::plan_with_constants(part, file.name()));
    if (const Status remade = remake_code(plan, request.device); !remade) {
      Error error = remade.error();
      error.message = fmt::format("engine \"{}\", its kernels compiled anew: {}", file.name(), error.message);
      return tl::unexpected<Error>(std::move(error));
    }
    OCTAVO_TRY(auto engine,
               engine::Engine::create(std::move(plan), all_providers(request.device), text_of(part.graph), devices_for(request),
                                      nullptr, {model, text_of(part.build), part.notes(), part.about()}));
    out.push_back(std::move(engine));
  }
  if (const std::string why = engine::why_no_set(out); !why.empty())
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": its plans do not belong together: {}", file.name(), why));
  return out;
}

}  // namespace

engine::Devices devices_elsewhere() {
  static const cuda::GpuFacts kElsewhere{.name = "the GPU that it was built for"};
  return {&cuda::absent_gpu(kElsewhere)};
}

Result<KeptModel> kept_model(const std::shared_ptr<const engine::ModelSource>& source, const std::string& engine) {
  struct Holds {
    engine::ModelBytes model;
    std::unique_ptr<Folder> folder;
  };
  const auto holds = std::make_shared<Holds>();
  OCTAVO_TRY(holds->model, source->read());
  if (!holds->model.files.empty()) {
    OCTAVO_TRY(holds->folder, Folder::create());
    for (const auto& [name, bytes] : holds->model.files) OCTAVO_CHECK(holds->folder->add(name, bytes));
  }
  OCTAVO_TRY(auto session, Session::of(holds->model.model, holds->folder ? holds->folder->path() : std::string(),
                                       fmt::format("the model in \"{}\"", engine)));
  return KeptModel{std::move(session), holds};
}

Result<ReadBuild> options_again(std::string_view build, std::string_view engine, const LoadRequest& request) {
  OCTAVO_TRY(ReadBuild read, read_build(build, engine));
  if (!request.looks_only) read.options.device = device_to_run(read.options.device, request.device);
  return read;
}

Result<std::shared_ptr<const OpenModel>> load_open(const std::shared_ptr<const engine::EngineFile>& file,
                                                   const LoadRequest& request) {
  if (!file->open_sections()) return std::shared_ptr<const OpenModel>();
  LoadRequest as_it_is = request;
  as_it_is.upgrade = false;  // plans that are built again have other extents than those that the file says
  auto engines = load_engines(file, as_it_is);
  if (!engines && engine::Engine::is_outdated(*file, engines.error()) && request.upgrade && file->model() != nullptr) {
    if (request.warn) request.warn(built_again(*file));
    return rebuild_open(file, request);
  }
  if (!engines) return tl::unexpected<Error>(std::move(engines).error());
  OCTAVO_TRY(auto open, OpenModel::of_file(*file, std::move(*engines), all_providers(request.device), request));
  return std::shared_ptr<const OpenModel>(std::move(open));
}

Result<engine::Engines> rebuild(const std::shared_ptr<const engine::EngineFile>& file, const LoadRequest& request) {
  const std::shared_ptr<const engine::ModelSource> source = file->model();
  const std::vector<engine::Part> builds = file->builds();
  if (source == nullptr || builds.empty() || builds.size() > engine::kMostPlans) {
    return fail(ErrorKind::usage,
                fmt::format("engine \"{}\": it does not hold its model, so it cannot be rebuilt\n  build it again from the "
                            "ONNX file (without --no-model, which leaves the model out)",
                            file->name()));
  }
  OCTAVO_TRY(const KeptModel model, kept_model(source, file->name()));
  const std::string name = fmt::format("the model in \"{}\"", file->name());
  engine::Engines out;
  for (const engine::Part& part : builds) {
    OCTAVO_TRY(ReadBuild read, options_again(text_of(part.build), file->name(), request));
    read.options.import.display_name = name;
    read.options.timing.cache = request.timing_cache;
    read.options.progress = request.progress;
    read.options.source = source;
    read.options.notes = part.notes();
    OCTAVO_TRY(Built built, model.session->build(read.options, read.late));
    out.push_back(std::move(built.engine));
  }
  if (const std::string why = engine::why_no_set(out); !why.empty())
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": its plans do not belong together: {}", file->name(), why));
  return out;
}

Result<std::shared_ptr<const engine::EngineFile>> open_engine_file(const std::string& path, const LoadRequest& request) {
  std::string key;
  if (!request.public_key.empty()) {
    OCTAVO_TRY(key, engine::read_key(request.public_key));
  }
  return engine::EngineFile::open(path, key);
}

Result<engine::Engines> load_engines(const std::string& path, const LoadRequest& request) {
  OCTAVO_TRY(const auto file, open_engine_file(path, request));
  return load_engines(file, request);
}

Result<engine::Engines> load_engines(const std::shared_ptr<const engine::EngineFile>& file, const LoadRequest& request) {
  const bool anew = request.rebuild_code && file->made_by().outdated().empty();
  auto all =
      anew ? load_remade(file, request) : engine::Engine::load_all(file, all_providers(request.device), devices_for(request));
  if (all || !engine::Engine::is_outdated(*file, all.error())) return all;
  if (!request.upgrade || file->model() == nullptr) return all;
  if (request.warn) request.warn(built_again(*file));
  return rebuild(file, request);
}

}  // namespace octavo::api
