// Between explicit models (Q/DQ pairs) and a float model with a calibration table.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/quantizer.h"
#include "onnx/model/parsed.h"

namespace octavo::onnx {

class Editor;

struct TableResult {
  std::map<std::string, float> scales;  ///< by the name of the unquantized tensor
  std::vector<std::string> notes;       ///< what was approximated, propagated, or drifts; a line each
};
/// Takes the pairs out of the model: activations read the unquantized tensor again, weights become their dequantized values,
/// everything else stays. What a table cannot express is refused; the error names the tensor and both values: zero points other than the middle,
/// scales per axis, two scales for one tensor; with `approximate` those are bounded instead (largest magnitude; the wider of two)
/// and noted. Errors: `unsupported`, `bad_model`.
[[nodiscard]] Result<TableResult> to_table(Editor& model, bool approximate);

/// Which edges get a pair: "inputs" (the data of every Conv, ConvTranspose, Gemm and MatMul), "residual" (those, and the operands
/// of an Add that no convolution feeds directly), "outputs" (every result of a weighted, activation, Add, Concat, pooling, Resize
/// or Split operator).
struct PairResult {
  int pairs = 0;
  std::vector<std::string> missing;  ///< tensors that the placement wants and the table does not have, or has as 0 or infinite
  std::vector<std::string> unused;   ///< of the table, not wanted by the placement
};
/// Puts pairs in; weights per output channel by quant::weight_scales. Errors: `unsupported` (opset below 13, naming the way out),
/// `usage`.
[[nodiscard]] Result<PairResult> from_table(Editor& model, const ir::Ranges& ranges, const std::string& placement);

/// The same from a model to a file; `float_path` empty: the model without pairs is not written. Nothing is written unless all of it succeeds.
[[nodiscard]] Result<TableResult> table_of(const Parsed& parsed, bool approximate, const std::string& float_path);
[[nodiscard]] Result<PairResult> pairs_into(const Parsed& parsed, const ir::Ranges& ranges, const std::string& placement,
                                            const std::string& qdq_path);

/// Readers of a tensor that another pair of it is put before.
struct SharedPair {
  std::set<std::string> pair;     ///< names of its QuantizeLinear and DequantizeLinear
  std::set<std::string> readers;  ///< names of the nodes that read the pair's input and are to read its output
};
/// A pair that rounds another tensor than before.
struct MovedPair {
  std::set<std::string> pair;  ///< names of its QuantizeLinear and DequantizeLinear
  std::string behind;          ///< the tensor whose readers read the pair's output from now on
};
/// A pair that a tensor gets, before some of its readers; float32 weights of those are quantized too, as from_table does.
struct AddedPair {
  std::string tensor;
  ir::Quantizer quantizer;        ///< per tensor, 8 bits
  std::set<std::string> readers;  ///< names of the Conv, ConvTranspose, Gemm or MatMul nodes; other names are passed over
};
struct PairEdits {
  std::vector<AddedPair> add;
  std::vector<std::string> drop;  ///< names of QuantizeLinear and DequantizeLinear nodes
  std::vector<SharedPair> share;
  std::vector<MovedPair> move;
};
struct EditedPairs {
  int added = 0, dropped = 0, shared = 0, moved = 0;
  std::vector<std::string>
      not_found;  ///< tensors that no named reader reads by that name (through a Reshape, say), or nobody makes
};
/// Adds, shares, moves and drops pairs, in that order, and writes the model to `out`; weights keep theirs, a moved pair its scale
/// and zero point. Errors: `usage` for a name that is no such node; `unsupported` for an addition below opset 13.
[[nodiscard]] Result<EditedPairs> edit_pairs(const Parsed& parsed, const PairEdits& edits, const std::string& out);

}  // namespace octavo::onnx
