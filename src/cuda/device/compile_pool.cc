#include "cuda/device/compile_pool.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/build_work.h"
#include "base/fork.h"

namespace octavo::cuda {

CompilePool::CompilePool(Result<std::string> program, int most) : program_(std::move(program)), most_(program_ ? most : 0) {
  if (!program_) refusal_ = program_.error().message;
}

/// Starts one; null: that is refused, and nobody tries again.
CompilePool::Process CompilePool::take_new(std::unique_lock<std::mutex>& lock) {
  ++processes_;
  lock.unlock();
  auto started = CompileProcess::start(*program_);
  if (started) {
    BuildWork more;
    more.processes = 1;
    add_build_work(more);
  }
  lock.lock();
  if (started) return std::move(*started);
  --processes_;
  most_ = std::min(most_, processes_);
  refusal_ = started.error().message;
  return nullptr;
}

/// After a compilation: somebody who waits may go on, or else nobody needs the processes.
void CompilePool::done(std::unique_lock<std::mutex>& lock) {
  if (waiting_ > 0) free_.notify_one();
  std::vector<Process> unneeded;
  if (waiting_ == 0 && keeps_ == 0) {
    unneeded.swap(idle_);
    processes_ -= static_cast<int>(unneeded.size());
  }
  lock.unlock();  // their ends are waited for without it
}

Result<Compiled> CompilePool::compile(std::string_view text, const std::vector<std::string>& options) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!here_) {
      here_ = true;
      lock.unlock();
      Result<Compiled> made = cuda::compile(text, options);
      lock.lock();
      here_ = false;
      done(lock);
      return made;
    }
    Process process;
    if (!idle_.empty()) {
      process = std::move(idle_.back());
      idle_.pop_back();
      if (!process->alive()) {  // ended by somebody else, without work
        --processes_;
        continue;
      }
    } else if (processes_ < most_) {
      process = take_new(lock);
      if (process == nullptr) continue;
    } else {
      ++waiting_;
      free_.wait(lock);
      --waiting_;
      continue;
    }
    lock.unlock();
    Result<Compiled> made = process->compile(text, options);
    lock.lock();
    if (process->alive()) {
      idle_.push_back(std::move(process));
    } else {
      --processes_;
    }
    done(lock);
    return made;
  }
}

void CompilePool::keep() {
  const std::lock_guard lock(mutex_);
  ++keeps_;
}

void CompilePool::release() {
  std::unique_lock lock(mutex_);
  --keeps_;
  done(lock);
}

std::string CompilePool::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

int CompilePool::processes() const {
  const std::lock_guard lock(mutex_);
  return processes_;
}

CompilePool& compile_pool() {
  // Never destroyed: the parent's threads may have been in it when this process was forked. Processes end when their sockets close, as they do at exit.
  static CompilePool* pool = nullptr;
  static unsigned generation = 0;
  static const Result<std::string> program = find_compile_program();
  constexpr int kMost = 31;
  const std::lock_guard no_fork(fork_safe_mutex());
  if (pool == nullptr || generation != fork_generation()) {
    pool = new CompilePool(program, std::clamp(static_cast<int>(std::thread::hardware_concurrency()) - 1, 0, kMost));
    generation = fork_generation();
  }
  return *pool;
}

void KeptProcesses::keep() {
  const std::lock_guard lock(mutex_);
  if (kept_ && generation_ == fork_generation()) return;
  compile_pool().keep();
  kept_ = true, generation_ = fork_generation();
}

void KeptProcesses::release() {
  const std::lock_guard lock(mutex_);
  if (kept_ && generation_ == fork_generation()) compile_pool().release();
  kept_ = false;
}

}  // namespace octavo::cuda
