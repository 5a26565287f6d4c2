// Attention (opset 23 on), RotaryEmbedding, LinearAttention, CausalConvWithState, SwiGLU: written out in matrix products and
// softmax. The mask is added as -inf where nothing may be attended; a query that may attend nothing gives 0. float16 and bfloat16
// compute in f32.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "onnx/import/heads.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

struct AttentionShape {
  std::int64_t batch, queries, keys, past;
};

/// 1 where whole numbers are above 0, else 0. Like `forbidden` by arithmetic, which is exact here and runs in vector kernels.
ValueId one_above_zero(Compose& c, ValueId v) {
  return c.op(Op::clip, {v}, {{"min", 0.0}, {"max", 1.0}});
}
/// 0 where `allowed` is 1, -inf where it is 0.
ValueId forbidden(Compose& c, ValueId allowed) {
  const ValueId lowest =
      c.mul(c.sub(c.filled(DType::f32, {}, 1), allowed), c.filled(DType::f32, {}, std::numeric_limits<float>::lowest()));
  return c.add(lowest, lowest);  // as the product with infinity is NaN where 0 is meant
}

/// 0 where query i may attend key j, else -inf: [q,k], or [b,1,q,k] when the number of valid keys is an operand.
ValueId position_bias(NodeContext& n, Compose& c, const AttentionShape& s, bool causal, std::int64_t left, std::int64_t right) {
  const bool by_batch = n.has(6) && !n.has(4);
  if (!by_batch) {
    if (!c.fits({s.queries, s.keys})) return ir::kNone;
    Tensor bias(DType::f32, {s.queries, s.keys});
    for (std::int64_t i = 0; i < s.queries; ++i) {
      for (std::int64_t j = 0; j < s.keys; ++j) {
        const std::int64_t ahead = j - (i + s.past);
        const bool allowed = !(causal && ahead > 0) && !(left >= 0 && -ahead > left) && !(right >= 0 && ahead > right);
        bias.mutable_data<float>()[static_cast<std::size_t>(i * s.keys + j)] = allowed ? 0.0F : static_cast<float>(kMinusInf);
      }
    }
    return c.constant(std::move(bias));
  }
  const auto number = [&](std::int64_t v) { return c.filled(DType::f32, {}, static_cast<double>(v)); };
  const auto counting = [&](std::int64_t count, std::int64_t axis) { return c.cast(c.counting(count, axis, 4), DType::f32); };
  const ValueId valid = c.reshape(c.cast(n.in(6), DType::f32), {s.batch, 1, 1, 1});
  const ValueId at = c.add(counting(s.queries, 2), c.sub(valid, number(s.queries)));  // the key of each query itself
  const ValueId ahead = c.sub(counting(s.keys, 3), at);
  ValueId allowed = ir::kNone;
  const auto and_also = [&](ValueId above_zero) {
    const ValueId more = one_above_zero(c, above_zero);
    allowed = allowed == ir::kNone ? more : c.mul(allowed, more);
  };
  if (causal) and_also(c.sub(number(1), ahead));
  if (left >= 0) and_also(c.add(ahead, number(left + 1)));
  if (right >= 0) and_also(c.sub(number(right + 1), ahead));
  return forbidden(c, allowed);
}

/// The sum of everything that forbids keys; kNone if nothing does.
Result<ValueId> attention_bias(NodeContext& n, Compose& c, const AttentionShape& s) {
  const bool causal = n.attr_int("is_causal", 0) != 0;
  const std::int64_t left = n.attr_int("left_window_size", -1), right = n.attr_int("right_window_size", -1);
  if (left < -1 || right < -1) return n.bad("window sizes {} and {}; -1 is no limit", left, right);
  ValueId bias = ir::kNone;
  const auto plus = [&](ValueId more) { bias = bias == ir::kNone ? more : c.add(bias, more); };
  if (n.has(3)) {
    ValueId mask = n.in(3);
    const Shape given = c.shape(mask);
    if (given.empty() || given.size() > 4) return n.bad("attn_mask is {}, needs rank 1 to 4", ir::to_string(given));
    const bool boolean = c.dtype(mask) == DType::boolean;
    mask = c.cast(mask, DType::f32);
    if (boolean) mask = forbidden(c, mask);
    if (given.back() > s.keys) return n.bad("attn_mask is {} for {} keys", ir::to_string(given), s.keys);
    if (given.back() < s.keys && given.back() != 1) {  // keys that the mask does not reach are not attended
      Shape rest = given;
      rest.back() = s.keys - given.back();
      mask = c.concat({mask, c.filled(DType::f32, rest, kMinusInf)}, static_cast<std::int64_t>(given.size()) - 1);
    }
    plus(mask);
  }
  if (causal || left >= 0 || right >= 0) plus(position_bias(n, c, s, causal, left, right));
  if (n.has(6)) {
    const ValueId valid = c.reshape(c.cast(n.in(6), DType::f32), {s.batch, 1, 1, 1});
    plus(forbidden(c, one_above_zero(c, c.sub(valid, c.cast(c.counting(s.keys, 3, 4), DType::f32)))));
  }
  return bias;
}

/// Is it a constant that leaves each query a key?
bool leaves_each_a_key(NodeContext& n, const Compose& c, ValueId bias) {
  if (!n.graph().is_constant(bias) || c.dtype(bias) != DType::f32 || c.shape(bias).empty()) return false;
  const auto values = n.graph().payload(bias).data<float>();
  const auto keys = static_cast<std::size_t>(c.shape(bias).back());
  for (std::size_t row = 0; row < values.size(); row += keys) {
    const auto of_row = values.subspan(row, keys);
    if (std::all_of(of_row.begin(), of_row.end(), [](float v) { return !(v > static_cast<float>(kMinusInf)); })) return false;
  }
  return true;
}

/// 1 where some key may be attended, 0 where the row of the bias is -inf throughout: [..,q,1].
ValueId has_a_key(Compose& c, ValueId bias) {
  const auto rank = static_cast<std::int64_t>(c.shape(bias).size());
  const ValueId best = c.reduce(Op::reduce_max, bias, {rank - 1}, true);
  // Half of any number lies above 3/4 of the least one, and -inf does not.
  const double bound = 0.75 * static_cast<double>(std::numeric_limits<float>::max());
  const ValueId bounded = c.op(Op::clip, {c.mul(best, c.filled(DType::f32, {}, 0.5))}, {{"min", -bound}, {"max", bound}});
  return one_above_zero(c, c.add(bounded, c.filled(DType::f32, {}, bound)));
}

Status attention(NodeContext& n) {
  Compose c(n);
  const float softcap = n.attr_float("softcap", 0.0F), given_scale = n.attr_float("scale", 0.0F);
  const std::int64_t mode = n.attr_int("qk_matmul_output_mode", 0);
  std::int64_t q_heads = n.attr_int("q_num_heads", 0), kv_heads = n.attr_int("kv_num_heads", 0);
  n.ignore({"softmax_precision"});  // f32 at least
  if (n.has(4) != n.has(5)) return n.bad("past_key and past_value must be given together");
  if (n.has(6) && n.has(4)) return n.bad("nonpad_kv_seqlen and past_key exclude each other");
  const std::int64_t rank = n.rank(0);
  if ((rank != 3 && rank != 4) || n.rank(1) != rank || n.rank(2) != rank) return n.bad("Q, K and V need rank 3 or 4, all the same");
  ValueId q = n.in(0), k = n.in(1), v = n.in(2);
  if (rank == 3) {
    if (q_heads < 1 || kv_heads < 1 || n.shape(0)[2] % q_heads || n.shape(1)[2] % kv_heads || n.shape(2)[2] % kv_heads)
      return n.bad("q_num_heads {} and kv_num_heads {} do not fit {} and {}", q_heads, kv_heads, ir::to_string(n.shape(0)),
                   ir::to_string(n.shape(1)));
    q = heads_apart(c, q, q_heads);
    k = heads_apart(c, k, kv_heads);
    v = heads_apart(c, v, kv_heads);
  }
  OCTAVO_CHECK(c.status());
  q_heads = c.shape(q)[1];
  kv_heads = c.shape(k)[1];
  if (kv_heads < 1 || q_heads % kv_heads != 0) return n.bad("{} query heads are no multiple of {} key heads", q_heads, kv_heads);
  for (const std::size_t i : {4U, 5U}) {
    if (n.has(i)) OCTAVO_CHECK(n.need_rank(i, 4, 4));
  }
  const std::int64_t past = n.has(4) ? n.shape(4)[2] : 0;
  if (n.has(4)) {
    k = c.concat({n.in(4), k}, 2);
    v = c.concat({n.in(5), v}, 2);
  }
  OCTAVO_CHECK(c.status());
  const ValueId present_key = k, present_value = v;
  const AttentionShape s{c.shape(q)[0], c.shape(q)[2], c.shape(k)[2], past};
  const double scale = given_scale != 0 ? static_cast<double>(given_scale) : 1 / std::sqrt(static_cast<double>(c.shape(q)[3]));
  OCTAVO_TRY(ValueId bias, attention_bias(n, c, s));
  // What masks are made of stands before the products, which add it where they store. Rows that may attend nothing give 0: their bias is 0 instead of -inf, so that softmax has numbers, and their weights are multiplied by 0.
  ValueId some = ir::kNone;
  const ValueId given = bias;
  if (bias != ir::kNone && !leaves_each_a_key(n, c, bias)) {
    some = has_a_key(c, bias);
    bias = c.op(Op::max, {bias, forbidden(c, c.sub(c.filled(DType::f32, {}, 1), some))});
  }
  k = c.repeat(k, 1, q_heads / kv_heads);
  v = c.repeat(v, 1, q_heads / kv_heads);
  ValueId qk = c.matmul(q, c.transpose(k, {0, 1, 3, 2}));
  qk = c.mul(qk, c.number(scale, qk));
  ValueId shown = qk;
  if (softcap > 0) {
    const ValueId cap = c.number(static_cast<double>(softcap), qk);
    qk = c.mul(c.op(Op::tanh, {c.div(qk, cap)}), cap);
  }
  if (mode == 0 || mode == 1) shown = qk;
  if (mode == 2) shown = given == ir::kNone ? qk : c.add(qk, given);
  if (bias != ir::kNone) qk = c.add(qk, bias);
  ValueId p = c.softmax(qk, 3);
  if (some != ir::kNone) p = c.mul(p, some);
  if (mode == 3) shown = p;
  ValueId y = c.matmul(p, v);
  if (rank == 3) y = heads_together(c, y);
  n.set(1, present_key);
  n.set(2, present_value);
  n.set(3, shown);
  return c.finish(y);
}

Status rotary_embedding(NodeContext& n) {
  Compose c(n);
  const bool interleaved = n.attr_int("interleaved", 0) != 0;
  std::int64_t dim = n.attr_int("rotary_embedding_dim", 0);
  const std::int64_t heads = n.attr_int("num_heads", 0);
  const Shape original = n.shape(0);
  ValueId x = n.in(0);  // as [b,h,t,d]
  if (original.size() == 3) {
    if (heads < 1 || original[2] % heads != 0) return n.bad("num_heads {} does not fit {}", heads, ir::to_string(original));
    x = heads_apart(c, x, heads);
  } else if (original.size() != 4) {
    return n.bad("the data are {}, need rank 3 or 4", ir::to_string(original));
  }
  OCTAVO_CHECK(c.status());
  const std::int64_t size = c.shape(x)[3];
  if (dim == 0) dim = size;
  if (dim < 2 || dim > size || dim % 2 != 0) return n.bad("rotary_embedding_dim {} for heads of {}", dim, size);
  if (n.has(3) && (n.rank(1) < 1 || n.rank(2) < 1)) return n.bad("the caches are numbers");
  const auto cache = [&](std::size_t i) {
    const ValueId rows = n.has(3) ? looked_up(c, n.in(i), n.in(3)) : n.in(i);
    const Shape s = c.shape(rows);
    if (!c.ok()) return rows;
    if (s.size() != 3 || s[2] != dim / 2) {
      c.fail(n.bad("the cache gives {}, needs [batch, length, {}]", ir::to_string(s), dim / 2).value());
      return rows;
    }
    return c.reshape(rows, {s[0], 1, s[1], s[2]});
  };
  ValueId y = rotated(c, x, {cache(1), cache(2), interleaved, dim});
  if (original.size() == 3) y = heads_together(c, y);
  return c.finish(y);
}

/// Step by step over the sequence, unrolled: state = exp(decay) state + k v', y = scale q state.
Status linear_attention(NodeContext& n) {
  Compose c(n);
  n.ignore({"chunk_size"});
  const std::string rule = n.attr_text("update_rule", "gated_delta");
  const std::int64_t q_heads = n.attr_int("q_num_heads", 0), heads = n.attr_int("kv_num_heads", 0);
  const float given = n.attr_float("scale", 0.0F);
  const bool gating = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  if (!gating && !delta && rule != "linear") return n.bad("update_rule \"{}\" is not known", rule);
  if (gating != n.has(4) || delta != n.has(5)) return n.bad("decay or beta do not fit update_rule \"{}\"", rule);
  for (const std::size_t i : {0U, 1U, 2U}) OCTAVO_CHECK(n.need_rank(i, 3, 3));
  if (gating) OCTAVO_CHECK(n.need_rank(4, 3, 3));
  if (delta) OCTAVO_CHECK(n.need_rank(5, 3, 3));
  const std::int64_t batch = n.shape(0)[0], steps = n.shape(0)[1];
  if (heads < 1 || q_heads < 1 || q_heads % heads || n.shape(0)[2] % q_heads || n.shape(1)[2] % heads || n.shape(2)[2] % heads)
    return n.bad("{} and {} heads do not fit the operands", q_heads, heads);
  if ((gating && n.shape(4)[2] % heads != 0) || (delta && n.shape(5)[2] < 1))
    return n.bad("decay or beta do not fit {} heads", heads);
  if (steps < 1) return n.bad("the query is {}: no step", ir::to_string(n.shape(0)));
  if (steps > 1024) return n.unsupported("{} steps; at most 1024 are unrolled", steps);
  const std::int64_t dk = n.shape(0)[2] / q_heads, dv = n.shape(2)[2] / heads;
  const ValueId q = heads_apart(c, n.in(0), q_heads), k = heads_apart(c, n.in(1), heads), v = heads_apart(c, n.in(2), heads);
  const ValueId decay = gating ? c.exp(heads_apart(c, n.in(4), heads)) : ir::kNone;     // [b,h,t,1 or dk]
  const ValueId beta = delta ? heads_apart(c, n.in(5), n.shape(5).back()) : ir::kNone;  // [b,h or 1,t,1]
  ValueId state = n.has(3) ? n.in(3) : c.filled(DType::f32, {batch, heads, dk, dv}, 0);
  const ValueId scale = c.filled(DType::f32, {}, given != 0 ? static_cast<double>(given) : 1 / std::sqrt(static_cast<double>(dk)));
  std::vector<ValueId> rows;
  for (std::int64_t t = 0; t < steps && c.ok(); ++t) {
    const auto row = [&](ValueId x) { return c.slice(x, 2, t, t + 1); };
    const ValueId kt = c.transpose(row(k), {0, 1, 3, 2});  // [b,h,dk,1]
    ValueId vt = row(v);
    if (gating) state = c.mul(state, c.transpose(row(decay), {0, 1, 3, 2}));
    if (delta) vt = c.mul(row(beta), c.sub(vt, c.matmul(row(k), state)));
    state = c.add(state, c.matmul(kt, vt));
    rows.push_back(c.matmul(row(q), c.repeat(state, 1, q_heads / heads)));
  }
  n.set(1, state);
  return c.finish(heads_together(c, c.mul(c.concat(rows, 2), scale)));
}

Status causal_conv(NodeContext& n) {
  Compose c(n);
  const std::string activation = n.attr_text("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish") return n.bad("activation \"{}\"", activation);
  OCTAVO_CHECK(n.need_rank(0, 3, 3));
  OCTAVO_CHECK(n.need_rank(1, 3, 3));
  const Shape x = n.shape(0);
  const std::int64_t k = n.shape(1)[2];
  if (k < 1) return n.bad("the weights are {}", ir::to_string(n.shape(1)));
  ValueId padded = n.in(0);
  if (k > 1) padded = c.concat({n.has(3) ? n.in(3) : c.filled(DType::f32, {x[0], x[1], k - 1}, 0), padded}, 2);
  std::vector<ValueId> operands{padded, n.in(1)};
  if (n.has(2)) operands.push_back(n.in(2));
  ValueId y = c.op(Op::conv, operands, {{"strides", Ints{1}}, {"dilations", Ints{1}}, {"pads", Ints{0, 0}}, {"group", x[1]}});
  if (activation != "none") y = c.mul(y, c.op(Op::sigmoid, {y}));
  const std::int64_t length = c.ok() ? c.shape(padded)[2] : 0;
  if (n.wants(1)) n.set(1, c.slice(padded, 2, length - (k - 1), length));
  return c.finish(y);
}

constexpr std::array kAttentionRows{
    OpRow{"Attention", "", 23, 0, 3, 7, attention},
    OpRow{"RotaryEmbedding", "", 23, 0, 3, 4, rotary_embedding},
    OpRow{"LinearAttention", "", 27, 0, 3, 6, linear_attention},
    OpRow{"CausalConvWithState", "", 27, 0, 2, 4, causal_conv},
};

}  // namespace

Family attention_ops() {
  return kAttentionRows;
}

}  // namespace octavo::onnx
