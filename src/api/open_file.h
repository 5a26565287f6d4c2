// The sections of an engine file that serves a range of shapes: engine::section::kOpen and kOpenData.
//
// kOpen is JSON:
//   inputs, outputs   [{"name", "dtype", "dims" (-1: open), "symbols"}], as the model declares them
//   ranges            {input: [min, opt, max]}
//   options           of the build, as build_text writes them
//   codes             bytes of each machine code that plans of a GPU start for shapes of the range
//   plans             for each plan of the file, in its order:
//     shapes          of all inputs, that it was tuned for
//     tuned           false: planned by the decisions of another one, because it has another form (of a batch of one, say)
//     decided         what was decided for them (plan/decided_json.h), for shapes that have to be planned
//     follows         how plans for other shapes follow from it (Resizer::to_json); absent: they have to be planned
//     why             then: why
// kOpenData: of a plan with `follows`, the longer contents of constants, and the numbers of its launches (api/launch_table.h); behind those of the plans the
// machine codes, one behind the other.
#pragma once

#include <vector>

#include "api/shapes.h"
#include "base/result.h"
#include "engine/source.h"
#include "onnx/import/import.h"

namespace octavo::api {

/// What a file declares, without its plans.
struct OpenInputs {
  std::vector<onnx::InputInfo> inputs, outputs;
  ShapeRanges ranges;
};
/// Trusts nothing. Errors: bad_engine; usage for a file without a range.
[[nodiscard]] Result<OpenInputs> open_inputs(const engine::EngineFile& file);

/// "ids [1,1] to [8,512], mask [1,1] to [8,512]"
[[nodiscard]] std::string range_text(const ShapeRanges& ranges);

}  // namespace octavo::api
