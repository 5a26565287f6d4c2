// cpu.copy.strided: regions that only move elements between strided tensors, any type. Runs along memory are copied as such; a
// transpose goes by blocks in registers: 16 x 16 bytes, words 4 x 4, or 16 x 16 where the processor has AVX-512; the rest element
// by element. Runs along memory: baseline SSE2 is enough to be limited by memory.
#include <algorithm>
#include <cstring>

#include "cpu/copy_bytes.h"
#include "cpu/family.h"
#include "cpu/table.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace octavo::cpu {
namespace {

struct Move {
  std::vector<std::int64_t> dims, from, to;  // strides in bytes; the last dimension is the inner one
  std::int64_t from_offset = 0, to_offset = 0;
  region::BufferId from_buffer = -1, to_buffer = -1;
  std::int64_t size = 1;  // bytes of an element: 1, 2 or 4
};

// 8-byte elements are two words; other types are their bits.
region::TensorRef as_words(const region::TensorRef& ref) {
  region::TensorRef r = ref;
  switch (ir::size_of(ref.dtype)) {
    case 1: r.dtype = ir::DType::u8; break;
    case 2: r.dtype = ir::DType::f16; break;
    case 4: r.dtype = ir::DType::s32; break;
    default:
      r.dtype = ir::DType::s32;
      r.dims.push_back(2);
      for (auto& s : r.strides) s *= 2;
      r.strides.push_back(1);
  }
  return r;
}

Result<Move> find_move(const Stage& stage) {
  const bool anchored = !stage.anchor.none();
  const region::TensorRef& source = anchored ? stage.anchor.inputs[0] : stage.operands[0].ref;
  std::vector<std::int64_t> div = anchored ? std::vector<std::int64_t>{} : stage.operands[0].div;
  Stage words;
  words.operands.push_back({as_words(source), div});
  words.stores.push_back(as_words(stage.stores[0]));
  if (anchored && source.dims != stage.stores[0].dims) {
    return refuse("shape of the store", ir::to_string(stage.stores[0].dims), ir::to_string(source.dims));
  }
  words.space = stage.space;
  if (words.stores[0].dims.size() > stage.space.size()) {
    words.space.push_back(2);
    if (!div.empty()) words.operands[0].div.push_back(1);
  }
  OCTAVO_TRY(Space space, Space::of(words));
  space.split_divisions();
  space.order_and_join();
  if (std::any_of(space.loads[0].div.begin(), space.loads[0].div.end(), [](auto d) { return d != 1; })) {
    return refuse("repetition", "with a rest", "a divisor of the extent of its dimension");
  }
  if (space.dims.empty()) {
    space.dims = {1};
    space.loads[0].strides = space.stores[0].strides = {0};
  }
  const StridedAccess &from = space.loads[0], &to = space.stores[0];
  return Move{space.dims, from.strides, to.strides, from.offset, to.offset, from.buffer, to.buffer, bytes_of(from.elem)};
}

#if defined(__SSE2__)
// 16 rows of 16 bytes, rows and columns exchanged.
void transpose_16x16(std::byte* to, std::int64_t to_row, const std::byte* from, std::int64_t from_row) {
  __m128i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_row));
  for (int round = 0; round < 4; ++round) {  // each round interleaves row i with row i + 8
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
      b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
    }
    std::copy(b, b + 16, a);
  }
  for (int i = 0; i < 16; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * to_row), a[i]);
}
void transpose_4x4_words(std::byte* to, std::int64_t to_row, const std::byte* from, std::int64_t from_row) {
  const auto row = [&](int i) { return _mm_loadu_ps(reinterpret_cast<const float*>(from + i * from_row)); };
  __m128 r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  const auto put = [&](int i, __m128 v) { _mm_storeu_ps(reinterpret_cast<float*>(to + i * to_row), v); };
  put(0, r0);
  put(1, r1);
  put(2, r2);
  put(3, r3);
}
#endif

template <class T>
void copy_elements(std::byte* to, const std::byte* from, std::int64_t n, std::int64_t to_step, std::int64_t from_step) {
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_step, from + i * from_step, sizeof(T));
}
void copy_strided(std::byte* to, const std::byte* from, std::int64_t n, std::int64_t to_step, std::int64_t from_step,
                  std::int64_t size) {
  if (to_step == size && from_step == size) return copy_bytes(to, from, n * size);
  if (size == 1) return copy_elements<std::uint8_t>(to, from, n, to_step, from_step);
  if (size == 2) return copy_elements<std::uint16_t>(to, from, n, to_step, from_step);
  return copy_elements<std::uint32_t>(to, from, n, to_step, from_step);
}

#if defined(__SSE2__)
/// Three planes of words to pixels, four pixels at a time: what image inputs are turned by. Returns how many pixels were moved.
std::int64_t interleave_3_words(std::byte* to, const std::byte* from, std::int64_t plane, std::int64_t pixels) {
  std::int64_t i = 0;
  for (; i + 4 <= pixels; i += 4, to += 48) {
    const auto row = [&](std::int64_t k) { return _mm_loadu_ps(reinterpret_cast<const float*>(from + k * plane + i * 4)); };
    const __m128 a = row(0), b = row(1), c = row(2), low = _mm_unpacklo_ps(a, b), high = _mm_unpackhi_ps(a, b);
    const auto put = [&](int k, __m128 v) { _mm_storeu_ps(reinterpret_cast<float*>(to + k * 16), v); };
    put(0, _mm_shuffle_ps(low, _mm_shuffle_ps(c, a, _MM_SHUFFLE(1, 1, 0, 0)), _MM_SHUFFLE(2, 0, 1, 0)));   // a0 b0 c0 a1
    put(1, _mm_shuffle_ps(_mm_shuffle_ps(b, c, _MM_SHUFFLE(1, 1, 1, 1)), high, _MM_SHUFFLE(1, 0, 2, 0)));  // b1 c1 a2 b2
    put(2, _mm_shuffle_ps(_mm_shuffle_ps(c, high, _MM_SHUFFLE(2, 2, 2, 2)), _mm_shuffle_ps(high, c, _MM_SHUFFLE(3, 3, 3, 3)),
                          _MM_SHUFFLE(2, 0, 2, 0)));  // c2 a3 b3 c3
  }
  return i;
}
#endif

// `to` runs along the inner dimension, `from` along `other` dimension.
struct Transpose {
  std::int64_t inner, outer;                // extents
  std::int64_t from_inner, to_outer, size;  // strides in bytes (from's along outer and to's along inner are `size`)
  TransposeWords words16 = nullptr;         // 16 x 16 words, where the processor has a kernel for them
};
// One tile: `outer` x `inner` elements, whole register blocks first.
void transpose_tile(std::byte* to, const std::byte* from, const Transpose& t) {
  std::int64_t o = 0;
#if defined(__SSE2__)
  const std::int64_t block = t.size == 1 || (t.words16 != nullptr && t.outer >= 16 && t.inner >= 16) ? 16 : 4;
  for (; t.size != 2 && o + block <= t.outer; o += block) {
    std::int64_t i = 0;
    for (; i + block <= t.inner; i += block) {
      std::byte* const d = to + o * t.to_outer + i * t.size;
      const std::byte* const s = from + o * t.size + i * t.from_inner;
      if (t.size == 1) {
        transpose_16x16(d, t.to_outer, s, t.from_inner);
      } else if (block == 16) {
        t.words16(d, t.to_outer, s, t.from_inner);
      } else {
        transpose_4x4_words(d, t.to_outer, s, t.from_inner);
      }
    }
    for (std::int64_t k = o; i < t.inner && k < o + block; ++k) {
      copy_strided(to + k * t.to_outer + i * t.size, from + k * t.size + i * t.from_inner, t.inner - i, t.size, t.from_inner,
                   t.size);
    }
  }
#endif
  for (; o < t.outer; ++o) copy_strided(to + o * t.to_outer, from + o * t.size, t.inner, t.size, t.from_inner, t.size);
}

// Tiles of whole cache lines on both sides, so that no line is fetched twice. Where `to` begins within a line, so does the first
// tile: a store across two lines that are not in cache is several times as slow.
void transpose(std::byte* to, const std::byte* from, Transpose t) {
#if defined(__SSE2__)
  if (t.inner == 3 && t.size == 4 && t.to_outer == 12) {
    const std::int64_t done = interleave_3_words(to, from, t.from_inner, t.outer);
    to += done * t.to_outer, from += done * t.size, t.outer -= done;
  }
#endif
  const std::int64_t line = 64 / t.size;
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % 64);
  const std::int64_t head = past % t.size == 0 ? (64 - past) % 64 / t.size : 0;
  for (std::int64_t o = 0; o < t.outer; o += line) {
    for (std::int64_t i = 0, next = head > 0 ? head : line; i < t.inner; i = next, next += line) {
      Transpose tile = t;
      tile.outer = std::min(line, t.outer - o);
      tile.inner = std::min(next, t.inner) - i;
      transpose_tile(to + o * t.to_outer + i * t.size, from + o * t.size + i * t.from_inner, tile);
    }
  }
}

class CopyKernel final : public TaskedKernel {
 public:
  explicit CopyKernel(Move move) : m_(std::move(move)) {
    const std::size_t inner = m_.dims.size() - 1;
    if (m_.from[inner] != m_.size && m_.to[inner] == m_.size) {
      for (std::size_t k = 0; k < inner; ++k) {
        if (m_.from[k] == m_.size && m_.dims[k] > 1) other_ = static_cast<int>(k);
      }
    }
    // Tasks cut a transpose where its pixels are far apart, as the kernels before it do: each thread reads rows that it wrote
    // itself. Else they cut the outermost large dimension; one run when there is none.
    std::int64_t bytes = m_.size;
    for (const auto d : m_.dims) bytes *= d;
    const bool by_pixels = other_ >= 0 && m_.dims[inner] >= 512;
    if (by_pixels) cut_ = static_cast<int>(inner);
    for (std::size_t k = 0; !by_pixels && k < m_.dims.size(); ++k) {
      if (cut_ < 0 || m_.dims[k] > m_.dims[static_cast<std::size_t>(cut_)]) {
        if (k != inner || m_.dims.size() == 1) cut_ = static_cast<int>(k);
      }
      if (cut_ >= 0 && m_.dims[static_cast<std::size_t>(cut_)] >= 16) break;
    }
    tasks_ = even_tasks(bytes, 65536, m_.dims[static_cast<std::size_t>(cut_)], 64);
    empty_ = bytes == 0;
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker&) const override {
    if (empty_) return;
    std::vector<std::int64_t> dims = m_.dims;
    const auto cut = static_cast<std::size_t>(cut_);
    const std::int64_t begin = m_.dims[cut] * task_begin / tasks_, end = m_.dims[cut] * task_end / tasks_;
    if (begin == end) return;
    dims[cut] = end - begin;
    walk(memory.base[static_cast<std::size_t>(m_.to_buffer)] + m_.to_offset + begin * m_.to[cut],
         memory.base[static_cast<std::size_t>(m_.from_buffer)] + m_.from_offset + begin * m_.from[cut], dims, 0);
  }

 private:
  void walk(std::byte* to, const std::byte* from, const std::vector<std::int64_t>& dims, std::size_t k) const {
    const std::size_t inner = dims.size() - 1;
    if (static_cast<int>(k) == other_) return walk(to, from, dims, k + 1);
    if (k == inner) {
      if (other_ >= 0) {
        const auto o = static_cast<std::size_t>(other_);
        return transpose(to, from, {dims[inner], dims[o], m_.from[inner], m_.to[o], m_.size, words16_});
      }
      return copy_strided(to, from, dims[inner], m_.to[inner], m_.from[inner], m_.size);
    }
    if (k + 1 == inner && other_ < 0 && m_.to[inner] == m_.size && m_.from[inner] == m_.size) {
      const std::int64_t bytes = dims[inner] * m_.size;
      for (std::int64_t i = 0; i < dims[k]; ++i) copy_bytes(to + i * m_.to[k], from + i * m_.from[k], bytes);
      return;
    }
    for (std::int64_t i = 0; i < dims[k]; ++i) walk(to + i * m_.to[k], from + i * m_.from[k], dims, k + 1);
  }

  Move m_;
  int other_ = -1;  // the dimension that `from` walks contiguously when it is not the inner one
  int cut_ = -1;
  bool empty_ = false;
  TransposeWords words16_ = kernel_table(best_isa()) != nullptr ? kernel_table(best_isa())->transpose_words : nullptr;
};

class CopyFamily final : public KernelFamily<Move, CopyKernel> {
 public:
  CopyFamily() : KernelFamily({.name = "copy.strided", .levels = kAnyIsa}) {}
  bool about(const Region& r) const override {
    if (r.stages.size() != 1 || only(r).stores.size() != 1) return false;
    const Stage& s = only(r);
    if (s.anchor.op == ir::Op::reshape && s.program.code.empty()) return !s.anchor.inputs.empty();
    if (!s.anchor.none() || s.operands.size() != 1 || s.program.outputs.size() != 1) return false;
    const program::Instr& t = s.program.code[static_cast<std::size_t>(s.program.outputs[0].value)];
    return (t.op == program::Op::load_i || t.op == program::Op::load_f) && s.operands[0].ref.dtype == s.stores[0].dtype;
  }
  Match<Move> match(const Request& q) const override { return find_move(only(q.region)); }
  double cost(const Move& move, Isa) const override {
    const bool run = move.from.back() == move.size && move.to.back() == move.size;
    return 0.1e-6 + static_cast<double>(ir::count(move.dims) * move.size) * (run ? 0.05e-9 : 0.04e-9);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(copy, CopyFamily)

}  // namespace octavo::cpu
