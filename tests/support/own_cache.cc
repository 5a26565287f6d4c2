// Part of test programs that build engines: their timing cache is a folder of their own, gone when they end, never the user's.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

struct OwnCache {
  OwnCache() : folder(std::filesystem::temp_directory_path() / ("octavo-test-cache-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder);
    ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  }
  ~OwnCache() {
    std::error_code ignored;
    if (owner == ::getpid()) std::filesystem::remove_all(folder, ignored);
  }
  std::filesystem::path folder;
  pid_t owner = ::getpid();  // children of fork leave it alone
};
const OwnCache cache;

}  // namespace

// NVRTC is not compiled with a sanitizer: ThreadSanitizer does not see its locks, and it never gives back what opening a driver took.
// The sanitizers' libraries look for these functions in the program, which shows other names to nobody.
#define OCTAVO_SHOWN extern "C" __attribute__((visibility("default")))
OCTAVO_SHOWN const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "race:libnvrtc\n";
}
OCTAVO_SHOWN const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libnvrtc\n";
}
