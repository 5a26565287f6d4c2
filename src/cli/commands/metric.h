// --metric: what counts beside signal to noise: average precision of detectors, or a Python file of the user.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/inputs/data.h"
#include "region/region.h"

namespace octavo::cli {

/// A number for each model, from its outputs on all samples.
class Metric {
 public:
  virtual ~Metric() = default;
  Metric() = default;
  Metric(const Metric&) = delete;
  Metric& operator=(const Metric&) = delete;

  [[nodiscard]] virtual std::string title() const = 0;       ///< of a column
  [[nodiscard]] virtual bool share() const { return true; }  ///< from 0 to 1: printed in percent
  /// Called once for each model and sample; not for two threads at once. Samples may come in any order.
  [[nodiscard]] virtual Status add(std::size_t model, std::size_t sample, const std::vector<ir::Tensor>& outputs) = 0;
  /// Of each of `models` models, after all samples.
  [[nodiscard]] virtual Result<std::vector<double>> values(std::size_t models) = 0;
};

struct MetricRequest {
  std::string name;    ///< "map50" or a file that ends in .py
  std::string labels;  ///< --labels; map50: a COCO file (instances.json) with the pictures' names and sizes
  const DataOptions* options = nullptr;
  const FileData* data = nullptr;
  std::vector<region::Binding> inputs, outputs;
};
/// Errors: usage for names that are not known, networks whose outputs are no boxes that are known, recipes that crop; io and bad_input
/// of the files, naming pictures that the labels do not have.
[[nodiscard]] Result<std::unique_ptr<Metric>> make_metric(const MetricRequest& request);

}  // namespace octavo::cli
