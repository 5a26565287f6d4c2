// What this process and one that compiles kernels for it (octavo-nvrtc) say to each other: messages of byte strings, each behind its length.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device/nvrtc.h"

namespace octavo::cuda {

using Message = std::vector<std::string>;

/// Longer messages are neither sent nor read.
inline constexpr std::size_t kMostStrings = 64, kMostMessageBytes = std::size_t{256} << 20;

/// The first string of the first message, which octavo-nvrtc sends: the version of the messages and of Octavo. The others are the path of its NVRTC and
/// NVRTC's version, or nothing and the reason why there is none.
[[nodiscard]] std::string protocol_name();

/// False: the other end is gone, or the message is too long. Never raises SIGPIPE on a socket.
[[nodiscard]] bool send_message(int fd, const std::vector<std::string_view>& message);
/// Nothing: the other end is gone, or what it sent is no message.
[[nodiscard]] std::optional<Message> receive_message(int fd);

/// A request is the text and then its options. `processor`: seconds.
[[nodiscard]] bool send_answer(int fd, const Result<Compiled>& made, double processor);
/// Nothing: it is no answer.
[[nodiscard]] std::optional<Result<Compiled>> read_answer(Message answer);

}  // namespace octavo::cuda
