// Which values an operation of a spelled program takes when it does not say: for writing and reading region keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace octavo::region::detail {

/// The values that no operation has taken yet, oldest first.
class Unread {
 public:
  /// The last `n`, oldest first; fewer if there are not as many.
  [[nodiscard]] std::vector<int> last(std::size_t n) const {
    return {values_.end() - static_cast<std::ptrdiff_t>(std::min(n, values_.size())), values_.end()};
  }
  /// The next instruction took `args` and made a value.
  void made(const std::vector<int>& args) {
    for (const int a : args) values_.erase(std::remove(values_.begin(), values_.end(), a), values_.end());
    values_.push_back(count_++);
  }

 private:
  std::vector<int> values_;
  int count_ = 0;
};

}  // namespace octavo::region::detail
