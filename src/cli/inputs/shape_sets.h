// Which shapes, and which values of inputs that decide shapes, the options ask for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/inputs/model.h"
#include "cli/inputs/npy.h"
#include "engine/set.h"
#include "onnx/import/import.h"

namespace octavo::cli {

/// Sets of shapes that a range of --minShapes and --maxShapes may have to be built whole.
inline constexpr std::int64_t kMostInRange = 32;

/// The shapes of the one set that --shapes or --optShapes names; empty when neither is given. Errors: usage for several --shapes.
[[nodiscard]] Result<Shapes> given_shapes(const ModelOptions& options);
/// Are these between --minShapes and --maxShapes? Errors: usage for options that contradict each other; bad_input naming the input, the
/// dimension, what it is and its ends.
[[nodiscard]] Status check_range(const ModelOptions& options, const Shapes& shapes);
/// --values by input name, of these types. Errors: usage for a name or a text that does not fit, or for several values of one input.
[[nodiscard]] Result<std::map<std::string, ir::Tensor>> given_values(const ModelOptions& options,
                                                                     const std::vector<InputDeclaration>& inputs);

/// The options once for each engine that `octavo build` is to make: for every --shapes (or every set of shapes between --minShapes and
/// --maxShapes, that of --optShapes first), and every combination of --values of different inputs. Errors: usage, also for more than a file
/// can hold.
[[nodiscard]] Result<std::vector<ModelOptions>> shape_sets(const ModelOptions& options);

/// The engine of a file that fits --shapes, --values, and the `shapes` and `arrays` of a run; where several do, the one for `batch`.
[[nodiscard]] Result<std::shared_ptr<const engine::Engine>> choose(const engine::Engines& engines, const ModelOptions& options,
                                                                   const Shapes& shapes, std::int64_t batch, const Arrays& arrays);

}  // namespace octavo::cli
