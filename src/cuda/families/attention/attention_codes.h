// What the kernels of attention on codes share: their region as sides of two products, and the texts of its programs and of softmax.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/families/attention/attention_shape.h"
#include "cuda/families/matmul/matmul_mma.h"

namespace octavo::cuda {

/// Each of the matrices as a side of a product. p: the probabilities, which lie in shared memory.
struct CodesShape : AttentionShape {
  ProductSide left, right, between, last;
};

/// Error: why the region is none of these kernels'.
[[nodiscard]] Result<CodesShape> codes_shape(const region::Region& region, const region::Plan& plan);

/// The least power of two that is not less than v, within bounds that are powers of two.
[[nodiscard]] std::int64_t pow2_from(std::int64_t v, std::int64_t least, std::int64_t most);

/// `octavo_score` and `octavo_probability`: a program of one element, with its operands.
struct ElementText {
  std::string text, parameters, names;  ///< parameters of the kernel, and how they are handed on
  std::vector<Argument> arguments;
  std::int32_t acc_offset = 0;  ///< what the program expects to be added to the sum
};
/// `largest`: a bound of the accumulator's magnitude. `real`: it is a float. `saturates`: what is done with the code bounds it.
[[nodiscard]] ElementText element_text(const AttentionShape& shape, const ElementProgram& element, const std::string& name,
                                       const std::string& prefix, bool real, double largest, bool saturates = false);

/// The region's programs in a kernel, and its epilogue.
struct CodesPrograms {
  ElementText scores, probabilities;
  EmittedEpilogue epilogue;
  [[nodiscard]] std::string text() const { return scores.text + probabilities.text + epilogue.text; }
  /// Puts parameters, pointers and operands in the places that a kernel's text has marks for.
  void fill(std::string& kernel) const;
  /// `octavo_attention` with its arguments.
  [[nodiscard]] Launch launch(const CodesShape& shape, std::int64_t blocks, int threads, std::int64_t shared) const;
};
/// `scores_saturate`: the first program gives codes, which the kernel bounds. Error: why there is no such epilogue.
[[nodiscard]] Result<CodesPrograms> codes_programs(const CodesShape& shape, const EpilogueShape& epilogue,
                                                   bool scores_saturate = false);

/// Where the operands of each batch begin: the constants kQueryOuter to kValueInner.
[[nodiscard]] std::string batch_offsets(const CodesShape& shape);

/// The functions of softmax (softmax.inc) and what they are made of. `program`: what is done with the quotients.
[[nodiscard]] std::string softmax_text(const program::Program& program);

}  // namespace octavo::cuda
