// The order of long sums (reference/sums.h) as text: blocks of terms one after the other, then the sums of blocks in pairs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::cuda {

inline constexpr std::int64_t kSumBlock = 128;  ///< terms that the reference adds one after the other

/// "float octavo_total(const float* p)": of the sums of so many blocks.
[[nodiscard]] std::string total_of_blocks(std::int64_t blocks);
/// The same sum of `blocks`, a number that the kernel has, at most 1023.
[[nodiscard]] std::string total_of_open_blocks(std::string_view blocks);

}  // namespace octavo::cuda
