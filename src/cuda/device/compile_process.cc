#include "cuda/device/compile_process.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/fork.h"
#include "cuda/device/compile_protocol.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kProgram = "octavo-nvrtc";
constexpr int kStartSeconds = 60;  // opening NVRTC reads 100 MB, from a disk that may be slow
constexpr std::chrono::seconds kEnds{2};

/// This process's ends of all sockets, under fork_safe_mutex(). A child of fork() closes its copies at once: a process that compiles ends when the last
/// copy is closed. Never destroyed: a process may fork while its static objects are.
std::vector<int>& sockets() {
  static std::vector<int>& all = *new std::vector<int>;
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] {  // the forking thread held the mutex
    for (const int fd : sockets()) ::close(fd);
    sockets().clear();
  });
  (void)registered;
  return all;
}

/// Starts the program with a socket as its input and output. Returns an error number.
int spawn(const std::string& program, const std::string& nvrtc, int socket, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (const int e = ::posix_spawn_file_actions_init(&actions)) return e;
  if (const int e = ::posix_spawnattr_init(&attributes)) {
    ::posix_spawn_file_actions_destroy(&actions);
    return e;
  }
  // SIGINT of the terminal must not reach it even before it says so itself; no other signal of this thread's mask stays blocked.
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGINT);
  int e = ::posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  if (e == 0) e = ::posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  if (e == 0) e = ::posix_spawnattr_setsigmask(&attributes, &blocked);
  if (e == 0) e = ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  if (e == 0) {
    std::string path = program, library = nvrtc;
    char* arguments[] = {path.data(), library.data(), nullptr};
    e = ::posix_spawn(&pid, path.c_str(), &actions, &attributes, arguments, environ);
  }
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return e;
}

/// Is there something to read, or an end, within some seconds?
bool answers_within(int socket, int seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd one{socket, POLLIN, 0};
    const int n = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (n >= 0 || errno != EINTR) return n > 0;
  }
}

}  // namespace

Result<std::string> find_compile_program() {
  Dl_info info{};
  void* found = nullptr;
  std::filesystem::path object = "/proc/self/exe";  // whose own name is no path
  if (::dladdr1(reinterpret_cast<void*>(&find_compile_program), &info, &found, RTLD_DL_LINKMAP) != 0 && found != nullptr) {
    const char* const name = static_cast<const link_map*>(found)->l_name;
    if (name != nullptr && *name != '\0') object = name;
  }
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(object, error).parent_path();
  if (error) return fail(ErrorKind::unsupported, fmt::format("finding {}: {}: {}", kProgram, object.string(), error.message()));
  const std::filesystem::path up = folder.parent_path();
  std::vector<std::string> tried;
  for (const auto& where : {folder, up / "libexec/octavo", up.parent_path() / "libexec/octavo"}) {
    std::string path = (where / kProgram).string();
    if (::access(path.c_str(), X_OK) == 0) return path;
    tried.push_back(std::move(path));
  }
  return fail(ErrorKind::unsupported, fmt::format("there is no {}", fmt::join(tried, ", ")));
}

CompileProcess::CompileProcess(pid_t pid, int socket) : pid_(pid), socket_(socket), generation_(fork_generation()) {}

Result<std::unique_ptr<CompileProcess>> CompileProcess::start(const std::string& program) {
  const auto refused = [&](const std::string& why) { return fail(ErrorKind::unsupported, program + " " + why); };
  OCTAVO_TRY(const std::string version, compiler_version());
  OCTAVO_TRY(const std::string path, compiler_path());
  int ends[2];
  pid_t pid = -1;
  {
    const std::lock_guard no_fork(fork_safe_mutex());  // a child of fork() must not keep an end open
    sockets().reserve(sockets().size() + 1);
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return refused(fmt::format("was not started: {}", std::strerror(errno)));
    const int e = spawn(program, path, ends[1], pid);
    ::close(ends[1]);
    if (e != 0) {
      ::close(ends[0]);
      return refused(fmt::format("was not started: {}", std::strerror(e)));
    }
    sockets().push_back(ends[0]);
  }
  std::unique_ptr<CompileProcess> started(new CompileProcess(pid, ends[0]));
  std::optional<Message> first;
  if (answers_within(started->socket_, kStartSeconds)) first = receive_message(started->socket_);
  if (!first) {
    started->end();
    return refused(started->how_it_ended());
  }
  if (first->size() != 3 || first->front() != protocol_name())
    return refused(fmt::format("is \"{}\", this is \"{}\"", first->empty() ? "" : first->front(), protocol_name()));
  if ((*first)[1] != path || (*first)[2] != version)
    return refused(fmt::format("has opened NVRTC {} {}, this process {} {}", (*first)[1], (*first)[2], path, version));
  return started;
}

CompileProcess::~CompileProcess() {
  end();
}

bool CompileProcess::alive() {
  if (ended_ || generation_ != fork_generation()) return false;
  int status = 0;
  pid_t waited = 0;
  do {
    waited = ::waitpid(pid_, &status, WNOHANG);
  } while (waited < 0 && errno == EINTR);
  if (waited == 0) return true;
  // Where the program that this library is part of waits for all of its children, nothing is known.
  ended_ = true, known_ = waited == pid_, status_ = status;
  return false;
}

void CompileProcess::end() {
  if (socket_ >= 0 && generation_ == fork_generation()) {
    ::shutdown(socket_, SHUT_RDWR);
    const std::lock_guard no_fork(fork_safe_mutex());
    ::close(socket_);
    std::erase(sockets(), socket_);
  }
  socket_ = -1;
  const auto until = std::chrono::steady_clock::now() + kEnds;
  for (auto pause = std::chrono::microseconds(200); alive(); pause = std::min(2 * pause, std::chrono::microseconds(20000))) {
    if (!killed_ && std::chrono::steady_clock::now() > until)
      ::kill(pid_, SIGKILL), killed_ = true;  // not waited for, so the number is its own
    std::this_thread::sleep_for(pause);
  }
}

std::string CompileProcess::how_it_ended() const {
  if (known_ && !killed_ && WIFSIGNALED(status_)) return fmt::format("was ended by signal {}", WTERMSIG(status_));
  if (known_ && !killed_ && WEXITSTATUS(status_) != 0) return fmt::format("ended with exit status {}", WEXITSTATUS(status_));
  return "gave no answer that this process understands";
}

Result<Compiled> CompileProcess::compile(std::string_view text, const std::vector<std::string>& options) {
  std::vector<std::string_view> request{text};
  request.insert(request.end(), options.begin(), options.end());
  if (socket_ >= 0 && generation_ == fork_generation() && send_message(socket_, request)) {
    if (auto message = receive_message(socket_)) {
      if (auto answer = read_answer(*std::move(message))) return *std::move(answer);
    }
  }
  end();
  return fail(ErrorKind::internal, "compiling CUDA text: the process that compiled it " + how_it_ended());
}

}  // namespace octavo::cuda
