// Models as engine files keep them (engine/source.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/source.h"

namespace octavo::api {

/// The ONNX file and the external data beside it, read again when an engine is saved; until then an open descriptor is all that it takes. Its
/// `read` fails with `io` where a file was written to in between: the engine would hold another model than it was built from. Errors: io.
[[nodiscard]] Result<std::shared_ptr<const engine::ModelSource>> file_source(const std::string& path);
/// A model in memory, whose external data lies in `folder`.
[[nodiscard]] std::shared_ptr<const engine::ModelSource> memory_source(std::shared_ptr<const std::vector<std::byte>> model,
                                                                       const std::string& folder);

}  // namespace octavo::api
