// cpu.conv.f32.onednn, cpu.conv.bf16.onednn: float convolutions, band of output rows by band, so that the epilogue finds its floats
// in L2. An epilogue of bias and Relu alone is left to the primitive, which then stores for itself. The second reads data and
// weights in bfloat16 and sums their products in float.
#ifdef OCTAVO_HAVE_ONEDNN
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "cpu/onednn/onednn.h"
#include "cpu/onednn/single_thread.h"
#include "cpu/window.h"
#include "dnnl.hpp"

namespace octavo::cpu {
namespace {

using Dims = dnnl::memory::dims;
using DataType = dnnl::memory::data_type;
constexpr auto kF32 = DataType::f32;

// One tactic of the table: what data and weights are.
struct Row {
  std::string_view name;
  ir::DType type;
  double macs_per_cycle;  // for estimates
};
constexpr Row kRows[] = {{"cpu.conv.f32.onednn", ir::DType::f32, 28.0}, {"cpu.conv.bf16.onednn", ir::DType::bf16, 52.0}};

DataType type_of(ir::DType t) {
  return t == ir::DType::bf16 ? DataType::bf16 : kF32;
}
std::int64_t bytes_of(DataType t) {
  return t == DataType::bf16 ? 2 : 4;
}

// bias: operand index; relu: max with 0 behind it. `none`: the program needs the block interpreter.
struct Fused {
  bool whole = false, relu = false;
  int bias = -1;
};

Fused find_fused(const Stage& s) {
  using program::Op;
  Fused f;
  const ir::DType stored = s.stores.empty() ? ir::DType::f32 : s.stores[0].dtype;
  if (s.program.outputs.size() != 1 || (stored != ir::DType::f32 && stored != s.anchor.weights->dtype) ||
      s.stores[0].strides[1] != 1) {
    return f;
  }
  const auto at = [&](int v) -> const program::Instr& { return s.program.code[static_cast<std::size_t>(v)]; };
  const program::Instr* t = &at(s.program.outputs[0].value);
  if (t->op == Op::max && at(t->args[1]).op == Op::imm_f && at(t->args[1]).imm == 0) {
    f.relu = true;
    t = &at(t->args[0]);
  }
  if (t->op == Op::add && at(t->args[0]).op == Op::acc_f && at(t->args[1]).op == Op::load_f) {
    f.bias = at(t->args[1]).imm;
    const region::TensorRef& b = s.operands[static_cast<std::size_t>(f.bias)].ref;
    for (std::size_t k = 0; k < b.strides.size(); ++k) {
      if (s.space[k] != 1 && b.strides[k] != (k == 1 ? 1 : 0)) return {};
    }
    if (b.dtype != ir::DType::f32) return {};
    t = &at(t->args[0]);
  }
  f.whole = t->op == Op::acc_f;
  return f;
}

// One shape of a band; equal bands share a primitive.
struct Band {
  std::int64_t rows, in_rows, top, bottom;
  auto operator<=>(const Band&) const = default;
};

struct Setting {
  DataType data = kF32, stored = kF32;  // of data and weights; of what the primitive writes
  Image image;
  std::int64_t group = 1, cin = 1, cout = 1;
  Fused fused;
  bool gather = false;  // the input's pixels have gaps: a band's rows are copied first
  std::int64_t band_rows = 1, bands = 1;
  Dims weight_dims;
};

Result<Setting> setting_of(const Stage& s) {
  const region::TensorRef& x = s.anchor.inputs[0];
  const auto& w = s.anchor.weights->dims;
  const ir::DType type = s.anchor.weights->dtype;
  if ((type != ir::DType::f32 && type != ir::DType::bf16) || x.dtype != type) {
    return fail(ErrorKind::unsupported, fmt::format("needs input and weights of one type, f32 or bf16, has {} and {}",
                                                    ir::name_of(x.dtype), ir::name_of(type)));
  }
  if (w.size() != 3 && w.size() != 4) return fail(ErrorKind::unsupported, "one and two spatial dimensions are covered");
  Setting t;
  t.data = type_of(type);
  const std::int64_t size = bytes_of(t.data);
  OCTAVO_TRY(t.image, Image::of(s, {w.begin() + 2, w.end()}));
  t.group = ir::get_int(s.anchor.attrs, "group", 1);
  t.cin = x.dims[1];
  t.cout = s.space[1];
  if (x.strides[1] != 1 && t.cin != 1)
    return fail(ErrorKind::unsupported, fmt::format("needs channels side by side; the channel stride is {}", x.strides[1]));
  if (t.group < 1 || t.cin % t.group != 0 || t.cout % t.group != 0)
    return fail(ErrorKind::bad_engine, "groups do not divide the channels");
  if (t.data == kF32 && t.group == t.cin && t.group > 1)
    return fail(ErrorKind::unsupported, "depthwise: the block kernel is faster");
  if (ir::count(s.space) == 0 || ir::count(x.dims) == 0) return fail(ErrorKind::unsupported, "no elements");
  t.fused = find_fused(s);
  const Image& im = t.image;
  const auto dense = [](std::int64_t along_h, std::int64_t along_w, std::int64_t rows, std::int64_t cols, std::int64_t channels) {
    return (cols == 1 || along_w == channels) && (rows == 1 || along_h == cols * channels);
  };
  t.gather = !dense(im.xh / size, im.xw / size, im.height.in, im.width.in, t.cin);
  if (t.gather && t.data == kF32)
    return fail(ErrorKind::unsupported, "the input is a slice of a wider tensor: the block kernel reads it as it is");
  const auto along = [&](int dim) { return dim < 0 ? std::int64_t{0} : s.stores[0].strides[static_cast<std::size_t>(dim)]; };
  t.fused.whole = t.fused.whole && dense(along(im.h), along(im.w), im.height.out, im.width.out, t.cout);
  if (t.fused.whole) t.stored = type_of(s.stores[0].dtype);
  // Bands whose floats fit in half of a small L2 cache; enough of them for a few threads.
  const std::int64_t row_bytes = (t.fused.whole ? 0 : im.width.out * t.cout * 4) + (t.gather ? im.width.in * t.cin * size : 0);
  t.band_rows =
      std::clamp<std::int64_t>(row_bytes == 0 ? im.height.out : 262144 / std::max<std::int64_t>(row_bytes, 1), 1, im.height.out);
  if (im.batch == 1) t.band_rows = std::min(t.band_rows, std::max<std::int64_t>((im.height.out + 3) / 4, 1));
  t.bands = (im.height.out + t.band_rows - 1) / t.band_rows;
  t.weight_dims = {t.cout / t.group, t.cin / t.group, im.height.kernel, im.width.kernel};
  if (t.group > 1) t.weight_dims.insert(t.weight_dims.begin(), t.group);
  return t;
}

Band band_of(const Setting& t, std::int64_t index) {
  const Window& h = t.image.height;
  const std::int64_t first = index * t.band_rows, rows = std::min(t.band_rows, h.out - first);
  const std::int64_t begin = first * h.stride - h.pad,
                     end = (first + rows - 1) * h.stride - h.pad + (h.kernel - 1) * h.dilation + 1;
  const std::int64_t in_begin = std::clamp<std::int64_t>(begin, 0, h.in), in_end = std::clamp<std::int64_t>(end, in_begin, h.in);
  return {rows, in_end - in_begin, in_begin - begin, end - in_end};
}
std::int64_t first_input_row(const Setting& t, std::int64_t index) {
  const Window& h = t.image.height;
  return std::clamp<std::int64_t>(index * t.band_rows * h.stride - h.pad, 0, h.in);
}

// May throw dnnl::error. `weights` empty: the library chooses the format.
dnnl::convolution_forward::primitive_desc describe(const Setting& t, const Band& b, const dnnl::memory::desc* weights,
                                                   const dnnl::engine& engine) {
  const Image& im = t.image;
  const Window &h = im.height, &w = im.width;
  const Dims x_dims{1, t.cin, b.in_rows, w.in}, y_dims{1, t.cout, b.rows, w.out};
  // The library's channel-last kernels want tensors without gaps; a band is one image of its own.
  const auto image = [](const Dims& d) { return Dims{d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; };
  const dnnl::memory::desc x(x_dims, t.data, image(x_dims)), y(y_dims, t.stored, image(y_dims));
  const auto any = dnnl::memory::format_tag::any;
  const dnnl::memory::desc wd = weights != nullptr ? *weights : dnnl::memory::desc(t.weight_dims, t.data, any);
  const Dims strides{h.stride, w.stride}, dilations{h.dilation - 1, w.dilation - 1}, before{b.top, w.pad};
  const std::int64_t right = (w.out - 1) * w.stride + (w.kernel - 1) * w.dilation + 1 - w.in - w.pad;
  const Dims after{b.bottom, right};
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (t.fused.whole && t.fused.relu) {
    dnnl::post_ops ops;
    ops.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attr.set_post_ops(ops);
  }
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  if (t.fused.whole && t.fused.bias >= 0) {
    const dnnl::memory::desc bias(Dims{t.cout}, kF32, dnnl::memory::format_tag::x);
    return {dnnl::convolution_forward::desc(kind, algorithm, x, wd, bias, y, strides, dilations, before, after), attr, engine};
  }
  return {dnnl::convolution_forward::desc(kind, algorithm, x, wd, y, strides, dilations, before, after), attr, engine};
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
    for (std::int64_t i = 0; i < t_.bands; ++i) {
      const Band b = band_of(t_, i);
      if (primitives_.contains(b)) continue;
      const auto pd = describe(t_, b, chosen, engine_);
      if (chosen == nullptr) {
        weight_desc_ = pd.weights_desc();
        chosen = &weight_desc_;
      }
      scratchpad_ = std::max(scratchpad_, pd.scratchpad_desc().get_size());
      if (t_.gather) gather_bytes_ = std::max(gather_bytes_, (pd.src_desc().get_size() + 63) / 64 * 64);
      primitives_.emplace(b, Ready{dnnl::convolution_forward(pd), pd.src_desc(), pd.dst_desc(), pd.scratchpad_desc()});
    }
    const auto tag = t_.group > 1 ? dnnl::memory::format_tag::goihw : dnnl::memory::format_tag::oihw;
    dnnl::memory plain({t_.weight_dims, t_.data, tag}, engine_, const_cast<std::byte*>(weights));
    weights_ = dnnl::memory(weight_desc_, engine_);
    dnnl::stream stream(engine_);
    dnnl::reorder(plain, weights_).execute(stream, plain, weights_);
    stream.wait();
  }

  int tasks() const override { return static_cast<int>(t_.image.batch * t_.bands); }
  std::size_t scratch_bytes() const override { return epilogue_bytes() + band_bytes() + gather_bytes_ + scratchpad_ + 64; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    const SingleThread here;
    dnnl::stream stream(engine_);
    if (epilogue_) epilogue_->prepare(worker.scratch);
    for (int t = task_begin; t < task_end; ++t) run_band(memory, worker.scratch, stream, t / t_.bands, t % t_.bands);
  }

 private:
  struct Ready {
    dnnl::convolution_forward primitive;
    dnnl::memory::desc x, y, scratchpad;
  };
  [[nodiscard]] std::size_t epilogue_bytes() const { return epilogue_ ? (epilogue_->scratch_bytes() + 63) / 64 * 64 : 0; }
  [[nodiscard]] std::size_t band_bytes() const {
    return epilogue_ ? static_cast<std::size_t>((t_.band_rows * t_.image.width.out * t_.cout * 4 + 63) / 64 * 64) : 0;
  }

  void copy_rows(const std::byte* from, std::byte* to, std::int64_t rows) const {
    const auto bytes = static_cast<std::size_t>(t_.cin * bytes_of(t_.data));
    for (std::int64_t h = 0; h < rows; ++h) {
      for (std::int64_t w = 0; w < t_.image.width.in; ++w, to += bytes) {
        std::memcpy(to, from + h * t_.image.xh + w * t_.image.xw, bytes);
      }
    }
  }

  void run_band(const Memory& memory, std::byte* scratch, dnnl::stream& stream, std::int64_t n, std::int64_t band) const {
    const Image& im = t_.image;
    const Ready& ready = primitives_.at(band_of(t_, band));
    std::byte* x = memory.at(x_) + n * im.xn + first_input_row(t_, band) * im.xh;
    std::byte* y = scratch + epilogue_bytes();
    std::byte* behind = y + band_bytes();
    if (t_.gather) {
      copy_rows(x, behind, band_of(t_, band).in_rows);
      x = behind;
    }
    const std::int64_t first = band * t_.band_rows;
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
    if (!epilogue_) return;
    const std::int64_t rows = std::min(t_.band_rows, im.height.out - first);
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
  std::map<Band, Ready> primitives_;
  std::size_t scratchpad_ = 0, gather_bytes_ = 0;
};

class OneDnnConvFamily final : public Family {
 public:
  explicit OneDnnConvFamily(const Row& row) : row_(row) {}
  std::string_view name() const override { return row_.name; }
  bool per_isa() const override { return false; }
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return r.stages.size() == 1 && a.op == ir::Op::conv && !a.integer && a.weights && a.weights->dtype == row_.type &&
           !a.inputs.empty() && !only(r).program.outputs.empty();
  }
  std::string why_not(const Region& r, const Plan&) const override {
    // oneDNN chooses its instruction set itself, so under a cap below the processor's own it cannot be used.
    if (best_isa() != detected_isa())
      return fmt::format("oneDNN does not follow OCTAVO_CPU ({})", octavo::cpu::name_of(best_isa()));
    // Without the instructions the library would compute as slowly as in f32, from data less exact.
    if (row_.type == ir::DType::bf16 && !has_bf16())
      return fmt::format("needs AVX512-BF16, this processor has {} without it", octavo::cpu::name_of(detected_isa()));
    const auto t = setting_of(only(r));
    if (!t) return t.error().message;
    if (!t->fused.whole) {
      if (const auto e = epilogue(only(r), *t); !e) return e.error().message;
    }
    try {
      const SingleThread here;
      const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
      const auto first = describe(*t, band_of(*t, 0), nullptr, engine);
      const auto weights = first.weights_desc();
      for (std::int64_t i = 1; i < t->bands; ++i) {  // every band takes the first one's weights
        if (band_of(*t, i) != band_of(*t, i - 1)) (void)describe(*t, band_of(*t, i), &weights, engine);
      }
      const std::string implementation = first.impl_info_str();
      if (implementation.find("ref") != std::string::npos)
        return fmt::format("oneDNN has only its reference code ({}) for this", implementation);
    } catch (const dnnl::error& e) {
      return fmt::format("oneDNN has no primitive for this ({})", e.what());
    }
    return "";
  }
  double cost(const Region& r, const Plan&, Isa) const override {
    const Stage& s = only(r);
    const auto& w = s.anchor.weights->dims;
    const auto out = static_cast<double>(ir::count(s.space));
    const double macs = out * static_cast<double>(ir::count(w)) / static_cast<double>(s.space[1]);
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
    return std::vector<std::int64_t>{ir::count(w.dims) * static_cast<std::int64_t>(ir::size_of(w.dtype))};
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
  static const OneDnnConvFamily families[] = {OneDnnConvFamily(kRows[0]), OneDnnConvFamily(kRows[1])};
  return {&families[0], &families[1]};
}

}  // namespace octavo::cpu
#endif
