// Octavo: compiles 8-bit neural networks from ONNX and runs them. The public C++ interface; it needs no other header of the
// project.
//
//   octavo::Engine engine = octavo::Engine::build("model.onnx", {.default_batch = 1});
//   std::vector<float> image(3 * 224 * 224), logits(1000);
//   engine.run({{"input", octavo::view(image, {1, 3, 224, 224})}});       // simple: allocates the results
//   octavo::Context context(engine);                                      // fast: one context a thread
//   context.run({image.data()}, {logits.data()});                         // allocates nothing
//
// Errors leave as octavo::Exception, whose text says what was being done, what stopped it, where, and what to do next.
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

#if defined(OCTAVO_API)  // by whoever wants the symbols elsewhere
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
    usage,        ///< the caller asked for something that cannot be
    bad_model,    ///< the ONNX file is corrupt or contradicts itself
    unsupported,  ///< valid, but not covered; the text names the node and the way out
    bad_input,    ///< names, shapes or types of arrays that do not fit
    bad_engine,   ///< engine file damaged, foreign, or of another version
    io,           ///< a file cannot be read or written, or the system refuses memory or threads
    internal,     ///< a mistake of Octavo's own
    cancelled,    ///< BuildOptions::progress returned false
  };
  Exception(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

/// 4- and 2-bit integers and the 8- and 4-bit floats are kept one element a byte.
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
  std::optional<Quantization> quantization;  ///< set when the elements are codes
  /// Of a bound input or output, as "uint8:hwc"; its shape is then that of its memory. "=3,1": shapes depend on the elements of this
  /// input, and the engine was built for these.
  std::string format;
  /// The model's name of each dimension ("batch"), "" where it has none, whatever the engine was built for; empty: it names none.
  std::vector<std::string> symbols = {};
};

/// What a model file says of itself. Engine files keep it.
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

/// One region of the plan: what runs as one fused step, and why.
struct LayerInfo {
  struct Alternative {
    std::string tactic;
    std::string reason;                ///< in English: why it was taken or refused, or that it was possible, and its time
    std::vector<LayerReason> reasons;  ///< the same as data
    double seconds = -1;               ///< measured; -1: unknown
    double estimate = -1;              ///< the provider's own, where nothing was measured; -1: none
  };
  std::string name;  ///< from the ONNX nodes it stands for
  std::string kind;  ///< the heavy operator ("conv", "max_pool", ...); "pointwise" or "move" when there is none
  std::set<std::string> onnx_nodes;
  std::vector<TensorInfo> inputs, outputs;
  std::string tactic;                ///< "cpu.conv.u8s8.avx512vnni.jit"
  std::string precision;             ///< "int8", "float32", "int8->float32", "move", ...
  std::string reason;                ///< in English: why these nodes are one layer, why in this precision
  std::vector<LayerReason> reasons;  ///< the same as data
  std::vector<Alternative> alternatives;
};

/// Dense row-major elements that somebody else owns.
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

/// What an input with open dimensions may be bound to: every dimension lies between min and max; opt is built for at once.
struct Profile {
  Shape min, opt, max;
};

struct BuildOptions {
  /// "cpu"; "cuda" ("cuda:1": GPU number 1), an NVIDIA GPU, whose kernels NVRTC compiles in this call: `unsupported` names what the
  /// GPU has no kernel for; or "reference": the slow evaluator that defines the results, node by node on the imported graph. Never
  /// chosen silently.
  std::string device = "cpu";
  /// Use at most these vector instructions, for an engine that a lesser processor is to load: "portable", "avx2", "avx512", "avx512vnni",
  /// "amx"; empty or "native": what this processor has. Loading names what an engine needs and a processor lacks. Errors: unsupported
  /// for more than this processor has, since kernels are timed where they are built.
  std::string cpu = {};
  /// Shapes of inputs by name, for symbolic dimensions. Inputs left open are bound by the arrays of the first run, see Engine::at.
  std::map<std::string, Shape> shapes = {};
  /// For every input that `shapes` leaves open, or for none: other shapes than these are refused, and the engine for the opt shapes
  /// is built before build returns. Shapes between min and max are built when they first occur; none runs in another's engine.
  std::map<std::string, Profile> profiles = {};
  /// Values of inputs that decide shapes (a Slice's starts, a Resize's sizes, TopK's k, axes, ...). Those left open are bound by the
  /// arrays of a run, see Engine::at; the engine takes the input all the same, and refuses another value.
  std::map<std::string, Array> values = {};
  /// Engines kept for the shapes and values that have occurred; of more, the one that was not run longest is dropped (and built
  /// again when it is asked for). At least 1.
  int most_engines = 32;
  /// > 0: a symbolic first dimension (the batch) that `shapes` leaves open becomes this. 0: it stays open until the first run.
  std::int64_t default_batch = 0;
  /// Threads to plan for and to run with; 0: every core this process may use. An engine runs on any number of threads.
  int threads = 0;
  /// Laws, rules and fusions to leave out, by name (docs/rules.md).
  std::set<std::string, std::less<>> disabled = {};
  /// How hard to look for the fastest plan, 0 to 5 (docs/planner.md). 0 measures nothing; 2 times tactics and searches, some
  /// seconds.
  int effort = 2;
  /// Timing cache file (docs/timing-cache.md): read first, extended by what is measured. Empty: that of the user,
  /// ($XDG_CACHE_HOME or ~/.cache)/octavo/timing.txt, so that builds of one model agree. "none": measured for this build only.
  std::string timing_cache = {};
  /// A time that the timing cache does not have is an error.
  bool strict_timing = false;
  /// Implicit quantization: through which 8-bit quantizer a tensor may be read, by ONNX name, one scale each. See read_calibration,
  /// symmetric_range and range_between.
  std::map<std::string, Quantization> ranges = {};
  /// Each of them must be of a tensor of the model: usage otherwise. Tables of files may hold more.
  bool ranges_by_hand = false;
  /// What the model's own QuantizeLinear/DequantizeLinear pairs say: "demand": each rounds where it stands; "permit": those on activations with
  /// one scale are taken as ranges, and the planner rounds where regions exchange tensors, nowhere else (docs/implicit.md).
  std::string qdq = "demand";
  /// Pattern of ONNX node or tensor names (* and ?) and "int8", "float32" or "bfloat16"; the first that matches counts.
  std::vector<std::pair<std::string, std::string>> precisions = {};
  /// Type and layout of inputs and outputs by name, as "uint8:hwc", "float16", "int8:hwc8" (docs/bindings.md).
  std::map<std::string, std::string> bindings = {};
  /// Types that layers may compute in: "int8" where a range permits it, "float32", "bfloat16" (docs/implicit.md).
  std::set<std::string> allowed = {"int8", "float32"};
  /// Largest error that permitted int8 and bfloat16 may make, as a part of an output's largest magnitude, estimated by the reference
  /// on seeded inputs: layers stay float32, the cheapest first, until it holds. Slow on large networks. Nothing: no limit.
  std::optional<double> max_error = {};
  /// save() and bytes() write the model (the ONNX file, and its external data) beside the plan, so that an Octavo of a later version can build
  /// the engine again. A model given as bytes stays in memory for that; of one given as a path nothing does, and save() fails with `io` if the file was
  /// written to meanwhile. False: the file is smaller by the model, and must be built from it again when Octavo is upgraded.
  bool keep_model = true;
  /// Called in the building thread with what is being done ("import", "plan: choice 3 of 96"), when that changes and up to 20
  /// times a second in between; also while run() or at() build for new shapes. False stops the build, usually within a tenth of a
  /// second: it throws Exception::Kind::cancelled. Must not throw.
  std::function<bool(std::string_view step)> progress = {};
};

/// How an engine file is loaded. A file for a GPU is a program: it holds machine code, which the GPU runs with all rights of this process there. Load
/// such files from others with `verify` or `rebuild_code` only; a file for the CPU holds no code (docs/hostile.md).
struct LoadOptions {
  int threads = 0;  ///< 0: as many as it was built for, at most the cores of this machine
  /// Public Ed25519 key as PEM, or the name of a file with one: the file must be signed with its private half (octavo build --sign), every byte of it,
  /// and is read into memory where it cannot change any more. Empty: any file.
  std::string verify = {};
  /// Compile the plan's GPU kernels anew with NVRTC, and use no machine code, no sizes of grids and no names of kernels from the file. Takes what
  /// compiling takes the first time (the results are kept in the user's cache), and needs NVRTC. No difference for the CPU.
  bool rebuild_code = false;
  /// A file of an earlier version is built again, in memory, from the model that it holds, as Engine::build does it; false: it is refused.
  bool upgrade = true;
  /// Told what the caller should know, in one sentence, before a file of an earlier version is built again. In the loading thread.
  std::function<void(const std::string& sentence)> warn = {};
};

/// One input (which is only read) or output of a run, and whether its memory is that of the engine's GPU.
struct Memory {
  void* data = nullptr;
  bool on_gpu = false;
};

/// A compiled model. A cheap handle on immutable, shared state: copy it, use it from any thread. Building takes seconds; running
/// does not change it (the set of shapes built so far, and idle contexts, are guarded inside).
class OCTAVO_API Engine {
 public:
  /// Imports, plans and makes kernels. A model with open dimensions is only read and checked (operators that are not covered are
  /// refused): it is built once the shapes are known. Errors: usage, bad_model, unsupported, io.
  [[nodiscard]] static Engine build(const std::string& path, const BuildOptions& options = {});
  /// `folder`: where external data lies, if the model has any.
  [[nodiscard]] static Engine build(std::span<const std::byte> model, const BuildOptions& options = {},
                                    const std::string& folder = "");
  /// Maps an engine file; one of several shapes gives an open engine that holds all of them. `threads` 0: as many as it was built for, at most the cores of this machine. Errors: io, bad_engine
  /// (damaged, foreign, of a later version, of an earlier one that does not hold its model, not signed by the key), unsupported (the processor
  /// lacks something); those of build for a file of an earlier version. Of a file for a GPU that others made see LoadOptions.
  [[nodiscard]] static Engine load(const std::string& path, int threads = 0);
  [[nodiscard]] static Engine load(const std::string& path, const LoadOptions& options);
  /// The same from memory: what bytes() gives, or an engine file that came another way.
  [[nodiscard]] static Engine load(std::span<const std::byte> engine, int threads = 0);
  [[nodiscard]] static Engine load(std::span<const std::byte> engine, const LoadOptions& options);
  /// Writes the engine; equal model, options, machine, version and timing cache (or effort 0) give equal bytes. An existing file is
  /// replaced whole or not at all. Of an open engine: all that are kept by now (at most 256), in one file, which holds equal weights once;
  /// loaded, it runs for their shapes and values and builds nothing. Errors: io; usage while an open engine has built none; unsupported
  /// for the reference device.
  void save(const std::string& path) const;
  /// What save() writes. Errors: as save; it goes through a temporary file.
  [[nodiscard]] std::vector<std::byte> bytes() const;
  /// The version of Octavo that built the engine: "0.1.0".
  [[nodiscard]] std::string built_by() const;
  /// What `octavo build` stored beside the plan: "preprocess", how pictures become inputs, as JSON (docs/running.md). Empty for a model.
  [[nodiscard]] std::map<std::string, std::string> notes() const;
  /// What the model says of itself: producer, version, metadata. Of an engine file, what the model said that it was built from.
  [[nodiscard]] ModelInfo model() const;
  /// The plan as `octavo explain` prints it: a line a layer, or JSON. Errors: usage while open.
  [[nodiscard]] std::string explain(bool json = false) const;
  /// Gives back the memory and threads of contexts that run() keeps for its next call. Any thread may run meanwhile.
  void trim() const;

  /// True while dimensions are open (shapes hold -1), or values of inputs that decide shapes: run() then builds (or takes from its
  /// cache) what at(shapes, values) returns. Also for a file of several shapes, which has all that it ever will.
  [[nodiscard]] bool open() const;
  /// The engine for these input shapes: itself when nothing is open. Builds at most once for each set of shapes; other threads
  /// asking for the same wait. Every input must be named. Of `values` those that decide shapes are read: they must be there.
  /// BuildOptions::most_engines are kept. Of a loaded file the shapes and values that it holds; inputs need not be named that are the same in
  /// all. Errors: bad_input when a shape does not fit or a value lacks, and those of build.
  [[nodiscard]] Engine at(const std::map<std::string, Shape>& shapes, const std::map<std::string, ConstView>& values = {}) const;

  /// An open model that also has these engines, what bytes() gave in another process or before: they are taken for the shapes and values that
  /// they were built for, others are built. Errors: usage for an engine that is not an open model; those of load.
  [[nodiscard]] Engine with_engines(std::span<const std::byte> engines) const;
  /// Engines that an open model has built so far; 0 for others.
  [[nodiscard]] std::uint64_t builds() const;
  /// The bytes of an open model, valid as long as this handle; empty for others.
  [[nodiscard]] std::span<const std::byte> model_bytes() const;

  [[nodiscard]] std::vector<TensorInfo> inputs() const;   ///< in the model's order
  [[nodiscard]] std::vector<TensorInfo> outputs() const;  ///< while open: as the file declares them
  /// In order of execution. Errors: usage while open.
  [[nodiscard]] std::vector<LayerInfo> layers() const;
  /// 32 hexadecimal digits over everything that runs (docs/architecture.md); not over names, reasons or times. Errors: usage while
  /// open.
  [[nodiscard]] std::string plan_hash() const;
  [[nodiscard]] int threads() const;
  [[nodiscard]] std::string device() const;

  /// Runs with named arrays; every input once, no other names. Results under the outputs' names. Any number of threads at once
  /// (each run takes an idle context or makes one). Errors: bad_input, naming the array, with both shapes or types.
  [[nodiscard]] std::map<std::string, Array> run(const std::map<std::string, ConstView>& inputs) const;
  /// The same with buffers in the order of inputs() and outputs(): dense, of the right type and size, aligned to their elements,
  /// none overlapping an output. Errors: usage while open; bad_input on a wrong count or a null pointer. Of an output with as many rows as the
  /// run selects (NonMaxSuppression) the buffer has room for the most, and rows of -1 follow; shape_of tells how many there are.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs) const;
  /// The shape that the run gave output `output` (an index into outputs()), whose elements it left at `data` in the memory of the host: that of
  /// outputs(), with fewer rows where the run selected fewer. Arrays that run() makes have it. Errors: usage while open or for no output.
  [[nodiscard]] Shape shape_of(std::size_t output, const void* data) const;
  /// The same with memory of the host or of the engine's GPU, each tensor where it is. What is in the GPU's memory at a multiple of 64 is
  /// read and written there without a copy. `stream`: a CUstream of that GPU behind whose earlier work the run begins; null: a stream of
  /// the engine's own. Returns when the run is done. Errors: as above; bad_input for memory of a GPU that the engine does not use.
  void run(std::span<const Memory> inputs, std::span<const Memory> outputs, void* stream = nullptr) const;
  /// Memory of the engine's GPU, zeros, at a multiple of 256; freed with the last copy of the pointer. Errors: unsupported for engines of
  /// another device; io when there is not as much, with what there is.
  [[nodiscard]] std::shared_ptr<void> gpu_memory(std::size_t bytes) const;

 private:
  struct Impl;
  explicit Engine(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
  friend class Context;
};

/// Seconds, of runs that were timed layer by layer.
struct RunTimes {
  double median = 0, least = 0;  ///< of a whole run
  std::vector<double> layers;    ///< medians, parallel to Engine::layers()
};

/// A tensor in which runs met numbers that are no finite numbers.
struct NonFinite {
  std::string tensor;              ///< its ONNX name: an input of the model, or what a layer stored in a float type
  std::vector<std::string> nodes;  ///< ONNX nodes of the layer
  std::int64_t nan = 0, infinite = 0, elements = 0;  ///< of all runs that were counted
};

/// Arena and threads to run one engine, for one thread at a time. Results do not depend on the number of threads.
class OCTAVO_API Context {
 public:
  /// `threads` 0: the engine's. Errors: usage while dimensions are open, io.
  explicit Context(const Engine& engine, int threads = 0);
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  /// As Engine::run with buffers; allocates nothing.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs);
  /// As Engine::run with memory of the host or the GPU. With a stream, the work is put into it and the call does not wait: results are
  /// there when the stream has come so far, and the context must not be run in another stream before. Host memory must then stay as it is
  /// until the stream is done, too. Allocates nothing once the same addresses were run before.
  void run(std::span<const Memory> inputs, std::span<const Memory> outputs, void* stream = nullptr);
  void run(std::initializer_list<const void*> inputs, std::initializer_list<void*> outputs) {
    run(std::span<const void* const>(inputs.begin(), inputs.size()), std::span<void* const>(outputs.begin(), outputs.size()));
  }
  /// Runs once, then `runs` times with the time of each layer. Errors: as run; usage when `runs` is below 1.
  [[nodiscard]] RunTimes profile(std::span<const void* const> inputs, std::span<void* const> outputs, int runs = 50);
  [[nodiscard]] int threads() const;

  /// From now on (`on`), or no longer, each run with buffers looks for NaN and infinities in the model's inputs and in every float tensor that a layer
  /// stores: about one more pass over those. Counts begin at 0. A run with a stream does not count.
  void count_nonfinite(bool on = true);
  /// The tensors that had any, inputs first, then in the order in which they are computed: the first is where to look.
  [[nodiscard]] std::vector<NonFinite> nonfinite() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// BuildOptions::ranges from a TensorRT calibration table, or a JSON object of ranges (docs/tables.md). Errors: io, bad_input naming the line.
[[nodiscard]] OCTAVO_API std::map<std::string, Quantization> read_calibration(const std::string& path);
/// int8 around 0, as calibration tables say it: scale = largest_magnitude / 127. Errors: usage for a number that is negative or no number.
[[nodiscard]] OCTAVO_API Quantization symmetric_range(double largest_magnitude);
/// uint8 from min to max, widened to hold 0; 0 is a code. Errors: usage unless min <= max, both finite.
[[nodiscard]] OCTAVO_API Quantization range_between(double min, double max);

/// A number of a model that misleads: a scale of 0, a bias that no int32 holds, ... (docs/doctor.md lists the rules).
struct Finding {
  bool error = false;              ///< build refuses the model for it; otherwise a warning
  std::string rule;                ///< "scale", "bias-overflow", ...
  std::string tensor;              ///< the ONNX tensor it is about
  std::vector<std::string> nodes;  ///< ONNX nodes that read it; unnamed ones are "Type_index"
  std::string text;                ///< the fact with its numbers, and the way out
};
struct DoctorOptions {
  std::string calibration;  ///< a table of ranges as read_calibration takes it: its ranges are looked at, too
  std::string minmax;       ///< a min-max table of the same model and data, which `calibration` is compared with
};
/// What `octavo doctor` finds, errors first, then in the order of the nodes. Nothing is built: shapes need not be known, and models
/// that build refuses are looked at as far as they can be read. Errors: io; bad_model for what is no ONNX file; usage, bad_input
/// (tables).
[[nodiscard]] OCTAVO_API std::vector<Finding> doctor(const std::string& path, const DoctorOptions& options = {});
/// `folder`: where external data lies, if the model has any.
[[nodiscard]] OCTAVO_API std::vector<Finding> doctor(std::span<const std::byte> model, const DoctorOptions& options = {},
                                                     const std::string& folder = "");

/// "0.1.0"
[[nodiscard]] OCTAVO_API std::string_view version();

}  // namespace octavo
