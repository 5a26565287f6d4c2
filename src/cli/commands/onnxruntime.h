// ONNX Runtime in a process of its own: `octavo check MODEL --against onnxruntime`.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"
#include "region/region.h"

namespace octavo::cli {

struct FromOnnxRuntime {
  std::string version;                           ///< "onnxruntime 1.31.0, CPUExecutionProvider"
  std::vector<region::Binding> inputs, outputs;  ///< names, and types as far as a run has shown them
  std::vector<std::vector<ir::Tensor>> results;  ///< by feed, parallel to `outputs`
};

/// Runs the ONNX file once for each feed, on the CPU with default options, by the Python that OCTAVO_PYTHON names (default: python3). Each feed
/// holds the inputs in the order of `names`, which are matched by name, or by position where the file has other names. Errors: unsupported where Python or the package is missing, for types that
/// NumPy lacks, and with ONNX Runtime's own words where it refuses the model; io.
[[nodiscard]] Result<FromOnnxRuntime> run_onnxruntime(const std::string& model, const std::vector<region::Binding>& inputs,
                                                      const std::vector<std::vector<ir::Tensor>>& feeds, int threads);

}  // namespace octavo::cli
