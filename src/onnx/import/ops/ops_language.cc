// Operators that ONNX Runtime's tools write for language models: products by weights of a few bits, and attention with fewer heads of keys than of
// queries over a cache.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "ir/block_codes.h"
#include "onnx/import/heads.h"
#include "onnx/import/lower.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

struct Packing {
  std::int64_t k, n, bits, block, blocks;  ///< of the matrix [k,n]; so many weights of a column have one scale
  [[nodiscard]] std::int64_t column_bytes() const { return blocks * block * bits / 8; }
  [[nodiscard]] std::int64_t zero_bytes() const { return (blocks * bits + 7) / 8; }
};

/// Number i of a row of numbers of 2, 4 or 8 bits, the lowest bits of a byte first.
inline int unpacked(const std::uint8_t* row, std::int64_t i, std::int64_t bits) {
  const std::int64_t each = 8 / bits;
  return row[i / each] >> (i % each * bits) & ((1 << bits) - 1);
}

/// Operands 1, 2 and 3 of MatMulNBits.
ir::BlockCodes block_codes(const Packing& p, const std::uint8_t* codes, const Tensor& scales, const std::uint8_t* zeros,
                           const Tensor& float_zeros) {
  ir::BlockCodes out{static_cast<int>(p.bits), std::min(p.block, p.k), Tensor(DType::u8, {p.n, p.k}), scales,
                     Tensor(DType::f32, {p.n, p.blocks})};
  const auto to = out.codes.mutable_data<std::uint8_t>();
  const auto zero = out.zeros.mutable_data<float>();
  for (std::int64_t j = 0; j < p.n; ++j) {
    for (std::int64_t i = 0; i < p.k; ++i)
      to[static_cast<std::size_t>(j * p.k + i)] = static_cast<std::uint8_t>(unpacked(codes + j * p.column_bytes(), i, p.bits));
    for (std::int64_t b = 0; b < p.blocks; ++b) {
      const auto at = static_cast<std::size_t>(j * p.blocks + b);
      zero[at] = !float_zeros.empty() ? float_zeros.data<float>()[at]
                 : zeros != nullptr   ? static_cast<float>(unpacked(zeros + j * p.zero_bytes(), b, p.bits))
                                      : static_cast<float>(1 << (p.bits - 1));
    }
  }
  return out;
}

/// A, B (codes of each column, packed), scales, (zero_points, g_idx, bias): A times the matrix that B and its scales say.
Status matmul_n_bits(NodeContext& n) {
  Compose c(n);
  n.ignore({"accuracy_level"});  // a permission to round A, which is not used
  Packing p{n.attr_int("K", 0), n.attr_int("N", 0), n.attr_int("bits", 4), n.attr_int("block_size", 0), 0};
  if (p.bits != 2 && p.bits != 4 && p.bits != 8) return n.unsupported("weights of {} bits; 2, 4 and 8 are covered", p.bits);
  constexpr std::int64_t kMost = INT32_MAX;  // what is computed of them stays within 64 bits
  if (p.k < 1 || p.n < 1 || p.block < 1 || std::max({p.k, p.n, p.block}) > kMost || p.block * p.bits % 8 != 0)
    return n.bad("K {}, N {}, block_size {} of {} bits", p.k, p.n, p.block, p.bits);
  p.blocks = (p.k + p.block - 1) / p.block;
  if (n.has(4)) return n.unsupported("g_idx, an order of its own for the rows; quantize the model again without it");
  OCTAVO_CHECK(n.need_rank(0, 1));
  if (n.shape(0).back() != p.k) return n.bad("A is {}, needs rows of K = {}", ir::to_string(n.shape(0)), p.k);
  for (std::size_t i = 1; i < 4; ++i) {
    if (n.has(i) && n.constant(i) == nullptr)
      return n.unsupported("\"{}\" is computed at run time; weights of a few bits must be constant", n.input_name(i));
  }
  const Tensor& codes = *n.constant(1);
  if (codes.dtype() != DType::u8 || codes.size() != p.n * p.column_bytes())
    return n.bad("B is {} {}, needs u8 [{},{},{}]", ir::name_of(codes.dtype()), ir::to_string(codes.shape()), p.n, p.blocks,
                 p.block * p.bits / 8);
  const Tensor scales = n.constant(2)->to_f32();
  if (scales.size() != p.n * p.blocks)
    return n.bad("the scales are {}, needs [{},{}]", ir::to_string(scales.shape()), p.n, p.blocks);
  const bool float_zeros = n.has(3) && n.constant(3)->dtype() != DType::u8;
  const std::int64_t zeros = p.n * (float_zeros ? p.blocks : p.zero_bytes());
  if (n.has(3) && n.constant(3)->size() != zeros)
    return n.bad("the zero points are {}, needs {} of them", ir::to_string(n.constant(3)->shape()), zeros);
  if (!c.fits({p.k, p.n})) return c.status();
  const Tensor zero = float_zeros ? n.constant(3)->to_f32() : Tensor();
  auto weights = std::make_shared<const ir::BlockCodes>(
      block_codes(p, codes.data<std::uint8_t>().data(), scales.reshaped({p.n, p.blocks}),
                  n.has(3) && !float_zeros ? n.constant(3)->data<std::uint8_t>().data() : nullptr, zero));
  OCTAVO_TRY(ValueId y, lower_matmul(n, n.in(0), n.add_constant(ir::values_of(std::move(weights)))));
  if (n.has(5)) y = c.add(y, n.in(5));
  return c.finish(y);
}

struct GroupShape {
  std::int64_t batch, heads, pairs, size, queries, past, keys;  ///< pairs: heads of keys and values; keys: past and queries
};

/// 0 where query i may attend key j, else the least number: [queries, keys].
ValueId causal(Compose& c, const GroupShape& s, std::int64_t window) {
  if (!c.fits({s.queries, s.keys})) return ir::kNone;
  Tensor bias(DType::f32, {s.queries, s.keys});
  for (std::int64_t i = 0; i < s.queries; ++i) {
    for (std::int64_t j = 0; j < s.keys; ++j) {
      const std::int64_t behind = i + s.past - j;
      bias.mutable_data<float>()[static_cast<std::size_t>(i * s.keys + j)] =
          behind < 0 || (window >= 0 && behind >= window) ? std::numeric_limits<float>::lowest() : 0.0F;
    }
  }
  return c.constant(std::move(bias));
}

/// query, (key, value, past_key, past_value), seqlens_k, total_sequence_length, (cos_cache, sin_cache, position_ids, attention_bias). Where the
/// sequence begins is known when the model is imported: total_sequence_length less the queries, which seqlens_k only repeats for one sequence.
Status group_query_attention(NodeContext& n) {
  Compose c(n);
  GroupShape s{};
  s.heads = n.attr_int("num_heads", 0), s.pairs = n.attr_int("kv_num_heads", 0);
  const float scale_given = n.attr_float("scale", 0.0F), cap = n.attr_float("softcap", 0.0F);
  const std::int64_t window = n.attr_int("local_window_size", -1);
  const bool rotary = n.attr_int("do_rotary", 0) != 0, interleaved = n.attr_int("rotary_interleaved", 0) != 0;
  n.ignore({"kv_cache_bit_width"});
  if (n.attr_int("smooth_softmax", 0) > 0 || n.has(11)) return n.unsupported("smooth_softmax and head_sink; export without them");
  if (n.attr_text("k_quant_type", "NONE") != "NONE" || n.attr_text("v_quant_type", "NONE") != "NONE" || n.has(12) || n.has(13))
    return n.unsupported("a cache of codes (k_quant_type, v_quant_type); export with a cache of floats");
  if (n.attr_int("qk_output", 0) != 0 || n.wants(3))
    return n.unsupported("result 3, the scores; remove it from the model's outputs");
  if (!n.has(5) || !n.has(6)) return n.bad("seqlens_k and total_sequence_length are missing");
  if (n.has(1) != n.has(2) || n.has(3) != n.has(4)) return n.bad("key and value, past_key and past_value come together");
  OCTAVO_CHECK(n.need_rank(0, 3, 3));
  const Shape given = n.shape(0);
  const std::int64_t shares = n.has(1) ? s.heads : s.heads + 2 * s.pairs;
  if (s.pairs < 1 || s.heads < 1 || s.heads % s.pairs != 0 || given[2] % shares != 0)
    return n.bad("num_heads {} and kv_num_heads {} for a query {}", s.heads, s.pairs, ir::to_string(given));
  s.batch = given[0], s.queries = given[1], s.size = given[2] / shares;
  OCTAVO_TRY(s.keys, n.constant_integer(6, "total_sequence_length"));
  if (s.keys < s.queries) return n.bad("total_sequence_length is {}, for {} queries", s.keys, s.queries);
  s.past = s.keys - s.queries;
  if (s.past > 0 && s.batch != 1)
    return n.unsupported("{} sequences behind a cache, which may have different lengths; build for a batch of 1", s.batch);
  const auto part = [&](std::int64_t first, std::int64_t heads) {
    return heads_apart(c, n.has(1) ? n.in(0) : c.slice(n.in(0), 2, first * s.size, (first + heads) * s.size), heads);
  };
  for (const std::size_t i : {1U, 2U}) {
    if (n.has(i) && n.shape(i) != Shape{s.batch, s.queries, s.pairs * s.size})
      return n.bad("input {} is {}, needs [{},{},{}]", i, ir::to_string(n.shape(i)), s.batch, s.queries, s.pairs * s.size);
  }
  ValueId q = part(0, s.heads);
  ValueId k = n.has(1) ? heads_apart(c, n.in(1), s.pairs) : part(s.heads, s.pairs);
  ValueId v = n.has(1) ? heads_apart(c, n.in(2), s.pairs) : part(s.heads + s.pairs, s.pairs);
  if (rotary) {
    if (!n.has(7) || !n.has(8)) return n.bad("do_rotary without cos_cache and sin_cache");
    const auto table = [&](std::size_t i) {
      const Shape rows = n.shape(i);
      if (rows.size() != 2 || rows[0] < s.keys || rows[1] < 1 || 2 * rows[1] > s.size) {
        c.fail(n.bad("input {} is {}, needs [{} or more, at most {}]", i, ir::to_string(rows), s.keys, s.size / 2).value());
        return ir::kNone;
      }
      if (!n.has(9)) return c.reshape(c.slice(n.in(i), 0, s.past, s.keys), {1, 1, s.queries, rows[1]});
      return c.reshape(looked_up(c, n.in(i), n.in(9)), {s.batch, 1, s.queries, rows[1]});
    };
    const ValueId cosine = table(7), sine = table(8);
    OCTAVO_CHECK(c.status());
    const Rotation by{cosine, sine, interleaved, 2 * c.shape(cosine)[3]};
    q = rotated(c, q, by), k = rotated(c, k, by);
  }
  std::int64_t room = 0;  // of the cache that comes in
  if (n.has(3)) {
    for (const std::size_t i : {3U, 4U}) {
      const Shape cache = n.shape(i);
      if (cache.size() != 4 || cache != Shape{s.batch, s.pairs, cache[2], s.size} || cache[2] < s.past || cache[2] != n.shape(3)[2])
        return n.bad("input {} is {}, needs [{},{},{} or more,{}]", i, ir::to_string(cache), s.batch, s.pairs, s.past, s.size);
    }
    room = n.shape(3)[2];
  } else if (s.past > 0) {
    return n.bad("total_sequence_length is {}, for {} queries and no cache", s.keys, s.queries);
  }
  if (s.past > 0) k = c.concat({c.slice(n.in(3), 2, 0, s.past), k}, 2), v = c.concat({c.slice(n.in(4), 2, 0, s.past), v}, 2);
  const auto present = [&](ValueId now) {  // as long as the cache that came in
    return room > s.keys ? c.concat({now, c.filled(DType::f32, {s.batch, s.pairs, room - s.keys, s.size}, 0)}, 2) : now;
  };
  n.set(1, present(k));
  n.set(2, present(v));
  const double scale = scale_given != 0 ? static_cast<double>(scale_given) : 1 / std::sqrt(static_cast<double>(s.size));
  const std::int64_t each = s.heads / s.pairs;
  const bool together = s.queries == 1;  // the queries of a group meet its keys as rows of one product
  if (together) {
    q = c.reshape(q, {s.batch, s.pairs, each, s.size});
  } else {
    k = c.repeat(k, 1, each), v = c.repeat(v, 1, each);
  }
  ValueId scores = c.matmul(q, c.transpose(k, {0, 1, 3, 2}));
  scores = c.mul(scores, c.number(scale, scores));
  if (cap > 0) {
    const ValueId most = c.number(static_cast<double>(cap), scores);
    scores = c.mul(c.op(Op::tanh, {c.div(scores, most)}), most);
  }
  if (!together || (window >= 0 && s.keys > window)) scores = c.add(scores, causal(c, s, window));
  if (n.has(10)) {
    const Shape all{s.batch, s.heads, s.queries, s.keys}, bias = n.shape(10);
    if (bias.size() != 4 || (bias[0] != 1 && bias[0] != s.batch) || (bias[1] != 1 && bias[1] != s.heads) || bias[2] != s.queries ||
        bias[3] != s.keys)
      return n.bad("attention_bias is {}, for scores of {}", ir::to_string(bias), ir::to_string(all));
    const Shape grouped{bias[0], bias[1] == 1 ? 1 : s.pairs, bias[1] == 1 ? 1 : each, s.keys};
    scores = c.add(scores, together ? c.reshape(n.in(10), grouped) : n.in(10));
  }
  ValueId y = c.matmul(c.softmax(scores, 3), v);
  if (together) y = c.reshape(y, {s.batch, s.heads, 1, s.size});
  return c.finish(heads_together(c, y));
}

constexpr std::array kLanguageRows{
    OpRow{"MatMulNBits", kMicrosoft, 1, 0, 3, 6, matmul_n_bits},
    OpRow{"GroupQueryAttention", kMicrosoft, 1, 0, 1, 14, group_query_attention},
};

}  // namespace

Family language_ops() {
  return kLanguageRows;
}

}  // namespace octavo::onnx
