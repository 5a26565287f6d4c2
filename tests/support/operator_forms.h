// Every operator of the IR in the forms that kernels tell apart, for tests of what a device has kernels for.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace octavo::testing {

/// An operand: of the type in question, or of its own; computed, or a constant of zeros.
struct In {
  ir::Shape shape;
  std::optional<ir::DType> type = {};
  bool constant = false;
};
struct Form {
  std::string label;  ///< the operator's name, then what tells it from other forms
  ir::Op op;
  std::vector<In> inputs;
  ir::Attrs attrs = {};
  std::optional<ir::Quantizer> quantizer = {};
  std::set<ir::DType> types = {};  ///< empty: all that the operator takes
};

inline constexpr std::array kElementTypes{ir::DType::f32, ir::DType::f16, ir::DType::bf16,   ir::DType::f64, ir::DType::s8,
                                          ir::DType::u8,  ir::DType::s16, ir::DType::u16,    ir::DType::s32, ir::DType::u32,
                                          ir::DType::s64, ir::DType::u64, ir::DType::boolean};

[[nodiscard]] std::vector<Form> operator_forms();
/// The form with its operands of a type; nothing where the operator does not take it.
[[nodiscard]] std::optional<ir::Graph> graph_of(const Form& f, ir::DType type);

}  // namespace octavo::testing
