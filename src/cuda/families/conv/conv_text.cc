#include "cuda/families/conv/conv_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace octavo::cuda {

std::string declare(std::string_view name, std::int64_t value) {
  return fmt::format("constexpr int {} = {};\n", name, value);
}

std::string conv_parameters(const ConvShape& s) {
  std::string out = fmt::format("typedef {} octavo_offset;\n", s.wide_offsets() ? "long long" : "int");
  for (const auto& [name, value] : {std::pair{"kBatch", s.batch},
                                    {"kInH", s.in_h},
                                    {"kInW", s.in_w},
                                    {"kChannels", s.channels},
                                    {"kOutChannels", s.out_channels},
                                    {"kOutH", s.out_h},
                                    {"kOutW", s.out_w},
                                    {"kPixels", s.pixels()},
                                    {"kKernelH", s.kernel_h},
                                    {"kKernelW", s.kernel_w},
                                    {"kStrideH", s.stride_h},
                                    {"kStrideW", s.stride_w},
                                    {"kDilationH", s.dilation_h},
                                    {"kDilationW", s.dilation_w},
                                    {"kPadTop", s.pad_top},
                                    {"kPadLeft", s.pad_left},
                                    {"kFillCode", std::int64_t{s.fill}},
                                    {"kSkew", std::int64_t{s.skew}}})
    out += declare(name, value);
  return out + fmt::format("constexpr octavo_offset kInImage = {}, kInRow = {}, kInPixel = {};\n", s.image, s.row, s.pixel);
}

ir::Tensor pack_filter(const ConvShape& s, std::int64_t of_group, const ConvWeights& w, const FilterLayout& l) {
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

void replace_mark(std::string& text, std::string_view mark, std::string_view by) {
  text.replace(text.find(mark), mark.size(), by);
}

std::string conv_parameter_list(const Epilogue& epilogue, std::string_view prefix) {
  return fmt::format("const unsigned char* {0}x, const unsigned char* {0}weights, const unsigned char* {0}constants{1}", prefix,
                     epilogue.parameters);
}

void add_conv_arguments(Launch& launch, const region::TensorRef& input, std::int32_t filter, const Epilogue& epilogue) {
  launch.parameters.insert(launch.parameters.end(), {{Parameter::Kind::buffer, input.buffer, input.offset},
                                                     {Parameter::Kind::constant, filter, 0},
                                                     {Parameter::Kind::constant, filter + 1, 0}});
  launch.parameters.insert(launch.parameters.end(), epilogue.arguments.begin(), epilogue.arguments.end());
}

}  // namespace octavo::cuda
