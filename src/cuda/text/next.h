// When the blocks of the next kernel may be placed. A kernel calls octavo_let_next_begin() where its blocks have nothing left to do but the program of their last
// tile. Whether that pays depends on the kernel behind it, which a text does not know: so the kernel gets a parameter, which the executor decides.
#pragma once

#include "cuda/text/kernel_text.h"

namespace octavo::cuda {

/// Gives kernels that call octavo_let_next_begin() the parameter (Argument::Kind::next) that says whether it does anything.
void take_next(KernelText& text);

}  // namespace octavo::cuda
