// Elements of any type as their bits: what only moves them need not know more than their size.
#pragma once

#include "cuda/families/families.h"

namespace octavo::cuda {

/// The element type that holds the bits; elements of 8 bytes are two of them.
struct Words {
  ir::DType dtype = ir::DType::u8;
  int each = 1;
};
[[nodiscard]] Words words_of(ir::DType type);

/// The same elements as words; `pairs`: with a last dimension of two.
[[nodiscard]] region::TensorRef as_words(const region::TensorRef& ref);

/// A stage's space and stores for words, with a program that stores its accumulator (or operand 0) as it is.
[[nodiscard]] Stage words_stage(const Stage& s, ir::DType type, bool from_operand);

}  // namespace octavo::cuda
