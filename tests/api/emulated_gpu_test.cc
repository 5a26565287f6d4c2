// Networks built for a GPU and run by the emulation of its kernels: the same bits as the engine of the CPU.
#include <gtest/gtest.h>

#include <cstdlib>

#include "api/check.h"
#include "api/pipeline.h"
#include "cuda/compile_plan.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/emulation/emulator.h"
#include "cuda/provider.h"
#include "plan/plan.h"

namespace octavo::testing {
namespace {

TEST(EmulatedGpu, DigitsGiveTheBitsOfTheCpu) {
  if (!can_emulate()) GTEST_SKIP() << "a sanitizer does not know the stacks of fibers";
  const std::string model = OCTAVO_SOURCE_DIR "/examples/digits/digits_qdq.onnx";
  const auto cpu = api::build_file(model);
  ASSERT_TRUE(cpu) << cpu.error().message;

  const auto device = emulated_device();
  const auto provider = cuda::make_provider({"sm_80", 108, 163 * 1024});
  auto imported = onnx::import_file(model, {});
  ASSERT_TRUE(imported) << imported.error().message;
  auto planned = plan::make_plan(imported->graph, {provider.get()}, {});
  ASSERT_TRUE(planned) << planned.error().message;
  const cuda::Compiler text = [](std::string_view t) -> Result<std::string> { return std::string(t); };
  const Status compiled = cuda::compile_kernels(planned->plan, text, 1);
  ASSERT_TRUE(compiled) << compiled.error().message;
  for (const region::Region& r : planned->plan.regions)
    EXPECT_EQ(planned->plan.devices[static_cast<std::size_t>(r.device)].name, "cuda");
  const auto gpu = engine::Engine::create(std::move(planned->plan), {provider.get()}, "", {device.get()});
  ASSERT_TRUE(gpu) << gpu.error().message;

  auto on_cpu = engine::Context::create(cpu->engine, 1), on_gpu = engine::Context::create(*gpu, 1);
  ASSERT_TRUE(on_cpu && on_gpu) << (on_gpu ? on_cpu.error().message : on_gpu.error().message);
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const auto inputs = api::random_inputs(cpu->engine->plan(), seed);
    const auto expected = api::run(**on_cpu, inputs), actual = api::run(**on_gpu, inputs);
    ASSERT_TRUE(expected) << expected.error().message;
    ASSERT_TRUE(actual) << actual.error().message;
    ASSERT_EQ(expected->size(), actual->size());
    for (std::size_t k = 0; k < expected->size(); ++k) EXPECT_TRUE(ir::same_bytes((*expected)[k], (*actual)[k])) << "output " << k;
  }
}

}  // namespace
}  // namespace octavo::testing
