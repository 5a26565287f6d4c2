#include "cuda/families/matmul/matmul_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;
using region::TensorRef;

/// A dimension of the space, with the strides (elements) of everything that lies in it: of the left matrix, the right one, operands, stores.
struct ProductAxis {
  std::int64_t extent = 1;
  std::vector<std::int64_t> strides;
  std::vector<std::int64_t> div;  ///< of operands
  bool open = false;
  std::vector<char> open_strides;  ///< parallel to strides
  [[nodiscard]] bool one() const { return extent == 1 && !open; }
};

bool joins(const ProductAxis& outer, const ProductAxis& inner) {
  const auto divided = [](std::int64_t d) { return d != 1; };
  if (std::any_of(outer.div.begin(), outer.div.end(), divided) || std::any_of(inner.div.begin(), inner.div.end(), divided))
    return false;
  for (std::size_t t = 0; t < outer.strides.size(); ++t) {
    if (outer.strides[t] != inner.strides[t] * inner.extent) return false;
    if (outer.strides[t] != 0 && (outer.open_strides[t] != 0) != (inner.open_strides[t] != 0 || inner.open)) return false;
  }
  return true;
}
/// One dimension for both, where they join; a dimension of one element is nothing.
bool join(ProductAxis& outer, const ProductAxis& inner) {
  if (outer.one()) {
    outer = inner;
    return true;
  }
  if (inner.one()) return true;
  if (!joins(outer, inner)) return false;
  const std::int64_t extent = outer.extent * inner.extent;
  const bool open = outer.open || inner.open;
  outer = inner;
  outer.extent = extent, outer.open = open;
  return true;
}

ProductAxis axis_of(const region::Stage& s, std::size_t d) {
  ProductAxis x;
  x.extent = s.space[d], x.open = (s.open >> d & 1) != 0;
  x.strides = {0, 0};
  const auto is_open = [d](const TensorRef& r) { return static_cast<char>(r.open.strides >> d & 1); };
  x.open_strides = {0, 0};
  for (const region::Operand& o : s.operands) {
    const std::int64_t div = o.div.empty() ? 1 : o.div[d];
    const bool one = x.one() || (div > 1 && div >= x.extent);
    x.strides.push_back(one ? 0 : o.ref.strides[d]);
    x.open_strides.push_back(one ? 0 : is_open(o.ref));
    x.div.push_back(x.strides.back() == 0 ? 1 : div);
  }
  for (const TensorRef& r : s.stores) {
    x.strides.push_back(x.one() ? 0 : r.strides[d]);
    x.open_strides.push_back(x.one() ? 0 : is_open(r));
  }
  return x;
}

/// What every beginning of the side's rows and depth is aligned for, in bytes: of offset, batch, and rows or depth.
std::int64_t aligned(const ProductSide& s, std::int64_t along) {
  std::int64_t common = 16;
  for (const std::int64_t v : {s.ref.offset, s.outer, s.inner, along}) common = std::gcd(common, v);
  return common;
}

std::int64_t reach(std::int64_t size, std::initializer_list<std::pair<std::int64_t, std::int64_t>> dims) {
  std::int64_t end = size;
  for (const auto& [extent, stride] : dims) end += (extent - 1) * std::abs(stride);
  return end;
}

}  // namespace

void choose_way(ProductSide& s, std::int64_t k, int size) {
  if (s.depth == size || k == 1) {
    s.depth = size;
    const std::int64_t bytes = aligned(s, s.row);
    s.way = bytes >= 4 ? Way::copied : Way::packed;
    s.unit = bytes >= 4 ? static_cast<int>(bytes) : 16;
    return;
  }
  s.way = Way::turned, s.unit = 1;
  if (s.row == size) {
    const std::int64_t elements = aligned(s, s.depth) / size;
    s.unit = static_cast<int>(std::max<std::int64_t>(std::gcd(elements, s.rows), 1));
  }
}

bool ProductShape::wide_offsets() const {
  constexpr std::int64_t kMost = INT32_MAX;
  for (const ProductSide* s : {&a, &b}) {
    if (reach(16, {{s->rows, s->row}, {k, s->depth}}) > kMost) return true;  // a matrix of the batch is found with 64 bits
  }
  const auto beyond = [&](const TensorRef& r) {
    std::int64_t end = 1;
    for (std::size_t d = 0; d < tail.space.size(); ++d) end += (tail.space[d] - 1) * std::abs(r.strides[d]);
    return end * region::element_bytes(r) > kMost;
  };
  return std::any_of(tail.stores.begin(), tail.stores.end(), beyond) ||
         std::any_of(tail.operands.begin(), tail.operands.end(), [&](const region::Operand& o) { return beyond(o.ref); });
}

std::optional<ProductType> product_type(const region::Stage& s) {
  const region::Anchor& a = s.anchor;
  if ((a.op != Op::matmul && a.op != Op::gemm) || a.weights || a.inputs.size() != 2 || s.program.outputs.empty())
    return std::nullopt;
  if (a.integer) return ProductType::u8;
  switch (a.inputs[0].dtype) {
    case DType::bf16: return ProductType::bf16;
    case DType::f16: return ProductType::f16;
    case DType::f32: return a.as<ir::Product>().arithmetic == ir::Arithmetic::tf32 ? ProductType::tf32 : ProductType::f32;
    default: return std::nullopt;
  }
}

Reasons why_no_codes(const TensorRef& t) {
  if (t.dtype != DType::u8) return unmet("type of a matrix", ir::name_of(t.dtype), "u8");
  if (!t.quantizer || !t.quantizer->per_tensor())
    return unmet("quantizer of a matrix", t.quantizer ? "one an index" : "none", "one per tensor");
  return {};
}

Result<ProductShape> read_product(const region::Stage& s, const region::Plan& plan, ProductType type) {
  ProductShape shape;
  const TensorRef &left = s.anchor.inputs[0], &right = s.anchor.inputs[1];
  const std::size_t rank = s.space.size();
  const DType held = type == ProductType::u8     ? DType::u8
                     : type == ProductType::bf16 ? DType::bf16
                     : type == ProductType::f16  ? DType::f16
                                                 : DType::f32;
  for (const TensorRef* x : {&left, &right}) {
    if (x->dtype != held) return refuse("type of a matrix", ir::name_of(x->dtype), ir::name_of(held));
    if (x->dims.size() < 2 || x->dims.size() > rank)
      return refuse("shape of a matrix", ir::to_string(x->dims), "two dimensions or more");
    if (type != ProductType::u8) continue;
    if (Reasons why = why_no_codes(*x); !why.empty()) return refuse(std::move(why));
  }
  const std::size_t row_of_left = left.dims.size() - 2, depth_of_right = right.dims.size() - 2;
  shape.type = type;
  shape.k = left.dims.back();
  if (right.dims[depth_of_right] != shape.k || s.space[rank - 2] != left.dims[row_of_left] ||
      s.space[rank - 1] != right.dims.back())
    return refuse("extents of the matrices", fmt::format("{} and {}", ir::to_string(left.dims), ir::to_string(right.dims)),
                  fmt::format("such as give {}", ir::to_string(s.space)));
  if (ir::count(s.space) == 0 || shape.k == 0) return refuse("elements", 0, "some");

  std::vector<ProductAxis> batch;
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    ProductAxis x = axis_of(s, d);
    if (x.one()) continue;
    x.strides[0] = stride_along(left, rank, d), x.strides[1] = stride_along(right, rank, d);
    const auto is_open = [&](const TensorRef& r) {
      return static_cast<char>(d + r.dims.size() >= rank ? r.open.strides >> (d + r.dims.size() - rank) & 1 : 0);
    };
    x.open_strides[0] = is_open(left), x.open_strides[1] = is_open(right);
    if (batch.empty() || !joins(batch.back(), x)) {
      batch.push_back(std::move(x));
      continue;
    }
    join(batch.back(), x);
  }
  ProductAxis rows = axis_of(s, rank - 2), columns = axis_of(s, rank - 1);
  rows.strides[0] = left.dims[row_of_left] == 1 ? 0 : left.strides[row_of_left];
  columns.strides[1] = right.dims.back() == 1 ? 0 : right.strides.back();
  while (!batch.empty() && batch.back().strides[1] == 0 && join(batch.back(), rows)) {  // all of them meet one right matrix
    rows = batch.back();
    batch.pop_back();
  }
  if (batch.size() > 2) return refuse("dimensions of the batch that lie unevenly", batch.size(), "at most 2");
  while (batch.size() < 2)  // the number of outer ones is in no text
    batch.insert(batch.size() == 1 && batch[0].open ? batch.end() : batch.begin(),
                 ProductAxis{1, std::vector<std::int64_t>(rows.strides.size()), std::vector<std::int64_t>(rows.div.size(), 1),
                             false, std::vector<char>(rows.strides.size())});

  const int size = bytes_of(type);
  shape.outer = batch[0].extent, shape.inner = batch[1].extent;
  const auto side = [&](const TensorRef& ref, std::size_t which, const ProductAxis& along, std::int64_t depth) {
    ProductSide x;
    x.ref = ref;
    x.rows = along.extent, x.row = along.strides[which] * size, x.depth = depth * size;
    x.outer = batch[0].strides[which] * size, x.inner = batch[1].strides[which] * size;
    if (type == ProductType::u8) x.set_zero(ref.quantizer->zero_point[0]);
    choose_way(x, shape.k, size);
    return x;
  };
  shape.a = side(left, 0, rows, left.strides.back()), shape.b = side(right, 1, columns, right.strides[depth_of_right]);
  const std::int64_t store_row = rows.strides[2 + s.operands.size()], store_column = columns.strides[2 + s.operands.size()];
  if (columns.extent == 1 || (store_column != 1 && store_row == 1)) {
    std::swap(shape.a, shape.b);
    std::swap(rows, columns);
    shape.swapped = true;
  }
  for (const std::int64_t v : {shape.m(), shape.n(), shape.batch() * shape.m(), shape.depth_bytes()}) {
    if (v > INT32_MAX / 4) return refuse("rows, columns or bytes of depth", v, "less than 2^29");
  }
  region::Stage placed = s;
  placed.space = {shape.outer, shape.n(), shape.inner, shape.m()};
  placed.open = 0;
  const std::array<const ProductAxis*, 4> axes{&batch[0], &columns, &batch[1], &rows};
  for (std::size_t d = 0; d < 4; ++d) placed.open |= axes[d]->open ? 1U << d : 0U;
  const auto place = [&](TensorRef& r, std::size_t which) {
    r.dims = placed.space;
    r.strides = {batch[0].strides[which], columns.strides[which], batch[1].strides[which], rows.strides[which]};
    r.open = {};
    for (std::size_t d = 0; d < 4; ++d) r.open.strides |= axes[d]->open_strides[which] != 0 ? 1U << d : 0U;
  };
  for (std::size_t k = 0; k < s.operands.size(); ++k) {
    place(placed.operands[k].ref, 2 + k);
    placed.operands[k].div = {batch[0].div[k], columns.div[k], batch[1].div[k], rows.div[k]};
  }
  for (std::size_t k = 0; k < s.stores.size(); ++k) place(placed.stores[k], 2 + s.operands.size() + k);
  shape.tail = tail_of(placed, plan);
  return shape;
}

}  // namespace octavo::cuda
