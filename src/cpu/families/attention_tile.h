// What the kernels of attention share, whatever their products are made of: the region as they see it, and the programs of its first two stages over
// a tile of scores, which lies transposed, [key][query].
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "cpu/families/row_families.h"
#include "cpu/parameters.h"

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

  BlockEpilogue epilogue_;
  std::vector<region::BufferId> operands_;
  std::optional<Scaling> scaling_;
  std::int64_t width_ = 0, stored_bytes_ = 4;
  std::size_t rank_ = 2;
  bool flat_ = false;  ///< no operand differs among the elements of a tile
};

/// A region of two products of computed matrices around a softmax, and its programs at a level.
struct AttentionSetting {
  std::int64_t queries = 1, features = 1, keys = 1, columns = 1, batch = 1;
  std::size_t rank = 2;
  ir::Shape space;          ///< of the scores
  AttentionMatrix q, k, v;  ///< [queries, features], [features, keys], [keys, columns]
  Isa isa = Isa::portable;
  std::int64_t width = 0;  ///< queries of a tile
  TileProgram scores, softmax;
  BlockEpilogue product;
  [[nodiscard]] std::int64_t padded() const { return (columns + kColumns - 1) / kColumns * kColumns; }
  [[nodiscard]] std::int64_t tiles() const { return (queries + width - 1) / width; }
  /// Of a tile: its batch, from its query on.
  [[nodiscard]] Index origin_of(std::int64_t tile) const;
  [[nodiscard]] double all_scores() const { return static_cast<double>(ir::count(space)); }
};

/// Is it such a region?
[[nodiscard]] bool is_attention(const Region& r);
/// The setting, whose matrices hold `type`, as the probabilities do; or why the region is none that tiles can compute.
[[nodiscard]] Result<AttentionSetting> attention_setting(const Request& request, ir::DType type);

/// Of attention's tactics: queries of a tile.
inline constexpr std::array kAttentionParameters{kRows};
/// The other numbers of queries that are worth a try.
[[nodiscard]] std::vector<Parameters> attention_variants(const AttentionSetting& t);

/// The loop over tiles that all kernels of attention share. What is packed of a batch is kept for its next tiles.
class AttentionKernel : public Kernel {
 public:
  int tasks() const override { return static_cast<int>(std::min<std::int64_t>(t_.batch * t_.tiles(), 4096)); }
  std::size_t scratch_bytes() const override { return bytes_; }
  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const final;

 protected:
  explicit AttentionKernel(AttentionSetting setting);
  /// Takes scratch, in bytes or elements of four.
  std::size_t place(std::size_t bytes);
  std::size_t dwords(std::int64_t n) { return place(static_cast<std::size_t>(n) * 4); }
  template <class T = std::uint32_t>
  [[nodiscard]] static T* at(std::byte* scratch, std::size_t place) {
    return reinterpret_cast<T*>(scratch + place);
  }
  /// Around the tiles of a call.
  virtual void begin() const {}
  virtual void end() const {}
  /// Keys and values of the batch at `origin`, as tiles read them.
  virtual void pack(const Memory& memory, std::byte* scratch, const Index& origin) const = 0;
  /// A tile of queries, from origin on.
  struct Operands {
    Memory scores, softmax;
  };
  virtual void one(const Memory& memory, Operands& own, std::byte* scratch, const Index& origin) const = 0;

  void run_scores(Operands& own, std::byte* scratch, const Index& origin, float* tile, std::int64_t some) const {
    t_.scores.run(k_, own.scores, scratch + at_scores_, origin, tile, reinterpret_cast<std::byte*>(tile), t_.keys, some);
  }
  void run_softmax(Operands& own, std::byte* scratch, const Index& origin, float* tile, void* to, std::int64_t some) const {
    t_.softmax.run(k_, own.softmax, scratch + at_softmax_, origin, tile, static_cast<std::byte*>(to), t_.keys, some);
  }
  /// The program of the product over rows of sums, `step` elements apart.
  void store(const Memory& memory, std::byte* scratch, const Index& origin, const void* sums, std::int64_t step,
             std::int64_t some) const {
    store_sums(t_.product, memory, scratch + at_product_, origin, t_.rank - 2, t_.rank - 1, static_cast<const float*>(sums), step,
               some, t_.columns);
  }

  const AttentionSetting t_;
  const RowKernels& k_;
  const std::int64_t width_ = t_.width;

 private:
  std::size_t bytes_ = 0, at_scores_ = 0, at_softmax_ = 0, at_product_ = 0;
};

}  // namespace octavo::cpu
