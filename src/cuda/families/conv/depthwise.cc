#include "cuda/families/conv/depthwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cuda/families/conv/conv_text.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/depthwise.inc"
    ;
constexpr std::string_view kWindow =
#include "cuda/families/conv/depthwise_window.inc"
    ;

struct Split {
  int rows = 4, columns = 2, threads = 128;
};

std::int64_t words_of(const ConvShape& s, int columns) {
  return ((columns - 1) * s.stride_w + (s.kernel_w - 1) * s.dilation_w + 1 + 3) / 4;
}

Reasons why_not_split(const ConvShape& s, const Split& t) {
  if (t.rows < 1 || t.rows > 16 || t.columns < 1 || t.columns > 8 || t.threads < 32 || t.threads > 512 || t.threads % 32 != 0)
    return unmet("pixels and threads", fmt::format("{}x{}, {}", t.rows, t.columns, t.threads), "up to 16x8, whole warps up to 512");
  if (const std::int64_t registers = depthwise_registers(s, t.rows, t.columns); registers > kMostDepthwiseRegisters)
    return unmet("registers for weights and sums", registers, fmt::format("at most {}", kMostDepthwiseRegisters));
  return {};
}

Parameters spell(const Split& t) {
  return {{"rows", std::to_string(t.rows)}, {"columns", std::to_string(t.columns)}, {"threads", std::to_string(t.threads)}};
}

Result<Split> parse(const Parameters& parameters) {
  Split t;
  const auto get = [&](const char* name) {
    const auto it = parameters.find(name);
    return it == parameters.end() ? 0 : std::atoi(it->second.c_str());
  };
  t.rows = get("rows"), t.columns = get("columns"), t.threads = get("threads");
  if (spell(t) != parameters)
    return fail(ErrorKind::bad_input, "conv.u8s8.depthwise: parameters are rows, columns and threads, numbers all");
  return t;
}

class Depthwise final : public Family {
 public:
  [[nodiscard]] std::string_view name() const override { return "conv.u8s8.depthwise"; }
  [[nodiscard]] bool about(const region::Region& r) const override {
    return r.stages.size() == 1 && r.stages[0].anchor.op == ir::Op::conv && r.stages[0].anchor.integer &&
           r.stages[0].anchor.as<ir::Window>().group > 1;
  }
  [[nodiscard]] Reasons why_not(const region::Region& r, const region::Plan& plan, const Target&) const override {
    ConvShape s;
    return read_depthwise(r, plan, s);
  }
  [[nodiscard]] std::vector<Candidate> candidates(const region::Region& r, const region::Plan& plan,
                                                  const Target& target) const override {
    ConvShape s;
    if (!read_depthwise(r, plan, s).empty()) return {};
    double bytes = static_cast<double>(s.batch * s.image);
    for (const auto& o : r.stages[0].stores) bytes += static_cast<double>(tensor_bytes(o));
    std::vector<Candidate> out;
    for (const int rows : {1, 2, 4, 7, 8}) {
      for (const int columns : {1, 2, 4}) {
        for (const int threads : {64, 128, 256}) {
          const Split t{rows, columns, threads};
          if (!why_not_split(s, t).empty() || rows > 2 * s.out_h || columns > 2 * s.out_w) continue;
          const double instructions = depthwise_instructions(s, rows, columns);
          const double items = static_cast<double>(s.batch * ((s.out_h + rows - 1) / rows) * ((s.out_w + columns - 1) / columns)) *
                               static_cast<double>(s.out_channels) / 4;
          const double waves = std::max(1.0, items / (target.multiprocessors * 128.0 * 2));
          const double busy = std::max(instructions * waves * 2 * 1.3, instructions * 4.0) / 1.7e9;
          const double memory = bytes / 2.8e12;
          out.push_back({spell(t), std::max(busy, memory) + 0.3 * std::min(busy, memory) + 2e-6 + (threads == 128 ? 0 : 1e-9)});
        }
      }
    }
    std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
    return out;
  }
  [[nodiscard]] Result<KernelText> emit(const region::Region& r, const region::Plan& plan, const Parameters& parameters,
                                        const Target&) const override {
    ConvShape s;
    if (auto why = read_depthwise(r, plan, s); !why.empty()) return refuse(std::move(why));
    OCTAVO_TRY(const Split t, parse(parameters));
    if (auto why = why_not_split(s, t); !why.empty()) return refuse(std::move(why));
    const ConvWeights w = read_weights(r, plan, s);
    EpilogueShape shape;
    shape.rows = t.rows * t.columns, shape.run = 4, shape.piece = 4, shape.padded_channels = s.out_channels,
    shape.takes_bias = true;
    shape.accumulator = std::min(w.largest_sum, 2147483648.0);
    const std::int64_t constants_at = (s.out_channels * 4 + 15) / 16 * 16;
    const Epilogue e = emit_epilogue(r.stages[0], plan, shape, constants_at);
    if (!e.refusal.empty()) return refuse(e.refusal);

    KernelText out;
    std::string text(kText);
    replace_mark(text, "@PARAMETERS@", conv_parameter_list(e));
    replace_mark(text, "@POINTERS@", e.pointers);
    out.text = define(s, t) + e.text + std::string(kWindow) + text;
    const std::int64_t items =
        s.batch * ((s.out_h + t.rows - 1) / t.rows) * ((s.out_w + t.columns - 1) / t.columns) * (s.out_channels / 4);
    const region::TensorRef& x = r.stages[0].anchor.inputs[0];
    Launch launch;
    launch.function = "octavo_depthwise";
    launch.grid = {static_cast<int>((items + t.threads - 1) / t.threads), 1, 1};
    launch.block = {t.threads, 1, 1};
    add_conv_arguments(launch, x, 0, e);
    out.launches.push_back(std::move(launch));
    out.constants = {pack_depthwise(s, w, t.columns), constants_with_start(w.start, e, shape.padded_channels)};
    return out;
  }

 private:
  static std::string define(const ConvShape& s, const Split& t) {
    std::string out = conv_parameters(s);
    const auto number = [&out](const char* name, std::int64_t v) { out += declare(name, v); };
    number("kOutRows", t.rows), number("kOutColumns", t.columns), number("kThreads", t.threads);
    return out;
  }
};

}  // namespace

Reasons read_depthwise(const region::Region& r, const region::Plan& plan, ConvShape& s) {
  if (auto why = read_conv(r, plan, s); !why.empty()) return why;
  if (s.channels != 1 || s.groups != s.out_channels)
    return unmet("channels a group", fmt::format("{} to {}", s.channels, s.out_channels / std::max<std::int64_t>(s.groups, 1)),
                 "1 to 1");
  const region::TensorRef& x = r.stages[0].anchor.inputs[0];
  if (s.out_channels % 4 != 0 || s.pixel % 4 != 0 || s.row % 4 != 0 || s.image % 4 != 0 || x.offset % 4 != 0)
    return unmet("channels, bytes a pixel, offset", fmt::format("{}, {}, {}", s.out_channels, s.pixel, x.offset), "multiples of 4");
  if (s.kernel_h > 11 || s.kernel_w > 11 || !why_not_split(s, {1, 1, 64}).empty())
    return unmet("kernel", fmt::format("{}x{}", s.kernel_h, s.kernel_w), "at most 11x11, and its weights in registers");
  return {};
}

std::int64_t depthwise_registers(const ConvShape& s, int rows, int columns) {
  return s.kernel_h * columns * words_of(s, columns) * 4 + std::int64_t{rows} * columns * 4;
}

double depthwise_instructions(const ConvShape& s, int rows, int columns) {
  const auto in_rows = static_cast<double>((rows - 1) * s.stride_h + (s.kernel_h - 1) * s.dilation_h + 1);
  const double span = 4.0 * static_cast<double>(words_of(s, columns));
  return in_rows * span * 4 + rows * columns * 4 * (1.5 * static_cast<double>(s.kernel_h) + 14) +
         static_cast<double>(s.kernel_h * columns * words_of(s, columns)) + 60;
}

ir::Tensor pack_depthwise(const ConvShape& s, const ConvWeights& w, int columns) {
  const std::int64_t words = words_of(s, columns), c4 = s.out_channels * 4;
  ir::Tensor packed(ir::DType::s8, {s.kernel_h * columns * words * c4});
  auto* p = packed.mutable_data<std::int8_t>().data();
  for (std::int64_t c = 0; c < s.out_channels; ++c) {
    for (std::int64_t y = 0; y < s.kernel_h; ++y) {
      for (std::int64_t column = 0; column < columns; ++column) {
        for (std::int64_t k = 0; k < s.kernel_w; ++k) {
          const std::int64_t at = column * s.stride_w + k * s.dilation_w;
          p[((y * columns + column) * words + at / 4) * c4 + c * 4 + at % 4] =
              w.values[static_cast<std::size_t>((c * s.kernel_h + y) * s.kernel_w + k)];
        }
      }
    }
  }
  return packed;
}

std::string_view depthwise_window_text() {
  return kWindow;
}

const Family& depthwise_family() {
  static const Depthwise family;
  return family;
}

}  // namespace octavo::cuda
