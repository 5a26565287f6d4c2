// Work on several threads that whoever watches the calling thread (base/task.h) can stop.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace octavo::quantize {

/// work() once in each of `threads` threads, this one among them. check_cancelled in any of them asks on behalf of the caller's watcher, which
/// is called in the calling thread alone. Errors: only that it is cancelled; `work` keeps its own.
[[nodiscard]] Status together(int threads, const std::function<void()>& work);

/// body(i) for 0 <= i < count on several threads; what it computes must not depend on their order. Errors: as together; then some are left out.
[[nodiscard]] Status parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

}  // namespace octavo::quantize
