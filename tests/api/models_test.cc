// The real models of the test data folder, whole: every region judged against the reference, results independent of threads and of
// the file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "api/check.h"
#include "api/pipeline.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;

struct Model {
  const char* file;
  bool integer = false;  ///< explicit Q/DQ or integer operators: every result must be equal bit for bit
};
constexpr Model kModels[] = {{"mobilenetv2-12-qdq.onnx", true},
                             {"mobilenetv2_qdq_perchannel_s8.onnx", true},
                             {"tinycnn_cifar_qoperator.onnx", true},
                             {"tinycnn_cifar_fp32.onnx"},
                             {"mobilenetv1_025_224_fp32.onnx"},
                             {"resnet20_cifar10_fp32.onnx"},
                             {"resnet56_cifar10_fp32.onnx"},
                             {"squeezenet11_fp16.onnx"},
                             {"unet_small.onnx"},
                             {"yolox_nano_416.onnx"},
                             {"nanodet_m_416.onnx"},
                             {"ppocrv3_det_op14.onnx"},
                             {"yunet_120x160.onnx"}};

class RealModel : public ::testing::TestWithParam<Model> {};

std::string name_of_model(const ::testing::TestParamInfo<Model>& info) {
  std::string name;
  for (const char c : fs::path(info.param.file).stem().string()) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

TEST_P(RealModel, AgreesWithTheReferenceRegionByRegion) {
  const char* set = std::getenv("OCTAVO_TEST_DATA");
  const fs::path path = (set ? fs::path(set) : fs::path(OCTAVO_SOURCE_DIR) / "../shared") / "models" / GetParam().file;
  if (!fs::exists(path)) GTEST_SKIP() << "OCTAVO_TEST_DATA: no " << path;
  PipelineOptions o;
  o.plan.threads = 2;
  if (path.filename() == "ppocrv3_det_op14.onnx") o.import.shapes["x"] = {1, 3, 160, 160};
  const auto built = build_file(path.string(), o);
  ASSERT_TRUE(built) << built.error().message;
  const std::uint64_t seed = 1;
  const auto inputs = random_inputs(built->engine->plan(), seed);
  const auto report = check(built->engine, built->graph, inputs);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok()) << report->first_divergence() << "\n  repeat: octavo check " << path << " --seed " << seed;
  for (const RegionCheck& r : report->regions) {
    EXPECT_EQ(r.skipped, "") << "region " << r.region << " \"" << r.name << "\"";
    if (GetParam().integer) {
      EXPECT_EQ(r.allowed, 0) << "region " << r.region << " \"" << r.name << "\" is off by one";
    }
  }

  // The same bits from the file and on another number of threads.
  const std::string file = ::testing::TempDir() + "octavo_models_" + std::to_string(::getpid());
  ASSERT_TRUE(built->engine->save(file));
  const auto loaded = engine::Engine::load(file, all_providers());
  std::remove(file.c_str());
  ASSERT_TRUE(loaded) << loaded.error().message;
  for (const int threads : {1, 3}) {
    const auto context = engine::Context::create(*loaded, threads);
    ASSERT_TRUE(context) << context.error().message;
    const auto outputs = run(**context, inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    ASSERT_EQ(outputs->size(), report->outputs.size());
    for (std::size_t i = 0; i < outputs->size(); ++i)
      EXPECT_TRUE(same_bytes((*outputs)[i], report->outputs[i])) << "output " << i << ", " << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(SharedModels, RealModel, ::testing::ValuesIn(kModels), name_of_model);

}  // namespace
}  // namespace octavo::api
