// What a GPU can do, as far as estimates of families know it. Estimates order candidates and families until times are measured; a wrong one
// costs time, never a result.
//
// All of it is of one H100 (SXM, 132 multiprocessors, HBM3), but where it says H200. A family keeps its own factors beside the formula that they
// were fitted to; what two families could disagree about stands here.
#pragma once

#include <algorithm>

namespace octavo::cuda::cost {

/// Clocks a second under load. The second is of the H200 that conv.u8s8.stream was measured on.
inline constexpr double kClock = 1.7e9, kClockOfStream = 1.75e9;

/// Bytes a second from memory: what large convolutions get (docs/lab/cuda-kernels.md), what is assumed of kernels that read and write each tensor
/// once, and what conv.u8s8.stream gets on the H200. Each family was fitted with its number; one for all would change which family a layer gets
/// before times are measured.
inline constexpr double kMemory = 2.8e12, kMemoryOfPasses = 2.5e12, kMemoryOfStream = 3.6e12;
/// Copies between the memories of host and GPU: bytes a second, and what starting one takes.
inline constexpr double kTransfer = 20e9, kTransferStart = 5e-6;

/// Seconds from launch to launch: of kernels whose estimate counts what their blocks wait for, and of others.
inline constexpr double kStart = 1.5e-6, kLaunch = 2e-6;

// A multiprocessor in one clock.
inline constexpr double kMacs = 2793;              ///< int8 multiplications of mma.sync: 1,294 TOPS
inline constexpr double kBytesFromL2 = 20;         ///< asynchronous copies that all multiprocessors make
inline constexpr double kLanes = 128;              ///< instructions of a thread; also bytes of shared memory
inline constexpr double kProgram = 14.0 / kLanes;  ///< clocks of an epilogue for one element: its instructions

// Kernels with a thread an element, the whole GPU. Products a second of matrices, and what one thread takes for a term of a long row, as measured
// on attention of ViT-B/16; of convolutions, where a thread reads the operands of one product after the other, so long each, whatever else runs.
inline constexpr double kProductsOfElements = 4e11, kProductsOfDirectConv = 0.5e12, kDirectProduct = 0.4e-6, kTermOfRow = 6e-11;
/// Multiplications a second of a transposed convolution by phases, a guess.
inline constexpr double kProductsOfPhases = 200e12;

/// The longer of what overlaps, and a part of the shorter: without that, all tiles of a layer that waits for memory would be alike.
[[nodiscard]] inline double overlapped(double a, double b) {
  return std::max(a, b) + 0.3 * std::min(a, b);
}
/// Seconds of so many clocks beside so many bytes.
[[nodiscard]] inline double seconds(double clocks, double bytes) {
  return overlapped(clocks / kClock, bytes / kMemory);
}

/// A warp's product of rows x columns x depth (bytes), of which ldmatrix reads a row of both operands for every product, in clocks.
/// `slack`: how much longer it takes than the units alone would.
[[nodiscard]] inline double product_clocks(double rows, double depth, double columns, double warp_rows, double warp_columns,
                                           double slack) {
  return std::max(rows * depth * columns / kMacs * slack,
                  rows * depth * columns * (1 / warp_rows + 1 / warp_columns) / 128 * slack);
}

}  // namespace octavo::cuda::cost
