#include "cli/inputs/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

enum class Kind { picture, arrays, other };

/// By the first bytes.
Kind kind_of(const std::string& path) {
  std::byte head[16] = {};
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(head), sizeof head);
  const std::span<const std::byte> bytes(head, static_cast<std::size_t>(in.gcount()));
  if (is_image(bytes)) return Kind::picture;
  if (bytes.size() > 6 && (std::memcmp(head, "PK\x03\x04", 4) == 0 || std::memcmp(head, "\x93NUMPY", 6) == 0)) return Kind::arrays;
  return Kind::other;
}

/// Every file below a folder, by path.
Result<std::vector<std::string>> files_below(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code problem;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::follow_directory_symlink, problem), end;
       !problem && at != end; at.increment(problem)) {
    if (at->is_regular_file(problem)) out.push_back(at->path().string());
  }
  if (problem) return fail(ErrorKind::io, fmt::format("--data {}: {}", folder, problem.message()));
  std::sort(out.begin(), out.end());
  return out;
}

/// What a folder of data says about its own samples: it is none of them.
bool is_labels(const std::string& file, const std::string& labels) {
  std::error_code ignored;
  const fs::path path(file);
  return path.stem() == "labels" || (!labels.empty() && fs::equivalent(path, labels, ignored));
}

/// Nothing but the inputs: what Feeds ask for.
region::Plan plan_of(const Declared& inputs) {
  region::Plan plan;
  for (const InputDeclaration& in : inputs.inputs) {
    region::Binding b;
    b.name = in.name;
    b.type = in.type;
    plan.inputs.push_back(b);
  }
  return plan;
}

/// The runs that `read` makes; what is wrong is said of `name`.
Result<std::vector<Feed>> feeds_of(Result<Given> read, const std::string& name, const RecipeOptions& recipe,
                                   const region::Plan& plan) {
  if (!read) {
    const bool named = read.error().message.find(name) != std::string::npos;
    return fail(read.error().kind, named ? read.error().message : fmt::format("{}: {}", name, read.error().message));
  }
  const Given given = std::move(*read);
  const auto feeds = Feeds::create(given, recipe, "", plan);
  if (!feeds) return fail(feeds.error().kind, fmt::format("{}: {}", name, feeds.error().message));
  std::vector<Feed> out;
  for (std::size_t run = 0; run < feeds->size(); ++run) {
    auto feed = feeds->at(run);
    if (!feed) return fail(feed.error().kind, fmt::format("{}: {}", name, feed.error().message));
    out.push_back(std::move(*feed));
  }
  return out;
}

}  // namespace

void add_data_options(Arguments& app, DataOptions& o) {
  app.add_option("--data", o.data, "A folder, pictures, .npy or .npz files; repeat for more")->reads("PATH");
  add_recipe_options(app, o.recipe, [&o](const std::string&) {
    return o.data.empty() ? "it applies to pictures, and no data are given\n  give --data FOLDER as well" : "";
  });
}

Declared inputs_of(const ir::Graph& graph) {
  Declared out;
  for (const ir::ValueId v : graph.inputs) {
    const ir::Value& value = graph.value(v);
    out.inputs.push_back({value.name, ir::to_string(value.type.shape), value.type});
  }
  return out;
}

Declared inputs_of(const region::Plan& plan) {
  Declared out;
  for (const region::Binding& b : plan.inputs) out.inputs.push_back({b.name, ir::to_string(b.type.shape), b.type});
  return out;
}

Result<std::unique_ptr<FileData>> FileData::open(const DataOptions& options, const Declared& inputs) {
  if (options.data.empty()) {
    return fail(
        ErrorKind::usage,
        "no data: give --data FOLDER with pictures, or --data FILE.npz\n  some dozens of samples like those that the network will "
        "see are enough");
  }
  std::unique_ptr<FileData> out(new FileData);
  out->recipe_ = options.recipe;
  out->declared_ = inputs;
  out->plan_ = plan_of(inputs);
  constexpr std::uintmax_t kKept = std::uintmax_t{256} << 20;  // of files with arrays; beyond, they are read again for each sample
  std::uintmax_t array_bytes = 0;
  bool pictures = false;
  for (const std::string& path : options.data) {
    std::error_code problem;
    const bool folder = fs::is_directory(path, problem);
    std::vector<std::string> files{path};
    if (folder) {
      OCTAVO_TRY(files, files_below(path));
    } else if (!fs::exists(path, problem)) {
      return fail(ErrorKind::io, fmt::format("--data {}: no such file or folder", path));
    }
    for (const std::string& file : files) {
      if (folder && is_labels(file, options.labels)) continue;
      const Kind kind = kind_of(file);
      if (kind == Kind::other) {
        if (!folder) return fail(ErrorKind::bad_input, fmt::format("--data {}: not a folder, JPEG, PNG, .npy or .npz file", file));
        out->warnings_.push_back(fmt::format("{} is left out: not a JPEG, PNG, .npy or .npz file", file));
        continue;
      }
      if (kind == Kind::picture) {
        pictures = true;
        out->entries_.push_back({file, 0, nullptr});
        continue;
      }
      OCTAVO_TRY(auto feeds, out->read(file));
      const std::size_t parts = feeds.size();
      array_bytes += fs::file_size(file, problem);
      std::shared_ptr<const std::vector<Feed>> kept;
      if (array_bytes <= kKept) kept = std::make_shared<const std::vector<Feed>>(std::move(feeds));
      for (std::size_t k = 0; k < parts; ++k) out->entries_.push_back({file, k, kept});
    }
  }
  if (!pictures && !options.recipe.text().empty()) return tl::unexpected<Error>(no_picture(options.recipe));
  const bool pixels = inputs.inputs.size() == 1 && ir::is_float(inputs.inputs[0].type.dtype) && !options.recipe.given();
  if (pixels && pictures) {
    out->warnings_.push_back(fmt::format(
        "no preprocessing is given: pixels go into \"{}\" as 0 to 255; give the preprocessing of the training: --preset torch (or "
        "tf, caffe, cifar, yolox), or --scale 1/255; --scale 1 for pixels as they are",
        inputs.inputs[0].name));
  }
  if (out->entries_.empty()) {
    return fail(ErrorKind::bad_input, fmt::format("--data {}: {} files, and no JPEG, PNG, .npy or .npz among them", options.data[0],
                                                  out->warnings_.size()));
  }
  return out;
}

Result<std::vector<Feed>> FileData::read(const std::string& path) const {
  return feeds_of(read_inputs({.inputs = {path}, .recipe = kind_of(path) == Kind::picture ? recipe_ : RecipeOptions()}, declared_),
                  path, recipe_, plan_);
}

Result<std::vector<quantize::Sample>> samples_of(Arrays arrays, bool by_input, const std::string& name, const Declared& inputs) {
  OCTAVO_TRY(auto feeds, feeds_of(given_arrays(std::move(arrays), by_input, name, inputs), name, {}, plan_of(inputs)));
  std::vector<quantize::Sample> out;
  for (std::size_t k = 0; k < feeds.size(); ++k)
    out.push_back({feeds.size() > 1 ? fmt::format("{} part {}", name, k + 1) : name, std::move(feeds[k].tensors)});
  return out;
}

Result<quantize::Sample> FileData::at(std::size_t index) const {
  const Entry& e = entries_[index];
  const auto name = [&](std::size_t parts) { return parts > 1 ? fmt::format("{} part {}", e.path, e.part + 1) : e.path; };
  if (e.arrays) return quantize::Sample{name(e.arrays->size()), (*e.arrays)[e.part].tensors};
  OCTAVO_TRY(auto feeds, read(e.path));
  return quantize::Sample{name(feeds.size()), std::move(feeds[e.part].tensors)};
}

}  // namespace octavo::cli
