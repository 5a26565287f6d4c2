// What a user may have forgotten to say about pictures.
#pragma once

#include <string>

#include "cli/inputs/model.h"
#include "cli/inputs/recipe.h"

namespace octavo::cli {

/// A hint on stderr if pixels go in as 0 to 255 because no preprocessing was given, although the input takes floats and, as far
/// as its quantizer tells, does not reach that far. No hint if options or the engine have a preprocessing, if the quantizer covers pixels,
/// and for inputs of integers.
void hint_preprocessing(const Loaded& loaded, const RecipeOptions& options, const std::string& stored, const std::string& input,
                        const Preprocess& used);

}  // namespace octavo::cli
