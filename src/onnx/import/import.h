// ONNX in: reads a model, binds its shapes and lowers every operator into ir/ops.def with static shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "onnx/model/parsed.h"

namespace octavo::onnx {

/// One input of the model as the file declares it (initializers that are also listed as inputs are not inputs).
struct InputInfo {
  std::string name;
  ir::DType dtype = ir::DType::f32;
  bool has_shape = false;  ///< false: the file does not even say the rank
  ir::Shape dims;          ///< -1 where symbolic
  std::vector<std::string>
      symbols;  ///< parallel to dims: the symbol ("N", "batch_size"), or "" when fixed, unnamed or unknown ("?", "None")
  [[nodiscard]] bool symbolic() const;
  /// "[N,3,224,224]", "?" for an unnamed dimension.
  [[nodiscard]] std::string shape_text() const;
};

/// Bounds of sizes that data decide are at most this.
inline constexpr std::int64_t kMostElements = 1 << 28;

struct ImportOptions {
  std::map<std::string, ir::Shape> shapes;  ///< by input name; fixed dimensions of the file must agree
  /// Used for a symbolic first dimension (batch) that no shape binds; <= 0: not used, such a dimension is an error. Every other
  /// symbolic dimension needs a shape, or a shape of another input that binds the same symbol.
  std::int64_t default_batch = 1;
  /// Bounds of sizes that data decide, by the name of a tensor or node (onnx/import/sizes.h): BuildOptions::max_elements.
  std::map<std::string, std::int64_t> max_elements;
  std::size_t most_listed = 10;  ///< nodes that cannot be compiled, named in the error; the rest is counted
  std::string display_name;      ///< how errors call the model; empty: by the name that it was parsed under
  /// Quotients of QuantizeLinear and products of DequantizeLinear are rounded to the type of a float16 or bfloat16 scale, as ONNX defines. Without it they
  /// are float32, as ONNX Runtime's quotients are. (`precision` and `output_dtype` of opset 23 name the type themselves.)
  bool round_to_scale_type = true;
  bool operator==(const ImportOptions&) const = default;
};

/// The metadata of the file. It does not affect the computation.
struct Description {
  std::string producer, graph_name, domain, description, graph_description;
  std::int64_t version = 0;                     ///< model_version
  std::map<std::string, std::string> metadata;  ///< metadata_props, by key
  /// By name of an input or output with symbolic dimensions: the symbol of each dimension, "" when fixed or unnamed.
  std::map<std::string, std::vector<std::string>> symbols;
};

struct Model {
  ir::Graph graph;  ///< verified; inputs and outputs in the model's order, under their ONNX names and types
  std::int64_t ir_version = 0;
  std::int64_t opset = 0;                      ///< of the default domain
  std::map<std::string, std::int64_t> opsets;  ///< by domain; "" is the default one
  std::string producer, producer_version;
  std::map<std::string, std::string> metadata;  ///< metadata_props: what the model says of itself, by key
  Description description;
  int node_count = 0;             ///< ONNX nodes in the file
  std::vector<InputInfo> inputs;  ///< as declared
  /// Decisions the user may want to know: substituted scales, a bound batch, skipped casts. In the order of the nodes.
  std::vector<std::string> notes;
  /// ONNX nodes that no IR node stands for, and why ("folded into a constant", "no effect at inference", "reaches no output").
  std::vector<std::pair<std::string, std::string>> absorbed;
  /// The float type that the file gives to the first result of each ONNX node which has one, by the node's name. Empty where no tensor of the file is
  /// float16 or bfloat16.
  std::map<std::string, ir::DType> float_types;
  /// ONNX tensor names that are another name of a value (Identity, Dropout, Cast between float types): alias -> the value's name.
  std::map<std::string, std::string> aliases;
};

/// Reads and lowers a model. Opset 7 to the newest this version knows. Never throws, whatever the bytes. Reentrant.
///
/// Types: float16, bfloat16 and float64 become f32 inside (intermediates are f32, more exact than float16). Graph inputs
/// and outputs keep their declared type, with a `cast` next to them (origin "input:NAME", "output:NAME").
///
/// Quantization: DequantizeLinear of a constant is a coded constant, and stays one through Transpose and Reshape. Other
/// Q and DQ are nodes: quantize and dequantize in the arithmetic of their scale's type, or their run-time forms. QLinear
/// operators become dequantize, the float operator, quantize.
///
/// Shapes: all static afterwards; what depends on shapes and constants alone is evaluated by the reference.
///
/// Origin: each node carries the name of its ONNX node, or "Type_index" when unnamed ("_index" is appended to a name used
/// twice; nodes of functions and branches are "call/node").
///
/// Errors: io, the file. bad_model: corrupt, contradictory, cyclic, missing data. usage: shapes that are missing or do not
/// fit. unsupported: one text that lists every unsupported node (the first ten and the count) with its place, its inputs
/// and what can be done. External data is read from the folder of the file and nowhere else.
[[nodiscard]] Result<Model> import_model(const Parsed& parsed, const ImportOptions& options = {});
/// The same of a model that nobody else asks about.
[[nodiscard]] Result<Model> import_file(const std::string& path, const ImportOptions& options = {});
[[nodiscard]] Result<Model> import_bytes(std::span<const std::byte> bytes, const ImportOptions& options = {},
                                         const std::string& base_dir = "");

/// Checks for errors that do not depend on shapes: unsupported opsets and operators (one text that lists them all). A model that
/// passes may still be refused once shapes are known.
[[nodiscard]] Status check_model(const Parsed& parsed, const ImportOptions& options = {});

/// Names, types and dimensions of the inputs without lowering anything, so that a caller can bind shapes at first use.
[[nodiscard]] Result<std::vector<InputInfo>> inputs_of(const Parsed& parsed);
/// The same for the outputs, as far as the file declares their types.
[[nodiscard]] Result<std::vector<InputInfo>> outputs_of(const Parsed& parsed);

/// What the shapes of the options, equal symbols and the default batch make of the inputs: the one judge of shapes that somebody gives.
/// `partly`: a given shape may hold -1, and what nothing binds stays open; otherwise all is known then. Errors: usage for shapes that do not fit
/// the inputs, or are missing.
[[nodiscard]] Result<std::vector<InputInfo>> bind_inputs(const std::vector<InputInfo>& inputs, const ImportOptions& options,
                                                         bool partly = false);

/// The metadata of the file, without lowering anything.
[[nodiscard]] Description description_of(const Parsed& parsed);

/// The oldest and newest opset of the default domain that import accepts.
inline constexpr std::int64_t kOldestOpset = 1;
inline constexpr std::int64_t kNewestOpset = 28;

/// Operators that import covers, as "Conv" or "com.microsoft.QLinearAdd", sorted.
[[nodiscard]] std::vector<std::string> supported_operators();

}  // namespace octavo::onnx
