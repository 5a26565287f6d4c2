// Programmatic launch: a kernel's blocks are placed on the GPU while the kernel before it still runs, and wait there for its results. So the
// time between two kernels, which is most of what a small network spends at batch 1, is left out.
#pragma once

#include <string>
#include <string_view>

namespace octavo::cuda {

/// Can kernels for this architecture ("sm_90a") be launched so? From sm_90 on.
[[nodiscard]] bool can_start_early(std::string_view architecture);

/// The text with octavo_let_next_start() and octavo_wait_for_previous() as the first statements of every OCTAVO_KERNEL that does not
/// wait itself (one that does may read constants before). Then every kernel of the text may be launched early: a kernel is complete only
/// when the ones before it are, so a wait for the kernel before is a wait for all of them.
[[nodiscard]] std::string waiting_for_previous(std::string text);

}  // namespace octavo::cuda
