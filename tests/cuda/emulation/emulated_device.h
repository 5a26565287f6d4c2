// A GPU for engines that is the emulation: its "machine code" is the kernels' text.
#pragma once

#include <memory>

#include "region/device.h"

namespace octavo::testing {

/// A device of the name "cuda". Launches run when they are started, under all checks of the emulation; `wait` tells what was found.
[[nodiscard]] std::unique_ptr<const region::Device> emulated_device();

}  // namespace octavo::testing
