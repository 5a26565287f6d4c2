// How --device spells devices: "cpu", "reference", "cuda", "cuda:1", "cuda:RTX 4090", each of a GPU also with ",cpu" behind it.
#pragma once

#include <string>
#include <string_view>

namespace octavo::api {

/// Behind a GPU: regions that it has no kernel for run on the CPU.
inline constexpr std::string_view kAndCpu = ",cpu";

[[nodiscard]] inline bool takes_cpu_too(std::string_view device) {
  return device.starts_with("cuda") && device.ends_with(kAndCpu);
}
/// The same without ",cpu".
[[nodiscard]] inline std::string_view preferred_device(std::string_view device) {
  if (takes_cpu_too(device)) device.remove_suffix(kAndCpu.size());
  return device;
}
/// "cuda" of every GPU: what device_of (api/pipeline.h) says of plans for it.
[[nodiscard]] inline std::string_view kind_of_device(std::string_view device) {
  device = preferred_device(device);
  return device.substr(0, device.find(':'));
}
/// "cuda" or "cuda,cpu", as the GPU `name`.
[[nodiscard]] inline std::string with_gpu(std::string_view device, std::string_view name) {
  return std::string(preferred_device(device)).append(":").append(name).append(takes_cpu_too(device) ? kAndCpu : "");
}

/// The device that an engine is built for again, so that it runs on the GPU `here` ("cuda", "cuda:1"; of other devices the first GPU). `was`: the device of its first
/// build, which may name a GPU, or another number of one. With ",cpu" where that had it; devices other than GPUs stay.
[[nodiscard]] inline std::string device_to_run(std::string_view was, std::string_view here) {
  if (!was.starts_with("cuda")) return std::string(was);
  return std::string(here.starts_with("cuda") ? preferred_device(here) : "cuda").append(takes_cpu_too(was) ? kAndCpu : "");
}

}  // namespace octavo::api
