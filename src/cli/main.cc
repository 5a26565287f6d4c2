#include <csignal>

#include "cli/commands.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is a failed write, with an error, and not the end of the process
  return octavo::cli::run_main(argc, argv);
}
