// Attention and embeddings of com.microsoft, as ONNX Runtime's transformer optimizer writes them: products, softmax and normalization,
// so that the planner sees what exporters spell out. Scores are multiplied by the scale behind the product, as ONNX Runtime does.
#include <array>
#include <cmath>
#include <limits>

#include "onnx/import/heads.h"
#include "onnx/import/lower.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

struct Extents {
  std::int64_t batch, heads, queries, keys, past;
};

/// a times b, integer where b is a weight in codes.
ValueId product(NodeContext& n, Compose& c, ValueId a, ValueId b) {
  if (!c.ok()) return a;
  const Result<ValueId> y = lower_matmul(n, a, b);
  if (!y) c.fail(y.error());
  return y ? *y : a;
}

/// 0 where a key may be attended, `filter` elsewhere: [b,1,1 or q,k]. Operand i is how many keys are valid, [b]; those and where they begin,
/// [2b]; or 1 for each valid key, [b,k] or [b,q,k]. By arithmetic on numbers, which is exact and runs in vector kernels.
Result<ValueId> padding_bias(NodeContext& n, Compose& c, std::size_t i, const Extents& e, double filter) {
  const Shape given = n.shape(i);
  const ValueId mask = c.cast(n.in(i), DType::f32), zero = c.filled(DType::f32, {}, 0), one = c.filled(DType::f32, {}, 1);
  const auto above_zero = [&](ValueId v) { return c.op(Op::clip, {v}, {{"min", 0.0}, {"max", 1.0}}); };  // of whole numbers: 0 or 1
  ValueId valid = ir::kNone;
  if (given == Shape{e.batch, e.keys}) {
    valid = above_zero(c.reshape(mask, {e.batch, 1, 1, e.keys}));
  } else if (given == Shape{e.batch, e.queries, e.keys}) {
    valid = above_zero(c.reshape(mask, {e.batch, 1, e.queries, e.keys}));
  } else if (given == Shape{e.batch} || given == Shape{2 * e.batch}) {
    const auto part = [&](std::int64_t k) {
      return c.reshape(c.slice(mask, 0, k * e.batch, (k + 1) * e.batch), {e.batch, 1, 1, 1});
    };
    const ValueId key = c.cast(c.counting(e.keys, 3, 4), DType::f32);
    valid = above_zero(c.sub(part(0), key));
    if (given != Shape{e.batch}) valid = c.mul(valid, above_zero(c.sub(c.add(key, one), part(1))));
  } else {
    return n.unsupported(
        "the mask \"{}\" is {}, for a batch of {}, {} queries and {} keys: neither lengths nor a 1 for each valid key; optimize "
        "the "
        "model again with --use_raw_attention_mask",
        n.input_name(i), ir::to_string(given), e.batch, e.queries, e.keys);
  }
  if (std::isinf(filter)) return c.where(c.less(zero, valid), zero, c.filled(DType::f32, {}, filter));
  return c.mul(c.sub(one, valid), c.filled(DType::f32, {}, filter));
}

/// 0 where the key is not behind the query, else the least number: [q,k].
ValueId causal_bias(Compose& c, const Extents& e) {
  if (!c.fits({e.queries, e.keys})) return ir::kNone;
  Tensor bias(DType::f32, {e.queries, e.keys});
  for (std::int64_t q = 0; q < e.queries; ++q) {
    for (std::int64_t k = 0; k < e.keys; ++k) {
      bias.mutable_data<float>()[static_cast<std::size_t>(q * e.keys + k)] =
          k > q + e.past ? std::numeric_limits<float>::lowest() : 0.0F;
    }
  }
  return c.constant(std::move(bias));
}

/// Which operands the masks are.
struct Masks {
  std::size_t padding, bias;
};

/// softmax(q k' * scale + masks) v of heads [b,h,t,d], with the attributes of the node; [b,t,h*d].
Status attend(NodeContext& n, Compose& c, ValueId q, ValueId k, ValueId v, std::int64_t past, Masks masks) {
  const float given = n.attr_float("scale", 0.0F);
  const auto filter = static_cast<double>(n.attr_float("mask_filter_value", -10000.0F));
  const bool causal = n.attr_int("unidirectional", 0) != 0;
  OCTAVO_CHECK(c.status());
  const Shape queries = c.shape(q), keys = c.shape(k);
  const Extents e{queries[0], queries[1], queries[2], keys[2], past};
  const double scale = given != 0 ? static_cast<double>(given) : 1 / std::sqrt(static_cast<double>(queries[3]));
  // One sum of masks, the same in every layer: it is computed once, and added where the product is made.
  ValueId mask = causal ? causal_bias(c, e) : ir::kNone;
  if (n.has(masks.padding)) {
    OCTAVO_TRY(const ValueId padding, padding_bias(n, c, masks.padding, e, filter));
    mask = causal ? c.add(padding, mask) : padding;
  }
  ValueId scores = c.matmul(q, c.transpose(k, {0, 1, 3, 2}));
  scores = c.mul(scores, c.number(scale, scores));
  if (mask != ir::kNone) scores = c.add(scores, mask);
  if (n.has(masks.bias)) {
    OCTAVO_CHECK(n.need_rank(masks.bias, 4, 4));
    scores = c.add(scores, n.in(masks.bias));
    if (c.ok() && c.shape(scores) != Shape{e.batch, e.heads, e.queries, e.keys})
      return n.bad("attention_bias is {}, for scores of [{},{},{},{}]", ir::to_string(n.shape(masks.bias)), e.batch, e.heads,
                   e.queries, e.keys);
  }
  return c.finish(heads_together(c, c.matmul(c.softmax(scores, 3), v)));
}

/// The queries, keys and values that one product makes, side by side in the columns of its weights.
struct Packed {
  std::array<std::int64_t, 3> widths{};
  std::array<ValueId, 3> parts{};  ///< [b,t,width]
};

/// From the node's attributes; the weights have `columns`.
Result<Packed> packed_widths(NodeContext& n, std::int64_t heads, std::int64_t columns) {
  const Ints given = n.attr_ints("qkv_hidden_sizes");
  Packed p;
  if (given.empty()) {
    if (columns % 3 != 0) return n.bad("the weights have {} columns, which are no three times the same", columns);
    p.widths.fill(columns / 3);
  } else if (given.size() == 3 && given[0] == given[1] && given[0] > 0 && given[2] > 0 && given[0] <= columns / 2 &&
             given[2] == columns - 2 * given[0]) {
    std::copy(given.begin(), given.end(), p.widths.begin());
  } else {
    return n.bad("qkv_hidden_sizes {} for weights of {} columns", ir::to_string(given), columns);
  }
  for (const std::int64_t w : p.widths) {
    if (heads < 1 || w < 1 || w % heads != 0) return n.bad("num_heads {} for {} features", heads, w);
  }
  return p;
}

/// Attention behind its projection: past [2,b,h,p,d] stands before the keys and values; both are result 1.
Status attend_packed(NodeContext& n, Compose& c, const Packed& p, std::int64_t heads, std::size_t past_at, Masks masks) {
  const ValueId q = heads_apart(c, p.parts[0], heads);
  ValueId k = heads_apart(c, p.parts[1], heads), v = heads_apart(c, p.parts[2], heads);
  OCTAVO_CHECK(c.status());
  std::int64_t past = 0;
  if (n.has(past_at)) {
    const Shape s = n.shape(past_at), now = c.shape(k);
    if (s.size() != 5 || s != Shape{2, now[0], heads, s[3], now[3]} || c.shape(v)[3] != now[3])
      return n.bad("past is {}, needs [2,{},{},length,{}]", ir::to_string(s), now[0], heads, now[3]);
    past = s[3];
    const auto before = [&](std::int64_t i) {
      return c.reshape(c.slice(n.in(past_at), 0, i, i + 1), Shape(s.begin() + 1, s.end()));
    };
    k = c.concat({before(0), k}, 2);
    v = c.concat({before(1), v}, 2);
  }
  OCTAVO_CHECK(c.status());
  if (n.wants(1)) {
    if (c.shape(k) != c.shape(v))
      return n.bad("present needs keys and values of one shape, not {} and {}", ir::to_string(c.shape(k)),
                   ir::to_string(c.shape(v)));
    Shape one = c.shape(k);
    one.insert(one.begin(), 1);
    n.set(1, c.concat({c.reshape(k, one), c.reshape(v, one)}, 0));
  }
  return attend(n, c, q, k, v, past, masks);
}

/// What no form here covers: a buffer that past and present share, and rotation inside.
Status refuse_shared_buffer(NodeContext& n, std::size_t past_length) {
  if (n.attr_int("past_present_share_buffer", 0) != 0 || n.has(past_length))
    return n.unsupported("past and present in one buffer; export the model without past_present_share_buffer");
  if (n.attr_int("do_rotary", 0) != 0)
    return n.unsupported("rotation inside the operator (do_rotary); optimize the model again with --disable_attention");
  n.ignore({"rotary_embedding_dim"});
  return {};
}

/// input, weights, (bias, mask_index, past, attention_bias, past_sequence_length)
Status packed_attention(NodeContext& n) {
  Compose c(n);
  OCTAVO_CHECK(refuse_shared_buffer(n, 6));
  OCTAVO_CHECK(n.need_rank(0, 3, 3));
  OCTAVO_CHECK(n.need_rank(1, 2, 2));
  const std::int64_t heads = n.attr_int("num_heads", 0), columns = n.shape(1)[1];
  if (n.has(2) && n.shape(2) != Shape{columns}) return n.bad("the bias is {}, needs [{}]", ir::to_string(n.shape(2)), columns);
  OCTAVO_TRY(Packed p, packed_widths(n, heads, columns));
  // Three products: the weights are cut when the model is imported, and what each product stores is laid out as its reader wants it.
  for (std::size_t i = 0, begin = 0; i < 3; begin += static_cast<std::size_t>(p.widths[i++])) {
    const auto first = static_cast<std::int64_t>(begin), end = first + p.widths[i];
    p.parts[i] = product(n, c, n.in(0), c.slice(n.in(1), 1, first, end));
    if (n.has(2)) p.parts[i] = c.add(p.parts[i], c.slice(n.in(2), 0, first, end));
  }
  return attend_packed(n, c, p, heads, 4, {3, 5});
}

/// input, weights, bias, input_scale, weight_scale, (mask_index, input_zero_point, weight_zero_point, past): Attention of 8-bit codes.
Status quantized_attention(NodeContext& n) {
  Compose c(n);
  OCTAVO_CHECK(refuse_shared_buffer(n, 9));
  OCTAVO_CHECK(n.need_rank(0, 3, 3));
  OCTAVO_CHECK(n.need_rank(1, 2, 2));
  const std::int64_t heads = n.attr_int("num_heads", 0), columns = n.shape(1)[1];
  if (n.shape(2) != Shape{columns}) return n.bad("the bias is {}, needs [{}]", ir::to_string(n.shape(2)), columns);
  OCTAVO_TRY(Packed p, packed_widths(n, heads, columns));
  /// Number of operand `at`, or its entries of some columns.
  const auto number = [&](std::size_t at, std::int64_t begin, std::int64_t end) {
    if (ir::count(n.shape(at)) == 1) return c.reshape(n.in(at), {});
    if (n.shape(at) != Shape{columns})
      c.fail(n.bad("input {} is {}, needs [] or [{}]", at, ir::to_string(n.shape(at)), columns).value());
    return c.slice(n.in(at), 0, begin, end);
  };
  const auto real = [&](ValueId codes, std::size_t scale, std::size_t zero_point, std::int64_t begin, std::int64_t end) {
    ValueId v = c.cast(codes, DType::f32);
    if (n.has(zero_point)) v = c.sub(v, c.cast(number(zero_point, begin, end), DType::f32));
    return c.mul(v, number(scale, begin, end));
  };
  const ValueId x = real(n.in(0), 3, 6, 0, 1);
  for (std::size_t i = 0, begin = 0; i < 3 && c.ok(); begin += static_cast<std::size_t>(p.widths[i++])) {
    const auto first = static_cast<std::int64_t>(begin), end = first + p.widths[i];
    const ValueId y = c.matmul(x, real(c.slice(n.in(1), 1, first, end), 4, 7, first, end));
    p.parts[i] = c.add(y, c.slice(n.in(2), 0, first, end));
  }
  n.declare(0, DType::f32);
  return attend_packed(n, c, p, heads, 8, {5, n.operands()});
}

/// query, (key, value, bias, key_padding_mask, attention_bias, past_key, past_value, past_sequence_length, cache_indirection). Without key the
/// query is [b,t,h,3,d], without value the key is [b,t,h,2,d]; a key [b,h,t,d] comes with such a value, and then the bias is that of the query.
Status multi_head_attention(NodeContext& n) {
  Compose c(n);
  const std::int64_t heads = n.attr_int("num_heads", 0);
  if (n.has(8) || n.has(9))
    return n.unsupported("past and present in one buffer (past_sequence_length, cache_indirection); export the model without it");
  if (n.wants(3)) return n.unsupported("result 3, the scores; remove it from the model's outputs");
  if (n.has(6) != n.has(7)) return n.bad("past_key and past_value must be given together");
  std::array<ValueId, 3> parts{n.in(0), n.in(1), n.in(2)};
  bool apart = false;  // keys and values are heads already
  const auto unpack = [&](ValueId all, std::size_t first) -> Status {
    const Shape s = c.shape(all);
    const auto count = static_cast<std::int64_t>(3 - first);
    if (s.size() != 5 || s[2] != heads || s[3] != count)
      return n.bad("queries, keys and values packed in {}, needs [batch,length,{},{},size]", ir::to_string(s), heads, count);
    for (std::size_t i = first; i < 3; ++i) {
      const auto k = static_cast<std::int64_t>(i - first);
      parts[i] = c.reshape(c.slice(all, 3, k, k + 1), {s[0], s[1], s[2] * s[4]});
    }
    return c.status();
  };
  if (!n.has(1) && n.has(2)) return n.bad("value without key");
  if (!n.has(1)) {
    OCTAVO_CHECK(unpack(n.in(0), 0));
  } else if (!n.has(2)) {
    OCTAVO_CHECK(unpack(n.in(1), 1));
  } else {
    apart = n.rank(1) == 4 && n.rank(2) == 4;
  }
  std::array<std::int64_t, 3> widths{};
  for (std::size_t i = 0; i < 3; ++i) {
    const Shape s = c.shape(parts[i]);
    const bool as_heads = apart && i > 0;
    if (s.size() != (as_heads ? 4U : 3U) || heads < 1 || (as_heads ? s[1] != heads : s[2] % heads != 0) || s.back() < 1)
      return n.bad("operand {} is {}, which does not fit num_heads {}", i, ir::to_string(s), heads);
    widths[i] = as_heads ? heads * s[3] : s[2];
  }
  if (widths[0] != widths[1]) return n.bad("queries of {} features, keys of {}", widths[0], widths[1]);
  if (n.has(3)) {
    if (n.shape(3) != Shape{widths[0] + widths[1] + widths[2]})
      return n.bad("the bias is {}, needs [{}]", ir::to_string(n.shape(3)), widths[0] + widths[1] + widths[2]);
    for (std::size_t i = 0; i < (apart ? 1U : 3U); ++i) {
      const std::int64_t begin = i == 0 ? 0 : static_cast<std::int64_t>(i) * widths[0];
      parts[i] = c.add(parts[i], c.slice(n.in(3), 0, begin, begin + widths[i]));
    }
  }
  const ValueId q = heads_apart(c, parts[0], heads);
  ValueId k = apart ? parts[1] : heads_apart(c, parts[1], heads), v = apart ? parts[2] : heads_apart(c, parts[2], heads);
  OCTAVO_CHECK(c.status());
  std::int64_t past = 0;
  if (n.has(6)) {
    for (const std::size_t i : {6U, 7U}) OCTAVO_CHECK(n.need_rank(i, 4, 4));
    past = n.shape(6)[2];
    k = c.concat({n.in(6), k}, 2);
    v = c.concat({n.in(7), v}, 2);
    OCTAVO_CHECK(c.status());
  }
  if (c.shape(k)[2] != c.shape(v)[2] || c.shape(k)[0] != c.shape(q)[0] || c.shape(v)[0] != c.shape(q)[0])
    return n.bad("{} queries, {} keys and {} values", ir::to_string(c.shape(q)), ir::to_string(c.shape(k)),
                 ir::to_string(c.shape(v)));
  n.set(1, k);
  n.set(2, v);
  return attend(n, c, q, k, v, past, {4, 5});
}

/// input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta, (mask, position_ids). Result 1 is how many
/// entries of the mask are 1, result 2 the sum that is normalized.
Status embed_layer_norm(NodeContext& n) {
  Compose c(n);
  n.ignore({"mask_index_type"});
  for (const std::size_t i : {2U, 3U, 5U, 6U}) {
    if (!n.has(i)) return n.bad("input {} is missing", i);
  }
  for (const std::size_t i : {0U, 2U, 3U}) OCTAVO_CHECK(n.need_rank(i, 2, 2));
  const Shape ids = n.shape(0);
  if (n.has(1) != n.has(4)) return n.bad("segment_ids and segment_embedding must be given together");
  ValueId positions = ir::kNone;
  if (n.has(8)) {
    positions = looked_up(c, n.in(3), n.in(8));
  } else if (n.shape(3)[0] < ids[1]) {
    return n.bad("position_embedding is {}, for {} positions", ir::to_string(n.shape(3)), ids[1]);
  } else {
    positions = c.slice(n.in(3), 0, 0, ids[1]);
  }
  ValueId sum = c.add(looked_up(c, n.in(2), n.in(0)), positions);
  if (n.has(1)) {
    OCTAVO_CHECK(n.need_rank(4, 2, 2));
    sum = c.add(sum, looked_up(c, n.in(4), n.in(1)));
  }
  OCTAVO_CHECK(c.status());
  if (c.shape(sum) != Shape{ids[0], ids[1], n.shape(2)[1]})
    return n.bad("embeddings of {} for ids {}", ir::to_string(c.shape(sum)), ir::to_string(ids));
  if (n.wants(1)) {
    if (n.has(7) && n.shape(7) != ids) return n.bad("the mask is {}, needs {}", ir::to_string(n.shape(7)), ir::to_string(ids));
    const ValueId ones = n.has(7) ? c.cast(c.equal(n.in(7), c.number(1, n.in(7))), DType::s32) : ir::kNone;
    n.set(1, n.has(7) ? c.reduce(Op::reduce_sum, ones, {1}, false) : c.filled(DType::s32, {ids[0]}, 0));
    n.declare(1, DType::s32);
  }
  n.set(2, sum);
  n.declare(0, n.declared(2));
  n.declare(2, n.declared(2));
  const auto epsilon = static_cast<double>(n.attr_float("epsilon", 1e-12F));
  return c.finish(c.op(Op::layer_norm, {sum, n.in(5), n.in(6)}, {{"axis", std::int64_t{2}}, {"epsilon", epsilon}}));
}

/// data + bias, softmax over the dimensions from `axis` on. Which dimensions of the bias repeat is seen from its shape.
Status bias_softmax(NodeContext& n) {
  Compose c(n);
  n.ignore({"is_inner_broadcast"});
  const ValueId sum = c.add(n.in(0), n.in(1));
  OCTAVO_CHECK(c.status());
  if (c.shape(sum) != n.shape(0)) return n.bad("the bias {} does not fit {}", ir::to_string(n.shape(1)), ir::to_string(n.shape(0)));
  return n.result(lower_softmax(n, Op::softmax, sum, n.attr_int("axis", 1), true));
}

/// input, position_ids, cos_cache, sin_cache. One position is that of the first token, the others follow.
Status rotary_embedding(NodeContext& n) {
  Compose c(n);
  const bool interleaved = n.attr_int("interleaved", 0) != 0;
  const std::int64_t dim = n.attr_int("rotary_embedding_dim", 0);
  std::int64_t heads = n.attr_int("num_heads", 0);
  if (n.attr_int("is_packed_batching", 0) != 0)
    return n.unsupported("sequences of several lengths packed in one (is_packed_batching); export the model without packing");
  if (n.attr_float("scale", 1.0F) != 1.0F) return n.unsupported("a scale of positions; multiply the caches' angles by it");
  for (const std::size_t i : {2U, 3U}) OCTAVO_CHECK(n.need_rank(i, 2, 2));
  const Shape x = n.shape(0), table = n.shape(2);
  if ((x.size() != 3 && x.size() != 4) || n.shape(3) != table || table[1] < 1)
    return n.bad("data {} with caches {} and {}", ir::to_string(x), ir::to_string(table), ir::to_string(n.shape(3)));
  const std::int64_t turned = 2 * table[1], batch = x[0], tokens = x.size() == 4 ? x[2] : x[1];
  if (x.size() == 3 && heads < 1) heads = x[2] / turned;
  const std::int64_t size = x.size() == 4 ? x[3] : heads < 1 || x[2] % heads != 0 ? 0 : x[2] / heads;
  if ((dim != 0 && dim != turned) || size < turned)
    return n.bad("caches of {} entries for heads of {} (rotary_embedding_dim {})", table[1], size, dim);
  const Shape given = n.shape(1);
  ValueId positions = n.in(1);
  if (given == Shape{1}) {
    positions = c.add(c.cast(c.counting(tokens, 0, 1), c.dtype(positions)), positions);
  } else if (given != Shape{batch, tokens}) {
    return n.bad("position_ids are {}, needs [1] or [{},{}]", ir::to_string(given), batch, tokens);
  }
  const auto angles = [&](std::size_t i) {
    return c.reshape(looked_up(c, n.in(i), positions), {given.size() == 1 ? 1 : batch, 1, tokens, table[1]});
  };
  const ValueId apart = x.size() == 4 ? n.in(0) : heads_apart(c, n.in(0), heads);
  const ValueId y = rotated(c, apart, {angles(2), angles(3), interleaved, turned});
  return c.finish(x.size() == 4 ? y : heads_together(c, y));
}

constexpr std::array kTransformerRows{
    OpRow{"Attention", kMicrosoft, 1, 0, 2, 7, packed_attention},
    OpRow{"QAttention", kMicrosoft, 1, 0, 5, 9, quantized_attention},
    OpRow{"MultiHeadAttention", kMicrosoft, 1, 0, 1, 10, multi_head_attention},
    OpRow{"EmbedLayerNormalization", kMicrosoft, 1, 0, 1, 9, embed_layer_norm},
    OpRow{"BiasSoftmax", kMicrosoft, 1, 0, 2, 2, bias_softmax},
    OpRow{"RotaryEmbedding", kMicrosoft, 1, 0, 4, 4, rotary_embedding},
};

}  // namespace

Family transformer_ops() {
  return kTransformerRows;
}

}  // namespace octavo::onnx
