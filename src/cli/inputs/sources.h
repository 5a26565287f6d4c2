// What --input names: files, folders, patterns, lists, stdin.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

namespace octavo::cli {

/// One file to read. Pipes and stdin can be read once: their bytes are kept.
struct Source {
  std::string name;              ///< as results call it: the path; "stdin" for "-"
  std::string path;              ///< empty when `bytes` holds everything
  std::vector<std::byte> bytes;  ///< of pipes and stdin
  [[nodiscard]] Result<std::vector<std::byte>> read() const;
};

/// The files that one spec stands for, in an order that does not depend on the file system:
///   FILE            itself; a pipe, as of <(command), is read at once
///   FOLDER          the pictures and arrays in it (.jpg .jpeg .png .npy .npz, any case), by name; folders in it are left out
///   PATTERN         when no such file exists and it holds * ? or [: what matches, by name
///   @LIST           a file with a path a line (blank lines and lines that begin with # are left out), relative to the list's folder
///   -               stdin
/// Names are sorted as numbers where they hold digits: 2.jpg before 10.jpg. Errors: io, naming the spec; bad_input when a folder,
/// pattern or list names nothing.
[[nodiscard]] Result<std::vector<Source>> expand_source(const std::string& spec);

/// "img2" before "img10": digits compare as numbers, everything else byte by byte.
[[nodiscard]] bool natural_less(const std::string& a, const std::string& b);

/// For files that are read more than once, or mapped: a pipe or stdin ("-") becomes a file in memory of this process, and `path` its
/// path; other paths stay. Errors: io.
[[nodiscard]] Status spool(std::string& path);

}  // namespace octavo::cli
