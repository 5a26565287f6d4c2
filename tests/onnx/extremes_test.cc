// Every integer that a model's nodes depend on, at its extremes: attributes, and constants of 32 and 64 bits such as axes, sizes, counts and
// positions. Each model of the corpus, one integer at a time, so that every importer meets each. An answer is a model or an error; what
// C++ leaves undefined is found by the sanitizers (scripts/test_long.sh).
#include <cstring>

#include "onnx/build_model.h"
#include "onnx/hostile_files.h"

namespace octavo::onnx {
namespace {

using namespace testing;

constexpr std::int64_t kExtremes[] = {INT64_MIN, INT64_MIN + 1, -(std::int64_t{1} << 53) - 1, INT32_MIN, -1, 0, 1,
                                      INT32_MAX, INT64_MAX - 1, (std::int64_t{1} << 53) + 1,  INT64_MAX};
constexpr std::size_t kMostElements = 8;  // of one list: more of the same say nothing new

/// Files with one integer changed.
class Extremes {
 public:
  struct File {
    std::string bytes, about;
  };

  void of(const std::string& bytes) {
    pb::ModelProto model;
    if (!model.ParseFromString(bytes)) return;
    for (auto& t : *model.mutable_graph()->mutable_initializer()) {
      place_ = fmt::format("constant \"{}\" of {}", t.name(), model.graph().node(0).op_type());
      constant(model, t);
    }
    for (auto& n : *model.mutable_graph()->mutable_node()) {
      for (auto& a : *n.mutable_attribute()) {
        place_ = fmt::format("{} of {}", a.name(), n.op_type());
        attribute(model, a);
      }
    }
  }
  std::vector<File> files;

 private:
  std::string place_;

  template <class Set>
  void each(const pb::ModelProto& model, std::int64_t was, Set&& set) {
    for (const std::int64_t v : kExtremes) {
      if (v == was) continue;
      set(v);
      files.push_back({model.SerializeAsString(), fmt::format("{} is {} instead of {}", place_, v, was)});
    }
    set(was);
  }

  void attribute(const pb::ModelProto& model, pb::AttributeProto& a) {
    if (a.type() == pb::AttributeProto::INT) each(model, a.i(), [&](std::int64_t v) { a.set_i(v); });
    for (int k = 0; k < std::min<int>(a.ints_size(), kMostElements); ++k)
      each(model, a.ints(k), [&](std::int64_t v) { a.set_ints(k, v); });
    if (a.type() == pb::AttributeProto::TENSOR) constant(model, *a.mutable_t());
  }

  void constant(const pb::ModelProto& model, pb::TensorProto& t) {
    for (int k = 0; k < std::min<int>(t.int64_data_size(), kMostElements); ++k)
      each(model, t.int64_data(k), [&](std::int64_t v) { t.set_int64_data(k, v); });
    if (t.data_type() == kS64) raw<std::int64_t>(model, t);
    if (t.data_type() == kS32) raw<std::int32_t>(model, t);
  }

  template <class T>
  void raw(const pb::ModelProto& model, pb::TensorProto& t) {
    std::string& bytes = *t.mutable_raw_data();
    for (std::size_t k = 0; k < std::min(bytes.size() / sizeof(T), kMostElements); ++k) {
      T was{};
      std::memcpy(&was, bytes.data() + k * sizeof(T), sizeof(T));
      each(model, was, [&](std::int64_t v) {
        const T narrow = static_cast<T>(v);
        std::memcpy(bytes.data() + k * sizeof(T), &narrow, sizeof(T));
      });
    }
  }
};

TEST(Hostile, EveryIntegerAtItsExtremes) {
  Extremes changed;
  for (const std::string& bytes : corpus()) changed.of(bytes);
  const auto& files = changed.files;
  ASSERT_GT(files.size(), 5000U);
  Progress total{};
  constexpr std::size_t kBatch = 500;  // bounds what a child's heap collects
  for (std::size_t at = 0; at < files.size(); at += kBatch)
    run_limited(
        at, std::min(at + kBatch, files.size()), [&](std::uint64_t i) { return files[i].bytes; },
        [&](std::uint64_t i) { return files[i].about; }, total);
  EXPECT_EQ(total.errors, 0U);
  EXPECT_EQ(total.imported + total.refused, files.size());
  EXPECT_GT(total.imported, files.size() / 10);
  EXPECT_GT(total.refused, files.size() / 10);
}

/// A diagonal beyond the matrix: all of it, or nothing. That of 2^63 - 1 is a number of the file, and no double.
TEST(Extremes, TriangleBeyondTheMatrix) {
  for (const auto& [k, upper, kept] : std::vector<std::tuple<std::int64_t, int, bool>>{
           {INT64_MAX, 1, false}, {INT64_MIN, 1, true}, {INT64_MAX, 0, true}, {INT64_MIN, 0, false}}) {
    ModelBuilder b(17);
    b.floats("x", {2, 3}, {1, 2, 3, 4, 5, 6}).constant<std::int64_t>("k", {}, {k}, kS64).output("y");
    b.node("Trilu", {"x", "k"}, {"y"}).i("upper", upper);
    const auto m = b.import();
    ASSERT_TRUE(m) << m.error().message;
    const ir::Graph& g = m->graph;
    ASSERT_TRUE(g.is_constant(g.outputs[0]));
    for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(g.payload(g.outputs[0]).at(i), kept ? static_cast<double>(i + 1) : 0);
  }
}

/// Numbers that are equal as doubles.
TEST(Extremes, RangesOfIntegersAreExact) {
  const auto range = [](std::int64_t start, std::int64_t limit, std::int64_t delta) {
    ModelBuilder b(17);
    b.constant<std::int64_t>("a", {}, {start}, kS64).constant<std::int64_t>("b", {}, {limit}, kS64);
    b.constant<std::int64_t>("c", {}, {delta}, kS64).output("y", kS64);
    b.node("Range", {"a", "b", "c"}, {"y"});
    const auto m = b.import();
    return m ? m->graph.payload(m->graph.outputs[0]).as_ints() : std::vector<std::int64_t>{-77};
  };
  EXPECT_EQ(range(INT64_MAX - 5, INT64_MAX, 2), (std::vector<std::int64_t>{INT64_MAX - 5, INT64_MAX - 3, INT64_MAX - 1}));
  EXPECT_EQ(range(INT64_MIN, INT64_MAX, INT64_MAX), (std::vector<std::int64_t>{INT64_MIN, -1, INT64_MAX - 1}));
  EXPECT_EQ(range(INT64_MAX, INT64_MIN, INT64_MIN), (std::vector<std::int64_t>{INT64_MAX, -1}));
  EXPECT_EQ(range(3, 3, -1), (std::vector<std::int64_t>{}));
  EXPECT_EQ(range(5, 3, -1), (std::vector<std::int64_t>{5, 4}));
  EXPECT_EQ(range(5, 2, -2), (std::vector<std::int64_t>{5, 3}));
  EXPECT_EQ(range(3, 5, -1), (std::vector<std::int64_t>{}));
}

}  // namespace
}  // namespace octavo::onnx
