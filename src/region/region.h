// What runs: buffers, tensor references, regions. Shared by the planner (which makes them), the providers and the engine (which run them);
// knows nothing of ONNX, protobuf or the planner.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/out_of_line.h"
#include "base/reason.h"
#include "ir/facts.h"
#include "ir/graph.h"
#include "ir/quantizer.h"
#include "ir/tensor.h"
#include "program/program.h"
#include "region/precision.h"
#include "region/tactic.h"

namespace octavo::region {

using BufferId = std::int32_t;

/// A device, and the memory space it has: an index into Plan::devices. 0 is the host: its threads and its memory.
using DeviceId = std::int32_t;
inline constexpr DeviceId kHost = 0;

/// source: what Provider::finish still has to compile (Artifact::source), a constant from then on; in plans that are being made alone.
enum class BufferKind : std::uint8_t { input, output, constant, arena, source };

/// A run of bytes. Arena buffers get `arena_offset` from the memory planner; constants live in the engine file (64-byte aligned, at least
/// 64 readable bytes after the end); inputs and outputs belong to the caller and are exactly `bytes` long.
/// Arena buffers begin at multiples of `alignment` and have at least 64 readable and writable bytes before and after them.
struct Buffer {
  BufferKind kind = BufferKind::arena;
  std::int64_t bytes = 0;
  std::int64_t arena_offset = 0;  ///< arena only
  int binding = -1;               ///< input/output only: index into Plan::inputs / Plan::outputs
  ir::Tensor data;                ///< constant, source: while planning (engine files store the bytes in a section of their own)
  std::string name;               ///< for people
  DeviceId space = kHost;         ///< whose memory the bytes are in
  std::int64_t alignment = 64;    ///< a power of two; of arena_offset
};

/// Which extents of a tensor depend on open dimensions of the model, bit k for dimension k: kernels may take them when they are started. Marks of a plan
/// that is set to other shapes (plan/parametric.h); not part of keys, hashes and JSON.
struct OpenExtents {
  std::uint32_t dims = 0, strides = 0;
  bool offset = false;
};

/// A strided window into a buffer. `dims` are logical (ONNX order: N, C, H, W); element (i0, i1, ...) is at byte
/// offset + size_of(dtype) * sum(i_k * strides[k]). NHWC is a stride pattern, slices are offsets, broadcasts are zero strides.
/// 8-bit activation buffers inside a plan always hold u8 codes (an s8 quantizer is stored shifted by 128).
struct TensorRef {
  BufferId buffer = -1;
  std::int64_t offset = 0;  ///< bytes
  ir::DType dtype = ir::DType::f32;
  ir::Shape dims;
  std::vector<std::int64_t> strides;       ///< elements
  std::optional<ir::Quantizer> quantizer;  ///< of the stored codes; for kernels (x zero point) and for people
  std::string value;                       ///< tensor name, for people
  OpenExtents open = {};
};

/// An extra tensor read by a program: index i of the iteration space reads element floor(i_k / div_k) in each dimension k.
/// `ref.dims` and `ref.strides` have the rank of the iteration space; broadcast dimensions have stride 0.
struct Operand {
  TensorRef ref;
  std::vector<std::int64_t> div;  ///< empty: all 1. Integer nearest upsampling has its factors here.
};

/// What is known of the codes that constant float weights were computed from (ir/block_codes.h): kernels may keep these.
struct WeightCodes {
  int bits = 4;            ///< 2, 4 or 8
  std::int64_t block = 1;  ///< input channels that share a scale
  bool one_zero = true;    ///< all blocks have one zero point
  bool operator==(const WeightCodes&) const = default;
};

/// The heavy operation of a stage. op == ir::Op::input means "none": the program reads operands only.
///   conv, conv_transpose: inputs[0] = x; a window of ir/facts.h (2-D: four pads). gemm is given as conv 1x1 on [M,K,1,1].
///     integer: x is u8 with per-tensor quantizer; `weights` is a constant buffer s8 [O, C/g, kh, kw] (conv_transpose: [C, O/g, kh, kw]);
///     accumulator acc_i = sum((x - zx) * (w - w_zero[o])) with padding contributing 0.
///     float: x f32, weights f32, accumulator acc_f (summation order free).
///   max_pool, reduce_max: 8-bit (acc_i = code) or f32 (acc_f).   avg_pool, reduce_mean, reduce_sum: u8 -> acc_i = sum(code - zx) over the
///     window (the program divides); f32 -> acc_f = the operation's result. Windows at borders: `count` operand made by the planner.
///   Results that a program cannot hold (s64, bool, several outputs): program.outputs is empty and the anchor writes its results to the
///     stores itself, in order. op == reshape with an empty program is a plain copy of inputs[0] (any dtype) to stores[0].
///   pad on u8 codes: Pad::value_code is the code to fill with. gather: Gather::indices where they are constant.
///   anything else: inputs in `inputs` (dense or strided f32 / s64 ...), result acc_f or acc_i by dtype, computed by the reference or a library.
struct Anchor {
  ir::Op op = ir::Op::input;
  ir::Facts facts;  ///< of the operator (ir::fit): what its attributes say
  std::vector<TensorRef> inputs;
  std::optional<TensorRef> weights;       ///< constant
  std::vector<std::int32_t> weight_zero;  ///< empty: all 0; else one entry or one an output channel
  std::optional<WeightCodes>
      weight_codes;  ///< of a float product's weights, [O, C, 1, 1]. Their tensor has the codes while planning
  bool integer = false;
  /// The largest sum of |weight less its zero point| over a channel, where the weights are not there any more and kernels are made without them: what
  /// is packed of them is there already (Provider::restart).
  std::optional<std::int64_t> weight_sum;
  std::vector<std::int64_t> store_results;  ///< of several results: which of them each store takes; empty: store i takes result i
  OCTAVO_OUT_OF_LINE(Anchor);
  [[nodiscard]] bool none() const { return op == ir::Op::input; }
  /// The facts of an operator of this kind.
  template <class F>
  [[nodiscard]] const F& as() const {
    return std::get<F>(facts);
  }
  template <class F>
  [[nodiscard]] F& as() {
    return std::get<F>(facts);
  }
};

/// prologue · anchor · epilogue. `space` is the logical shape of the anchor's result (or of the stores when there is no anchor).
/// The program runs for each element of `space`; output j is written to stores[j] at the same index.
struct Stage {
  Anchor anchor;
  ir::Shape space;
  program::Program program;
  std::vector<Operand> operands;
  std::vector<TensorRef> stores;  ///< dims == space
  std::uint32_t open = 0;         ///< dimensions of `space` that are open, as OpenExtents has them
  std::int32_t counted = -1;      ///< of counted regions: the dimension of `space` (region/counted.h)
  OCTAVO_OUT_OF_LINE(Stage);
};

/// A tactic that could have been taken, for `explain`.
struct Alternative {
  std::string tactic;
  Reasons reasons;       ///< why it was taken, that it was possible, or tactic_refused and what it needs
  double seconds = -1;   ///< measured; -1 unknown
  double estimate = -1;  ///< the provider's own, where nothing was measured; -1 none
};

/// One fused layer. Its stages form a graph (region/stage_graph.h): each reads results of earlier ones and tensors from outside, unless
/// `independent`: then none reads what another stores. `tactic` says what stays in cache or registers of what stages forward.
struct Region {
  std::string name;  ///< from the ONNX nodes: "conv1 + relu1"
  std::vector<Stage> stages;
  DeviceId device = kHost;
  /// Of counted regions (region/counted.h): the buffer of an output of the plan in which an earlier region stores an s64 scalar. Only the first count * times / per elements,
  /// rounded up, along dimension Stage::counted matter to any result of the model; where no stage has one, all or, if it is 0, nothing. -1: all of them do.
  BufferId count = -1;
  Tactic tactic;                 ///< chosen; none() before
  std::vector<BufferId> packed;  ///< constant buffers made by Provider::compile (Artifact::constants), in its own order
  BufferId code = -1;            ///< Artifact::code, a constant in host memory, or until it is compiled Artifact::source; -1: none
  std::int32_t count_times = 1;  ///< with `count`
  std::string launch;            ///< Artifact::launch
  std::vector<std::string> required;  ///< capabilities of the machine: the tactic's and the artifact's, sorted
  std::set<std::string> onnx_nodes;   ///< provenance
  Precision precision;
  Reasons reasons;  ///< why these nodes are one region, why this precision
  std::vector<Alternative> alternatives;
  bool independent = false;    ///< stages in any order, side by side (convs that read one input, parts of one pass)
  std::int32_t count_per = 1;  ///< with `count`
  double seconds = -1;         ///< cost of the tactic that the planner counted with; -1 unknown. Not part of the plan hash
  std::string key;             ///< the spelling in the timing cache (docs/timing-cache.md); not part of the plan hash
  /// Values of the normalized graph, for `check`. graph_inputs: parallel to reads_of(region) (region/stage_graph.h): what stages read from
  /// outside, anchor inputs before operands; kNone for constants that belong to the program. graph_outputs: parallel to
  /// results_of(region): what no later stage reads. A ref with a quantizer holds u8 codes of a float value; a copy has the same value on both sides.
  std::vector<ir::ValueId> graph_inputs, graph_outputs;
  OCTAVO_OUT_OF_LINE(Region);
};

struct Binding {
  std::string name;
  ir::TensorType type;                     ///< what the caller passes: element type and logical (ONNX order) shape
  std::optional<ir::Quantizer> quantizer;  ///< when the binding holds codes
  std::vector<std::int64_t> strides;       ///< elements, for each logical dimension; empty: dense row-major (NCHW)
  std::int64_t bytes = 0;                  ///< of the caller's memory, padding included; 0: dense
  std::string format;                      ///< as asked for, "uint8:hwc"; empty: the model's own
};

/// A choice that the planner made for a plan, for `explain`: which candidates there were, and what each would have cost.
struct Decision {
  std::string choice;      ///< "concat", "segments", ...: a planner switch (--disable=choice; plan/candidates/registry.h)
  std::string where;       ///< the ONNX node or tensor it is about
  std::size_t chosen = 0;  ///< index into `candidates`
  Reasons reasons;         ///< why that one
  struct Candidate {
    std::string name;     ///< "own-pass", as the registry lists them
    double seconds = -1;  ///< of the regions that differ among the candidates; -1: not possible or not priced
    Reasons notes = {};   ///< why it was not possible, what it rounds, ...
  };
  std::vector<Candidate> candidates;  ///< the default first; at least one
  std::set<std::string> onnx_nodes;
  OCTAVO_OUT_OF_LINE(Decision);
};

/// A device of a plan. The engine is given devices of these names.
struct DeviceUse {
  std::string name;              ///< "host", "cuda"
  std::int64_t arena_bytes = 0;  ///< of the arena in its memory
};

struct Plan {
  std::string model_name;
  std::vector<Binding> inputs, outputs;
  std::vector<ir::OutputSize> sizes;  ///< of outputs whose extents data decide (region/sizes.h)
  std::vector<Buffer> buffers;
  std::vector<Region> regions;                           ///< in execution order
  std::vector<DeviceUse> devices{DeviceUse{"host", 0}};  ///< the host first; Buffer::space and Region::device are indices
  int threads = 1;                                       ///< built for, within one run of the regions; works on any number
  /// The regions compute one image; a run of the plan runs them so often. Bindings are of all images: image i is the i-th of `images`
  /// equal parts of the caller's memory, and the buffers of bindings are one part.
  std::int64_t images = 1;
  int lanes = 1;                    ///< images at a time, each on one thread with working memory of its own; built for
  std::vector<Decision> decisions;  ///< provenance: not part of the plan hash
  std::string cost_source;          ///< "estimates" or "measured"; not part of the plan hash
  /// The shapes that the decisions were made for, "ids [2,128], mask [2,128]", where they were taken over from another plan of the model; empty: for
  /// its own. Not part of the plan hash.
  std::string decided_for;
  OCTAVO_OUT_OF_LINE(Plan);
};

/// Threads that the plan was built for.
[[nodiscard]] inline int threads_of(const Plan& plan) {
  return plan.images > 1 ? plan.lanes : plan.threads;
}

/// Does the region do nothing but copy one buffer between the memories of the host and of its device?
[[nodiscard]] bool is_transfer(const Region& region, const Plan& plan);

/// JSON without constant bytes, keys sorted, floats shortest round-trip: deterministic. `from_json` verifies everything (indices, ranges,
/// that every strided access stays inside its buffer, programs) and never trusts its input.
[[nodiscard]] std::string to_json(const Plan& plan);
[[nodiscard]] Result<Plan> from_json(std::string_view text);
[[nodiscard]] Status verify(const Plan& plan);
/// Of `verify`: do the anchor's facts, its operands' shapes and the stage's space agree?
[[nodiscard]] Status check_shapes(const Stage& s);
/// 32 hex digits over regions, stages, programs, quantizers, constants' bytes, strides, tactic names, threads, memory offsets; not over names,
/// provenance, reasons, times.
[[nodiscard]] std::string plan_hash(const Plan& plan);

}  // namespace octavo::region
