// matmul: matrix products, of floats or of 8-bit codes, of two values computed at run time, with broadcast leading dimensions, vectors for matrices of one row
// or one column, and a computed bias. A thread computes one element.
#include "cuda/cost_model.h"
#include "cuda/families/element_family.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::Op;

class MatmulFamily final : public ElementFamily {
 public:
  MatmulFamily() : ElementFamily("matmul", {{Op::matmul, Op::gemm}, 0, Results::programmed}) {}
  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    std::vector<region::TensorRef> inputs = s.anchor.inputs;
    if (s.anchor.weights) inputs.push_back(*s.anchor.weights);
    const bool integer = s.anchor.integer;
    const bool biased = s.anchor.op == Op::gemm && !integer && inputs.size() == 3;
    if (inputs.size() != 2 && !biased) return refuse("inputs", inputs.size(), "2");
    const std::size_t rank = s.space.size();
    for (const region::TensorRef& x : inputs) {
      const bool held = integer ? x.dtype == ir::DType::u8 && x.quantizer && x.quantizer->per_tensor()
                                : ir::is_float(x.dtype) && !load_function(x.dtype).empty();
      if (!held)
        return refuse("an input", fmt::format("{}{}", ir::name_of(x.dtype), ir::to_string(x.dims)),
                      integer ? "a matrix of codes" : "a matrix of floats");
    }
    // A vector on the left is a row, on the right a column, which the result does not have.
    const bool rows = inputs[0].dims.size() > 1, columns = inputs[1].dims.size() > 1;
    const std::size_t matrix = static_cast<std::size_t>(rows) + static_cast<std::size_t>(columns);
    for (std::size_t i = 0; i < 2; ++i) {
      if (inputs[i].dims.empty() || (inputs[i].dims.size() > 1 && inputs[i].dims.size() - 2 + matrix > rank) || matrix > rank)
        return fail(ErrorKind::bad_engine,
                    fmt::format("a product of {} does not give {}", ir::to_string(inputs[i].dims), ir::to_string(s.space)));
    }
    AnchorText anchor;
    const auto step = [&](const region::TensorRef& x, std::size_t k, std::int64_t size) {
      return anchor.numbers.put({x.strides[k] * size, (x.open.strides >> k & 1) != 0}, "ll");
    };
    const auto offset = [&](const region::TensorRef& x, bool left) {
      const auto size = element_bytes(x);
      const std::size_t n = x.dims.size();
      if (n < 2) return std::string("0ll");
      std::string at = left ? fmt::format("c{} * {}", rank - matrix, step(x, n - 2, size))
                            : fmt::format("c{} * {}", rank - 1, step(x, n - 1, size));
      for (std::size_t k = 0; k + 2 < n; ++k) {
        if (x.dims[k] != 1) at += fmt::format(" + c{} * {}", rank - matrix - (n - 2) + k, step(x, k, size));
      }
      return at;
    };
    const region::TensorRef &a = inputs[0], &b = inputs[1];
    const std::size_t deep = a.dims.size() - 1, deep_of_b = b.dims.size() - 1 - static_cast<std::size_t>(columns);
    const std::string left = offset(a, true), right = offset(b, false),
                      depth = anchor.numbers.put({a.dims[deep], (a.open.dims >> deep & 1) != 0});
    anchor.inputs = inputs;
    anchor.real = !integer;
    anchor.body = integer
                      ? fmt::format(R"(  {{
    const unsigned char *const left = x0 + {left}, *const right = x1 + {right};
    acc[0] = 0;
    for (int k = 0; k < {depth}; ++k) acc[0] += ((int)left[k * {step_a}] - {zero_a}) * ((int)right[k * {step_b}] - {zero_b});
  }}
)",
                                    fmt::arg("left", left), fmt::arg("right", right), fmt::arg("depth", depth),
                                    fmt::arg("step_a", step(a, deep, 1)), fmt::arg("step_b", step(b, deep_of_b, 1)),
                                    fmt::arg("zero_a", a.quantizer->zero_point[0]), fmt::arg("zero_b", b.quantizer->zero_point[0]))
                      : fmt::format(R"(  {{
    const unsigned char *const left = x0 + {left}, *const right = x1 + {right};
    float a[1], b[1];
    acc[0] = 0.0f;
    for (int k = 0; k < {depth}; ++k) {{
      {load_a}(a, left + k * {step_a});
      {load_b}(b, right + k * {step_b});
      acc[0] = __fmaf_rn(a[0], b[0], acc[0]);
    }}
  }}
)",
                                    fmt::arg("left", left), fmt::arg("right", right), fmt::arg("depth", depth),
                                    fmt::arg("load_a", load_function(a.dtype)), fmt::arg("load_b", load_function(b.dtype)),
                                    fmt::arg("step_a", step(a, deep, element_bytes(a))),
                                    fmt::arg("step_b", step(b, deep_of_b, element_bytes(b))));
    if (biased) {
      const region::TensorRef& bias = inputs[2];
      if (bias.dims.size() > rank)
        return fail(ErrorKind::bad_engine, fmt::format("a bias of {} for {}", ir::to_string(bias.dims), ir::to_string(s.space)));
      std::string at = "0ll";
      for (std::size_t k = 0; k < rank; ++k) {
        if (const std::int64_t along = stride_along(bias, rank, k); along != 0)
          at += fmt::format(" + c{} * {}", k, anchor.numbers.put({along * element_bytes(bias), open_along(bias, rank, k)}, "ll"));
      }
      anchor.body +=
          fmt::format("  {{\n    float bias[1];\n    {}(bias, x2 + ({}));\n    acc[0] = __fadd_rn(acc[0], bias[0]);\n  }}\n",
                      load_function(bias.dtype), at);
    }
    return element_kernel(s, std::move(anchor), {}, 1);
  }

 protected:
  /// Products of an H100 with a thread an element, as measured on attention of ViT-B/16.
  double seconds(const Region& r) const override {
    const double k = only(r).anchor.inputs.empty() ? 1 : static_cast<double>(only(r).anchor.inputs[0].dims.back());
    return seconds_of_a_pass(r) + static_cast<double>(ir::count(only(r).space)) * k / cost::kProductsOfElements;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(matmul, MatmulFamily)

}  // namespace octavo::cuda
