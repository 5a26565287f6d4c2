// --data: folders, pictures and arrays as calibration or evaluation data, read one by one when they are needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/inputs/inputs.h"
#include "ir/graph.h"
#include "quantize/data/data.h"
#include "region/region.h"

namespace octavo::cli {

struct DataOptions {
  std::vector<std::string> data;
  RecipeOptions recipe;
  std::string labels{};  ///< the file of --labels: where it lies in a folder of data, it is no sample
};
void add_data_options(Arguments& app, DataOptions& options);

/// What a graph or a plan takes; all dimensions are known.
[[nodiscard]] Declared inputs_of(const ir::Graph& graph);
[[nodiscard]] Declared inputs_of(const region::Plan& plan);

/// The samples that arrays in memory make, as a file with them would: arrays that are k times as long as the inputs in dimension 0 are k
/// samples. `by_input`: they are named by input, otherwise the one array is of the only input. `name`: what messages call them. Errors: usage,
/// bad_input.
[[nodiscard]] Result<std::vector<quantize::Sample>> samples_of(Arrays arrays, bool by_input, const std::string& name,
                                                               const Declared& inputs);

class FileData final : public quantize::Data {
 public:
  /// A folder stands for all files below it, by name; what is no picture, .npy or .npz in there is left out with a warning; labels (the file
  /// of --labels, and labels.* ) are left out without one. A file
  /// with arrays that are k times as long as the inputs in dimension 0 is k samples. Errors: usage without --data or for a picture
  /// where the model has several inputs; io; bad_input without any sample, and for files named one by one that are none.
  [[nodiscard]] static Result<std::unique_ptr<FileData>> open(const DataOptions& options, const Declared& inputs);

  [[nodiscard]] std::size_t size() const override { return entries_.size(); }
  [[nodiscard]] Result<quantize::Sample> at(std::size_t index) const override;
  [[nodiscard]] const std::string& path(std::size_t index) const { return entries_[index].path; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Entry {
    std::string path;
    std::size_t part = 0;
    std::shared_ptr<const std::vector<Feed>> arrays;  ///< of a file with arrays, while all of them are small enough to be kept
  };
  [[nodiscard]] Result<std::vector<Feed>> read(const std::string& path) const;

  RecipeOptions recipe_;
  Declared declared_;
  region::Plan plan_;  ///< nothing but the inputs: what Feeds ask for
  std::vector<Entry> entries_;
  std::vector<std::string> warnings_;
};

}  // namespace octavo::cli
