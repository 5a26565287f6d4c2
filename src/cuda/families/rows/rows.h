// Kernels in which a warp takes a row at a time: the elements that a softmax or a norm adds up. A block stages its rows in shared memory as floats,
// adds up chains of them one term after the other, a thread a chain, so that the order of sums is the reference's, and then runs the
// region's program over the rows.
#pragma once

#include <string>
#include <vector>

#include "cuda/families/families.h"
#include "cuda/text/elements.h"
#include "region/region.h"

namespace octavo::cuda {

struct RowTile {
  int rows = 8, warps = 4;
  static constexpr std::array<TileParameter<RowTile>, 2> kParameters{
      {{{"rows", "", "rows of a block"}, {&RowTile::rows}}, {{"warps", "", "warps of a block"}, {&RowTile::warps}}}};
};

/// What an anchor does with its rows. Its texts know `row` (of the block), `lane`, `tile`, `parts`, `squares` and what rows.inc has.
struct RowText {
  std::int64_t chain = 0;  ///< terms of a chain; 0: a row is one
  std::string functions;   ///< in front of the kernel
  bool open =
      false;  ///< the text takes kExtent, kChains and kPitch as parameters of the kernel (Rows::open_extent); `chain` is not 0
  std::string take;    ///< of the run e of a row that was read, before it is staged
  std::string staged;  ///< behind the row's last run
  std::string chains;  ///< behind a barrier, all threads
  std::string before;  ///< of each row's results
  std::string
      each;  ///< sets acc[kRun] from the run e of staged elements, p1, p2, ... (parameters) and `at.x + i * kSize` (its place)
};

class Rows {
 public:
  /// Dimensions [first, last) of the space are those of a row. `parameters`: the strides of the anchor's further inputs for each
  /// dimension of the space. Refuses rows that do not lie in one piece, and types that programs do not have.
  static Result<Rows> of(const region::Stage& stage, std::size_t first, std::size_t last,
                         const std::vector<std::vector<std::int64_t>>& parameters = {});

  static constexpr std::int64_t kMostChains = 448;  ///< as many terms as the shared memory of a block holds, about
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t extent() const { return extent_; }
  [[nodiscard]] bool open_extent() const { return open_extent_; }
  [[nodiscard]] int run() const { return run_; }  ///< elements that a lane reads at once
  [[nodiscard]] std::int64_t chains(std::int64_t chain) const { return chain == 0 ? 1 : (extent_ + chain - 1) / chain; }
  [[nodiscard]] std::int64_t shared_bytes(const RowTile& tile, std::int64_t chain) const;
  /// Tiles that fit, the least estimate first. `chain`: as in RowText.
  [[nodiscard]] std::vector<Choice<RowTile>> tactics(const Target& target, std::int64_t chain) const;
  /// Error: a tile that does not fit.
  [[nodiscard]] Status check(const RowTile& tile, std::int64_t chain, const Target& target) const;
  [[nodiscard]] Result<KernelText> emit(const RowTile& tile, const RowText& anchor, const Target& target) const;

 private:
  enum class Mode : std::uint8_t {
    vector,
    same,
    each
  };  ///< how a run is read or written: at once, one element for all, one by one
  struct Array {
    std::string name;
    region::TensorRef ref;
    std::vector<std::int64_t> outer;  ///< strides of the rows' dimensions
    std::vector<char> open;           ///< of them
    std::int64_t inner = 0;           ///< elements from one element of a row to the next
    bool written = false;
  };
  [[nodiscard]] Mode mode(const Array& a, int run) const;
  [[nodiscard]] bool fits(const RowTile& tile, std::int64_t chain, const Target& target) const;
  [[nodiscard]] std::int64_t pitch(std::int64_t chain) const;
  [[nodiscard]] double seconds(const RowTile& tile, std::int64_t chain, const Target& target) const;
  [[nodiscard]] std::string places(OpenNumbers& numbers) const;
  [[nodiscard]] std::string load(const Array& a, const std::string& into) const;

  program::Program program_;
  std::vector<std::int64_t> dims_;  ///< of the rows, outermost first
  std::vector<char> open_dims_;     ///< of them
  std::int64_t count_ = 1, extent_ = 1;
  bool in_order_ = true;      ///< rows are numbered as the dimensions of the space follow each other
  bool open_extent_ = false;  ///< extent_ is open
  int run_ = 1;
  std::vector<Array> arrays_;  ///< x, parameters, operands that the program reads, stores
  double bytes_ = 0;           ///< of all
};

/// The rows of a region of one stage, and what its anchor does with them.
struct RowKernel {
  Rows rows;
  RowText text;
};

class RowFamily : public FamilyOf<RowKernel, RowTile> {
 public:
  /// What `kernel` says, if the smallest tile fits.
  [[nodiscard]] Result<RowKernel> match(const Region& region, const Plan&, const Target& target) const final {
    OCTAVO_TRY(RowKernel made, kernel(only(region)));
    OCTAVO_CHECK(made.rows.check({1, 1}, made.text.chain, target));
    return made;
  }
  [[nodiscard]] std::vector<Choice<RowTile>> tactics(const RowKernel& k, const Target& target) const final {
    return k.rows.tactics(target, k.text.chain);
  }
  [[nodiscard]] Result<KernelText> emit(const RowKernel& k, const RowTile& tile, const Target& target) const final {
    return k.rows.emit(tile, k.text, target);
  }

 protected:
  [[nodiscard]] virtual Result<RowKernel> kernel(const Stage& stage) const = 0;
};

}  // namespace octavo::cuda
