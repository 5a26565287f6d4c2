// What engines take of the host's memory.
#pragma once

#include "engine/engine.h"
#include "octavo/octavo.h"

namespace octavo::api {

/// Constants, each once, and the working memory of one run of the largest on this many threads, as `working` and `working_most`.
[[nodiscard]] MemoryUse memory_of(const engine::Engines& engines, int threads);

}  // namespace octavo::api
