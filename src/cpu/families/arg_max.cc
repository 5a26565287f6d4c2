// cpu.arg_max.rows.<isa>: the position of the maximum along one dimension, of floats and codes, as s64. Vectors run over the elements that are
// compared where those are neighbours in memory (channels innermost, many of them), else over the kept dimension that is; where neither
// is, or rows are short, elements are first turned into columns in scratch. The reference's comparisons, so the same positions.
#include <algorithm>

#include "cpu/families/row_families.h"
#include "cpu/joined.h"
#include "cpu/table.h"
#include "ir/quantizer.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kWidth = 256;            ///< positions found at a time
constexpr std::int64_t kTurned = 1 << 14;       ///< elements that are turned into columns at a time
constexpr std::int64_t kShort = 32;             ///< rows of fewer neighbours are turned too
constexpr std::int64_t kArgMaxGrain = 1 << 14;  ///< elements of a task

enum class Form { rows, columns, turned };

struct ArgMaxSetting {
  region::TensorRef x = {};
  std::vector<region::TensorRef> stores = {};
  Isa isa = Isa::portable;
  Form form = Form::rows;
  bool codes = false, last = false;
  std::int64_t extent = 1, step = 1;    ///< elements that are compared, and from one to the next
  ir::Shape outer = {};                 ///< extents of the kept dimensions, that which blocks run along behind the others
  std::vector<std::int64_t> from = {};  ///< their strides in the input
  std::vector<std::vector<std::int64_t>> to = {};  ///< and in each store
};

Result<ArgMaxSetting> arg_max_setting(const Stage& s, Isa isa) {
  const region::TensorRef& x = s.anchor.inputs[0];
  if (x.dtype != ir::DType::f32 && x.dtype != ir::DType::u8) return refuse("type of the input", ir::name_of(x.dtype), "f32 or u8");
  if (x.dtype == ir::DType::u8 && x.quantizer && (!x.quantizer->per_tensor() || !ir::injective(*x.quantizer)))
    return refuse("quantizer of the input", "one that gives equal values to several codes, or has several scales",
                  "one scale, and another value for each code");
  ArgMaxSetting t{x, s.stores, isa};
  t.codes = x.dtype == ir::DType::u8;
  const auto& arg = s.anchor.as<ir::ArgMax>();
  t.last = arg.select_last_index;
  const auto rank = static_cast<std::int64_t>(x.dims.size());
  const std::int64_t axis = arg.axis;
  ir::Shape result = x.dims;
  if (axis >= 0 && axis < rank) {
    result[static_cast<std::size_t>(axis)] = 1;
    if (!arg.keepdims) result.erase(result.begin() + axis);
  }
  if (axis < 0 || axis >= rank || s.space != result || x.dims[static_cast<std::size_t>(axis)] == 0)
    return fail(ErrorKind::bad_engine,
                fmt::format("arg_max over axis {} of {} into {}", axis, ir::to_string(x.dims), ir::to_string(s.space)));
  for (const region::TensorRef& r : s.stores) {
    if (r.dtype != ir::DType::s64) return refuse("type of a result", ir::name_of(r.dtype), "s64");
  }
  const auto reduced = static_cast<std::size_t>(axis);
  t.extent = x.dims[reduced], t.step = t.extent == 1 ? 1 : x.strides[reduced];
  if (t.extent > kMostCodes) return refuse("elements that are compared", t.extent, fmt::format("at most {}", kMostCodes));
  const auto kept = [&](ir::Shape of) {
    of.erase(of.begin() + axis);
    return of;
  };
  std::vector<ir::Shape> strides{kept(x.strides)};
  for (const region::TensorRef& r : s.stores) strides.push_back(arg.keepdims ? kept(r.strides) : r.strides);
  Joined loops = joined(kept(x.dims), strides);
  t.outer = std::move(loops.dims), t.from = std::move(loops.strides[0]);
  t.to.assign(loops.strides.begin() + 1, loops.strides.end());
  if (t.outer.empty()) {
    t.outer = {1}, t.from = {1};
    for (auto& to : t.to) to = {1};
  }
  const bool columns = t.outer.back() > 1 && t.from.back() == 1;
  t.form = columns ? Form::columns : t.step == 1 && (t.extent >= kShort || ir::count(t.outer) < 8) ? Form::rows : Form::turned;
  if (t.form == Form::turned && t.extent > kTurned)
    return refuse("neighbours in memory", fmt::format("none of {} elements or those beside them", t.extent),
                  fmt::format("some, or at most {} elements", kTurned));
  return t;
}

class ArgMaxKernel final : public TaskedKernel {
 public:
  explicit ArgMaxKernel(ArgMaxSetting setting) : k_(row_kernels(setting.isa)), t_(std::move(setting)) {
    lines_ = ir::count(t_.outer) / t_.outer.back();
    width_ = kWidth;
    if (t_.form == Form::turned) {
      const std::int64_t fits = kTurned / t_.extent;
      width_ = std::min(width_, fits < 16 ? fits : fits / 16 * 16);
    }
    width_ = std::min(width_, t_.outer.back());
    blocks_ = (t_.outer.back() + width_ - 1) / width_;
    tasks_ = even_tasks(ir::count(t_.x.dims), kArgMaxGrain, lines_ * blocks_);
  }

  std::size_t scratch_bytes() const override {
    const std::int64_t turned = t_.form == Form::turned ? width_ * t_.extent * element_bytes(t_.x) : 0;
    return line(static_cast<std::size_t>(width_) * sizeof(std::int32_t)) + line(static_cast<std::size_t>(turned));
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const std::int64_t units = lines_ * blocks_;
    for (std::int64_t u = units * task_begin / tasks_; u < units * task_end / tasks_; ++u) {
      const std::int64_t first = u % blocks_ * width_, cols = std::min(width_, t_.outer.back() - first);
      std::int64_t from = first * t_.from.back(), rest = u / blocks_;
      Index at{};
      for (std::size_t d = t_.outer.size() - 1; d-- > 0;) {
        at[d] = rest % t_.outer[d];
        from += at[d] * t_.from[d];
        rest /= t_.outer[d];
      }
      auto* found = reinterpret_cast<std::int32_t*>(worker.scratch);
      std::byte* turned = worker.scratch + line(static_cast<std::size_t>(width_) * sizeof(std::int32_t));
      const std::byte* x = memory.at(t_.x) + from * element_bytes(t_.x);
      if (t_.codes) {
        find(reinterpret_cast<const std::uint8_t*>(x), cols, found, reinterpret_cast<std::uint8_t*>(turned), k_.arg_max_codes,
             k_.arg_max_code_columns);
      } else {
        find(reinterpret_cast<const float*>(x), cols, found, reinterpret_cast<float*>(turned), k_.arg_max, k_.arg_max_columns);
      }
      for (std::size_t i = 0; i < t_.stores.size(); ++i) {
        const std::vector<std::int64_t>& to = t_.to[i];
        auto* y = reinterpret_cast<std::int64_t*>(memory.at(t_.stores[i])) + first * to.back();
        for (std::size_t d = 0; d + 1 < t_.outer.size(); ++d) y += at[d] * to[d];
        for (std::int64_t c = 0; c < cols; ++c) y[c * to.back()] = found[c];
      }
    }
  }

 private:
  template <class T, class Row, class Columns>
  void find(const T* x, std::int64_t cols, std::int32_t* found, T* turned, Row row, Columns columns) const {
    const std::int64_t beside = t_.from.back();
    switch (t_.form) {
      case Form::rows:
        for (std::int64_t c = 0; c < cols; ++c) found[c] = row(x + c * beside, t_.extent, t_.last);
        return;
      case Form::columns: columns(found, x, t_.extent, t_.step, cols, t_.last); return;
      case Form::turned:
        for (std::int64_t c = 0; c < cols; ++c) {
          const T* from = x + c * beside;
          for (std::int64_t k = 0; k < t_.extent; ++k) turned[k * cols + c] = from[k * t_.step];
        }
        columns(found, turned, t_.extent, cols, cols, t_.last);
        return;
    }
  }

  const RowKernels& k_;
  ArgMaxSetting t_;
  std::int64_t lines_ = 1, width_ = 1, blocks_ = 1;
};

class ArgMaxFamily final : public KernelFamily<ArgMaxSetting, ArgMaxKernel> {
 public:
  ArgMaxFamily() : KernelFamily({.name = "arg_max.rows", .about = {{ir::Op::arg_max}, 1, Results::raw}}) {}
  Match<ArgMaxSetting> match(const Request& q) const override { return arg_max_setting(only(q.region), q.isa); }
  double cost(const ArgMaxSetting& t, Isa isa) const override {
    const auto elements = static_cast<double>(ir::count(t.x.dims)), kept = elements / static_cast<double>(t.extent);
    return (elements * (t.form == Form::turned ? 1.5 : 0.5) + kept * (t.form == Form::rows ? 20.0 : 1.0)) * slowdown(isa) *
               kSecondsPerCycle +
           0.2e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(arg_max, ArgMaxFamily)

}  // namespace octavo::cpu
