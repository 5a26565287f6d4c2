#include "cuda/families/words.h"

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
  out.space = s.space;
  if (w.each == 2) out.space.push_back(2);
  out.stores = {as_words(s.stores[0])};
  program::Program& p = out.program;
  p.operand_count = from_operand ? 1 : 0;
  p.outputs = {{from_operand ? p.load(program::Op::load_i, 0) : p.push(program::Op::acc_i), w.dtype}};
  return out;
}

}  // namespace octavo::cuda
