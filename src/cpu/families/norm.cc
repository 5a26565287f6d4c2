// cpu.instance_norm.rows.<isa>, cpu.layer_norm.rows.<isa>: mean and deviation over the last dimensions, then (x - mean) / deviation *
// scale + bias and the epilogue. Vectors run over the reduced elements where those are neighbours in memory, else over the kept
// dimension that is (channels innermost), many sums side by side. Sums are taken in several parts: floats within the tolerance of docs/semantics.md.
#include <algorithm>
#include <cmath>

#include "cpu/families/row_families.h"
#include "cpu/table.h"

namespace octavo::cpu {

namespace {

struct NormSetting {
  std::vector<region::TensorRef> in = {};
  BlockEpilogue epilogue = {};
  Isa isa = Isa::portable;
  int threads = 1;
  bool layer = false;
  std::size_t first = 2;             ///< dimensions from here on are reduced
  std::int64_t count = 1, step = 1;  ///< elements of one mean, and from one to the next in memory
  std::int64_t last = 1;             ///< extent of the innermost dimension
  std::size_t column = 0;            ///< the kept dimension that vectors run over, where step != 1
  std::int64_t columns = 1;          ///< its extent; 1 where step == 1
  float epsilon = 0;
  std::vector<std::int64_t> scale = {}, bias = {};  ///< offsets of the parameters, elements: a channel, or a reduced element
  bool has_bias = true;
};

/// Offsets of a parameter's elements along the reduced dimensions, broadcast to them.
std::vector<std::int64_t> offsets_of(const region::TensorRef& t, const ir::Shape& inner) {
  std::vector<std::int64_t> out{0};
  for (std::size_t d = 0; d < inner.size(); ++d) {
    const auto at = static_cast<std::ptrdiff_t>(d) - static_cast<std::ptrdiff_t>(inner.size() - t.dims.size());
    const bool broadcast = at < 0 || t.dims[static_cast<std::size_t>(at)] == 1;
    const std::int64_t stride = broadcast ? 0 : t.strides[static_cast<std::size_t>(at)];
    std::vector<std::int64_t> wider;
    wider.reserve(out.size() * static_cast<std::size_t>(inner[d]));
    for (const std::int64_t o : out) {
      for (std::int64_t i = 0; i < inner[d]; ++i) wider.push_back(o + i * stride);
    }
    out = std::move(wider);
  }
  return out;
}

Result<NormSetting> norm_setting(const Stage& s, Isa isa, int threads) {
  const region::Anchor& a = s.anchor;
  const region::TensorRef& x = a.inputs[0];
  for (const region::TensorRef& t : a.inputs) {
    if (t.dtype != ir::DType::f32) return refuse("type of an input", ir::name_of(t.dtype), "f32");
  }
  NormSetting t{a.inputs, {}, isa, threads};
  t.layer = a.op == ir::Op::layer_norm;
  const auto rank = x.dims.size();
  if (t.layer) t.first = static_cast<std::size_t>(a.as<ir::LayerNorm>().axis);
  if (rank < t.first + 1) return refuse("rank of the input", rank, fmt::format("{} or more", t.first + 1));
  if (x.dims != s.space) return refuse("shape of the input", ir::to_string(x.dims), ir::to_string(s.space));
  if (a.inputs.size() < 2) return refuse("operands", a.inputs.size(), "2 or more: the input and its scale");
  t.epsilon = static_cast<float>(t.layer ? a.as<ir::LayerNorm>().epsilon : a.as<ir::InstanceNorm>().epsilon);
  t.last = x.dims.back();
  bool inside = false;
  std::int64_t next = 0;
  for (std::size_t d = rank; d-- > t.first;) {
    t.count *= x.dims[d];
    if (x.dims[d] == 1) continue;
    if (!inside) t.step = x.strides[d];
    if (inside && x.strides[d] != next)
      return refuse("reduced dimensions", fmt::format("of {}, apart in memory", ir::to_string(x.dims)), "one run in memory");
    inside = true;
    next = x.strides[d] * x.dims[d];
  }
  if (t.step != 1) {
    for (std::size_t d = 0; d < t.first; ++d) {
      if (x.dims[d] > 1 && x.strides[d] == 1) t.column = d, t.columns = x.dims[d];
    }
    if (t.columns == 1) return refuse("elements that are adjacent in memory", "neither reduced nor kept ones", "either");
  }
  const ir::Shape inner(x.dims.begin() + static_cast<std::ptrdiff_t>(t.first), x.dims.end());
  t.has_bias = a.inputs.size() > 2;
  if (t.layer) {
    t.scale = offsets_of(a.inputs[1], inner);
    if (t.has_bias) t.bias = offsets_of(a.inputs[2], inner);
  } else {
    if (!t.has_bias || a.inputs[1].dims.size() != 1 || a.inputs[2].dims.size() != 1)
      return refuse("scale and bias", "of other shapes", "one dimension");
    const ir::Shape channels{x.dims[1]};
    t.scale = offsets_of(a.inputs[1], channels);
    t.bias = offsets_of(a.inputs[2], channels);
  }
  const std::size_t last = s.space.size() - 1;
  const bool columns = t.columns > 1;
  OCTAVO_TRY(t.epilogue, block_epilogue(s, isa, columns ? last : last == 0 ? 1 : last - 1, columns ? t.column : last));
  return t;
}

class NormKernel final : public TaskedKernel {
 public:
  explicit NormKernel(NormSetting setting)
      : k_(row_kernels(setting.isa)), t_(std::move(setting)), epilogue_(t_.epilogue), in_(t_.in) {
    const int threads = t_.threads;
    const ir::Shape& dims = in_[0].dims;
    for (std::size_t d = 0; d < t_.first; ++d) {
      if (t_.columns == 1 || d != t_.column) groups_ *= dims[d];
    }
    width_ = t_.columns;
    const std::int64_t most = epilogue_.code().block() / 16 * 16;
    width_ = std::min(width_, most);
    while (t_.columns > 1 && width_ > 16 && groups_ * ((t_.columns + width_ - 1) / width_) < threads)
      width_ = (width_ / 2 + 15) / 16 * 16;
    blocks_ = (t_.columns + width_ - 1) / width_;
    const std::int64_t sums = groups_ * blocks_;
    if (sums < threads && t_.count * width_ > 8192) pieces_ = std::min<std::int64_t>((threads + sums - 1) / sums, 8);
    // Short rows that follow each other have their statistics computed side by side, and share a call of the epilogue.
    if (t_.layer && t_.columns == 1 && t_.first >= 1 && t_.first + 1 == dims.size() && dims[t_.first - 1] > 1 && t_.count >= 1 &&
        t_.count <= epilogue_.code().block())
      rows_ = std::min(kStatisticsRows, dims[t_.first - 1]);
    neighbours_ = neighbours(t_.scale) && neighbours(t_.bias);
    while (rows_ > 4 && units() < threads) rows_ /= 2;
    if (rows_ > 1) pieces_ = 1;
    tasks_ = static_cast<int>(std::min<std::int64_t>(units(), 256));
  }

  std::size_t scratch_bytes() const override {
    return line(epilogue_.scratch_bytes()) + 4 * line(static_cast<std::size_t>(width_) * 4) + 2 * line(parameters() * 4);
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    Scratch w = divide(worker.scratch);
    epilogue_.prepare(worker.scratch);
    if (t_.layer) {
      take(memory, in_[1], t_.scale, w.scale);
      std::fill(w.bias, w.bias + parameters(), 0.0F);
      if (t_.has_bias) take(memory, in_[2], t_.bias, w.bias);
    }
    if (rows_ > 1) return run_rows(memory, task_begin, task_end, worker.scratch, w);
    const std::int64_t units = this->units();
    std::int64_t have = -1;
    for (std::int64_t u = units * task_begin / tasks_; u < units * task_end / tasks_; ++u) {
      const std::int64_t sums = u / pieces_, piece = u % pieces_;
      Index origin{};
      std::int64_t rest = sums / blocks_;
      for (std::size_t d = t_.first; d-- > 0;) {
        if (t_.columns > 1 && d == t_.column) continue;
        origin[d] = rest % in_[0].dims[d];
        rest /= in_[0].dims[d];
      }
      const std::int64_t from = sums % blocks_ * width_, cols = std::min(width_, t_.columns - from);
      if (t_.columns > 1) origin[t_.column] = from;
      const auto* x = reinterpret_cast<const float*>(memory.at(in_[0]));
      for (std::size_t d = 0; d < t_.first; ++d) x += origin[d] * in_[0].strides[d];
      if (have != sums) statistics(memory, x, origin, cols, w);
      have = sums;
      apply(memory, worker.scratch, x, origin, cols, t_.count * piece / pieces_, t_.count * (piece + 1) / pieces_, w);
    }
  }

 private:
  struct Scratch {
    float *mean, *inverse, *channel_scale, *channel_bias;  ///< by column
    float *scale, *bias;                                   ///< by reduced element
  };
  [[nodiscard]] std::size_t parameters() const { return t_.layer ? static_cast<std::size_t>(t_.count) : 0; }
  [[nodiscard]] Scratch divide(std::byte* scratch) const {
    std::byte* at = scratch + line(epilogue_.scratch_bytes());
    const auto next = [&](std::size_t n) {
      auto* p = reinterpret_cast<float*>(at);
      at += line(n * 4);
      return p;
    };
    const auto n = static_cast<std::size_t>(width_);
    Scratch w{};
    w.mean = next(n), w.inverse = next(n), w.channel_scale = next(n), w.channel_bias = next(n);
    w.scale = next(parameters()), w.bias = next(parameters());
    return w;
  }
  [[nodiscard]] static bool neighbours(const std::vector<std::int64_t>& offsets) {
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] != static_cast<std::int64_t>(i)) return false;
    }
    return true;
  }
  void take(const Memory& memory, const region::TensorRef& t, const std::vector<std::int64_t>& offsets, float* to) const {
    const auto* from = reinterpret_cast<const float*>(memory.at(t));
    if (neighbours_) {
      std::copy_n(from, offsets.size(), to);
      return;
    }
    for (const std::int64_t o : offsets) *to++ = from[o];
  }

  /// What tasks are parts of: pieces of groups, or some rows_ of the dimension before the reduced one.
  [[nodiscard]] std::int64_t units() const {
    if (rows_ == 1) return groups_ * blocks_ * pieces_;
    const std::int64_t n = in_[0].dims[t_.first - 1];
    return groups_ / n * ((n + rows_ - 1) / rows_);
  }

  void run_rows(const Memory& memory, int task_begin, int task_end, std::byte* scratch, const Scratch& w) const {
    const region::TensorRef& in = in_[0];
    const std::size_t row = t_.first - 1;
    const std::int64_t units = this->units(), chunks = (in.dims[row] + rows_ - 1) / rows_, step = in.strides[row];
    const std::int64_t together = std::max<std::int64_t>(epilogue_.code().block() / t_.count, 1);  // rows of a call of the epilogue
    auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
    for (std::int64_t u = units * task_begin / tasks_; u < units * task_end / tasks_; ++u) {
      Index origin{};
      std::int64_t rest = u / chunks;
      for (std::size_t d = row; d-- > 0;) {
        origin[d] = rest % in.dims[d];
        rest /= in.dims[d];
      }
      const std::int64_t first = u % chunks * rows_, count = std::min(rows_, in.dims[row] - first);
      const auto* x = reinterpret_cast<const float*>(memory.at(in)) + first * step;
      for (std::size_t d = 0; d < row; ++d) x += origin[d] * in.strides[d];
      float mean[kStatisticsRows], inverse[kStatisticsRows];
      k_.statistics(mean, inverse, x, count, step, t_.count, t_.epsilon);
      for (std::int64_t r = 0; r < count;) {
        origin[row] = first + r;
        float* const to = stored_row(epilogue_, memory, origin, row + 1);
        const std::int64_t here = to != nullptr ? 1 : std::min(together, count - r);
        k_.normalize(to != nullptr ? to : acc, x + r * step, here, step, t_.count, mean + r, inverse + r, w.scale, w.bias);
        if (to == nullptr) epilogue_.run(memory, scratch, origin, static_cast<int>(here), static_cast<int>(t_.count));
        r += here;
      }
    }
  }

  void statistics(const Memory& memory, const float* x, const Index& origin, std::int64_t cols, const Scratch& w) const {
    const auto n = static_cast<float>(t_.count);
    if (t_.columns == 1) {
      w.mean[0] = k_.sum(x, t_.count) / n;
      w.inverse[0] = k_.squares(x, w.mean[0], t_.count);
    } else {
      std::fill(w.mean, w.mean + cols, 0.0F);
      std::fill(w.inverse, w.inverse + cols, 0.0F);
      k_.add(w.mean, x, t_.count, t_.step, cols);
      for (std::int64_t c = 0; c < cols; ++c) w.mean[c] /= n;
      k_.add_squares(w.inverse, x, w.mean, t_.count, t_.step, cols);
    }
    for (std::int64_t c = 0; c < cols; ++c) w.inverse[c] = 1.0F / std::sqrt(w.inverse[c] / n + t_.epsilon);
    if (t_.layer) return;
    const auto *scale = reinterpret_cast<const float*>(memory.at(in_[1])),
               *bias = reinterpret_cast<const float*>(memory.at(in_[2]));
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto channel = static_cast<std::size_t>(origin[1] + (t_.columns > 1 && t_.column == 1 ? c : 0));
      w.channel_scale[c] = scale[t_.scale[channel]];
      w.channel_bias[c] = bias[t_.bias[channel]];
    }
  }

  /// Reduced elements begin..end of a group: blocks of the epilogue.
  void apply(const Memory& memory, std::byte* scratch, const float* x, Index origin, std::int64_t cols, std::int64_t begin,
             std::int64_t end, const Scratch& w) const {
    auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
    const std::size_t rank = in_[0].dims.size();
    const std::int64_t block = epilogue_.code().block();
    for (std::int64_t r = begin; r < end;) {
      std::int64_t rest = r;
      for (std::size_t d = rank; d-- > t_.first;) {
        origin[d] = rest % in_[0].dims[d];
        rest /= in_[0].dims[d];
      }
      const std::int64_t here = std::min(t_.last - origin[rank - 1], end - r);  // of the innermost dimension
      if (t_.columns > 1) {
        const std::int64_t rows = std::min(block / cols, here);
        for (std::int64_t i = 0; i < rows; ++i) {
          float* to = acc + i * cols;
          k_.centre(to, x + (r + i) * t_.step, w.mean, w.inverse, cols);
          if (t_.layer) {
            k_.scale_all(to, w.scale[r + i], w.bias[r + i], cols);
          } else {
            k_.scale(to, w.channel_scale, w.channel_bias, cols);
          }
        }
        epilogue_.run(memory, scratch, origin, static_cast<int>(rows), static_cast<int>(cols));
        r += rows;
        continue;
      }
      // Whole rows of the innermost dimension together, where they are short.
      std::int64_t rows = 1, length = std::min(here, block);
      if (length == t_.last && rank >= 2 && t_.first + 2 <= rank)
        rows =
            std::max<std::int64_t>(1, std::min({block / t_.last, in_[0].dims[rank - 2] - origin[rank - 2], (end - r) / t_.last}));
      k_.centre_all(acc, x + r, w.mean[0], w.inverse[0], rows * length);
      if (t_.layer) {
        k_.scale(acc, w.scale + r, w.bias + r, rows * length);
      } else {
        k_.scale_all(acc, w.channel_scale[0], w.channel_bias[0], rows * length);
      }
      epilogue_.run(memory, scratch, origin, static_cast<int>(rows), static_cast<int>(length));
      r += rows * length;
    }
  }

  const RowKernels& k_;
  NormSetting t_;
  const BlockEpilogue& epilogue_;
  const std::vector<region::TensorRef>& in_;
  std::int64_t groups_ = 1, width_ = 1, blocks_ = 1, pieces_ = 1, rows_ = 1;
  bool neighbours_ = false;  ///< the parameters, one a reduced element, are without gaps
};

class NormFamily final : public KernelFamily<NormSetting, NormKernel> {
 public:
  explicit NormFamily(ir::Op op)
      : KernelFamily({.name = op == ir::Op::layer_norm ? "layer_norm.rows" : "instance_norm.rows",
                      .about = {{op}, 0, Results::programmed}}) {}
  Match<NormSetting> match(const Request& q) const override { return norm_setting(only(q.region), q.isa, q.plan.threads); }
  double cost(const NormSetting& t, Isa isa) const override {
    return static_cast<double>(ir::count(t.in[0].dims)) * 1.2 * slowdown(isa) * kSecondsPerCycle + 0.3e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILIES(norm, NormFamily, std::array{ir::Op::instance_norm, ir::Op::layer_norm})

}  // namespace octavo::cpu
