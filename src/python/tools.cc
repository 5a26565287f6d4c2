// What the command can do beside building and running, for Python: check, bench, profile, preprocess, and the command itself.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "api/build_options.h"
#include "api/check.h"
#include "api/convert.h"
#include "api/session.h"
#include "base/nearest.h"
#include "cli/commands/commands.h"
#include "cli/file.h"
#include "cli/inputs/image.h"
#include "cli/inputs/recipe.h"
#include "cli/outputs/view_page.h"
#include "python/arrays.h"
#include "python/options.h"
#include "python/watch.h"

namespace octavo::python {
namespace {

using api::take;

/// Arrays of the engine's inputs, held while they are used.
struct Inputs {
  std::vector<Held> held;
  std::vector<const void*> in;

  Inputs(const Engine& engine, const nb::dict& given) : held(engine.inputs().size()) {
    const nb::object numpy = nb::module_::import_("numpy");
    const auto wanted = engine.inputs();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      held[i].take(numpy, wanted[i].name, given[wanted[i].name.c_str()]);
      if (held[i].view.dtype != wanted[i].dtype || held[i].view.shape != wanted[i].shape)
        bad_input("input \"" + wanted[i].name + "\" must be " + numpy_name(wanted[i].dtype) + shape_text(wanted[i].shape));
      in.push_back(held[i].view.data);
    }
  }
};

/// Room for the outputs of a run, 64-byte aligned.
struct Outputs {
  std::vector<std::vector<std::byte>> memory;
  std::vector<void*> out;

  explicit Outputs(const Engine& engine) {
    for (const TensorInfo& t : engine.outputs()) {
      std::size_t bytes = size_of(t.dtype);
      for (const auto d : t.shape) bytes *= static_cast<std::size_t>(d);
      memory.emplace_back(bytes + 64);
      void* at = memory.back().data();
      std::size_t room = bytes + 64;
      out.push_back(std::align(64, bytes, at, room));
    }
  }
};

nb::dict bench(const Engine& engine, const nb::dict& given, double seconds, int threads) {
  using Clock = std::chrono::steady_clock;
  const Inputs inputs(engine, given);
  const Outputs outputs(engine);
  Watch watch{nb::none()};
  std::vector<double> times;
  double total = 0;
  int used = 0;
  {
    const nb::gil_scoped_release release;
    Context context(engine, threads);
    used = context.threads();
    const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
    auto asked = Clock::now();
    const auto warm = Clock::now();
    do context.run(inputs.in, outputs.out);
    while (since(warm) < seconds / 10);
    const auto start = Clock::now();
    while (times.size() < 10 || since(start) < seconds) {
      const auto one = Clock::now();
      context.run(inputs.in, outputs.out);
      times.push_back(since(one));
      if (since(asked) < 0.05) continue;
      watch.check();
      asked = Clock::now();
    }
    total = since(start);
    std::sort(times.begin(), times.end());
  }
  const auto quantile = [&](double q) {
    return times[std::min(times.size() - 1, static_cast<std::size_t>(q * static_cast<double>(times.size())))];
  };
  double sum = 0;
  for (const double t : times) sum += t;
  const auto first = engine.inputs();
  const double batch = first.empty() || first[0].shape.empty() ? 1 : static_cast<double>(first[0].shape[0]);
  nb::dict d;
  d["threads"] = used;
  d["runs"] = times.size();
  d["median_ms"] = quantile(0.5) * 1e3;
  d["p99_ms"] = quantile(0.99) * 1e3;
  d["mean_ms"] = sum / static_cast<double>(times.size()) * 1e3;
  d["min_ms"] = times.front() * 1e3;
  d["images_per_second"] = batch * static_cast<double>(times.size()) / total;
  return d;
}

nb::dict profile(const Engine& engine, const nb::dict& given, int runs, int threads) {
  const Inputs inputs(engine, given);
  const Outputs outputs(engine);
  RunTimes times;
  {
    const nb::gil_scoped_release release;
    times = Context(engine, threads).profile(inputs.in, outputs.out, runs);
  }
  nb::dict d;
  d["median_ms"] = times.median * 1e3;
  d["min_ms"] = times.least * 1e3;
  nb::list layers;
  for (const double t : times.layers) layers.append(t * 1e3);
  d["layers_ms"] = layers;
  return d;
}

nb::dict describe(const api::CheckReport& report) {
  nb::dict d;
  d["ok"] = report.ok();
  d["complete"] = report.complete();
  d["first_divergence"] = report.ok() ? nb::none() : nb::object(nb::str(report.first_divergence().c_str()));
  nb::list regions;
  for (const api::RegionCheck& r : report.regions) {
    nb::dict one;
    one["name"] = r.name;
    one["tactic"] = r.tactic;
    one["elements"] = r.elements;
    one["different"] = r.different;
    one["off_by_one"] = r.off_by_one;
    one["allowed"] = r.allowed;
    one["worst"] = r.worst;
    one["skipped"] = r.skipped.empty() ? nb::none() : nb::object(nb::str(r.skipped.c_str()));
    one["ok"] = r.ok();
    regions.append(one);
  }
  d["regions"] = regions;
  return d;
}

/// `model`: a path or bytes. `given`: arrays by input name, or None for random ones from `seed`.
nb::dict check(const nb::object& model, const nb::dict& given_options, const nb::object& given, std::uint64_t seed,
               bool from_model) {
  const BuildOptions options = options_of(given_options);
  const bool is_bytes = nb::isinstance<nb::bytes>(model);
  const std::string path = is_bytes ? "" : path_of(model);
  api::PipelineOptions pipeline = api::pipeline_of(options, path);
  if (pipeline.import.default_batch == 0) pipeline.import.default_batch = 1;
  const std::span<const std::byte> bytes =
      is_bytes
          ? std::span(reinterpret_cast<const std::byte*>(nb::cast<nb::bytes>(model).c_str()), nb::cast<nb::bytes>(model).size())
          : std::span<const std::byte>();
  Watch watch(given_options["progress"]);
  const api::Built built =
      watch.over([&] { return take(is_bytes ? api::build_bytes(bytes, pipeline) : api::build_file(path, pipeline)); });
  const region::Plan& plan = built.engine->plan();
  std::vector<ir::Tensor> inputs = api::random_inputs(plan, seed);
  if (!given.is_none()) {
    const nb::object numpy = nb::module_::import_("numpy");
    const nb::dict arrays = nb::cast<nb::dict>(given);
    std::set<std::string> names;
    for (const region::Binding& input : plan.inputs) names.insert(input.name);
    refuse_unknown("check", names, arrays);
    for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
      const std::string& name = plan.inputs[i].name;
      if (!arrays.contains(name.c_str())) bad_input("check: input \"" + name + "\" is missing");
      Held held;
      held.take(numpy, name, arrays[name.c_str()]);
      if (held.view.dtype != api::to_public(inputs[i].dtype()) || held.view.shape != inputs[i].shape())
        bad_input("check: input \"" + name + "\" must be " + numpy_name(api::to_public(inputs[i].dtype())) +
                  shape_text(inputs[i].shape()));
      std::memcpy(inputs[i].mutable_bytes().data(), held.view.data, inputs[i].bytes().size());
    }
  }
  api::CheckOptions judged;
  judged.threads = options.threads;
  if (from_model) judged.model = &built.model.graph;
  return describe(watch.over([&] { return take(api::check(built.engine, built.graph, inputs, judged)); }));
}

/// The document of a model (path or bytes), with times of `runs` runs if there are any.
std::string view_document(const nb::object& model, const nb::dict& given_options, int runs) {
  const BuildOptions options = options_of(given_options);
  const bool is_bytes = nb::isinstance<nb::bytes>(model);
  const std::string path = is_bytes ? "" : path_of(model);
  api::PipelineOptions pipeline = api::pipeline_of(options, path);
  if (pipeline.import.default_batch == 0) pipeline.import.default_batch = 1;
  std::span<const std::byte> bytes;
  if (is_bytes) {
    const auto held = nb::cast<nb::bytes>(model);
    bytes = std::span(reinterpret_cast<const std::byte*>(held.c_str()), held.size());
  }
  Watch watch(given_options["progress"]);
  return watch.over([&] {
    const auto session = take(is_bytes ? api::Session::of(bytes, "", "the model") : api::Session::open(path));
    onnx::LateValues none;
    const api::Built built = take(session->build(pipeline, none));
    const onnx::GraphNodes nodes = session->nodes();
    cli::ViewExtras extras;
    extras.built = &built;
    extras.nodes = &nodes;
    extras.ranges = !pipeline.plan.ranges.empty();
    extras.disabled.insert(pipeline.plan.disabled.begin(), pipeline.plan.disabled.end());
    extras.threads = options.threads;
    extras.runs = runs;
    extras.file = std::filesystem::path(path).filename().string();  // empty for bytes
    return take(cli::view_document(built.engine, extras)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  });
}

/// The page of one document or two; `reports`: what `octavo quantize --report` wrote of each, or "".
std::string view_page(const std::vector<std::string>& documents, const std::vector<std::string>& reports,
                      const std::vector<std::string>& names) {
  std::vector<nlohmann::json> read;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    read.push_back(take(cli::read_document(documents[i], "the plan")));
    if (i < reports.size() && i < names.size() && !names[i].empty()) take(cli::add_accuracy(read.back(), reports[i], names[i]));
  }
  return cli::view_page(std::move(read));
}

/// A picture's pixels: HxWxC bytes as NumPy has them, or a JPEG or PNG file's bytes.
cli::Image picture_of(const nb::object& picture, const std::string& what) {
  if (nb::isinstance<nb::bytes>(picture)) {
    const auto data = nb::cast<nb::bytes>(picture);
    return take(cli::decode_image({reinterpret_cast<const std::byte*>(data.c_str()), data.size()}, what));
  }
  Held held;
  held.take(nb::module_::import_("numpy"), what, picture);
  const Shape& shape = held.view.shape;
  const bool colours = shape.size() == 3 && (shape[2] == 1 || shape[2] == 3);
  if (held.view.dtype != DType::u8 || (shape.size() != 2 && !colours) || shape[0] < 1 || shape[1] < 1 || shape[0] > (1 << 14) ||
      shape[1] > (1 << 14)) {
    bad_input("preprocess: " + what + " is " + numpy_name(held.view.dtype) + shape_text(shape) +
              "; pixels are uint8 (height, width), or (height, width, 1 or 3)");
  }
  cli::Image image{static_cast<int>(shape[1]), static_cast<int>(shape[0]), colours ? static_cast<int>(shape[2]) : 1, {}};
  const auto* bytes = static_cast<const std::uint8_t*>(held.view.data);
  image.pixels.assign(bytes, bytes + static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height) *
                                         static_cast<std::size_t>(image.channels));
  return image;
}

/// One picture as an array of `shape` (its batch must be 1) and `dtype`.
nb::object preprocess(const nb::object& picture, const std::string& what, const Shape& shape, const std::string& dtype,
                      const std::map<std::string, std::string>& recipe, bool bgr, const std::string& stored) {
  ir::TensorType type{ir::DType::f32, shape};
  const auto known = std::find_if(kNames.begin(), kNames.end(), [&](const Names& n) { return dtype == n.numpy; });
  if (known == kNames.end()) bad_input("preprocess: no type \"" + dtype + "\"");
  type.dtype = static_cast<ir::DType>(known->type);
  cli::RecipeOptions o;
  o.bgr = bgr;
  const auto set = [&](const char* name, std::string& to) {
    if (const auto found = recipe.find(name); found != recipe.end()) to = found->second;
  };
  set("preset", o.preset), set("resize", o.resize), set("crop", o.crop), set("letterbox", o.letterbox), set("scale", o.scale);
  set("mean", o.mean), set("std", o.std), set("layout", o.layout);
  const cli::Preprocess p = take(cli::recipe_of(o, stored, shape));
  const ir::Tensor tensor = take(cli::to_tensor(picture_of(picture, what), p, type));
  Made made;
  made.make(nb::module_::import_("numpy"), {"", known->type, shape, std::nullopt, {}});
  std::memcpy(made.buffer.buf, tensor.bytes().data(), tensor.bytes().size());
  return made.array;
}

}  // namespace

void add_tools(nb::module_& m) {
  m.def("_bench", &bench);
  m.def("_profile", &profile);
  m.def("_check", &check, nb::arg("model"), nb::arg("options"), nb::arg("inputs").none(), nb::arg("seed"), nb::arg("from_model"));
  m.def("_view_document", &view_document);
  m.def("_view_page", &view_page);
  m.def("_preprocess", &preprocess);
  m.def("_devices", [] {
    std::vector<std::string> names;
    {
      const nb::gil_scoped_release release;
      for (const api::DeviceHere& device : api::devices_here()) names.push_back(device.name);
    }
    return names;
  });
  m.def("_nearest", [](const std::vector<std::string>& names, const std::string& wanted) {
    return nearest_text({names.begin(), names.end()}, wanted);
  });
  m.def("_main", [](const std::vector<std::string>& arguments) {
    std::vector<const char*> argv{"octavo"};
    for (const std::string& a : arguments) argv.push_back(a.c_str());
    const nb::gil_scoped_release release;
    return cli::run_main(static_cast<int>(argv.size()), argv.data());
  });
}

}  // namespace octavo::python
