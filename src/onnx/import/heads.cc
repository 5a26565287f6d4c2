#include "onnx/import/heads.h"

namespace octavo::onnx {

ValueId heads_apart(Compose& c, ValueId v, std::int64_t heads) {
  if (!c.ok()) return v;
  const Shape s = c.shape(v);
  return c.transpose(c.reshape(v, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}

ValueId heads_together(Compose& c, ValueId v) {
  const ValueId turned = c.transpose(v, {0, 2, 1, 3});
  if (!c.ok()) return v;
  const Shape s = c.shape(turned);
  return c.reshape(turned, {s[0], s[1], s[2] * s[3]});
}

ValueId looked_up(Compose& c, ValueId table, ValueId ids) {
  if (!c.ok()) return table;
  const Shape of_table = c.shape(table);
  Shape out = c.shape(ids);
  const ValueId rows = c.gather(table, c.reshape(ids, {ir::count(out)}), 0);
  out.insert(out.end(), of_table.begin() + 1, of_table.end());
  return c.reshape(rows, std::move(out));
}

ValueId rotated(Compose& c, ValueId x, const Rotation& by) {
  if (!c.ok()) return x;
  const Shape all = c.shape(x);
  const std::int64_t dim = by.dim, half = dim / 2;
  const ValueId turned = c.slice(x, 3, 0, dim);
  const ValueId a = by.interleaved ? c.slice(turned, 3, 0, dim, 2) : c.slice(turned, 3, 0, half);
  const ValueId b = by.interleaved ? c.slice(turned, 3, 1, dim, 2) : c.slice(turned, 3, half, dim);
  const ValueId real = c.sub(c.mul(by.cosine, a), c.mul(by.sine, b)), imaginary = c.add(c.mul(by.sine, a), c.mul(by.cosine, b));
  ValueId y = ir::kNone;
  if (by.interleaved) {
    Shape s = c.shape(real);
    s.push_back(1);
    y = c.reshape(c.concat({c.reshape(real, s), c.reshape(imaginary, s)}, 4), {all[0], all[1], all[2], dim});
  } else {
    y = c.concat({real, imaginary}, 3);
  }
  return dim < all[3] ? c.concat({y, c.slice(x, 3, dim, all[3])}, 3) : y;
}

}  // namespace octavo::onnx
