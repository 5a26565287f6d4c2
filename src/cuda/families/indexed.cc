// indexed: gather_elements, gather_nd. The index tensors are read where the result is computed, one element a thread.
#include "cuda/families/words.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;

class IndexedFamily final : public ElementFamily {
 public:
  IndexedFamily() : ElementFamily("indexed", {{Op::gather_elements, Op::gather_nd}, 2}) {}
  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    const region::TensorRef& indices = s.anchor.inputs[1];
    region::TensorRef x = s.anchor.inputs[0];
    if (indices.dtype != DType::s64 && indices.dtype != DType::s32)
      return refuse("type of the indices", ir::name_of(indices.dtype), "s64 or s32");
    OCTAVO_TRY(const std::string terms, s.anchor.op == Op::gather_elements ? of_elements(s, x, indices) : of_tuples(s, x, indices));
    OCTAVO_TRY(const MovedStage moved, moved_stage(s, x.dtype));
    if (moved.raw) x = as_words(x);
    const std::string word = moved.pairs ? fmt::format("    at += c{};\n", s.space.size()) : "";
    AnchorText anchor;
    anchor.inputs = {x, indices};
    anchor.real = moved.real;
    anchor.body = fmt::format("  {{\n    long long at = 0, g;\n{}    at *= {}ll;\n{}    {}(acc, x0 + at * {});\n  }}\n", terms,
                              moved.pairs ? 2 : 1, word, load_function(x.dtype), ir::size_of(x.dtype));
    return element_kernel(moved.stage, std::move(anchor), {}, 1);
  }

 private:
  static Result<std::string> of_elements(const Stage& s, const region::TensorRef& x, const region::TensorRef& indices) {
    const auto axis = static_cast<std::size_t>(s.anchor.as<ir::Gather>().axis);
    if (x.dims.size() != s.space.size() || indices.dims != s.space || axis >= x.dims.size() || x.dims[axis] < 1)
      return fail(ErrorKind::bad_engine, fmt::format("gather_elements along {} of {} does not give {}", axis, ir::to_string(x.dims),
                                                     ir::to_string(s.space)));
    std::string terms, at = "0";
    for (std::size_t k = 0; k < s.space.size(); ++k) {
      if (k != axis && s.space[k] > x.dims[k])
        return fail(ErrorKind::bad_engine,
                    fmt::format("gather_elements reads {} of {}", ir::to_string(s.space), ir::to_string(x.dims)));
      at += fmt::format(" + c{} * {}ll", k, indices.strides[k]);
      if (k != axis && x.strides[k] != 0) terms += fmt::format("    at += c{} * {}ll;\n", k, x.strides[k]);
    }
    return terms + add_indexed_row(indices, at, x.dims[axis], x.strides[axis]);
  }

  static Result<std::string> of_tuples(const Stage& s, const region::TensorRef& x, const region::TensorRef& indices) {
    const auto batch = static_cast<std::size_t>(s.anchor.as<ir::Gather>().batch_dims);
    const std::size_t outer = indices.dims.empty() ? 0 : indices.dims.size() - 1;
    const std::size_t length = indices.dims.empty() ? 0 : static_cast<std::size_t>(indices.dims.back());
    if (indices.dims.empty() || batch > outer || batch + length > x.dims.size() ||
        s.space.size() != outer + x.dims.size() - batch - length)
      return fail(ErrorKind::bad_engine, fmt::format("gather_nd of {} by {} does not give {}", ir::to_string(x.dims),
                                                     ir::to_string(indices.dims), ir::to_string(s.space)));
    std::string terms, at = "0";
    for (std::size_t k = 0; k < outer; ++k) at += fmt::format(" + c{} * {}ll", k, indices.strides[k]);
    for (std::size_t k = 0; k < batch; ++k) terms += fmt::format("    at += c{} * {}ll;\n", k, x.strides[k]);
    for (std::size_t k = batch + length; k < x.dims.size(); ++k)
      terms += fmt::format("    at += c{} * {}ll;\n", outer + k - batch - length, x.strides[k]);
    for (std::size_t d = 0; d < length; ++d) {
      if (x.dims[batch + d] < 1) return refuse("elements of an indexed dimension", 0, "some");
      terms += add_indexed_row(indices, fmt::format("{} + {}ll", at, static_cast<std::int64_t>(d) * indices.strides.back()),
                               x.dims[batch + d], x.strides[batch + d]);
    }
    return terms;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(indexed, IndexedFamily)

}  // namespace octavo::cuda
