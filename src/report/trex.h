// Layer list, profile, times and outputs in the JSON that trex (TensorRT's engine explorer) and scripts made for trtexec read.
#pragma once

#include <string>
#include <vector>

#include "region/region.h"

namespace octavo::report {

/// --profilingVerbosity: what a layer is in --exportLayerInfo: an object, its name, or nothing.
enum class LayerDetail { all, names, none };

/// --exportLayerInfo: {"Layers": [...], "Bindings": [...], "I/O Tensors": [...]}; one object a region, in order, with unique names.
/// "Metadata" holds the ONNX nodes. Formats are the strings that trex knows; "OctavoLayout", "OctavoPrecision", "OctavoReason",
/// "OctavoReasons" and "OctavoKey" say what they cannot; "OctavoSchema" is the version (docs/schema.md). HasBias and Activation are read off the region's program: a constant that is added to the sum
/// a channel or as one, and a lower bound of 0 before or in the quantization.
[[nodiscard]] std::string layer_info(const region::Plan& plan, LayerDetail detail = LayerDetail::all);

/// --exportProfile: [{"count": runs}, {"name", "timeMs", "averageMs", "medianMs", "percentage"}, ...], parallel to layer_info's
/// layers. Times are medians and means of one run of each region, seconds.
struct LayerTimes {
  double median = 0, mean = 0;
};
[[nodiscard]] std::string profile(const region::Plan& plan, const std::vector<LayerTimes>& times, int runs);

/// --exportTimes: one object a run; nothing is copied to or from a device, so those times are zero. Seconds since the first start.
struct RunTime {
  double start = 0, end = 0;
};
[[nodiscard]] std::string times(const std::vector<RunTime>& runs);

/// --exportOutput: [{"name", "dimensions": "1x3x224", "values": [...]}, ...], parallel to the plan's outputs; numbers that JSON
/// does not have (NaN, infinities) are null.
[[nodiscard]] std::string outputs(const region::Plan& plan, const std::vector<ir::Tensor>& values);

/// X.profile.metadata.json: throughput, latency and device.
[[nodiscard]] std::string profile_metadata(const region::Plan& plan, const std::vector<RunTime>& runs, const std::string& device);

/// X.build.metadata.json: what was built from which file, with which options, where.
struct BuildOptions {
  std::string model, engine, timing_cache, calibration, device;
  int effort = 0;
};
[[nodiscard]] std::string build_metadata(const region::Plan& plan, const BuildOptions& options);

}  // namespace octavo::report
