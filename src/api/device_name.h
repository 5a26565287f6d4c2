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

}  // namespace octavo::api
