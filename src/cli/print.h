// Text for people on stderr.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace octavo::cli {

/// Prints to stderr. Unlike fmt::print it does not throw when stderr is a full disk or a closed pipe: nobody could be told.
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace octavo::cli
