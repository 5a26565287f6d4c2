// A process that compiles kernels beside this one: the program octavo-nvrtc.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cuda/device/nvrtc.h"

namespace octavo::cuda {

/// Where octavo-nvrtc lies: in the folder of the library or program that this code is part of, or in libexec/octavo beside or above that folder. Errors:
/// `unsupported`, naming what was tried.
[[nodiscard]] Result<std::string> find_compile_program();

/// For one thread at a time. A child of fork() has none of its parent's: there the object is dead, and its destructor leaves the process alone.
class CompileProcess {
 public:
  /// Starts `program` and checks that it is of this build and uses the NVRTC of this process. Errors: `unsupported`, with the reason.
  [[nodiscard]] static Result<std::unique_ptr<CompileProcess>> start(const std::string& program);
  /// Ends the process and waits for its end.
  ~CompileProcess();
  CompileProcess(const CompileProcess&) = delete;
  CompileProcess& operator=(const CompileProcess&) = delete;

  /// cuda::compile there. A process that gives no answer is an error `internal` that says how it ended.
  [[nodiscard]] Result<Compiled> compile(std::string_view text, const std::vector<std::string>& options);
  /// Has it not ended so far?
  [[nodiscard]] bool alive();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  CompileProcess(pid_t pid, int socket);
  void end();
  [[nodiscard]] std::string how_it_ended() const;

  pid_t pid_;
  int socket_;
  unsigned generation_;  ///< fork_generation() of its start
  bool ended_ = false;   ///< and was waited for
  bool known_ = false;   ///< how it ended is status_
  bool killed_ = false;  ///< by us
  int status_ = 0;
};

}  // namespace octavo::cuda
