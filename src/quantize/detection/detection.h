// Accuracy of detectors: COCO's average precision, and boxes out of the heads of YOLOX, NanoDet, YOLOv5, YOLOv8 and YOLO11, and of networks that choose boxes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/tensor.h"
#include "region/region.h"

namespace octavo::quantize {

/// Left, top, width and height in pixels of the picture, as COCO writes boxes.
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};
struct Detection {
  std::int64_t image = 0, category = 0;
  double score = 0;
  Box box;
};
struct GroundTruth {
  std::int64_t image = 0, category = 0;
  Box box;
  bool crowd = false;  ///< many objects in one box: what lies in it is neither right nor wrong
};

/// Area of the intersection over that of the union; `crowd`: over that of `found`.
[[nodiscard]] double overlap(const Box& found, const Box& truth, bool crowd);

/// COCO's AP at one threshold of overlap, objects of every size: for each category that has objects, detections by falling score (at
/// most 100 an image), each matched with the object that it overlaps most and that no better one has taken; precision at 101 recalls,
/// averaged. As pycocotools computes it. 0 without an object.
[[nodiscard]] double average_precision(const std::vector<GroundTruth>& truths, const std::vector<Detection>& found,
                                       double threshold = 0.5);

/// Of boxes of one category that overlap by more than `threshold`, only the one with the highest score stays. By falling score, and at most
/// `most` of all categories together. Cost: the boxes found times those that stay; an untrained network finds a box for each class of each cell.
[[nodiscard]] std::vector<Detection> suppress(std::vector<Detection> found, double threshold,
                                              std::size_t most = std::numeric_limits<std::size_t>::max());

/// How a detector's outputs become boxes.
enum class Head { yolox, nanodet, yolov5, yolov8, yolov8_raw, chosen };

/// Reads the head from the shapes of a network's inputs and outputs: one [1, cells, 5 + classes] (YOLOX: center, log size, objectness,
/// classes), or pairs [1, cells, classes] and [1, cells, 4 * bins] (NanoDet: scores; distributions of the distances to four sides), with
/// a cell for each 8, 16, 32 (and 64) pixels of the input; one [1, 3 * cells, 5 + classes] (YOLOv5) or [1, 4 + classes, cells] (YOLOv8 and YOLO11), whose
/// boxes and scores are ready (Ultralytics' export); one [1, boxes, 6] (corners, score and class of boxes that the network has chosen: Ultralytics' exports with
/// nms=True, YOLOv10, YOLO26). `categories`: of the labels, 0 if unknown. [1, 64 + categories, cells] is YOLOv8's head with logits instead of boxes and scores.
/// `usage` for others, naming what is there.
[[nodiscard]] Result<Head> head_of(const std::vector<region::Binding>& inputs, const std::vector<region::Binding>& outputs,
                                   std::int64_t categories = 0);
/// How many classes the shapes tell; 0: they do not (Head::chosen).
[[nodiscard]] std::int64_t classes_of(Head head, const std::vector<region::Binding>& outputs);
[[nodiscard]] Result<Head> head_of(const ir::Graph& graph);  ///< the same of its inputs and outputs

/// A cell of a detector whose likeliest class scores more than this in float is an object.
inline constexpr double kObjectScore = 0.3;
/// How far the scores of objects are from those of the float network, summed.
struct ScoreChange {
  std::size_t objects = 0;
  double sum = 0;  ///< of the absolute differences
  [[nodiscard]] double mean() const { return objects > 0 ? sum / static_cast<double>(objects) : 0; }
  ScoreChange& operator+=(const ScoreChange& other);
};
/// One sample's outputs of the float network and of another one with the same head. A cell's score is objectness times the largest of
/// its classes (YOLOX), or the largest of its classes (NanoDet); the other network's is that of the same cell and class. A score that
/// is not a number counts as 0. Boxes do not count. For these two heads.
[[nodiscard]] ScoreChange score_change(Head head, std::span<const ir::Tensor> exact, std::span<const ir::Tensor> other);

/// Boxes in pixels of the network's input; categories are indices of classes; those of low score left out, doubles suppressed.
[[nodiscard]] std::vector<Detection> decode(Head head, const region::Binding& input, std::span<const ir::Tensor> outputs);

}  // namespace octavo::quantize
