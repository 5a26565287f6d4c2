// Keeps oneDNN's OpenMP in the calling thread.
#pragma once

#include <omp.h>

namespace octavo::cpu {

/// While one lives, parallel regions of this thread have one thread: itself. The caller's setting comes back afterwards.
class SingleThread {
 public:
  SingleThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~SingleThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  int before_;
};

}  // namespace octavo::cpu
