// Kernels of one region as text, and how they are launched.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/text/image_map.h"
#include "ir/tensor.h"

namespace octavo::cuda {

/// What one parameter of a kernel points to, or a number. Shapes, strides and other numbers are literals of the text, but for open ones (text/open.h).
struct Argument {
  enum class Kind : std::uint8_t { buffer, constant, workspace, number, count, next };
  Kind kind = Kind::buffer;
  std::int32_t index =
      0;  ///< buffer: its BufferId in the plan; constant: its index in KernelText::constants; count: Region::count; others: 0. next: 1 where the next kernel may begin early (text/next.h)
  std::int64_t offset = 0;  ///< bytes behind the beginning; the number
  std::int32_t image = -1;  ///< not -1, of a buffer: the kernel gets Launch::images[image] of what begins there, not its address
  bool operator==(const Argument&) const = default;
};

/// Which items of a launch make which rows of a region's results, where a family knows it. Rows are numbered with the outermost dimension of the results outside, so
/// that each of its elements has equally many. Where data count these elements (region::Region::count), items behind the count are left out (text/counted.h).
struct CountedItems {
  std::int64_t rows = 0;                ///< all there are; 0: not known, the launch always does everything
  std::int64_t unit = 1;                ///< rows of a unit; the last unit may have fewer
  std::int64_t items = 1;               ///< of a unit, one behind the other; items of unit 0 come first
  std::string item = "octavo_block()";  ///< the number of a thread's item, where it has one
  std::string all = "";  ///< the name of the number of all items in the text, an int, where the blocks take items in turn
  bool open = false;     ///< `all` is a parameter of the kernel (OpenNumbers::name), not a constant in front of it
  bool operator==(const CountedItems&) const = default;
};

/// One launch of a `extern "C" __global__` function of the text.
struct Launch {
  std::string function;
  std::array<int, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::int64_t shared_bytes = 0;  ///< dynamic shared memory
  /// Programmatic launch: the kernel's blocks are placed on the GPU when each block of the kernel before it has ended or let the next one begin
  /// (octavo_let_next_begin()), and wait there until its stores can be seen. So part of the time between two kernels is left out, which is much of what a small network spends at batch 1. The
  /// provider sets it where the target can (Target::starts_early); every kernel's text says where it waits, octavo_wait_for_previous().
  ///   On one H100, ResNet50 at batch 1: 0.255 ms without, 0.244 ms with it; MobileNetV2: 0.141 and 0.125 ms. Kernels that allow the next one
  ///   to be placed when they begin (griddepcontrol.launch_dependents) are slower than without, 0.390 and 0.166 ms: probably blocks that wait
  ///   early are packed onto the multiprocessors that have room, not spread over all.
  bool early = false;
  std::vector<Argument> arguments;
  std::vector<ImageMap> images;
  CountedItems counted;
  bool operator==(const Launch&) const = default;
};

[[nodiscard]] inline Launch launch_of(std::string function, std::int64_t blocks, std::int64_t threads,
                                      std::int64_t shared_bytes = 0) {
  Launch l;
  l.function = std::move(function);
  l.grid[0] = static_cast<int>(blocks), l.block[0] = static_cast<int>(threads), l.shared_bytes = shared_bytes;
  return l;
}

/// A constant that is made for kernels. Most can be made again from a plan, and are held against that where an engine file is not trusted
/// (check_packed). Weights cannot: a file has them in this form alone. So a kernel computes no address from what is `of_weights`.
struct PackedConstant {
  PackedConstant(ir::Tensor d, bool w = false) : data(std::move(d)), weights(w) {}  // NOLINT(google-explicit-constructor)
  ir::Tensor data;
  bool weights;  ///< of weights, or of sums of them
  [[nodiscard]] std::span<const std::byte> bytes() const { return data.bytes(); }
};
[[nodiscard]] inline PackedConstant of_weights(ir::Tensor data) {
  return {std::move(data), true};
}

/// `text` does not begin with the prelude (device functions that every text may use: cuda/text/prelude.inc), which is put in front when it is
/// compiled. Equal texts are compiled once, so no name of a region, buffer or tensor is part of a text. A kernel calls
/// octavo_wait_for_previous() before it reads or writes anything but constants: a kernel is complete only when the ones before it are, so a wait
/// for the kernel before is a wait for all of them.
struct KernelText {
  std::string text;
  std::vector<Launch> launches;           ///< in order, on one stream
  std::vector<PackedConstant> constants;  ///< uploaded once, 256-byte aligned
  std::int64_t workspace_bytes = 0;       ///< device memory of this region alone, zero before its first run
};

}  // namespace octavo::cuda
