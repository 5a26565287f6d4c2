#include "cli/inputs/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "base/nearest.h"
#include "cli/inputs/array_fit.h"
#include "region/bound_value.h"

namespace octavo::cli {
namespace {

constexpr std::size_t kDecodedEarly = 16;  ///< pictures that are decoded before the build, to find mistakes

std::string list(const Declared& declared) {
  std::vector<std::string> names;
  for (const auto& input : declared.inputs)
    names.push_back(fmt::format("\"{}\" {}{}", input.name, ir::name_of(input.type.dtype), input.shape_text));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::set<std::string> names_of(const Declared& declared) {
  std::set<std::string> names;
  for (const auto& input : declared.inputs) names.insert(input.name);
  return names;
}

/// "name=path" when name is an input; else the whole text is a path. Errors: usage for a NAME= that is neither an input nor in a path.
Result<std::pair<std::string, std::string>> split_spec(const std::string& spec, const Declared& declared) {
  for (const auto& input : declared.inputs) {
    if (spec.starts_with(input.name + "=")) return std::pair(input.name, spec.substr(input.name.size() + 1));
  }
  const std::string name = spec.substr(0, spec.find('='));
  std::error_code ignored;
  if (name.size() == spec.size() || name.empty() || name.find('/') != std::string::npos || spec.starts_with('@') ||
      std::filesystem::exists(spec, ignored))
    return std::pair(std::string(), spec);
  return fail(ErrorKind::usage, fmt::format("--input {}: the model has no input \"{}\"{}\n  inputs: {}", spec, name,
                                            nearest_text(names_of(declared), name), list(declared)));
}

/// One array behind another in dimension 0.
Result<ir::Tensor> joined(const ir::Tensor& a, const ir::Tensor& b, const std::string& what) {
  if (a.dtype() != b.dtype() || !same_rows(a.shape(), b.shape()) || b.shape()[0] == 0) {
    return fail(ErrorKind::bad_input, fmt::format("{} is {}, the files before it make {}: they cannot be joined in dimension 0",
                                                  what, ir::to_string(b.type()), ir::to_string(a.type())));
  }
  ir::Shape shape = a.shape();
  shape[0] += b.shape()[0];
  ir::Tensor whole(a.dtype(), shape);
  std::memcpy(whole.mutable_bytes().data(), a.bytes().data(), a.bytes().size());
  std::memcpy(whole.mutable_bytes().data() + a.bytes().size(), b.bytes().data(), b.bytes().size());
  return whole;
}

/// What a plan will refuse, said before the model is built. Formats that were asked for (--bind) change types and layouts; then only
/// the plan can tell.
Status fits(const Given& given, const InputOptions& options, const Declared& declared) {
  for (const InputDeclaration& input : declared.inputs) {
    const ir::Shape& shape = input.type.shape;
    if (const auto found = given.arrays.find(input.name); found != given.arrays.end() && !declared.formats_asked) {
      const ir::Tensor& array = found->second;
      OCTAVO_CHECK(convertible(array.dtype(), input.type.dtype, input.name));
      ir::Shape wanted = shape;
      for (std::size_t k = 0; k < wanted.size() && k < array.shape().size(); ++k) {
        if (wanted[k] < 0) wanted[k] = array.shape()[k];
      }
      if (!wanted.empty() && array.shape() != wanted && !same_rows(array.shape(), wanted)) {
        return fail(ErrorKind::bad_input,
                    fmt::format("input \"{}\" takes {}{}, the array is {}{}", input.name, ir::name_of(input.type.dtype),
                                input.shape_text, ir::to_string(array.type()), layout_hint(array.shape(), wanted)));
      }
    }
    if (input.name == given.picture_input) {
      const bool known = !declared.formats_asked && !shape.empty() && std::find(shape.begin() + 1, shape.end(), -1) == shape.end();
      OCTAVO_TRY(const auto recipe, recipe_of(options.recipe, "", known ? shape : ir::Shape{1, 3, 8, 8}));
      (void)recipe;
    }
  }
  return {};
}

/// Collects what the files hold.
class Reader {
 public:
  Reader(const Declared& declared, bool go_on) : declared_(declared), go_on_(go_on) {}

  Status take(const std::string& spec) {
    OCTAVO_TRY(const auto parts, split_spec(spec, declared_));
    const auto& [name, where] = parts;
    if (auto numbers = take_numbers(name, where)) return take_array(name, std::move(*numbers), fmt::format("\"{}\"", spec), spec);
    OCTAVO_TRY(auto sources, expand_source(where));
    const bool go_on = go_on_ && (sources.size() > 1 || sources.front().path != where);
    for (Source& source : sources) {
      const std::string file = source.name;
      const Status taken = take_file(name, spec, std::move(source));
      if (taken) continue;
      if (!go_on || taken.error().kind == ErrorKind::usage) return taken;
      Error error = taken.error();
      if (error.message.find(file) == std::string::npos) error.message = fmt::format("\"{}\": {}", file, error.message);
      given_.unreadable.push_back(std::move(error));
    }
    return {};
  }

  /// Arrays in memory.
  Status take(Arrays arrays, bool by_input, const std::string& name) {
    if (by_input) return take_named(std::move(arrays), "", name, name);
    if (declared_.inputs.size() != 1)
      return fail(ErrorKind::usage, fmt::format("{} is one array, and the model has {} inputs; give arrays by name\n  inputs: {}",
                                                name, declared_.inputs.size(), list(declared_)));
    return take_array(declared_.inputs[0].name, std::move(arrays.begin()->second), name, name);
  }

  Result<Given> finish() {
    for (const auto& input : declared_.inputs) {
      if (given_.arrays.contains(input.name) || given_.picture_input == input.name) continue;
      if (!given_.unreadable.empty() && given_.arrays.empty() && given_.pictures.empty())
        return tl::unexpected<Error>(given_.unreadable.front());
      std::string others;
      if (!unknown_.empty())
        others = fmt::format("\n  no input has these names of arrays: \"{}\"{}", fmt::join(unknown_, "\", \""),
                             nearest_text(unknown_, input.name));
      return fail(ErrorKind::usage, fmt::format("nothing for input \"{}\" {}{}; give --input {}=FILE{}", input.name,
                                                ir::name_of(input.type.dtype), input.shape_text, input.name, others));
    }
    given_.name = file_;
    if (joined_) given_.rows = std::move(names_);
    return std::move(given_);
  }

 private:
  /// "k=3", "sizes=1,3,8,8": the elements of a scalar or a list, as inputs that decide shapes are; a file of that name goes first.
  std::optional<ir::Tensor> take_numbers(const std::string& name, const std::string& text) const {
    std::error_code ignored;
    if (name.empty() || text.empty() || std::filesystem::exists(text, ignored)) return std::nullopt;
    const auto input =
        std::find_if(declared_.inputs.begin(), declared_.inputs.end(), [&](const auto& i) { return i.name == name; });
    if (input->type.shape.size() > 1) return std::nullopt;
    region::Binding b{name, input->type, {}, {}, 0, "=" + text};
    if (!b.type.shape.empty()) b.type.shape = {std::count(text.begin(), text.end(), ',') + 1};
    return region::value_of(b);
  }

  Status take_file(std::string name, const std::string& spec, Source source) {
    OCTAVO_TRY(const auto bytes, source.read());
    const std::string what = fmt::format("\"{}\"", source.name);
    if (bytes.size() > 4 && std::memcmp(bytes.data(), "PK\x03\x04", 4) == 0) return take_npz(bytes, name, what, source.name);
    if (name.empty()) {
      if (declared_.inputs.size() != 1) {
        return fail(ErrorKind::usage, fmt::format("--input {}: the model has {} inputs; say which: --input NAME={}\n  inputs: {}",
                                                  spec, declared_.inputs.size(), source.name, list(declared_)));
      }
      name = declared_.inputs[0].name;
    }
    if (is_image(bytes)) return take_picture(name, bytes, what, std::move(source));
    if (bytes.size() > 6 && std::memcmp(bytes.data(), "\x93NUMPY", 6) == 0) {
      OCTAVO_TRY(auto tensor, parse_npy(bytes, what));
      return take_array(name, std::move(tensor), what, source.name);
    }
    if (source.name.ends_with(".bin") || source.name.ends_with(".raw") || source.name.ends_with(".dat"))
      return take_raw(name, bytes, what, source.name);
    const std::string_view other = other_image_format(bytes);
    if (other.empty()) return fail(ErrorKind::bad_input, fmt::format("{} is not a JPEG, PNG, .npy or .npz file", what));
    return fail(ErrorKind::bad_input, fmt::format("{} is a {} picture; convert it to JPEG or PNG first", what, other));
  }

  /// Elements as they are, of the declared type and shape: only where both are known.
  Status take_raw(const std::string& name, std::span<const std::byte> bytes, const std::string& what, const std::string& file) {
    const auto input =
        std::find_if(declared_.inputs.begin(), declared_.inputs.end(), [&](const auto& i) { return i.name == name; });
    const ir::TensorType& type = input->type;
    const bool known = !declared_.formats_asked && std::find(type.shape.begin(), type.shape.end(), -1) == type.shape.end();
    const std::size_t wanted = known ? static_cast<std::size_t>(ir::count(type.shape)) * ir::size_of(type.dtype) : 0;
    if (!known || bytes.size() != wanted) {
      return fail(ErrorKind::bad_input,
                  fmt::format("{} holds {} bytes, the input \"{}\" {}{} {}\n  an .npy file says what its bytes mean", what,
                              bytes.size(), name, ir::name_of(type.dtype), input->shape_text,
                              known ? fmt::format("takes {}", wanted) : std::string("has open dimensions")));
    }
    ir::Tensor tensor(type);
    std::copy(bytes.begin(), bytes.end(), tensor.mutable_bytes().begin());
    return take_array(name, std::move(tensor), what, file);
  }

  Status take_npz(std::span<const std::byte> bytes, const std::string& name, const std::string& what, const std::string& file) {
    OCTAVO_TRY(auto arrays, parse_npz(bytes, what));
    return take_named(std::move(arrays), name, what, file);
  }

  Status take_named(Arrays arrays, const std::string& name, const std::string& what, const std::string& file) {
    int used = 0;
    for (const auto& input : declared_.inputs) {
      const auto found = arrays.find(input.name);
      if (found == arrays.end() || (!name.empty() && name != input.name)) continue;
      OCTAVO_CHECK(take_array(input.name, found->second, what, file));
      ++used;
    }
    // NAME= says what the array is; numpy.savez calls an array without a name arr_0.
    if (used == 0 && arrays.size() == 1 && (!name.empty() || (declared_.inputs.size() == 1 && arrays.begin()->first == "arr_0"))) {
      return take_array(name.empty() ? declared_.inputs[0].name : name, std::move(arrays.begin()->second), what, file);
    }
    for (const auto& [array, tensor] : arrays) {
      if (name.empty() && !names_of(declared_).contains(array)) unknown_.insert(array);
    }
    if (used > 0) return {};
    std::vector<std::string> names;
    for (const auto& [array, tensor] : arrays) names.push_back(fmt::format("\"{}\"", array));
    return fail(
        ErrorKind::bad_input,
        fmt::format("{} holds {}; the model's inputs are {}\n  name the arrays as the inputs{}", what, fmt::join(names, ", "),
                    list(declared_),
                    arrays.size() == 1 ? fmt::format(", or say which it is: --input {}={}", declared_.inputs[0].name, file) : ""));
  }

  Status take_array(const std::string& name, ir::Tensor tensor, const std::string& what, const std::string& file) {
    const std::int64_t length = tensor.shape().empty() ? 1 : tensor.shape()[0];
    const auto found = given_.arrays.find(name);
    if (found != given_.arrays.end()) {
      OCTAVO_TRY(found->second, joined(found->second, tensor, what));
      joined_ = true;
    } else {
      given_.arrays.emplace(name, std::move(tensor));
      if (named_.empty()) {
        named_ = name;
        file_ = file;
      }
    }
    if (name != named_) return {};  // rows are called after the files of the first input
    for (std::int64_t i = 0; i < length; ++i) names_.push_back(length == 1 ? file : fmt::format("{}[{}]", file, i));
    return {};
  }

  Status take_picture(const std::string& name, std::span<const std::byte> bytes, const std::string& what, Source source) {
    if (!given_.picture_input.empty() && given_.picture_input != name) {
      return fail(ErrorKind::usage, fmt::format("pictures for two inputs, \"{}\" and \"{}\"; pass one of them as an array",
                                                given_.picture_input, name));
    }
    if (given_.pictures.size() < kDecodedEarly) {
      if (const auto image = decode_image(bytes, what); !image) return tl::unexpected<Error>(image.error());
    }
    given_.picture_input = name;
    given_.pictures.push_back(std::move(source));
    return {};
  }

  const Declared& declared_;
  bool go_on_;
  Given given_;
  std::string named_, file_;       ///< the first input that got an array, and from where
  std::set<std::string> unknown_;  ///< arrays whose names are no inputs
  std::vector<std::string> names_;
  bool joined_ = false;
};

}  // namespace

void add_input_options(Arguments& app, InputOptions& o) {
  app.add_option("-i,--input", o.inputs,
                 "JPEG, PNG, .npy or .npz file, folder, pattern such as '*.jpg', @LIST (a file with one path on each line), or - "
                 "(stdin). NAME=FILE is for the "
                 "input NAME. Takes several; repeat for more")
      ->reads("FILE");
  add_recipe_options(app, o.recipe, [&o](const std::string&) {
    return o.inputs.empty() && (o.data == nullptr || o.data->empty())
               ? fmt::format("it applies to pictures, and none is given\n  give --input{} as well",
                             o.data == nullptr ? "" : " or --data")
               : std::string();
  });
}

Result<Given> read_inputs(const InputOptions& options, const Declared& declared) {
  Reader reader(declared, options.go_on);
  for (const auto& spec : options.inputs) OCTAVO_CHECK(reader.take(spec));
  OCTAVO_TRY(auto given, reader.finish());
  given.go_on = options.go_on;
  OCTAVO_CHECK(fits(given, options, declared));
  if (given.pictures.empty() && !options.recipe.text().empty()) return tl::unexpected<Error>(no_picture(options.recipe));
  return given;
}

Result<Given> given_arrays(Arrays arrays, bool by_input, const std::string& name, const Declared& declared) {
  Reader reader(declared, false);
  OCTAVO_CHECK(reader.take(std::move(arrays), by_input, name));
  OCTAVO_TRY(auto given, reader.finish());
  OCTAVO_CHECK(fits(given, {}, declared));
  return given;
}

Shapes shapes_of(const Given& given, const Declared& declared, std::int64_t batch) {
  Shapes shapes;
  for (const auto& input : declared.inputs) {
    const bool open = std::ranges::find(input.type.shape, -1) != input.type.shape.end() || input.type.shape.empty();
    const auto array = given.arrays.find(input.name);
    if (!open || array == given.arrays.end()) continue;
    ir::Shape shape = array->second.shape();
    if (batch > 0 && !shape.empty() && !input.type.shape.empty() && input.type.shape[0] < 0) shape[0] = batch;
    shapes[input.name] = std::move(shape);
  }
  return shapes;
}

}  // namespace octavo::cli
