// Bindings: network inputs and outputs in the type and layout that the caller has.
//
// A binding is a rewrite of the graph's edge: an input of another type is followed by a cast or a DequantizeLinear, one of another
// layout by a Slice and a Transpose, outputs the other way round. Those operators cost nothing: strides carry layouts, and the
// first and the last region read and store the type that is there.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"
#include "region/region.h"

namespace octavo::plan {

/// "uint8:hwc", "fp16", "int8:hwc8": type (float32, float16, bfloat16, int8, uint8; fp32, fp16, bf16 too), then the layout: chw (as
/// the model declares it), hwc (channels last), hwcN (channels last, padded to a multiple of N elements), chwN where all channels
/// fit into one group. Errors: `usage` naming what is known.
[[nodiscard]] Result<BindingFormat> parse_format(std::string_view text);
[[nodiscard]] std::string to_string(const BindingFormat& format);

struct BoundTensor {
  std::string format;
  std::optional<ir::Quantizer> quantizer;  ///< when it holds codes
};

/// Rewrites the bound inputs and outputs; gives what Binding::format and ::quantizer are to say, by name. Call after the laws have
/// formed views (codes need one quantizer that every reader of the input, or the output itself, goes through). Errors: `usage`
/// naming the tensor, what stands in the way, and the way out.
[[nodiscard]] Result<std::map<std::string, BoundTensor>> bind(ir::Graph& g, const std::map<std::string, BindingFormat>& formats);

}  // namespace octavo::plan
