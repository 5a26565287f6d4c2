// The options of octavo.build.
#include "python/options.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <set>

#include "python/arrays.h"

namespace octavo::python {

std::string path_of(const nb::object& path) {
  return nb::cast<std::string>(nb::module_::import_("os").attr("fsdecode")(path));
}

/// `options` as octavo/__init__.py has checked and completed them.
BuildOptions options_of(const nb::dict& options) {
  BuildOptions o;
  o.device = nb::cast<std::string>(options["device"]);
  o.cpu = nb::cast<std::string>(options["cpu"]);
  o.shapes = nb::cast<std::map<std::string, Shape>>(options["shapes"]);
  for (const auto& [name, p] : nb::cast<std::map<std::string, std::vector<Shape>>>(options["profiles"]))
    o.profiles[name] = {p.at(0), p.at(1), p.at(2)};
  o.threads = nb::cast<int>(options["threads"]);
  o.default_batch = nb::cast<std::int64_t>(options["default_batch"]);
  const nb::object numpy = nb::module_::import_("numpy");
  for (const auto& [name, array] : nb::cast<nb::dict>(options["values"])) {
    const std::string input = nb::cast<std::string>(nb::str(name));
    Held held;
    held.take(numpy, input, nb::borrow(array));
    octavo::Array& value = o.values[input];
    value.dtype = held.view.dtype, value.shape = held.view.shape;
    std::size_t bytes = octavo::size_of(value.dtype);
    for (const auto d : value.shape) bytes *= static_cast<std::size_t>(d);
    const auto* data = static_cast<const std::byte*>(held.view.data);
    value.bytes.assign(data, data + bytes);
  }
  o.most_engines = nb::cast<std::optional<int>>(options["most_engines"]);
  o.max_elements = nb::cast<std::map<std::string, std::int64_t>>(options["max_elements"]);
  o.reserve = nb::cast<bool>(options["reserve"]);
  o.late = nb::cast<std::string>(options["late"]);
  o.keep_model = nb::cast<bool>(options["keep_model"]);
  for (const auto& name : nb::cast<std::vector<std::string>>(options["disable"])) o.disabled.insert(name);
  o.effort = nb::cast<int>(options["effort"]);
  o.timing_cache = nb::cast<std::string>(options["timing_cache"]);
  o.strict_timing = nb::cast<bool>(options["strict_timing"]);
  const nb::object calibration = options["calibration"];
  if (nb::isinstance<nb::dict>(calibration)) {
    for (const auto& [tensor, ends] : nb::cast<std::map<std::string, std::vector<double>>>(calibration))
      o.ranges[tensor] = ends.size() == 1 ? symmetric_range(ends[0]) : range_between(ends.at(0), ends.at(1));
  } else if (!calibration.is_none()) {
    o.ranges = read_calibration(path_of(calibration));
  }
  o.qdq = nb::cast<std::string>(options["qdq"]);
  o.precisions = nb::cast<std::vector<std::pair<std::string, std::string>>>(options["precision"]);
  o.bindings = nb::cast<std::map<std::string, std::string>>(options["bindings"]);
  if (!options["allowed"].is_none()) o.allowed = nb::cast<std::set<std::string>>(options["allowed"]);
  if (!options["max_error"].is_none()) o.max_error = nb::cast<double>(options["max_error"]);
  return o;
}

}  // namespace octavo::python
