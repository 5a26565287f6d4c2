#include "cli/commands/onnxruntime.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/file.h"
#include "cli/inputs/npy.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

/// Inputs by their place; what a session says of itself and its words where it fails come back as JSON.
constexpr const char* kDriver = R"(
import json, os, sys
model, folder, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
def done(**facts):
    with open(os.path.join(folder, "out.json"), "w") as file:
        json.dump(facts, file)
    sys.exit(0)
try:
    import numpy
    import onnxruntime
except ImportError as e:
    done(missing=str(e), python=sys.executable)
with open(os.path.join(folder, "in.json")) as file:
    asked = json.load(file)
try:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs, outputs = [i.name for i in session.get_inputs()], [o.name for o in session.get_outputs()]
    if len(inputs) != len(asked["inputs"]):
        done(failed=f"it has the inputs {inputs}, and {asked['inputs']} are given")
    names = asked["inputs"] if set(inputs) == set(asked["inputs"]) else inputs
    for feed in range(asked["feeds"]):
        with numpy.load(os.path.join(folder, f"{feed}.npz")) as arrays:
            results = session.run(None, {name: arrays[str(i)] for i, name in enumerate(names)})
        for name, result in zip(outputs, results):
            if not isinstance(result, numpy.ndarray) or result.dtype == object:
                done(failed=f"output {name!r} is no tensor of numbers")
        numpy.savez(os.path.join(folder, f"{feed}.out.npz"), **{str(i): result for i, result in enumerate(results)})
    done(version=onnxruntime.__version__, inputs=names, outputs=outputs)
except Exception as e:
    done(failed=f"{type(e).__name__}: {e}")
)";

/// Removed with all that is in it.
class Folder {
 public:
  static Result<Folder> make() {
    std::error_code problem;
    std::string path = (fs::temp_directory_path(problem) / "octavo-check-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) return fail(ErrorKind::io, "--against onnxruntime: no temporary folder can be made");
    Folder f;
    f.path_ = path;
    return f;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Folder(Folder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Folder& operator=(Folder&&) = delete;
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string at(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  Folder() = default;
  std::string path_;
};

Status write_text(const std::string& path, const std::string& text) {
  return write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

std::string python_here() {
  const char* given = std::getenv("OCTAVO_PYTHON");
  return given != nullptr && *given != 0 ? given : "python3";
}

/// Of a program that ended well and is no Python, say.
Error no_result(const std::string& what) {
  return {ErrorKind::unsupported,
          fmt::format("--against onnxruntime: \"{}\" was started to run ONNX Runtime, and wrote no result: {}\n"
                      "  OCTAVO_PYTHON names the Python that has onnxruntime",
                      python_here(), what)};
}

Status run_python(const std::string& model, const std::string& folder, int threads) {
  const std::string python = python_here(), count = std::to_string(threads);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execlp(python.c_str(), python.c_str(), "-c", kDriver, model.c_str(), folder.c_str(), count.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child)
    return fail(ErrorKind::io, fmt::format("--against onnxruntime: cannot run \"{}\"", python));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return fail(ErrorKind::unsupported,
                fmt::format("--against onnxruntime: cannot run \"{}\"\n  OCTAVO_PYTHON names the Python that has "
                            "onnxruntime",
                            python));
  }
  return fail(
      ErrorKind::unsupported,
      WIFSIGNALED(status)
          ? fmt::format("--against onnxruntime: ONNX Runtime was ended by signal {} on \"{}\"", WTERMSIG(status), model)
          : fmt::format("--against onnxruntime: \"{}\" ended with code {} (see its output above)", python, WEXITSTATUS(status)));
}

}  // namespace

Result<FromOnnxRuntime> run_onnxruntime(const std::string& model, const std::vector<region::Binding>& inputs,
                                        const std::vector<std::vector<ir::Tensor>>& feeds, int threads) {
  OCTAVO_TRY(const Folder folder, Folder::make());
  nlohmann::json asked{{"feeds", feeds.size()}, {"inputs", nlohmann::json::array()}};
  for (const region::Binding& b : inputs) {
    asked["inputs"].push_back(b.name);
    if (b.type.dtype == ir::DType::bf16 || b.type.dtype > ir::DType::boolean) {
      return fail(ErrorKind::unsupported, fmt::format("--against onnxruntime: input \"{}\" is {}, which NumPy does not have",
                                                      b.name, ir::name_of(b.type.dtype)));
    }
  }
  OCTAVO_CHECK(write_text(folder.at("in.json"), asked.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  for (std::size_t f = 0; f < feeds.size(); ++f) {
    Arrays arrays;
    for (std::size_t i = 0; i < feeds[f].size(); ++i) arrays.emplace(std::to_string(i), feeds[f][i]);
    OCTAVO_TRY(const auto bytes, format_npz(arrays));
    OCTAVO_CHECK(write_file(folder.at(fmt::format("{}.npz", f)), bytes));
  }
  OCTAVO_CHECK(run_python(model, folder.path(), threads));
  const auto answer = read_file(folder.at("out.json"));
  if (!answer) return tl::unexpected<Error>(no_result("it ended without an error"));
  const auto* text = reinterpret_cast<const char*>(answer->data());
  const auto j = nlohmann::json::parse(text, text + answer->size(), nullptr, false);
  if (!j.is_object()) return tl::unexpected<Error>(no_result("what it wrote is no JSON"));
  const auto word = [&](const char* key) {
    return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
  };
  if (const std::string missing = word("missing"); !missing.empty()) {
    return fail(ErrorKind::unsupported,
                fmt::format("--against onnxruntime: {} has no ONNX Runtime: {}\n  {} -m pip install onnxruntime, or "
                            "name another Python by OCTAVO_PYTHON",
                            word("python"), missing, word("python")));
  }
  if (const std::string failed = word("failed"); !failed.empty())
    return fail(ErrorKind::unsupported, fmt::format("--against onnxruntime: it does not run \"{}\": {}", model, failed));
  FromOnnxRuntime out;
  out.version = "onnxruntime " + word("version");
  const auto names = [&](const char* key) {
    std::vector<std::string> all;
    for (const auto& name : j.value(key, nlohmann::json::array())) all.push_back(name.is_string() ? name.get<std::string>() : "");
    return all;
  };
  for (const std::string& name : names("inputs")) {
    region::Binding b;
    b.name = name;
    b.type = inputs[out.inputs.size()].type;
    out.inputs.push_back(std::move(b));
  }
  for (const std::string& name : names("outputs")) {
    region::Binding b;
    b.name = name;
    out.outputs.push_back(std::move(b));
  }
  for (std::size_t f = 0; f < feeds.size(); ++f) {
    OCTAVO_TRY(const auto bytes, read_file(folder.at(fmt::format("{}.out.npz", f))));
    OCTAVO_TRY(auto arrays, parse_npz(bytes, "what ONNX Runtime computed"));
    std::vector<ir::Tensor> results;
    for (std::size_t i = 0; i < out.outputs.size(); ++i) {
      results.push_back(std::move(arrays[std::to_string(i)]));
      if (f == 0) out.outputs[i].type = results.back().type();
    }
    out.results.push_back(std::move(results));
  }
  return out;
}

}  // namespace octavo::cli
