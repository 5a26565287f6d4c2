// indexed: gather_elements, gather_nd. The index tensors are read where the result is computed, one element a thread. An index outside of its
// dimension, which is an error of the caller's data, is taken as the nearest one inside: a kernel must not read elsewhere.
#include "cuda/families/words.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;

class IndexedFamily final : public SingleFamily {
 public:
  std::string_view name() const override { return "indexed"; }
  bool about(const Region& r) const override {
    return is_single(r) && only(r).anchor.inputs.size() == 2 &&
           (only(r).anchor.op == Op::gather_elements || only(r).anchor.op == Op::gather_nd);
  }

  Result<KernelText> emit(const Region& r, const Plan&, const Parameters&, const Target&) const override {
    Stage s = only(r);
    const region::TensorRef indices = s.anchor.inputs[1];
    region::TensorRef x = s.anchor.inputs[0];
    if (indices.dtype != DType::s64 && indices.dtype != DType::s32)
      return fail(ErrorKind::unsupported, fmt::format("{} with {} indices", ir::name_of(s.anchor.op), ir::name_of(indices.dtype)));
    OCTAVO_TRY(const std::string terms, s.anchor.op == Op::gather_elements ? of_elements(s, x, indices) : of_tuples(s, x, indices));
    const DType type = x.dtype;
    const bool raw = s.program.outputs.empty();  // moved as they are, whatever the type
    std::int64_t scale = 1;
    std::string word;
    if (raw) {
      if (s.stores.size() != 1 || ir::size_of(s.stores[0].dtype) != ir::size_of(type))
        return fail(ErrorKind::unsupported, fmt::format("moving {} to {}", ir::name_of(type), ir::name_of(s.stores[0].dtype)));
      const std::size_t rank = s.space.size();
      Stage words = words_stage(s, type, false);
      words.anchor = s.anchor;
      s = std::move(words);
      x = as_words(x);
      if (s.space.size() > rank) scale = 2, word = fmt::format("    at += c{};\n", rank);  // two words an element
    }
    const bool real = !raw && ir::is_float(type);
    if (!raw && (load_function(type).empty() || program::uses(s.program, real ? program::Op::acc_i : program::Op::acc_f)))
      return fail(ErrorKind::unsupported, fmt::format("{} of {} with a program", ir::name_of(s.anchor.op), ir::name_of(type)));
    AnchorText anchor;
    anchor.inputs = {x, indices};
    anchor.real = real;
    anchor.body = fmt::format("  {{\n    long long at = 0, g;\n{}    at *= {}ll;\n{}    {}(acc, x0 + at * {});\n  }}\n", terms,
                              scale, word, load_function(x.dtype), ir::size_of(x.dtype));
    OCTAVO_TRY(const Elements elements, Elements::of(s, true, {}, 1));
    return elements.emit(anchor);
  }

 private:
  /// Adds the row that the index at `at` of the index tensor (in elements) names.
  static std::string row(const region::TensorRef& indices, const std::string& at, std::int64_t extent, std::int64_t stride) {
    return fmt::format(
        "    g = ((const {0}*)x1)[{1}];\n    g += g < 0 ? {2}ll : 0ll;\n    at += min(max(g, 0ll), {2}ll - 1) * {3}ll;\n",
        indices.dtype == DType::s64 ? "long long" : "int", at, extent, stride);
  }

  static Result<std::string> of_elements(const Stage& s, const region::TensorRef& x, const region::TensorRef& indices) {
    const auto axis = static_cast<std::size_t>(ir::get_int(s.anchor.attrs, "axis"));
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
    return terms + row(indices, at, x.dims[axis], x.strides[axis]);
  }

  static Result<std::string> of_tuples(const Stage& s, const region::TensorRef& x, const region::TensorRef& indices) {
    const auto batch = static_cast<std::size_t>(ir::get_int(s.anchor.attrs, "batch_dims"));
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
      if (x.dims[batch + d] < 1) return fail(ErrorKind::unsupported, "gather_nd from a dimension of no elements");
      terms += row(indices, fmt::format("{} + {}ll", at, static_cast<std::int64_t>(d) * indices.strides.back()), x.dims[batch + d],
                   x.strides[batch + d]);
    }
    return terms;
  }
};

}  // namespace

const Family& indexed_family() {
  static const IndexedFamily family;
  return family;
}

}  // namespace octavo::cuda
