// Runs with arrays in a GPU's memory, and how a run's inputs are named.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "python/gpu_arrays.h"
#include "python/watch.h"

namespace octavo::python {

inline std::size_t bytes_of(const octavo::TensorInfo& t) {
  std::size_t bytes = octavo::python::bits_per_element(t.dtype) / 8;
  for (const auto d : t.shape) bytes *= static_cast<std::size_t>(d);
  return bytes;
}

/// Inputs by name: a mapping; a list or tuple in the order of the model's inputs; or the array of the only one.
inline nb::dict by_name(const nb::object& inputs, const std::vector<octavo::TensorInfo>& wanted, const char* what = "inputs") {
  if (nb::hasattr(inputs, "keys")) return nb::cast<nb::dict>(nb::module_::import_("builtins").attr("dict")(inputs));
  const bool several = nb::isinstance<nb::list>(inputs) || nb::isinstance<nb::tuple>(inputs);
  const std::size_t count = several ? nb::len(inputs) : 1;
  const bool array = nb::hasattr(inputs, "__array__") || nb::hasattr(inputs, "__dlpack__") ||
                     nb::hasattr(inputs, "__array_interface__") || nb::hasattr(inputs, "__cuda_array_interface__");
  if (!several && !array) {
    bad_input("run: " + std::string(what) + " are {name: array}, a list of arrays in the model's order, or one array; this is a " +
              nb::cast<std::string>(inputs.type().attr("__name__")));
  }
  if (count != wanted.size()) {
    std::string names;
    for (const auto& w : wanted) names += (names.empty() ? "\"" : "\", \"") + w.name;
    bad_input("run: " + std::to_string(count) + (count == 1 ? " array" : " arrays") + " given, the model has " +
              std::to_string(wanted.size()) +
              (" " + std::string(what).substr(0, std::string(what).size() - (wanted.size() == 1 ? 1 : 0)) + ": ") + names + "\"");
  }
  nb::dict given;
  for (std::size_t i = 0; i < count; ++i) given[wanted[i].name.c_str()] = several ? nb::object(inputs[i]) : inputs;
  return given;
}

/// Arrays are used where they are, in the GPU's memory or the host's; results are the arrays in `outputs`, or new ones on the GPU.
inline nb::dict run_on_gpu(const octavo::Engine& engine, const nb::dict& given, const nb::object& outputs,
                           const nb::object& stream) {
  std::map<std::string, octavo::Shape> shapes;
  std::map<std::string, octavo::ConstView> values;
  const std::vector<octavo::TensorInfo> wanted = engine.inputs();
  std::vector<LentGpu> lent(wanted.size());
  std::vector<octavo::Memory> in;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::string what = "input \"" + wanted[i].name + "\"";
    if (!given.contains(wanted[i].name.c_str())) bad_input("run: " + what + " is missing");
    lent[i].take(what, given[wanted[i].name.c_str()]);
    lent[i].check(what, wanted[i], engine.open());
    shapes[wanted[i].name] = lent[i].shape;
    if (!lent[i].memory.on_gpu) values[wanted[i].name] = {lent[i].memory.data, wanted[i].dtype, lent[i].shape};
    in.push_back(lent[i].memory);
  }
  if (given.size() != wanted.size())
    bad_input("run: " + std::to_string(given.size()) + " inputs given, the model has " + std::to_string(wanted.size()));
  std::optional<octavo::Engine> bound;
  bound = engine.open() ? Watch(nb::none()).over([&] { return engine.at(shapes, values); }) : engine;
  const std::vector<octavo::TensorInfo> results = bound->outputs();
  const nb::dict places = outputs.is_none() ? nb::dict() : by_name(outputs, results);
  std::vector<LentGpu> kept(results.size());
  std::vector<octavo::Memory> out;
  nb::dict answer;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string what = "output \"" + results[i].name + "\"";
    const char* name = results[i].name.c_str();
    const bool lends = places.contains(name);
    answer[name] = lends ? nb::object(places[name]) : new_on_gpu(results[i], bound->gpu_memory(bytes_of(results[i])));
    if (lends) {
      kept[i].take(what, answer[name]);
      kept[i].check(what, results[i], false);
      out.push_back(kept[i].memory);
    } else {
      out.push_back({nb::cast<nb::ndarray<>>(answer[name]).data(), true});
    }
  }
  constexpr std::uintptr_t kLegacyStream = 1;  // CU_STREAM_LEGACY: what other libraries have put there comes first
  const std::uintptr_t given_stream = stream.is_none() ? 0 : nb::cast<std::uintptr_t>(stream);
  {
    const nb::gil_scoped_release release;
    bound->run(in, out, reinterpret_cast<void*>(given_stream == 0 ? kLegacyStream : given_stream));
  }
  return answer;
}

}  // namespace octavo::python
