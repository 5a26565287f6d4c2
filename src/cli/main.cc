#include <malloc.h>

#include <csignal>

#include "cli/commands.h"

int main(int argc, char** argv) {
#ifdef M_MMAP_THRESHOLD
  // Weights and what tactics are timed with go back to the system when they are freed. The C library would raise this threshold to the largest
  // block that was freed, and keep what is below.
  (void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is a failed write, with an error, and not the end of the process
  return octavo::cli::run_main(argc, argv);
}
