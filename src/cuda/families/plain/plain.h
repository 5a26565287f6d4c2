// Operators whose kernels are loops over element numbers: elements of every tensor are numbered row by row, as ONNX writes them, and functions made for
// each tensor's type and layout read and write element i. So a kernel says what its operator does and nothing else, for every type and layout.
//
// The text of an operator has a structure `OctavoTensors` with the addresses of all of these, and for input k and result r:
//   octavo_x<k>(t, i)           element i: a float (any float type) or a long long (integers, bool)
//   octavo_put<r>(t, i, v)      stores element i in every store that takes the result, rounded or wrapped to the type once
//   octavo_bits<k>(t, i), octavo_put_bits<r>(t, i, bits)   the same element as it is, as an unsigned long long
//   t.w                         scratch memory of the region
// A stage with a program gets its result as floats in scratch memory, and a last kernel runs the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/families/element_family.h"

namespace octavo::cuda {

/// One kernel of an operator. `body` may use `t`, and `i`, a long long from 0 to `threads`; with `whole_blocks` also threads beyond that run, so that they may
/// meet, and nothing but octavo_block() and octavo_thread() says which they are. `turns`: it is launched so often, one after the other, and `turn`, an
/// int, counts them.
struct PlainPass {
  std::string body;
  std::int64_t threads = 1;
  int block = 256;
  bool whole_blocks = false;
  int turns = 1;
  bool in_order =
      false;  ///< `i` numbers the elements of the results in their order, or equally many parts of each element of the outermost dimension
};

[[nodiscard]] inline PlainPass in_order(PlainPass pass) {
  pass.in_order = true;
  return pass;
}

/// What an operator adds.
struct PlainText {
  std::string functions;  ///< of its own, in front of the kernels
  std::vector<PlainPass> passes;
  std::int64_t scratch_bytes = 0;
  double work = 0;   ///< elements that all threads read, for the estimate
  double chain = 0;  ///< elements that one thread reads
};

/// What matched: the kernel that runs a program, if there is one, and the texts of what runs before it.
struct PlainKernel {
  PlainText text;
  std::vector<region::TensorRef> inputs, stores;
  std::vector<std::size_t> results;  ///< of the operator, which each store takes
  std::optional<Elements> elements;  ///< of a stage with a program
  ir::Shape space;
  double seconds = 0;
};

class PlainFamily : public FamilyOf<PlainKernel> {
 public:
  [[nodiscard]] std::string_view name() const final { return name_; }
  [[nodiscard]] int version() const final { return 2; }
  [[nodiscard]] bool about(const Region& region) const final;
  [[nodiscard]] Result<PlainKernel> match(const Region& region, const Plan& plan, const Target& target) const final;
  [[nodiscard]] std::vector<Choice<NoTile>> tactics(const PlainKernel& k, const Target&) const final { return {{{}, k.seconds}}; }
  [[nodiscard]] Result<KernelText> emit(const PlainKernel& k, const NoTile&, const Target&) const final;

 protected:
  /// For these operators, with so many inputs; 0: any number.
  /// `small_floats`: they may be read and stored, as bits.
  PlainFamily(std::string_view name, std::vector<ir::Op> ops, std::size_t inputs, bool small_floats = false)
      : name_(name), ops_(std::move(ops)), inputs_(inputs), small_floats_(small_floats) {}
  /// The shapes of the results by the operator and its inputs; as here: one, as the first input. Error: `bad_engine`, where these do not fit.
  [[nodiscard]] virtual Result<std::vector<ir::Shape>> shapes(const Stage& stage) const {
    return std::vector<ir::Shape>{stage.anchor.inputs[0].dims};
  }
  [[nodiscard]] virtual Result<PlainText> text(const Stage& stage) const = 0;
  /// x0, x1, ...: the operator's inputs, or what stands for them.
  [[nodiscard]] virtual Result<std::vector<region::TensorRef>> inputs(const Stage& stage) const { return stage.anchor.inputs; }

 private:
  std::string_view name_;
  std::vector<ir::Op> ops_;
  std::size_t inputs_;
  bool small_floats_;
};

/// Elements from one element of a dimension to the next, and how many times the dimension's elements follow each other.
struct Line {
  std::int64_t extent = 1, inner = 1, lines = 1;
};
/// Of dimension `axis` of a shape. Error: `bad_engine`, where the shape has no such dimension.
[[nodiscard]] Result<Line> line_of(const ir::Shape& shape, std::int64_t axis);

/// `octavo_scanned(held, v)`: of threads of a block, `threads` of them, what `join(a, b)`, an associative expression of two values of `type`, makes of the v of
/// all threads up to this one. held[threads - 1], of shared memory, is that of the whole block until the threads meet again.
[[nodiscard]] std::string scan_text(std::string_view type, int threads, std::string_view join);

/// Is the tensor read as floats?
[[nodiscard]] inline bool reads_floats(const region::TensorRef& x) {
  return ir::is_float(x.dtype);
}

}  // namespace octavo::cuda
