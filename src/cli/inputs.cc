#include "cli/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/half.h"
#include "cli/file.h"

namespace octavo::cli {
namespace {

std::string list(const Declared& declared) {
  std::vector<std::string> names;
  for (const auto& input : declared.inputs)
    names.push_back(fmt::format("\"{}\" {}{}", input.name, ir::name_of(input.type.dtype), input.shape_text));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// "name=path" when name is an input; else the whole text is a path.
std::pair<std::string, std::string> split_spec(const std::string& spec, const Declared& declared) {
  for (const auto& input : declared.inputs) {
    if (spec.starts_with(input.name + "=")) return {input.name, spec.substr(input.name.size() + 1)};
  }
  return {"", spec};
}

/// f64, f32 and f16 into one another; everything else must be the input's type already.
Result<ir::Tensor> converted(const ir::Tensor& t, ir::DType to, const std::string& name) {
  if (t.dtype() == to) return t;
  const auto plain = [](ir::DType d) { return d == ir::DType::f32 || d == ir::DType::f16 || d == ir::DType::f64; };
  if (!plain(t.dtype()) || (to != ir::DType::f32 && to != ir::DType::f16)) {
    return fail(ErrorKind::bad_input,
                fmt::format("input \"{}\" takes {}, the array holds {}\n  convert it first: array.astype(...)", name,
                            ir::name_of(to), ir::name_of(t.dtype())));
  }
  const ir::Tensor f32 = t.to_f32();
  if (to == ir::DType::f32) return f32;
  ir::Tensor f16(to, t.shape());
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.size()); ++i)
    f16.mutable_data<std::uint16_t>()[i] = f32_to_f16(f32.data<float>()[i]);
  return f16;
}

Result<Preprocess> preprocess_of(const InputOptions& o, const ir::Shape& shape) {
  bool channels_last = false;
  OCTAVO_TRY(const auto size, picture_shape(shape, o.layout, channels_last));
  Preprocess p;
  if (!o.preset.empty()) {
    OCTAVO_TRY(p, preset(o.preset, {size[0], size[1]}));
  }
  if (!o.resize.empty()) {
    OCTAVO_TRY(p.resize, parse_size("--resize", o.resize));
  }
  if (!o.crop.empty()) {
    OCTAVO_TRY(auto crop, parse_size("--crop", o.crop));
    p.crop = {crop[0], crop[1] == 0 ? crop[0] : crop[1]};
  }
  if (!o.letterbox.empty()) {
    OCTAVO_TRY(const auto fill, parse_numbers("--letterbox", o.letterbox));
    if (fill.size() != 1 || fill[0] < 0 || fill[0] > 255)
      return fail(ErrorKind::usage, fmt::format("--letterbox {}: not a grey value from 0 to 255", o.letterbox));
    p.letterbox = static_cast<int>(fill[0]);
  }
  if (!o.scale.empty()) {
    OCTAVO_TRY(const auto scale, parse_numbers("--scale", o.scale));
    if (scale.size() != 1)
      return fail(ErrorKind::usage, fmt::format("--scale {}: one number, please; --std takes one a channel", o.scale));
    p.scale = scale[0];
  }
  if (!o.mean.empty()) {
    OCTAVO_TRY(p.mean, parse_numbers("--mean", o.mean));
  }
  if (!o.std.empty()) {
    OCTAVO_TRY(p.std, parse_numbers("--std", o.std));
  }
  p.bgr = p.bgr || o.bgr;
  p.layout = o.layout;
  return p;
}

/// Elements [first, first + length) of dimension 0.
ir::Tensor rows(const ir::Tensor& t, std::int64_t first, std::int64_t length) {
  ir::Shape shape = t.shape();
  const std::size_t row = t.bytes().size() / static_cast<std::size_t>(shape[0]);
  shape[0] = length;
  ir::Tensor part(t.dtype(), shape);
  std::memcpy(part.mutable_bytes().data(), t.bytes().data() + static_cast<std::size_t>(first) * row,
              static_cast<std::size_t>(length) * row);
  return part;
}

/// k if `given` is `wanted` with dimension 0 k times as long; 0 if it is not.
std::int64_t multiple(const ir::Shape& given, const ir::Shape& wanted) {
  if (given == wanted) return 1;
  if (given.empty() || given.size() != wanted.size() || !std::equal(given.begin() + 1, given.end(), wanted.begin() + 1)) return 0;
  return wanted[0] > 0 && given[0] % wanted[0] == 0 ? given[0] / wanted[0] : 0;
}

}  // namespace

void add_input_options(CLI::App& app, InputOptions& o) {
  app.add_option("-i,--input", o.inputs, "JPEG, PNG, .npy or .npz file, or NAME=FILE for the input NAME; repeat for more")
      ->allow_extra_args(false)
      ->type_name("FILE");
  const std::string group = "Pictures";
  app.add_option("--preset", o.preset, "Preprocessing recipe: torch, tf, caffe, cifar or yolox; the options below change it")
      ->group(group)
      ->type_name("NAME");
  app.add_option("--resize", o.resize, "Resize to HxW, or the short side to S (default: the input's size)")
      ->group(group)
      ->type_name("SIZE");
  app.add_option("--crop", o.crop, "Then crop the centre to HxW or SxS")->group(group)->type_name("SIZE");
  app.add_option("--letterbox", o.letterbox, "Instead: keep the aspect ratio, fill right and bottom with this grey")
      ->group(group)
      ->type_name("VALUE");
  app.add_option("--scale", o.scale, "Multiply pixels by this: (x * scale - mean) / std; 1/255, say")
      ->group(group)
      ->type_name("NUMBER");
  app.add_option("--mean", o.mean, "Subtract this; one number or one a channel: 0.485,0.456,0.406")
      ->group(group)
      ->type_name("NUMBERS");
  app.add_option("--std", o.std, "Divide by this; one number or one a channel")->group(group)->type_name("NUMBERS");
  app.add_flag("--bgr", o.bgr, "Blue first")->group(group);
  app.add_option("--layout", o.layout, "nchw or nhwc, when the input's shape does not tell")
      ->group(group)
      ->check(CLI::IsMember({"nchw", "nhwc"}))
      ->type_name("LAYOUT");
}

Result<Given> read_inputs(const InputOptions& options, const Declared& declared) {
  Given given;
  for (const auto& spec : options.inputs) {
    auto [name, path] = split_spec(spec, declared);
    OCTAVO_TRY(const auto bytes, read_file(path));
    const std::string what = fmt::format("\"{}\"", path);
    if (bytes.size() > 4 && std::memcmp(bytes.data(), "PK\x03\x04", 4) == 0) {
      OCTAVO_TRY(const auto arrays, parse_npz(bytes, what));
      int used = 0;
      for (const auto& input : declared.inputs) {
        const auto found = arrays.find(input.name);
        if (found == arrays.end() || (!name.empty() && name != input.name)) continue;
        given.arrays.insert_or_assign(input.name, found->second);
        ++used;
      }
      if (used == 0 && arrays.size() == 1 && (declared.inputs.size() == 1 || !name.empty())) {
        given.arrays.insert_or_assign(name.empty() ? declared.inputs[0].name : name, arrays.begin()->second);
        ++used;
      }
      if (used == 0) {
        std::vector<std::string> names;
        for (const auto& [array, tensor] : arrays) names.push_back(fmt::format("\"{}\"", array));
        return fail(ErrorKind::bad_input,
                    fmt::format("{} holds {}; the model's inputs are {}", what, fmt::join(names, ", "), list(declared)));
      }
      continue;
    }
    if (name.empty()) {
      if (declared.inputs.size() != 1) {
        return fail(ErrorKind::usage, fmt::format("--input {}: the model has {} inputs; say which: --input NAME={}\n  inputs: {}",
                                                  spec, declared.inputs.size(), path, list(declared)));
      }
      name = declared.inputs[0].name;
    }
    if (is_image(bytes)) {
      if (!given.picture_input.empty() && given.picture_input != name) {
        return fail(ErrorKind::usage, fmt::format("pictures for two inputs, \"{}\" and \"{}\"; pass one of them as an array",
                                                  given.picture_input, name));
      }
      given.picture_input = name;
      OCTAVO_TRY(auto image, decode_image(bytes, what));
      given.pictures.emplace_back(path, std::move(image));
    } else if (bytes.size() > 6 && std::memcmp(bytes.data(), "\x93NUMPY", 6) == 0) {
      OCTAVO_TRY(auto tensor, parse_npy(bytes, what));
      given.arrays.insert_or_assign(name, std::move(tensor));
    } else {
      return fail(ErrorKind::bad_input, fmt::format("{} is not a JPEG, PNG, .npy or .npz file", what));
    }
  }
  for (const auto& input : declared.inputs) {
    if (!given.arrays.contains(input.name) && given.picture_input != input.name) {
      return fail(ErrorKind::usage, fmt::format("nothing for input \"{}\" {}{}; give --input {}=FILE", input.name,
                                                ir::name_of(input.type.dtype), input.shape_text, input.name));
    }
  }
  return given;
}

Shapes shapes_of(const Given& given, const Declared& declared) {
  Shapes shapes;
  for (const auto& input : declared.inputs) {
    const bool open = std::ranges::find(input.type.shape, -1) != input.type.shape.end() || input.type.shape.empty();
    const auto array = given.arrays.find(input.name);
    if (open && array != given.arrays.end()) shapes[input.name] = array->second.shape();
  }
  return shapes;
}

Result<std::vector<Feed>> make_feeds(const Given& given, const InputOptions& options, const region::Plan& plan) {
  std::vector<ir::Tensor> whole;
  std::int64_t parts = 0;
  std::size_t picture_slot = plan.inputs.size();
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const auto& binding = plan.inputs[i];
    if (binding.name == given.picture_input) {
      picture_slot = i;
      whole.emplace_back();
      continue;
    }
    OCTAVO_TRY(auto tensor, converted(given.arrays.at(binding.name), binding.type.dtype, binding.name));
    const std::int64_t k = multiple(tensor.shape(), binding.type.shape);
    if (k == 0 || (parts != 0 && k != parts)) {
      return fail(ErrorKind::bad_input, fmt::format("input \"{}\" takes {}, the array is {}", binding.name,
                                                    ir::to_string(binding.type), ir::to_string(tensor.type())));
    }
    parts = k;
    whole.push_back(std::move(tensor));
  }

  std::vector<Feed> feeds;
  if (picture_slot < plan.inputs.size()) {
    if (parts > 1)
      return fail(ErrorKind::usage, "a picture and an array of several runs do not go together; pass the pictures as an array");
    const auto& binding = plan.inputs[picture_slot];
    OCTAVO_TRY(const auto recipe, preprocess_of(options, binding.type.shape));
    for (const auto& [path, image] : given.pictures) {
      OCTAVO_TRY(whole[picture_slot], to_tensor(image, recipe, binding.type));
      feeds.push_back({path, whole});
    }
    return feeds;
  }
  for (std::int64_t k = 0; k < parts; ++k) {
    Feed feed{parts == 1 ? "" : fmt::format("part {} of {}", k + 1, parts), {}};
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const std::int64_t length = plan.inputs[i].type.shape.empty() ? 0 : plan.inputs[i].type.shape[0];
      feed.tensors.push_back(parts == 1 ? whole[i] : rows(whole[i], k * length, length));
    }
    feeds.push_back(std::move(feed));
  }
  return feeds;
}

}  // namespace octavo::cli
