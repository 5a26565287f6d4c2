#include "quantize/detection/detection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>

namespace octavo::quantize {
namespace {

constexpr std::size_t kMostAnImage = 100;  // of a category in COCO's average precision, and of all together in NanoDet

void by_score(std::vector<Detection>& found) {
  std::stable_sort(found.begin(), found.end(), [](const Detection& a, const Detection& b) { return a.score > b.score; });
}

/// Of one category: what each detection of one image is, best first.
struct Judged {
  double score = 0;
  bool right = false;
};

/// Appends the verdicts about one image's detections; gives the number of objects that count.
std::size_t judge(std::vector<GroundTruth> truths, std::vector<Detection> found, double threshold, std::vector<Judged>& out) {
  by_score(found);
  if (found.size() > kMostAnImage) found.resize(kMostAnImage);
  std::stable_sort(truths.begin(), truths.end(), [](const GroundTruth& a, const GroundTruth& b) { return a.crowd < b.crowd; });
  std::vector<bool> taken(truths.size());
  for (const Detection& d : found) {
    double best = std::min(threshold, 1 - 1e-10);
    std::size_t at = truths.size();
    for (std::size_t t = 0; t < truths.size(); ++t) {
      if (taken[t] && !truths[t].crowd) continue;
      if (at < truths.size() && !truths[at].crowd && truths[t].crowd) break;  // crowds come last and only where nothing else fits
      const double o = overlap(d.box, truths[t].box, truths[t].crowd);
      if (o < best) continue;
      best = o;
      at = t;
    }
    if (at < truths.size()) taken[at] = true;
    if (at == truths.size() || !truths[at].crowd) out.push_back({d.score, at < truths.size()});
  }
  return static_cast<std::size_t>(std::count_if(truths.begin(), truths.end(), [](const GroundTruth& t) { return !t.crowd; }));
}

double area_under(std::vector<Judged> found, std::size_t objects) {
  std::stable_sort(found.begin(), found.end(), [](const Judged& a, const Judged& b) { return a.score > b.score; });
  std::vector<double> recall, precision;
  double right = 0, wrong = 0;
  for (const Judged& j : found) {
    (j.right ? right : wrong) += 1;
    recall.push_back(right / static_cast<double>(objects));
    precision.push_back(right / (right + wrong + std::numeric_limits<double>::epsilon()));
  }
  for (std::size_t i = precision.size(); i-- > 1;) precision[i - 1] = std::max(precision[i - 1], precision[i]);
  double sum = 0;
  for (int k = 0; k <= 100; ++k) {
    const auto at = std::lower_bound(recall.begin(), recall.end(), k == 100 ? 1.0 : k * 0.01);
    if (at != recall.end()) sum += precision[static_cast<std::size_t>(at - recall.begin())];
  }
  return sum / 101;
}

/// Cells of a level that has one for each `stride` pixels.
std::int64_t cells(std::int64_t height, std::int64_t width, int stride) {
  return ((height + stride - 1) / stride) * ((width + stride - 1) / stride);
}

constexpr std::array<int, 4> kStrides{8, 16, 32, 64};
constexpr std::int64_t kAnchors = 3;  // of a cell in YOLOv5
constexpr std::int64_t kBins = 16;    // of a side's distribution in YOLOv8 and YOLO11
constexpr double kLeastOfUltralytics = 0.001;
constexpr std::size_t kMostOfUltralytics = 300;  // boxes an image

std::pair<std::int64_t, std::int64_t> size_of(const region::Binding& input) {
  const ir::Shape& s = input.type.shape;
  if (s.size() != 4) return {0, 0};
  return s[1] <= 4 ? std::pair{s[2], s[3]} : std::pair{s[1], s[2]};
}

/// How many of the strides' levels, from the finest, have `count` cells together; 0: none.
std::size_t levels_with(const region::Binding& input, std::int64_t count) {
  const auto [height, width] = size_of(input);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kStrides.size() && height > 0; ++i) {
    sum += cells(height, width, kStrides[i]);
    if (sum == count && i > 0) return i + 1;
  }
  return 0;
}

int stride_with(const region::Binding& input, std::int64_t count) {
  const auto [height, width] = size_of(input);
  for (const int s : kStrides) {
    if (height > 0 && cells(height, width, s) == count) return s;
  }
  return 0;
}

std::vector<Detection> yolox(const region::Binding& input, const ir::Tensor& output) {
  constexpr double kLeastScore = 0.01, kOverlap = 0.65;  // as YOLOX evaluates
  const auto [height, width] = size_of(input);
  const std::int64_t columns = output.shape()[2], classes = columns - 5;
  std::vector<Detection> out;
  std::int64_t row = 0;
  for (std::size_t l = 0; l < levels_with(input, output.shape()[1]); ++l) {
    const int stride = kStrides[l];
    const std::int64_t across = (width + stride - 1) / stride, down = (height + stride - 1) / stride;
    for (std::int64_t cell = 0; cell < across * down; ++cell, ++row) {
      const auto v = [&](std::int64_t c) { return output.at(row * columns + c); };
      std::int64_t best = 0;
      for (std::int64_t c = 1; c < classes; ++c) best = v(5 + c) > v(5 + best) ? c : best;
      const double score = v(4) * v(5 + best);
      if (!(score >= kLeastScore)) continue;
      const double w = std::exp(v(2)) * stride, h = std::exp(v(3)) * stride;
      const double x = (v(0) + static_cast<double>(cell % across)) * stride,
                   y = (v(1) + static_cast<double>(cell / across)) * stride;
      if (std::isfinite(x + y + w + h)) out.push_back({0, best, score, {x - w / 2, y - h / 2, w, h}});
    }
  }
  return suppress(std::move(out), kOverlap);
}

/// The mean of a distribution over 0 .. bins - 1 that is given by logits.
template <class Logit>
double mean_of_bins(std::int64_t bins, const Logit& logit) {
  double most = logit(0), sum = 0, mean = 0;
  for (std::int64_t b = 1; b < bins; ++b) most = std::max(most, logit(b));
  for (std::int64_t b = 0; b < bins; ++b) {
    const double p = std::exp(logit(b) - most);
    sum += p;
    mean += p * static_cast<double>(b);
  }
  return mean / sum;
}

std::vector<Detection> nanodet(const region::Binding& input, std::span<const ir::Tensor> outputs) {
  // As NanoDet evaluates: one box for each class of a cell that scores enough, and the best of an image's boxes.
  constexpr double kLeastScore = 0.05, kOverlap = 0.6;
  const auto [height, width] = size_of(input);
  std::vector<Detection> out;
  for (const ir::Tensor& scores : outputs) {
    const std::int64_t count = scores.shape()[1], classes = scores.shape()[2];
    const int stride = stride_with(input, count);
    const auto sides =
        std::find_if(outputs.begin(), outputs.end(), [&](const ir::Tensor& t) { return &t > &scores && t.shape()[1] == count; });
    if (sides == outputs.end() || stride == 0) continue;  // the second of a pair
    const std::int64_t bins = sides->shape()[2] / 4, across = (width + stride - 1) / stride;
    for (std::int64_t cell = 0; cell < count; ++cell) {
      const auto score = [&](std::int64_t c) { return scores.at(cell * classes + c); };
      std::int64_t some = 0;
      while (some < classes && !(score(some) > kLeastScore)) ++some;
      if (some == classes) continue;
      std::array<double, 4> distance{};  // left, top, right, bottom
      for (std::int64_t side = 0; side < 4; ++side) {
        const std::int64_t first = (cell * 4 + side) * bins;
        distance[static_cast<std::size_t>(side)] =
            mean_of_bins(bins, [&](std::int64_t b) { return sides->at(first + b); }) * stride;
      }
      const double x = (static_cast<double>(cell % across) + 0.5) * stride, y = (static_cast<double>(cell / across) + 0.5) * stride;
      const double left = std::max(0.0, x - distance[0]), top = std::max(0.0, y - distance[1]),
                   right = std::min(static_cast<double>(width), x + distance[2]),
                   bottom = std::min(static_cast<double>(height), y + distance[3]);
      if (!std::isfinite(left + top + right + bottom)) continue;
      for (std::int64_t c = some; c < classes; ++c) {
        if (score(c) > kLeastScore) out.push_back({0, c, score(c), {left, top, right - left, bottom - top}});
      }
    }
  }
  return suppress(std::move(out), kOverlap, kMostAnImage);
}

/// One box for each class of a row that scores enough, as Ultralytics evaluates: columns center, size, (objectness,) classes, in pixels.
std::vector<Detection> ultralytics(const ir::Tensor& output, Head head) {
  const bool v8 = head == Head::yolov8;
  const std::int64_t rows = output.shape()[v8 ? 2 : 1], columns = output.shape()[v8 ? 1 : 2], first = v8 ? 4 : 5;
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return output.at(v8 ? column * rows + row : row * columns + column);
  };
  std::vector<Detection> out;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double object = v8 ? 1 : at(row, 4);
    if (!(object > kLeastOfUltralytics)) continue;
    const double x = at(row, 0), y = at(row, 1), w = at(row, 2), h = at(row, 3);
    if (!std::isfinite(x + y + w + h)) continue;
    for (std::int64_t c = first; c < columns; ++c) {
      const double score = object * at(row, c);
      if (score > kLeastOfUltralytics) out.push_back({0, c - first, score, {x - w / 2, y - h / 2, w, h}});
    }
  }
  return suppress(std::move(out), v8 ? 0.7 : 0.6, kMostOfUltralytics);
}

/// YOLOv8's head before its boxes are ready: columns of a row are the logits of the sides' distributions and of the classes, rows are cells of all levels.
std::vector<Detection> yolov8_raw(const region::Binding& input, const ir::Tensor& output) {
  const auto [height, width] = size_of(input);
  const std::int64_t columns = output.shape()[1], rows = output.shape()[2], first = 4 * kBins;
  const double least = std::log(kLeastOfUltralytics / (1 - kLeastOfUltralytics));  // as a logit
  const auto at = [&](std::int64_t row, std::int64_t column) { return output.at(column * rows + row); };
  std::vector<Detection> out;
  std::int64_t row = 0;
  for (std::size_t l = 0; l < levels_with(input, rows); ++l) {
    const int stride = kStrides[l];
    const std::int64_t across = (width + stride - 1) / stride, down = (height + stride - 1) / stride;
    for (std::int64_t cell = 0; cell < across * down; ++cell, ++row) {
      std::int64_t some = first;
      while (some < columns && !(at(row, some) > least)) ++some;
      if (some == columns) continue;
      std::array<double, 4> distance{};  // left, top, right, bottom
      for (std::int64_t side = 0; side < 4; ++side)
        distance[static_cast<std::size_t>(side)] =
            mean_of_bins(kBins, [&](std::int64_t b) { return at(row, side * kBins + b); }) * stride;
      const auto [left, top, right, bottom] = distance;
      if (!std::isfinite(left + top + right + bottom)) continue;
      const double x = (static_cast<double>(cell % across) + 0.5) * stride - left,
                   y = (static_cast<double>(cell / across) + 0.5) * stride - top;
      for (std::int64_t c = some; c < columns; ++c) {
        if (at(row, c) > least) out.push_back({0, c - first, 1 / (1 + std::exp(-at(row, c))), {x, y, left + right, top + bottom}});
      }
    }
  }
  return suppress(std::move(out), 0.7, kMostOfUltralytics);
}

/// Boxes that the network has already chosen: left, top, right, bottom in pixels, score, class.
std::vector<Detection> chosen(const ir::Tensor& output) {
  std::vector<Detection> out;
  for (std::int64_t row = 0; row < output.shape()[1]; ++row) {
    const auto v = [&](std::int64_t c) { return output.at(row * 6 + c); };
    const double w = v(2) - v(0), h = v(3) - v(1);
    if (!(v(4) > kLeastOfUltralytics) || !std::isfinite(v(0) + v(1) + w + h) || !(v(5) >= 0 && v(5) < 1e6)) continue;
    out.push_back({0, static_cast<std::int64_t>(v(5)), v(4), {v(0), v(1), w, h}});
  }
  by_score(out);
  if (out.size() > kMostOfUltralytics) out.resize(kMostOfUltralytics);
  return out;
}

}  // namespace

double overlap(const Box& a, const Box& b, bool crowd) {
  const double w = std::min(a.x + a.width, b.x + b.width) - std::max(a.x, b.x),
               h = std::min(a.y + a.height, b.y + b.height) - std::max(a.y, b.y);
  if (w <= 0 || h <= 0) return 0;
  const double both = w * h, mine = a.width * a.height;
  return both / (crowd ? mine : mine + b.width * b.height - both);
}

double average_precision(const std::vector<GroundTruth>& truths, const std::vector<Detection>& found, double threshold) {
  struct Here {
    std::vector<GroundTruth> truths;
    std::vector<Detection> found;
  };
  std::map<std::int64_t, std::map<std::int64_t, Here>> by_category;  // then by image
  for (const GroundTruth& t : truths) by_category[t.category][t.image].truths.push_back(t);
  for (const Detection& d : found) by_category[d.category][d.image].found.push_back(d);
  double sum = 0;
  int categories = 0;
  for (const auto& [category, images] : by_category) {
    std::vector<Judged> judged;
    std::size_t objects = 0;
    for (const auto& [image, here] : images) objects += judge(here.truths, here.found, threshold, judged);
    if (objects == 0) continue;
    sum += area_under(std::move(judged), objects);
    ++categories;
  }
  return categories == 0 ? 0 : sum / categories;
}

std::vector<Detection> suppress(std::vector<Detection> found, double threshold, std::size_t most) {
  by_score(found);
  std::vector<Detection> out;
  for (const Detection& d : found) {
    if (out.size() == most) break;
    if (std::none_of(out.begin(), out.end(),
                     [&](const Detection& o) { return o.category == d.category && overlap(d.box, o.box, false) > threshold; }))
      out.push_back(d);
  }
  return out;
}

Result<Head> head_of(const std::vector<region::Binding>& inputs, const std::vector<region::Binding>& outputs,
                     std::int64_t categories) {
  const auto rows = [](const region::Binding& b) {
    const ir::Shape& s = b.type.shape;
    return s.size() == 3 && s[0] == 1 ? s[1] : 0;
  };
  if (inputs.size() == 1 && outputs.size() == 1 && rows(outputs[0]) > 0 && outputs[0].type.shape[2] > 5 &&
      levels_with(inputs[0], rows(outputs[0])) > 0)
    return Head::yolox;
  if (inputs.size() == 1 && outputs.size() == 1 && rows(outputs[0]) > 0) {
    const ir::Shape& s = outputs[0].type.shape;
    if (s[1] > 4 && levels_with(inputs[0], s[2]) > 0)
      return categories > 0 && s[1] == 4 * kBins + categories ? Head::yolov8_raw : Head::yolov8;
    if (s[1] % kAnchors == 0 && s[2] > 5 && levels_with(inputs[0], s[1] / kAnchors) > 0) return Head::yolov5;
    if (s[2] == 6) return Head::chosen;
  }
  std::map<std::int64_t, std::vector<std::int64_t>> levels;  // cells -> columns of the outputs, in their order
  for (const region::Binding& b : outputs) levels[rows(b)].push_back(rows(b) > 0 ? b.type.shape[2] : 0);
  if (inputs.size() == 1 && std::all_of(levels.begin(), levels.end(), [&](const auto& l) {
        return stride_with(inputs[0], l.first) > 0 && l.second.size() == 2 && l.second[1] % 4 == 0 && l.second[1] > 4;
      }))
    return Head::nanodet;
  std::string text;
  for (const region::Binding& b : outputs) text += fmt::format(" \"{}\" {}", b.name, ir::to_string(b.type));
  return fail(
      ErrorKind::usage,
      fmt::format("map50: no head that is known has the outputs{}\n  known are YOLOX ([1, cells, 5 + "
                  "classes]), YOLOv5 ([1, 3 x cells, 5 + classes]), YOLOv8 and YOLO11 ([1, 4 + "
                  "classes, cells], or [1, 64 + classes, cells] before the boxes are ready), boxes that the network has chosen "
                  "([1, boxes, 6]: two corners, score, class) and NanoDet (for each level [1, cells, classes] and [1, cells, 4 x "
                  "bins])\n  measure others with a file of your own: "
                  "--metric FILE.py",
                  text));
}

std::int64_t classes_of(Head head, const std::vector<region::Binding>& outputs) {
  const ir::Shape& s = outputs[0].type.shape;
  switch (head) {
    case Head::yolox:
    case Head::yolov5: return s[2] - 5;
    case Head::yolov8: return s[1] - 4;
    case Head::yolov8_raw: return s[1] - 4 * kBins;
    case Head::chosen: return 0;
    case Head::nanodet: return s[2];
  }
  return 0;
}

Result<Head> head_of(const ir::Graph& graph) {
  const auto bindings = [&](const std::vector<ir::ValueId>& values) {
    std::vector<region::Binding> out(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      out[i].name = graph.value(values[i]).name;
      out[i].type = graph.type(values[i]);
    }
    return out;
  };
  return head_of(bindings(graph.inputs), bindings(graph.outputs));
}

ScoreChange& ScoreChange::operator+=(const ScoreChange& other) {
  objects += other.objects;
  sum += other.sum;
  return *this;
}

ScoreChange score_change(Head head, std::span<const ir::Tensor> exact, std::span<const ir::Tensor> other) {
  ScoreChange out;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const std::int64_t cells = exact[i].shape()[1], columns = exact[i].shape()[2], first = head == Head::yolox ? 5 : 0;
    const bool sides = std::any_of(exact.begin(), exact.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const ir::Tensor& t) { return t.shape()[1] == cells; });
    if (sides) continue;  // the second of NanoDet's pair
    const auto score = [&](const ir::Tensor& t, std::int64_t row, std::int64_t c) {
      const double s = t.at(row + c) * (head == Head::yolox ? t.at(row + 4) : 1);
      return std::isfinite(s) ? s : 0;
    };
    for (std::int64_t cell = 0; cell < cells; ++cell) {
      const std::int64_t row = cell * columns;
      std::int64_t best = first;
      for (std::int64_t c = first + 1; c < columns; ++c) best = exact[i].at(row + c) > exact[i].at(row + best) ? c : best;
      const double s = score(exact[i], row, best);
      if (!(s > kObjectScore)) continue;
      ++out.objects;
      out.sum += std::abs(score(other[i], row, best) - s);
    }
  }
  return out;
}

std::vector<Detection> decode(Head head, const region::Binding& input, std::span<const ir::Tensor> outputs) {
  switch (head) {
    case Head::yolox: return yolox(input, outputs[0]);
    case Head::nanodet: return nanodet(input, outputs);
    case Head::yolov5:
    case Head::yolov8: return ultralytics(outputs[0], head);
    case Head::yolov8_raw: return yolov8_raw(input, outputs[0]);
    case Head::chosen: return chosen(outputs[0]);
  }
  return {};
}

}  // namespace octavo::quantize
