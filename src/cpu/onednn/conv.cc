// cpu.conv.f32.onednn, cpu.conv.bf16.onednn: float convolutions, row tile of output rows by row tile, so that the epilogue finds its floats
// in L2. An epilogue of bias (and Relu, done in place) alone is left to the primitive, which then stores for itself. The second reads data and
// weights in bfloat16 and sums their products in float.
#ifdef OCTAVO_HAVE_ONEDNN
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "base/causes/kernels.h"
#include "cpu/assumed.h"
#include "cpu/onednn/conv_setting.h"
#include "cpu/onednn/onednn.h"
#include "cpu/onednn/single_thread.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

using namespace onednn;

// One tactic of the table: what data and weights are.
struct Row {
  std::string_view name;
  ir::DType type;
  double macs_per_cycle;  // for estimates
  ir::Op op = ir::Op::conv;
};
constexpr Row kRows[] = {{"conv.f32.onednn", ir::DType::f32, 28.0},
                         {"conv.bf16.onednn", ir::DType::bf16, 52.0},
                         {"conv_transpose.bf16.onednn", ir::DType::bf16, 52.0, ir::Op::conv_transpose}};

/// max(0, x) in place, while it is in cache. oneDNN's own would turn NaN into 0.
__attribute__((optimize("O3"))) void relu(std::byte* at, std::int64_t n, DataType type) {
  if (type == kF32) {
    auto* x = reinterpret_cast<float*>(at);
    for (std::int64_t i = 0; i < n; ++i) x[i] = 0.0F > x[i] ? 0.0F : x[i];
    return;
  }
  auto* x = reinterpret_cast<std::uint16_t*>(at);  // bfloat16: below 0 are the numbers with a sign, up to its infinity
  for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] > 0x8000 && x[i] <= 0xff80 ? std::uint16_t{0} : x[i];
}

class OneDnnConv final : public Kernel {
 public:
  OneDnnConv(Setting setting, const Stage& s, std::optional<Epilogue> epilogue, const std::byte* weights)
      : t_(std::move(setting)),
        epilogue_(std::move(epilogue)),
        x_(s.anchor.inputs[0]),
        y_(s.stores[0]),
        engine_(dnnl::engine::kind::cpu, 0) {
    const SingleThread here;
    if (t_.fused.bias >= 0 && t_.fused.whole) bias_ = s.operands[static_cast<std::size_t>(t_.fused.bias)].ref;
    const dnnl::memory::desc* chosen = nullptr;
    for (std::int64_t i = 0; i < t_.row_tiles; ++i) {
      const RowTile b = row_tile_of(t_, i);
      if (primitives_.contains(b)) continue;
      const dnnl::primitive_desc pd = describe(t_, b, chosen, engine_);
      if (chosen == nullptr) {
        weight_desc_ = pd.query_md(dnnl::query::weights_md);
        chosen = &weight_desc_;
      }
      const auto x = pd.query_md(dnnl::query::src_md), y = pd.query_md(dnnl::query::dst_md),
                 scratchpad = pd.query_md(dnnl::query::scratchpad_md);
      scratchpad_ = std::max(scratchpad_, scratchpad.get_size());
      if (t_.gather) gather_bytes_ = std::max(gather_bytes_, (x.get_size() + 63) / 64 * 64);
      primitives_.emplace(b, Ready{dnnl::primitive(pd), x, y, scratchpad});
    }
    dnnl::memory plain(t_.plain_weights, engine_, const_cast<std::byte*>(weights));
    weights_ = dnnl::memory(weight_desc_, engine_);
    dnnl::stream stream(engine_);
    dnnl::reorder(plain, weights_).execute(stream, plain, weights_);
    stream.wait();
  }

  int tasks() const override { return static_cast<int>(t_.image.batch * t_.row_tiles); }
  std::size_t scratch_bytes() const override { return epilogue_bytes() + row_tile_bytes() + gather_bytes_ + scratchpad_ + 64; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const SingleThread here;
    dnnl::stream stream(engine_);
    if (epilogue_) epilogue_->prepare(worker.scratch);
    for (int t = task_begin; t < task_end; ++t) run_row_tile(memory, worker.scratch, stream, t / t_.row_tiles, t % t_.row_tiles);
  }

 private:
  struct Ready {
    dnnl::primitive primitive;
    dnnl::memory::desc x, y, scratchpad;
  };
  [[nodiscard]] std::size_t epilogue_bytes() const { return epilogue_ ? (epilogue_->scratch_bytes() + 63) / 64 * 64 : 0; }
  [[nodiscard]] std::size_t row_tile_bytes() const {
    return epilogue_ ? static_cast<std::size_t>((t_.rows_per_tile * t_.image.width.out * t_.cout * 4 + 63) / 64 * 64) : 0;
  }

  void copy_rows(const std::byte* from, std::byte* to, std::int64_t rows) const {
    const auto bytes = static_cast<std::size_t>(t_.cin * bytes_of(t_.data));
    for (std::int64_t h = 0; h < rows; ++h) {
      for (std::int64_t w = 0; w < t_.image.width.in; ++w, to += bytes) {
        std::memcpy(to, from + h * t_.image.xh + w * t_.image.xw, bytes);
      }
    }
  }

  void run_row_tile(const Memory& memory, std::byte* scratch, dnnl::stream& stream, std::int64_t n, std::int64_t row_tile) const {
    const Image& im = t_.image;
    const Ready& ready = primitives_.at(row_tile_of(t_, row_tile));
    std::byte* x = memory.at(x_) + n * im.xn + first_input_row(t_, row_tile) * im.xh;
    std::byte* y = scratch + epilogue_bytes();
    std::byte* behind = y + row_tile_bytes();
    if (t_.gather) {
      copy_rows(x, behind, row_tile_of(t_, row_tile).in_rows);
      x = behind;
    }
    const std::int64_t first = row_tile * t_.rows_per_tile;
    if (!epilogue_) {
      y = memory.at(y_);
      const std::int64_t size = bytes_of(t_.stored);
      if (im.n >= 0) y += n * y_.strides[static_cast<std::size_t>(im.n)] * size;
      if (im.h >= 0) y += first * y_.strides[static_cast<std::size_t>(im.h)] * size;
    }
    std::unordered_map<int, dnnl::memory> args{
        {DNNL_ARG_SRC, dnnl::memory(ready.x, engine_, x)},
        {DNNL_ARG_WEIGHTS, weights_},
        {DNNL_ARG_DST, dnnl::memory(ready.y, engine_, y)},
        {DNNL_ARG_SCRATCHPAD, dnnl::memory(ready.scratchpad, engine_, behind + gather_bytes_)}};
    if (bias_) {
      args.emplace(DNNL_ARG_BIAS, dnnl::memory({{t_.cout}, kF32, dnnl::memory::format_tag::x}, engine_, memory.at(*bias_)));
    }
    ready.primitive.execute(stream, args);
    stream.wait();
    if (!epilogue_) {
      if (t_.fused.relu) relu(y, row_tile_of(t_, row_tile).rows * t_.image.width.out * t_.cout, t_.stored);
      return;
    }
    const std::int64_t rows = std::min(t_.rows_per_tile, im.height.out - first);
    const std::int64_t cols = std::min<std::int64_t>(t_.cout, kBlock), pixels = kBlock / cols;
    auto* acc = reinterpret_cast<std::byte*>(Epilogue::acc(scratch));
    Index origin{};
    origin[static_cast<std::size_t>(im.n)] = n;
    for (std::int64_t r = 0; r < rows; ++r) {
      if (im.h >= 0) origin[static_cast<std::size_t>(im.h)] = first + r;
      for (std::int64_t w = 0; w < im.width.out; w += pixels) {
        const std::int64_t count = std::min(pixels, im.width.out - w);
        origin[static_cast<std::size_t>(im.w)] = w;
        for (std::int64_t c = 0; c < t_.cout; c += cols) {
          const std::int64_t part = std::min(cols, t_.cout - c);
          std::memcpy(acc, y + ((r * im.width.out + w) * t_.cout + c) * 4, static_cast<std::size_t>(count * part * 4));
          origin[static_cast<std::size_t>(im.c)] = c;
          epilogue_->run(memory, scratch, origin, static_cast<int>(count), static_cast<int>(part));
        }
      }
    }
  }

  Setting t_;
  std::optional<Epilogue> epilogue_;  // absent: the primitive stores
  region::TensorRef x_, y_;
  std::optional<region::TensorRef> bias_;
  dnnl::engine engine_;
  dnnl::memory::desc weight_desc_;
  dnnl::memory weights_;
  std::map<RowTile, Ready> primitives_;
  std::size_t scratchpad_ = 0, gather_bytes_ = 0;
};

class OneDnnConvFamily final : public Family {
 public:
  explicit OneDnnConvFamily(const Row& row) : row_(row) {}
  std::string_view name() const override { return row_.name; }
  bool per_isa() const override { return false; }
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return r.stages.size() == 1 && a.op == row_.op && !a.integer && a.weights && a.weights->dtype == row_.type &&
           !a.inputs.empty() && !only(r).program.outputs.empty();
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    // oneDNN chooses its instruction set itself, so under a cap below the processor's own it cannot be used.
    if (best_isa() != detected_isa() || assumes_processor())
      return {because<cause::capability_not_allowed>(octavo::cpu::name_of(detected_isa()), "OCTAVO_CPU",
                                                     octavo::cpu::name_of(best_isa()))};
    // Without the instructions the library would compute as slowly as in f32, from data less exact.
    if (row_.type == ir::DType::bf16 && !has_bf16()) return why_lacking({"avx512bf16"});
    const auto t = setting_of(only(r));
    if (!t) return refusal_of(t);
    if (!t->fused.whole) {
      if (const auto e = epilogue(only(r), *t); !e) return refusal_of(e);
    }
    try {
      const SingleThread here;
      const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
      const dnnl::primitive_desc first = describe(*t, row_tile_of(*t, 0), nullptr, engine);
      const auto weights = first.query_md(dnnl::query::weights_md);
      for (std::int64_t i = 1; i < t->row_tiles; ++i) {  // every row tile takes the first one's weights
        if (row_tile_of(*t, i) != row_tile_of(*t, i - 1)) (void)describe(*t, row_tile_of(*t, i), &weights, engine);
      }
      const std::string implementation = first.impl_info_str();
      if (implementation.find("ref") != std::string::npos) return unmet("oneDNN's primitive", implementation, "vector code");
    } catch (const dnnl::error& e) {
      return unmet("oneDNN's primitives", e.what(), "one for this convolution");
    }
    return {};
  }
  double cost(const Region& r, const Plan&, Isa) const override {
    const Stage& s = only(r);
    const auto& w = s.anchor.weights->dims;
    const auto out = static_cast<double>(ir::count(s.space));
    const auto of = static_cast<double>(row_.op == ir::Op::conv ? ir::count(s.space) : ir::count(s.anchor.inputs[0].dims));
    const double macs = of * static_cast<double>(ir::count(w)) / static_cast<double>(row_.op == ir::Op::conv ? s.space[1] : w[0]);
    const bool whole = find_fused(s).whole;
    return (macs / row_.macs_per_cycle + out * (whole ? 0.3 : 1.5)) * slowdown(best_isa()) * kSecondsPerCycle +
           (whole ? 2e-6 : 4e-6);
  }
  Result<std::vector<ir::Tensor>> pack(const Region& r, const Plan& plan, Isa) const override {
    const region::TensorRef& w = *only(r).anchor.weights;
    ir::Tensor t(w.dtype, w.dims);
    std::memcpy(t.mutable_bytes().data(), plan.buffers[static_cast<std::size_t>(w.buffer)].data.bytes().data() + w.offset,
                t.bytes().size());
    return std::vector<ir::Tensor>{t};
  }
  Result<std::vector<std::int64_t>> packed_bytes(const Region& r, const Plan&, Isa) const override {
    const region::TensorRef& w = *only(r).anchor.weights;
    return std::vector<std::int64_t>{tensor_bytes(w)};
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa, Packed packed) const override {
    OCTAVO_TRY(Setting t, setting_of(only(r)));
    std::optional<Epilogue> e;
    if (!t.fused.whole) {
      OCTAVO_TRY(e, epilogue(only(r), t));
    }
    try {
      return std::make_unique<OneDnnConv>(std::move(t), only(r), std::move(e), packed[0]);
    } catch (const dnnl::error& error) {
      return fail(ErrorKind::unsupported, fmt::format("loading region \"{}\": oneDNN: {}", r.name, error.what()));
    }
  }

 private:
  const Row& row_;

  static Result<Epilogue> epilogue(const Stage& s, const Setting& t) {
    OCTAVO_TRY(Space space, Space::of(s));
    std::vector<Elem> loads;
    for (const Access& a : space.loads) loads.push_back(a.elem);
    OCTAVO_TRY(Code code, Code::compile(s.program, loads));
    return Epilogue::make(*kernel_table(best_isa()), std::move(code), std::move(space), t.image.w, t.image.c);
  }
};

}  // namespace

std::vector<const Family*> onednn_conv_families() {
  static const OneDnnConvFamily families[] = {OneDnnConvFamily(kRows[0]), OneDnnConvFamily(kRows[1]), OneDnnConvFamily(kRows[2])};
  return {&families[0], &families[1], &families[2]};
}

}  // namespace octavo::cpu
#endif
