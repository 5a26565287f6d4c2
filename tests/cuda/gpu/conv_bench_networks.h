// The convolutions of ResNet50, MobileNetV2, a YOLOv8n-like network and a U-Net, as conv_bench.cc times them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/conv_scene.h"

namespace octavo::cuda {

using testing::ConvCase;

struct Layer {
  ConvCase shape;
  int count = 1;
};

inline ConvCase conv(std::string name, std::int64_t c, std::int64_t hw, std::int64_t o, std::int64_t k, std::int64_t stride,
                     std::string style, std::int64_t groups = 1) {
  ConvCase out;
  out.name = std::move(name), out.c = c, out.h = out.w = hw, out.o = o, out.kh = out.kw = k, out.stride = stride, out.pad = k / 2;
  out.style = std::move(style), out.groups = groups;
  return out;
}

inline std::vector<Layer> network(const std::string& net) {
  std::vector<Layer> out;
  const auto add = [&](const ConvCase& c, int count = 1) {
    for (Layer& l : out) {
      if (l.shape.text() == c.text()) {
        l.count += count;
        return;
      }
    }
    out.push_back({c, count});
  };
  if (net == "resnet50") {
    add(conv("stem", 3, 224, 64, 7, 2, "relu"));
    std::int64_t c = 64, hw = 56;
    const int reps[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage) {
      const std::int64_t mid = 64LL << stage;
      for (int i = 0; i < reps[stage]; ++i) {
        const std::int64_t s = i == 0 && stage > 0 ? 2 : 1;
        const std::string at = fmt::format("res{}.", stage + 2);
        if (i == 0) add(conv(at + "projection", c, hw, mid * 4, 1, s, "bias"));
        add(conv(at + (i == 0 ? "first 1x1" : "1x1 reduce"), c, hw, mid, 1, 1, "relu"));
        add(conv(at + (s == 2 ? "3x3/2" : "3x3"), mid, hw, mid, 3, s, "relu"));
        hw /= s;
        add(conv(at + "1x1 expand+add", mid, hw, mid * 4, 1, 1, "residual"));
        c = mid * 4;
      }
    }
    ConvCase fc = conv("gemm", 2048, 1, 1000, 1, 1, "bias");
    add(fc);
  } else if (net == "mobilenetv2") {
    add(conv("stem", 3, 224, 32, 3, 2, "relu"));
    std::int64_t c = 32, hw = 112;
    const int rows[][4] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                           {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    for (const auto& r : rows) {
      for (int i = 0; i < r[2]; ++i) {
        const std::int64_t mid = c * r[0], s = i == 0 ? r[3] : 1;
        if (r[0] > 1) add(conv(fmt::format("expand {}", c), c, hw, mid, 1, 1, "relu"));
        add(conv(fmt::format("depthwise {}{}", mid, s == 2 ? "/2" : ""), mid, hw, mid, 3, s, "relu", mid));
        hw /= s;
        add(conv(fmt::format("project {}", mid), mid, hw, r[1], 1, 1, i > 0 ? "residual" : "bias"));
        c = r[1];
      }
    }
    add(conv("last", 320, 7, 1280, 1, 1, "relu"));
    add(conv("gemm", 1280, 1, 1000, 1, 1, "bias"));
  } else if (net == "yolov8n") {
    add(conv("stem", 3, 640, 16, 3, 2, "silu"));
    add(conv("down 16", 16, 320, 32, 3, 2, "silu"));
    add(conv("c2f 32 in", 32, 160, 32, 1, 1, "silu"));
    add(conv("c2f 16 3x3", 16, 160, 16, 3, 1, "silu"), 2);
    add(conv("c2f 48 out", 48, 160, 32, 1, 1, "silu"));
    add(conv("down 32", 32, 160, 64, 3, 2, "silu"));
    add(conv("c2f 64 in", 64, 80, 64, 1, 1, "silu"), 1);
    add(conv("c2f 32 3x3", 32, 80, 32, 3, 1, "silu"), 6);
    add(conv("c2f 128 out", 128, 80, 64, 1, 1, "silu"));
    add(conv("down 64", 64, 80, 128, 3, 2, "silu"));
    add(conv("c2f 64 3x3", 64, 40, 64, 3, 1, "silu"), 8);
    add(conv("c2f 256 out", 256, 40, 128, 1, 1, "silu"));
    add(conv("down 128", 128, 40, 256, 3, 2, "silu"));
    add(conv("c2f 128 3x3", 128, 20, 128, 3, 1, "silu"), 4);
    add(conv("c2f 384 out", 384, 20, 256, 1, 1, "silu"), 2);
    add(conv("head 64 3x3", 64, 80, 64, 3, 1, "silu"), 2);
    add(conv("head 80 3x3", 80, 80, 80, 3, 1, "silu"));
    add(conv("head 80 1x1", 80, 80, 80, 1, 1, "bias"));
  } else {
    std::int64_t c = 3, hw = 256;
    for (const std::int64_t o : {32, 64, 128, 256, 512}) {
      add(conv(fmt::format("down {}", o), c, hw, o, 3, 1, "relu"));
      add(conv(fmt::format("same {}", o), o, hw, o, 3, 1, "relu"));
      c = o, hw /= 2;
    }
    hw = 16;
    for (const std::int64_t o : {256, 128, 64, 32}) {
      hw *= 2;
      add(conv(fmt::format("up {}", o), 2 * o, hw, o, 3, 1, "relu"));
      add(conv(fmt::format("same {}", o), o, hw, o, 3, 1, "relu"));
    }
    add(conv("last", 32, 256, 2, 1, 1, "float"));
  }
  return out;
}

}  // namespace octavo::cuda
