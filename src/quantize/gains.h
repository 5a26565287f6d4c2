// What each correction does to the signal to noise at the outputs (Options::gains).
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "quantize/quantize.h"

namespace octavo::quantize {

/// The corrections of `options`, switched on one after the other; ranges by `options.method` each time. `quantize` is called once for
/// each of them and once without any. Errors: those of `quantize`.
[[nodiscard]] Result<std::vector<Gain>> gains_of(const Options& options,
                                                 const std::function<Result<Outcome>(const Options&)>& quantize);

}  // namespace octavo::quantize
