#include "cuda/families/conv/conv_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace octavo::cuda {
namespace {

constexpr std::string_view kLoad =
#include "cuda/families/conv/conv_load.inc"
    ;

}  // namespace

std::string_view conv_load_text() {
  return kLoad;
}

bool is_windowed(const region::Region& region) {
  if (region.stages.size() != 1) return false;
  const region::Anchor& a = region.stages[0].anchor;
  if (a.op != ir::Op::conv || !a.integer || !a.weights) return false;
  const ir::Shape& w = a.weights->dims;
  return w.size() == 4 && w[2] * w[3] > 1 && a.as<ir::Window>().group == 1;
}

Reasons why_not_windowed(const ConvShape& s, std::int64_t most_steps) {
  if (s.channels % 16 != 0 || s.piece != 16)
    return unmet("channels, bytes a pixel, bytes a run", fmt::format("{}, {}, {}", s.channels, s.pixel, s.piece),
                 "multiples of 16");
  if (const std::int64_t steps = parts(s.kernel_h * s.kernel_w * s.channels, 32); steps > most_steps)
    return unmet("products of 32 bytes", steps, fmt::format("at most {}", most_steps));
  if (s.pixels() > INT32_MAX / 4) return unmet("pixels", s.pixels(), "less than 2^29");
  return {};
}

std::int64_t blocks_of_filters(std::int64_t items, std::int64_t tiles_n, int blocks, const Target& target) {
  const std::int64_t at_once = std::min<std::int64_t>(items, std::int64_t{target.multiprocessors} * blocks);
  return std::max<std::int64_t>(at_once / tiles_n, 1) * tiles_n;
}

std::int64_t registers_of_thread(std::int64_t threads, int blocks) {
  constexpr std::int64_t kOfQuarter = 16384 / 32, kMost = 255;  // of all lanes of a warp together; of one
  return std::min(kOfQuarter / parts(threads * blocks / 32, 4), kMost) / 8 * 8;
}

std::string conv_parameters(const ConvShape& s) {
  return fmt::format("typedef {} octavo_offset;\n", s.wide_offsets() ? "long long" : "int") +
         (s.open ? std::string() : declare({{"kBatch", s.batch}})) +
         declare({{"kInD", s.in_d},
                  {"kInH", s.in_h},
                  {"kInW", s.in_w},
                  {"kChannels", s.channels},
                  {"kOutChannels", s.out_channels},
                  {"kOutD", s.out_d},
                  {"kOutH", s.out_h},
                  {"kOutW", s.out_w}}) +
         (s.open ? std::string() : declare({{"kPixels", s.pixels()}})) +
         declare({{"kKernelD", s.kernel_d},
                  {"kKernelH", s.kernel_h},
                  {"kKernelW", s.kernel_w},
                  {"kStrideD", s.stride_d},
                  {"kStrideH", s.stride_h},
                  {"kStrideW", s.stride_w},
                  {"kDilationD", s.dilation_d},
                  {"kDilationH", s.dilation_h},
                  {"kDilationW", s.dilation_w},
                  {"kPadFront", s.pad_front},
                  {"kPadTop", s.pad_top},
                  {"kPadLeft", s.pad_left},
                  {"kFillCode", s.fill},
                  {"kSkew", s.skew}}) +
         fmt::format("constexpr octavo_offset kInImage = {}, kInFrame = {}, kInRow = {}, kInPixel = {};\n", s.image, s.frame, s.row,
                     s.pixel);
}

ir::Tensor pack_filter(const ConvShape& s, std::int64_t of_group, const ConvWeights& w, const FilterLayout& l) {
  if (w.values.empty())
    return layout_mark(
        {s.out_channels, s.groups, s.taps(), s.tap_bytes(), of_group, l.tiles, l.steps, l.channels, l.bytes, l.run, l.piece});
  ir::Tensor out(ir::DType::s8, {l.tiles * l.steps * l.channels * l.bytes});
  auto* to = out.mutable_data<std::int8_t>().data();
  const int neighbours = 4 * l.run, chunks = l.bytes / 16;  // four lanes hold neighbouring channels
  const std::int64_t bytes = s.tap_bytes(), taps = s.taps(), out_of_group = s.out_channels / s.groups;
  for (std::int64_t tile = 0; tile < l.tiles; ++tile) {
    for (std::int64_t step = 0; step < l.steps; ++step) {
      for (int row = 0; row < l.channels; ++row) {
        const int inner = row % neighbours;
        const std::int64_t channel =
            tile * l.channels + row - inner + channel_of_lane(inner % 8 / 2, inner / 8 * 2 + inner % 2, l.run, l.piece);
        if (channel >= s.out_channels) continue;
        for (int chunk = 0; chunk < chunks; ++chunk) {
          const std::int64_t global = step * chunks + chunk, tap = global / s.tap_chunks(), byte = global % s.tap_chunks() * 16;
          if (tap >= taps) continue;
          const int turn = chunks == 8 ? row & 7 : chunks == 4 ? (row >> 1) & 3 : (row >> 2) & 1;
          std::int8_t* at = to + ((tile * l.steps + step) * l.channels + row) * l.bytes + 16 * (chunk ^ turn);
          if (s.groups == 1) {
            std::memcpy(at, &w.values[static_cast<std::size_t>((channel * taps + tap) * bytes + byte)],
                        static_cast<std::size_t>(std::min<std::int64_t>(16, bytes - byte)));
            continue;
          }
          const std::int64_t own = channel / out_of_group - tile * l.channels / out_of_group;
          for (std::int64_t k = byte; k < std::min(bytes, byte + 16); ++k) {
            if (k / of_group == own)
              at[k - byte] = w.values[static_cast<std::size_t>((channel * taps + tap) * of_group + k % of_group)];
          }
        }
      }
    }
  }
  return out;
}

std::string conv_parameter_list(const EmittedEpilogue& epilogue, std::string_view prefix) {
  return fmt::format("const unsigned char* {0}x, const unsigned char* {0}weights, const unsigned char* {0}constants{1}", prefix,
                     epilogue.parameters);
}

void add_conv_arguments(Launch& launch, const region::TensorRef& input, std::int32_t filter, const EmittedEpilogue& epilogue) {
  launch.arguments.insert(launch.arguments.end(), {{Argument::Kind::buffer, input.buffer, input.offset},
                                                   {Argument::Kind::constant, filter, 0},
                                                   {Argument::Kind::constant, filter + 1, 0}});
  launch.arguments.insert(launch.arguments.end(), epilogue.arguments.begin(), epilogue.arguments.end());
}

EpilogueShape conv_epilogue(const Tail& tail, double largest_sum, int rows, int run, std::int64_t padded_channels) {
  EpilogueShape e;
  e.rows = rows, e.run = run, e.piece = piece_for(tail, run), e.padded_channels = padded_channels;
  e.takes_bias = true, e.accumulator = std::min(largest_sum, 2147483648.0);
  return e;
}

Result<KernelText> detail::put_together(const ConvSetting& conv, ConvKernel kernel, const EpilogueShape& shape,
                                        std::span<const std::int32_t> start) {
  const EmittedEpilogue e = emit_epilogue(conv.tail, shape, up(shape.padded_channels * 4, 16));
  if (!e.refusal.empty()) return refuse(e.refusal);
  KernelText out;
  kernel.text = text_for(kernel.text, conv.shape.open);
  replace_mark(kernel.text, "@PARAMETERS@",
               conv_parameter_list(e) + kernel.open.parameters() + (kernel.image ? ", OCTAVO_IMAGE(image)" : "") +
                   (kernel.starts.empty() ? "" : ", const unsigned char* starts"));
  replace_mark(kernel.text, "@POINTERS@", e.pointers);
  out.text = kernel.numbers + e.text + kernel.text;
  Launch launch = launch_of(std::string(kernel.function), kernel.grid, kernel.threads, kernel.shared);
  launch.counted = kernel.counted;
  add_conv_arguments(launch, conv.input, 0, e);
  kernel.open.add_to(launch);
  if (kernel.image) {
    launch.arguments.push_back({Argument::Kind::buffer, conv.input.buffer, conv.input.offset, 0});
    launch.images.push_back(*kernel.image);
  }
  out.constants = {of_weights(constants_with_start(start, e, shape.padded_channels))};
  if (!kernel.starts.empty()) {
    launch.arguments.push_back({Argument::Kind::constant, 2, 0});
    ir::Tensor starts(ir::DType::s32, {static_cast<std::int64_t>(kernel.starts.size()) * shape.padded_channels});
    std::int32_t* to = starts.mutable_data<std::int32_t>().data();
    for (const auto& one : kernel.starts) {
      std::ranges::copy(with_bias(one, e), to);
      to += shape.padded_channels;
    }
    out.constants.push_back(of_weights(std::move(starts)));
  }
  out.launches.push_back(std::move(launch));
  return out;
}

}  // namespace octavo::cuda
