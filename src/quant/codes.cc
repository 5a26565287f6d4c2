#include "quant/codes.h"

#include <map>
#include <optional>

#include "quant/moving.h"

namespace octavo::quant {
namespace {

using ir::DType;
using ir::Quantizer;
using ir::Tensor;

/// Channel of element i under a per-axis quantizer.
class Channels {
 public:
  Channels(const ir::Shape& shape, const Quantizer& q) {
    if (q.per_tensor()) return;
    stride_ = ir::dense_strides(shape)[static_cast<std::size_t>(q.axis)];
    extent_ = shape[static_cast<std::size_t>(q.axis)];
  }
  [[nodiscard]] std::int64_t of(std::int64_t i) const { return extent_ == 0 ? 0 : i / stride_ % extent_; }

 private:
  std::int64_t stride_ = 1, extent_ = 0;
};

template <class T>
void store(Tensor& t, std::int64_t i, std::int64_t code) {
  t.mutable_data<T>()[static_cast<std::size_t>(i)] = static_cast<T>(code);
}

void store_code(Tensor& t, std::int64_t i, std::int64_t code) {
  switch (t.dtype()) {
    case DType::s8: return store<std::int8_t>(t, i, code);
    case DType::u8: return store<std::uint8_t>(t, i, code);
    case DType::s16: return store<std::int16_t>(t, i, code);
    case DType::u16: return store<std::uint16_t>(t, i, code);
    default: return store<std::int32_t>(t, i, code);
  }
}

bool fixed(const ir::Graph& g, const ir::Grids& grids, ir::ValueId v, const Quantizer& q,
           std::map<std::pair<ir::ValueId, std::string>, bool>& known) {
  if (const Quantizer* grid = grids.get(v); grid != nullptr && ir::fixes(q, *grid)) return true;
  const ir::Node& m = g.producer(v);
  const MovingLaw* law = find_move(m.op);
  if (law == nullptr) return false;
  const auto [entry, fresh] = known.try_emplace({v, ir::to_string(q)}, false);
  if (!fresh) return entry->second;
  const Move moved = law->push(g, m, {Label::Kind::view, q, std::nullopt});
  bool all = moved && moved->attrs == m.attrs;
  for (std::size_t i = 0; all && i < m.inputs.size(); ++i) {
    if (moved->operands[i]) all = fixed(g, grids, m.inputs[i], *moved->operands[i], known);
  }
  return known[{v, ir::to_string(q)}] = all;
}

}  // namespace

ir::ValueId add_coded(ir::Graph& g, Tensor codes, Quantizer q, const std::string& name) {
  if (q.type == DType::u8) {
    codes = shifted(codes, DType::s8);
    q = ir::as_s8(q);
  }
  q = ir::collapse_axis(q);
  return g.add_constant(std::move(codes), name, std::move(q));
}

Tensor values_of(const ir::Node& constant) {
  const Tensor& t = constant.payload;
  if (!constant.quantizer) return t.to_f32();
  const Quantizer& q = *constant.quantizer;
  const Channels channels(t.shape(), q);
  Tensor out(DType::f32, t.shape());
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const std::int64_t c = channels.of(i);
    out.mutable_data<float>()[static_cast<std::size_t>(i)] =
        ir::dequantize_one(static_cast<std::int32_t>(t.at(i)), q.scale_at(c), q.zero_at(c), q.arith);
  }
  return out;
}

Tensor encode(const Tensor& values, const Quantizer& q) {
  const Channels channels(values.shape(), q);
  Tensor out(q.type, values.shape());
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const std::int64_t c = channels.of(i);
    store_code(
        out, i,
        ir::quantize_one(values.data<float>()[static_cast<std::size_t>(i)], q.scale_at(c), q.zero_at(c), q.lo(), q.hi(), q.arith));
  }
  return out;
}

Tensor shifted(const Tensor& codes, DType to) {
  Tensor out(to, codes.shape());
  const int by = to == codes.dtype() ? 0 : to == DType::s8 ? -128 : 128;
  for (std::int64_t i = 0; i < codes.size(); ++i) store_code(out, i, static_cast<std::int64_t>(codes.at(i)) + by);
  return out;
}

void substitute(ir::Graph& g, ir::ValueId from, ir::ValueId to, bool join_origin) {
  std::optional<Quantizer>& range = g.value(to).range;  // the wider of two, whichever value comes first
  if (const auto other = g.value(from).range) range = range ? Quantizer(ir::wider(*range, *other)) : *other;
  const ir::Op op = g.producer(to).op;
  if (join_origin && (op == ir::Op::input || op == ir::Op::constant)) {
    const std::set<std::string> origin = g.producer(from).origin;
    for (const auto& [user, slot] : g.users(from)) g.node(user).origin.insert(origin.begin(), origin.end());
  }
  g.replace_uses(from, to, join_origin);
}

bool fixed_by(const ir::Graph& g, const ir::Grids& grids, ir::ValueId v, const Quantizer& q) {
  std::map<std::pair<ir::ValueId, std::string>, bool> known;
  return fixed(g, grids, v, q, known);
}

bool gives_back(const Quantizer& q) {
  if (q.type == DType::s32) return false;
  for (std::size_t c = 0; c < q.entries(); ++c) {
    for (std::int64_t code = q.lo(); code <= q.hi(); ++code) {
      const float x = ir::dequantize_one(static_cast<std::int32_t>(code), q.scale[c], q.zero_point[c], q.arith);
      if (ir::quantize_one(x, q.scale[c], q.zero_point[c], q.lo(), q.hi(), q.arith) != code) return false;
    }
  }
  return true;
}

bool gives_back(const Quantizer& q, double code) {
  if (q.type == DType::s32 || !q.per_tensor() || !(code >= static_cast<double>(q.lo()) && code <= static_cast<double>(q.hi())))
    return false;
  const auto c = static_cast<std::int32_t>(code);
  const float x = ir::dequantize_one(c, q.scale[0], q.zero_point[0], q.arith);
  return static_cast<double>(ir::quantize_one(x, q.scale[0], q.zero_point[0], q.lo(), q.hi(), q.arith)) == code;
}

bool holds(DType type, const Quantizer& q) {
  return type == DType::f32 || type == DType::f64 || type == q.arith;
}

}  // namespace octavo::quant
