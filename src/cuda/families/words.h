// Elements of any type as their bits: what only moves them need not know more than their size.
#pragma once

#include "cuda/families/element_family.h"

namespace octavo::cuda {

/// The element type that holds the bits; elements of 8 bytes are two of them.
struct Words {
  ir::DType dtype = ir::DType::u8;
  int each = 1;
};
[[nodiscard]] Words words_of(ir::DType type);

/// The same elements as words; `pairs`: with a last dimension of two.
[[nodiscard]] region::TensorRef as_words(const region::TensorRef& ref);

/// A stage's space and stores for words, with a program that stores its anchor's result as it is, or operand 0, and then no anchor.
[[nodiscard]] Stage words_stage(const Stage& s, ir::DType type, bool from_operand);

/// Every store takes the operator's first result, in one type: as a network's output and as a part of another tensor, for example.
[[nodiscard]] bool stores_one_result(const Stage& s);

/// A stage whose anchor takes elements of `type` from somewhere: with a program as it is, without one as a stage of words.
struct MovedStage {
  Stage stage;
  bool raw = false;    ///< no program: elements are moved as they are, whatever the type; their sources are to be read `as_words`
  bool pairs = false;  ///< two words an element: the space has a last dimension of two more
  bool real = false;   ///< the program reads them as floats
};
/// Errors: the types that cannot be moved to each other, or that no program reads.
[[nodiscard]] Result<MovedStage> moved_stage(const Stage& s, ir::DType type);

/// Adds to `at` (elements) the row that the index at `place` of the index tensor x1 names; the text declares `long long at, g`. An index
/// outside of its dimension, which is an error of the caller's data, is taken as the nearest one inside: a kernel must not read elsewhere.
[[nodiscard]] std::string add_indexed_row(const region::TensorRef& indices, const std::string& place, std::int64_t extent,
                                          std::int64_t stride);

}  // namespace octavo::cuda
