// What an engine was built from, kept so that an Octavo of a later version can build it again: the ONNX file as it was and the options of the
// build. ONNX and not our graph, since its meaning is promised from version to version and a rebuild then goes the way of any build. This
// module carries it and does not read it: the runtime has no importer.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/file.h"

namespace octavo::engine {

using Notes = std::map<std::string, std::string>;

/// The bytes of a model and of its external data files, by their names in the model. `holds` keeps them alive.
struct ModelBytes {
  std::span<const std::byte> model;
  std::vector<std::pair<std::string, std::span<const std::byte>>> files;
  std::vector<std::shared_ptr<const void>> holds;
};

/// Where a model's bytes come from when they are wanted. Immutable; for any number of threads.
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  /// Errors: io, also where a file is no longer what was built; bad_engine for one in a damaged engine.
  [[nodiscard]] virtual Result<ModelBytes> read() const = 0;
};

/// What an engine is beside its plan.
struct Origin {
  std::shared_ptr<const ModelSource> model;  ///< null: not kept
  std::string build;                         ///< JSON: the options (build_text of api/load.h)
  Notes notes;                               ///< Engine::notes
  std::string about;                         ///< Engine::about
};

/// The sections of one plan of a file.
struct Part {
  std::span<const std::byte> plan, summary, graph, build;
  std::vector<std::pair<std::uint32_t, std::span<const std::byte>>> constants;  ///< by BufferId
  [[nodiscard]] Notes notes() const;                                            ///< of the summary
  [[nodiscard]] std::string about() const;                                      ///< of the summary: Engine::about
};

/// What a file that serves a range of shapes has beside its plans (api/open_file.h).
struct OpenSections {
  std::span<const std::byte> text;
  std::map<std::uint32_t, std::span<const std::byte>> data;  ///< by plan
};

/// An engine file that is open: mapped, its container checked. Says who built it, and gives the model back, whatever its version.
class EngineFile : public std::enable_shared_from_this<EngineFile> {
 public:
  /// `public_key` (PEM): the file must be signed with it, and is read into memory that no other process can change; empty: it is mapped. Errors:
  /// io; bad_engine (read_container, verify_signature); usage for the key.
  [[nodiscard]] static Result<std::shared_ptr<const EngineFile>> open(const std::string& path, const std::string& public_key = {});
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Container& container() const { return container_; }
  [[nodiscard]] const MadeBy& made_by() const { return container_.by; }
  /// Null: the file does not hold its model.
  [[nodiscard]] std::shared_ptr<const ModelSource> model() const;
  [[nodiscard]] bool is_signed() const { return file_->bytes().size() != container_.body.size(); }
  /// Bytes of the model and its files.
  [[nodiscard]] std::size_t model_bytes() const;
  /// Its plans (engine/set.h). Errors: bad_engine.
  [[nodiscard]] Result<std::vector<Part>> parts() const;
  /// Nothing: it serves the shapes of its plans alone.
  [[nodiscard]] std::optional<OpenSections> open_sections() const;
  /// Of each plan what files of every version have: `build` and `summary`. Empty where the options of a build are not kept.
  [[nodiscard]] std::vector<Part> builds() const;

 private:
  EngineFile() = default;
  std::string name_;
  std::unique_ptr<const MappedFile> file_;
  Container container_;
};

/// Adds the model's sections; `bytes` and `names` must outlive them.
void add_model(const ModelBytes& bytes, std::string& names, std::vector<Section>& sections);

}  // namespace octavo::engine
