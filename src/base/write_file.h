// Files replaced whole or not at all.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace octavo {

/// Replaces the file `path` by what `fill` writes to a temporary file in the same folder, which is synced and then renamed. On any
/// failure the file that was there is whole and unchanged, and the temporary is gone. A new file gets the permissions that the
/// umask leaves; one that replaces another gets that one's permissions (and, where the system allows it, its owner). A file that
/// the effective user may not write is refused, although a rename would need the right to the folder only: who took that right
/// away meant it. (Root may write every file.) A symbolic link stays one: what it names is replaced. `fill` returns false after a
/// failed write, with errno set. Readers see the old bytes or the new ones, never a mixture; of two writers at the same time the
/// later one wins. Pipes, terminals and other devices are written to as they are. `what`: "engine", "", ...: a word for errors, all of kind `io`, which name the path, the step that failed, the
/// system's reason and the errno.
[[nodiscard]] Status replace_file(const std::string& path, std::string_view what, const std::function<bool(int fd)>& fill);

/// The same for bytes that are all there.
[[nodiscard]] Status write_file(const std::string& path, std::span<const std::byte> bytes, std::string_view what = "");
[[nodiscard]] Status write_file(const std::string& path, std::string_view text, std::string_view what = "");

/// What replace_file would refuse without anything being written: no such folder, a folder of this name, no right to write. To be
/// asked before long work; the disk may still be full afterwards. Errors: `io`, naming the path and the reason.
[[nodiscard]] Status check_writable(const std::string& path, std::string_view what = "");

/// All bytes to the descriptor, however often the system interrupts or shortens the write; false: errno tells why.
[[nodiscard]] bool write_all(int fd, const void* data, std::size_t size);

}  // namespace octavo
