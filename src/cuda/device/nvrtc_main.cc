// octavo-nvrtc [NVRTC]: compiles the CUDA texts that it reads from its standard input, and writes what comes of them to its standard output, until the input
// ends. Octavo starts some of them for itself: NVRTC holds one lock of its process during a large part of each compilation.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>

#include "cuda/device/compile_protocol.h"
#include "cuda/device/nvrtc.h"

namespace {

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace octavo;
  (void)std::signal(SIGINT, SIG_IGN);  // of the terminal: whoever started this one decides
  (void)std::signal(SIGPIPE, SIG_IGN);
  (void)::close_range(3, ~0U, 0);  // the starter's files are none of ours
  const int answers = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (answers < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 2;  // what NVRTC prints is no answer
  if (argc > 1 && ::setenv("OCTAVO_NVRTC", argv[1], 1) != 0) return 2;
  const auto version = cuda::compiler_version();
  const std::string path = cuda::compiler_path().value_or("");
  if (!cuda::send_message(answers, {cuda::protocol_name(), path, version ? *version : version.error().message})) return 1;
  while (const auto request = cuda::receive_message(STDIN_FILENO)) {
    if (request->empty()) return 1;
    const double begin = processor_seconds();
    const auto made = cuda::compile(request->front(), {request->begin() + 1, request->end()});
    if (!cuda::send_answer(answers, made, processor_seconds() - begin)) return 1;
  }
  ::_exit(0);  // at once: nothing is left to write, and somebody waits
}
