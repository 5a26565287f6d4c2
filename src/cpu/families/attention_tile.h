// What the kernels of attention share, whatever their products are made of: the region as they see it, and the programs of its first two stages over
// a tile of scores, which lies transposed, [key][query].
#pragma once

#include <optional>
#include <vector>

#include "cpu/families/row_families.h"

namespace octavo::cpu {

constexpr std::int64_t kMostQueries = 64;  ///< of a tile

/// One matrix of a product: elements between rows, columns, and along the batch dimensions.
struct AttentionMatrix {
  region::TensorRef ref;
  std::int64_t row = 0, col = 0;
  std::vector<std::int64_t> batch;
  template <class T>
  [[nodiscard]] const T* at(const Memory& memory, const Index& origin) const {
    const auto* p = reinterpret_cast<const T*>(memory.at(ref));
    for (std::size_t d = 0; d < batch.size(); ++d) p += origin[d] * batch[d];
    return p;
  }
};

struct AttentionSetting {
  std::int64_t queries = 1, features = 1, keys = 1, columns = 1, batch = 1;
  std::size_t rank = 2;
  ir::Shape space;          ///< of the scores
  AttentionMatrix q, k, v;  ///< [queries, features], [features, keys], [keys, columns]
  [[nodiscard]] std::int64_t padded() const { return (columns + kColumns - 1) / kColumns * kColumns; }
  /// Tiles of so many queries, the origin of one (its batch, from its query on), and the batch that it belongs to.
  [[nodiscard]] std::int64_t tiles(std::int64_t width) const { return (queries + width - 1) / width; }
  [[nodiscard]] Index origin_of(std::int64_t tile, std::int64_t width) const;
};

/// A region of two products of computed matrices around a softmax?
[[nodiscard]] bool is_attention(const Region& r);
/// The region's matrices, which hold `type`, as the probabilities do; or why it is none that tiles can compute.
[[nodiscard]] Result<AttentionSetting> attention_setting(const Region& r, ir::DType type);

/// Queries of a tile: the tactic's `rows`, or as many as with 197 keys, and a panel of what they are multiplied with, fill a first-level cache.
[[nodiscard]] std::int64_t attention_width(const Tactic& tactic, Isa isa);
/// The other numbers of queries that are worth a try.
[[nodiscard]] std::vector<Parameters> attention_widths(const AttentionSetting& t, Isa isa);

/// A stage's program over a tile: rows are keys, columns queries. Its operands are buffers 0, 1, ..; what it stores is the last one.
class TileProgram {
 public:
  static Result<TileProgram> of(const Stage& s, Isa isa, std::int64_t width);

  [[nodiscard]] std::size_t scratch_bytes() const { return epilogue_.scratch_bytes(); }
  void prepare(std::byte* scratch) const { epilogue_.prepare(scratch); }
  /// The operands' memory, as `run` takes it.
  [[nodiscard]] Memory operands_of(const Memory& memory) const;
  /// The program of `keys` rows of `width` accumulators, `cols` of them of queries, from origin on. `to`: the tile it stores, which may be `tile`.
  void run(const RowKernels& k, Memory& own, std::byte* scratch, const Index& origin, float* tile, std::byte* to, std::int64_t keys,
           std::int64_t cols) const;

 private:
  /// A program that only multiplies or divides sums by a number.
  struct Scaling {
    float by = 1;
    bool divides = false;
  };
  static std::optional<Scaling> scaling_of(const program::Program& p);

  Epilogue epilogue_;
  std::vector<region::BufferId> operands_;
  std::optional<Scaling> scaling_;
  std::int64_t width_ = 0, stored_bytes_ = 4;
  std::size_t rank_ = 2;
  bool flat_ = false;  ///< no operand differs among the elements of a tile
};

}  // namespace octavo::cpu
