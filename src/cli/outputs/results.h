// What a run gives back, item by item, as text, JSON, CSV, .npy or .npz.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/inputs/inputs.h"
#include "ir/tensor.h"
#include "region/region.h"

namespace octavo::cli {

/// The outputs that belong to one input: one row of a batch where rows have names, else those of a whole run.
struct Item {
  std::string name;  ///< the file, "part 2 of 3", or empty
  std::vector<ir::Tensor> outputs;
  bool whole = false;  ///< of arrays that were given whole: the name is their file
};
/// Cuts the outputs of a run. Rows that hold nothing (Feed::used) are left out of outputs that have the batch as dimension 0.
[[nodiscard]] std::vector<Item> items_of(const Feed& feed, const std::vector<ir::Tensor>& outputs, const region::Plan& plan);

enum class ResultFormat { text, json, csv, npy, npz };
/// By name ("json") if there is one, else by the ending of `path`. Errors: usage, naming what is known.
[[nodiscard]] Result<ResultFormat> result_format(std::string_view name, std::string_view path);

struct ResultStyle {
  std::vector<std::string> labels;  ///< of classes; may be empty
  int top = 5;                      ///< classes to name
};

/// A classifier's best classes with their scores; of other models, type, shape and range of each output.
[[nodiscard]] std::string text_of(const Item& item, const region::Plan& plan, const ResultStyle& style);
/// A JSON document: {"model", "results": [{"input", "top": [{"class", "label", "score"}], "outputs": {name: nested lists}}]}; NaN and
/// infinities are null.
[[nodiscard]] std::string json_of(const std::vector<Item>& items, const region::Plan& plan, const ResultStyle& style);
/// With a header line (RFC 4180). Classifiers: input,row,rank,class,label,score. Others: input, then every element of every output.
/// Errors: usage when items have different numbers of elements, or more than 16384.
[[nodiscard]] Result<std::string> csv_of(const std::vector<Item>& items, const region::Plan& plan, const ResultStyle& style);
/// One array an output, the items one behind the other in dimension 0; "names" (or "_names") holds what the items are called, a
/// string a row. Errors: bad_input from 4 GiB on.
[[nodiscard]] Result<std::vector<std::byte>> npz_of(const std::vector<Item>& items, const region::Plan& plan);
/// The same of the only output. Errors: usage when there are more.
[[nodiscard]] Result<std::vector<std::byte>> npy_of(const std::vector<Item>& items, const region::Plan& plan);

/// Classes of a classifier's only output [N,C] or [N,C,1,1]; 0: it is none.
[[nodiscard]] std::int64_t classes_of(const region::Plan& plan);

}  // namespace octavo::cli
