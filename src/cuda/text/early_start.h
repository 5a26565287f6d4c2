// Programmatic launch: a kernel's blocks are placed on the GPU when the last block of the kernel before it has ended, and wait there until
// its stores can be seen. So part of the time between two kernels is left out, which is much of what a small network spends at batch 1.
//   On one H100, ResNet50 at batch 1: 0.255 ms without, 0.244 ms with it; MobileNetV2: 0.141 and 0.125 ms. Kernels that allow the next one
//   to be placed when they begin (griddepcontrol.launch_dependents) are slower than without, 0.390 and 0.166 ms: probably blocks that wait
//   early are packed onto the multiprocessors that have room, not spread over all.
#pragma once

#include <string>
#include <string_view>

namespace octavo::cuda {

/// Can kernels for this architecture ("sm_90a") be launched so? From sm_90 on.
[[nodiscard]] bool can_start_early(std::string_view architecture);

/// The text with octavo_wait_for_previous() as the first statement of every OCTAVO_KERNEL that does not wait itself (one that
/// does may read constants before). Then every kernel of the text may be launched early: a kernel is complete only when the ones before it are, so a wait for the kernel before is a wait for all of them.
[[nodiscard]] std::string waiting_for_previous(std::string text);

}  // namespace octavo::cuda
