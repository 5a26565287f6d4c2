// The compiled part of the Python package: Engine, load, build. Argument handling that is easier in Python is in
// octavo/__init__.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <span>

#include "api/convert.h"
#include "api/description.h"
#include "base/write_file.h"
#include "engine/signature.h"
#include "octavo/octavo.h"
#include "python/arrays.h"
#include "python/describe.h"
#include "python/options.h"
#include "python/run.h"
#include "python/text.h"
#include "python/watch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace octavo::python;
using octavo::Engine;
using octavo::Exception;

/// Ranges in a dict are written by hand.
octavo::BuildOptions build_options_of(const nb::dict& given) {
  octavo::BuildOptions options = options_of(given);
  options.ranges_by_hand = nb::isinstance<nb::dict>(given["calibration"]);
  return options;
}

Engine build_file(const std::string& path, const nb::dict& given) {
  const octavo::BuildOptions options = build_options_of(given);
  return Watch(given["progress"]).over([&] { return Engine::build(path, options); });
}

Engine build_bytes(const nb::bytes& model, const nb::dict& given, const std::string& folder) {
  const octavo::BuildOptions options = build_options_of(given);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(model.c_str()), model.size());
  return Watch(given["progress"]).over([&] { return Engine::build(bytes, options, folder); });
}

/// `run` with what a dict of arrays holds, which lives meanwhile.
template <class Run>
Engine with_values(const nb::object& values, const Run& run) {
  const nb::object numpy = nb::module_::import_("numpy");
  std::map<std::string, octavo::ConstView> views;
  const nb::dict given = values.is_none() ? nb::dict() : nb::cast<nb::dict>(nb::module_::import_("builtins").attr("dict")(values));
  std::vector<Held> held(given.size());
  std::size_t i = 0;
  for (const auto& [key, array] : given) {
    const std::string name = nb::cast<std::string>(nb::str(key));
    held[i].take(numpy, name, nb::borrow(array));
    views[name] = held[i++].view;
  }
  return Watch(nb::none()).over([&] { return run(views); });
}

nb::dict model_info(const nb::bytes& model) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(model.c_str()), model.size());
  const octavo::onnx::Parsed parsed = octavo::api::take(octavo::onnx::Parsed::bytes(bytes, ""));
  return describe(octavo::api::described(octavo::onnx::description_of(parsed)).info);
}

nb::list doctor_file(const std::string& path, const std::string& calibration, const std::string& minmax) {
  std::vector<octavo::Finding> found;
  {
    const nb::gil_scoped_release release;
    found = octavo::doctor(path, {calibration, minmax});
  }
  return findings(found);
}

nb::list doctor_bytes(const nb::bytes& model, const std::string& calibration, const std::string& minmax) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(model.c_str()), model.size());
  std::vector<octavo::Finding> found;
  {
    const nb::gil_scoped_release release;
    found = octavo::doctor(bytes, {calibration, minmax});
  }
  return findings(found);
}

/// A key as octavo.load takes it: a path, or PEM as str or bytes. An empty one is a mistake, such as a variable of the environment that is not set.
std::string key_of(const char* name, const nb::object& key) {
  if (key.is_none()) return {};
  std::string text;
  if (nb::isinstance<nb::bytes>(key)) {
    const nb::bytes pem = nb::cast<nb::bytes>(key);
    text.assign(pem.c_str(), pem.size());
  } else {
    text = path_of(key);
  }
  if (text.empty())
    throw Exception(
        Exception::Kind::usage,
        std::string(name) + "=\"\": the key is empty\n  give a key (PEM, or the path of a PEM file), or None for no key");
  return text;
}

/// The key is tried before anything is written.
void save_signed(const Engine& e, const std::string& path, const std::string& key) {
  using octavo::api::take;
  const std::string pem = take(octavo::engine::read_key(key));
  (void)take(octavo::engine::sign({}, pem));
  std::vector<std::byte> file = e.bytes();
  const std::string signature = take(octavo::engine::sign(file, pem));
  std::ranges::copy(std::as_bytes(std::span(signature)), std::back_inserter(file));
  take(octavo::write_file(path, std::span<const std::byte>(file), "engine"));
}

Engine load(const nb::object& path, std::optional<int> threads, const nb::object& verify, const std::string& code, bool upgrade,
            bool reserve) {
  if (threads && (*threads < 1 || *threads > 1024))  // as --threads, and as build
    throw Exception(Exception::Kind::usage,
                    "threads=" + std::to_string(*threads) + ": give a whole number from 1 to 1024, or None for every core");
  if (code != "file" && code != "rebuild")
    throw Exception(Exception::Kind::usage, "code=\"" + code + "\": known are \"file\" and \"rebuild\"");
  octavo::LoadOptions options;
  options.threads = threads.value_or(0);
  options.verify = key_of("verify", verify);
  options.rebuild_code = code == "rebuild";
  options.upgrade = upgrade;
  options.reserve = reserve;
  options.warn = [](const std::string& sentence) {  // before the build, which may take long; raises where warnings are errors
    const nb::gil_scoped_acquire acquire;
    if (PyErr_WarnEx(PyExc_UserWarning, sentence.c_str(), 1) != 0) throw nb::python_error();
  };
  if (nb::isinstance<nb::bytes>(path) || PyByteArray_Check(path.ptr()) || PyMemoryView_Check(path.ptr())) {
    const nb::bytes data = nb::bytes(path);
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data.c_str()), data.size());
    const nb::gil_scoped_release release;
    return Engine::load(bytes, options);
  }
  const std::string name = path_of(path);
  const nb::gil_scoped_release release;
  return Engine::load(name, options);
}

constexpr const char* kLoadDoc =
    "Loads an engine from a file that Engine.save wrote (a path; the file is mapped, not read) or from its bytes. The whole file "
    "is checked.\n\n"
    "An engine file for a GPU is a program: it holds machine code, which the GPU runs with the rights of this process. Load such "
    "files from others\n"
    "only with verify or code=\"rebuild\". A file for the CPU holds no code (docs/hostile.md).\n\n"
    "threads: threads to run with; None: the number that it was built for, at most the cores of this machine.\n"
    "verify: a public Ed25519 key, as PEM (str or bytes) or the path of a PEM file: the whole file must be signed with its private "
    "half, as\n"
    "    by `octavo build --sign KEY`. The file is then read into memory.\n"
    "code: \"file\": the machine code in the file runs. \"rebuild\": neither it nor its launches are used; NVRTC compiles the GPU "
    "kernels of the\n"
    "    plan again, once for each user and machine.\n"
    "upgrade: a file of an earlier version is built again from its model, with a UserWarning; False: it raises EngineFileError.\n"
    "reserve: of a file for a range of shapes on the CPU: takes the memory that a run of the largest shapes needs now, up to 1 GB. "
    "False: memory grows with the shapes.\n"
    "Raises FileError; EngineFileError (damaged, foreign, of a later version, not signed by the key); UnsupportedError (the "
    "processor lacks\n"
    "instructions); the errors of build if a file is built again.";

}  // namespace

NB_MODULE(_octavo, m) {
  m.doc() = "The compiled part of octavo.";
  m.attr("__version__") = nb::str(octavo::version().data(), octavo::version().size());
  m.attr("SCHEMA") = octavo::kLayerSchema;
  nb::set_leak_warnings(false);  // interpreters that exit while engines live in globals are not a leak worth a message

  // The tuple of exception classes lives as long as the process: exceptions may be translated while the interpreter shuts down.
  nb::object errors = nb::module_::import_("octavo._errors").attr("BY_KIND");
  nb::register_exception_translator(
      [](const std::exception_ptr& p, void* classes) {
        try {
          std::rethrow_exception(p);
        } catch (const Exception& e) {
          const nb::str what = text_of(e.what());  // PyErr_SetString would raise UnicodeDecodeError for other bytes
          PyErr_SetObject(PyTuple_GetItem(static_cast<PyObject*>(classes), static_cast<Py_ssize_t>(e.kind())), what.ptr());
        }
      },
      errors.release().ptr());

  nb::class_<Engine>(
      m, "Engine", nb::dynamic_attr(),
      "A compiled model. Immutable: any number of Python threads may run it at once.\n\nMake one with octavo.build or octavo.load.")
      .def("run", &run, "inputs"_a, nb::kw_only(), "outputs"_a = nb::none(), "stream"_a = nb::none(),
           "Runs the model: {input name: array} -> {output name: numpy.ndarray}.\n\n"
           "inputs    {name: array}, a list of arrays in the model's order, or the array of the only input: every input of the "
           "model, as anything numpy.asarray or numpy.from_dlpack takes. C-contiguous arrays of the "
           "right dtype are used "
           "in place; others\n"
           "          are copied first. dtypes are never converted.\n"
           "returns   new arrays, which the engine wrote directly.\n"
           "shapes    must be those the engine was built for. If the model left dimensions open, the arrays bind them, and a new "
           "set of shapes is\n"
           "          built first (seconds, once). So it is with values of inputs that decide shapes (a Slice's starts, TopK's k, "
           "...).\n"
           "outputs   {name: array} for some or all outputs: C-contiguous, writable arrays of the right shape and dtype that "
           "overlap nothing\n"
           "          else; the engine writes there, without a copy.\n"
           "GPU       with device=\"cuda\", arrays in the GPU's memory (DLPack or __cuda_array_interface__: PyTorch, CuPy, JAX) "
           "are read "
           "there\n"
           "          without a copy, and results are new arrays in its memory (torch.from_dlpack(result) makes a tensor of one), "
           "or\n"
           "          those given as outputs={name: array}, written in place. stream: a CUDA stream as an integer\n"
           "          (PyTorch: current_stream().cuda_stream) behind whose work the run begins; default: the legacy default "
           "stream.\n"
           "          The run is done on return.\n"
           "threads   the GIL is released; concurrent calls each use their own buffers. Inputs must not change meanwhile.\n"
           "Raises InputError, naming the input, with both shapes or dtypes.")
      .def("nonfinite", &nonfinite, "inputs"_a,
           "Runs once and returns the tensors that hold NaN or infinities, inputs first, then in the order in which layers compute "
           "them:\n"
           "[{\"tensor\": ONNX name, \"nodes\": ONNX nodes of the layer, \"nan\": count, \"infinite\": count, \"elements\": "
           "size}]; empty if all numbers\n"
           "are finite. The first is where they come from. inputs as for run, in the memory of the host. Slower than run: it makes "
           "a context.\n"
           "Raises InputError.")
      .def(
          "at",
          [](const Engine& e, const std::map<std::string, octavo::Shape>& shapes, const nb::object& values) {
            return with_values(values, [&](const auto& views) { return e.at(shapes, views); });
          },
          "shapes"_a, "values"_a = nb::none(),
          "The engine for these input shapes, {name: shape}, and values of inputs that decide shapes, {name: array}; builds it "
          "when it is "
          "new. Raises InputError, and what build raises.")
      .def("_tune",
           [](const Engine& e, const std::map<std::string, octavo::Shape>& shapes, const nb::object& values) {
             return with_values(values, [&](const auto& views) { return e.tune(shapes, views); });
           })
      .def(
          "save",
          [](const Engine& e, const nb::object& path, const nb::object& sign) {
            const std::string name = path_of(path), key = key_of("sign", sign);
            const nb::gil_scoped_release release;
            if (key.empty()) return e.save(name);
            save_signed(e, name, key);
          },
          "path"_a, nb::kw_only(), "sign"_a = nb::none(),
          "Writes the engine to a file; equal inputs give equal bytes. An existing file is replaced whole or not at all. An open "
          "engine with profiles\n"
          "writes the plans that were tuned: loaded, it runs for every shape of its range. Other open engines write all that they "
          "keep by now: loaded,\n"
          "they run for these shapes and values. Equal weights are written once.\n"
          "sign: a private Ed25519 key, as PEM (str or bytes) or the path of a PEM file, as `octavo build --sign KEY`: "
          "octavo.load(path, verify=) "
          "accepts the file with the public half alone.\n"
          "Raises FileError; UsageError while an open engine has built none, and for what is no private key.")
      .def_static("load", &load, "path"_a, "threads"_a = nb::none(), nb::kw_only(), "verify"_a = nb::none(), "code"_a = "file",
                  "upgrade"_a = true, "reserve"_a = true, kLoadDoc)
      .def_prop_ro("open", &Engine::open,
                   "True while input dimensions, or values that decide shapes, are bound only by the arrays of a run.")
      .def_prop_ro(
          "inputs", [](const Engine& e) { return describe_bindings(e.inputs()); },
          "List of dicts: name, dtype (NumPy's name), shape (None where open), symbols (the model's name of each dimension, or "
          "None), scale, zero_point, axis when the elements are "
          "codes, and "
          "format: \"uint8:hwc\" of a bound one; \"=3,1\" where shapes depend on the elements, and the engine was built for these.")
      .def_prop_ro(
          "outputs", [](const Engine& e) { return describe_bindings(e.outputs()); },
          "As inputs; while dimensions are open, as the model file declares them.")
      .def_prop_ro(
          "layers", &layers,
          "The plan, one dict a layer in order of execution: name, kind, onnx_nodes, inputs and outputs (name, dtype, "
          "shape, scale, zero_point,\n"
          "axis), tactic, precision, reason, reasons, alternatives (tactic, reason, reasons, seconds, estimate), seconds and "
          "seconds_source (\"measured\", \"estimated\" or None)\n"
          "of its tactic, and other_types (type, node, seconds, seconds_source): what the planner's decision about the type "
          "counted with for the "
          "types that it did not take.\n"
          "It is empty where no other type was priced: at effort 0 and 1 (bfloat16 on a GPU apart), for layers that Q/DQ pairs "
          "make int8, "
          "and for float16, which is taken where it is allowed. docs/schema.md describes them; octavo.SCHEMA is the version.")
      .def_prop_ro("plan_hash", &Engine::plan_hash,
                   "32 hexadecimal digits over everything that runs; not over names, reasons or times.")
      .def_prop_ro("threads", &Engine::threads, "Threads a run uses.")
      .def_prop_ro("device", &Engine::device, "\"cpu\", \"cuda\" or \"reference\".")
      .def_prop_ro("built_by", &Engine::built_by, "The version of octavo that built the engine.")
      .def_prop_ro("notes", &Engine::notes,
                   "What `octavo build` stored beside the plan, {str: str}: \"preprocess\" is how pictures become inputs, as JSON.")
      .def_prop_ro(
          "model", [](const Engine& e) { return describe(e.model()); },
          "What the model file says of itself, a dict: producer_name, graph_name, domain, description, graph_description, version, "
          "and\n"
          "metadata, {str: str}. Engine files keep it.")
      .def_prop_ro(
          "memory",
          [](const Engine& e) {
            octavo::MemoryUse use;
            {
              const nb::gil_scoped_release release;
              use = e.memory();
            }
            nb::dict out;
            out["constants"] = use.constants, out["working"] = use.working, out["held"] = use.held, out["scratch"] = use.scratch;
            out["working_most"] = use.working_most == 0 ? nb::object(nb::none()) : nb::cast(use.working_most);
            return out;
          },
          "Bytes of the host's memory, a dict: constants (weights and tables), working (working memory of one run; of an open "
          "engine for the largest "
          "shapes that it has run),\n"
          "working_most (for the largest shapes of its range; None where that is not known), held (working memory that is kept "
          "for runs now).")
      .def_prop_ro("_builds", &Engine::builds)
      .def("_with_engines",
           [](const Engine& e, const nb::bytes& engines) {
             const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(engines.c_str()), engines.size());
             const nb::gil_scoped_release release;
             return e.with_engines(bytes);
           })
      .def("_model_bytes",
           [](const Engine& e) {
             const auto bytes = e.model_bytes();
             return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
           })
      .def("explain", &Engine::explain, "json"_a = false, "The plan as `octavo explain` prints it: a line a layer, or JSON.")
      .def(
          "tobytes",
          [](const Engine& e) {
            std::vector<std::byte> bytes;
            {
              const nb::gil_scoped_release release;
              bytes = e.bytes();
            }
            return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          },
          "What save writes, as bytes: octavo.load takes them.")
      .def(
          "close", &Engine::trim,
          "Gives back the memory and threads that runs keep for the next one. The engine stays usable. `with` calls it at its end.")
      .def("__enter__", [](nb::object self) { return self; })
      .def(
          "__exit__", [](const Engine& e, const nb::object&, const nb::object&, const nb::object&) { e.trim(); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none())
      .def("__reduce__",
           [](nb::object self) {  // pickled as the engine's bytes, or as the open model that it can build for other shapes
             const int threads = nb::cast<const Engine&>(self).threads();
             if (nb::hasattr(self, "_source")) return nb::cast<nb::tuple>(nb::module_::import_("octavo").attr("_reduced")(self));
             return nb::make_tuple(nb::module_::import_("octavo").attr("_unpickled"),
                                   nb::make_tuple(self.attr("tobytes")(), threads));
           })
      .def("_repr_html_", [](nb::object self) { return nb::module_::import_("octavo._html").attr("table")(self); })
      .def("__repr__", [](const Engine& e) {
        std::string text = "<octavo.Engine on " + e.device() + ":";
        for (const octavo::TensorInfo& t : e.inputs()) text += " " + t.name + " " + numpy_name(t.dtype) + shape_text(t.shape);
        return text + (e.open() ? ", shapes open>" : ", plan " + e.plan_hash().substr(0, 8) + ">");
      });

  m.def("load", &load, "path"_a, "threads"_a = nb::none(), nb::kw_only(), "verify"_a = nb::none(), "code"_a = "file",
        "upgrade"_a = true, "reserve"_a = true, kLoadDoc);
  m.def("_build_file", &build_file);
  m.def("_build_bytes", &build_bytes, "model"_a, "options"_a, "folder"_a = "");
  m.def("_model_info", &model_info);
  m.def("_doctor_file", &doctor_file);
  m.def("_doctor_bytes", &doctor_bytes);
  add_tools(m);
  add_quantize(m);
}
