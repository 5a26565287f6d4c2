#include "cli/inputs/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/inputs/options.h"

namespace octavo::cli {

std::string RecipeOptions::text() const {
  std::string out;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) out += fmt::format("{}{} {}", out.empty() ? "" : " ", name, value);
  };
  add("--preset", preset), add("--resize", resize), add("--crop", crop), add("--letterbox", letterbox), add("--scale", scale);
  add("--mean", mean), add("--std", std), add("--layout", layout);
  if (bgr) out += out.empty() ? "--bgr" : " --bgr";
  return out;
}

Error no_picture(const RecipeOptions& o) {
  return {ErrorKind::usage, fmt::format("{} has no effect: there is no picture among the inputs, and arrays are taken as they are\n"
                                        "  leave it out, or give pictures (JPEG, PNG)",
                                        o.text())};
}

void add_recipe_options(Arguments& app, RecipeOptions& o, const WhyNoEffect& why) {
  const std::string group = "Pictures";
  const auto add = [&](const char* name, std::string& value, const char* help, const char* type) {
    return has_effect(app, app.add_option(name, value, help)->group(group)->type_name(type), why);
  };
  add("--preset", o.preset,
      "Preprocessing recipe: torch (the same as imagenet), tf, caffe, cifar or yolox; the options below change it", "NAME");
  add("--resize", o.resize, "Resize to HxW, or the short side to S (default: the input's size)", "SIZE");
  add("--crop", o.crop, "After resizing, crop the centre to HxW or SxS", "SIZE");
  add("--letterbox", o.letterbox,
      "Instead of --resize and --crop: keep the aspect ratio, fill right and bottom with this grey (0 to 255)", "VALUE");
  add("--scale", o.scale, "Multiply pixels by this: (x * scale - mean) / std; for example 1/255", "NUMBER");
  add("--mean", o.mean, "Subtract this: one number, or one for each channel, for example 0.485,0.456,0.406", "NUMBERS");
  add("--std", o.std, "Divide by this: one number, or one for each channel", "NUMBERS");
  has_effect(app, app.add_flag("--bgr", o.bgr, "Channels in the order blue, green, red")->group(group), why);
  add("--layout", o.layout, "nchw or nhwc, if the shape of the input leaves it open", "LAYOUT")->check(OneOf({"nchw", "nhwc"}));
}

Result<Preprocess> recipe_of(const RecipeOptions& o, const std::string& stored, const ir::Shape& shape) {
  bool channels_last = false;
  OCTAVO_TRY(const auto size, picture_shape(shape, o.layout, channels_last));
  Preprocess p;
  if (!o.preset.empty()) {
    OCTAVO_TRY(p, preset(o.preset, {size[0], size[1]}));
  } else if (!stored.empty()) {
    OCTAVO_TRY(p, parse_recipe(stored));
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
    if (fill.size() != 1 || !(fill[0] >= 0 && fill[0] <= 255))
      return fail(ErrorKind::usage, fmt::format("--letterbox {}: not a grey value from 0 to 255", o.letterbox));
    p.letterbox = static_cast<int>(fill[0]);
  }
  if (!o.scale.empty()) {
    OCTAVO_TRY(const auto scale, parse_numbers("--scale", o.scale));
    if (scale.size() != 1 || scale[0] == 0)
      return fail(ErrorKind::usage,
                  fmt::format("--scale {}: takes one number that is not 0; --std takes one for each channel", o.scale));
    p.scale = scale[0];
  }
  if (!o.mean.empty()) {
    OCTAVO_TRY(p.mean, parse_numbers("--mean", o.mean));
  }
  if (!o.std.empty()) {
    OCTAVO_TRY(p.std, parse_numbers("--std", o.std));
    if (std::ranges::any_of(p.std, [](float s) { return s <= 0; }))
      return fail(ErrorKind::usage, fmt::format("--std {}: pixels are divided by it: every number must be above 0", o.std));
  }
  p.bgr = p.bgr || o.bgr;
  if (!o.layout.empty()) p.layout = o.layout;
  return p;
}

std::string recipe_text(const Preprocess& p) {
  nlohmann::ordered_json j;
  if (p.resize) j["resize"] = *p.resize;
  if (p.crop) j["crop"] = *p.crop;
  if (p.letterbox) j["letterbox"] = *p.letterbox;
  j["scale"] = p.scale;
  j["mean"] = p.mean;
  j["std"] = p.std;
  j["bgr"] = p.bgr;
  if (!p.layout.empty()) j["layout"] = p.layout;
  return j.dump();
}

Result<Preprocess> parse_recipe(const std::string& text) {
  const auto j = nlohmann::json::parse(text, nullptr, false);
  Preprocess p;
  // The library's conversions throw for other types; the text may come from a file.
  try {
    if (!j.is_object()) throw nlohmann::json::type_error::create(302, "not an object", nullptr);
    if (j.contains("resize")) p.resize = j["resize"].get<std::array<int, 2>>();
    if (j.contains("crop")) p.crop = j["crop"].get<std::array<int, 2>>();
    if (j.contains("letterbox")) p.letterbox = j["letterbox"].get<int>();
    p.scale = j.at("scale").get<float>();
    p.mean = j.at("mean").get<std::vector<float>>();
    p.std = j.at("std").get<std::vector<float>>();
    p.bgr = j.at("bgr").get<bool>();
    if (j.contains("layout")) p.layout = j["layout"].get<std::string>();
  } catch (const nlohmann::json::exception& e) {
    return fail(ErrorKind::bad_input, fmt::format("the stored preprocessing \"{}\" is damaged: {}", text, e.what()));
  }
  const auto size_ok = [](const std::optional<std::array<int, 2>>& s) {
    return !s || ((*s)[0] >= 1 && (*s)[0] <= 16384 && (*s)[1] >= 0 && (*s)[1] <= 16384);
  };
  const bool grey_ok = !p.letterbox || (*p.letterbox >= 0 && *p.letterbox <= 255);
  if (!size_ok(p.resize) || !size_ok(p.crop) || !grey_ok || p.mean.empty() || p.std.empty() ||
      (!p.layout.empty() && p.layout != "nchw" && p.layout != "nhwc"))
    return fail(ErrorKind::bad_input, fmt::format("the stored preprocessing \"{}\" is damaged: a value is out of its range", text));
  return p;
}

std::string stored_recipe(const engine::Engine& engine) {
  const auto found = engine.notes().find(kRecipeNote);
  return found == engine.notes().end() ? std::string() : found->second;
}

}  // namespace octavo::cli
