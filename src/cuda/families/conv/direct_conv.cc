// direct_conv: convolutions and transposed convolutions of codes and floats, any number of spatial dimensions, strides, dilations,
// groups and weight zero points: what the tiled families leave. A thread sums the products of neighbouring output channels of one
// pixel; the packed weights [tap][channel of the group][output channel] lie beside each other for neighbouring threads. A
// transposed convolution gathers: a tap whose source would fall between input pixels is left out.
#include <algorithm>
#include <functional>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_shape.h"
#include "cuda/families/element_family.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;
using Ints = std::vector<std::int64_t>;

struct Conv : ir::Window {       ///< with the extents of the weights
  std::int64_t in = 1, out = 1;  ///< channels of a group
  std::int64_t taps = 1;
  bool transposed = false;
};

Result<Conv> conv_of(const Stage& s, const ir::Shape& weights) {
  const std::size_t spatial = s.space.size() < 3 ? 0 : s.space.size() - 2;
  Conv c{s.anchor.as<ir::Window>()};
  c.transposed = s.anchor.op == Op::conv_transpose;
  const region::TensorRef& x = s.anchor.inputs[0];
  if (spatial == 0 || weights.size() != spatial + 2 || x.dims.size() != spatial + 2 || c.group < 1 || x.dims[1] % c.group != 0 ||
      s.space[1] % c.group != 0)
    return fail(ErrorKind::bad_engine,
                fmt::format("{} of {} with weights {}", ir::name_of(s.anchor.op), ir::to_string(x.dims), ir::to_string(weights)));
  c.kernel.assign(weights.begin() + 2, weights.end());
  for (const std::int64_t k : c.kernel) c.taps *= k;
  c.in = x.dims[1] / c.group;
  c.out = s.space[1] / c.group;
  return c;
}

class DirectConvFamily final : public ElementFamily {
  using Packing = std::function<ir::Tensor()>;

 public:
  DirectConvFamily() : ElementFamily("conv.direct", {{Op::conv, Op::conv_transpose}, 0, Results::programmed}) {}
  Result<ElementKernel> kernel(const Stage& s, const Plan& plan) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    const bool integer = s.anchor.integer, packed = s.anchor.weights.has_value();
    if (!packed && s.anchor.inputs.size() != 2) return refuse("inputs", s.anchor.inputs.size(), "2, or constant weights");
    const region::TensorRef& weights = packed ? *s.anchor.weights : s.anchor.inputs[1];
    OCTAVO_TRY(const Conv c, conv_of(s, weights.dims));
    if (!integer && (!ir::is_float(x.dtype) || load_function(x.dtype).empty() || !ir::is_float(weights.dtype) ||
                     load_function(weights.dtype).empty()))
      return refuse("types of input and weights", fmt::format("{} and {}", ir::name_of(x.dtype), ir::name_of(weights.dtype)),
                    "codes and s8, or floats");
    AnchorText anchor;
    anchor.inputs = {x};
    anchor.real = !integer;
    Packing values_of;
    if (packed) {
      OCTAVO_TRY(values_of, packing(s, plan, c, weights));
    } else {
      anchor.inputs.push_back(weights);
    }
    const auto size = element_bytes(x), spatial = static_cast<std::int64_t>(c.kernel.size());
    std::string open, close, inside = "true", at = fmt::format("c0 * {}ll", x.strides[0] * size), tap = "0", direct;
    for (std::size_t d = 0; d < static_cast<std::size_t>(spatial); ++d) {
      open += fmt::format("    OCTAVO_NO_UNROLL\n    for (int t{0} = 0; t{0} < {1}; ++t{0}) {{\n", d, c.kernel[d]);
      if (!c.transposed) {
        open += fmt::format("      const int p{0} = c{1} * {2} - {3} + t{0} * {4};\n", d, d + 2, c.strides[d], c.pads[d],
                            c.dilations[d]);
      } else {
        open += fmt::format(
            "      const int q{0} = c{1} + {2} - t{0} * {3};\n      if (q{0} < 0 || q{0} % {4} != 0) continue;\n      const int "
            "p{0} = q{0} / {4};\n",
            d, d + 2, c.pads[d], c.dilations[d], c.strides[d]);
      }
      inside += fmt::format(" && (unsigned)p{} < {}u", d, x.dims[d + 2]);
      at += fmt::format(" + p{} * {}ll", d, x.strides[d + 2] * size);
      tap = fmt::format("({} * {} + t{})", tap, c.kernel[d], d);
      direct += fmt::format(" + t{} * {}ll", d, weights.strides[d + 2] * element_bytes(weights));
      close += "    }";
    }
    const std::string values =
        packed ? fmt::format("{}* const row = ({}*)k0 + (long long)({} * {} + k) * {} + c1", integer ? "const int" : "const float",
                             integer ? "const int" : "const float", tap, c.in, s.space[1])
               : fmt::format("const unsigned char* const row = x1 + {}", runtime_weights(c, weights) + direct);
    const std::string weight = packed ? "row[v]" : "f[0]";
    const std::int32_t zero = integer ? x.quantizer->zero_point[0] : 0;
    anchor.body = fmt::format(
        R"(  {{
    OCTAVO_UNROLL
    for (int v = 0; v < kRun; ++v) acc[v] = 0;
    const int group = c1 / {out};
{open}      if (!({inside})) continue;
      const unsigned char* const pixel = x0 + {at} + group * {group_step}ll;
      OCTAVO_NO_UNROLL
      for (int k = 0; k < {in}; ++k) {{
        {type} e[1];
        {load}(e, pixel + k * {step}ll);
        {values};
        {fetch}
        OCTAVO_UNROLL
        for (int v = 0; v < kRun; ++v) acc[v] = {fold};
      }}
{close}
  }}
)",
        fmt::arg("out", c.out), fmt::arg("open", open), fmt::arg("inside", inside), fmt::arg("at", at),
        fmt::arg("group_step", c.in * x.strides[1] * size), fmt::arg("in", c.in), fmt::arg("type", integer ? "int" : "float"),
        fmt::arg("load", load_function(x.dtype)), fmt::arg("step", x.strides[1] * size), fmt::arg("values", values),
        fmt::arg("fetch", packed ? "" : fmt::format("float f[1];\n        {}(f, row);", load_function(weights.dtype))),
        fmt::arg("fold", integer ? fmt::format("acc[v] + (e[0] - {}) * {}", zero, weight)
                                 : fmt::format("__fmaf_rn(e[0], {}, acc[v])", weight)),
        fmt::arg("close", close));
    // Neighbouring output channels of one group share the input's elements.
    const std::int64_t run = !packed ? 1 : c.out % 4 == 0 ? 4 : c.out % 2 == 0 ? 2 : 1;
    // Runs go along output channels, or are of one element.
    ElementAccess along{x.buffer, 0, DType::u8, Ints(s.space.size(), 0), Ints(s.space.size(), 1)};
    along.strides[1] = 1;
    OCTAVO_TRY(ElementKernel out, element_kernel(s, std::move(anchor), {along}, run));
    out.weights = std::move(values_of);
    return out;
  }

 protected:
  double seconds(const Region& r) const override {
    const Stage& s = only(r);
    const auto& w = s.anchor.weights ? *s.anchor.weights : s.anchor.inputs.back();
    double depth = 1;
    for (std::size_t k = 1; k < w.dims.size(); ++k) depth *= static_cast<double>(w.dims[k]);
    return seconds_of_a_pass(r) + depth * static_cast<double>(ir::count(s.space)) / cost::kProductsOfDirectConv +
           depth * cost::kDirectProduct;
  }

 private:
  static std::string runtime_weights(const Conv& c, const region::TensorRef& w) {
    const auto size = element_bytes(w);
    if (!c.transposed) return fmt::format("c1 * {}ll + k * {}ll", w.strides[0] * size, w.strides[1] * size);
    return fmt::format("(group * {} + k) * {}ll + c1 % {} * {}ll", c.in, w.strides[0] * size, c.out, w.strides[1] * size);
  }

  /// What makes [tap][input channel of the group][output channel]: w - w_zero as int, or float. It shares the plan's bytes.
  static Result<Packing> packing(const Stage& s, const Plan& plan, const Conv& c, const region::TensorRef& w) {
    const std::int64_t outputs = s.space[1];
    if (s.anchor.weight_sum) {
      return Packing([mark = layout_mark({c.taps, c.in, outputs, c.out, c.transposed ? 1 : 0})] { return mark; });
    }
    const region::Buffer& buffer = plan.buffers[static_cast<std::size_t>(w.buffer)];
    if (buffer.kind != region::BufferKind::constant || buffer.data.empty())
      return fail(ErrorKind::internal, "the weights' bytes are not in the plan");
    return Packing([data = buffer.data, w, c, outputs, integer = s.anchor.integer, zeros = s.anchor.weight_zero] {
      const std::byte* from = data.bytes().data() + w.offset;
      return integer ? packed_as<std::int32_t>(
                           from, w, c, outputs, DType::s32,
                           [&](const std::byte* p, std::int64_t o) {
                             const std::int64_t channel =
                                 c.transposed && zeros.size() > 1 ? o % static_cast<std::int64_t>(zeros.size()) : o;
                             return static_cast<std::int8_t>(*p) -
                                    (zeros.empty() ? 0 : zeros[zeros.size() == 1 ? 0 : static_cast<std::size_t>(channel)]);
                           })
                     : packed_as<float>(from, w, c, outputs, DType::f32,
                                        [&](const std::byte* p, std::int64_t) { return float_at(p, w.dtype); });
    });
  }

  /// `value`: of the weight at an address, of an output channel.
  template <class T, class F>
  static ir::Tensor packed_as(const std::byte* from, const region::TensorRef& w, const Conv& c, std::int64_t outputs, DType type,
                              F value) {
    ir::Tensor t(type, {c.taps, c.in, outputs});
    T* to = t.mutable_data<T>().data();
    const auto size = element_bytes(w);
    for (std::int64_t tap = 0; tap < c.taps; ++tap) {
      std::int64_t at_tap = 0, rest = tap;
      for (std::size_t d = c.kernel.size(); d-- > 0;) {
        at_tap += rest % c.kernel[d] * w.strides[d + 2];
        rest /= c.kernel[d];
      }
      for (std::int64_t k = 0; k < c.in; ++k) {
        for (std::int64_t o = 0; o < outputs; ++o) {
          const std::int64_t at =
              c.transposed ? (o / c.out * c.in + k) * w.strides[0] + o % c.out * w.strides[1] : o * w.strides[0] + k * w.strides[1];
          *to++ = value(from + (at + at_tap) * size, o);
        }
      }
    }
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(direct_conv, DirectConvFamily)

}  // namespace octavo::cuda
