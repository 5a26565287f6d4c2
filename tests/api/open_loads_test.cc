// How kernels of new shapes are loaded on a GPU: by what was read once, as the same launches.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "api/open_gpu_scene.h"
#include "cuda/device/gpu_kernel.h"
#include "cuda/emulation/emulated_test.h"
#include "region/json.h"
#include "region/key.h"
#include "region/restarts.h"

namespace octavo::testing {
namespace {

class OpenLoads : public EmulatedTest {};

/// Counts how kernels are loaded.
class CountingProvider final : public region::Provider, public region::Restarts {
 public:
  explicit CountingProvider(const region::Provider& inner) : inner_(inner), restarts_(dynamic_cast<const Restarts&>(inner)) {}
  std::string_view name() const override { return inner_.name(); }
  std::string_view device() const override { return inner_.device(); }
  std::vector<region::Offer> offers(const region::Region& r, const region::Plan& p) const override { return inner_.offers(r, p); }
  Result<region::Artifact> compile(const region::Region& r, const region::Plan& p, const region::Tactic& t) const override {
    return inner_.compile(r, p, t);
  }
  Result<region::Artifact> restart(const region::Region& r, const region::Plan& p) const override { return inner_.restart(r, p); }
  Result<std::string> code_of(const region::Source& s) const override { return inner_.code_of(s); }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& p,
                                               const region::ArtifactView& a) const override {
    ++texts;
    return inner_.load(r, p, a);
  }
  Result<std::shared_ptr<const region::Read>> read_launch(std::string_view form) const override {
    ++forms;
    return restarts_.read_launch(form);
  }
  Result<std::shared_ptr<const region::Read>> read_code(std::span<const std::byte> code) const override {
    return restarts_.read_code(code);
  }
  Result<std::unique_ptr<region::Kernel>> load_read(const region::Region& r, const region::Plan& p, const region::Read& launch,
                                                    std::span<const std::int64_t> numbers,
                                                    const region::Read* code) const override {
    ++reads;
    return restarts_.load_read(r, p, launch, numbers, code);
  }
  mutable std::atomic<int> texts{0}, forms{0}, reads{0};

 private:
  const region::Provider& inner_;
  const Restarts& restarts_;
};

/// A new shape reads no text, and its launches are those that its plan says as text.
TEST_F(OpenLoads, NewShapesReadNoTextsOfLaunches) {
  EmulatedGpu gpu;
  const CountingProvider counting(*gpu.provider);
  const auto open = opened(gpu, Session::open(kModel), images(4), up_to(32), &counting);
  ASSERT_TRUE(open) << open.error().message;
  const int forms = counting.forms;
  EXPECT_GT(forms, 0);
  for (const std::int64_t n : {1, 5, 32}) {
    counting.texts = 0, counting.reads = 0;
    const auto resized = open->resizer->at(images(n));
    ASSERT_TRUE(resized) << resized.error().message;
    const region::Plan& plan = (*resized)->plan();
    EXPECT_EQ(counting.texts, 0) << n << " images";
    EXPECT_EQ(counting.reads, static_cast<int>(plan.regions.size()));
    EXPECT_EQ(counting.forms, forms) << "a form is read once";
    for (std::size_t i = 0; i < plan.regions.size(); ++i) {
      const auto& kernel = dynamic_cast<const cuda::GpuKernel&>((*resized)->kernel(i));
      const auto text = cuda::read_launches(plan.regions[i].launch, plan.regions[i]);
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_EQ(kernel.workspace_bytes(), text->workspace_bytes);
      ASSERT_EQ(kernel.starts().size(), text->starts.size()) << plan.regions[i].name;
      for (std::size_t k = 0; k < text->starts.size(); ++k) {
        EXPECT_EQ(kernel.starts()[k].module, text->starts[k].module);
        EXPECT_EQ(kernel.starts()[k].launch, text->starts[k].launch) << plan.regions[i].name;
      }
    }
  }
}

/// Keys are spelled when somebody asks.
TEST_F(OpenLoads, NewShapesHaveKeysOfTheirOwn) {
  const auto session = Session::open(kModel);
  ASSERT_TRUE(session);
  const auto inputs = (*session)->inputs();
  ASSERT_TRUE(inputs);
  EmulatedGpu gpu;
  const auto base = gpu.build(**session, options(), images(4)), other = gpu.build(**session, options(), images(6));
  ASSERT_TRUE(base && other);
  auto decided = std::make_shared<plan::Decided>(*base->decided);
  decided->from = "image [4,1,16,16]";  // as builds say
  const auto resizer =
      Resizer::create(**session, options(), *inputs, up_to(32), images(4), base->engine, decided, {gpu.provider.get()});
  ASSERT_TRUE(resizer) << resizer.error().message;
  const auto resized = (*resizer)->at(images(6));
  ASSERT_TRUE(resized);
  const region::Plan &plan = (*resized)->plan(), &own = other->engine->plan();
  ASSERT_EQ(plan.regions.size(), own.regions.size());
  const nlohmann::json written = nlohmann::json::parse(region::to_json(plan));
  for (std::size_t i = 0; i < own.regions.size(); ++i) {
    EXPECT_NE(own.regions[i].key, "");
    EXPECT_EQ(region::key_of(plan.regions[i], plan), own.regions[i].key);
    EXPECT_EQ(written["regions"][i]["key"], own.regions[i].key);
  }
}

}  // namespace
}  // namespace octavo::testing
