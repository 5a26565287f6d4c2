"""Octavo: compiles 8-bit neural networks from ONNX and runs them on the CPU.

>>> import numpy as np, octavo
>>> engine = octavo.build("model.onnx", shapes={"input": (1, 3, 224, 224)})
>>> logits = engine.run({"input": np.zeros((1, 3, 224, 224), np.float32)})["output"]
>>> for layer in engine.layers:
...     print(layer["name"], layer["precision"], layer["tactic"], layer["reason"])

Scripts written for ONNX Runtime run with one changed import: `import octavo as onnxruntime` (docs/from-onnxruntime.md).
"""
import math as _math
import operator as _operator
import os as _os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union, cast

from . import _nvrtc
from ._arguments import real as _real, thread_count as _thread_count, whole as _whole
from ._errors import (CancelledError, EngineFileError, Error, FileError, InputError, InternalError, ModelError, UnsupportedError, UsageError)
from ._octavo import (SCHEMA, Engine, __version__, _bench, _build_bytes, _build_file, _check, _doctor_bytes, _doctor_file, _preprocess, _profile,
                      load)
from ._quantize import Quantized, quantize
from ._types import Alternative, BenchResult, CheckReport, Finding, Layer, LayerTime, ModelInfo, ProfileResult, RegionCheck, TensorInfo
from ._view import Page, view
from .onnxruntime import (ExecutionMode, GraphOptimizationLevel, InferenceSession, OrtValue, RunOptions, SessionOptions,
                          get_available_providers, get_device)

__all__ = ["Engine", "build", "load", "tune", "check", "bench", "profile", "explain", "view", "preprocess", "doctor", "quantize", "Quantized",
           "Error", "UsageError", "ModelError", "UnsupportedError", "InputError", "EngineFileError", "FileError", "InternalError", "CancelledError",
           "Alternative", "BenchResult", "CheckReport", "Finding", "Layer", "LayerTime", "ModelInfo", "Page", "ProfileResult", "RegionCheck", "TensorInfo",
           "InferenceSession", "SessionOptions", "RunOptions", "OrtValue", "GraphOptimizationLevel", "ExecutionMode", "get_available_providers",
           "get_device", "SCHEMA", "__version__"]

_nvrtc.announce()

_Path = Union[str, "_os.PathLike[str]"]
_Shape = Sequence[int]


def build(model: Any, device: str = "cpu", shapes: Optional[Mapping[str, _Shape]] = None, threads: Optional[int] = None, *,
          default_batch: int = 0, profiles: Optional[Mapping[str, Tuple[_Shape, _Shape, _Shape]]] = None,
          disable: Optional[Iterable[str]] = None, effort: Optional[int] = None, timing_cache: Optional[_Path] = None,
          strict_timing: bool = False, calibration: Union[_Path, Mapping[str, Union[float, Tuple[float, float]]], None] = None,
          precision: Union[Mapping[str, str], Iterable[Tuple[str, str]], None] = None, allowed: Optional[Set[str]] = None,
          max_error: Optional[float] = None, bindings: Optional[Mapping[str, str]] = None,
          progress: Optional[Callable[[str], Any]] = None, cpu: Optional[str] = None, qdq: str = "demand",
          values: Optional[Mapping[str, Any]] = None, most_engines: Optional[int] = None, keep_model: bool = True,
          max_elements: Optional[Mapping[str, int]] = None,
          late: str = "nearest", reserve: bool = True) -> Engine:
    """Compiles an ONNX model into an Engine.

    model     a path (str or os.PathLike), the bytes of an ONNX file, or an object with SerializeToString() (onnx.ModelProto).
    device    "cpu", "cuda" ("cuda:1": GPU number 1; "cuda,cpu": what the GPU has no kernel for runs on the CPU), or "reference": the slow evaluator that defines the results. "cuda:sm_86" or
              "cuda:RTX 4090": a GPU that need not be in this machine. The engine is planned by estimates (effort 0) and can be saved;
              running it raises.
    shapes    {input name: sequence of int} for symbolic dimensions. Inputs left open are bound by the arrays of the first run; each
              new set of shapes is then built once and kept.
    threads   threads to plan for and to run with; None: every core this process may use.
    default_batch  a symbolic first dimension that `shapes` leaves open becomes this.
    values    {input name: array} for inputs that decide shapes: a Slice's starts, a Resize's sizes, TopK's k, axes, ... Those left open
              are bound by the arrays of the first run; each new set of values is then built once and kept.
    max_elements   {tensor or node name: N}: bounds of sizes that data decide. Of a result: the most elements of each dimension whose size data decide; of
              whole numbers that decide sizes: the greatest; of a Loop: the most steps. A run that needs more raises InputError.
    most_engines   number of engines kept for shapes and values that occurred; beyond it, the least recently used one is dropped. None: 32 that were
              planned; and, of those that use the constants of tuned ones, as many as have 65,536 regions together (about 14 KB each; one of a GPU counts as eight), at most 4096.
    late      what a run with new shapes does. "nearest": it takes over the decisions of the nearest shapes that were tuned (the opt shapes of
              `profiles`, octavo.tune, otherwise the first shapes of all) and times nothing. "tune": it plans and times for these shapes, which
              takes seconds. "background": as "nearest", and a thread tunes shapes that occur often; the next run takes the new plan.
    reserve   on the CPU, with `profiles`: the memory that a run of the largest shapes needs (arena and scratch, up to 1 GB; Engine.memory says how much) is taken when
              the engine is built and tuned, so that no run touches new pages. False: memory grows with the largest shapes that have occurred.
    keep_model     Engine.save also writes the ONNX model, so that a later version of octavo can build the engine again. For this, the file of a
              model given as a path is read again, and a model given as bytes stays in memory. False: smaller files.
    profiles  {input name: (min, opt, max)}, three shapes: the range of shapes of inputs with open dimensions. The engine for
              the opt shapes is built at once, others between min and max when they first occur; shapes outside raise InputError.
    disable   names of laws, rules and fusions to leave out.
    effort    0 to 5, the effort to find the fastest plan; 0 measures nothing, 2 is the default (0 for a GPU by its name).
    timing_cache   file of measured times; new times are added. strict_timing=True: a missing time is an error.
    calibration    path of a calibration table (TensorRT's, or JSON), or {tensor: largest magnitude, or (least, largest)}: ranges that permit int8 in a
              float model.
    qdq       meaning of the model's QuantizeLinear/DequantizeLinear pairs. "demand": every pair rounds at its place. "permit": pairs on activations
              may be left out if that makes the model faster; they then are ranges, as those of `calibration`. Results change;
              `octavo build --qdq permit` prints by how much, and the time of each plan.
    precision {pattern of node or tensor names: "int8", "float32", "bfloat16", "bfloat16-emulated", "float16" or "float16-emulated"}, or such pairs: the first that matches counts.
    allowed   types that layers may have, {"int8", "float32"} by default; "bfloat16" if the processor has it (docs/implicit.md), and with device="cuda"
              "float16" (tensors between layers too) and "tf32" (docs/precision.md). Without "float32", a layer that can have none of them
              raises UsageError; norms, softmax and element-wise operators compute in float32 all the same.
    max_error layers stay float32 until the estimated error is at most this part of an output's largest magnitude; slow on large
              networks.
    bindings  {input or output name: "uint8:hwc", "float16", ...}: their type and layout (docs/bindings.md); arrays then have
              the shape of that memory, as engine.inputs says, with scale and zero point where they hold codes.
    progress  function(step): called with the current step ("plan: choice 3 of 96") when it changes; if it returns False, build raises
              CancelledError.
    cpu       the most vector instructions to use, so that processors with fewer instructions can load the engine: "portable", "avx2", "avx512",
              "avx512vnni" or "amx"; None or "native": all of this processor. More than it has raises UnsupportedError.

    Takes seconds; other Python threads run meanwhile, and Ctrl-C stops it. Raises UsageError, ModelError, UnsupportedError, FileError.
    """
    options = _build_options(device, shapes, threads, default_batch, profiles, disable, effort, timing_cache, strict_timing, calibration, precision,
                             allowed, max_error, bindings, progress, cpu, qdq, values, most_engines, keep_model, late, max_elements, reserve)
    engine = cast(Engine, _with(model, _build_file, _build_bytes)(options))
    if engine.open:  # what pickle needs to build for other shapes
        in_file = isinstance(model, (str, _os.PathLike))
        engine._source = {**options, "progress": None}, _os.path.dirname(_os.path.abspath(model)) if in_file else ""
    return engine


def tune(engine: Engine, *shapes: Mapping[str, _Shape], values: Optional[Mapping[str, Any]] = None) -> None:
    """Plans and times an open engine for these sets of shapes, {input name: shape} each, as if it had been built for them alone.

    Runs with other shapes follow the decisions of the nearest of them. Takes seconds a set. Raises InputError for shapes that do not fit, and what
    build raises. Nothing happens for an engine that is not open.
    """
    for one in shapes:
        engine._tune({str(name): _shape(f"shapes[{name!r}]", shape) for name, shape in one.items()}, dict(values or {}))


def doctor(model: Any, calibration: Optional[_Path] = None, minmax: Optional[_Path] = None) -> List[Finding]:
    """The doubtful numbers of an ONNX model, as `octavo doctor` finds them (docs/doctor.md): a list of dicts, errors first.

    model         as for build. Nothing is built: shapes need not be known, and models that build refuses are checked too.
    calibration   path of a calibration table, whose ranges are checked too.
    minmax        path of a min-max table of the same model and data, to compare `calibration` with.
    each finding  severity ("error": build refuses the model; "warning"), rule ("scale", "bias-overflow", ...), tensor, nodes (the ONNX
                  nodes that read it), text (the fact with its numbers, and what to do).

    Raises FileError; ModelError if it is not an ONNX file; UsageError and InputError about the tables.
    """
    found = _with(model, _doctor_file, _doctor_bytes)(*(_os.fspath(table or "") for table in (calibration, minmax)))
    return cast(List[Finding], found)


def check(model: Any, inputs: Optional[Mapping[str, Any]] = None, seed: int = 1, from_model: bool = False, **options: Any) -> CheckReport:
    """Builds a model and compares every layer with the reference on the inputs that the engine computed: 8-bit results must be equal.

    model     as for build; not an engine, because engines hold no graph to compare with.
    inputs    {name: array}; None: random ones from `seed`.
    from_model  compare with the graph as imported, before laws and rewrites, instead of the graph that the plan was made from.
    options   those of build. An open batch becomes 1.
    returns   {"ok", "complete", "first_divergence": text or None, "regions": one dict each}. Seconds to minutes: the reference is slow.

    Raises what build raises; InputError.
    """
    made = _build_options(**{**_DEFAULTS, **_known(options)})
    if not isinstance(model, (bytes, bytearray, memoryview)) and not hasattr(model, "SerializeToString"):
        return cast(CheckReport, _check(_os.fspath(model), made, None if inputs is None else dict(inputs), _whole("seed", seed, 0, 2**64 - 1), bool(from_model)))
    data = model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model)
    return cast(CheckReport, _check(data, made, None if inputs is None else dict(inputs), _whole("seed", seed, 0, 2**64 - 1), bool(from_model)))


def bench(engine: Engine, seconds: float = 1.0, inputs: Optional[Mapping[str, Any]] = None, threads: Optional[int] = None) -> BenchResult:
    """Times whole runs of an engine for this number of seconds, after a tenth of that as a warm-up. The inputs are random unless some are given."""
    return cast(BenchResult, _bench(engine, _inputs_of(engine, inputs), _real("seconds", seconds, 0, 86400), _thread_count(threads)))


def profile(engine: Engine, runs: int = 50, inputs: Optional[Mapping[str, Any]] = None, threads: Optional[int] = None) -> ProfileResult:
    """Times each layer of an engine, in the order of execution: {"median_ms", "min_ms", "layers": [{"name", "median_ms", "share"}]}."""
    times = _profile(engine, _inputs_of(engine, inputs), _whole("profile: runs", runs, 1, 1000000), _thread_count(threads))
    whole = sum(times["layers_ms"]) or 1.0
    layers: List[LayerTime] = [
        {"name": layer["name"], "tactic": layer["tactic"], "precision": layer["precision"], "median_ms": t, "share": t / whole}
        for layer, t in zip(engine.layers, times["layers_ms"])]
    return {"median_ms": times["median_ms"], "min_ms": times["min_ms"], "layers": layers}


def explain(model: Any, json: bool = False, **options: Any) -> str:
    """The plan of an engine, or of a model built with `options` (those of build; an open batch becomes 1), as `octavo explain` prints it."""
    if isinstance(model, Engine):
        return model.explain(json)
    options.setdefault("default_batch", 1)
    return build(model, **options).explain(json)


def preprocess(picture: Any, engine: Optional[Engine] = None, *, input: Optional[str] = None, shape: Optional[_Shape] = None,
               dtype: str = "float32", preset: Optional[str] = None, resize: Union[str, int, _Shape, None] = None,
               crop: Union[str, int, _Shape, None] = None, letterbox: Optional[int] = None, scale: Union[str, float, None] = None,
               mean: Union[str, float, Sequence[float], None] = None, std: Union[str, float, Sequence[float], None] = None, bgr: bool = False,
               layout: Optional[str] = None) -> Any:
    """A picture as a model's input, computed exactly as `octavo run` does.

    picture   path of a JPEG or PNG file, its bytes, a PIL image, or uint8 pixels (height, width[, 1 or 3]).
    engine    gives shape and dtype (of `input`; None: its only input that takes pictures) and the preprocessing that `octavo build --preset`
              stored; without an engine give `shape` and `dtype`. A batch above 1 becomes 1: stack pictures with numpy.concatenate.
    preset    "torch", "tf", "caffe", "cifar" or "yolox"; the other arguments change it: resize=256 or (256, 320), crop, letterbox=114,
              (x * scale - mean) / std, bgr, layout "nchw" or "nhwc".

    Raises InputError, UsageError, FileError.
    """
    stored = ""
    if engine is not None:
        candidates = [t for t in engine.inputs if (t["name"] == input if input is not None else len(t["shape"]) in (3, 4))]
        if len(candidates) != 1:
            raise UsageError(f"preprocess: {len(candidates)} inputs could take the picture; name one: input="
                             f"{' or '.join(repr(t['name']) for t in engine.inputs)}")
        info = candidates[0]
        shape = [1 if d is None else d for d in info["shape"]] if shape is None else shape
        dtype = info["dtype"]
        stored = engine.notes.get("preprocess", "")
    if shape is None:
        raise UsageError("preprocess: give an engine, or the shape of the input")
    dims = [int(d) for d in shape]
    if len(dims) == 4:
        dims[0] = 1
    recipe = {"preset": preset, "resize": _size(resize), "crop": _size(crop), "letterbox": letterbox, "scale": scale, "mean": _numbers(mean),
              "std": _numbers(std), "layout": layout}
    what = "the picture"
    if isinstance(picture, (str, _os.PathLike)):
        what = f'"{_os.fspath(picture)}"'
        try:
            with open(picture, "rb") as file:
                picture = file.read()
        except OSError as e:
            raise FileError(f"cannot read {what}: {e.strerror}") from e
    elif isinstance(picture, (bytearray, memoryview)):
        picture = bytes(picture)
    elif not isinstance(picture, bytes):
        import numpy
        if hasattr(picture, "convert") and hasattr(picture, "mode"):  # a PIL image
            picture = picture.convert("L" if picture.mode in ("1", "L") else "RGB")
        picture = numpy.asarray(picture)
    return _preprocess(picture, what, dims, dtype, {k: str(v) for k, v in recipe.items() if v is not None}, bool(bgr), stored)


def _unpickled(engine: bytes, threads: int) -> Engine:
    """What Engine.__reduce__ names: functions of the compiled module cannot be pickled."""
    return load(engine, threads)


def _reduced(engine: Engine) -> Tuple[Any, ...]:
    """An open model: it, and the engines that it keeps by now, which need not be built again."""
    options, folder = engine._source
    try:
        built = engine.tobytes()
    except UsageError:  # none
        built = b""
    return _rebuilt, (engine._model_bytes(), options, folder, built)


def _rebuilt(model: bytes, options: Dict[str, Any], folder: str, built: bytes) -> Engine:
    engine = _build_bytes(model, options, folder)
    if built and engine.open:
        engine = engine._with_engines(built)
    engine._source = options, folder
    return engine


def _effort(device: str) -> int:
    """The default: kernels of a GPU that is named, and need not be here, cannot be measured."""
    name = device.partition(",")[0].partition(":")[2]
    return 2 if not name or name.isdigit() else 0


def _build_options(device: str, shapes: Optional[Mapping[str, _Shape]], threads: Optional[int], default_batch: int, profiles: Any, disable: Any,
                   effort: Optional[int], timing_cache: Optional[_Path], strict_timing: bool, calibration: Any, precision: Any, allowed: Any,
                   max_error: Optional[float], bindings: Optional[Mapping[str, str]], progress: Any, cpu: Optional[str],
                   qdq: str, values: Optional[Mapping[str, Any]], most_engines: Optional[int], keep_model: bool,
                   late: str, max_elements: Optional[Mapping[str, int]] = None, reserve: bool = True) -> Dict[str, Any]:
    """The options as the compiled module takes them."""
    if isinstance(disable, str):
        raise TypeError(f"octavo.build: disable is a list of names, not the string {disable!r}")
    profile_map = {str(name): [_shape(f"profiles[{name!r}]", shape) for shape in given] for name, given in (profiles or {}).items()}
    for name, given in profile_map.items():
        if len(given) != 3:
            raise UsageError(f"profiles: {name!r} has {len(given)} shapes, needs three: min, opt, max")
    if shapes is not None and not hasattr(shapes, "items"):
        raise UsageError(f"shapes is {{input name: shape}}, as {{'image': (1, 3, 224, 224)}}; this is a {type(shapes).__name__}")
    if calibration is not None and hasattr(calibration, "items"):
        ranges = {str(tensor): value for tensor, value in calibration.items()}
        calibration = {}
        for tensor, value in ranges.items():
            ends = [float(value)] if not hasattr(value, "__len__") else [float(end) for end in value]
            if len(ends) > 2 or not ends or not all(map(_math.isfinite, ends)) or (len(ends) == 1 and not ends[0] >= 0) or (len(ends) == 2 and not ends[0] <= ends[1]):
                raise UsageError(f"calibration: the range of {tensor!r} is {value}, must be finite and not negative: the largest magnitude, or (least, largest)")
            calibration[tensor] = ends
    elif calibration is not None:
        calibration = _os.fspath(calibration)
    if isinstance(precision, str) or isinstance(allowed, str):
        raise TypeError("octavo.build: precision is {pattern: type}, allowed is a set of types; neither is a string")
    if progress is not None and not callable(progress):
        raise TypeError("octavo.build: progress is a function of one argument, the step")
    rules = precision.items() if hasattr(precision, "items") else precision or []
    return {
        "device": str(device), "cpu": str(cpu or ""), "shapes": {str(name): _shape(f"shapes[{name!r}]", shape) for name, shape in (shapes or {}).items()},
        "profiles": profile_map, "threads": _thread_count(threads), "default_batch": 0 if default_batch is None else _whole("default_batch", default_batch, 0, 65536), "disable": list(disable or []),
        "effort": _effort(str(device)) if effort is None else _whole("build: effort", effort, 0, 5), "timing_cache": _os.fspath(timing_cache or ""), "strict_timing": bool(strict_timing),
        "calibration": calibration, "precision": [(str(pattern), str(kind)) for pattern, kind in rules],
        "allowed": None if allowed is None else set(allowed), "max_error": None if max_error is None else float(max_error),
        "bindings": {str(name): str(text) for name, text in (bindings or {}).items()}, "progress": progress, "qdq": str(qdq),
        "values": {str(name): value for name, value in (values or {}).items()}, "most_engines": None if most_engines is None else _whole("most_engines", most_engines, 1, 65536), "keep_model": bool(keep_model), "late": str(late), "reserve": bool(reserve),
        "max_elements": {str(name): _whole(f"max_elements[{name!r}]", most, 1, 1 << 28) for name, most in (max_elements or {}).items()},
    }


_DEFAULTS: Dict[str, Any] = {
    "device": "cpu", "shapes": None, "threads": None, "default_batch": 0, "profiles": None, "disable": None, "effort": None, "timing_cache": None,
    "strict_timing": False, "calibration": None, "precision": None, "allowed": None, "max_error": None, "bindings": None, "progress": None, "cpu": None,
    "qdq": "demand", "values": None, "most_engines": None, "keep_model": True, "late": "nearest", "max_elements": None, "reserve": True}


def _known(options: Dict[str, Any]) -> Dict[str, Any]:
    for name in options:
        if name not in _DEFAULTS:
            raise TypeError(f"no option {name!r}; the options are {', '.join(sorted(_DEFAULTS))}")
    return options


def _shape(what: str, shape: Any) -> List[int]:
    try:
        return [_operator.index(d) for d in shape]
    except (TypeError, ValueError):
        raise UsageError(f"{what} is {shape!r}, not a sequence of integers such as (1, 3, 224, 224)") from None


def _size(value: Any) -> Optional[str]:
    return value if value is None or isinstance(value, str) else "x".join(str(int(v)) for v in ([value] if isinstance(value, int) else value))


def _numbers(value: Any) -> Optional[str]:
    if value is None or isinstance(value, str):
        return value
    return ",".join(repr(float(v)) for v in ([value] if isinstance(value, (int, float)) else value))


def _inputs_of(engine: Engine, inputs: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """The arrays that were given, or random ones: uniform in -1..1, all codes of 8-bit types, zeros of others."""
    import numpy
    if not isinstance(engine, Engine):
        raise UsageError(f"bench and profile take an Engine, not {type(engine).__name__}: octavo.load(path) or octavo.build(model) makes one")
    if engine.open:
        raise UsageError("the engine's shapes are open: build with shapes= or default_batch=1, or take engine.at({name: shape})")
    random = numpy.random.default_rng(1)
    made: Dict[str, Any] = {}
    for info in engine.inputs:
        name, shape, dtype = info["name"], [int(d or 0) for d in info["shape"]], info["dtype"]
        if inputs is None and (info["format"] or "").startswith("="):  # shapes depend on its value: there is one
            elements = (info["format"] or "")[1:].split(",")
            made[name] = numpy.array([e != "0" for e in elements] if dtype == "bool" else elements, dtype).reshape(shape)
        elif inputs is not None:
            if name not in inputs:
                raise InputError(f"input {name!r} is missing; it wants {dtype} {tuple(shape)}")
            made[name] = inputs[name]
        elif dtype in ("float32", "float64", "float16"):
            made[name] = random.uniform(-1, 1, shape).astype(dtype)
        elif dtype in ("int8", "uint8"):
            made[name] = random.integers(numpy.iinfo(dtype).min, numpy.iinfo(dtype).max + 1, shape).astype(dtype)
        else:
            try:
                made[name] = numpy.zeros(shape, dtype)
            except TypeError:  # ml_dtypes' types have names that NumPy knows only with it
                import importlib
                made[name] = numpy.zeros(shape, getattr(importlib.import_module("ml_dtypes"), dtype))
    return made


def _with(model: Any, of_file: Callable[..., Any], of_bytes: Callable[..., Any]) -> Callable[..., Any]:
    """The function for what `model` is, bound to it."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return lambda *rest: of_bytes(bytes(model), *rest)
    if hasattr(model, "SerializeToString"):
        return lambda *rest: of_bytes(model.SerializeToString(), *rest)
    return lambda *rest: of_file(_os.fspath(model), *rest)
