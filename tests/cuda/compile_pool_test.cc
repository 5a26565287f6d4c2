// Kernels compiled in processes beside this one: the same machine code and errors, and no process outlives its work, whatever becomes of it.
#include "cuda/device/compile_pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include <vector>

#include "cuda/device/compile_process.h"
#include "cuda/device/compile_protocol.h"
#include "cuda/device/nvrtc.h"
#include "cuda/program_kernel.h"
#include "cuda/text/emit_cuda.h"
#include "program/random_program.h"
#include "support/wait_until.h"

namespace octavo::cuda {
namespace {

using testing::wait_until;

const std::string kProgram = OCTAVO_NVRTC_PROGRAM;
const std::vector<std::string> kOptions = compile_options("sm_90a");

std::string text(int number) {
  return fmt::format("extern \"C\" __global__ void k{0}(int* p) {{ p[threadIdx.x] = {0}; }}\n", number);
}

/// Takes NVRTC half a second or more: no text is like another one, which NVRTC might have kept on disk.
std::string long_text() {
  static std::atomic<int> made{0};
  std::string out = emit_prelude() + argument_structures();
  for (unsigned seed = 0; seed < 6; ++seed)
    out += emit_kernel(
        {"of" + std::to_string(seed), program::random_program(seed, 200), {ir::DType::f32, ir::DType::f32, ir::DType::f32}});
  return out + text(::getpid() % 1000000 * 1000 + made++);
}

/// All children of this process; zombies too.
std::set<pid_t> children() {
  std::set<pid_t> out;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream in(task.path() / "children");
    out.insert(std::istream_iterator<pid_t>(in), {});
  }
  return out;
}

/// A shell script in place of octavo-nvrtc.
class Script {
 public:
  explicit Script(const std::string& body)
      : path_(std::filesystem::temp_directory_path() / fmt::format("octavo-nvrtc-{}-{}", ::getpid(), number_++)) {
    std::ofstream(path_) << "#!/bin/sh\n" << body << "\n";
    EXPECT_EQ(::chmod(path_.c_str(), 0700), 0);
  }
  ~Script() { std::filesystem::remove(path_); }
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  static inline int number_ = 0;
  std::filesystem::path path_;
};

class CompilePoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto version = compiler_version(); !version) GTEST_SKIP() << version.error().message;
    ASSERT_EQ(children(), std::set<pid_t>()) << "of an earlier test";
  }
  void TearDown() override { EXPECT_EQ(children(), std::set<pid_t>()) << "a process was left"; }
};

/// The first, a long one, in this process; the second meanwhile, so in another process where there can be one.
std::vector<Result<Compiled>> two_at_once(CompilePool& pool, const std::string& first, const std::string& second) {
  std::vector<Result<Compiled>> out(2);
  std::thread other([&] { out[0] = pool.compile(first, kOptions); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  out[1] = pool.compile(second, kOptions);
  other.join();
  return out;
}

TEST_F(CompilePoolTest, AnotherProcessMakesTheSameMachineCode) {
  auto process = CompileProcess::start(kProgram);
  ASSERT_TRUE(process) << process.error().message;
  for (const std::string& one : {text(3), long_text()}) {
    const auto there = (*process)->compile(one, kOptions), here = compile(one, kOptions);
    ASSERT_TRUE(here) << here.error().message;
    ASSERT_TRUE(there) << there.error().message;
    EXPECT_TRUE(there->cubin == here->cubin);
    EXPECT_EQ(there->log, here->log);
    EXPECT_GT(there->processor_elsewhere, 0);
    EXPECT_EQ(here->processor_elsewhere, 0);
  }
}

TEST_F(CompilePoolTest, AnotherProcessGivesTheSameError) {
  auto process = CompileProcess::start(kProgram);
  ASSERT_TRUE(process) << process.error().message;
  for (const std::string broken : {"this is no program", ""}) {
    const auto there = (*process)->compile(broken, kOptions), here = compile(broken, kOptions);
    ASSERT_EQ(there.has_value(), here.has_value());
    if (here) continue;  // an empty text has machine code without kernels
    EXPECT_EQ(there.error().message, here.error().message);
    EXPECT_EQ(there.error().kind, here.error().kind);
  }
  const auto option = (*process)->compile(text(1), {"--no-such-option"});
  EXPECT_FALSE(option) << "and the process goes on";
  EXPECT_TRUE((*process)->compile(text(1), kOptions));
}

TEST_F(CompilePoolTest, ManyThreadsAreAllAnswered) {
  CompilePool pool(kProgram, 3);
  pool.keep();
  std::atomic<int> next{0}, right{0};
  std::atomic<double> elsewhere{0};
  const auto work = [&] {
    for (int i = next++; i < 64; i = next++) {
      const auto made = pool.compile(text(i), kOptions);
      if (made && made->cubin.find(fmt::format("k{}", i)) != std::string::npos) ++right;
      if (made) elsewhere = elsewhere + made->processor_elsewhere;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, 64);
  EXPECT_EQ(pool.refusal(), "");
  EXPECT_EQ(pool.processes(), 3) << "kept, and no more than allowed";
  EXPECT_EQ(children().size(), 3u);
  EXPECT_GT(elsewhere, 0);
  pool.release();
  EXPECT_EQ(pool.processes(), 0);
}

TEST_F(CompilePoolTest, OneAtATimeStartsNoProcess) {
  CompilePool pool(kProgram, 3);
  pool.keep();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.compile(text(i), kOptions));
  EXPECT_EQ(pool.processes(), 0);
  pool.release();
}

TEST_F(CompilePoolTest, ProcessesThatNobodyKeepsEndWithTheLastCompilation) {
  CompilePool pool(kProgram, 1);
  for (const auto& made : two_at_once(pool, long_text(), text(1))) EXPECT_TRUE(made) << made.error().message;
  EXPECT_EQ(pool.processes(), 0);
  EXPECT_EQ(children(), std::set<pid_t>());
}

TEST_F(CompilePoolTest, AKilledProcessIsAnErrorAndThePoolGoesOn) {
  CompilePool pool(kProgram, 1);
  pool.keep();
  ASSERT_TRUE(two_at_once(pool, long_text(), text(1))[1]);
  ASSERT_EQ(children().size(), 1u);
  const pid_t idle = *children().begin();
  ASSERT_EQ(::kill(idle, SIGKILL), 0);
  // An idle one that is gone costs no error: another is started.
  for (const auto& made : two_at_once(pool, long_text(), text(2))) EXPECT_TRUE(made) << made.error().message;
  ASSERT_EQ(children().size(), 1u);
  const pid_t busy = *children().begin();
  EXPECT_NE(busy, idle);
  std::thread here([&] { EXPECT_TRUE(pool.compile(long_text(), kOptions)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(::kill(busy, SIGKILL), 0);
  });
  const auto failed = pool.compile(long_text(), kOptions);
  killer.join();
  here.join();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::internal);
  EXPECT_EQ(failed.error().message, "compiling CUDA text: the process that compiled it was ended by signal 9");
  EXPECT_EQ(pool.processes(), 0);
  for (const auto& made : two_at_once(pool, long_text(), text(5))) EXPECT_TRUE(made) << made.error().message;
  EXPECT_EQ(pool.processes(), 1);
  EXPECT_EQ(pool.refusal(), "");
  pool.release();
}

TEST_F(CompilePoolTest, WithoutAProgramOfThisBuildThisProcessCompiles) {
  const Script garbage("echo 'this is no message of ours, and is long enough for a head of one'; cat >/dev/null 2>&1; exit 0"),
      silent("exit 3"), killed("kill -TERM $$"), loop("exec sleep 0"), other("printf '" + [] {
        std::string bytes;
        int ends[2];
        EXPECT_EQ(::pipe(ends), 0);
        EXPECT_TRUE(send_message(ends[1], {"octavo-nvrtc, messages 1, Octavo 0.0.9", "", ""}));
        ::close(ends[1]);
        char c = 0;
        while (::read(ends[0], &c, 1) == 1) bytes += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
        ::close(ends[0]);
        return bytes;
      }() + "'; cat >/dev/null");
  const struct {
    Result<std::string> program;
    std::string why;
  } cases[] = {
      {fail(ErrorKind::unsupported, "there is no x"), "there is no x"},
      {"/no/such/octavo-nvrtc", "/no/such/octavo-nvrtc was not started: No such file or directory"},
      {garbage.path(), garbage.path() + " gave no answer that this process understands"},
      {silent.path(), silent.path() + " ended with exit status 3"},
      {killed.path(), killed.path() + " was ended by signal 15"},
      {loop.path(), loop.path() + " gave no answer that this process understands"},
      {other.path(), other.path() + " is \"octavo-nvrtc, messages 1, Octavo 0.0.9\", this is \"" + protocol_name() + "\""},
  };
  for (const auto& c : cases) {
    CompilePool pool(c.program, 2);
    pool.keep();
    for (const auto& made : two_at_once(pool, long_text(), text(1))) {
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->processor_elsewhere, 0) << c.why;
    }
    EXPECT_EQ(pool.refusal(), c.why);
    EXPECT_EQ(pool.processes(), 0);
    EXPECT_EQ(children(), std::set<pid_t>());
    pool.release();
  }
}

TEST_F(CompilePoolTest, AnAnswerThatBreaksOffIsAnError) {
  // What octavo-nvrtc says first, and nothing more.
  const Script mute(fmt::format("'{}' \"$1\" </dev/null; head -c 32 >/dev/null; exit 4", kProgram));
  auto process = CompileProcess::start(mute.path());
  ASSERT_TRUE(process) << process.error().message;
  const auto made = (*process)->compile(text(1), kOptions);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "compiling CUDA text: the process that compiled it ended with exit status 4");
  EXPECT_FALSE((*process)->alive());
  EXPECT_FALSE((*process)->compile(text(1), kOptions)) << "again";
}

TEST_F(CompilePoolTest, AChildOfForkHasProcessesOfItsOwn) {
  KeptProcesses kept;
  kept.keep();
  CompilePool& pool = compile_pool();
  CompilePool own(kProgram, 1);
  own.keep();
  ASSERT_TRUE(two_at_once(own, long_text(), text(1))[1]);
  const std::set<pid_t> before = children();
  ASSERT_EQ(before.size(), 1u);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(120);
    // The parent's process is none of the child's; its own pool is another one and compiles.
    const bool right = &compile_pool() != &pool && children().empty() && compile_pool().compile(text(2), kOptions).has_value();
    kept.release();
    ::_exit(right && children().empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(children(), before) << "the parent's goes on";
  EXPECT_TRUE(two_at_once(own, long_text(), text(1))[1]);
  EXPECT_EQ(children(), before);
  own.release();
}

TEST_F(CompilePoolTest, AProcessEndsWithItsStarterAlthoughAChildOfForkLives) {
  int ends[2], life[2];  // of the child of fork: until the test ends
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::pipe(life), 0);
  const pid_t starter = ::fork();
  if (starter == 0) {
    auto process = CompileProcess::start(kProgram);
    const pid_t pid = process ? (*process)->pid() : -1;
    if (::fork() == 0) {  // has nothing of the process, and lives on
      ::close(ends[1]);
      ::close(life[1]);
      char c = 0;
      (void)!::read(life[0], &c, 1);
      ::_exit(0);
    }
    (void)!::write(ends[1], &pid, sizeof pid);
    ::kill(::getpid(), SIGKILL);
  }
  ::close(ends[1]);
  pid_t pid = -1;
  ASSERT_EQ(::read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(starter, &status, 0), starter);
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(wait_until([&] {  // gone, or a zombie that nobody waits for in a container without an init
    std::ifstream in(fmt::format("/proc/{}/stat", pid));
    std::string number, name, state;
    return !(in >> number >> name >> state) || state == "Z";
  })) << pid;
  ::close(life[0]);
  ::close(life[1]);
}

TEST(CompileProtocol, WhatIsNoMessageIsRefused) {
  const std::string magic = [] {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_TRUE(send_message(ends[1], {}));
    std::string head(16, '\0');
    EXPECT_EQ(::read(ends[0], head.data(), head.size()), 16);
    ::close(ends[0]), ::close(ends[1]);
    return head.substr(0, 8);
  }();
  const auto number = [](std::uint64_t v) { return std::string(reinterpret_cast<const char*>(&v), sizeof v); };
  const struct {
    std::string bytes;
    bool message;
  } cases[] = {
      {magic + number(1) + number(2) + "ab", true},
      {magic + number(0), true},
      {"", false},
      {magic, false},
      {magic + number(1) + number(2) + "a", false},
      {number(7) + number(1) + number(2) + "ab", false},
      {magic + number(kMostStrings + 1), false},
      {magic + number(1) + number(kMostMessageBytes + 1), false},
      {magic + number(2) + number(kMostMessageBytes) + number(~std::uint64_t{0}), false},
  };
  for (const auto& c : cases) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], c.bytes.data(), c.bytes.size()), static_cast<ssize_t>(c.bytes.size()));
    ::close(ends[1]);
    EXPECT_EQ(receive_message(ends[0]).has_value(), c.message) << c.bytes.size();
    ::close(ends[0]);
  }
  EXPECT_FALSE(read_answer({"done", "x", "", ""}));
  EXPECT_FALSE(read_answer({"done", "1", ""}));
  EXPECT_FALSE(read_answer({"failed", "1", "99", "why"}));
  EXPECT_TRUE(read_answer({"failed", "1", "0", "why"}));
  EXPECT_TRUE(read_answer({"done", "1", "cubin", ""}));
}

}  // namespace
}  // namespace octavo::cuda
