// choose: where, and the comparisons and logical operators that make its conditions, with ONNX's broadcasting; one element a thread.
#include "cuda/families/words.h"
#include "cuda/text/elements.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;

bool compares(Op op) {
  return !comparison(op).empty();
}
bool joins(Op op) {
  return op == Op::logical_and || op == Op::logical_or;
}

/// The type in a kernel of an element that is compared as it is; empty: another way.
std::string_view plain_type(DType type) {
  switch (type) {
    case DType::f32: return "float";
    case DType::s64: return "long long";
    case DType::u64: return "unsigned long long";
    case DType::s32: return "int";
    case DType::u32: return "unsigned";
    case DType::s16: return "short";
    case DType::u16: return "unsigned short";
    case DType::s8: return "signed char";
    case DType::u8:
    case DType::boolean: return "unsigned char";
    default: return "";
  }
}

std::string_view symbol(Op op) {
  switch (op) {
    case Op::logical_and: return "&&";
    case Op::logical_or: return "||";
    default: return comparison(op);
  }
}

/// The element of `x` at the index of the space, in elements; dimensions of one element and missing ones are repeated.
std::string place(const region::TensorRef& x, std::size_t rank, OpenNumbers& numbers) {
  std::string at = "0ll";
  const std::size_t missing = rank - x.dims.size();
  for (std::size_t k = 0; k < x.dims.size(); ++k) {
    const std::int64_t stride = stride_along(x, rank, k + missing);
    if (stride != 0) at += fmt::format(" + c{} * {}", k + missing, numbers.put({stride, open_along(x, rank, k + missing)}, "ll"));
  }
  return at;
}

class ChooseFamily final : public ElementFamily {
 public:
  ChooseFamily() : ElementFamily("choose") {}
  bool about(const Region& r) const override {
    if (!is_single(r)) return false;
    const auto& a = only(r).anchor;
    return (a.op == Op::where && a.inputs.size() == 3) || ((compares(a.op) || joins(a.op)) && a.inputs.size() == 2);
  }

  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    for (const region::TensorRef& x : s.anchor.inputs) {
      if (x.dims.size() > s.space.size())
        return fail(ErrorKind::bad_engine, fmt::format("{} of {} does not give {}", ir::name_of(s.anchor.op), ir::to_string(x.dims),
                                                       ir::to_string(s.space)));
      if (x.quantizer) return refuse("inputs", "quantized", "plain values");
    }
    return s.anchor.op == Op::where ? where(s) : compare(s);
  }

 private:
  static Result<ElementKernel> where(const Stage& s) {
    region::TensorRef condition = s.anchor.inputs[0], a = s.anchor.inputs[1], b = s.anchor.inputs[2];
    const DType type = a.dtype;
    if (b.dtype != type || ir::size_of(condition.dtype) != 1)
      return fail(ErrorKind::bad_engine, fmt::format("where chooses between {} and {}", ir::name_of(type), ir::name_of(b.dtype)));
    OCTAVO_TRY(const MovedStage moved, moved_stage(s, type));
    const std::size_t rank = s.space.size();
    OpenNumbers numbers;
    std::string pa = place(a, rank, numbers), pb = place(b, rank, numbers);
    const std::string pc = place(condition, rank, numbers);
    if (moved.raw) a = as_words(a), b = as_words(b);
    if (moved.pairs) {
      pa = fmt::format("2 * ({}) + c{}", pa, rank);
      pb = fmt::format("2 * ({}) + c{}", pb, rank);
    }
    AnchorText anchor;
    anchor.inputs = {condition, a, b};
    anchor.numbers = std::move(numbers);
    anchor.real = moved.real;
    anchor.body = fmt::format(
        "  if (x0[{0}] != 0) {{\n    {3}(acc, x1 + ({1}) * {4});\n  }} else {{\n    {3}(acc, x2 + ({2}) * {4});\n  }}\n", pc, pa,
        pb, load_function(a.dtype), ir::size_of(a.dtype));
    return element_kernel(moved.stage, std::move(anchor), {}, 1);
  }

  static Result<ElementKernel> compare(Stage s) {
    const region::TensorRef a = s.anchor.inputs[0], b = s.anchor.inputs[1];
    const Op op = s.anchor.op;
    if (a.dtype != b.dtype || plain_type(a.dtype).empty() || (joins(op) && ir::size_of(a.dtype) != 1))
      return refuse("types of the inputs", fmt::format("{} and {}", ir::name_of(a.dtype), ir::name_of(b.dtype)),
                    "one type that the operator takes");
    if (!s.program.outputs.empty() || s.stores.size() != 1 || ir::size_of(s.stores[0].dtype) != 1)
      return refuse("epilogue", "a program, or several stores", "none, and one store of bytes");
    const std::size_t rank = s.space.size();
    Stage words = words_stage(s, s.stores[0].dtype, false);
    AnchorText anchor;
    anchor.inputs = {a, b};
    const std::string pa = place(a, rank, anchor.numbers), pb = place(b, rank, anchor.numbers);
    anchor.body = fmt::format("  acc[0] = ((const {0}*)x0)[{1}] {2} ((const {0}*)x1)[{3}] ? 1 : 0;\n", plain_type(a.dtype), pa,
                              symbol(op), pb);
    return element_kernel(words, std::move(anchor), {}, 1);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(choose, ChooseFamily)

}  // namespace octavo::cuda
