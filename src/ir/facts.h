// What the attributes of an operator say: one struct for each kind, every field with its type, every default filled in. ir/fact_fields.h says
// which attribute each field stands for. Attributes are read here alone: where an operator is lowered to a region, evaluated by the reference,
// or read from an engine file.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace octavo::ir {

template <class E>
inline constexpr std::array<std::string_view, 0>
    kSpelling{};  // specializations say that they are hidden: -fvisibility passes them over
template <class E>
[[nodiscard]] constexpr std::string_view spelled(E e) {
  return kSpelling<E>[static_cast<std::size_t>(e)];
}

/// Which arithmetic a float operator with weights may use ("compute"): what plan/candidates/narrow.h decided.
enum class Arithmetic : std::uint8_t { exact, bf16, bf16_emulated, tf32, f16, f16_emulated };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 6> kSpelling<Arithmetic>{
    "", "bf16", "bf16 emulated", "tf32", "f16", "f16 emulated"};

/// conv, conv_transpose, deform_conv, max_pool, max_pool_index, avg_pool. One entry a spatial dimension; pads: begins, then ends.
struct Window {
  Shape kernel = {};  ///< of pools; convolutions have the extents of their weights, and this is empty
  Shape strides = {}, dilations = {}, pads = {};
  Shape output_padding = {};  ///< conv_transpose
  std::int64_t group = 1, offset_group = 1;
  bool count_include_pad = false, column_major = false;
  Arithmetic arithmetic = Arithmetic::exact;
  [[nodiscard]] std::int64_t before(std::size_t d) const { return pads[d]; }
  [[nodiscard]] std::int64_t after(std::size_t d) const { return pads[d + pads.size() / 2]; }
  bool operator==(const Window&) const = default;
};

/// gemm, matmul
struct Product {
  Arithmetic arithmetic = Arithmetic::exact;
  bool operator==(const Product&) const = default;
};

/// reduce_*
struct Reduction {
  Shape axes = {};  ///< in [0, rank)
  bool keepdims = true;
  bool operator==(const Reduction&) const = default;
};

/// softmax, log_softmax, concat, quantize_rt, dequantize_rt
struct Along {
  std::int64_t axis = 0;  ///< in [0, rank)
  bool operator==(const Along&) const = default;
};

struct ArgMax {
  std::int64_t axis = 0;
  bool keepdims = true, select_last_index = false;
  bool operator==(const ArgMax&) const = default;
};

enum class Coordinates : std::uint8_t {
  half_pixel,
  half_pixel_symmetric,
  pytorch_half_pixel,
  align_corners,
  asymmetric,
  tf_half_pixel_for_nn
};
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 6> kSpelling<Coordinates>{
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"};

/// resize_linear, resize_cubic
struct Resize {
  std::vector<double> scales = {};  ///< one a dimension
  Shape sizes = {};                 ///< one a dimension, or empty
  Coordinates coordinates = Coordinates::half_pixel;
  double cubic_coeff_a = -0.75;
  bool exclude_outside = false;
  bool operator==(const Resize&) const = default;
};

/// instance_norm: over the spatial dimensions
struct InstanceNorm {
  double epsilon = 1e-5;
  bool operator==(const InstanceNorm&) const = default;
};

/// layer_norm: over the dimensions from `axis` on
struct LayerNorm {
  std::int64_t axis = 0;
  double epsilon = 1e-5;
  bool operator==(const LayerNorm&) const = default;
};

/// lrn
struct LocalResponse {
  std::int64_t size = 0;
  double alpha = 1e-4, beta = 0.75, bias = 1;
  bool operator==(const LocalResponse&) const = default;
};

enum class MathFunction : std::uint8_t { tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 9> kSpelling<MathFunction>{
    "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"};
struct Math {
  MathFunction function = MathFunction::tan;
  bool operator==(const Math&) const = default;
};

enum class BitFunction : std::uint8_t { bit_and, bit_or, bit_xor, bit_not, left, right };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 6> kSpelling<BitFunction>{"and", "or",   "xor",
                                                                                                      "not", "left", "right"};
struct Bitwise {
  BitFunction function = BitFunction::bit_and;
  bool operator==(const Bitwise&) const = default;
};

enum class ScaleRounding : std::uint8_t { up, down, nearest };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> kSpelling<ScaleRounding>{"up", "down", "nearest"};
/// cast, bit_cast
struct Cast {
  DType to = DType::f32;
  bool saturate = true;  ///< small floats
  ScaleRounding round_mode = ScaleRounding::up;
  bool held = false;  ///< a cast of plan/candidates/narrow.h
  bool operator==(const Cast&) const = default;
};

enum class ScatterKind : std::uint8_t { elements, nd };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 2> kSpelling<ScatterKind>{"elements", "nd"};
enum class Combine : std::uint8_t { none, add, mul, max, min };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 5> kSpelling<Combine>{"none", "add", "mul", "max",
                                                                                                  "min"};
struct Scatter {
  ScatterKind kind = ScatterKind::elements;
  std::int64_t axis = 0;
  Combine combine = Combine::none;
  bool operator==(const Scatter&) const = default;
};

struct TopK {
  std::int64_t axis = 0, k = 0;
  bool largest = true, sorted = true;
  bool operator==(const TopK&) const = default;
};

enum class Accumulation : std::uint8_t { sum, prod };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 2> kSpelling<Accumulation>{"sum", "prod"};
struct Cumulate {
  std::int64_t axis = 0;
  Accumulation function = Accumulation::sum;
  bool exclusive = false, reverse = false;
  bool operator==(const Cumulate&) const = default;
};

enum class Interpolation : std::uint8_t { linear, nearest, cubic };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> kSpelling<Interpolation>{"linear", "nearest",
                                                                                                        "cubic"};
enum class Outside : std::uint8_t { zeros, border, reflection };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> kSpelling<Outside>{"zeros", "border", "reflection"};
struct GridSample {
  Interpolation mode = Interpolation::linear;
  Outside padding = Outside::zeros;
  bool align_corners = false;
  bool operator==(const GridSample&) const = default;
};

enum class RoiPooling : std::uint8_t { avg, max };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 2> kSpelling<RoiPooling>{"avg", "max"};
struct RoiAlign {
  RoiPooling mode = RoiPooling::avg;
  std::int64_t output_height = 1, output_width = 1, sampling_ratio = 0;
  double spatial_scale = 1;
  bool half_pixel = true;
  bool operator==(const RoiAlign&) const = default;
};

enum class CellKind : std::uint8_t { rnn, gru, lstm };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> kSpelling<CellKind>{"rnn", "gru", "lstm"};
enum class Direction : std::uint8_t { forward, reverse, bidirectional };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> kSpelling<Direction>{"forward", "reverse",
                                                                                                    "bidirectional"};
enum class CellFunction : std::uint8_t {
  tanh,
  sigmoid,
  relu,
  softsign,
  softplus,
  elu,
  leaky_relu,
  hard_sigmoid,
  scaled_tanh,
  thresholded_relu,
  affine
};
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 11> kSpelling<CellFunction>{
    "Tanh",      "Sigmoid",     "Relu",       "Softsign",        "Softplus", "Elu",
    "LeakyRelu", "HardSigmoid", "ScaledTanh", "ThresholdedRelu", "Affine"};
struct Recurrent {
  CellKind cell = CellKind::rnn;
  Direction direction = Direction::forward;
  std::int64_t hidden_size = 0;
  bool layout = false;  ///< X is [batch, time, inputs]
  bool linear_before_reset = false, input_forget = false;
  double clip = 0;                             ///< 0: none
  std::vector<CellFunction> activations = {};  ///< of the first direction, then of the second
  std::vector<double> alpha = {}, beta = {};   ///< of each activation; 0 where the list is shorter
  bool operator==(const Recurrent&) const = default;
};

struct CellActivation {
  CellFunction function = CellFunction::tanh;
  float alpha = 0, beta = 0;
};
/// Recurrent::activations with their parameters.
[[nodiscard]] std::vector<CellActivation> activations_of(const Recurrent& r);

/// non_max_suppression
struct Suppression {
  bool center_point_box = false;
  std::int64_t count = 0;
  bool operator==(const Suppression&) const = default;
};

struct Clip {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool operator==(const Clip&) const = default;
};

/// leaky_relu, elu: alpha
struct Slope {
  double alpha = 0;
  bool operator==(const Slope&) const = default;
};

struct Selu {
  double alpha = 1.67326319217681884765625, gamma = 1.05070102214813232421875;
  bool operator==(const Selu&) const = default;
};

struct HardSigmoid {
  double alpha = 0.2, beta = 0.5;
  bool operator==(const HardSigmoid&) const = default;
};

enum class GeluForm : std::uint8_t { none, tanh };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 2> kSpelling<GeluForm>{"none", "tanh"};
struct Gelu {
  GeluForm approximate = GeluForm::none;
  bool operator==(const Gelu&) const = default;
};

/// mod
struct Remainder {
  bool fmod = false;  ///< the sign of the dividend, as C's fmod
  bool operator==(const Remainder&) const = default;
};

struct Transpose {
  Shape perm = {};
  bool operator==(const Transpose&) const = default;
};

/// reshape, expand
struct Reshape {
  Shape shape = {};
  bool operator==(const Reshape&) const = default;
};

/// One entry a dimension; result i of a dimension is element starts + i * steps.
struct Slice {
  Shape starts = {}, ends = {}, steps = {};
  bool operator==(const Slice&) const = default;
};

enum class PadMode : std::uint8_t { constant, reflect, edge };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> kSpelling<PadMode>{"constant", "reflect", "edge"};
struct Pad {
  Shape pads = {};  ///< begins of all dimensions, then ends
  PadMode mode = PadMode::constant;
  double value = 0;
  std::optional<std::int64_t> value_code;  ///< of regions that move codes: the code to fill with
  bool operator==(const Pad&) const = default;
};

/// resize_nearest: the source index of each result index, for each dimension that changes; empty for others. Attributes index0, index1, ...
struct ResizeNearest {
  std::vector<Shape> index = {};
  bool operator==(const ResizeNearest&) const = default;
};

/// gather, gather_elements, gather_nd
struct Gather {
  std::int64_t axis = 0, batch_dims = 0;
  Shape indices = {};  ///< of regions: those of a constant list, in [0, extent), where kernels are made for them; else empty
  bool operator==(const Gather&) const = default;
};

struct Tile {
  Shape repeats = {};
  bool operator==(const Tile&) const = default;
};

enum class BlockOrder : std::uint8_t { depth_column_row, column_row_depth };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 2> kSpelling<BlockOrder>{"DCR", "CRD"};
/// depth_to_space, space_to_depth
struct Blocks {
  std::int64_t blocksize = 1;
  BlockOrder mode = BlockOrder::depth_column_row;
  bool operator==(const Blocks&) const = default;
};

/// std::monostate: the operator has no attributes.
using Facts =
    std::variant<std::monostate, Window, Product, Reduction, Along, ArgMax, Resize, InstanceNorm, LayerNorm, LocalResponse, Math,
                 Bitwise, Cast, Scatter, TopK, Cumulate, GridSample, RoiAlign, Recurrent, Suppression, Clip, Slope, Selu,
                 HardSigmoid, Gelu, Remainder, Transpose, Reshape, Slice, Pad, ResizeNearest, Gather, Tile, Blocks>;

/// The facts of an operator whose first operand has `rank` dimensions: absent attributes have their defaults, axes count from the front,
/// lists have an entry for each dimension. Attributes that the operator does not have are passed over. Error: `bad_model`, naming the
/// attribute and what it needs. What relates attributes and shapes is checked by ir::infer.
[[nodiscard]] Result<Facts> facts_of(Op op, const Attrs& attrs, std::size_t rank);
/// The same for a node of a graph.
[[nodiscard]] Result<Facts> facts_of(const Graph& g, const Node& n);
/// The unary operator that an activation of a recurrent cell is, with its facts. Nothing for scaled_tanh, thresholded_relu and affine,
/// which are alpha * tanh(beta * x), x > alpha ? x : 0 and alpha * x + beta.
[[nodiscard]] std::optional<std::pair<Op, Facts>> unary_of(const CellActivation& a);
/// The attributes that say these facts, defaults included.
[[nodiscard]] Attrs attrs_of(const Facts& facts);
/// The facts of an operator without attributes of its own: facts_of(op, {}, rank), for operators all of whose attributes have defaults.
[[nodiscard]] Facts default_facts(Op op, std::size_t rank = 4);
/// Is this the kind of facts that the operator has?
[[nodiscard]] bool fit(Op op, const Facts& facts);

}  // namespace octavo::ir
