// Compilations that run at the same time: one in this process, the others each in a process of its own. NVRTC holds one lock of its process during a
// large part of each compilation, so threads of one process wait for each other.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cuda/device/compile_process.h"
#include "cuda/device/nvrtc.h"

namespace octavo::cuda {

/// Thread-safe. Processes are started when compilations meet, and end after the last compilation unless somebody keeps them.
class CompilePool {
 public:
  /// `program`: octavo-nvrtc, or the reason why there is none. `most`: processes beside this one.
  CompilePool(Result<std::string> program, int most);
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  /// cuda::compile, here or in another process. Where none can be started, all compile here.
  [[nodiscard]] Result<Compiled> compile(std::string_view text, const std::vector<std::string>& options);
  /// From keep() to as many calls of release(), processes without work stay.
  void keep();
  void release();

  /// Why no more processes are started; empty: nothing stands against it.
  [[nodiscard]] std::string refusal() const;
  /// That exist now.
  [[nodiscard]] int processes() const;

 private:
  using Process = std::unique_ptr<CompileProcess>;
  [[nodiscard]] Process take_new(std::unique_lock<std::mutex>& lock);
  void done(std::unique_lock<std::mutex>& lock);

  const Result<std::string> program_;
  mutable std::mutex mutex_;
  std::condition_variable free_;
  // Under mutex_:
  bool here_ = false;  ///< this process compiles
  int most_, processes_ = 0, waiting_ = 0, keeps_ = 0;
  std::vector<Process> idle_;
  std::string refusal_;
};

/// The pool of this process; a child of fork() has its own. As many processes as there are processors but one, 31 at most.
[[nodiscard]] CompilePool& compile_pool();

/// Keeps the processes of compile_pool(), once however often it is asked to. Thread-safe.
class KeptProcesses {
 public:
  KeptProcesses() = default;
  ~KeptProcesses() { release(); }
  KeptProcesses(const KeptProcesses&) = delete;
  KeptProcesses& operator=(const KeptProcesses&) = delete;
  void keep();
  void release();

 private:
  std::mutex mutex_;
  bool kept_ = false;        ///< under mutex_
  unsigned generation_ = 0;  ///< under mutex_: fork_generation() of then
};

}  // namespace octavo::cuda
