// cpu.resize_linear.block.<isa>: bilinear resizing of channel-last images as the reference does it: along the width first, then
// along the height, one product and one fma each (weights rounded to fp32 once). Widened rows are kept, so each input row is
// resized once.
#include <algorithm>
#include <cmath>
#include <optional>

#include "cpu/family.h"
#include "cpu/table.h"
#include "ir/resize_source.h"

namespace octavo::cpu {
namespace {

// Output coordinate o reads rows low and high: y = fma(x[high], w1, x[low] * w0).
struct Tap {
  std::int64_t low = 0, high = 0;
  float w0 = 1, w1 = 0;
};

struct ResizeSetting {
  region::TensorRef x = {};
  ir::Shape dims = {};
  Isa isa = Isa::portable;
  BlockEpilogue epilogue = {};
  std::optional<std::vector<Tap>> height = {}, width = {};  // absent: unchanged
};

Result<ResizeSetting> resize_setting(const Stage& s, Isa isa) {
  const region::TensorRef& x = s.anchor.inputs[0];
  if (x.dtype != ir::DType::f32 || s.space.size() != 4 || x.dims.size() != 4) {
    return refuse("input", fmt::format("{}{}", ir::name_of(x.dtype), ir::to_string(x.dims)), "f32 of rank 4");
  }
  if (x.dims[0] != s.space[0] || x.dims[1] != s.space[1])
    return refuse("resized dimensions", "images or channels", "height and width alone");
  if (x.strides[1] != 1 && x.dims[1] != 1) {
    return refuse("channel stride of the input", x.strides[1], "1");
  }
  const auto& resize = s.anchor.as<ir::Resize>();
  ResizeSetting p{x, s.space, isa};
  for (const std::size_t d : {std::size_t{2}, std::size_t{3}}) {
    const auto in = static_cast<double>(x.dims[d]), out = static_cast<double>(s.space[d]);
    const double scale = resize.scales.size() == 4 ? resize.scales[d] : out / in;
    if (x.dims[d] == s.space[d] && scale == 1) continue;
    std::vector<Tap> taps;
    for (std::int64_t o = 0; o < s.space[d]; ++o) {
      const double at = ir::resize_source(resize.coordinates, static_cast<double>(o), in, out, scale);
      const double inside = std::clamp(at, 0.0, in - 1);
      Tap t;
      t.low = static_cast<std::int64_t>(std::floor(inside));
      t.high = std::min(t.low + 1, x.dims[d] - 1);
      t.w1 = static_cast<float>(inside - static_cast<double>(t.low));
      t.w0 = 1.0F - t.w1;
      taps.push_back(t);
    }
    (d == 2 ? p.height : p.width) = std::move(taps);
  }
  OCTAVO_TRY(p.epilogue, block_epilogue(s, isa, 3, 1));
  return p;
}

class ResizeKernel final : public TaskedKernel {
 public:
  explicit ResizeKernel(ResizeSetting setting)
      : table_(*kernel_table(setting.isa)), p_(std::move(setting)), x_(p_.x), dims_(p_.dims) {
    const std::int64_t rows = dims_[0] * dims_[2];
    tasks_ = even_tasks(ir::count(dims_), 16384, rows / 4, 64);
    empty_ = ir::count(dims_) == 0 || ir::count(x_.dims) == 0;
  }

  std::size_t scratch_bytes() const override { return epilogue_bytes() + 2 * row_bytes() + 64; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    if (empty_) return;
    p_.epilogue.prepare(worker.scratch);
    Rows rows;
    rows.data[0] = reinterpret_cast<float*>(worker.scratch + epilogue_bytes());
    rows.data[1] = rows.data[0] + row_bytes() / 4;
    const std::int64_t all = dims_[0] * dims_[2];
    for (std::int64_t r = all * task_begin / tasks_; r < all * task_end / tasks_; ++r) {
      one(memory, worker.scratch, rows, r / dims_[2], r % dims_[2]);
    }
  }

 private:
  // The last two input rows, resized to the output's width: [width][channels].
  struct Rows {
    float* data[2];
    std::int64_t image[2] = {-1, -1}, row[2] = {-1, -1};
    int next = 0;
  };
  [[nodiscard]] std::size_t epilogue_bytes() const { return (p_.epilogue.scratch_bytes() + 63) / 64 * 64; }
  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>((dims_[3] * dims_[1] * 4 + 63) / 64 * 64); }

  const float* widened(const Memory& memory, Rows& rows, std::int64_t n, std::int64_t h) const {
    for (int i = 0; i < 2; ++i) {
      if (rows.image[i] == n && rows.row[i] == h) {
        rows.next = 1 - i;
        return rows.data[i];
      }
    }
    const int i = rows.next;
    rows.next = 1 - i;
    rows.image[i] = n;
    rows.row[i] = h;
    const auto* x = reinterpret_cast<const float*>(memory.at(x_)) + n * x_.strides[0] + h * x_.strides[2];
    const std::int64_t c = dims_[1];
    for (std::int64_t w = 0; w < dims_[3]; ++w) {
      float* to = rows.data[i] + w * c;
      if (!p_.width) {
        std::copy_n(x + w * x_.strides[3], c, to);
      } else {
        const Tap& t = (*p_.width)[static_cast<std::size_t>(w)];
        table_.blend(to, x + t.low * x_.strides[3], x + t.high * x_.strides[3], t.w0, t.w1, c);
      }
    }
    return rows.data[i];
  }

  void one(const Memory& memory, std::byte* scratch, Rows& rows, std::int64_t n, std::int64_t h) const {
    const Tap t = p_.height ? (*p_.height)[static_cast<std::size_t>(h)] : Tap{h, h, 1, 0};
    const float* low = widened(memory, rows, n, t.low);
    const float* high = t.high == t.low ? low : widened(memory, rows, n, t.high);
    const std::int64_t c = dims_[1], block = p_.epilogue.code().block(), cols = std::min(c, block), pixels = block / cols;
    auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
    Index origin{};
    origin[0] = n;
    origin[2] = h;
    for (std::int64_t w = 0; w < dims_[3]; w += pixels) {
      const std::int64_t count = std::min(pixels, dims_[3] - w);
      for (std::int64_t first = 0; first < c; first += cols) {
        const std::int64_t part = std::min(cols, c - first), from = w * c + first;
        if (!p_.height) {
          std::copy_n(low + from, count * part, acc);
        } else {
          table_.blend(acc, low + from, high + from, t.w0, t.w1, count * part);
        }
        origin[1] = first;
        origin[3] = w;
        p_.epilogue.run(memory, scratch, origin, static_cast<int>(count), static_cast<int>(part));
      }
    }
  }

  const KernelTable& table_;
  ResizeSetting p_;
  const region::TensorRef& x_;
  const ir::Shape& dims_;
  bool empty_ = false;
};

class ResizeFamily final : public KernelFamily<ResizeSetting, ResizeKernel> {
 public:
  ResizeFamily() : KernelFamily({.name = "resize_linear.block", .about = {{ir::Op::resize_linear}, 1, Results::programmed}}) {}
  Match<ResizeSetting> match(const Request& q) const override { return resize_setting(only(q.region), q.isa); }
  double cost(const ResizeSetting& t, Isa isa) const override {
    const auto n = static_cast<double>(ir::count(t.dims));
    return n * (0.6 + 15.0 / static_cast<double>(std::max<std::int64_t>(t.dims[1], 1))) * slowdown(isa) * kSecondsPerCycle + 0.5e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(resize, ResizeFamily)

}  // namespace octavo::cpu
