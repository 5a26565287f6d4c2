// cpu.linear.f32.codes.<isa>: products of rows of floats with constant weights that are the values of codes (region::WeightCodes). The codes stay
// what they are in memory, an eighth or a quarter of the floats, and are unpacked in registers: a product of a few rows takes the time of
// reading its weights. With more rows than kRegisterRows, floats of kDepth rows of codes are made in the worker's scratch, and read by all rows.
#include <algorithm>
#include <cstring>

#include "cpu/constant.h"
#include "cpu/families/row_families.h"
#include "cpu/rows/coded_rows.h"
#include "cpu/table.h"
#include "ir/block_codes.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kRegisterRows = 8;  // at most, for which codes are unpacked into registers, anew for every few rows
constexpr std::int64_t kTile = 4;          // groups of kColumns columns whose sums are taken together
constexpr std::int64_t kDepth = 64;        // rows of weights that are unpacked at a time
constexpr std::int64_t kMostRows = 192;    // of a task
constexpr std::int64_t kGrain = std::int64_t{1} << 15;  // weights of a task, at least

struct LinearCodesSetting {
  region::TensorRef x = {};
  ir::Tensor weights = {};  ///< with codes, while planning
  region::WeightCodes codes = {};
  BlockEpilogue epilogue = {};
  Isa isa = Isa::portable;
  std::int64_t m = 0, n = 0, k = 0;  ///< rows, columns of the result, products of a sum

  [[nodiscard]] int bits() const { return codes.bits <= 4 ? 4 : 8; }  ///< of a packed code
  [[nodiscard]] std::int64_t groups() const { return (n + kColumns - 1) / kColumns; }
  [[nodiscard]] std::int64_t blocks() const { return (k + codes.block - 1) / codes.block; }
  [[nodiscard]] std::int64_t code_step() const { return (bits() == 4 ? (k + 1) / 2 : k) * kColumns; }
  [[nodiscard]] std::int64_t scale_step() const { return blocks() * kColumns; }
  [[nodiscard]] bool in_registers() const { return m <= kRegisterRows; }
};

const CodedRowKernels& coded_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return avx512_coded();
  if (isa >= Isa::avx2) return avx2_coded();
#endif
  (void)isa;
  return portable_coded();
}

Result<LinearCodesSetting> linear_codes_setting(const Request& q) {
  const Stage& s = only(q.region);
  const region::Anchor& a = s.anchor;
  const region::TensorRef& x = a.inputs[0];
  if (!a.weight_codes) return refuse("weights", "floats", "the values of codes");
  if (x.dtype != ir::DType::f32) return refuse("type of the input", ir::name_of(x.dtype), "f32");
  if (x.dims.size() != 4 || x.dims[2] * x.dims[3] != 1 || ir::count(s.space) != s.space[0] * s.space[1])
    return refuse("shape of the input", ir::to_string(x.dims), "[M,K,1,1]");
  if (x.dims[1] != 1 && x.strides[1] != 1) return refuse("step between the elements of a row", x.strides[1], "1");
  LinearCodesSetting t{x, q.plan.buffers[static_cast<std::size_t>(a.weights->buffer)].data, *a.weight_codes, {}, q.isa};
  t.m = s.space[0], t.n = s.space[1], t.k = x.dims[1];
  if (t.bits() == 4 && t.codes.block % 2 != 0 && t.codes.block < t.k)
    return refuse("channels that share a scale", t.codes.block, "an even number, or all");
  OCTAVO_TRY(t.epilogue, block_epilogue(s, q.isa, 0, 1));
  return t;
}

/// As CodedMatrix has them. Columns behind the last one have scales of 0.
Result<std::vector<ir::Tensor>> packed_codes(const LinearCodesSetting& t) {
  const ir::BlockCodes* from = t.weights.codes().get();
  if (from == nullptr) return fail(ErrorKind::internal, "the weights have no codes");
  ir::Tensor codes(ir::DType::u8, {t.groups(), t.code_step()}), scales(ir::DType::f32, {t.groups(), t.scale_step()});
  ir::Tensor zeros = t.codes.one_zero ? ir::Tensor(ir::DType::f32, {1}) : ir::Tensor(scales.type());
  std::uint8_t* to = codes.mutable_data<std::uint8_t>().data();
  float *scale = scales.mutable_data<float>().data(), *zero = zeros.mutable_data<float>().data();
  const std::uint8_t* code = from->codes.data<std::uint8_t>().data();
  const float *given_scale = from->scales.data<float>().data(), *given_zero = from->zeros.data<float>().data();
  if (t.codes.one_zero && from->zeros.size() > 0) zero[0] = given_zero[0];
  for (std::int64_t j = 0; j < t.n; ++j) {
    const std::int64_t group = j / kColumns, lane = j % kColumns;
    std::uint8_t* column = to + group * t.code_step() + lane;
    for (std::int64_t i = 0; i < t.k; ++i) {
      const std::uint8_t c = code[j * t.k + i];
      if (t.bits() == 8) {
        column[i * kColumns] = c;
      } else {
        column[i / 2 * kColumns] |= static_cast<std::uint8_t>(i % 2 == 0 ? c : c << 4);
      }
    }
    for (std::int64_t b = 0; b < t.blocks(); ++b) {
      const std::int64_t at = group * t.scale_step() + b * kColumns + lane;
      scale[at] = given_scale[j * t.blocks() + b];
      if (!t.codes.one_zero) zero[at] = given_zero[j * t.blocks() + b];
    }
  }
  return std::vector<ir::Tensor>{codes, scales, zeros};
}

class LinearCodesKernel final : public TaskedKernel {
 public:
  LinearCodesKernel(LinearCodesSetting setting, Packed packed)
      : k_(coded_kernels(setting.isa)), rows_(row_kernels(setting.isa)), t_(std::move(setting)) {
    const auto* zeros = reinterpret_cast<const float*>(packed[2].data());
    matrix_ = {reinterpret_cast<const std::uint8_t*>(packed[0].data()),
               reinterpret_cast<const float*>(packed[1].data()),
               t_.codes.one_zero ? nullptr : zeros,
               t_.codes.one_zero ? zeros[0] : 0.0F,
               t_.code_step(),
               t_.scale_step(),
               t_.k,
               t_.codes.block,
               t_.bits()};
    pieces_ = t_.in_registers() ? 1 : (t_.m + kMostRows - 1) / kMostRows;
    piece_ = (t_.m + pieces_ - 1) / pieces_;
    units_ = t_.in_registers() ? t_.groups() : pieces_ * ((t_.groups() + kTile - 1) / kTile);
    tasks_ = even_tasks(t_.groups() * kColumns * t_.k * pieces_, kGrain, units_);
  }

  std::size_t scratch_bytes() const override {
    return line(t_.epilogue.scratch_bytes()) + sums_bytes() +
           static_cast<std::size_t>(t_.in_registers() ? 0 : kDepth * kTile * kColumns * 4);
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    t_.epilogue.prepare(worker.scratch);
    const std::int64_t first = units_ * task_begin / tasks_, last = units_ * task_end / tasks_;
    if (t_.in_registers()) {
      for (std::int64_t g = first; g < last; g += kTile) tile(memory, worker, 0, t_.m, g, std::min(kTile, last - g));
      return;
    }
    const std::int64_t tiles = units_ / pieces_;
    for (std::int64_t u = first; u < last; ++u) {
      const std::int64_t row = u / tiles * piece_, g = u % tiles * kTile;
      tile(memory, worker, row, std::min(piece_, t_.m - row), g, std::min(kTile, t_.groups() - g));
    }
  }

 private:
  [[nodiscard]] std::size_t sums_bytes() const { return line(static_cast<std::size_t>(piece_ * kTile * kColumns) * sizeof(float)); }

  /// The results of `rows` rows from `row` on in `groups` groups of columns.
  void tile(const Memory& memory, const Worker& worker, std::int64_t row, std::int64_t rows, std::int64_t group,
            std::int64_t groups) const {
    auto* own = reinterpret_cast<float*>(worker.scratch + line(t_.epilogue.scratch_bytes()));
    const std::int64_t column = group * kColumns, width = groups * kColumns, columns = std::min(width, t_.n - column);
    Index origin{};
    origin[0] = row, origin[1] = column;
    float* direct = columns == width ? stored_row(t_.epilogue, memory, origin, 1) : nullptr;
    float* y = direct == nullptr ? own : direct;
    const std::int64_t y_step = direct == nullptr ? width : t_.epilogue.space().stores.front().strides[0] / 4;
    const std::int64_t x_step = t_.x.strides[0];
    const float* x = reinterpret_cast<const float*>(memory.at(t_.x)) + row * x_step;
    CodedMatrix m = matrix_;
    m.codes += group * m.code_step, m.scales += group * m.scale_step;
    if (m.zeros != nullptr) m.zeros += group * m.scale_step;
    if (t_.in_registers()) {
      k_.multiply(y, y_step, x, x_step, rows, m, groups);
    } else {
      float* weights = own + sums_bytes() / sizeof(float);
      for (std::int64_t r = 0; r < rows; ++r) std::memset(y + r * y_step, 0, static_cast<std::size_t>(width) * sizeof(float));
      for (std::int64_t i = 0; i < t_.k; i += kDepth) {
        const std::int64_t depth = std::min(kDepth, t_.k - i);
        k_.unpack(weights, width, m, i, depth, groups);
        rows_.multiply(y, y_step, x + i, x_step, rows, weights, width, depth, width);
      }
    }
    if (direct == nullptr) store_sums(t_.epilogue, memory, worker.scratch, origin, 0, 1, own, width, rows, columns);
  }

  const CodedRowKernels& k_;
  const RowKernels& rows_;
  LinearCodesSetting t_;
  CodedMatrix matrix_ = {};
  std::int64_t pieces_ = 1, piece_ = 1, units_ = 1;
};

class LinearCodesFamily final : public FamilyOf<LinearCodesSetting> {
 public:
  LinearCodesFamily() : FamilyOf({.name = "linear.f32.codes"}) {}
  bool about(const Region& r) const override {
    return is_one(r, ir::Op::conv) && only(r).anchor.weight_codes && only(r).anchor.weights && !only(r).anchor.inputs.empty();
  }
  Match<LinearCodesSetting> match(const Request& q) const override { return linear_codes_setting(q); }
  double cost(const LinearCodesSetting& t, Isa isa) const override {
    const double weights = static_cast<double>(t.n) * static_cast<double>(t.k), macs = weights * static_cast<double>(t.m);
    const std::int64_t pieces = (t.m + kMostRows - 1) / kMostRows;
    const double unpacked = weights * static_cast<double>(pieces);
    const std::vector<std::int64_t> bytes = packed_bytes(t);
    const double read = static_cast<double>(bytes[0] + bytes[1] + bytes[2]) / kBytesAClock;
    return ((unpacked / 9 + macs / 24 + static_cast<double>(t.m * t.n)) * slowdown(isa) + read) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<std::int64_t> packed_bytes(const LinearCodesSetting& t) const override {
    return {t.groups() * t.code_step(), t.groups() * t.scale_step() * 4, t.codes.one_zero ? 4 : t.groups() * t.scale_step() * 4};
  }
  Result<std::vector<ir::Tensor>> pack(const LinearCodesSetting& t) const override { return packed_codes(t); }
  std::optional<std::string> layout(const LinearCodesSetting& t) const override {
    return fmt::format("{} of {} bits, {} a scale{}", t.n, t.bits(), t.codes.block, t.codes.one_zero ? "" : " and zero point");
  }
  Result<std::unique_ptr<Kernel>> load(LinearCodesSetting t, Packed packed) const override {
    return std::make_unique<LinearCodesKernel>(std::move(t), packed);
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(linear_codes, LinearCodesFamily)

}  // namespace octavo::cpu
