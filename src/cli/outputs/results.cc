#include "cli/outputs/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/inputs/npy.h"
#include "region/sizes.h"

namespace octavo::cli {
namespace {

constexpr std::int64_t kMostColumns = 16384;

std::int64_t batch_of(const region::Plan& plan) {
  return plan.inputs.empty() || plan.inputs[0].type.shape.empty() ? -1 : plan.inputs[0].type.shape[0];
}

ir::Tensor rows(const ir::Tensor& t, std::int64_t first, std::int64_t length) {
  ir::Shape shape = t.shape();
  const std::size_t row = shape[0] == 0 ? 0 : t.bytes().size() / static_cast<std::size_t>(shape[0]);
  shape[0] = length;
  ir::Tensor part(t.dtype(), shape);
  if (length > 0) {
    std::memcpy(part.mutable_bytes().data(), t.bytes().data() + static_cast<std::size_t>(first) * row,
                static_cast<std::size_t>(length) * row);
  }
  return part;
}

/// Items one behind the other in dimension 0.
Result<ir::Tensor> stacked(const std::vector<Item>& items, std::size_t output, const region::Plan& plan) {
  const ir::Tensor& first = items[0].outputs[output];
  if (items.size() == 1 || first.shape().empty()) return first;
  ir::Shape shape = first.shape();
  shape[0] = 0;
  for (const Item& item : items) {  // other dimensions differ where data decide them
    const ir::Shape& own = item.outputs[output].shape();
    if (!std::equal(own.begin() + 1, own.end(), shape.begin() + 1, shape.end())) {
      return fail(ErrorKind::usage,
                  fmt::format("output \"{}\" is {} for one input and {} for another, which is no array\n  choose .json or .txt",
                              plan.outputs[output].name, ir::to_string(first.shape()), ir::to_string(own)));
    }
    shape[0] += own[0];
  }
  ir::Tensor whole(first.dtype(), shape);
  auto to = whole.mutable_bytes().begin();
  for (const Item& item : items) to = std::copy(item.outputs[output].bytes().begin(), item.outputs[output].bytes().end(), to);
  return whole;
}

struct Scored {
  std::int64_t index;
  double score;
};

std::vector<Scored> best(const ir::Tensor& scores, std::int64_t row, std::int64_t classes, int top) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(classes));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto score = [&](std::int64_t c) { return scores.at(row * classes + c); };
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return score(a) > score(b); });
  std::vector<Scored> out;
  for (std::int64_t k = 0; k < std::min<std::int64_t>(top, classes); ++k)
    out.push_back({order[static_cast<std::size_t>(k)], score(order[static_cast<std::size_t>(k)])});
  return out;
}

std::string label_of(const ResultStyle& style, std::int64_t c) {
  return static_cast<std::size_t>(c) < style.labels.size() ? style.labels[static_cast<std::size_t>(c)] : std::string();
}

/// Type, shape and range of an output that is no list of classes.
std::string range_of(const std::string& name, const ir::Tensor& t) {
  if (t.size() == 0) return fmt::format("  {} {}: no elements\n", name, ir::to_string(t.type()));
  double lo = INFINITY, hi = -INFINITY, sum = 0;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    lo = std::min(lo, t.at(i));
    hi = std::max(hi, t.at(i));
    sum += t.at(i);
  }
  return fmt::format("  {} {}: {:.6g} to {:.6g}, mean {:.6g}\n", name, ir::to_string(t.type()), lo, hi,
                     sum / static_cast<double>(std::max<std::int64_t>(t.size(), 1)));
}

/// One element, as short as it can be read back: floats in their own type.
std::string number(const ir::Tensor& t, std::int64_t i) {
  if (t.dtype() == ir::DType::s64) return fmt::format("{}", t.data<std::int64_t>()[static_cast<std::size_t>(i)]);
  const double v = t.at(i);
  if (t.dtype() == ir::DType::f64) return fmt::format("{}", v);
  return fmt::format("{}", static_cast<float>(v));
}

/// Nested lists from flat element `at` on, of dimensions `d` and those behind it.
void nested(const ir::Tensor& t, std::size_t d, std::int64_t& at, std::string& out) {
  if (d == t.shape().size()) {
    out += std::isfinite(t.at(at)) ? number(t, at) : "null";
    ++at;
    return;
  }
  out += '[';
  for (std::int64_t k = 0; k < t.shape()[d]; ++k) {
    if (k > 0) out += ',';
    nested(t, d + 1, at, out);
  }
  out += ']';
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// A CSV field.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

}  // namespace

std::int64_t classes_of(const region::Plan& plan) {
  if (plan.outputs.size() != 1) return 0;
  const ir::Shape& shape = plan.outputs[0].type.shape;
  if (shape.size() < 2 || shape[1] < 2 || ir::count(shape) != shape[0] * shape[1]) return 0;
  return shape[1];
}

std::vector<Item> items_of(const Feed& feed, const std::vector<ir::Tensor>& outputs, const region::Plan& plan) {
  const std::int64_t batch = batch_of(plan), used = feed.used < 0 ? batch : feed.used;
  const bool every =
      std::all_of(outputs.begin(), outputs.end(), [&](const ir::Tensor& t) { return !t.shape().empty() && t.shape()[0] == batch; });
  std::vector<Item> items;
  if (every && static_cast<std::int64_t>(feed.rows.size()) == used) {
    for (std::int64_t r = 0; r < used; ++r) {
      Item& item = items.emplace_back(Item{feed.rows[static_cast<std::size_t>(r)], {}});
      for (const auto& t : outputs) item.outputs.push_back(rows(t, r, 1));
    }
    return items;
  }
  Item& item = items.emplace_back(Item{feed.name, {}, feed.rows.empty()});
  for (const auto& t : outputs) {
    const bool cut = used < batch && !t.shape().empty() && t.shape()[0] == batch;
    item.outputs.push_back(cut ? rows(t, 0, used) : t);
  }
  return items;
}

Result<ResultFormat> result_format(std::string_view name, std::string_view path) {
  constexpr std::pair<std::string_view, ResultFormat> kKnown[] = {{"text", ResultFormat::text}, {"txt", ResultFormat::text},
                                                                  {"json", ResultFormat::json}, {"csv", ResultFormat::csv},
                                                                  {"npy", ResultFormat::npy},   {"npz", ResultFormat::npz}};
  std::string_view ending = name;
  if (ending.empty()) {
    const std::size_t dot = path.rfind('.'), slash = path.rfind('/');
    const bool has = dot != std::string_view::npos && (slash == std::string_view::npos || dot > slash);
    if (!has) return ResultFormat::text;  // "-", a pipe, a device
    ending = path.substr(dot + 1);
  }
  for (const auto& [known, format] : kKnown) {
    if (ending == known) return format;
  }
  if (!name.empty()) return fail(ErrorKind::usage, fmt::format("--format {}: known are text, json, csv, npy and npz", name));
  return fail(
      ErrorKind::usage,
      fmt::format("--output {}: the ending says the format: .txt, .json, .csv, .npy or .npz\n  or name it: --format json", path));
}

std::string text_of(const Item& item, const region::Plan& plan, const ResultStyle& style) {
  std::string out;
  const std::int64_t classes = classes_of(plan);
  if (classes == 0) {
    if (!item.name.empty()) out += item.name + "\n";
    for (std::size_t j = 0; j < region::shown_outputs(plan); ++j) out += range_of(plan.outputs[j].name, item.outputs[j]);
    return out;
  }
  const std::int64_t count = item.outputs[0].shape()[0];
  for (std::int64_t row = 0; row < count; ++row) {
    std::string which = item.name;
    if (count > 1) which += fmt::format("{}row {}", which.empty() ? "" : ", ", row);
    if (!which.empty()) out += which + (style.top == 1 ? "" : "\n");
    for (const auto& [c, score] : best(item.outputs[0], row, classes, style.top)) {
      const std::string label = label_of(style, c);
      out += fmt::format("  {:>9.4f}  {}{}{}\n", score, c, label.empty() ? "" : " ", label);
    }
  }
  return out;
}

std::string json_of(const std::vector<Item>& items, const region::Plan& plan, const ResultStyle& style) {
  const std::int64_t classes = classes_of(plan);
  std::string out = fmt::format("{{\"model\": {}, \"results\": [", quoted(plan.model_name));
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    out += fmt::format("{}\n{{\"input\": {}", i > 0 ? "," : "", item.name.empty() ? "null" : quoted(item.name));
    if (classes > 0) {
      out += ", \"top\": [";
      const std::int64_t count = item.outputs[0].shape()[0];
      for (std::int64_t row = 0; row < count; ++row) {
        if (count > 1) out += row > 0 ? ", [" : "[";
        bool first = true;
        for (const auto& [c, score] : best(item.outputs[0], row, classes, style.top)) {
          const std::string value = std::isfinite(score) ? number(item.outputs[0], row * classes + c) : "null";
          out += fmt::format("{}{{\"class\": {}, \"label\": {}, \"score\": {}}}", first ? "" : ", ", c,
                             style.labels.empty() ? "null" : quoted(label_of(style, c)), value);
          first = false;
        }
        if (count > 1) out += "]";
      }
      out += "]";
    }
    out += ", \"outputs\": {";
    for (std::size_t j = 0; j < region::shown_outputs(plan); ++j) {
      out += fmt::format("{}{}: ", j > 0 ? ", " : "", quoted(plan.outputs[j].name));
      std::int64_t at = 0;
      nested(item.outputs[j], 0, at, out);
    }
    out += "}}";
  }
  return out + "\n]}\n";
}

Result<std::string> csv_of(const std::vector<Item>& items, const region::Plan& plan, const ResultStyle& style) {
  if (const std::int64_t classes = classes_of(plan); classes > 0) {
    std::string out = "input,row,rank,class,label,score\n";
    for (const Item& item : items) {
      for (std::int64_t row = 0; row < item.outputs[0].shape()[0]; ++row) {
        int rank = 0;
        for (const auto& [c, score] : best(item.outputs[0], row, classes, style.top)) {
          out += fmt::format("{},{},{},{},{},{}\n", field(item.name), row, ++rank, c, field(label_of(style, c)),
                             number(item.outputs[0], row * classes + c));
        }
      }
    }
    return out;
  }
  std::string out = "input";
  std::int64_t columns = 0;
  for (std::size_t j = 0; j < region::shown_outputs(plan); ++j) {
    const std::int64_t size = items[0].outputs[j].size();
    columns += size;
    for (std::int64_t k = 0; k < size && columns <= kMostColumns; ++k)
      out += fmt::format(",{}", field(fmt::format("{}[{}]", plan.outputs[j].name, k)));
  }
  if (columns > kMostColumns)
    return fail(ErrorKind::usage, fmt::format("CSV: a line would have {} numbers, at most {} are written\n  choose .npz or .json",
                                              columns, kMostColumns));
  out += '\n';
  for (const Item& item : items) {
    out += field(item.name);
    for (std::size_t j = 0; j < region::shown_outputs(plan); ++j) {
      if (item.outputs[j].size() != items[0].outputs[j].size())
        return fail(ErrorKind::usage,
                    "CSV: the last run is shorter than the others, its line would be, too\n  choose .npz or .json");
      for (std::int64_t k = 0; k < item.outputs[j].size(); ++k) out += "," + number(item.outputs[j], k);
    }
    out += '\n';
  }
  return out;
}

Result<std::vector<std::byte>> npz_of(const std::vector<Item>& items, const region::Plan& plan) {
  Arrays arrays;
  for (std::size_t j = 0; j < region::shown_outputs(plan); ++j) {
    OCTAVO_TRY(ir::Tensor whole, stacked(items, j, plan));
    arrays.insert_or_assign(plan.outputs[j].name, std::move(whole));
  }
  std::vector<std::string> names;
  for (const Item& item : items) names.push_back(item.name);
  const bool whole = items.size() == 1 && items[0].whole;  // there is nothing to tell apart
  const bool named = !whole && std::any_of(names.begin(), names.end(), [](const std::string& n) { return !n.empty(); });
  return format_npz(arrays, named ? names : std::vector<std::string>());
}

Result<std::vector<std::byte>> npy_of(const std::vector<Item>& items, const region::Plan& plan) {
  const std::size_t outputs = region::shown_outputs(plan);
  if (outputs != 1)
    return fail(ErrorKind::usage, fmt::format("an .npy file holds one array, the model has {} outputs: choose .npz", outputs));
  OCTAVO_TRY(const ir::Tensor whole, stacked(items, 0, plan));
  return format_npy(whole);
}

}  // namespace octavo::cli
