// Functions over tiles of sums that lie in memory: one loads the sums of a few pixels, all channels of a width, and runs the program on them.
#include <algorithm>
#include <cstddef>
#include <map>

#include "cpu/generated_epilogue.h"
#include "cpu/jit/erf_division.h"
#include "cpu/jit/generated.h"
#include "cpu/jit/pipeline.h"
#include "cpu/jit/streams.h"

namespace octavo::cpu {
namespace {

using namespace jit;

/// Vectors of a tile, about: their sums have half of the registers at most.
constexpr int tile_vectors(int lanes) {
  return lanes == 16 ? 8 : 4;
}

class SumsEpilogue final : public GeneratedEpilogue {
 public:
  SumsEpilogue(const region::Stage& stage, LoweredEpilogue epilogue, const std::vector<std::int64_t>& widths, std::int64_t pixels)
      : streams_(stage), e_(std::move(epilogue)) {
    ConstantPool pool(code_, e_.lanes);
    struct Start {
      std::int64_t cols;
      int pixels;
      std::size_t at;
    };
    std::vector<Start> starts;
    for (const std::int64_t cols : widths) {
      const int vectors = static_cast<int>((cols + e_.lanes - 1) / e_.lanes), most = std::max(1, tile_vectors(e_.lanes) / vectors);
      for (const int p : {most, 1}) {
        if (p == 1 && most == 1 && !starts.empty() && starts.back().cols == cols) continue;
        starts.push_back({cols, p, emit_tile(pool, cols, p, vectors)});
      }
    }
    pool.emit();
    code_.finish();
    for (const Start& s : starts) {
      Functions& f = functions_[s.cols];
      const auto function = reinterpret_cast<TileFn>(const_cast<std::uint8_t*>(code_.getCode()) + s.at);
      if (f.tile == nullptr) f.tile = function, f.pixels = s.pixels;
      if (s.pixels == 1) f.one = function;
    }
    make_table(pixels);
  }

  void run(const region::Memory& memory, const float* sums, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w,
           std::int64_t pixels, std::int64_t cols) const override {
    TileArgs args;
    args.table = table_.data();
    args.x = reinterpret_cast<const std::byte*>(sums);
    streams_.place(args.stream, e_, memory, n, h, w, c);
    const Functions& f = functions_.at(cols);
    // The table goes on where the last call left it, the sums do not: their column of the table counts floats of one channel.
    args.tiles = pixels / f.pixels;
    if (args.tiles > 0) f.tile(&args);
    args.tiles = pixels % f.pixels;
    if (args.tiles > 0) f.one(&args);
  }

 private:
  struct Functions {
    TileFn tile = nullptr, one = nullptr;
    int pixels = 1;  ///< of `tile`
  };

  std::size_t emit_tile(ConstantPool& pool, std::int64_t cols, int pixels, int vectors) {
    Emitter emitter(code_, pool, e_, false);
    const Tile tile{
        .pixels = pixels, .vectors = vectors, .lanes = e_.lanes, .tail = static_cast<int>(cols - (vectors - 1) * e_.lanes)};
    const bool sums = std::any_of(e_.code.begin(), e_.code.end(), [](const Instr& i) { return i.op == program::Op::acc_f; });
    return emit_tile_loop(code_, emitter, tile, e_.columns, [&] {
      if (!sums) return;
      code_.mov(code_.r8, code_.ptr[code_.rdi + kArgsTable]);
      code_.movsxd(code_.r8, code_.dword[code_.r8]);
      code_.imul(code_.r8, code_.r8, static_cast<int>(cols));
      code_.add(code_.r8, code_.ptr[code_.rdi + kArgsX]);
      for (int p = 0; p < pixels; ++p) {
        for (int v = 0; v < vectors; ++v)
          code_.vmovups(vector_register(e_.lanes, tile.acc(p, v)),
                        code_.ptr[code_.r8 + (p * static_cast<int>(cols) + v * e_.lanes) * 4]);
      }
    });
  }

  /// Column 0: 4 * pixel; times `cols`, where its sums are.
  void make_table(std::int64_t pixels) {
    const auto columns = static_cast<std::size_t>(e_.columns);
    table_.resize(static_cast<std::size_t>(pixels) * columns);
    for (std::int64_t k = 0; k < pixels; ++k) {
      std::int32_t* row = table_.data() + static_cast<std::size_t>(k) * columns;
      row[0] = static_cast<std::int32_t>(4 * k);
      streams_.fill_columns(row, e_, 0, k);
    }
  }

  Streams streams_;
  LoweredEpilogue e_;
  Code code_;
  std::map<std::int64_t, Functions> functions_;  ///< by columns
  std::vector<std::int32_t> table_;
};

}  // namespace

Reasons why_not_generated(const region::Stage& stage, Isa isa) {
  if (isa < Isa::avx2) return unmet("instruction set", name_of(isa), "avx2");
  if (auto why = why_repeated(stage); !why.empty()) return why;
  LoweredEpilogue e;
  return lower(stage, false, false, e, isa >= Isa::avx512 ? 16 : 8);
}

Result<std::unique_ptr<GeneratedEpilogue>> generated_epilogue(const region::Stage& stage, Isa isa,
                                                              const std::vector<std::int64_t>& widths, std::int64_t pixels) {
  if (!why_not_generated(stage, isa).empty()) return std::unique_ptr<GeneratedEpilogue>();
  LoweredEpilogue e;
  (void)lower(stage, false, false, e, isa >= Isa::avx512 ? 16 : 8);
  multiply_in_erf(e);
  return make_generated<SumsEpilogue, GeneratedEpilogue>(stage, std::move(e), widths, pixels);
}

}  // namespace octavo::cpu
