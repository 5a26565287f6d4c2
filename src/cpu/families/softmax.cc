// cpu.softmax.block.<isa>, cpu.log_softmax.block.<isa>: the reference's operations in the reference's order: largest element, exp
// of the differences (the same named polynomial, run by the block interpreter), sum in order, one division each.
#include <algorithm>
#include <limits>

#include "cpu/family.h"
#include "program/math.h"

namespace octavo::cpu {
namespace {

struct Parts {
  Epilogue epilogue;
  Code exp;  // exp(operand 0 - operand 1)
  std::size_t axis = 0, row = 0;
};

Result<Parts> parts_of(const Stage& s, Isa isa) {
  const region::TensorRef& x = s.anchor.inputs[0];
  if (x.dtype != ir::DType::f32) return refuse("type of the input", ir::name_of(x.dtype), "f32");
  const auto rank = static_cast<std::int64_t>(s.space.size());
  std::int64_t axis = ir::get_int(s.anchor.attrs, "axis", rank - 1);
  if (axis < 0) axis += rank;
  if (x.dims != s.space || axis < 0 || axis >= rank) {
    return fail(ErrorKind::bad_engine,
                fmt::format("softmax over axis {} of {} into {}", axis, ir::to_string(x.dims), ir::to_string(s.space)));
  }
  Parts p;
  p.axis = static_cast<std::size_t>(axis);
  OCTAVO_TRY(Space space, Space::of(s));
  if (space.dims.size() < 2) space.add_unit();
  p.row = p.axis == 0 ? 1 : 0;
  for (std::size_t k = 0; k < space.dims.size(); ++k) {
    if (k != p.axis && space.dims[k] >= space.dims[p.row]) p.row = k;
  }
  std::vector<Elem> loads;
  for (const Access& a : space.loads) loads.push_back(a.elem);
  OCTAVO_TRY(Code code, Code::compile(s.program, loads));
  OCTAVO_TRY(p.epilogue, Epilogue::make(*kernel_table(isa), std::move(code), std::move(space), static_cast<int>(p.row),
                                        static_cast<int>(p.axis)));
  program::Program exp;
  exp.operand_count = 2;
  program::ProgramOps ops{exp};
  const int difference = exp.push(program::Op::sub, exp.load(program::Op::load_f, 0), exp.load(program::Op::load_f, 1));
  exp.outputs.push_back({program::exp(ops, difference), ir::DType::f32});
  OCTAVO_TRY(p.exp, Code::compile(exp, {Elem::f32, Elem::f32}));
  return p;
}

class SoftmaxKernel final : public Kernel {
 public:
  SoftmaxKernel(const KernelTable& table, Parts p, const Stage& s)
      : table_(table), p_(std::move(p)), x_(s.anchor.inputs[0]), log_(s.anchor.op == ir::Op::log_softmax), exp_(p_.exp.view()) {
    const auto& dims = p_.epilogue.space().dims;
    extent_ = dims[p_.axis];
    rows_ = extent_ == 0 ? 1 : std::clamp<std::int64_t>(kBlock / extent_, 1, std::max<std::int64_t>(dims[p_.row], 1));
    groups_ = (dims[p_.row] + rows_ - 1) / rows_;
    blocks_ = groups_;
    for (std::size_t k = 0; k < dims.size(); ++k) {
      if (k != p_.axis && k != p_.row) blocks_ *= dims[k];
    }
    if (extent_ == 0) blocks_ = 0;
    tasks_ =
        static_cast<int>(std::clamp<std::int64_t>(blocks_ * rows_ * extent_ / 4096, 1, std::clamp<std::int64_t>(blocks_, 1, 64)));
  }

  int tasks() const override { return tasks_; }
  std::size_t scratch_bytes() const override {
    return epilogue_bytes() + exp_bytes() + 2 * row_bytes() + 2 * kBlock * sizeof(float);
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    p_.epilogue.prepare(worker.scratch);
    p_.exp.prepare(reinterpret_cast<std::int32_t*>(worker.scratch + epilogue_bytes()));
    const auto& dims = p_.epilogue.space().dims;
    for (std::int64_t b = blocks_ * task_begin / tasks_; b < blocks_ * task_end / tasks_; ++b) {
      Index origin{};
      std::int64_t rest = b;
      for (std::size_t k = dims.size(); k-- > 0;) {
        if (k == p_.axis) continue;
        const std::int64_t n = k == p_.row ? groups_ : dims[k];
        origin[k] = rest % n * (k == p_.row ? rows_ : 1);
        rest /= n;
      }
      one(memory, worker.scratch, origin, std::min(rows_, dims[p_.row] - origin[p_.row]));
    }
  }

 private:
  [[nodiscard]] std::size_t epilogue_bytes() const { return (p_.epilogue.scratch_bytes() + 63) / 64 * 64; }
  [[nodiscard]] std::size_t exp_bytes() const { return (p_.exp.slot_bytes() + 63) / 64 * 64; }
  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>((rows_ * extent_ * 4 + 63) / 64 * 64); }

  void one(const Memory& memory, std::byte* scratch, Index origin, std::int64_t rows) const {
    std::byte* slots = scratch + epilogue_bytes();
    auto* x = reinterpret_cast<float*>(slots + exp_bytes());
    auto* e = x + row_bytes() / 4;
    float* largest = e + row_bytes() / 4;
    float* sums = largest + kBlock;
    const auto* from = reinterpret_cast<const float*>(memory.at(x_));
    for (std::size_t k = 0; k < x_.strides.size(); ++k) from += origin[k] * x_.strides[k];
    const std::int64_t row_step = p_.row < x_.strides.size() ? x_.strides[p_.row] : 0, step = x_.strides[p_.axis];
    for (std::int64_t r = 0; r < rows; ++r) {
      float best = -std::numeric_limits<float>::infinity();
      for (std::int64_t k = 0; k < extent_; ++k) {
        const float v = from[r * row_step + k * step];
        x[r * extent_ + k] = v;
        best = v > best ? v : best;
      }
      largest[r] = best;
    }
    // Rows longer than a block go piece by piece.
    const auto piece = static_cast<int>(std::min<std::int64_t>(extent_, kBlock));
    for (std::int64_t k = 0; k < extent_; k += piece) {
      const auto cols = static_cast<int>(std::min<std::int64_t>(piece, extent_ - k));
      Stream loads[2], store;
      loads[0] = {reinterpret_cast<std::byte*>(x + k), extent_ * 4, 4, nullptr};
      loads[1] = {reinterpret_cast<std::byte*>(largest), 4, 0, nullptr};
      store = {reinterpret_cast<std::byte*>(e + k), extent_ * 4, 4, nullptr};
      table_.run_block(exp_, {static_cast<int>(rows), cols, loads, &store, reinterpret_cast<std::int32_t*>(slots)});
    }
    program::FloatOps m;
    for (std::int64_t r = 0; r < rows; ++r) {
      float sum = 0;
      for (std::int64_t k = 0; k < extent_; ++k) sum += e[r * extent_ + k];
      sums[r] = log_ ? program::log(m, sum) : sum;
    }
    auto* acc = reinterpret_cast<float*>(Epilogue::acc(scratch));
    for (std::int64_t k = 0; k < extent_; k += piece) {
      const std::int64_t cols = std::min<std::int64_t>(piece, extent_ - k);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; ++c) {
          const std::int64_t i = r * extent_ + k + c;
          acc[r * cols + c] = log_ ? (x[i] - largest[r]) - sums[r] : e[i] / sums[r];
        }
      }
      origin[p_.axis] = k;
      p_.epilogue.run(memory, scratch, origin, static_cast<int>(rows), static_cast<int>(cols));
    }
  }

  const KernelTable& table_;
  Parts p_;
  region::TensorRef x_;
  bool log_;
  BlockCode exp_;
  std::int64_t extent_ = 1, rows_ = 1, groups_ = 1, blocks_ = 1;
  int tasks_ = 1;
};

class SoftmaxFamily final : public Family {
 public:
  std::string_view name() const override { return "softmax.block"; }
  std::string name_for(const Region& r) const override {
    return only(r).anchor.op == ir::Op::log_softmax ? "log_softmax.block" : std::string(name());
  }
  bool about(const Region& r) const override {
    const ir::Op op = only(r).anchor.op;
    return r.stages.size() == 1 && (op == ir::Op::softmax || op == ir::Op::log_softmax) && only(r).anchor.inputs.size() == 1 &&
           !only(r).program.outputs.empty();
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const auto p = parts_of(only(r), Isa::portable);
    return refusal_of(p);
  }
  double cost(const Region& r, const Plan&, Isa isa) const override {
    return static_cast<double>(ir::count(only(r).space)) * 12.0 * slowdown(isa) * kSecondsPerCycle + 0.3e-6;
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa isa, Packed) const override {
    OCTAVO_TRY(Parts p, parts_of(only(r), isa));
    return std::make_unique<SoftmaxKernel>(*kernel_table(isa), std::move(p), only(r));
  }
};

}  // namespace

const Family& softmax_family() {
  static const SoftmaxFamily family;
  return family;
}

}  // namespace octavo::cpu
