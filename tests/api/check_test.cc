// `check` must accept right engines and name the first wrong region of wrong ones.
#include "api/check.h"

#include <gtest/gtest.h>

#include <cstring>

#include "api/pipeline.h"
#include "support/planted.h"

namespace octavo::api {
namespace {

const std::string kFloat = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_fp32.onnx";
const std::string kQdq = std::string(OCTAVO_SOURCE_DIR) + "/examples/digits/digits_qdq.onnx";

Result<Built> built(const std::string& path, std::int64_t batch = 1) {
  PipelineOptions o;
  o.import.default_batch = batch;
  o.plan.threads = 1;
  o.plan.verify = true;
  return build_file(path, o);
}

TEST(Check, AcceptsTheDigitsEngines) {
  for (const std::string& path : {kQdq, kFloat}) {
    for (const std::int64_t batch : {1, 2}) {
      const auto b = built(path, batch);
      ASSERT_TRUE(b) << b.error().message;
      for (const std::uint64_t seed : {1, 2}) {
        CheckOptions o;
        o.threads = 2;
        const auto report = check(b->engine, b->graph, random_inputs(b->engine->plan(), seed), o);
        ASSERT_TRUE(report) << report.error().message;
        EXPECT_TRUE(report->ok()) << report->first_divergence();
        for (const RegionCheck& r : report->regions) {
          EXPECT_EQ(r.skipped, "") << r.name;
          EXPECT_GT(r.elements, 0) << r.name;
          EXPECT_EQ(r.allowed, 0) << r.name << ": codes off by one";
        }
      }
    }
  }
}

class CheckSabotaged : public ::testing::Test {
 protected:
  void SetUp() override {
    PipelineOptions o;
    o.import.default_batch = 1;
    o.plan.threads = 1;
    o.device = "reference";
    auto b = build_file(kQdq, o);
    ASSERT_TRUE(b) << b.error().message;
    built_ = std::move(*b);
    file_ = ::testing::TempDir() + "octavo_check_engine_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    ASSERT_TRUE(built_.engine->save(file_));
  }
  void TearDown() override { std::remove(file_.c_str()); }
  const region::Plan& plan() const { return built_.engine->plan(); }
  CheckReport sabotaged(std::size_t region, const region::TensorRef& victim) const {
    const std::string& name = plan().regions[region].name;
    const testing::Planted saboteur(
        *providers("reference")->front(),
        [&](const region::Region& r, std::unique_ptr<region::HostKernel> kernel) -> std::unique_ptr<region::HostKernel> {
          if (r.name != name) return kernel;
          return std::make_unique<testing::Then>(
              std::move(kernel), [&](const region::Memory& m) {  // the last byte of its first element
                std::byte* at = m.at(victim) + static_cast<std::ptrdiff_t>(ir::size_of(victim.dtype)) - 1;
                *at = *at == std::byte{7} ? std::byte{9} : std::byte{7};
              });
        });
    const auto engine = engine::Engine::load(file_, {&saboteur});
    EXPECT_TRUE(engine) << engine.error().message;
    auto report = check(*engine, built_.graph, random_inputs(plan(), 1));
    EXPECT_TRUE(report) << report.error().message;
    return std::move(*report);
  }
  Built built_;
  std::string file_;
};

// Each region in turn is made wrong by one byte; that region, and no earlier one, must be named.
TEST_F(CheckSabotaged, NamesTheFirstWrongRegion) {
  int codes = 0;
  for (std::size_t i = 0; i < plan().regions.size(); ++i) {
    const CheckReport report = sabotaged(i, plan().regions[i].stages.back().stores[0]);
    ASSERT_FALSE(report.ok()) << "region " << i << " \"" << plan().regions[i].name << "\" was spoiled and nothing was noticed";
    for (std::size_t k = 0; k < i; ++k) EXPECT_TRUE(report.regions[k].ok()) << k;
    ASSERT_TRUE(report.regions[i].first) << i;
    EXPECT_FALSE(report.regions[i].first->reading);
    const std::string text = report.first_divergence();
    EXPECT_NE(text.find("\"" + plan().regions[i].name + "\""), std::string::npos) << text;
    codes += report.regions[i].first->engine_code.has_value();
  }
  EXPECT_GT(codes, 3) << "codes must be reported as codes";
}

// Memory that changes between a store and its reader (an overlapping buffer, a wrong offset) shows at the reader.
TEST_F(CheckSabotaged, NoticesMemoryThatChangesBetweenRegions) {
  int tried = 0;
  for (std::size_t k = 2; k < plan().regions.size(); ++k) {
    for (const region::Operand& o : plan().regions[k].stages[0].operands) {
      for (std::size_t j = 0; j + 1 < k; ++j) {
        const region::TensorRef& made = plan().regions[j].stages.back().stores[0];
        if (made.buffer != o.ref.buffer || made.offset != o.ref.offset) continue;
        if (plan().buffers[static_cast<std::size_t>(made.buffer)].kind != region::BufferKind::arena) continue;
        const CheckReport report = sabotaged(j + 1, made);
        // Region j+1 is right in itself unless it reads the same memory, which it did before the change.
        EXPECT_TRUE(report.regions[j + 1].ok()) << report.first_divergence();
        ASSERT_TRUE(report.regions[k].first) << "region " << k;
        EXPECT_TRUE(report.regions[k].first->reading);
        EXPECT_NE(report.first_divergence().find("reads what was not stored"), std::string::npos);
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 0) << "the digits model has a residual that is read two regions later";
}

TEST(ReadValue, DecodesStridesBroadcastsAndCodes) {
  std::vector<std::uint8_t> codes = {10, 20, 30, 11, 21, 31};  // NHWC, N=1 H=1 W=2 C=3
  region::Memory m;
  m.base = {reinterpret_cast<std::byte*>(codes.data())};
  region::TensorRef r;
  r.buffer = 0;
  r.dtype = ir::DType::u8;
  r.dims = {1, 3, 1, 2};
  r.strides = {6, 1, 6, 3};
  r.quantizer = ir::Quantizer{ir::DType::u8, {1.0F, 2.0F, 4.0F}, {10, 10, 10}, 1, ir::DType::f32};
  const auto floats = read_value(m, r, {ir::DType::f32, {1, 3, 1, 2}});
  ASSERT_TRUE(floats);
  EXPECT_TRUE(same_bytes(*floats, ir::Tensor::of<float>({1, 3, 1, 2}, {0, 1, 20, 22, 80, 84})));
  const auto raw = read_value(m, r, {ir::DType::u8, {3, 2}});
  ASSERT_TRUE(raw);
  EXPECT_TRUE(same_bytes(*raw, ir::Tensor::of<std::uint8_t>({3, 2}, {10, 11, 20, 21, 30, 31})));
  EXPECT_FALSE(read_value(m, r, {ir::DType::s32, {3, 2}})) << "another type";
  EXPECT_FALSE(read_value(m, r, {ir::DType::u8, {5}})) << "another size";

  // [3] broadcast over [1,3,2,3]: only the channel carries it, though the last dimension is 3 as well.
  region::TensorRef b = r;
  b.quantizer.reset();
  b.dims = {1, 3, 2, 3};
  b.strides = {0, 1, 0, 0};
  const auto channel = read_value(m, b, {ir::DType::u8, {1, 3, 1, 1}});
  ASSERT_TRUE(channel);
  EXPECT_TRUE(same_bytes(*channel, ir::Tensor::of<std::uint8_t>({1, 3, 1, 1}, {10, 20, 30})));
  // An expanded value [2,3] (first dimension repeated) broadcast over [4,2,3].
  b.dims = {4, 2, 3};
  b.strides = {0, 0, 1};
  const auto expanded = read_value(m, b, {ir::DType::u8, {2, 3}});
  ASSERT_TRUE(expanded);
  EXPECT_TRUE(same_bytes(*expanded, ir::Tensor::of<std::uint8_t>({2, 3}, {10, 20, 30, 10, 20, 30})));
}

TEST(RandomInputs, CoverTheirTypesAndRepeat) {
  region::Plan p;
  for (const ir::DType t : {ir::DType::f32, ir::DType::f16, ir::DType::u8, ir::DType::s8, ir::DType::s64, ir::DType::boolean}) {
    p.inputs.push_back({"x", {t, {2000}}, std::nullopt, {}, 0, {}});
  }
  const auto a = random_inputs(p, 7), b = random_inputs(p, 7), c = random_inputs(p, 8);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same_bytes(a[i], b[i]));
    EXPECT_FALSE(same_bytes(a[i], c[i]));
    double low = 1e9, high = -1e9;
    for (std::int64_t k = 0; k < a[i].size(); ++k) {
      low = std::min(low, a[i].at(k));
      high = std::max(high, a[i].at(k));
    }
    const ir::DType t = p.inputs[i].type.dtype;
    if (ir::is_float(t)) {
      EXPECT_LT(low, -0.9);
      EXPECT_GT(high, 0.9);
      EXPECT_LE(std::max(-low, high), 1.0);
    } else if (ir::is_int8(t)) {
      EXPECT_EQ(high - low, 255);
    } else {
      EXPECT_EQ(low, 0);
      EXPECT_EQ(high, 1);
    }
  }
}

}  // namespace
}  // namespace octavo::api
