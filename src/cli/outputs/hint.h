// What a user may have forgotten to say about pictures.
#pragma once

#include <string>

#include "cli/inputs/model.h"
#include "cli/inputs/recipe.h"

namespace octavo::cli {

/// A hint on stderr when pixels go in as 0 to 255 because nobody named a preprocessing, although the input is of floats and, as far
/// as its quantizer tells, does not reach that far. Nothing where options or the engine say how, where the quantizer covers pixels,
/// and for inputs of integers.
void hint_preprocessing(const Loaded& loaded, const RecipeOptions& options, const std::string& stored, const std::string& input,
                        const Preprocess& used);

}  // namespace octavo::cli
