#include "cli/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/half.h"
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

/// "name=path" when name is an input; else the whole text is a path.
std::pair<std::string, std::string> split_spec(const std::string& spec, const Declared& declared) {
  for (const auto& input : declared.inputs) {
    if (spec.starts_with(input.name + "=")) return {input.name, spec.substr(input.name.size() + 1)};
  }
  return {"", spec};
}

/// f64, f32 and f16 into one another; everything else must be the input's type already.
Status convertible(ir::DType from, ir::DType to, const std::string& name) {
  const auto plain = [](ir::DType d) { return d == ir::DType::f32 || d == ir::DType::f16 || d == ir::DType::f64; };
  if (from == to || (plain(from) && (to == ir::DType::f32 || to == ir::DType::f16))) return {};
  return fail(ErrorKind::bad_input, fmt::format("input \"{}\" takes {}, the array holds {}\n  convert it first: array.astype(...)",
                                                name, ir::name_of(to), ir::name_of(from)));
}

Result<ir::Tensor> converted(const ir::Tensor& t, ir::DType to, const std::string& name) {
  if (t.dtype() == to) return t;
  OCTAVO_CHECK(convertible(t.dtype(), to, name));
  const ir::Tensor f32 = t.to_f32();
  if (to == ir::DType::f32) return f32;
  ir::Tensor f16(to, t.shape());
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.size()); ++i)
    f16.mutable_data<std::uint16_t>()[i] = f32_to_f16(f32.data<float>()[i]);
  return f16;
}

/// `used` elements of dimension 0 from `first` on, in a tensor of `length`; the rest is zeros.
ir::Tensor rows(const ir::Tensor& t, std::int64_t first, std::int64_t used, std::int64_t length) {
  ir::Shape shape = t.shape();
  const std::size_t row = t.bytes().size() / static_cast<std::size_t>(shape[0]);
  shape[0] = length;
  ir::Tensor part(t.dtype(), shape);
  std::memset(part.mutable_bytes().data(), 0, part.bytes().size());
  std::memcpy(part.mutable_bytes().data(), t.bytes().data() + static_cast<std::size_t>(first) * row,
              static_cast<std::size_t>(used) * row);
  return part;
}

/// The same in every dimension but the first, where any length but 0 will do.
bool same_rows(const ir::Shape& given, const ir::Shape& wanted) {
  return !given.empty() && given.size() == wanted.size() && given[0] > 0 && wanted[0] != 0 &&
         std::equal(given.begin() + 1, given.end(), wanted.begin() + 1);
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

/// The way out where the array has the model's dimensions in another layout; else nothing.
std::string layout_hint(const ir::Shape& array, const ir::Shape& wanted) {
  if (array.size() != 4 || wanted.size() != 4 || array == wanted) return "";
  const auto is = [&](std::size_t a, std::size_t b, std::size_t c) {
    return array[a] == wanted[1] && array[b] == wanted[2] && array[c] == wanted[3];
  };
  if (is(3, 1, 2)) return "\n  its channels are last, the model's are first: numpy.transpose(x, (0, 3, 1, 2))";
  if (is(2, 3, 1)) return "\n  its channels are first, the model's are last: numpy.transpose(x, (0, 2, 3, 1))";
  return "";
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
  Reader(const Declared& declared) : declared_(declared) {}

  Status take(const std::string& spec) {
    auto [name, where] = split_spec(spec, declared_);
    if (auto numbers = take_numbers(name, where)) return take_array(name, std::move(*numbers), fmt::format("\"{}\"", spec), spec);
    OCTAVO_TRY(auto sources, expand_source(where));
    for (Source& source : sources) OCTAVO_CHECK(take_file(name, spec, std::move(source)));
    return {};
  }

  Result<Given> finish() {
    for (const auto& input : declared_.inputs) {
      if (given_.arrays.contains(input.name) || given_.picture_input == input.name) continue;
      return fail(ErrorKind::usage, fmt::format("nothing for input \"{}\" {}{}; give --input {}=FILE", input.name,
                                                ir::name_of(input.type.dtype), input.shape_text, input.name));
    }
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
    int used = 0;
    for (const auto& input : declared_.inputs) {
      const auto found = arrays.find(input.name);
      if (found == arrays.end() || (!name.empty() && name != input.name)) continue;
      OCTAVO_CHECK(take_array(input.name, found->second, what, file));
      ++used;
    }
    if (used == 0 && arrays.size() == 1 && (declared_.inputs.size() == 1 || !name.empty())) {
      return take_array(name.empty() ? declared_.inputs[0].name : name, std::move(arrays.begin()->second), what, file);
    }
    if (used > 0) return {};
    std::vector<std::string> names;
    for (const auto& [array, tensor] : arrays) names.push_back(fmt::format("\"{}\"", array));
    return fail(ErrorKind::bad_input,
                fmt::format("{} holds {}; the model's inputs are {}", what, fmt::join(names, ", "), list(declared_)));
  }

  Status take_array(const std::string& name, ir::Tensor tensor, const std::string& what, const std::string& file) {
    const std::int64_t length = tensor.shape().empty() ? 1 : tensor.shape()[0];
    const auto found = given_.arrays.find(name);
    if (found != given_.arrays.end()) {
      OCTAVO_TRY(found->second, joined(found->second, tensor, what));
      joined_ = true;
    } else {
      given_.arrays.emplace(name, std::move(tensor));
      if (named_.empty()) named_ = name;
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
    given_.picture_input = name;
    if (given_.pictures.size() < kDecodedEarly) {
      if (const auto image = decode_image(bytes, what); !image) return tl::unexpected<Error>(image.error());
    }
    given_.pictures.push_back(std::move(source));
    return {};
  }

  const Declared& declared_;
  Given given_;
  std::string named_;
  std::vector<std::string> names_;
  bool joined_ = false;
};

}  // namespace

void add_input_options(CLI::App& app, InputOptions& o) {
  app.add_option("-i,--input", o.inputs,
                 "JPEG, PNG, .npy or .npz file, folder, pattern such as '*.jpg', @LIST (a file with one path on each line), or - "
                 "(stdin). NAME=FILE is for the "
                 "input NAME. Takes several; repeat for more")
      ->type_name("FILE");
  add_recipe_options(app, o.recipe);
}

Result<Given> read_inputs(const InputOptions& options, const Declared& declared) {
  Reader reader(declared);
  for (const auto& spec : options.inputs) OCTAVO_CHECK(reader.take(spec));
  OCTAVO_TRY(auto given, reader.finish());
  OCTAVO_CHECK(fits(given, options, declared));
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

Result<Feeds> Feeds::create(const Given& given, const RecipeOptions& options, const std::string& stored, const region::Plan& plan) {
  Feeds f;
  f.given_ = &given;
  f.plan_ = &plan;
  f.picture_slot_ = plan.inputs.size();
  std::int64_t runs = 0;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const auto& binding = plan.inputs[i];
    const ir::Shape& wanted = binding.type.shape;
    if (binding.name == given.picture_input) {
      f.picture_slot_ = i;
      f.whole_.emplace_back();
      OCTAVO_TRY(f.recipe_, recipe_of(options, stored, wanted));
      f.batch_ = wanted.size() == 4 ? wanted[0] : 1;
      f.total_ = static_cast<std::int64_t>(given.pictures.size());
      continue;
    }
    OCTAVO_TRY(auto tensor, converted(given.arrays.at(binding.name), binding.type.dtype, binding.name));
    const bool whole = tensor.shape() == wanted;
    const std::int64_t k = whole ? 1 : same_rows(tensor.shape(), wanted) ? (tensor.shape()[0] + wanted[0] - 1) / wanted[0] : 0;
    // Several inputs must agree on what a run is; of one, the last run may be short.
    const bool exact = whole || (k > 0 && tensor.shape()[0] % wanted[0] == 0);
    if (k == 0 || (runs != 0 && k != runs) || (plan.inputs.size() > 1 && !exact)) {
      return fail(ErrorKind::bad_input,
                  fmt::format("input \"{}\" takes {}, the array is {}{}", binding.name, ir::to_string(binding.type),
                              ir::to_string(tensor.type()), layout_hint(tensor.shape(), wanted)));
    }
    runs = k;
    if (!whole && f.picture_slot_ == plan.inputs.size()) {
      f.batch_ = wanted[0];
      f.total_ = tensor.shape()[0];
    }
    f.whole_.push_back(std::move(tensor));
  }
  const bool pictures = f.picture_slot_ < plan.inputs.size();
  if (pictures && runs > 1)
    return fail(ErrorKind::usage, "a picture and an array of several runs do not go together; pass the pictures as an array");
  f.count_ = static_cast<std::size_t>(pictures ? (f.total_ + f.batch_ - 1) / f.batch_ : runs);
  return f;
}

Status Feeds::fill_pictures(std::size_t run, Feed& feed) const {
  const ir::TensorType& type = plan_->inputs[picture_slot_].type;
  ir::TensorType one = type;
  if (one.shape.size() == 4) one.shape[0] = 1;
  ir::Tensor& rows_of_batch = feed.tensors[picture_slot_];
  rows_of_batch = ir::Tensor(type);
  std::memset(rows_of_batch.mutable_bytes().data(), 0, rows_of_batch.bytes().size());
  for (std::int64_t row = 0; row < batch_; ++row) {
    const auto k = run * static_cast<std::size_t>(batch_) + static_cast<std::size_t>(row);
    if (k >= given_->pictures.size()) break;
    const Source& source = given_->pictures[k];
    OCTAVO_TRY(const auto bytes, source.read());
    OCTAVO_TRY(const auto image, decode_image(bytes, fmt::format("\"{}\"", source.name)));
    OCTAVO_TRY(const auto tensor, to_tensor(image, recipe_, one));
    std::memcpy(rows_of_batch.mutable_bytes().data() + static_cast<std::size_t>(row) * tensor.bytes().size(), tensor.bytes().data(),
                tensor.bytes().size());
    feed.rows.push_back(source.name);
  }
  feed.used = static_cast<std::int64_t>(feed.rows.size());
  feed.name = feed.rows.front();
  if (feed.used > 1) feed.name += fmt::format(" and {} more", feed.used - 1);
  return {};
}

Result<Feed> Feeds::at(std::size_t run) const {
  Feed feed;
  if (picture_slot_ < plan_->inputs.size()) {
    feed.tensors = whole_;
    OCTAVO_CHECK(fill_pictures(run, feed));
    return feed;
  }
  const std::int64_t first = static_cast<std::int64_t>(run) * batch_;
  if (count_ > 1) feed.name = fmt::format("part {} of {}", run + 1, count_);
  if (total_ != batch_ || count_ > 1) feed.used = std::min(batch_, total_ - first);
  for (std::size_t i = 0; i < whole_.size(); ++i) {
    const ir::Shape& wanted = plan_->inputs[i].type.shape;
    if (whole_[i].shape() == wanted) {
      feed.tensors.push_back(whole_[i]);
      continue;
    }
    const std::int64_t at = static_cast<std::int64_t>(run) * wanted[0];
    feed.tensors.push_back(rows(whole_[i], at, std::min(wanted[0], whole_[i].shape()[0] - at), wanted[0]));
  }
  const std::int64_t used = feed.used < 0 ? static_cast<std::int64_t>(given_->rows.size()) : feed.used;
  for (std::int64_t r = first; r < first + used && r < static_cast<std::int64_t>(given_->rows.size()); ++r)
    feed.rows.push_back(given_->rows[static_cast<std::size_t>(r)]);
  return feed;
}

Result<std::vector<Feed>> make_feeds(const Given& given, const RecipeOptions& options, const engine::Engine& engine) {
  OCTAVO_TRY(const Feeds feeds, Feeds::create(given, options, stored_recipe(engine), engine.plan()));
  std::vector<Feed> out;
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    OCTAVO_TRY(out.emplace_back(), feeds.at(i));
  }
  return out;
}

}  // namespace octavo::cli
