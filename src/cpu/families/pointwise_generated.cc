// cpu.pointwise.generated.<isa>: regions without an anchor in generated code (generated_epilogue.h), which keeps the values of a few vectors in registers where the
// block interpreter writes every result to a slot. Dimensions are joined where every access allows; the innermost one of the result must be contiguous, or constant, in
// every operand. Rows of it are the pixels of the generated functions; a single long row is cut into rows of 64 elements and a rest.
#include <algorithm>
#include <array>

#include "cpu/families/row_families.h"
#include "cpu/generated_epilogue.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace {

constexpr std::array kIsas{Isa::avx512, Isa::avx2};
constexpr std::int64_t kWidth = 64;     // elements of a row that a function takes at once
constexpr std::int64_t kLeastRow = 16;  // shorter rows leave most of a vector empty
constexpr std::int64_t kAtOnce = 4096;  // elements of a call's rows, about
constexpr std::int64_t kTaskBytes = 16384;

/// The stage with three dimensions above the innermost one, in the order of its memory: [n, c, h, w], c contiguous.
struct PointwiseGeneratedSetting {
  Stage stage = {};
  Isa isa = Isa::portable;
  double work = 0;       ///< clocks of the whole space, about
  std::int64_t cut = 0;  ///< elements of a single row that rows of kWidth hold; 0: it is not cut
  std::int64_t pixels = 1;
};

Result<PointwiseGeneratedSetting> pointwise_generated_setting(const Stage& stage, Isa isa) {
  OCTAVO_TRY(Space space, Space::of(stage));
  space.split_divisions();
  space.order_and_join();
  std::vector<StridedAccess*> all;
  for (StridedAccess& a : space.loads) all.push_back(&a);
  for (StridedAccess& a : space.stores) all.push_back(&a);
  for (const StridedAccess* a : all) {
    if (std::any_of(a->div.begin(), a->div.end(), [](std::int64_t d) { return d != 1; }))
      return refuse("repetition of an operand", "one", "none");
  }
  if (space.dims.empty() || space.dims.size() > 4) return refuse("dimensions, joined", space.dims.size(), "1 to 4");
  const std::size_t inner = space.dims.size() - 1;
  const std::int64_t row = space.dims[inner];
  for (const StridedAccess* a : all) {
    const bool store = std::any_of(space.stores.begin(), space.stores.end(), [&](const StridedAccess& s) { return &s == a; });
    if (a->strides[inner] != bytes_of(a->elem) && (store || a->strides[inner] != 0))
      return refuse("bytes between neighbours", a->strides[inner], fmt::format("{}", bytes_of(a->elem)));
  }
  if (row < kLeastRow) return refuse("elements of a row", row, fmt::format("at least {}", kLeastRow));

  PointwiseGeneratedSetting out{stage, isa};
  Stage& s = out.stage;
  out.work = static_cast<double>(ir::count(s.space)) *
             (0.05 * static_cast<double>(s.program.code.size()) + 0.12 * static_cast<double>(s.operands.size() + s.stores.size()));
  const bool single = inner == 0;
  if (single && row >= 2 * kWidth) out.cut = row / kWidth * kWidth;
  std::array<std::int64_t, 3> above{1, 1, 1};
  for (std::size_t k = 0; k < inner; ++k) above[3 - inner + k] = space.dims[k];
  if (out.cut > 0) above[2] = out.cut / kWidth;
  s.space = {above[0], row, above[1], above[2]};
  const auto place = [&](region::TensorRef& t, const StridedAccess& a) {
    const std::int64_t size = bytes_of(a.elem);
    std::array<std::int64_t, 3> strides{0, 0, 0};
    for (std::size_t k = 0; k < inner; ++k) strides[3 - inner + k] = a.strides[k] / size;
    if (out.cut > 0) strides[2] = a.strides[inner] / size * kWidth;
    t.dims = s.space;
    t.strides = {strides[0], a.strides[inner] / size, strides[1], strides[2]};
  };
  for (std::size_t k = 0; k < s.operands.size(); ++k) {
    place(s.operands[k].ref, space.loads[k]);
    s.operands[k].div.clear();
  }
  for (std::size_t k = 0; k < s.stores.size(); ++k) place(s.stores[k], space.stores[k]);
  out.pixels = std::clamp<std::int64_t>(kAtOnce / (out.cut > 0 ? kWidth : row), 1, above[2]);
  if (Reasons why = why_not_generated(s, Isa::avx2); !why.empty()) return refuse(std::move(why));
  return out;
}

std::vector<std::int64_t> widths_of(const PointwiseGeneratedSetting& r) {
  const std::int64_t row = r.stage.space[1];
  std::vector<std::int64_t> out;
  for (const std::int64_t n : {std::min(kWidth, row), row % kWidth}) {
    if (n > 0 && (out.empty() || out.front() != n)) out.push_back(n);
  }
  return out;
}

class GeneratedPointwise final : public TaskedKernel {
 public:
  GeneratedPointwise(PointwiseGeneratedSetting rows, std::unique_ptr<GeneratedEpilogue> code)
      : r_(std::move(rows)), code_(std::move(code)) {
    const ir::Shape& space = r_.stage.space;
    n_ = space[0], row_ = space[1], h_ = space[2], w_ = space[3];
    pieces_ = (w_ + r_.pixels - 1) / r_.pixels;
    units_ = ir::count(space) == 0 ? 0 : n_ * h_ * pieces_;
    tasks_ = even_tasks(n_ * h_ * (r_.cut > 0 ? row_ : w_ * row_), kTaskBytes, std::max<std::int64_t>(units_, 1));
  }
  std::size_t scratch_bytes() const override { return 0; }
  void run(const Memory& memory, int task_begin, int task_end, const Worker&) const override {
    for (std::int64_t u = units_ * task_begin / tasks_; u < units_ * task_end / tasks_; ++u) {
      const std::int64_t piece = u % pieces_, h = u / pieces_ % h_, n = u / pieces_ / h_, first = piece * r_.pixels,
                         pixels = std::min(r_.pixels, w_ - first);
      if (r_.cut > 0) {
        code_->run(memory, nullptr, n, 0, h, first, pixels, kWidth);
        if (piece + 1 == pieces_ && r_.cut < row_) code_->run(memory, nullptr, n, r_.cut, h, 0, 1, row_ - r_.cut);
        continue;
      }
      for (std::int64_t c = 0; c < row_; c += kWidth)
        code_->run(memory, nullptr, n, c, h, first, pixels, std::min(kWidth, row_ - c));
    }
  }

 private:
  PointwiseGeneratedSetting r_;
  std::unique_ptr<GeneratedEpilogue> code_;
  std::int64_t n_ = 1, row_ = 1, h_ = 1, w_ = 1, pieces_ = 1, units_ = 1;
};

class GeneratedPointwiseFamily final : public FamilyOf<PointwiseGeneratedSetting> {
 public:
  GeneratedPointwiseFamily()
      : FamilyOf({.name = "pointwise.generated", .levels = kIsas, .about = {{ir::Op::input}, 0, Results::programmed}}) {}
  Match<PointwiseGeneratedSetting> match(const Request& q) const override {
    return pointwise_generated_setting(only(q.region), q.isa);
  }
  double cost(const PointwiseGeneratedSetting& t, Isa isa) const override {
    return t.work * slowdown(isa) * kSecondsPerCycle + 0.5e-6;
  }
  Result<std::unique_ptr<Kernel>> load(PointwiseGeneratedSetting t, Packed) const override {
    OCTAVO_TRY(auto code, generated_epilogue(t.stage, t.isa, widths_of(t), t.pixels));
    if (code == nullptr) return fail(ErrorKind::internal, "no code for the program");
    return std::make_unique<GeneratedPointwise>(std::move(t), std::move(code));
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(generated_pointwise, GeneratedPointwiseFamily)

}  // namespace octavo::cpu
