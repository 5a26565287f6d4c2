#include "cpu/families/recurrent_cell.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/math.h"

namespace octavo::cpu {
namespace {

using program::Program;
using program::ProgramOps;
using POp = program::Op;

int apply(Program& p, const ir::CellActivation& f, int x) {
  ProgramOps ops{p};
  if (const auto unary = ir::unary_of(f)) return program::unary(ops, unary->first, unary->second, x);
  const int alpha = p.imm_f(f.alpha);
  if (f.function == ir::CellFunction::thresholded_relu) return p.push(POp::sel_lt, alpha, x, x, p.imm_f(0));
  const int beta = p.imm_f(f.beta);
  if (f.function == ir::CellFunction::affine) return p.push(POp::fma, alpha, x, beta);
  x = p.push(POp::mul, beta, x);  // scaled_tanh
  return p.push(POp::mul, alpha, program::unary(ops, ir::Op::tanh, {}, x));
}

/// A stage over panels [1, units of a panel, 1, panels].
class Cells {
 public:
  explicit Cells(const CellShape& shape) : s_(shape) {
    stage_.anchor.op = ir::Op::input;
    stage_.space = {1, s_.panel, 1, s_.units / s_.panel};
  }
  Program& program() { return stage_.program; }
  /// The sums of a gate, or from `row` on of other buffers.
  int load(CellBuffer buffer, std::int64_t row = 0) {
    stage_.operands.push_back({ref(buffer, row), {}});
    return program().load(POp::load_f, static_cast<int>(stage_.operands.size()) - 1);
  }
  void store(int value, CellBuffer buffer) {
    stage_.program.outputs.push_back({value, ir::DType::f32});
    stage_.stores.push_back(ref(buffer, 0));
  }
  Result<CellCode> code(Isa isa) {
    stage_.program.operand_count = static_cast<int>(stage_.operands.size());
    return CellCode::make(std::move(stage_), isa);
  }

 private:
  [[nodiscard]] region::TensorRef ref(CellBuffer buffer, std::int64_t row) const {
    region::TensorRef t;
    t.buffer = buffer;
    t.offset = row * (buffer == kSums ? s_.panel : s_.units) * 4;
    t.dims = stage_.space;
    t.strides = {0, 1, 0, buffer == kSums ? s_.sums : s_.panel};
    return t;
  }

  CellShape s_;
  region::Stage stage_;
};

}  // namespace

Result<CellCode> CellCode::make(region::Stage stage, Isa isa) {
  CellCode out;
  out.panel_ = stage.space[1];
  OCTAVO_TRY(out.generated_, generated_epilogue(stage, isa, {stage.space[1]}, stage.space[3]));
  if (out.generated_ != nullptr) return out;
  OCTAVO_TRY(out.block_, block_epilogue(stage, isa, 3, 1));
  return out;
}

void CellCode::run(const region::Memory& memory, std::byte* scratch, std::int64_t begin, std::int64_t end) const {
  if (generated_ != nullptr) return generated_->run(memory, nullptr, 0, 0, 0, begin, end - begin, panel_);
  const std::int64_t most = std::max<std::int64_t>(1, block_->code().block() / panel_);
  for (std::int64_t p = begin; p < end; p += most)
    block_->run(memory, scratch, {0, 0, 0, p}, static_cast<int>(std::min(most, end - p)), static_cast<int>(panel_));
}

Result<Cell> cell_of(const ir::Recurrent& facts, std::size_t direction, const CellShape& shape, Isa isa) {
  const bool lstm = facts.cell == ir::CellKind::lstm, gru = facts.cell == ir::CellKind::gru;
  const std::size_t functions = lstm ? 3 : gru ? 2 : 1;
  std::vector<ir::CellActivation> f = ir::activations_of(facts);
  if (f.size() < functions * (direction + 1)) return fail(ErrorKind::bad_engine, fmt::format("{} activations", f.size()));
  f.erase(f.begin(), f.begin() + static_cast<std::ptrdiff_t>(direction * functions));
  const auto clip = static_cast<float>(facts.clip);
  const auto clipped = [&](Program& p, int x) {  // as std::max(x, -clip), std::min
    if (!(clip > 0)) return x;
    x = p.push(POp::max, p.imm_f(-clip), x);
    return p.push(POp::min, p.imm_f(clip), x);
  };
  const auto one_minus = [](Program& p, int x) { return p.push(POp::sub, p.imm_f(1), x); };
  Cell out;
  Cells cells(shape);
  Program& p = cells.program();
  if (lstm) {
    const int c = cells.load(kCell);
    const auto gate = [&](std::int64_t sum, std::int64_t weight, int state) {
      const int s = cells.load(kSums, sum);
      const int seen = p.push(POp::mul, cells.load(kPeepholes, weight), state);
      return apply(p, f[0], clipped(p, p.push(POp::add, s, seen)));
    };
    const int i = gate(0, 0, c);
    const int forget = facts.input_forget ? one_minus(p, i) : gate(2, 2, c);
    const int g = apply(p, f[1], clipped(p, cells.load(kSums, 3)));
    const int kept = p.push(POp::mul, forget, c);
    const int state = p.push(POp::add, kept, p.push(POp::mul, i, g));
    const int o = gate(1, 1, state);
    const int h = p.push(POp::mul, o, apply(p, f[2], state));
    cells.store(state, kCell);
    cells.store(h, kAfter);
  } else if (gru) {
    const int h = cells.load(kBefore), z = apply(p, f[0], clipped(p, cells.load(kSums, 0)));
    int sum = cells.load(kSums, facts.linear_before_reset ? 3 : 2);
    if (facts.linear_before_reset) {
      const int r = apply(p, f[0], clipped(p, cells.load(kSums, 1)));
      sum = p.push(POp::add, sum, p.push(POp::mul, r, cells.load(kSums, 2)));
    } else {
      Cells resets(shape);
      Program& q = resets.program();
      const int r = apply(q, f[0], clipped(q, resets.load(kSums, 1)));
      resets.store(q.push(POp::mul, r, resets.load(kBefore)), kKept);
      OCTAVO_TRY(out.reset, resets.code(isa));
    }
    const int candidate = apply(p, f[1], clipped(p, sum));
    const int fresh = p.push(POp::mul, one_minus(p, z), candidate);
    cells.store(p.push(POp::add, fresh, p.push(POp::mul, z, h)), kAfter);
  } else {
    cells.store(apply(p, f[0], clipped(p, cells.load(kSums, 0))), kAfter);
  }
  OCTAVO_TRY(out.gates, cells.code(isa));
  return out;
}

}  // namespace octavo::cpu
