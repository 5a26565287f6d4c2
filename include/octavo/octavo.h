// Octavo: compiles 8-bit neural networks from ONNX and runs them. The public C++ interface; it needs no other header of the
// project.
//
//   octavo::Engine engine = octavo::Engine::build("model.onnx", {.default_batch = 1});
//   std::vector<float> image(3 * 224 * 224), logits(1000);
//   engine.run({{"input", octavo::view(image, {1, 3, 224, 224})}});       // simple: allocates the results
//   octavo::Context context(engine);                                      // fast: one context a thread
//   context.run({image.data()}, {logits.data()});                         // allocates nothing
//
// Errors are thrown as octavo::Exception. The text names the step, the cause, the place, and what to do next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#if defined(OCTAVO_API)  // by a program that puts the symbols elsewhere
#elif defined(__GNUC__)
#define OCTAVO_API __attribute__((visibility("default")))
#else
#define OCTAVO_API
#endif

namespace octavo {

/// Everything this interface throws, except std::bad_alloc.
class OCTAVO_API Exception : public std::runtime_error {
 public:
  enum class Kind {
    usage,        ///< the caller asked for something impossible
    bad_model,    ///< the ONNX file is corrupt or contradicts itself
    unsupported,  ///< valid, but not supported; the text names the node and what to do
    bad_input,    ///< names, shapes or types of arrays that do not fit
    bad_engine,   ///< engine file damaged, foreign, or of another version
    io,           ///< a file cannot be read or written, or the system refuses memory or threads
    internal,     ///< a bug in Octavo
    cancelled,    ///< BuildOptions::progress returned false
  };
  Exception(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

/// 4- and 2-bit integers and 8- and 4-bit floats take one byte for each element.
enum class DType : std::uint8_t {
  f32,
  f16,
  bf16,
  f64,
  s8,
  u8,
  s16,
  u16,
  s32,
  u32,
  s64,
  u64,
  boolean,
  s4,
  u4,
  s2,
  u2,
  f8e4m3fn,
  f8e4m3fnuz,
  f8e5m2,
  f8e5m2fnuz,
  f8e8m0,
  f4e2m1
};
[[nodiscard]] OCTAVO_API std::size_t size_of(DType type);       ///< bytes of one element
[[nodiscard]] OCTAVO_API std::string_view name_of(DType type);  ///< "f32", "s8", "bool", ...

using Shape = std::vector<std::int64_t>;  ///< outermost dimension first; -1: not known yet (symbolic)

/// code = clamp(round_half_even(x / scale) + zero_point); x = (code - zero_point) * scale. One entry, or one for each index of
/// `axis`.
struct Quantization {
  DType type = DType::u8;
  std::vector<float> scale;
  std::vector<std::int32_t> zero_point;
  int axis = -1;  ///< -1: per tensor
};

/// A tensor as callers, layers and reports see it.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::optional<Quantization> quantization;  ///< set if the elements are codes
  /// The format of a bound input or output, as "uint8:hwc"; the shape is then that of its memory. "=3,1": shapes depend on the
  /// elements of this input, and the engine was built for these elements.
  std::string format;
  /// The name that the model gives each dimension ("batch"), or "". Empty if the model names no dimension.
  std::vector<std::string> symbols = {};
};

/// Metadata of a model file. Engine files keep it.
struct ModelInfo {
  std::string producer_name, graph_name, domain, description, graph_description;
  std::int64_t version = 0;
  std::map<std::string, std::string> metadata;  ///< metadata_props, by key
};

/// Version of the fields of LayerInfo and of all JSON about plans (docs/schema.md).
inline constexpr int kLayerSchema = 1;

/// One reason as data: its cause ("input_on_two_grids") and the values of the cause's fields by name. docs/schema.md lists the causes.
struct LayerReason {
  using Value = std::variant<std::int64_t, double, std::string, std::vector<std::string>>;
  std::string cause;
  std::map<std::string, Value, std::less<>> values;
};

/// Where a time of a plan comes from.
enum class TimeFrom : std::uint8_t { nothing, estimate, measurement };

/// One region of the plan: one fused step, with its reasons.
struct LayerInfo {
  /// What the planner's decision about the type of a layer counted with for a type that it did not take.
  struct OtherType {
    std::string type;     ///< "int8", "float32", "bfloat16", "float16"
    std::string node;     ///< the ONNX node that the decision is about; a layer of several convolutions has one for each
    double seconds = -1;  ///< of the region that computes the node, in a plan with that type
    TimeFrom from = TimeFrom::nothing;
  };
  struct Alternative {
    std::string tactic;
    std::string reason;                ///< in English: why it was taken or refused, or that it was possible; with its time
    std::vector<LayerReason> reasons;  ///< the same as data
    double seconds = -1;               ///< measured; -1: unknown
    double estimate = -1;              ///< of the provider, if nothing was measured; -1: none
  };
  std::string name;  ///< made of the names of its ONNX nodes
  std::string kind;  ///< the heavy operator ("conv", "max_pool", ...); "pointwise" or "move" if there is none
  std::set<std::string> onnx_nodes;
  std::vector<TensorInfo> inputs, outputs;
  std::string tactic;                ///< "cpu.conv.u8s8.avx512vnni.jit"
  std::string precision;             ///< "int8", "float32", "int8->float32", "move", ...
  std::string reason;                ///< in English: why these nodes are one layer, why in this precision
  std::vector<LayerReason> reasons;  ///< the same as data
  std::vector<Alternative> alternatives;
  double seconds = -1;                ///< of `tactic`, as the planner counted with it; -1: unknown, as of copies between devices
  TimeFrom from = TimeFrom::nothing;  ///< where `seconds` comes from
  /// Empty where no other type was priced: at effort 0 and 1 (bfloat16 on a GPU apart), for layers that Q/DQ pairs make int8, and for float16, which is
  /// taken where it is allowed and not weighed (docs/precision.md).
  std::vector<OtherType> other_types;
};

/// Dense row-major elements that the caller owns.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
};
[[nodiscard]] inline ConstView view(const std::vector<float>& v, Shape shape) {
  return {v.data(), DType::f32, std::move(shape)};
}
[[nodiscard]] inline ConstView view(const std::vector<std::uint8_t>& v, Shape shape) {
  return {v.data(), DType::u8, std::move(shape)};
}
[[nodiscard]] inline ConstView view(const std::vector<std::int8_t>& v, Shape shape) {
  return {v.data(), DType::s8, std::move(shape)};
}
[[nodiscard]] inline ConstView view(const std::vector<std::int64_t>& v, Shape shape) {
  return {v.data(), DType::s64, std::move(shape)};
}

/// Dense row-major elements with their storage.
struct Array {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;
  template <class T>
  [[nodiscard]] std::span<const T> as() const {
    if (sizeof(T) != size_of(dtype)) throw Exception(Exception::Kind::usage, "Array::as: the element type has another size");
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// The shapes that an input with open dimensions may have: every dimension lies between min and max. The engine for opt is built at once.
struct Profile {
  Shape min, opt, max;
};

struct BuildOptions {
  /// "cpu"; "cuda" ("cuda:1": GPU number 1), an NVIDIA GPU, whose kernels NVRTC compiles in this call; or "reference", the slow
  /// evaluator that defines the results, node by node on the imported graph, which is never chosen silently. "cuda:sm_86" or
  /// "cuda:RTX 4090": a GPU that need not be in this machine; the engine is planned by estimates (effort 0; usage for others) and can be
  /// saved, but contexts of it are the error `unsupported`. The error `unsupported` names regions for which the GPU has no kernel.
  std::string device = "cpu";
  /// Use at most these vector instructions, so that processors with fewer instructions can load the engine: "portable", "avx2",
  /// "avx512", "avx512vnni", "amx"; empty or "native": all of this processor. A load error names the missing instructions. Errors:
  /// unsupported for more than this processor has, because kernels are timed on it.
  std::string cpu = {};
  /// Shapes of inputs by name, for symbolic dimensions. Inputs left open are bound by the arrays of the first run, see Engine::at.
  std::map<std::string, Shape> shapes = {};
  /// For every input that `shapes` leaves open, or for none. Shapes outside of the profiles are refused. build makes the engine for the
  /// opt shapes before it returns; engines for other shapes between min and max are built when these first occur.
  std::map<std::string, Profile> profiles = {};
  /// Values of inputs that decide shapes (a Slice's starts, a Resize's sizes, TopK's k, axes, ...). Those left open are bound by the
  /// arrays of a run, see Engine::at. The engine still takes the input, and refuses another value.
  std::map<std::string, Array> values = {};
  /// The number of engines that are kept for shapes and values that have occurred, at least 1. Beyond it, the least recently used one is
  /// dropped, and made again when it is needed. Nothing: 32 that were planned; and, of those that use the constants of tuned ones (docs/onnx.md, "New shapes"), as many as
  /// have 65,536 regions together (about 14 KB each; one of a GPU counts as eight), and at most 4096.
  std::optional<int> most_engines = {};
  /// What a run with new shapes does, from effort 1 on (at effort 0 nothing is ever timed). "nearest": it takes over the decisions of the nearest shapes that were
  /// tuned (the opt shapes of `profiles`, Engine::tune, otherwise the first shapes of all), and times nothing. "tune": it plans and times for these
  /// shapes, which takes seconds. "background": as nearest; a thread then tunes shapes that occur often, and the next run takes the new plan.
  std::string late = "nearest";
  /// Takes the memory that a run of the largest shapes of `profiles` needs (arena and scratch, up to 1 GB; MemoryUse::held) when the engine is built and tuned, so that no run
  /// touches new pages. False: memory grows with the largest shapes that have occurred. On the CPU.
  bool reserve = true;
  /// Bounds of sizes that data decide, by the name of a tensor or of an ONNX node (docs/onnx.md, "Sizes that data decide"), 1 to 2^28. Of a result: the most elements of
  /// each of its dimensions whose size data decide. Of a list of whole numbers that decide sizes: the greatest number. Of a Loop's result, or the Loop:
  /// the most steps. A run that needs more throws Exception::Kind::bad_input, which names tensor, bound and size.
  std::map<std::string, std::int64_t> max_elements = {};
  /// > 0: the value of a symbolic first dimension (the batch) that `shapes` leaves open. 0: it stays open until the first run.
  std::int64_t default_batch = 0;
  /// Threads to plan for and to run with; 0: every core this process may use. An engine runs on any number of threads.
  int threads = 0;
  /// Laws, rules and fusions to leave out, by name (docs/rules.md).
  std::set<std::string, std::less<>> disabled = {};
  /// Effort to find the fastest plan, 0 to 5 (docs/planner.md). 0 measures nothing; 2 times tactics and searches, which takes some
  /// seconds.
  int effort = 2;
  /// Timing cache file (docs/timing-cache.md). The build reads it first, and adds what it measures. Empty: the user's file,
  /// ($XDG_CACHE_HOME or ~/.cache)/octavo/timing.txt, so that builds of one model agree. "none": times of this build only.
  std::string timing_cache = {};
  /// A time that is missing in the timing cache is an error.
  bool strict_timing = false;
  /// Implicit quantization: the 8-bit quantizer (one scale) through which a tensor may be read, by its ONNX name. See read_calibration,
  /// symmetric_range and range_between.
  std::map<std::string, Quantization> ranges = {};
  /// Each of them must be of a tensor of the model: usage otherwise. Tables of files may hold more.
  bool ranges_by_hand = false;
  /// Meaning of the model's QuantizeLinear/DequantizeLinear pairs. "demand": each pair rounds at its place. "permit": pairs on activations
  /// with one scale become ranges, and the planner rounds only tensors between regions (docs/implicit.md).
  std::string qdq = "demand";
  /// Pattern of ONNX node or tensor names (* and ?) and "int8", "float32", "bfloat16" or "float16"; the first that matches counts.
  std::vector<std::pair<std::string, std::string>> precisions = {};
  /// Type and layout of inputs and outputs by name, as "uint8:hwc", "float16", "int8:hwc8" (docs/bindings.md).
  std::map<std::string, std::string> bindings = {};
  /// Types that layers may compute in: "int8" where a range permits it, "float32", "bfloat16" (docs/implicit.md), and on a GPU "float16", which
  /// tensors between layers may be stored in too, and "tf32" (docs/precision.md).
  std::set<std::string> allowed = {"int8", "float32"};
  /// The largest error of permitted int8, bfloat16 and float16, as a part of an output's largest magnitude, estimated by the reference on seeded
  /// inputs. Layers stay float32, the cheapest first, until the limit holds. Slow on large networks. Nothing: no limit.
  std::optional<double> max_error = {};
  /// save() and bytes() also write the model (the ONNX file and its external data), so that a later version of Octavo can build the engine
  /// again. A model given as bytes stays in memory for this. A model given as a path is read again, and save() fails with `io` if the file
  /// has changed. False: the file does not contain the model, and must be built from the ONNX file again after an upgrade of Octavo.
  bool keep_model = true;
  /// Called in the building thread with the current step ("import", "plan: choice 3 of 96"), when the step changes and up to 20 times a
  /// second in between; also while run() or at() build for new shapes. If it returns false, the build stops, usually within a tenth of a
  /// second, and throws Exception::Kind::cancelled. Must not throw.
  std::function<bool(std::string_view step)> progress = {};
};

/// How an engine file is loaded. A file for a GPU is a program: it holds machine code, which the GPU runs with all rights of this process.
/// Load such files from others only with `verify` or `rebuild_code`. A file for the CPU holds no code (docs/hostile.md).
struct LoadOptions {
  int threads = 0;  ///< 0: the number that it was built for, at most the cores of this machine
  /// Public Ed25519 key as PEM, or the name of a file with one. The signature (octavo build --sign) must cover every byte of the engine
  /// file, which is read into memory, where it cannot change any more. Empty: any file.
  std::string verify = {};
  /// Compile the GPU kernels of the plan again with NVRTC, and use no machine code, grid sizes or kernel names from the file. Needs NVRTC.
  /// The first load takes the time of compiling; the results are kept in the user's cache. No effect on the CPU.
  bool rebuild_code = false;
  /// A file of an earlier version is built again in memory from its model, as by Engine::build. False: it is refused.
  bool upgrade = true;
  /// As BuildOptions::reserve, for the range of the file.
  bool reserve = true;
  /// Gets one sentence before a file of an earlier version is built again. Called in the loading thread.
  std::function<void(const std::string& sentence)> warn = {};
};

/// One input (which is only read) or output of a run, and whether its memory is that of the engine's GPU.
struct Memory {
  void* data = nullptr;
  bool on_gpu = false;
};

/// Bytes of the host's memory that an engine takes beside its code.
struct MemoryUse {
  std::uint64_t constants = 0;  ///< weights and tables; plans of one model share equal ones
  /// Working memory of one run: of an open engine for the largest shapes that it has run, and those that its range allows (0: not known).
  std::uint64_t working = 0, working_most = 0;
  std::uint64_t held = 0;     ///< working memory that all contexts of Engine::run hold now, for this run and the next
  std::uint64_t scratch = 0;  ///< the same of memory that threads work in, of an open engine on the CPU
};

/// A compiled model. This is a cheap handle on immutable, shared state: copy it, and use it from any thread. Building takes seconds. A run
/// does not change the engine (a lock guards the set of shapes built so far, and idle contexts).
class OCTAVO_API Engine {
 public:
  /// Imports, plans and makes kernels. A model with open dimensions is only read and checked (unsupported operators are refused); it is
  /// built when the shapes are known. Errors: usage, bad_model, unsupported, io.
  [[nodiscard]] static Engine build(const std::string& path, const BuildOptions& options = {});
  /// `folder`: where external data lies, if the model has any.
  [[nodiscard]] static Engine build(std::span<const std::byte> model, const BuildOptions& options = {},
                                    const std::string& folder = "");
  /// Maps an engine file. A file of several shapes, or of a range of them, gives an open engine. `threads` 0: the number that it was built
  /// for, at most the cores of this machine. For files from others see LoadOptions. Errors: io; bad_engine (damaged, foreign, of a later
  /// version, of an earlier version without its model, not signed by the key); unsupported (the processor lacks instructions); for a file
  /// of an earlier version those of build.
  [[nodiscard]] static Engine load(const std::string& path, int threads = 0);
  [[nodiscard]] static Engine load(const std::string& path, const LoadOptions& options);
  /// The same from memory: the result of bytes(), or the contents of an engine file.
  [[nodiscard]] static Engine load(std::span<const std::byte> engine, int threads = 0);
  [[nodiscard]] static Engine load(std::span<const std::byte> engine, const LoadOptions& options);
  /// Writes the engine. Equal model, options, machine, version and timing cache (or effort 0) give equal bytes. An existing file is
  /// replaced, or stays unchanged on an error. An open engine with `profiles` writes the plans that were tuned, and the loaded file runs for every
  /// shape of the range; other open engines write all engines that they keep (at most 256), and the loaded file runs for their shapes and values.
  /// Equal weights are written once. Errors: io; usage if an open engine has built none, or if it was built without keep_model and shapes of its range
  /// can only be planned; unsupported for the reference device.
  void save(const std::string& path) const;
  /// The bytes that save() writes, by way of a temporary file. Errors: as save.
  [[nodiscard]] std::vector<std::byte> bytes() const;
  /// The version of Octavo that built the engine: "0.1.0".
  [[nodiscard]] std::string built_by() const;
  /// What `octavo build` stored with the plan: "preprocess", how pictures become inputs, as JSON (docs/running.md). Empty for a model.
  [[nodiscard]] std::map<std::string, std::string> notes() const;
  /// The metadata of the model: producer, version and others. An engine file has those of the model that it was built from.
  [[nodiscard]] ModelInfo model() const;
  /// The plan as `octavo explain` prints it: one line for each layer, or JSON. Errors: usage while open.
  [[nodiscard]] std::string explain(bool json = false) const;
  /// Frees the memory and threads of contexts that run() keeps for its next call. Other threads may run meanwhile.
  void trim() const;
  /// What it takes now. Cost: some milliseconds for an open engine.
  [[nodiscard]] MemoryUse memory() const;

  /// True while dimensions are open (shapes hold -1), or values of inputs that decide shapes. run() then builds, or takes from its cache,
  /// the engine that at(shapes, values) returns. Also true for a file of several shapes.
  [[nodiscard]] bool open() const;
  /// The engine for these input shapes: itself if nothing is open. Builds at most once for each set of shapes; other threads that need the
  /// same engine wait. Every input must be named. `values` must have those that decide shapes; others are ignored.
  /// BuildOptions::most_engines are kept. A loaded file serves every shape of its range, or has only its own shapes and values; inputs that are the same
  /// in all of them need not be named. Errors: bad_input if a shape does not fit or a value is missing, and those of build.
  [[nodiscard]] Engine at(const std::map<std::string, Shape>& shapes, const std::map<std::string, ConstView>& values = {}) const;

  /// Plans and times for these shapes now, whatever `late` says, as if the engine had been built for them alone; other shapes follow their
  /// decisions from then on. The arguments, the result and the errors are those of at(). Nothing happens on an engine that is not open or was loaded.
  Engine tune(const std::map<std::string, Shape>& shapes, const std::map<std::string, ConstView>& values = {}) const;

  /// This open model together with these engines (the result of bytes(), for example in another process). They serve the shapes and values
  /// that they were built for; others are built. Errors: usage for an engine that is not an open model; those of load.
  [[nodiscard]] Engine with_engines(std::span<const std::byte> engines) const;
  /// Engines that an open model has built so far; 0 for others.
  [[nodiscard]] std::uint64_t builds() const;
  /// The bytes of an open model, valid as long as this handle; empty for others.
  [[nodiscard]] std::span<const std::byte> model_bytes() const;

  [[nodiscard]] std::vector<TensorInfo> inputs() const;   ///< in the model's order
  [[nodiscard]] std::vector<TensorInfo> outputs() const;  ///< while open: as the file declares them
  /// In order of execution. Errors: usage while open.
  [[nodiscard]] std::vector<LayerInfo> layers() const;
  /// A hash (32 hexadecimal digits) of everything that runs (docs/architecture.md); names, reasons and times do not count. Errors: usage
  /// while open.
  [[nodiscard]] std::string plan_hash() const;
  [[nodiscard]] int threads() const;
  [[nodiscard]] std::string device() const;

  /// Runs with named arrays: every input once, and no other names. The results have the names of the outputs. Any number of threads may run
  /// at once (each run takes an idle context or makes one). Errors: bad_input, which names the array and both shapes or types.
  [[nodiscard]] std::map<std::string, Array> run(const std::map<std::string, ConstView>& inputs) const;
  /// The same with buffers in the order of inputs() and outputs(): dense, of the right type and size, aligned to their elements, and none
  /// overlapping an output. If data decide how large an output is (NonZero, NonMaxSuppression), its shape in outputs() is the largest, for which
  /// the buffer must have room; `shapes`, if given, becomes the shapes of the results, whose elements are the first ones of the buffer along
  /// every dimension, at the distances of the largest shape. Errors: usage while open; bad_input on a wrong count or a null pointer.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs, std::vector<Shape>* shapes = nullptr) const;
  /// The same with memory of the host or of the engine's GPU. GPU memory at a multiple of 64 bytes is read and written without a copy.
  /// `stream`: a CUstream of that GPU; the run begins after its earlier work. null: a stream of the engine. Returns when the run is done.
  /// Errors: as above; bad_input for memory of a GPU that the engine does not use.
  void run(std::span<const Memory> inputs, std::span<const Memory> outputs, void* stream = nullptr,
           std::vector<Shape>* shapes = nullptr) const;
  /// Zeroed memory of the engine's GPU, at a multiple of 256 bytes; freed with the last copy of the pointer. Errors: unsupported for engines
  /// of another device; io if there is too little memory, with the amount that there is.
  [[nodiscard]] std::shared_ptr<void> gpu_memory(std::size_t bytes) const;

 private:
  struct Impl;
  explicit Engine(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
  friend class Context;
};

/// Times in seconds of runs that were measured layer by layer.
struct RunTimes {
  double median = 0, least = 0;  ///< of a whole run
  std::vector<double> layers;    ///< medians, parallel to Engine::layers()
};

/// A tensor in which runs found NaN or infinities.
struct NonFinite {
  std::string tensor;              ///< its ONNX name: an input of the model, or a tensor that a layer stored in a float type
  std::vector<std::string> nodes;  ///< ONNX nodes of the layer
  std::int64_t nan = 0, infinite = 0, elements = 0;  ///< of all runs that were counted
};

/// Arena and threads to run one engine, for one thread at a time. Results do not depend on the number of threads. Of an open engine it takes every
/// shape of the range, by `run` with arrays.
class OCTAVO_API Context {
 public:
  /// `threads` 0: the engine's. Errors: io.
  explicit Context(const Engine& engine, int threads = 0);
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  /// Runs with arrays in the order of Engine::inputs(). An open engine takes their shapes as they are, as Engine::at does: the first run of new shapes takes some
  /// milliseconds more, and the context keeps what 16 sets of shapes need. The results, in the order of Engine::outputs(), have their true shapes and lie in
  /// memory of the context until its next run. Errors: bad_input, which names the array and both shapes or types; those of Engine::at.
  [[nodiscard]] std::span<const ConstView> run(std::span<const ConstView> inputs);
  [[nodiscard]] std::span<const ConstView> run(std::initializer_list<ConstView> inputs) {
    return run(std::span<const ConstView>(inputs.begin(), inputs.size()));
  }
  /// As Engine::run with buffers; allocates nothing. Errors also: usage while dimensions of the engine are open.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs);
  /// As Engine::run with memory of the host or the GPU. With a stream, the call puts the work into the stream and does not wait. The results
  /// are complete when the stream has reached this point; until then the context must not run in another stream, and host memory must not
  /// change. Allocates nothing if the same addresses were used before. Such a call cannot know yet how large results are whose size data decide, nor whether
  /// data need more than BuildOptions::max_elements: `wait` checks that, and `shape_of` is right after it. Without it, results of such a run may be cut
  /// off, and nothing says so.
  void run(std::span<const Memory> inputs, std::span<const Memory> outputs, void* stream = nullptr);
  /// Returns when what runs in a caller's stream put there has ended, and checks sizes that data decided in it. Without such a run: at once. Errors: bad_input
  /// where data need more elements than a bound, which names tensor, bound and size; what went wrong in the run; usage while dimensions are open.
  void wait();
  void run(std::initializer_list<const void*> inputs, std::initializer_list<void*> outputs) {
    run(std::span<const void* const>(inputs.begin(), inputs.size()), std::span<void* const>(outputs.begin(), outputs.size()));
  }
  /// Runs once, then `runs` times with the time of each layer. Errors: as run with buffers; usage if `runs` is below 1.
  [[nodiscard]] RunTimes profile(std::span<const void* const> inputs, std::span<void* const> outputs, int runs = 50);
  /// The shape of output `output` (an index into Engine::outputs()) after the last run has ended, as Engine::run says. Errors: usage if there is
  /// no such output.
  [[nodiscard]] Shape shape_of(std::size_t output) const;
  [[nodiscard]] int threads() const;

  /// `on`: from now on, each run with buffers counts NaN and infinities in the model's inputs and in every float tensor that a layer stores,
  /// which takes about one more pass over these; counts begin at 0. Otherwise: no longer. Runs with a stream are not counted. Errors: usage while
  /// dimensions of the engine are open.
  void count_nonfinite(bool on = true);
  /// The tensors that had any: inputs first, then in the order of computation. The first one is the origin.
  [[nodiscard]] std::vector<NonFinite> nonfinite() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// BuildOptions::ranges from a TensorRT calibration table, or a JSON object of ranges (docs/tables.md). Errors: io, bad_input naming the line.
[[nodiscard]] OCTAVO_API std::map<std::string, Quantization> read_calibration(const std::string& path);
/// int8 around 0, as in calibration tables: scale = largest_magnitude / 127. Errors: usage for a negative number or NaN.
[[nodiscard]] OCTAVO_API Quantization symmetric_range(double largest_magnitude);
/// uint8 from min to max, widened to hold 0; 0 is a code. Errors: usage unless min <= max, both finite.
[[nodiscard]] OCTAVO_API Quantization range_between(double min, double max);

/// A doubtful number in a model: a scale of 0, a bias that does not fit into int32, ... (docs/doctor.md lists the rules).
struct Finding {
  bool error = false;              ///< build refuses the model because of it; otherwise a warning
  std::string rule;                ///< "scale", "bias-overflow", ...
  std::string tensor;              ///< the ONNX tensor
  std::vector<std::string> nodes;  ///< ONNX nodes that read it; unnamed ones are "Type_index"
  std::string text;                ///< the fact with its numbers, and what to do
};
struct DoctorOptions {
  std::string calibration;  ///< a table of ranges as for read_calibration; its ranges are checked too
  std::string minmax;       ///< a min-max table of the same model and data, to compare `calibration` with
};
/// The findings of `octavo doctor`: errors first, then in the order of the nodes. Nothing is built, so shapes need not be known, and models
/// that build refuses are checked as far as they can be read. Errors: io; bad_model if the file is not an ONNX file; usage, bad_input
/// (tables).
[[nodiscard]] OCTAVO_API std::vector<Finding> doctor(const std::string& path, const DoctorOptions& options = {});
/// `folder`: where external data lies, if the model has any.
[[nodiscard]] OCTAVO_API std::vector<Finding> doctor(std::span<const std::byte> model, const DoctorOptions& options = {},
                                                     const std::string& folder = "");

/// "0.1.0"
[[nodiscard]] OCTAVO_API std::string_view version();

}  // namespace octavo
