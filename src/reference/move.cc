// Operators that move, repeat or select elements: bytes are copied, nothing is computed, whatever the type.
#include <cstring>

#include "base/half.h"
#include "reference/detail.h"
#include "region/move_source.h"

namespace octavo::reference {
namespace {

/// Output element i along dimension d reads input element maps[d][i]; -1 reads `fill`. An empty map is the identity.
Tensor select(const Tensor& x, const TensorType& type, const std::vector<Ints>& maps, const std::byte* fill) {
  Tensor y(type);
  const std::size_t bytes = ir::size_of(type.dtype);
  const Shape strides = ir::dense_strides(x.shape());
  const std::byte* from = x.bytes().data();
  std::byte* to = y.mutable_bytes().data();
  Ints index(type.shape.size(), 0);
  for (std::int64_t flat = 0, total = y.size(); flat < total; ++flat) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size() && at >= 0; ++d) {
      const std::int64_t i = maps[d].empty() ? index[d] : maps[d][idx(index[d])];
      at = i < 0 ? -1 : at + i * strides[d];
    }
    std::memcpy(to + idx(flat) * bytes, at < 0 ? fill : from + idx(at) * bytes, bytes);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < type.shape[d]) break;
      index[d] = 0;
    }
  }
  return y;
}

Tensor transpose(const Tensor& x, const Ints& perm) {
  Shape shape;
  const Shape dense = ir::dense_strides(x.shape());
  Ints strides;
  for (const std::int64_t p : perm) {
    shape.push_back(x.shape()[idx(p)]);
    strides.push_back(dense[idx(p)]);
  }
  Tensor y(x.dtype(), shape);
  const std::size_t bytes = ir::size_of(x.dtype());
  for_each_element(shape, {strides}, [&](std::int64_t flat, const Ints& at) {
    std::memcpy(y.mutable_bytes().data() + idx(flat) * bytes, x.bytes().data() + idx(at[0]) * bytes, bytes);
  });
  return y;
}

Tensor concat(const Args& a) {
  Tensor y(a.out());
  const std::size_t axis = idx(a.as<ir::Along>().axis);
  const std::size_t bytes = ir::size_of(a.out().dtype);
  const std::size_t inner = idx(ir::dense_strides(a.out().shape)[axis]) * bytes;
  std::size_t offset = 0;
  const std::size_t row = idx(a.out().shape[axis]) * inner;
  for (const Tensor& x : a.in) {
    const std::size_t part = idx(x.shape()[axis]) * inner;
    for (std::size_t o = 0; part != 0 && o * part < x.bytes().size(); ++o) {
      std::memcpy(y.mutable_bytes().data() + o * row + offset, x.bytes().data() + o * part, part);
    }
    offset += part;
  }
  return y;
}

/// The padding value as bytes of the element type.
Tensor fill_value(const Args& a) {
  const double v = a.as<ir::Pad>().value;
  const TensorType type{a.out().dtype, {}};
  return ir::is_float(type.dtype) ? from_floats({static_cast<float>(v)}, type)
                                  : from_integers({static_cast<std::int64_t>(v)}, type);
}

std::vector<Ints> maps_of(const Args& a) {
  const Shape& x = a.shape(0);
  const Shape& y = a.out().shape;
  if (a.n.op == Op::resize_nearest) return a.as<ir::ResizeNearest>().index;
  std::vector<Ints> maps(y.size());
  const auto* slice = std::get_if<ir::Slice>(&a.facts);
  const auto* pad = std::get_if<ir::Pad>(&a.facts);
  for (std::size_t d = 0; d < y.size(); ++d) {
    for (std::int64_t i = 0; i < y[d]; ++i) {
      switch (a.n.op) {
        case Op::slice: maps[d].push_back(slice->starts[d] + i * slice->steps[d]); break;
        case Op::tile: maps[d].push_back(i % x[d]); break;
        default: maps[d].push_back(region::pad_source(pad->mode, i - pad->pads[d], x[d]));  // pad
      }
    }
  }
  return maps;
}

Tensor expand(const Args& a) {
  Shape padded(a.out().shape.size() - a.shape(0).size(), 1);
  padded.insert(padded.end(), a.shape(0).begin(), a.shape(0).end());
  std::vector<Ints> maps(padded.size());
  for (std::size_t d = 0; d < padded.size(); ++d) maps[d].assign(idx(a.out().shape[d]), 0);
  for (std::size_t d = 0; d < padded.size(); ++d) {
    for (std::int64_t i = 0; padded[d] != 1 && i < a.out().shape[d]; ++i) maps[d][idx(i)] = i;
  }
  return select(a.in[0].reshaped(padded), a.out(), maps, nullptr);
}

Tensor blocks(const Args& a) {
  const Shape& x = a.shape(0);
  const std::int64_t b = a.as<ir::Blocks>().blocksize;
  if (a.n.op == Op::space_to_depth) {
    const Tensor split = a.in[0].reshaped({x[0], x[1], x[2] / b, b, x[3] / b, b});
    return transpose(split, {0, 3, 5, 1, 2, 4}).reshaped(a.out().shape);
  }
  const std::int64_t c = x[1] / (b * b);
  if (a.as<ir::Blocks>().mode == ir::BlockOrder::column_row_depth) {
    return transpose(a.in[0].reshaped({x[0], c, b, b, x[2], x[3]}), {0, 1, 4, 2, 5, 3}).reshaped(a.out().shape);
  }
  return transpose(a.in[0].reshaped({x[0], b, b, c, x[2], x[3]}), {0, 3, 4, 1, 5, 2}).reshaped(a.out().shape);
}

Tensor where(const Args& a) {
  Tensor y(a.out());
  const Shape& out = a.out().shape;
  const std::size_t bytes = ir::size_of(a.out().dtype);
  const auto condition = a.in[0].data<std::uint8_t>();
  for_each_element(out,
                   {broadcast_strides(a.shape(0), out), broadcast_strides(a.shape(1), out), broadcast_strides(a.shape(2), out)},
                   [&](std::int64_t flat, const Ints& at) {
                     const std::size_t k = condition[idx(at[0])] ? 1 : 2;
                     std::memcpy(y.mutable_bytes().data() + idx(flat) * bytes, a.in[k].bytes().data() + idx(at[k]) * bytes, bytes);
                   });
  return y;
}

}  // namespace

Result<Tensors> eval_move(const Args& a) {
  switch (a.n.op) {
    case Op::transpose: return Tensors{transpose(a.in[0], a.as<ir::Transpose>().perm)};
    case Op::reshape: return Tensors{a.in[0].reshaped(a.out().shape)};
    case Op::concat: return Tensors{concat(a)};
    case Op::expand: return Tensors{expand(a)};
    case Op::depth_to_space:
    case Op::space_to_depth: return Tensors{blocks(a)};
    case Op::where: return Tensors{where(a)};
    case Op::pad: {
      const Tensor fill = fill_value(a);
      return Tensors{select(a.in[0], a.out(), maps_of(a), fill.bytes().data())};
    }
    default: return Tensors{select(a.in[0], a.out(), maps_of(a), nullptr)};  // slice, tile, resize_nearest
  }
}

}  // namespace octavo::reference
