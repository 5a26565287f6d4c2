// What a kernel compiled for the host calls, and what it reads of the thread that runs. Plain C structures: both sides include this.
#pragma once

struct OctavoIndex3 {
  unsigned x, y, z;
};

/// The CUDA thread that runs now.
struct OctavoThread {
  OctavoIndex3 thread, block, block_dim, grid_dim;
};

/// An image in memory (ImageMap in cuda/text/kernel_text.h). In the order columns, rows, images.
struct OctavoImage {
  const unsigned char* base;
  long channels, dims[3], strides[3];
  int lower[2], upper[2], steps[2], pixels, bytes;
};

struct OctavoHooks {
  const OctavoThread* thread;  ///< of the running fiber
  void* dynamic_shared;
  /// Before an access of memory by code without __tsan_* calls. `aligned`: the instruction faults unless the address is a multiple of `bytes`.
  void (*access)(const void* address, unsigned bytes, int write, int aligned);
  /// Before an atomic operation on global or shared memory.
  void (*atomic)(const void* address, unsigned bytes);
  /// __syncthreads (id 0) or a named barrier of `threads` threads; `line` tells barriers of the text apart.
  void (*barrier)(int id, int threads, int line);
  void (*arrive)(int id, int threads);  ///< counts for the barrier and does not wait
  /// Waits until all lanes of `mask` have come to this line; the last one calls `together` with each lane's `mine` (null: not there).
  void (*collective)(unsigned mask, int line, void* mine, void (*together)(void** lanes));
  /// After a __syncwarp: what lanes wrote before it may be read by the others.
  void (*warp_barrier)(void);
  /// cp.async of `bytes` bytes, of which the first `source_bytes` are copied and the others zero.
  void (*copy_async)(void* shared, const void* global, int bytes, int source_bytes);
  void (*commit)(void);
  void (*wait)(int groups);  ///< all but the latest `groups` groups of this thread are complete
  /// Signals (src/cuda/text/prelude.inc). What arrives by itself does so as late as possible: when no thread can go on.
  void (*signal_begin)(void* signal, int arrivals);
  void (*signal_arrive)(void* signal);
  void (*signal_copies)(void* signal);  ///< arrives when the thread's cp.asyncs so far are complete
  void (*signal_wait)(void* signal, int parity, int line);
  void (*copy_bulk)(void* shared, const void* global, int bytes, void* signal);
  void (*copy_image)(void* shared, const struct OctavoImage* image, const int* from, int right, int down, int size, void* signal);
  void (*trap)(const char* message);
};
