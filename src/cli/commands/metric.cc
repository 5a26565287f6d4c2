#include "cli/commands/metric.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/file.h"
#include "cli/inputs/npy.h"
#include "quantize/detection/detection.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;
using quantize::Detection;
using quantize::GroundTruth;

/// Pictures, objects and categories of a COCO file.
struct Annotations {
  struct Picture {
    std::int64_t id = 0;
    double width = 0, height = 0;
  };
  std::map<std::string, Picture> pictures;  ///< by the last part of the file name
  std::vector<GroundTruth> truths;
  std::vector<std::int64_t> categories;  ///< by class
};

Result<Annotations> read_coco(const std::string& path) {
  OCTAVO_TRY(const auto bytes, read_file(path));
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const auto j = nlohmann::json::parse(text, text + bytes.size(), nullptr, false);
  Annotations out;
  try {  // the library's conversions throw for other types
    if (!j.is_object()) throw nlohmann::json::type_error::create(302, "not a JSON object", nullptr);
    for (const auto& p : j.at("images")) {
      const auto name = fs::path(p.at("file_name").get<std::string>()).filename().string();
      const Annotations::Picture picture{p.at("id").get<std::int64_t>(), p.at("width").get<double>(), p.at("height").get<double>()};
      if (!(picture.width >= 1 && picture.height >= 1))
        return fail(ErrorKind::bad_input,
                    fmt::format("--labels {}: the size of {} is {} x {}", path, name, picture.width, picture.height));
      out.pictures.emplace(name, picture);
    }
    for (const auto& c : j.at("categories")) out.categories.push_back(c.at("id").get<std::int64_t>());
    std::sort(out.categories.begin(), out.categories.end());
    for (const auto& a : j.at("annotations")) {
      const auto box = a.at("bbox").get<std::vector<double>>();
      if (box.size() != 4) throw nlohmann::json::type_error::create(302, "a bbox without four numbers", nullptr);
      GroundTruth t{
          a.at("image_id").get<std::int64_t>(), a.at("category_id").get<std::int64_t>(), {box[0], box[1], box[2], box[3]}, false};
      if (!std::binary_search(out.categories.begin(), out.categories.end(), t.category)) {
        return fail(ErrorKind::bad_input,
                    fmt::format("--labels {}: an object has category {}, which is not among the {} categories", path, t.category,
                                out.categories.size()));
      }
      const auto crowd = a.find("iscrowd");
      t.crowd = crowd != a.end() && (crowd->is_boolean() ? crowd->get<bool>() : crowd->get<int>() != 0);
      out.truths.push_back(t);
    }
  } catch (const nlohmann::json::exception& e) {
    return fail(ErrorKind::bad_input,
                fmt::format("--labels {}: not a COCO file of objects (images, annotations, categories): {}", path, e.what()));
  }
  return out;
}

class Map50 final : public Metric {
 public:
  static Result<std::unique_ptr<Metric>> create(const MetricRequest& r) {
    std::unique_ptr<Map50> out(new Map50);
    if (r.labels.empty())
      return fail(ErrorKind::usage,
                  "--metric map50: needs the objects in the pictures\n  give --labels instances.json (COCO's format)");
    OCTAVO_CHECK(quantize::head_of(r.inputs, r.outputs));  // before files are read
    out->input_ = r.inputs[0];
    OCTAVO_TRY(const Preprocess recipe, recipe_of(r.options->recipe, "", out->input_.type.shape));
    if (recipe.crop)
      return fail(ErrorKind::usage,
                  "--metric map50: boxes of cropped pictures cannot be compared with whole ones\n  use --letterbox, or no --crop");
    OCTAVO_TRY(Annotations labels, read_coco(r.labels));
    OCTAVO_TRY(out->head_, quantize::head_of(r.inputs, r.outputs, static_cast<std::int64_t>(labels.categories.size())));
    const std::int64_t classes = quantize::classes_of(out->head_, r.outputs);
    if (classes > static_cast<std::int64_t>(labels.categories.size())) {
      return fail(ErrorKind::bad_input, fmt::format("--labels {}: {} categories, and the network knows {} classes", r.labels,
                                                    labels.categories.size(), classes));
    }
    bool last = false;
    OCTAVO_TRY(const auto size, picture_shape(out->input_.type.shape, recipe.layout, last));
    for (std::size_t i = 0; i < r.data->size(); ++i) {
      const std::string name = fs::path(r.data->path(i)).filename().string();
      const auto at = labels.pictures.find(name);
      if (at == labels.pictures.end())
        return fail(ErrorKind::bad_input, fmt::format("--labels {}: no picture \"{}\" in it", r.labels, name));
      const auto& p = at->second;
      Place place{p.id, size[1] / p.width, size[0] / p.height};
      if (recipe.letterbox) place.across = place.down = std::min(place.across, place.down);
      out->places_.push_back(place);
      out->wanted_.push_back(p.id);
    }
    std::sort(out->wanted_.begin(), out->wanted_.end());
    for (const GroundTruth& t : labels.truths) {
      if (std::binary_search(out->wanted_.begin(), out->wanted_.end(), t.image)) out->truths_.push_back(t);
    }
    if (out->truths_.empty())
      return fail(ErrorKind::bad_input, fmt::format("--labels {}: no object in any of the pictures", r.labels));
    out->categories_ = std::move(labels.categories);
    return out;
  }

  [[nodiscard]] std::string title() const override { return "mAP@.5"; }

  Status add(std::size_t model, std::size_t sample, const std::vector<ir::Tensor>& outputs) override {
    auto boxes = quantize::decode(head_, input_, outputs);
    const Place& p = places_[sample];
    const auto unknown = std::find_if(boxes.begin(), boxes.end(), [&](const Detection& d) {
      return d.category >= static_cast<std::int64_t>(categories_.size());
    });
    if (unknown != boxes.end())
      return fail(ErrorKind::bad_input,
                  fmt::format("--metric map50: a box has class {} (from 0), and the labels have {} categories", unknown->category,
                              categories_.size()));
    for (Detection& d : boxes) {
      d.image = p.image;
      d.category = categories_[static_cast<std::size_t>(d.category)];
      d.box = {d.box.x / p.across, d.box.y / p.down, d.box.width / p.across, d.box.height / p.down};
    }
    found_[model][sample] = std::move(boxes);
    return {};
  }

  Result<std::vector<double>> values(std::size_t models) override {
    std::vector<double> out;
    for (std::size_t m = 0; m < models; ++m) {
      std::vector<Detection> all;
      for (const auto& [sample, boxes] : found_[m]) all.insert(all.end(), boxes.begin(), boxes.end());
      out.push_back(quantize::average_precision(truths_, all));
    }
    return out;
  }

 private:
  struct Place {
    std::int64_t image = 0;
    double across = 1, down = 1;  ///< pixels of the input for one of the picture
  };
  quantize::Head head_ = quantize::Head::yolox;
  region::Binding input_;
  std::vector<Place> places_;  ///< by sample
  std::vector<std::int64_t> wanted_, categories_;
  std::vector<GroundTruth> truths_;
  std::map<std::size_t, std::map<std::size_t, std::vector<Detection>>> found_;  ///< by model and sample
};

/// What runs FILE.py: reads outputs sample by sample, writes the numbers where they are looked for.
constexpr const char* kDriver = R"(
import importlib.util, json, os, sys
import numpy
file, folder = sys.argv[1:]
spec = importlib.util.spec_from_file_location("metric", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with open(os.path.join(folder, "index.json")) as f:
    index = json.load(f)
class Outputs:
    def __init__(self, model): self.model = model
    def __len__(self): return len(index["samples"])
    def __getitem__(self, i):
        if not -len(self) <= i < len(self): raise IndexError(i)
        with numpy.load(os.path.join(folder, f"{self.model}.{i % len(self)}.npz")) as arrays: return dict(arrays)
values = [float(module.metric(Outputs(m), Outputs(0), index["samples"], index["labels"])) for m in range(index["models"])]
with open(os.path.join(folder, "values.json"), "w") as f:
    json.dump(values, f)
)";

class PythonMetric final : public Metric {
 public:
  static Result<std::unique_ptr<Metric>> create(const MetricRequest& r) {
    std::error_code problem;
    if (!fs::is_regular_file(r.name, problem)) return fail(ErrorKind::io, fmt::format("--metric {}: no such file", r.name));
    std::unique_ptr<PythonMetric> out(new PythonMetric);
    out->file_ = r.name;
    out->labels_ = r.labels;
    for (const auto& b : r.outputs) out->outputs_.push_back(b.name);
    for (std::size_t i = 0; i < r.data->size(); ++i) out->samples_.push_back(r.data->path(i));
    std::string folder = (fs::temp_directory_path(problem) / "octavo-metric-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) return fail(ErrorKind::io, fmt::format("--metric {}: no temporary folder", r.name));
    out->folder_ = folder;
    return out;
  }
  ~PythonMetric() override {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }

  [[nodiscard]] std::string title() const override { return fs::path(file_).stem().string(); }
  [[nodiscard]] bool share() const override { return false; }

  Status add(std::size_t model, std::size_t sample, const std::vector<ir::Tensor>& outputs) override {
    Arrays arrays;
    for (std::size_t i = 0; i < outputs.size(); ++i) arrays.insert_or_assign(outputs_[i], outputs[i]);
    OCTAVO_TRY(const auto bytes, format_npz(arrays));
    return write_file(fmt::format("{}/{}.{}.npz", folder_, model, sample), bytes);
  }

  Result<std::vector<double>> values(std::size_t models) override {
    const nlohmann::json index{
        {"samples", samples_}, {"models", models}, {"labels", labels_.empty() ? nlohmann::json() : nlohmann::json(labels_)}};
    const std::string text = index.dump();
    OCTAVO_CHECK(write_file(folder_ + "/index.json", std::as_bytes(std::span(text.data(), text.size()))));
    const char* given = std::getenv("OCTAVO_PYTHON");
    const std::string python = given != nullptr && *given != 0 ? given : "python3";
    const pid_t child = ::fork();
    if (child == 0) {
      ::execlp(python.c_str(), python.c_str(), "-c", kDriver, file_.c_str(), folder_.c_str(), nullptr);
      ::_exit(127);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child)
      return fail(ErrorKind::io, fmt::format("--metric {}: cannot run \"{}\"", file_, python));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      return fail(
          ErrorKind::bad_input,
          WIFEXITED(status) && WEXITSTATUS(status) == 127
              ? fmt::format(
                    "--metric {}: cannot run \"{}\"\n  OCTAVO_PYTHON names the Python that has numpy and what the file imports",
                    file_, python)
              : fmt::format(
                    "--metric {}: it ended with an error (above)\n  it needs metric(outputs, reference, samples, labels) -> "
                    "number (docs/quantize.md), and numpy; OCTAVO_PYTHON names another Python",
                    file_));
    }
    const auto bytes = read_file(folder_ + "/values.json");
    if (!bytes)  // a program that is no Python, say
      return fail(ErrorKind::bad_input,
                  fmt::format("--metric {}: \"{}\" was started to run it, and wrote no result\n  OCTAVO_PYTHON "
                              "names the Python that has numpy and what the file imports",
                              file_, python));
    const auto* begin = reinterpret_cast<const char*>(bytes->data());
    const auto j = nlohmann::json::parse(begin, begin + bytes->size(), nullptr, false);  // NaN is not JSON
    std::vector<double> out;
    for (const auto& v : j) {
      if (v.is_number()) out.push_back(v.get<double>());
    }
    if (out.size() != models) return fail(ErrorKind::bad_input, fmt::format("--metric {}: a result is not a number", file_));
    return out;
  }

 private:
  std::string file_, labels_, folder_;
  std::vector<std::string> outputs_, samples_;
};

}  // namespace

Result<std::unique_ptr<Metric>> make_metric(const MetricRequest& r) {
  if (r.name == "map50") return Map50::create(r);
  if (r.name.ends_with(".py")) return PythonMetric::create(r);
  return fail(ErrorKind::usage, fmt::format("--metric {}: known are top1, top5, sqnr, map50 and files that end in .py", r.name));
}

}  // namespace octavo::cli
