#include "cuda/families/words.h"

#include "region/store_results.h"

namespace octavo::cuda {

Words words_of(ir::DType type) {
  switch (ir::size_of(type)) {
    case 1: return {ir::DType::u8, 1};
    case 2: return {ir::DType::u16, 1};
    case 4: return {ir::DType::s32, 1};
    default: return {ir::DType::s32, 2};
  }
}

region::TensorRef as_words(const region::TensorRef& ref) {
  const Words w = words_of(ref.dtype);
  region::TensorRef r = ref;
  r.dtype = w.dtype;
  r.quantizer.reset();
  if (w.each == 2) {
    for (auto& s : r.strides) s *= 2;
    r.dims.push_back(2);
    r.strides.push_back(1);
  }
  return r;
}

Stage words_stage(const Stage& s, ir::DType type, bool from_operand) {
  Stage out;
  const Words w = words_of(type);
  out.space = s.space, out.open = s.open;
  if (!from_operand) {
    out.anchor = s.anchor;
    out.anchor.store_results.clear();  // the program says it
  }
  if (w.each == 2) out.space.push_back(2);
  program::Program& p = out.program;
  p.operand_count = from_operand ? 1 : 0;
  const int value = from_operand ? p.load(program::Op::load_i, 0) : p.push(program::Op::acc_i);
  for (const region::TensorRef& y : s.stores) {
    out.stores.push_back(as_words(y));
    p.outputs.push_back({value, w.dtype});
  }
  return out;
}

bool stores_one_result(const Stage& s) {
  for (std::size_t i = 0; i < s.stores.size(); ++i) {
    if (region::result_of_store(s.anchor, i) != 0 || s.stores[i].dtype != s.stores[0].dtype) return false;
  }
  return !s.stores.empty();
}

Result<MovedStage> moved_stage(const Stage& s, ir::DType type) {
  MovedStage m{s};
  m.raw = s.program.outputs.empty();
  if (m.raw) {
    if (!stores_one_result(s)) return refuse("stores", s.stores.size(), "one result, in one type");
    if (ir::size_of(s.stores[0].dtype) != ir::size_of(type))
      return refuse("type of the store", ir::name_of(s.stores[0].dtype), fmt::format("one as wide as {}", ir::name_of(type)));
    m.stage = words_stage(s, type, false);
    m.pairs = m.stage.space.size() > s.space.size();
    return m;
  }
  m.real = ir::is_float(type);
  if (load_function(type).empty() || program::uses(s.program, m.real ? program::Op::acc_i : program::Op::acc_f))
    return refuse("type that a program reads", ir::name_of(type), "codes or floats");
  return m;
}

std::string add_indexed_row(const region::TensorRef& indices, const std::string& place, std::int64_t extent, std::int64_t stride) {
  return fmt::format(
      "    g = ((const {0}*)x1)[{1}];\n    g += g < 0 ? {2}ll : 0ll;\n    at += min(max(g, 0ll), {2}ll - 1) * {3}ll;\n",
      indices.dtype == ir::DType::s64 ? "long long" : "int", place, extent, stride);
}

}  // namespace octavo::cuda
