// COCO's average precision, case by case; whole heads are compared with pycocotools in tests/cli/test_metrics.py.
#include "quantize/detection/detection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

namespace octavo::quantize {
namespace {

constexpr Box kBox{10, 10, 20, 20}, kFar{100, 100, 20, 20};

GroundTruth object(Box box, std::int64_t category = 1, std::int64_t image = 1, bool crowd = false) {
  return {image, category, box, crowd};
}
Detection found(double score, Box box, std::int64_t category = 1, std::int64_t image = 1) {
  return {image, category, score, box};
}

TEST(Detection, OverlapIsIntersectionOverUnionAndOverTheBoxForCrowds) {
  EXPECT_DOUBLE_EQ(overlap(kBox, kBox, false), 1);
  EXPECT_DOUBLE_EQ(overlap({0, 0, 10, 10}, {5, 0, 10, 10}, false), 50.0 / 150);
  EXPECT_DOUBLE_EQ(overlap({0, 0, 10, 10}, {5, 0, 10, 10}, true), 0.5);
  EXPECT_DOUBLE_EQ(overlap({0, 0, 10, 10}, {10, 0, 10, 10}, false), 0);
}

TEST(Detection, OneRightBoxIsAllAndAWrongOneAboveItHalf) {
  EXPECT_NEAR(average_precision({object(kBox)}, {found(0.9, kBox)}), 1, 1e-9);
  EXPECT_NEAR(average_precision({object(kBox)}, {found(0.9, kBox), found(0.8, kFar)}), 1, 1e-9);
  EXPECT_NEAR(average_precision({object(kBox)}, {found(0.8, kBox), found(0.9, kFar)}), 0.5, 1e-9);
  EXPECT_EQ(average_precision({object(kBox)}, {}), 0);
  EXPECT_EQ(average_precision({}, {found(0.9, kBox)}), 0);
}

TEST(Detection, AnObjectIsFoundOnce) {
  // The second box on the same object is wrong: precision 1/2 from there on, and the second object is never found.
  const double ap = average_precision({object(kBox), object(kFar)}, {found(0.9, kBox), found(0.8, kBox)});
  EXPECT_NEAR(ap, 51.0 / 101, 1e-9);  // recall reaches 0.5, which 51 of 101 points do not exceed
}

TEST(Detection, WhatLiesInACrowdDoesNotCount) {
  const std::vector<GroundTruth> truths{object(kBox), object({100, 100, 200, 200}, 1, 1, true)};
  EXPECT_NEAR(average_precision(truths, {found(0.95, kFar), found(0.9, kFar), found(0.8, kBox)}), 1, 1e-9);
  EXPECT_EQ(average_precision({truths[1]}, {found(0.9, kFar)}), 0);  // no object counts
}

TEST(Detection, CategoriesAndImagesAreKeptApart) {
  EXPECT_EQ(average_precision({object(kBox, 1)}, {found(0.9, kBox, 2)}), 0);
  EXPECT_EQ(average_precision({object(kBox, 1, 1)}, {found(0.9, kBox, 1, 2)}), 0);
  EXPECT_NEAR(average_precision({object(kBox, 1), object(kBox, 2)}, {found(0.9, kBox, 2)}), 0.5, 1e-9);
}

TEST(Detection, AtMost100AnImageCount) {
  std::vector<Detection> many;
  for (int i = 0; i < 100; ++i) many.push_back(found(0.9, kFar));
  many.push_back(found(0.1, kBox));
  EXPECT_EQ(average_precision({object(kBox)}, many), 0);
}

TEST(Detection, DoublesOfACategoryAreSuppressed) {
  const auto left = suppress({found(0.5, kBox), found(0.9, {11, 10, 20, 20}), found(0.4, kBox, 2), found(0.3, kFar)}, 0.6);
  ASSERT_EQ(left.size(), 3U);
  EXPECT_EQ(left[0].score, 0.9);
  EXPECT_EQ(left[1].category, 2);
}

TEST(Detection, ABoxForEveryClassOfEveryCellIsDecodedInTime) {
  // 8400 cells of 80 classes, all of them above the least score: what a network finds that is not trained
  ir::Tensor out(ir::TensorType{ir::DType::f32, {1, 84, 8400}});
  for (std::size_t i = 0; float& v : out.mutable_data<float>()) {
    const auto row = i / 8400, cell = i % 8400;
    v = row < 2   ? static_cast<float>(cell % 640)
        : row < 4 ? 3.0F
                  : 0.5F + 0.4F * static_cast<float>((row * 31 + cell * 17) % 97) / 97;
    ++i;
  }
  region::Binding input;
  input.type = {ir::DType::f32, {1, 3, 640, 640}};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(decode(Head::yolov8, input, {&out, 1}).size(), 300U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));  // without the limit: an hour
}

ir::Tensor rows(std::int64_t columns, const std::vector<float>& values) {
  ir::Tensor t(ir::TensorType{ir::DType::f32, {1, static_cast<std::int64_t>(values.size()) / columns, columns}});
  std::copy(values.begin(), values.end(), t.mutable_data<float>().begin());
  return t;
}

TEST(Detection, ScoresOfYoloxAreObjectnessTimesTheLikeliestClass) {
  // center, size, objectness, two classes: 0.72 is an object, 0.28 and 0.06 are none
  const std::vector<ir::Tensor> exact{rows(7, {9, 9, 9, 9, 0.9F, 0.1F, 0.8F,  //
                                               1, 1, 1, 1, 0.4F, 0.7F, 0.2F,  //
                                               1, 1, 1, 1, 0.1F, 0.6F, 0.1F})};
  // the same cell and class counts (0.5 * 0.4), whatever class is the largest now; neither boxes nor other cells do
  const std::vector<ir::Tensor> other{rows(7, {0, 0, 0, 0, 0.5F, 0.9F, 0.4F,  //
                                               0, 0, 0, 0, 0.9F, 0.9F, 0.9F,  //
                                               0, 0, 0, 0, 0.9F, 0.9F, 0.9F})};
  const ScoreChange change = score_change(Head::yolox, exact, other);
  EXPECT_EQ(change.objects, 1U);
  EXPECT_NEAR(change.mean(), 0.72 - 0.2, 1e-6);
  EXPECT_EQ(score_change(Head::yolox, exact, exact).sum, 0);
}

TEST(Detection, ScoresOfNanodetAreTheClassesOfEveryLevelWithoutTheSides) {
  // one cell at the second level, two at the first; sides of one bin each, which are no scores
  const std::vector<ir::Tensor> exact{rows(2, {0.5F, 0.1F, 0.2F, 0.29F}), rows(2, {0.2F, 0.7F}), rows(4, {9, 9, 9, 9, 9, 9, 9, 9}),
                                      rows(4, {9, 9, 9, 9})};
  std::vector<ir::Tensor> other{rows(2, {0.4F, 0.9F, 0.9F, 0.9F}), rows(2, {0.2F, 1.0F}), rows(4, {0, 0, 0, 0, 0, 0, 0, 0}),
                                rows(4, {0, 0, 0, 0})};
  ScoreChange change = score_change(Head::nanodet, exact, other);
  EXPECT_EQ(change.objects, 2U);
  EXPECT_NEAR(change.sum, 0.1 + 0.3, 1e-6);
  other[1] = rows(2, {0.2F, std::numeric_limits<float>::quiet_NaN()});  // counts as 0
  change += score_change(Head::nanodet, exact, other);
  EXPECT_EQ(change.objects, 4U);
  EXPECT_NEAR(change.mean(), (0.1 + 0.3 + 0.1 + 0.7) / 4, 1e-6);
  EXPECT_EQ(ScoreChange().mean(), 0);
}

}  // namespace
}  // namespace octavo::quantize
