#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/commands/commands.h"

namespace {

/// Weights and what tactics are timed with go back to the system when they are freed. The C library would raise this threshold to the largest
/// block that was freed, and keep what is below. For a large model a part of its size: blocks that the system gives out again and again
/// are filled with zeros each time, which took a third of a build of ResNet50 with a full timing cache.
void return_freed_memory(int argc, char** argv) {
#ifdef M_MMAP_THRESHOLD
  std::uintmax_t model = 0;
  for (int i = 1; i < argc; ++i) {
    std::error_code none;
    if (!std::string_view(argv[i]).ends_with(".onnx")) continue;
    const std::uintmax_t bytes = std::filesystem::file_size(argv[i], none);
    if (!none) model = std::max(model, bytes);
  }
  constexpr std::uintmax_t kLeast = 256 << 10, kMost = 4 << 20;
  const auto threshold = static_cast<int>(std::clamp(model / 32, kLeast, kMost));
  (void)mallopt(M_MMAP_THRESHOLD, threshold);
  if (model / 32 > kLeast) (void)mallopt(M_TRIM_THRESHOLD, 4 * threshold);
  // The compiler of a GPU's kernels asks for small blocks and frees them, on every core, and the system hands pages out under one lock: with room
  // left at the end of what the library holds, a build of DenseNet121 takes about a sixth of 894,000 pages.
  constexpr int kRoom = 16 << 20;
  if (std::any_of(argv, argv + argc, [](std::string_view word) { return word.find("cuda") != std::string_view::npos; }))
    (void)mallopt(M_TOP_PAD, kRoom);
#else
  (void)argc, (void)argv;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  return_freed_memory(argc, argv);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is a failed write, with an error, and not the end of the process
  return octavo::cli::run_main(argc, argv);
}
