// Imports of hostile files in processes of their own, with limits of time and memory, and the corpus that such files are made of.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "ir/verify.h"
#include "onnx/diagnosis/diagnose.h"
#include "onnx/import/import.h"

namespace octavo::onnx::testing {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr int kSeconds = kSanitized ? 20 : 5;  // a sanitizer slows down by a factor of 3 to 4
inline constexpr std::int64_t kMostBytes = std::int64_t{2} << 30;

/// What the child has come to: shared memory, so that it outlives a crash.
struct Progress {
  std::uint64_t current, imported, refused, errors;
};

/// "" or what is wrong with the answer to these bytes.
inline std::string judge(const std::string& bytes, Progress& p) {
  const auto m = import_bytes({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, {}, "");
  ++(m ? p.imported : p.refused);
  // On whatever import refuses too.
  if (const auto parsed = Parsed::bytes({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, ""))
    (void)diagnose(*parsed);
  if (m) {
    const auto status = ir::verify(m->graph);
    return status ? "" : "the imported graph is not valid: " + status.error().message;
  }
  if (m.error().message.empty()) return "an error without a text";
  return m.error().kind == ErrorKind::internal ? m.error().message : "";
}

/// Judges the files first..last in a child with limits. After a crash, the next child goes on behind the file that crashed; `about`
/// says what that file is.
inline void run_limited(std::uint64_t first, std::uint64_t last, const std::function<std::string(std::uint64_t)>& file,
                        const std::function<std::string(std::uint64_t)>& about, Progress& total) {
  void* shared = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& p = *static_cast<Progress*>(shared);
  for (std::uint64_t next = first; next < last; next = p.current + 1) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (!kSanitized) {
        const rlimit space{static_cast<rlim_t>(kMostBytes), static_cast<rlim_t>(kMostBytes)};
        ::setrlimit(RLIMIT_AS, &space);
      }
      for (std::uint64_t i = next; i < last; ++i) {
        p.current = i;
        const itimerval limit{{0, 0}, {kSeconds, 0}};
        ::setitimer(ITIMER_PROF, &limit, nullptr);  // processor time: SIGPROF ends the child
        ::alarm(600);                               // and one that only waits, on a busy machine too
        if (const std::string wrong = judge(file(i), p); !wrong.empty()) {
          std::fprintf(stderr, "file %llu: %s\n", static_cast<unsigned long long>(i), wrong.c_str());
          ++p.errors;
        }
      }
      p.current = last;
      ::_exit(0);
    }
    int status = 0;
    rusage used{};
    ASSERT_EQ(::wait4(child, &status, 0, &used), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "file " << p.current << ": "
        << (WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status)) : "a sanitizer's report") << "; " << about(p.current);
    EXPECT_LT(std::int64_t{used.ru_maxrss} * 1024, kMostBytes) << "resident memory, files " << next << " to " << p.current;
  }
  total.imported += p.imported, total.refused += p.refused, total.errors += p.errors;
  ::munmap(shared, sizeof(Progress));
}

inline std::vector<std::string> corpus() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(OCTAVO_SOURCE_DIR) / "fuzz/corpus/onnx")) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> out;
  for (const fs::path& path : paths) {
    std::ifstream in(path, std::ios::binary);
    out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return out;
}

}  // namespace octavo::onnx::testing
