#include "api/session.h"

#include <fmt/format.h>

#include <set>

#include "api/finish_build.h"
#include "api/model_source.h"
#include "base/build_work.h"
#include "base/nearest.h"
#include "onnx/edit/layers.h"
#include "onnx/import/external_files.h"
#include "plan/plan.h"

namespace octavo::api {
namespace {

/// What is switched off by name before there is a graph.
onnx::ImportOptions import_options(const PipelineOptions& options) {
  onnx::ImportOptions out = options.import;
  if (options.plan.disabled.contains("round-to-scale-type")) out.round_to_scale_type = false;
  return out;
}

}  // namespace

Result<std::shared_ptr<const Session>> Session::open(const std::string& path, const std::string& name) {
  const BuildTimer timer(&BuildWork::read);
  auto file = ModelFile::open(path);  // before it is read; what cannot be opened, the parser says better
  OCTAVO_TRY(onnx::Parsed parsed, onnx::Parsed::file(path, name));
  std::shared_ptr<Session> out(new Session(std::move(parsed)));
  if (file) {
    out->source_ = file_source(std::move(*file), onnx::external_files(out->parsed_));
  } else {
    out->source_ = tl::unexpected<Error>(std::move(file).error());
  }
  return out;
}

Result<std::shared_ptr<const Session>> Session::of(const std::shared_ptr<const std::vector<std::byte>>& bytes,
                                                   const std::string& folder, const std::string& name) {
  OCTAVO_TRY(onnx::Parsed parsed, onnx::Parsed::bytes(*bytes, folder, name));
  std::shared_ptr<Session> out(new Session(std::move(parsed)));
  out->source_ = memory_source(bytes, folder, onnx::external_files(out->parsed_));
  return out;
}

Result<std::shared_ptr<const Session>> Session::of(std::span<const std::byte> bytes, const std::string& folder,
                                                   const std::string& name) {
  OCTAVO_TRY(onnx::Parsed parsed, onnx::Parsed::bytes(bytes, folder, name));
  return std::shared_ptr<const Session>(new Session(std::move(parsed)));
}

Result<std::shared_ptr<const Session>> Session::made(onnx::Parsed parsed) {
  OCTAVO_TRY(auto bytes, onnx::model_bytes(parsed));
  std::shared_ptr<Session> out(new Session(std::move(parsed)));
  out->source_ = memory_source(std::make_shared<const std::vector<std::byte>>(std::move(bytes)), out->parsed_.folder(),
                               onnx::external_files(out->parsed_));
  return out;
}

std::shared_ptr<const onnx::Model> Session::kept(const onnx::ImportOptions& options) const {
  const std::lock_guard lock(mutex_);
  return last_ && last_->first == options ? last_->second : nullptr;
}

Result<std::shared_ptr<const onnx::Model>> Session::imported(const onnx::ImportOptions& options) const {
  if (auto known = kept(options)) return known;
  OCTAVO_TRY(onnx::Model model, onnx::import_model(parsed_, options));
  auto out = std::make_shared<const onnx::Model>(std::move(model));
  const std::lock_guard lock(mutex_);
  last_ = {options, out};
  return out;
}

Status Session::check_ranges(const PipelineOptions& options) const {
  if (!options.ranges_by_hand) return {};
  const std::vector<std::string> list = tensor_names();
  const std::set<std::string> names(list.begin(), list.end());
  for (const auto& [tensor, range] : options.plan.ranges) {
    if (!names.contains(tensor))
      return fail(ErrorKind::usage,
                  fmt::format("calibration: the model has no tensor \"{}\"{}", tensor, nearest_text(names, tensor)));
  }
  return {};
}

Result<Built> Session::build(const PipelineOptions& options, onnx::LateValues& late) const {
  OCTAVO_CHECK(check_options(options));
  OCTAVO_CHECK(check_ranges(options));
  const TaskScope task(options.progress);
  OCTAVO_CHECK(begin_step("import"));
  const onnx::ImportOptions import = import_options(options);
  onnx::Model model;
  {
    const BuildTimer timer(&BuildWork::read);
    const auto known = late.given.empty() ? kept(import) : nullptr;
    OCTAVO_TRY(model, known ? Result<onnx::Model>(*known) : onnx::import_model(parsed_, import, late));
  }
  PipelineOptions with = options;
  if (with.keep_model && with.source == nullptr && source_) {
    OCTAVO_TRY(with.source, *source_);
  }
  return finish_build(std::move(model), with, late);
}

Result<region::Plan> Session::outline(const PipelineOptions& options) const {
  onnx::LateValues none;
  OCTAVO_TRY(const onnx::Model model, onnx::import_model(parsed_, import_options(options), none));
  OCTAVO_TRY(const auto usable, providers(options.device));
  return plan::outline(model.graph, usable, planner_options(options, model));
}

}  // namespace octavo::api
