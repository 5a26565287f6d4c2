// The program of a stage over pixels of float sums, in generated code: as BlockEpilogue (access.h) runs it, with the same bits, but all values of a few vectors stay in
// registers. For kernels that compute their sums elsewhere.
#pragma once

#include <memory>
#include <vector>

#include "cpu/isa.h"
#include "region/provider.h"
#include "region/refusal.h"

namespace octavo::cpu {

class GeneratedEpilogue {
 public:
  virtual ~GeneratedEpilogue() = default;
  /// sums[p * cols + j]: of the pixels (n, h, w + p), channels c + j. `cols` is one of the widths that it was made for; `pixels` at most as many as it
  /// was made for. Reads up to 15 floats behind the last sum. A program that reads no sums may have none: null.
  virtual void run(const region::Memory& memory, const float* sums, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w,
                   std::int64_t pixels, std::int64_t cols) const = 0;
};

#if defined(__x86_64__)
/// Why no code is generated for the stage on a level: one below AVX2, a rank other than 4, operands or types that the generator does not take
/// (jit/lower.h). Empty: it is.
[[nodiscard]] Reasons why_not_generated(const region::Stage& stage, Isa isa);
/// Null where no code is generated. Errors: `internal`, what the code generator says.
[[nodiscard]] Result<std::unique_ptr<GeneratedEpilogue>> generated_epilogue(const region::Stage& stage, Isa isa,
                                                                            const std::vector<std::int64_t>& widths,
                                                                            std::int64_t pixels);
#else
[[nodiscard]] inline Reasons why_not_generated(const region::Stage&, Isa) {
  return region::unmet("code generator", "none for this processor", "one");
}
[[nodiscard]] inline Result<std::unique_ptr<GeneratedEpilogue>> generated_epilogue(const region::Stage&, Isa,
                                                                                   const std::vector<std::int64_t>&, std::int64_t) {
  return std::unique_ptr<GeneratedEpilogue>();
}
#endif

}  // namespace octavo::cpu
