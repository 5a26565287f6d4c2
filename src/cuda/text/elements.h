// Kernels in which each thread computes a run of neighbouring elements of a stage's space, one element independent of the others:
// regions without an anchor, and anchors whose result is a function of the element's index (pooling, moves, sums over windows).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cuda/text/kernel_text.h"
#include "cuda/text/open.h"
#include "region/region.h"

namespace octavo::cuda {

/// Where the elements of an iteration space lie: element (i0, i1, ...) is `offset` bytes and sum floor(i_k / div_k) * strides_k
/// elements behind the buffer's beginning.
struct ElementAccess {
  region::BufferId buffer = -1;
  std::int64_t offset = 0;
  ir::DType dtype = ir::DType::f32;
  std::vector<std::int64_t> strides, div;
  std::vector<char> open = {};  ///< strides that are open; empty: none
};
/// Dimensions of extent 1 get stride 0, dimensions of stride 0 the divisor 1. `open`: dimensions of the space that may have other extents.
[[nodiscard]] ElementAccess access_of(const region::TensorRef& ref, const std::vector<std::int64_t>& div, const ir::Shape& space,
                                      std::uint32_t open = 0);
/// An anchor's input of which a run along dimension `along` of the space reads neighbours along the input's dimension `from`, and of
/// whose other dimensions it reads anything: in runs as long as all of these beginnings are aligned for.
[[nodiscard]] ElementAccess followed_along(const region::TensorRef& x, std::size_t from, std::size_t along, const ir::Shape& space);

/// Which operands the program reads: 1 at their index.
[[nodiscard]] std::vector<char> loaded(const program::Program& p);

/// What an anchor adds to the kernel. Its text may use c0, c1, ... (the element's index in the stage's space: int, of the first
/// element of the run), kRun (elements in a run), x0, x1, ... (its inputs), k0, k1, ... (its constants) and w (its workspace), all
/// const unsigned char*.
struct AnchorText {
  std::vector<region::TensorRef> inputs;
  std::vector<PackedConstant> constants;
  std::string functions;       ///< in front of the kernel; kernels that run before it too
  std::vector<Launch> before;  ///< of those kernels
  std::int64_t workspace_bytes = 0;
  std::string body;  ///< sets acc[kRun]
  /// So many threads (a power of two up to 256) have a part of each run's accumulators, by `share` in the body;
  /// `octavo_add(a, b)` of `functions` joins two parts; `finish` follows. 1: none.
  int shared = 1;
  std::string finish;
  bool real = false;    ///< acc is float, not int
  OpenNumbers numbers;  ///< that the body has; kernels of `before` have their own
};

class Elements {
 public:
  /// `has_anchor`: the index is needed, so dimensions are neither joined nor split. `followed`: inputs that the anchor reads along
  /// the run, with strides for each dimension of the space. Errors (`unsupported`): element types that programs do not
  /// have.
  static Result<Elements> of(const region::Stage& stage, bool has_anchor, const std::vector<ElementAccess>& followed = {},
                             std::int64_t longest_run = 16);

  [[nodiscard]] int run() const { return run_; }  ///< elements of a thread: 1, 2, 4, 8 or 16
  [[nodiscard]] int inner() const {
    return inner_;
  }  ///< with an anchor: the dimension of the space that runs go along; -1: of one element
  [[nodiscard]] KernelText emit(const AnchorText& anchor) const;

 private:
  enum class Mode : std::uint8_t { vector, same, each };  ///< how a run reads or writes: at once, one element for all, one by one
  [[nodiscard]] Mode mode(const ElementAccess& a, std::int64_t run) const;
  void join();
  void split_divisions();
  void order();
  void choose_run(const std::vector<ElementAccess>& followed, std::int64_t longest);
  [[nodiscard]] std::string offset(const ElementAccess& a, OpenNumbers& numbers) const;
  [[nodiscard]] bool is_open(std::size_t k) const { return units_[k] != 0; }
  [[nodiscard]] std::int64_t unit(std::size_t k) const { return is_open(k) ? units_[k] : dims_[k]; }

  program::Program program_;
  ir::Shape space_;
  std::vector<std::int64_t> dims_;   ///< outermost first
  std::vector<std::int64_t> units_;  ///< of an open one: what its extent is a multiple of, whatever the shape; 0: a fixed one
  std::vector<std::size_t> origin_;  ///< with an anchor: the dimension of the space that dims_[k] is
  std::vector<ElementAccess> loads_, stores_;
  int run_ = 1, inner_ = -1;
  bool has_anchor_ = false, wide_ = false;  ///< wide: offsets need 64 bits
};

/// "octavo_load_u8": the function of elements.inc that reads or writes a run of the type; empty: programs do not have the type.
[[nodiscard]] std::string load_function(ir::DType type);
[[nodiscard]] std::string store_function(ir::DType type);
/// "int" or "float", as programs hold the type.
[[nodiscard]] std::string_view register_type(ir::DType type);
/// "<": how a comparison is spelled; empty: the operator is none.
[[nodiscard]] std::string_view comparison(ir::Op op);
/// A float as text that reads back exactly, infinities included.
[[nodiscard]] std::string float_text(float v);

/// The functions of elements.inc.
[[nodiscard]] std::string_view elements_functions();

}  // namespace octavo::cuda
