// The runs that inputs make.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "cli/inputs/array_fit.h"
#include "cli/inputs/inputs.h"

namespace octavo::cli {
namespace {

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

}  // namespace

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
    return fail(ErrorKind::usage, "a picture cannot be combined with an array of several runs; pass the pictures as an array");
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
    const auto read = [&]() -> Result<Image> {
      OCTAVO_TRY(const auto bytes, source.read());
      return decode_image(bytes, fmt::format("\"{}\"", source.name));
    };
    const auto image = read();
    if (!image) {
      if (!given_->go_on || given_->pictures.size() == 1) return tl::unexpected<Error>(image.error());
      feed.unreadable.push_back(image.error());
      continue;
    }
    OCTAVO_TRY(const auto tensor, to_tensor(*image, recipe_, one));
    std::memcpy(rows_of_batch.mutable_bytes().data() + feed.rows.size() * tensor.bytes().size(), tensor.bytes().data(),
                tensor.bytes().size());
    feed.rows.push_back(source.name);
  }
  feed.used = static_cast<std::int64_t>(feed.rows.size());
  if (feed.rows.empty()) return {};
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
  feed.name = given_->name;
  if (count_ > 1) feed.name += fmt::format("{}part {} of {}", feed.name.empty() ? "" : " ", run + 1, count_);
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
