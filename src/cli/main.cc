#include "cli/commands.h"

int main(int argc, char** argv) {
  return octavo::cli::run_main(argc, argv);
}
