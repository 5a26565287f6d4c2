#include "engine/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/set.h"
#include "engine/signature.h"

namespace octavo::engine {
namespace {

using nlohmann::json;

bool is_model(const Section& s) {
  return s.name == section::kModel || s.name == section::kModelFiles || s.name == section::kModelFile;
}

/// The model in an engine file.
class Kept final : public ModelSource {
 public:
  explicit Kept(std::shared_ptr<const EngineFile> file) : file_(std::move(file)) {}

  Result<ModelBytes> read() const override {
    const Container& c = file_->container();
    const auto bad = [&](const std::string& fact) {
      return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": {}", file_->name(), fact));
    };
    ModelBytes out;
    out.holds = {file_};
    json names = json::array();
    std::map<std::uint32_t, std::span<const std::byte>> files;
    for (std::size_t i = 0; i < c.sections.size(); ++i) {
      const Section& s = c.sections[i];
      if (!is_model(s)) continue;
      OCTAVO_CHECK(check_section(c, i, file_->name()));
      if (s.name == section::kModel) out.model = s.bytes;
      if (s.name == section::kModelFiles) names = json::parse(s.bytes.begin(), s.bytes.end(), nullptr, /*allow_exceptions=*/false);
      if (s.name == section::kModelFile) files[s.id] = s.bytes;
    }
    if (!names.is_array() || names.size() != files.size())
      return bad(fmt::format("it holds {} external data files of its model, and does not name as many", files.size()));
    std::uint32_t id = 0;
    for (const json& name : names) {
      const auto found = files.find(id++);
      if (!name.is_string() || found == files.end())
        return bad("the external data files of its model are not numbered from 0 and named");
      out.files.emplace_back(name.get<std::string>(), found->second);
    }
    return out;
  }

 private:
  std::shared_ptr<const EngineFile> file_;
};

}  // namespace

Notes Part::notes() const {
  Notes out;
  const auto read = json::parse(summary.begin(), summary.end(), nullptr, /*allow_exceptions=*/false);
  if (!read.is_object() || !read.contains("notes") || !read["notes"].is_object()) return out;
  for (const auto& [key, note] : read["notes"].items()) {
    if (note.is_string()) out[key] = note.get<std::string>();
  }
  return out;
}

std::string Part::about() const {
  const auto read = json::parse(summary.begin(), summary.end(), nullptr, /*allow_exceptions=*/false);
  return read.is_object() && read.contains("model") && read["model"].is_object() ? read["model"].dump() : std::string();
}

Result<std::shared_ptr<const EngineFile>> EngineFile::open(const std::string& path, const std::string& public_key) {
  std::shared_ptr<EngineFile> e(new EngineFile);
  e->name_ = path;
  if (public_key.empty()) {
    OCTAVO_TRY(e->file_, MappedFile::open(path));
  } else {
    OCTAVO_TRY(e->file_, MappedFile::copy(path));
    OCTAVO_CHECK(verify_signature(e->file_->bytes(), public_key, path));
  }
  OCTAVO_TRY(e->container_, read_container(e->file_->bytes(), path));
  return e;
}

std::shared_ptr<const ModelSource> EngineFile::model() const {
  if (std::ranges::none_of(container_.sections, [](const Section& s) { return s.name == section::kModel; })) return nullptr;
  return std::make_shared<Kept>(shared_from_this());
}

std::size_t EngineFile::model_bytes() const {
  std::size_t bytes = 0;
  for (const Section& s : container_.sections) bytes += is_model(s) ? s.bytes.size() : 0;
  return bytes;
}

Result<std::vector<Part>> EngineFile::parts() const {
  return parts_of(container_.sections, name_);
}

std::optional<OpenSections> EngineFile::open_sections() const {
  std::optional<OpenSections> out;
  for (const Section& s : container_.sections) {
    if (s.name != section::kOpen && s.name != section::kOpenData) continue;
    if (!out) out.emplace();
    if (s.name == section::kOpen) {
      out->text = s.bytes;
    } else {
      out->data[s.id] = s.bytes;
    }
  }
  return out;
}

std::vector<Part> EngineFile::builds() const {
  std::map<std::uint32_t, Part> by_id;
  for (const Section& s : container_.sections) {
    if (s.name == section::kBuild) by_id[s.id].build = s.bytes;
    if (s.name == section::kSummary) by_id[s.id].summary = s.bytes;
  }
  std::vector<Part> out;
  for (const auto& [id, part] : by_id) {
    if (part.build.empty()) return {};
    out.push_back(part);
  }
  return out;
}

void add_model(const ModelBytes& bytes, std::string& names, std::vector<Section>& sections) {
  sections.push_back({section::kModel, 0, bytes.model});
  if (bytes.files.empty()) return;
  json list = json::array();
  for (const auto& [name, data] : bytes.files) list.push_back(name);
  names = list.dump(-1, ' ', false, json::error_handler_t::replace);
  sections.push_back({section::kModelFiles, 0, std::as_bytes(std::span(names))});
  for (std::size_t i = 0; i < bytes.files.size(); ++i)
    sections.push_back({section::kModelFile, static_cast<std::uint32_t>(i), bytes.files[i].second});
}

}  // namespace octavo::engine
