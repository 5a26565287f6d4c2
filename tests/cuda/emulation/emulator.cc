#include "cuda/emulation/emulator.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <sstream>

namespace octavo::testing {
namespace {

/// A folder that goes with the process.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "octavo-emulation-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string next() { return (path_ / std::to_string(count_++)).string(); }

 private:
  std::filesystem::path path_;
  int count_ = 0;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Dynamic shared memory has no size in the text; in the emulation it is where the block's memory is.
std::string with_dynamic_shared(std::string_view text) {
  static const std::regex declaration(R"(extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s+(\w+)\[\];)");
  return std::regex_replace(std::string(text), declaration, "$1* const $2 = ($1*)octavo_hooks->dynamic_shared;");
}

}  // namespace

bool can_emulate() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

EmulatedLibrary::~EmulatedLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

Result<HostKernel> EmulatedLibrary::find(const std::string& function) const {
  HostKernel k = common_;
  k.entry = reinterpret_cast<void (*)()>(dlsym(handle_, function.c_str()));
  if (k.entry == nullptr) return fail(ErrorKind::internal, "the text has no kernel " + function);
  return k;
}

Result<std::shared_ptr<const EmulatedLibrary>> emulate(std::string_view text) {
  static std::mutex mutex;
  static Scratch scratch;
  static std::map<std::string, std::weak_ptr<const EmulatedLibrary>, std::less<>> known;
  // The last ones stay loaded: a test runs one text on many inputs, and compiling it takes longer than most runs.
  constexpr std::size_t kKept = 64;
  static std::deque<std::shared_ptr<const EmulatedLibrary>> kept;
  const std::lock_guard lock(mutex);
  if (const auto at = known.find(text); at != known.end()) {
    if (auto library = at->second.lock()) return library;
  }
  const std::string name = scratch.next();
  std::ofstream(name + ".cc") << "#include \"device.h\"\n#line 1 \"octavo.cu\"\n" << with_dynamic_shared(text);
  const char* compiler = std::getenv("CXX");
  const std::string command = fmt::format(
      // Libraries of the system come from this program.
      "{0} " OCTAVO_EMULATION_OPTIONS " -shared -nostdlib {1}.cc -lgcc -o {1}.so 2> {1}.log",
      compiler != nullptr ? compiler : "g++", name);
  if (std::system(command.c_str()) != 0)
    return fail(ErrorKind::internal, "compiling kernels for the host: " + read_file(name + ".log"));
  std::shared_ptr<EmulatedLibrary> library(new EmulatedLibrary);
  library->handle_ = dlopen((name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle_ == nullptr) return fail(ErrorKind::internal, std::string("loading emulated kernels: ") + dlerror());
  HostKernel& k = library->common_;
  k.hooks = static_cast<OctavoHooks**>(dlsym(library->handle_, "octavo_hooks"));
  const auto shared = reinterpret_cast<void (*)(std::byte**, std::byte**)>(dlsym(library->handle_, "octavo_static_shared"));
  if (k.hooks == nullptr || shared == nullptr) return fail(ErrorKind::internal, "emulated kernels lack their hooks");
  shared(&k.static_shared_begin, &k.static_shared_end);
  link_map* map = nullptr;
  if (dlinfo(library->handle_, RTLD_DI_LINKMAP, &map) != 0) return fail(ErrorKind::internal, "emulated kernels have no address");
  struct Find {
    ElfW(Addr) base;
    HostKernel* kernel;
  } find{map->l_addr, &k};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        const auto* f = static_cast<Find*>(data);
        if (info->dlpi_addr != f->base) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& h = info->dlpi_phdr[i];
          if (h.p_type != PT_LOAD) continue;
          const auto* begin = reinterpret_cast<const std::byte*>(info->dlpi_addr + h.p_vaddr);
          HostKernel& out = *f->kernel;
          out.image_begin = out.image_begin == nullptr ? begin : std::min(out.image_begin, begin);
          out.image_end = std::max(out.image_end, begin + h.p_memsz);
        }
        return 1;
      },
      &find);
  for (const char* ending : {".cc", ".so", ".log"}) std::filesystem::remove(name + ending);
  known[std::string(text)] = library;
  kept.push_back(library);
  if (kept.size() > kKept) kept.pop_front();
  return std::shared_ptr<const EmulatedLibrary>(std::move(library));
}

}  // namespace octavo::testing
