#include "cli/inputs/gpu_option.h"

#include <fmt/format.h>

#include <memory>

#include "api/device_name.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cuda/device/absent_gpu.h"

namespace octavo::cli {

void add_gpu_option(Arguments& app, ModelOptions& o) {
  const auto name = std::make_shared<std::string>();
  auto* gpu =
      app.add_option("--gpu", *name,
                     fmt::format("Build for a GPU that is not in this machine: {}. Planned by estimates (--effort 0); needs NVRTC",
                                 cuda::kGpuExamples))
          ->type_name("NAME");
  const auto device_before = std::make_shared<std::string>();
  has_effect(app, gpu, [&o, device_before](const std::string& given) {
    if (is_engine_file(o.path))
      return fmt::format("\"{}\" says how a model is built, and \"{}\" is an engine file\n  leave it out", given, o.path);
    if (device_before->empty() || api::preferred_device(*device_before) == "cuda") return std::string();
    return fmt::format("\"{}\" is for device cuda, the device is \"{}\"\n  leave --device out", given, *device_before);
  });
  arrange(app, [&app, &o, gpu, name, device_before] {
    if (gpu->count() == 0) return;
    if (app.get_option("--device")->count() > 0) *device_before = o.build.device;
    const bool cuda = api::preferred_device(*device_before) == "cuda";
    o.build.device = api::with_gpu(cuda ? *device_before : "cuda", *name);
    if (app.get_option("--effort")->count() == 0) o.build.plan.effort = 0;
  });
}

}  // namespace octavo::cli
