#include "api/launch_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

namespace octavo::api {
namespace {

constexpr char kMark = '\x01';  // which JSON never has as it is
constexpr std::size_t kMostForms = 64, kMostColumns = 1 << 16;

/// The text with marks in the place of the whole numbers outside of its strings, which go into `numbers`.
std::string without_numbers(std::string_view text, std::vector<std::int64_t>& numbers) {
  std::string out;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::int64_t n = 0;
    if (!quoted && (c == '-' || (c >= '0' && c <= '9'))) {
      const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), n);
      if (error == std::errc()) {
        numbers.push_back(n);
        out += kMark;
        i = static_cast<std::size_t>(end - text.data()) - 1;
        continue;
      }
    }
    if (c == '"') quoted = !quoted;
    out += c;
    if (quoted && c == '\\' && i + 1 < text.size()) out += text[++i];
  }
  return out;
}

/// `number(k)`: the k-th.
template <class F>
std::string with_numbers(std::string_view text, const F& number) {
  std::string out;
  out.reserve(2 * text.size());
  std::size_t k = 0;
  for (;;) {
    const std::size_t at = text.find(kMark);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    std::array<char, 24> digits{};
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number(k++));
    out.append(digits.data(), end);
    text.remove_prefix(at + 1);
  }
}

/// Every number of the text is a mark, and each mark a whole one: not part of another word or of a string.
bool marks_are_numbers(std::string_view text) {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
      continue;
    }
    if (c == '"') quoted = !quoted;
    if (c == kMark) {
      const bool begins = i > 0 && std::string_view(":[,").find(text[i - 1]) != std::string_view::npos;
      const bool ends = i + 1 < text.size() && std::string_view(",]}").find(text[i + 1]) != std::string_view::npos;
      if (quoted || !begins || !ends) return false;
    } else if (!quoted && (c == '-' || (c >= '0' && c <= '9'))) {
      return false;
    }
  }
  return true;
}

}  // namespace

LaunchTable::LaunchTable(plan::Point least, plan::Point most) : least_(std::move(least)), most_(std::move(most)), points_(1) {
  for (std::size_t k = 0; k < least_.size(); ++k) points_ *= static_cast<std::size_t>(most_[k] - least_[k] + 1);
}

plan::Point LaunchTable::point(std::size_t index) const {
  plan::Point out = least_;
  for (std::size_t k = out.size(); k-- > 0;) {
    const auto extent = static_cast<std::size_t>(most_[k] - least_[k] + 1);
    out[k] += static_cast<std::int64_t>(index % extent);
    index /= extent;
  }
  return out;
}

std::optional<std::size_t> LaunchTable::index_of(const plan::Point& point) const {
  if (points_ == 0 || point.size() != least_.size()) return std::nullopt;
  std::size_t out = 0;
  for (std::size_t k = 0; k < point.size(); ++k) {
    if (point[k] < least_[k] || point[k] > most_[k]) return std::nullopt;
    out = out * static_cast<std::size_t>(most_[k] - least_[k] + 1) + static_cast<std::size_t>(point[k] - least_[k]);
  }
  return out;
}

std::uint32_t LaunchTable::column(std::vector<std::int64_t> values) {
  if (std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v == values.front(); })) values.resize(1);
  const auto [at, fresh] = known_.try_emplace(std::move(values), static_cast<std::uint32_t>(columns_.size()));
  if (fresh) columns_.push_back(at->first);
  return at->second;
}

std::int64_t LaunchTable::value(std::uint32_t column, std::size_t point) const {
  const std::vector<std::int64_t>& values = columns_[column];
  return values.size() == 1 ? values[0] : values[point];
}

void LaunchTable::put(std::size_t region, std::span<const std::optional<Start>> starts) {
  Row row;
  std::vector<std::int64_t> which(points_, -1);
  std::vector<std::vector<std::vector<std::int64_t>>> numbers;  // by form and point
  std::map<std::pair<std::string, std::int32_t>, std::size_t> forms;
  for (std::size_t p = 0; p < points_; ++p) {
    if (!starts[p]) continue;
    std::vector<std::int64_t> here;
    std::string text = without_numbers(starts[p]->launch, here);
    if (with_numbers(text, [&](std::size_t k) { return here[k]; }) != starts[p]->launch) continue;
    const auto [at, fresh] = forms.try_emplace({std::move(text), starts[p]->code}, row.forms.size());
    if (fresh && row.forms.size() == kMostForms) continue;
    if (fresh) {
      row.forms.push_back({at->first.first, starts[p]->code, {}});
      numbers.emplace_back(points_);
    }
    if (at->second >= row.forms.size()) continue;
    which[p] = static_cast<std::int64_t>(at->second);
    numbers[at->second][p] = std::move(here);
  }
  for (std::size_t f = 0; f < row.forms.size(); ++f) {
    const auto& all = numbers[f];
    const auto some = std::find_if(all.begin(), all.end(), [](const auto& v) { return !v.empty(); });
    for (std::size_t k = 0; some != all.end() && k < some->size(); ++k) {
      std::vector<std::int64_t> values;
      values.reserve(points_);
      for (const auto& v : all) values.push_back(v.empty() ? (*some)[k] : v[k]);  // no point asks for those
      row.forms[f].numbers.push_back(column(std::move(values)));
    }
  }
  row.which = column(std::move(which));
  rows_[region] = std::move(row);
}

void LaunchTable::number_codes(const std::map<std::int32_t, std::int32_t>& place) {
  for (auto& [region, row] : rows_) {
    for (Form& f : row.forms) f.code = f.code < 0 ? f.code : place.at(f.code);
  }
}

std::optional<LaunchTable::Start> LaunchTable::find(std::size_t region, std::size_t point) const {
  const auto row = rows_.find(region);
  if (row == rows_.end()) return std::nullopt;
  const std::int64_t which = value(row->second.which, point);
  if (which < 0) return std::nullopt;
  const Form& form = row->second.forms[static_cast<std::size_t>(which)];
  return Start{with_numbers(form.text, [&](std::size_t k) { return value(form.numbers[k], point); }), form.code};
}

std::vector<LaunchTable::Indexed> LaunchTable::forms(std::size_t region) const {
  std::vector<Indexed> out;
  const auto row = rows_.find(region);
  if (row == rows_.end()) return out;
  for (const Form& f : row->second.forms) {
    Indexed& to = out.emplace_back();
    to.code = f.code;
    if (marks_are_numbers(f.text)) to.text = with_numbers(f.text, [](std::size_t k) { return k; });
  }
  return out;
}

std::optional<std::size_t> LaunchTable::numbers(std::size_t region, std::size_t point, std::vector<std::int64_t>& out) const {
  const auto row = rows_.find(region);
  const std::int64_t which = row == rows_.end() ? -1 : value(row->second.which, point);
  if (which < 0) return std::nullopt;
  out.clear();
  for (const std::uint32_t c : row->second.forms[static_cast<std::size_t>(which)].numbers) out.push_back(value(c, point));
  return static_cast<std::size_t>(which);
}

std::int32_t LaunchTable::code(std::size_t region, std::size_t point) const {
  const auto row = rows_.find(region);
  const std::int64_t which = row == rows_.end() ? -1 : value(row->second.which, point);
  return which < 0 ? -1 : row->second.forms[static_cast<std::size_t>(which)].code;
}

nlohmann::json LaunchTable::to_json(std::vector<std::byte>& data) const {
  nlohmann::json columns = nlohmann::json::array(), rows = nlohmann::json::array();
  for (const auto& values : columns_) {
    if (values.size() == 1) {
      columns.push_back(values[0]);
      continue;
    }
    const bool narrow = std::all_of(values.begin(), values.end(), [](std::int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; });
    columns.push_back(narrow ? "s32" : "s64");
    for (const std::int64_t v : values) {
      const std::size_t at = data.size(), size = narrow ? 4 : 8;
      data.resize(at + size);
      std::memcpy(data.data() + at, &v, size);  // little-endian, as all of the file
    }
  }
  for (const auto& [region, row] : rows_) {
    nlohmann::json forms = nlohmann::json::array();
    for (const Form& f : row.forms) forms.push_back({f.text, f.code, f.numbers});
    rows.push_back({region, row.which, std::move(forms)});
  }
  return {{"least", least_}, {"most", most_}, {"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

Result<LaunchTable> LaunchTable::from_json(const nlohmann::json& j, std::span<const std::byte> data, std::size_t dimensions,
                                           std::size_t codes) {
  const auto bad = [](const std::string& what) {
    return fail(ErrorKind::bad_engine, fmt::format("the launches of a range cannot be read: {}", what));
  };
  try {
    const auto least = j.at("least").get<plan::Point>(), most = j.at("most").get<plan::Point>();
    std::int64_t points = 1;
    bool sound = least.size() == dimensions && most.size() == dimensions;
    for (std::size_t k = 0; sound && k < dimensions; ++k) {
      sound = least[k] >= 0 && most[k] >= least[k] && most[k] - least[k] < static_cast<std::int64_t>(kMostPoints);
      if (sound) points *= most[k] - least[k] + 1;
      sound = sound && points <= static_cast<std::int64_t>(kMostPoints);
    }
    if (!sound) return bad("the points that they are for");
    LaunchTable out(least, most);
    if (j.at("columns").size() > kMostColumns) return bad(fmt::format("{} columns", j.at("columns").size()));
    for (const nlohmann::json& c : j.at("columns")) {
      std::vector<std::int64_t>& values = out.columns_.emplace_back();
      if (c.is_number_integer()) {
        values.push_back(c.get<std::int64_t>());
        continue;
      }
      const auto type = c.get<std::string>();
      if (type != "s32" && type != "s64") return bad(fmt::format("a column of \"{}\"", type));
      const std::size_t size = type == "s32" ? 4 : 8, bytes = size * out.points_;
      if (data.size() < bytes) return bad("a column is cut off");
      for (std::size_t p = 0; p < out.points_; ++p) {
        std::int32_t narrow = 0;
        std::int64_t wide = 0;
        std::memcpy(size == 4 ? static_cast<void*>(&narrow) : &wide, data.data() + p * size, size);
        values.push_back(size == 4 ? narrow : wide);
      }
      data = data.subspan(bytes);
    }
    if (!data.empty()) return bad(fmt::format("{} bytes behind its columns", data.size()));
    const auto is_column = [&](std::uint32_t c) { return c < out.columns_.size(); };
    for (const nlohmann::json& r : j.at("rows")) {
      Row row;
      row.which = r.at(1).get<std::uint32_t>();
      for (const nlohmann::json& f : r.at(2)) {
        Form& form = row.forms.emplace_back();
        form.text = f.at(0).get<std::string>(), form.code = f.at(1).get<std::int32_t>();
        form.numbers = f.at(2).get<std::vector<std::uint32_t>>();
        const auto marks = std::count(form.text.begin(), form.text.end(), kMark);
        if (static_cast<std::size_t>(marks) != form.numbers.size() ||
            !std::all_of(form.numbers.begin(), form.numbers.end(), is_column))
          return bad("a launch whose numbers are not there");
        if (form.code < -1 || form.code >= static_cast<std::int64_t>(codes))
          return bad(fmt::format("machine code {} of {}", form.code, codes));
      }
      if (!is_column(row.which)) return bad("a region without a column");
      for (const std::int64_t which : out.columns_[row.which]) {
        if (which < -1 || which >= static_cast<std::int64_t>(row.forms.size()))
          return bad(fmt::format("launch {} of a region", which));
      }
      if (!out.rows_.emplace(r.at(0).get<std::size_t>(), std::move(row)).second) return bad("a region twice");
    }
    return out;
  } catch (const nlohmann::json::exception& e) {
    return bad(e.what());
  }
}

}  // namespace octavo::api
