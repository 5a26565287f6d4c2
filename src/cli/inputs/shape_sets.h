// Which shapes, and which values of inputs that decide shapes, the options ask for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "api/open_model.h"
#include "base/result.h"
#include "cli/inputs/model.h"
#include "cli/inputs/npy.h"
#include "engine/set.h"
#include "onnx/import/import.h"

namespace octavo::cli {

/// Sets of shapes that a range of --minShapes and --maxShapes may have where it is built whole: with --values.
inline constexpr std::int64_t kMostInRange = 32;

/// The shapes of the one set that --shapes or --optShapes names; empty when neither is given. Errors: usage for several --shapes.
[[nodiscard]] Result<Shapes> given_shapes(const ModelOptions& options);
/// Are these between --minShapes and --maxShapes? Errors: usage for options that contradict each other; bad_input naming the input, the
/// dimension, what it is and its ends.
[[nodiscard]] Status check_range(const ModelOptions& options, const Shapes& shapes);
/// --values by input name, of these types. Errors: usage for a name or a text that does not fit, or for several values of one input.
[[nodiscard]] Result<std::map<std::string, ir::Tensor>> given_values(const ModelOptions& options,
                                                                     const std::vector<InputDeclaration>& inputs);

/// --minShapes, --optShapes and --maxShapes; empty where there is no range. Errors: usage where they contradict each other.
[[nodiscard]] Result<api::ShapeRanges> given_range(const ModelOptions& options);

/// The options once for each engine that `octavo build` is to make and tune: for every --shapes (of a range, that of --optShapes first), and every
/// combination of --values of different inputs; with --values for every set of shapes of a range. Errors: usage, also for more than a file can hold.
[[nodiscard]] Result<std::vector<ModelOptions>> shape_sets(const ModelOptions& options);

/// Of an engine that is one of a range: the range, whose decisions it has, its extents, and how much working memory it takes beside the largest of the
/// range. Lines; empty for others.
[[nodiscard]] std::string range_lines(const Loaded& loaded);

/// The engine of a file for a range: for --shapes and `shapes`, otherwise the opt shapes, of the batch that --batch names. Errors: bad_input outside of the
/// range, naming it; those of a build where the shapes have to be planned.
[[nodiscard]] Result<std::shared_ptr<const engine::Engine>> choose(const api::OpenModel& open, const ModelOptions& options,
                                                                   const Shapes& shapes, const Arrays& arrays);
/// The engine of a file that fits --shapes, --values, and the `shapes` and `arrays` of a run; where several do, the one for `batch`.
[[nodiscard]] Result<std::shared_ptr<const engine::Engine>> choose(const engine::Engines& engines, const ModelOptions& options,
                                                                   const Shapes& shapes, std::int64_t batch, const Arrays& arrays);

}  // namespace octavo::cli
