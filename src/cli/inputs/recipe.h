// Which preprocessing a run uses: what the options say, what `build` stored in the engine, or none.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/effect.h"
#include "cli/inputs/image.h"
#include "engine/engine.h"

namespace octavo::cli {

struct RecipeOptions {
  std::string preset, resize, crop, letterbox, scale, mean, std, layout;
  bool bgr = false;
  /// The options that were given, as text: "--preset torch --bgr". Empty: none.
  [[nodiscard]] std::string text() const;
  /// Anything that says how pixels become numbers.
  [[nodiscard]] bool given() const {
    return !preset.empty() || !resize.empty() || !crop.empty() || !letterbox.empty() || !scale.empty() || !mean.empty() ||
           !std.empty() || bgr;
  }
};
/// --preset, --resize, --crop, --letterbox, --scale, --mean, --std, --bgr, --layout, in a group of their own.
/// `why`: asked for each of them, why it has no effect.
void add_recipe_options(Arguments& app, RecipeOptions& options, const WhyNoEffect& why);
/// That no picture is among what a command reads, so that none of these options has an effect.
[[nodiscard]] Error no_picture(const RecipeOptions& options);

/// The options over `stored` (from recipe_text; empty: nothing stored), for an input of this shape. --preset replaces what is stored,
/// the other options change it. Errors: usage for options that say nothing; bad_input for a shape that takes no picture, and for a
/// stored text that is damaged.
[[nodiscard]] Result<Preprocess> recipe_of(const RecipeOptions& options, const std::string& stored, const ir::Shape& shape);

/// A recipe as JSON, for engine files and for people; the same recipe has one text.
[[nodiscard]] std::string recipe_text(const Preprocess& p);
[[nodiscard]] Result<Preprocess> parse_recipe(const std::string& text);

/// The key of Engine::notes under which `build` stores a recipe.
inline constexpr const char* kRecipeNote = "preprocess";
/// What an engine stores, or "".
[[nodiscard]] std::string stored_recipe(const engine::Engine& engine);

}  // namespace octavo::cli
