#include "python/run.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <set>

#include "python/arrays.h"
#include "python/gpu_arrays.h"
#include "python/run_on_gpu.h"
#include "python/watch.h"

namespace octavo::python {
namespace {

/// Every name is an output's.
void check_places(const nb::dict& places, const std::vector<TensorInfo>& results) {
  for (const auto& [key, value] : places) {
    const std::string name = nb::cast<std::string>(nb::str(key));
    if (std::none_of(results.begin(), results.end(), [&](const TensorInfo& r) { return r.name == name; }))
      bad_input("run: an array is given for output \"" + name + "\", and the model has none of that name");
  }
}

/// What the engine writes overlaps nothing.
void check_apart(const std::vector<TensorInfo>& inputs, const std::vector<Held>& held, const std::vector<TensorInfo>& results,
                 const std::vector<Lent>& lent) {
  const auto check = [](const Py_buffer& a, const std::string& name, const Py_buffer& b, const std::string& other) {
    const auto* a0 = static_cast<const char*>(a.buf);
    const auto* b0 = static_cast<const char*>(b.buf);
    if (a.len > 0 && b.len > 0 && a0 < b0 + b.len && b0 < a0 + a.len)
      bad_input("run: the array given for output \"" + name + "\" overlaps that of " + other);
  };
  for (std::size_t i = 0; i < lent.size(); ++i) {
    if (!lent[i].have) continue;
    for (std::size_t k = 0; k < held.size(); ++k)
      check(lent[i].buffer, results[i].name, held[k].buffer, "input \"" + inputs[k].name + "\"");
    for (std::size_t k = 0; k < i; ++k) {
      if (lent[k].have) check(lent[i].buffer, results[i].name, lent[k].buffer, "output \"" + results[k].name + "\"");
    }
  }
}

}  // namespace

nb::dict run(const Engine& engine, const nb::object& inputs, const nb::object& outputs, const nb::object& stream) {
  const nb::object numpy = nb::module_::import_("numpy");
  const std::vector<TensorInfo> wanted = engine.inputs();
  const nb::dict given = by_name(inputs, wanted);
  if (engine.device() == "cuda") {
    bool gpu = !outputs.is_none();
    for (const auto& [name, value] : given) gpu = gpu || on_gpu(value);
    if (gpu) return run_on_gpu(engine, given, outputs, stream);
  }
  std::set<std::string> names;
  for (const TensorInfo& w : wanted) names.insert(w.name);
  refuse_unknown("run", names, given);
  std::vector<Held> held(wanted.size());
  std::map<std::string, Shape> shapes;
  std::map<std::string, ConstView> values;
  std::vector<const void*> in;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const TensorInfo& w = wanted[i];
    if (!given.contains(w.name.c_str())) {
      bad_input("run: input \"" + w.name + "\" is missing; it wants " + numpy_name(w.dtype) + " " + shape_text(w.shape));
    }
    Held& h = held[i];
    h.take(numpy, w.name, given[w.name.c_str()]);
    const bool bits = w.dtype == DType::bf16 && h.view.dtype == DType::u16;  // bfloat16 without ml_dtypes
    if (h.view.dtype != w.dtype && !bits) {
      bad_input("run: input \"" + w.name + "\" is " + numpy_name(h.view.dtype) + ", the model wants " + numpy_name(w.dtype) +
                "; convert it with .astype(\"" + numpy_name(w.dtype) + "\")");
    }
    if (!engine.open() && h.view.shape != w.shape) {
      bad_input("run: input \"" + w.name + "\" has shape " + shape_text(h.view.shape) + ", the engine was built for " +
                shape_text(w.shape));
    }
    if (engine.open()) {
      shapes[w.name] = h.view.shape;
      values[w.name] = {h.view.data, w.dtype, h.view.shape};
    }
    in.push_back(h.view.data);
  }
  std::optional<Engine> bound;
  bound = engine.open() ? Watch(nb::none()).over([&] { return engine.at(shapes, values); }) : engine;  // building takes seconds
  const std::vector<TensorInfo> results = bound->outputs();
  const nb::dict places = outputs.is_none() ? nb::dict() : by_name(outputs, results, "outputs");
  std::vector<Made> made(results.size());
  std::vector<Lent> lent(results.size());
  std::vector<void*> out;
  nb::dict answer;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const char* name = results[i].name.c_str();
    if (places.contains(name)) {
      lent[i].take(numpy, results[i], places[name]);
    } else {
      made[i].make(numpy, results[i]);
    }
    out.push_back(lent[i].have ? lent[i].buffer.buf : made[i].buffer.buf);
    answer[name] = lent[i].have ? lent[i].array : made[i].array;
  }
  check_places(places, results);
  check_apart(wanted, held, results, lent);
  std::vector<Shape> shapes_of_results;
  {
    const nb::gil_scoped_release release;
    bound->run(in, out, &shapes_of_results);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {  // as much as there is where data decide
    const Shape& shape = shapes_of_results[i];
    if (shape == results[i].shape) continue;
    const nb::object slice = nb::module_::import_("builtins").attr("slice");
    nb::list parts;
    for (const std::int64_t extent : shape) parts.append(slice(extent));
    const char* name = results[i].name.c_str();
    answer[name] = numpy.attr("ascontiguousarray")(nb::object(answer[name]).attr("__getitem__")(nb::tuple(parts)));
  }
  return answer;
}

nb::list nonfinite(const Engine& engine, const nb::object& inputs) {
  const nb::object numpy = nb::module_::import_("numpy");
  const std::vector<TensorInfo> wanted = engine.inputs();
  const nb::dict given = by_name(inputs, wanted);
  std::set<std::string> names;
  for (const TensorInfo& w : wanted) names.insert(w.name);
  refuse_unknown("nonfinite", names, given);
  std::vector<Held> held(wanted.size());
  std::map<std::string, Shape> shapes;
  std::map<std::string, ConstView> values;
  std::vector<const void*> in;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const TensorInfo& w = wanted[i];
    if (!given.contains(w.name.c_str())) bad_input("nonfinite: input \"" + w.name + "\" is missing");
    held[i].take(numpy, w.name, given[w.name.c_str()]);
    if (held[i].view.dtype != w.dtype || (!engine.open() && held[i].view.shape != w.shape))
      bad_input("nonfinite: input \"" + w.name + "\" is " + numpy_name(held[i].view.dtype) + " " + shape_text(held[i].view.shape) +
                ", the engine takes " + numpy_name(w.dtype) + " " + shape_text(w.shape));
    shapes[w.name] = held[i].view.shape;
    values[w.name] = {held[i].view.data, w.dtype, held[i].view.shape};
    in.push_back(held[i].view.data);
  }
  std::optional<Engine> bound;
  bound = engine.open() ? Watch(nb::none()).over([&] { return engine.at(shapes, values); }) : engine;
  const std::vector<TensorInfo> results = bound->outputs();
  std::vector<Made> made(results.size());
  std::vector<void*> out;
  for (std::size_t i = 0; i < results.size(); ++i) {
    made[i].make(numpy, results[i]);
    out.push_back(made[i].buffer.buf);
  }
  std::vector<NonFinite> found;
  {
    const nb::gil_scoped_release release;
    Context context(*bound);
    context.count_nonfinite();
    context.run(in, out);
    found = context.nonfinite();
  }
  nb::list answer;
  for (const NonFinite& t : found) {
    nb::dict d;
    d["tensor"] = t.tensor;
    d["nodes"] = nb::cast(t.nodes);
    d["nan"] = t.nan;
    d["infinite"] = t.infinite;
    d["elements"] = t.elements;
    answer.append(d);
  }
  return answer;
}

}  // namespace octavo::python
