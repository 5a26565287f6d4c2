// One writer at a time, among processes and among threads.
#pragma once

#include <string>

#include "base/result.h"

namespace octavo::tune {

/// A lock that whoever rewrites a file holds from reading it to replacing it. It is the folder of the file that is locked (the file
/// itself is replaced), so no lock file is left behind; where a folder cannot be locked (some network file systems), a file
/// PATH.lock is. Other processes' locks are waited for. Released by the destructor, and by the system when the process ends.
class FileLock {
 public:
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();
  /// Once. Errors: io, when the folder cannot be opened or nothing can be locked.
  [[nodiscard]] Status take(const std::string& path);

 private:
  int fd_ = -1;
};

}  // namespace octavo::tune
