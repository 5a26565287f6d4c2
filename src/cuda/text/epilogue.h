// A stage's program behind the sums of a thread: runs of neighbouring channels for several pixels.
//
// The text declares kRows and kRun, struct OctavoPointers (operands and stores), struct OctavoFetched (operands read ahead), and
//   octavo_fetch(fetched, pointers, pixel, channel)            reads what is worth reading before the sums are complete
//   octavo_look_ahead<channels>(pointers, pixel, channel)      brings the operands of a pixel's next channels into L2
//   octavo_finish(sums, fetched, pointers, pixel, channel)     runs the program and stores
//   octavo_channel_step(e)                                     how many channels behind `channel` the thread's e-th one is
// pixel[i]: index of the i-th pixel in the stage's space without its channels (batch, row, column), -1: none. channel: the first of
// the thread's kRun channels; those beyond the space are left out. Operands and stores are read and written in the widest vectors
// that their strides allow.
//
// Four neighbouring lanes hold 4 * kRun neighbouring channels of the same pixels. Where kNeighbours == kRun, each lane holds kRun
// neighbours. Where kNeighbours < kRun, each holds pieces of kNeighbours neighbours, 4 * kNeighbours channels from one piece to the next, so that the
// four lanes together access neighbouring bytes also where elements are wider than a byte: 16 bytes of float a lane, 64 bytes in all,
// instead of 16 bytes that lie 64 bytes apart. Bytes are then exchanged among the four lanes, so that a lane still accesses 16 of
// them at once. octavo_fetch and octavo_finish must be called by all lanes of a warp.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"
#include "cuda/text/kernel_text.h"
#include "region/region.h"

namespace octavo::cuda {

/// Channels that are several pixels' (of a transposed convolution): channel c of a pixel (y, x) is channel c % channels of the stores'
/// pixel that lies c / channels / across down and c / channels % across to the right of where the stores have (y, x).
struct Fold {
  std::int64_t channels = 0, across = 1;           ///< channels: a multiple of 16; 0: channels are channels
  std::vector<std::array<std::int64_t, 2>> steps;  ///< of each store, bytes from one pixel to the next: down, to the right
  std::int64_t stored = 0;                         ///< of the channels of a pixel only the first so many are stored; 0: all
};

struct EpilogueShape {
  int rows = 1;                      ///< pixels of a thread
  int run = 4;                       ///< channels of a thread: 4, 8 or 16
  int piece = 4;                     ///< of them that are neighbours: what piece_for says, or `run`
  std::int64_t padded_channels = 0;  ///< entries of a packed channel constant
  std::string prefix;                ///< of the names of parameters
  int forwarded = -1;                ///< the operand that comes from `kept` instead of memory; -1: none
  bool keeps = false;                ///< the one store, of floats, goes to `kept`
  bool keeps_codes = false;          ///< the one store, of bytes, goes to octavo_keep (below); of runs of 4
  int threads = 0;                   ///< of a block, where floats are kept
  Fold fold;
  bool takes_bias = false;            ///< an s32 constant added to the accumulator may be left to `bias`
  double accumulator = 2147483648.0;  ///< bound of |acc|
  bool real = false;                  ///< sums are f32, not s32
  bool ahead = false;                 ///< channel constants, and operands of 16 bits, are read by octavo_fetch as well
  bool pairs = false;                 ///< programs with quotients compute two rows side by side; `rows` is even
  bool stores_padding = false;        ///< stores have room for padded_channels, and get all of them
};

/// What a stage of rank 4 computes from its sums, read off the plan.
struct Tail {
  ir::Shape space;
  program::Program program;
  std::vector<region::Operand> operands;
  std::vector<region::TensorRef> stores;
  /// Of each operand that is a constant with one value a channel, or one in all: the values as 32 bits each, s32 or a float's (of a float of
  /// 16 bits those). Nothing for other operands.
  std::vector<std::optional<std::vector<std::uint32_t>>> constants;
  std::uint32_t open = 0;  ///< dimensions of the space that are open (region::OpenExtents)
};
/// Element j of 32-bit words `w`, both C expressions, as programs load the type.
[[nodiscard]] std::string element_text(ir::DType type, std::string_view w, std::string_view j);
[[nodiscard]] Tail tail_of(const region::Stage& stage, const region::Plan& plan);

/// How many of a thread's `run` channels should be neighbours where four lanes share a pixel: all if every tensor of the space is of
/// bytes, otherwise 4.
/// Of operand `forwarded` (-1: none) nothing is in memory.
[[nodiscard]] int piece_for(const Tail& tail, int run, int forwarded = -1);
/// Which of the 4 * run channels of four lanes is the e-th one of lane `lane`.
[[nodiscard]] constexpr int channel_of_lane(int lane, int e, int run, int piece) {
  return piece == run ? lane * run + e : e / piece * 4 * piece + lane * piece + e % piece;
}

// `kept`, a member of OctavoPointers where `forwarded`, `keeps` or `keeps_codes` is set, is shared memory in which a thread keeps kRows * kRun floats for
// itself: 16 bytes each 16 * threads bytes. Where codes are kept the text in front declares
//   octavo_keep(pointers, i, word)                             keeps the four codes of the thread's i-th pixel
// and OctavoPointers has members `row` and `at` behind `kept`, with which the caller says where they belong.
struct EmittedEpilogue {
  std::string text;
  std::string parameters;            ///< ", const unsigned char* operand0, ..., unsigned char* store0"
  std::string pointers;              ///< "constants, operand0, ..., store0": what OctavoPointers is made from
  std::vector<Argument> arguments;   ///< of those parameters, open numbers too
  std::vector<std::byte> constants;  ///< channel constants, to stand `constants_at` bytes behind the parameter "constants"
  std::vector<std::int32_t> bias;    ///< one a channel: what the program no longer adds; empty: nothing
  Reasons refusal;                   ///< why the stage cannot be written like this, with the values; empty: it is
};
/// Of a tail with a program and at least one store. `constants_at` is a multiple of 16.
[[nodiscard]] EmittedEpilogue emit_epilogue(const Tail& tail, const EpilogueShape& shape, std::int64_t constants_at);

/// What sums begin with, with the epilogue's bias; wraps.
[[nodiscard]] std::vector<std::int32_t> with_bias(std::span<const std::int32_t> start, const EmittedEpilogue& epilogue);

/// What a convolution's parameter "constants" holds: what the sums of each channel begin with (`start` and the bias), padded, then the
/// channel constants of the program, as emit_epilogue expects them at 4 * padded_channels.
[[nodiscard]] ir::Tensor constants_with_start(std::span<const std::int32_t> start, const EmittedEpilogue& epilogue,
                                              std::int64_t padded_channels);

}  // namespace octavo::cuda
