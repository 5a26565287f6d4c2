// Results must not depend on the rounding mode or flush-to-zero setting that the caller's thread happens to have.
#pragma once

#include <cfenv>

namespace octavo::engine {

/// Sets round-to-nearest, no flush to zero, no traps for the life of the object, then restores what was there.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace octavo::engine
