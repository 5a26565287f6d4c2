// A shared library opened at run time, and its functions by name.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <vector>

namespace octavo::cuda {

/// Opens the first of `names` that exists; never closed.
class Library {
 public:
  explicit Library(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (name.empty()) continue;
      tried_ += (tried_.empty() ? "" : ", ") + name;
      handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_) return;
    }
  }
  [[nodiscard]] bool found() const { return handle_ != nullptr; }
  [[nodiscard]] const std::string& tried() const { return tried_; }
  /// Where the opened library lies; empty when that cannot be found out.
  [[nodiscard]] std::string path() const {
    const link_map* map = nullptr;
    return handle_ != nullptr && dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr ? map->l_name
                                                                                                                   : "";
  }
  /// Sets `function` to the symbol; false if the library lacks it.
  template <class F>
  [[nodiscard]] bool get(const char* symbol, F*& function) const {
    function = handle_ ? reinterpret_cast<F*>(dlsym(handle_, symbol)) : nullptr;
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;
  std::string tried_;
};

}  // namespace octavo::cuda
