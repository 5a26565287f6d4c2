// What detection heads end with, against the reference evaluator: cpu.top_k.rows.*, cpu.non_max_suppression.rows.*. Sizes around vectors of 8
// and 16 lanes, 4 of them at a time, blocks of 64 and 1024 elements, 16 boxes at a time; NaN, infinities, both zeros, ties, bounds of types.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using region::BufferKind;

constexpr std::size_t kGuard = 64;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

class DetectionRows : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string tactic(const std::string& family) { return "cpu." + family + "." + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, DetectionRows, ::testing::Values("portable", "avx2", "avx512"));

template <class T>
std::span<T> elements(Scene& s, const region::TensorRef& r) {
  auto& bytes = s.memory[static_cast<std::size_t>(r.buffer)];
  return {reinterpret_cast<T*>(bytes.data() + kGuard), (bytes.size() - 2 * kGuard) / sizeof(T)};
}

struct Best {
  ir::Shape x;
  std::int64_t axis = 0, k = 1;
  std::vector<int> order = {}, result = {};
};

/// A few values many times, or any; NaN of both signs, both zeros, infinities.
void set_top_k(Scene& s, const Best& c) {
  region::Stage& st = s.stage();
  st.anchor.op = ir::Op::top_k;
  const std::int64_t largest = s.pick(0, 1);
  st.anchor.facts = testing::facts(st.anchor.op, {{"axis", c.axis},
                                                  {"k", c.k},
                                                  {"largest", largest},
                                                  {"sorted", std::int64_t{1}},
                                                  {"store_results", std::vector<std::int64_t>{0, 1}}});
  st.anchor.inputs = {s.tensor(DType::f32, c.x, BufferKind::arena, c.order, s.pick(0, 2))};
  st.space = c.x;
  st.space[static_cast<std::size_t>(c.axis)] = c.k;
  st.stores = {s.tensor(DType::f32, st.space, BufferKind::arena, c.result), s.tensor(DType::s64, st.space)};
  const int kind = s.pick(0, 3);
  const float values[] = {-0.0F, 0.0F, 1, -1, kInf, -kInf, kNan, -kNan, 1e-40F, 3};
  int i = 0;
  for (float& v : elements<float>(s, st.anchor.inputs[0])) {
    if (kind == 0) v = values[s.pick(0, 9)];
    if (kind == 1) v = static_cast<float>(i++);  // every element is the best so far
    if (kind == 2 && s.pick(0, 9) == 0) v = values[s.pick(0, 9)];
  }
}

TEST_P(DetectionRows, TopKOfNeighbours) {
  std::uint32_t seed = 1;
  for (const std::int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 1000}) {
    for (const std::int64_t k : {std::int64_t{1}, n / 7, n / 2, n - 1, n}) {
      if (k == 0) continue;  // nothing is stored: another family
      for (int again = 0; again < 4; ++again) {
        Scene s(seed++);
        set_top_k(s, {.x = {3, n}, .axis = 1, .k = k});
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("top_k.rows")));
      }
    }
  }
}

TEST_P(DetectionRows, TopKAlongEveryAxis) {
  std::uint32_t seed = 1;
  for (const std::int64_t axis : {0, 1, 2, 3}) {
    for (const std::vector<int>& order : {std::vector<int>{}, {0, 2, 3, 1}, {3, 2, 1, 0}}) {
      Scene s(seed++);
      set_top_k(s, {.x = {6, 40, 5, 7}, .axis = axis, .k = 4, .order = order, .result = order});
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("top_k.rows")));
    }
  }
}

struct Boxes {
  std::int64_t batches = 1, boxes = 1, classes = 1, most = 1;
  std::vector<int> order = {}, score_order = {};
};

/// Corners on a coarse grid, so that overlaps meet their threshold exactly, some boxes empty, turned round or no numbers; few different scores.
void set_boxes(Scene& s, const Boxes& c) {
  region::Stage& st = s.stage();
  st.anchor.op = ir::Op::non_max_suppression;
  const std::int64_t count = c.batches * c.classes * c.most;
  st.anchor.facts = testing::facts(st.anchor.op, {{"center_point_box", std::int64_t{s.pick(0, 1)}}, {"count", count}});
  st.anchor.inputs = {s.tensor(DType::f32, {c.batches, c.boxes, 4}, BufferKind::arena, c.order),
                      s.tensor(DType::f32, {c.batches, c.classes, c.boxes}, BufferKind::arena, c.score_order),
                      s.tensor(DType::f32, {1}), s.tensor(DType::f32, {1})};
  st.space = {count, 3};
  st.stores = {s.tensor(DType::s64, st.space)};
  const bool odd = s.pick(0, 2) == 0;
  const float strange[] = {kNan, kInf, -kInf, -0.0F, 1e30F};
  for (float& v : elements<float>(s, st.anchor.inputs[0])) {
    v = static_cast<float>(s.pick(0, 12)) * 0.25F;
    if (odd && s.pick(0, 19) == 0) v = strange[s.pick(0, 4)];
  }
  for (float& v : elements<float>(s, st.anchor.inputs[1])) {
    v = static_cast<float>(s.pick(-4, 40)) / 40;
    if (s.pick(0, 19) == 0) v = strange[s.pick(0, 3)];
  }
  const float overlaps[] = {0.5F, 0.25F, 0.0F, 1.0F, 0.45F, -1.0F}, least[] = {0.0F, 0.5F, -1.0F, 0.9F, -kInf};
  elements<float>(s, st.anchor.inputs[2])[0] = overlaps[s.pick(0, 5)];
  elements<float>(s, st.anchor.inputs[3])[0] = least[s.pick(0, 4)];
}

TEST_P(DetectionRows, SuppressedBoxes) {
  std::uint32_t seed = 1;
  for (const std::int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 129, 400}) {
    for (const std::int64_t most : {std::int64_t{1}, std::int64_t{5}, std::int64_t{16}, std::int64_t{17}, n}) {
      for (int again = 0; again < 3; ++again) {
        Scene s(seed++);
        set_boxes(s, {.boxes = n, .classes = 2, .most = most});
        EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("non_max_suppression.rows")));
      }
    }
  }
}

TEST_P(DetectionRows, SuppressedBoxesOfAnyOrderOfMemory) {
  std::uint32_t seed = 1;
  for (const std::vector<int>& order : {std::vector<int>{}, {0, 2, 1}, {2, 1, 0}}) {
    for (const std::vector<int>& scores : {std::vector<int>{}, {0, 2, 1}, {2, 1, 0}}) {
      Scene s(seed++);
      set_boxes(s, {.batches = 3, .boxes = 50, .classes = 4, .most = 20, .order = order, .score_order = scores});
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), tactic("non_max_suppression.rows")));
    }
  }
}

TEST_P(DetectionRows, RefusesWhatTheReferenceKeeps) {
  const auto refused = [](Scene& s, const std::string& family) {
    for (const region::Offer& o : cpu::cpu_provider().offers(s.region(), s.plan())) {
      if (o.tactic.family.starts_with(family) && o.refusal.empty()) return false;
    }
    return true;
  };
  Scene best(2);
  set_top_k(best, {.x = {30}, .k = 3});
  best.stage().anchor.inputs = {best.tensor(DType::s64, {30})};
  EXPECT_TRUE(refused(best, "top_k.rows"));
}

}  // namespace
}  // namespace octavo::testing
