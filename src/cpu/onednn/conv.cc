// cpu.conv.f32.onednn, cpu.conv.bf16.onednn: float convolutions, row tile of output rows by row tile, so that the epilogue finds its floats
// in L2. An epilogue of bias (and Relu, done in place) alone is left to the primitive, which then stores for itself. The second reads data and
// weights in bfloat16 and sums their products in float.
#ifdef OCTAVO_HAVE_ONEDNN
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "cpu/onednn/conv_setting.h"
#include "cpu/onednn/implementation.h"
#include "cpu/onednn/onednn.h"
#include "cpu/onednn/single_thread.h"
#include "cpu/table.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

using namespace onednn;

// One tactic of the table: what data and weights are.
struct ConvKind {
  std::string_view name;
  ir::DType type;
  double macs_per_cycle;  // for estimates
  ir::Op op = ir::Op::conv;
};
constexpr ConvKind kConvKinds[] = {{"conv.f32.onednn", ir::DType::f32, 28.0},
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
  OneDnnConv(Setting setting, const std::byte* weights) : t_(std::move(setting)), engine_(dnnl::engine::kind::cpu, 0) {
    const SingleThread here;
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
    if (t_.epilogue) t_.epilogue->prepare(worker.scratch);
    for (int t = task_begin; t < task_end; ++t) run_row_tile(memory, worker.scratch, stream, t / t_.row_tiles, t % t_.row_tiles);
  }

 private:
  struct Ready {
    dnnl::primitive primitive;
    dnnl::memory::desc x, y, scratchpad;
  };
  [[nodiscard]] std::size_t epilogue_bytes() const { return t_.epilogue ? (t_.epilogue->scratch_bytes() + 63) / 64 * 64 : 0; }
  [[nodiscard]] std::size_t row_tile_bytes() const {
    return t_.epilogue ? static_cast<std::size_t>((t_.rows_per_tile * t_.image.width.out * t_.cout * 4 + 63) / 64 * 64) : 0;
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
    std::byte* x = memory.at(t_.x) + n * im.xn + first_input_row(t_, row_tile) * im.xh;
    std::byte* y = scratch + epilogue_bytes();
    std::byte* behind = y + row_tile_bytes();
    if (t_.gather) {
      copy_rows(x, behind, row_tile_of(t_, row_tile).in_rows);
      x = behind;
    }
    const std::int64_t first = row_tile * t_.rows_per_tile;
    if (!t_.epilogue) {
      y = memory.at(t_.y);
      const std::int64_t size = bytes_of(t_.stored);
      if (im.n >= 0) y += n * t_.y.strides[static_cast<std::size_t>(im.n)] * size;
      if (im.h >= 0) y += first * t_.y.strides[static_cast<std::size_t>(im.h)] * size;
    }
    std::unordered_map<int, dnnl::memory> args{
        {DNNL_ARG_SRC, dnnl::memory(ready.x, engine_, x)},
        {DNNL_ARG_WEIGHTS, weights_},
        {DNNL_ARG_DST, dnnl::memory(ready.y, engine_, y)},
        {DNNL_ARG_SCRATCHPAD, dnnl::memory(ready.scratchpad, engine_, behind + gather_bytes_)}};
    if (t_.bias) {
      args.emplace(DNNL_ARG_BIAS, dnnl::memory({{t_.cout}, kF32, dnnl::memory::format_tag::x}, engine_, memory.at(*t_.bias)));
    }
    ready.primitive.execute(stream, args);
    stream.wait();
    if (!t_.epilogue) {
      if (t_.fused.relu) relu(y, row_tile_of(t_, row_tile).rows * t_.image.width.out * t_.cout, t_.stored);
      return;
    }
    const std::int64_t rows = std::min(t_.rows_per_tile, im.height.out - first);
    const std::int64_t cols = std::min<std::int64_t>(t_.cout, kBlock), pixels = kBlock / cols;
    auto* acc = reinterpret_cast<std::byte*>(BlockEpilogue::acc(scratch));
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
          t_.epilogue->run(memory, scratch, origin, static_cast<int>(count), static_cast<int>(part));
        }
      }
    }
  }

  Setting t_;
  dnnl::engine engine_;
  dnnl::memory::desc weight_desc_;
  dnnl::memory weights_;
  std::map<RowTile, Ready> primitives_;
  std::size_t scratchpad_ = 0, gather_bytes_ = 0;
};

/// Empty: there are primitives for all row tiles, and they are vector code.
Reasons why_no_primitives(const Setting& t) {
  try {
    const SingleThread here;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const dnnl::primitive_desc first = describe(t, row_tile_of(t, 0), nullptr, engine);
    const auto weights = first.query_md(dnnl::query::weights_md);
    for (std::int64_t i = 1; i < t.row_tiles; ++i) {  // every row tile takes the first one's weights
      if (row_tile_of(t, i) != row_tile_of(t, i - 1)) (void)describe(t, row_tile_of(t, i), &weights, engine);
    }
    const std::string implementation = first.impl_info_str();
    if (is_scalar_implementation(implementation)) return unmet("oneDNN's primitive", implementation, "vector code");
  } catch (const dnnl::error& e) {
    return unmet("oneDNN's primitives", e.what(), "one for this convolution");
  }
  return {};
}

class OneDnnConvFamily final : public FamilyOf<Setting> {
 public:
  explicit OneDnnConvFamily(const ConvKind& kind) : FamilyOf({.name = kind.name, .levels = kAnyIsa}), kind_(kind) {}
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return is_one(r, kind_.op) && !a.integer && a.weights && a.weights->dtype == kind_.type && !a.inputs.empty() &&
           !only(r).program.outputs.empty();
  }
  Reasons why_not_here() const override {
    if (Reasons why = why_no_onednn(); !why.empty()) return why;
    // Without the instructions the library would compute as slowly as in f32, from data less exact.
    if (kind_.type == ir::DType::bf16 && !has_bf16()) return why_lacking({"avx512bf16"});
    return {};
  }
  Match<Setting> match(const Request& q) const override {
    OCTAVO_TRY(Setting t, setting_of(only(q.region), q.plan));
    if (Reasons why = why_no_primitives(t); !why.empty()) return refuse(std::move(why));
    return t;
  }
  double cost(const Setting& t, Isa) const override {
    const auto out = static_cast<double>(ir::count(t.space));
    const double of = t.transposed ? static_cast<double>(ir::count(t.x.dims)) : out;
    const double macs =
        of * static_cast<double>(ir::count(t.weights.dims)) / static_cast<double>(t.transposed ? t.weights.dims[0] : t.space[1]);
    const double read = static_cast<double>(tensor_bytes(t.weights)) / kBytesAClock;
    return ((macs / kind_.macs_per_cycle + out * (t.fused.whole ? 0.3 : 1.5)) * slowdown(best_isa()) + read) * kSecondsPerCycle +
           (t.fused.whole ? 2e-6 : 4e-6);
  }
  std::vector<std::int64_t> packed_bytes(const Setting& t) const override { return {tensor_bytes(t.weights)}; }
  Result<std::vector<ir::Tensor>> pack(const Setting& t) const override { return t.weight_data.copied(t.weights); }
  std::optional<std::string> layout(const Setting&) const override { return "plain"; }
  Result<std::unique_ptr<Kernel>> load(Setting t, Packed packed) const override {
    try {
      return std::make_unique<OneDnnConv>(std::move(t), packed[0].data());
    } catch (const dnnl::error& error) {
      return fail(ErrorKind::unsupported, fmt::format("oneDNN: {}", error.what()));
    }
  }

 private:
  const ConvKind& kind_;
};

}  // namespace

OCTAVO_DEFINE_FAMILIES(onednn_conv, OneDnnConvFamily, kConvKinds)

}  // namespace octavo::cpu
#endif
