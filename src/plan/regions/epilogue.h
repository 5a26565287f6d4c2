// From a group's nodes to an epilogue program: the one place where graph semantics become program operations.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ir/grid.h"
#include "program/program.h"
#include "region/region.h"

namespace octavo::plan {

/// How a value is kept in memory: its own type, or the u8 codes of its grid.
enum class Repr : std::uint8_t { raw, codes };

/// The representation in which a program prefers to read a value: codes when it lies on an 8-bit grid, else raw.
[[nodiscard]] Repr preferred(const ir::Graph& g, const ir::Grids& grids, ir::ValueId v);
/// The u8 quantizer of a gridded float value (per tensor or per axis); nothing for other values.
[[nodiscard]] std::optional<ir::Quantizer> code_quantizer(const ir::Graph& g, const ir::Grids& grids, ir::ValueId v);

/// The float values of a coded constant.
[[nodiscard]] ir::Tensor decoded(const ir::Node& constant);

/// Builds one program. Values of the group are computed on demand and at most once; other values are loaded.
class EpilogueBuilder {
 public:
  /// Gives the operand index of value v in representation r, already broadcast to the space.
  using Load = std::function<int(ir::ValueId v, Repr r)>;
  /// Gives the operand index of a constant tensor (dense, f32 or s32), broadcast to the space.
  using Constant = std::function<int(const ir::Tensor& t)>;

  EpilogueBuilder(const ir::Graph& g, const ir::Grids& grids, ir::Shape space, Load load, Constant constant)
      : g_(g), grids_(grids), space_(std::move(space)), load_(std::move(load)), constant_(std::move(constant)) {}

  program::Program program;

  /// Declares what acc holds: the float result, or (with its quantizer) the codes of value v.
  void set_acc_float(ir::ValueId v);
  /// A float weighted anchor: y = acc + bias (when there is one).
  void set_acc_float_bias(const ir::Node& anchor);
  void set_acc_codes(ir::ValueId v, const ir::Quantizer& q);
  /// An integer weighted anchor: y = fma(float(acc [+ bias]), fl(sx*sw[c]), bias[c]).
  /// acc counts in `unit`.
  void set_acc_product(ir::ValueId v, float unit);
  void set_acc_weighted(const ir::Node& anchor, const ir::IntegerAnchor& kind);
  /// An integer sum over a pooling window: y = float(acc) * s / count.
  void set_acc_sum(const ir::Node& anchor, const ir::Quantizer& x, const ir::Tensor& counts);
  /// Appends the operations of a pointwise node of the group. Error: attributes that say nothing.
  [[nodiscard]] Status compute(const ir::Node& node);
  /// True when acc or an operation already made has given v a value.
  [[nodiscard]] bool holds(ir::ValueId v) const { return states_.contains(v); }
  /// The program value holding v as wanted, ready to be stored.
  [[nodiscard]] int stored(ir::ValueId v, Repr r);
  /// True when the acc of the group can be NaN or infinite (float inputs): quantizing then needs nan0.
  bool may_be_nan = false;
  /// True when acc is itself a code (set_acc_codes): tables may start from it.
  bool acc_is_code = false;

 private:
  struct State {
    int f = -1;                      ///< float value
    int code = -1;                   ///< u8 code (s8 codes shifted) when the value has one
    std::optional<ir::Quantizer> q;  ///< quantizer of `code`
    int raw = -1;                    ///< typed integer result (quantize), int32 in its own range
  };
  State& state(ir::ValueId v);
  int float_of(ir::ValueId v);
  int bias_of(ir::ValueId v);
  /// What is known of a value, whatever the float operands of the region hold, where it comes from codes and constants.
  struct Known {
    bool number = true;          ///< never NaN
    bool no_minus_zero = false;  ///< never -0
    bool positive = false;       ///< a constant, all of it above 0
  };
  [[nodiscard]] Known known_of(int value) const;
  int channel_constant(const std::vector<float>& values, int axis);
  int channel_constant_i(const std::vector<std::int32_t>& values, int axis);
  int quantize(int value, const ir::Quantizer& q);
  int dequantize(int code, const ir::Quantizer& q);
  int rounded(int value, ir::DType arith);
  int cut(int value, ir::DType type);
  int choose(const ir::Node& node);
  bool code_minmax(const ir::Node& node, const ir::Facts& facts, State& s);

  const ir::Graph& g_;
  const ir::Grids& grids_;
  ir::Shape space_;
  Load load_;
  Constant constant_;
  int constant_load(const ir::Tensor& t);

  std::map<ir::ValueId, State> states_;
  std::map<int, bool> constant_loads_;  ///< float operands of the program that are constants: are all elements above 0?
  mutable std::vector<Known> known_;    ///< of the program's first values
};

}  // namespace octavo::plan
