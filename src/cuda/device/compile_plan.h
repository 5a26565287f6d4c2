// The kernels of finished plans as machine code.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cuda/text/architecture.h"
#include "region/region.h"

namespace octavo::cuda {

/// Machine code from a text without the prelude. Called by several threads.
using Compiler = std::function<Result<std::string>(std::string_view text)>;

/// NVRTC for an architecture ("sm_90a"), by compile_pool().
[[nodiscard]] Compiler nvrtc_compiler(Architecture architecture);
/// The same compiler, which is asked for a text once, also by threads that want it at the same time: a search compiles the kernels of many plans that have
/// most of them in common.
/// Keeps at most some hundred results.
[[nodiscard]] Compiler remembering(Compiler compiler);

/// How often this process has asked a compiler behind `remembering`.
[[nodiscard]] std::uint64_t compilations();

/// The same compiler, whose results are kept in the user's cache, ($XDG_CACHE_HOME or ~/.cache)/octavo/kernels, by a digest of the text and of
/// `key`, which says everything else that the result depends on. A result is taken from there only if its file belongs to this user, nobody else can
/// write it, and it holds this very text. Where there is no such folder, nothing is kept.
[[nodiscard]] Compiler kept_on_disk(Compiler compiler, std::string key);

/// Puts what `compile` makes of them in the place of the sources that the GPU's provider left in the plans: each text once, on `threads`
/// threads; regions with equal code share one buffer. A plan without GPU regions stays as it is. Errors: the compiler's, naming the
/// region; then no plan is changed.
[[nodiscard]] Status compile_kernels(std::span<region::Plan* const> plans, const Compiler& compile, int threads);

}  // namespace octavo::cuda
