#include "region/selected_rows.h"

#include <algorithm>
#include <set>

namespace octavo::region {
namespace {

class Finder {
 public:
  explicit Finder(const Plan& plan) : plan_(plan) {}

  /// The buffer is stored by one stage alone, which selects rows or hands on those of such a buffer.
  bool selects(BufferId buffer) {
    if (!seen_.insert(buffer).second) return false;
    const Stage* by = nullptr;
    for (const Region& r : plan_.regions) {
      for (const Stage& s : r.stages) {
        for (const TensorRef& t : s.stores) {
          if (t.buffer != buffer) continue;
          if (by != nullptr) return false;
          by = &s;
        }
      }
    }
    if (by == nullptr) return false;
    if (by->anchor.op == ir::Op::non_max_suppression) return true;
    const TensorRef* source = source_of(*by);
    if (source == nullptr) return false;
    const TensorRef& to = by->stores.front();
    return !to.dims.empty() && !source->dims.empty() && to.dims[0] == source->dims[0] && selects(source->buffer);
  }

 private:
  /// What the stage hands on element by element; null where it does anything else.
  static const TensorRef* source_of(const Stage& s) {
    switch (s.anchor.op) {
      case ir::Op::input:
      case ir::Op::cast:
      case ir::Op::slice:
      case ir::Op::reshape: return only_input(s);
      case ir::Op::gather:  // columns
        return s.anchor.inputs.size() == 2 && s.anchor.as<ir::Gather>().axis != 0 && hands_on(s.program) ? &s.anchor.inputs[0]
                                                                                                         : nullptr;
      default: return nullptr;
    }
  }
  /// No program, or one that stores what the anchor gives.
  static bool hands_on(const program::Program& p) {
    return p.code.empty() || (p.code.size() == 1 && (p.code[0].op == program::Op::acc_i || p.code[0].op == program::Op::acc_f));
  }
  static const TensorRef* only_input(const Stage& s) {
    return s.anchor.inputs.size() == 1 && s.operands.empty() && hands_on(s.program) ? &s.anchor.inputs[0] : nullptr;
  }

  const Plan& plan_;
  std::set<BufferId> seen_;
};

template <class T>
std::int64_t rows_of(const void* data, std::int64_t rows, std::int64_t columns) {
  const T* at = static_cast<const T*>(data);
  std::int64_t n = 0;
  while (n < rows && at[n * columns] != T(-1)) ++n;
  return n;
}

}  // namespace

std::vector<char> selects_rows(const Plan& plan) {
  std::vector<char> out(plan.outputs.size(), 0);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    if (b.kind != BufferKind::output) continue;
    const Binding& binding = plan.outputs[static_cast<std::size_t>(b.binding)];
    const ir::DType t = binding.type.dtype;
    const bool counts = t == ir::DType::s64 || t == ir::DType::s32 || t == ir::DType::f32;
    if (!counts || binding.type.shape.empty() || !binding.strides.empty() || plan.images > 1) continue;
    out[static_cast<std::size_t>(b.binding)] = Finder(plan).selects(static_cast<BufferId>(i)) ? 1 : 0;
  }
  return out;
}

std::int64_t selected_rows(const Binding& output, const void* data) {
  const std::int64_t rows = output.type.shape[0], columns = rows == 0 ? 0 : ir::count(output.type.shape) / rows;
  if (columns == 0) return rows;
  switch (output.type.dtype) {
    case ir::DType::s64: return rows_of<std::int64_t>(data, rows, columns);
    case ir::DType::s32: return rows_of<std::int32_t>(data, rows, columns);
    case ir::DType::f32: return rows_of<float>(data, rows, columns);
    default: return rows;
  }
}

}  // namespace octavo::region
