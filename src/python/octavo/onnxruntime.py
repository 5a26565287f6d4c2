"""ONNX Runtime's Python interface over octavo engines: a script written for it runs with one changed import,

    import octavo as onnxruntime        # or: import octavo.onnxruntime as ort

What ONNX Runtime calls a session is an engine here; it is built when the session is made, or at the first run where dimensions are open.
Names and meanings follow onnxruntime's documentation of InferenceSession, SessionOptions, RunOptions, IOBinding and OrtValue. What has no
counterpart is either without effect (docs/from-onnxruntime.md lists which options) or raises UnsupportedError; nothing is ignored that would
change results.
"""
import enum
import errno
import os
import threading
import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

from . import capi as capi
from ._arguments import whole
from ._errors import Error, FileError, InputError, ModelError, UnsupportedError, UsageError
from ._files import is_engine
from ._octavo import Engine, __version__, _devices, _model_info, _nearest, load
from ._ort_values import IOBinding as IOBinding, ModelMetadata as ModelMetadata, NodeArg as NodeArg, OrtValue as OrtValue
from .capi.onnxruntime_pybind11_state import EPFail, named

_DEVICES = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda"}


class GraphOptimizationLevel(enum.IntEnum):
    """ORT_DISABLE_ALL: effort 0, nothing is measured. All others: octavo's default."""
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Without effect: layers run one after the other, each on all threads."""
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


_ENTRIES = ("octavo.effort", "octavo.timing_cache", "octavo.calibration", "octavo.verify", "octavo.code")
_ENTRIES_OF_OTHERS = ("session", "optimization", "ep", "memory", "mlas")  # prefixes of ONNX Runtime's keys


class SessionOptions:
    """ONNX Runtime's attributes; those with an effect are intra_op_num_threads, graph_optimization_level, optimized_model_filepath (the
    engine is saved there, of a model with open dimensions after each run that built one), enable_profiling (end_profiling writes the time of each layer), add_free_dimension_override_by_name, and the
    configuration entries "octavo.effort", "octavo.timing_cache" and "octavo.calibration"; for engine files "octavo.verify" and "octavo.code", as verify and code of
    octavo.load: an engine file for a GPU is a program."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.optimized_model_filepath = ""
        self.enable_profiling = False
        self.profile_file_prefix = "octavo_profile"
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_cpu_mem_arena = True
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.use_deterministic_compute = True
        self._entries: Dict[str, str] = {}
        self._free: Dict[str, int] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Octavo's own entries are those that the class names; entries of ONNX Runtime ("session.…", "optimization.…") are taken without effect."""
        if key not in _ENTRIES and key.split(".")[0] not in _ENTRIES_OF_OTHERS:
            raise UsageError(f'add_session_config_entry: there is no entry "{key}"{_nearest(list(_ENTRIES), key)}')
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        if key not in self._entries:
            raise UsageError(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

    def has_session_config_entry(self, key: str) -> bool:
        return key in self._entries

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Inputs' dimensions that the model calls `name` have this size."""
        self._free[name] = whole(f"add_free_dimension_override_by_name: {name}", value, 1, 2**31 - 1)

    def register_custom_ops_library(self, path: str) -> None:
        raise UnsupportedError(f"custom operators ({path}): octavo has no plugins; octavo.doctor lists operators that are not supported")


class RunOptions:
    """Taken for the sake of scripts; nothing in it changes a run."""

    def __init__(self) -> None:
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.terminate = False
        self.only_execute_path_to_fetches = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        pass


class InferenceSession:
    """A model, an engine file, or the bytes of either, ready to run. Can be pickled (an open model with the engines that it has built by then):
    the file need not be there where it is unpickled. What it raises has ONNX Runtime's names (octavo.capi.onnxruntime_pybind11_state)."""

    def __init__(self, path_or_bytes: Union[str, bytes, "os.PathLike[str]"], sess_options: Optional[SessionOptions] = None,
                 providers: Optional[Sequence[Any]] = None, provider_options: Optional[Sequence[Mapping[str, Any]]] = None, **kwargs: Any) -> None:
        self._options = sess_options or SessionOptions()
        self._last: Optional[Mapping[str, Any]] = None
        self._saved = 0  # engines that optimized_model_filepath holds
        try:
            self._check_optimized()
            self._engine = self._made(path_or_bytes, _wanted(providers, provider_options))
            self._save_optimized()
        except Error as e:
            raise named(e, not isinstance(e, ModelError) or _parses(path_or_bytes)) from e

    def _made(self, source: Union[str, bytes, "os.PathLike[str]"], devices: List[str]) -> Engine:
        threads, entries = self._options.intra_op_num_threads or None, self._options._entries
        data: Any = source
        if not isinstance(source, (bytes, bytearray, memoryview)):
            try:
                with open(source, "rb") as file:
                    data = file.read(8)
            except OSError as e:
                raise FileError(e.errno, f"cannot read the model: {e.strerror}", os.fspath(source)) from e
        if entries.get("octavo.verify") == "":  # before load, which would name its own argument
            raise UsageError("octavo.verify is empty: give the file of a public key, or leave the entry out")
        if is_engine(data):
            return load(source, threads, verify=entries.get("octavo.verify"), code=entries.get("octavo.code", "file"))
        for name in ("octavo.verify", "octavo.code"):
            if name in entries:
                raise UsageError(f"{name} is for engine files; this is a model, which holds no code and no signature")
        for device in devices[:-1]:
            try:
                return self._built(source, device, threads)
            except UnsupportedError as e:
                warnings.warn(f"{device} does not run this model, {devices[-1]} does: {e}", RuntimeWarning, stacklevel=4)
        return self._built(source, devices[-1], threads)

    def _built(self, source: Any, device: str, threads: Optional[int]) -> Engine:
        from . import build
        entries = self._options._entries
        text = str(entries.get("octavo.effort", "0" if self._options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL else "2"))
        effort = whole("octavo.effort", int(text) if text.isdecimal() else text, 0, 5)
        shapes = self._overridden(source) if self._options._free else None
        return build(source, device, shapes, threads, effort=effort, timing_cache=entries.get("octavo.timing_cache"),
                     calibration=entries.get("octavo.calibration"))

    def _overridden(self, source: Any) -> Dict[str, List[int]]:
        """Shapes of the inputs with dimensions that add_free_dimension_override_by_name names; -1 where a dimension stays open."""
        from . import build
        free = self._options._free
        shapes: Dict[str, List[int]] = {}
        symbols: Set[str] = set()
        for info in build(source, effort=0, device="cpu").inputs:
            symbols.update(s for s in info["symbols"] if s)
            if any(s in free for s in info["symbols"]):
                shapes[info["name"]] = [free.get(s or "", -1 if d is None else d) for d, s in zip(info["shape"], info["symbols"])]
        for name in free:
            if name not in symbols:
                raise UsageError(f"add_free_dimension_override_by_name: the inputs have no dimension {name!r}; "
                                 f"{'their dimensions are ' + ', '.join(sorted(map(repr, symbols))) if symbols else 'they name none'}")
        return shapes

    def _check_optimized(self) -> None:
        """Before long work: can the file be written?"""
        path = self._options.optimized_model_filepath
        folder = os.path.dirname(os.path.abspath(path)) if path else ""
        if path and not os.path.isdir(folder):
            raise FileError(errno.ENOENT, "optimized_model_filepath: there is no such folder", folder)

    def _save_optimized(self) -> None:
        """An open model's engines are built by its runs: the file is written again when there is a new one."""
        path = self._options.optimized_model_filepath
        if not path:
            return
        built = self._engine._builds if self._engine.open else 1
        if built > self._saved:
            self._engine.save(path)
            self._saved = built

    def __reduce__(self) -> Tuple[Any, ...]:
        return _unpickled, (type(self), self._engine, self._options)

    @property
    def engine(self) -> Engine:
        """The engine behind the session."""
        return self._engine

    def run(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any], run_options: Optional[RunOptions] = None) -> List[Any]:
        """The named outputs (None: all) as a list of arrays."""
        feed = {name: value._array if isinstance(value, OrtValue) else value for name, value in input_feed.items()}
        try:
            if output_names and not self._engine.open:
                self._check_outputs(output_names, [o["name"] for o in self._engine.outputs])
            results = self._engine.run(feed)
            self._was_run(feed)
            wanted = list(output_names) if output_names else list(results)
            self._check_outputs(wanted, list(results))
        except Error as e:
            raise named(e) from e
        return [results[name] for name in wanted]

    @staticmethod
    def _check_outputs(wanted: Sequence[str], names: Sequence[str]) -> None:
        for name in wanted:
            if name not in names:
                raise InputError(f"no output {name!r}; the outputs are {', '.join(map(repr, names))}")

    def _was_run(self, feed: Mapping[str, Any]) -> None:
        if self._options.enable_profiling:
            self._last = dict(feed)
        if self._options.optimized_model_filepath:
            self._save_optimized()

    def run_async(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any], callback: Callable[[List[Any], Any, str], Any],
                  user_data: Any, run_options: Optional[RunOptions] = None) -> None:
        """Returns at once; callback(results, user_data, error) is called in another thread when the run is done, with an empty list and the
        error's text where it failed, else with the text "". Missing inputs are raised here."""
        if not callable(callback):
            raise TypeError("run_async: callback is a function of results, user_data and an error's text")
        names = [i["name"] for i in self._engine.inputs]
        for name in input_feed:
            if name not in names:
                raise named(InputError(f'run_async: the model has no input "{name}"{_nearest(names, name)}'))
        missing = [name for name in names if name not in input_feed]
        if missing:
            raise named(InputError(f"run_async: inputs {missing} are missing"))

        def work() -> None:
            results, error = [], ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as e:  # whatever it is, the caller waits for it
                error = str(e) or type(e).__name__
            callback(results, user_data, error)
        threading.Thread(target=work, name="octavo-run-async").start()

    def run_with_ort_values(self, output_names: Optional[Sequence[str]], input_dict_ort_values: Mapping[str, OrtValue],
                            run_options: Optional[RunOptions] = None) -> List[OrtValue]:
        return [OrtValue(a) for a in self.run(output_names, input_dict_ort_values, run_options)]

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Optional[RunOptions] = None) -> None:
        try:
            iobinding._run()
        except Error as e:
            raise named(e) from e

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def get_inputs(self) -> List[NodeArg]:
        return [NodeArg(t) for t in self._engine.inputs]

    def get_outputs(self) -> List[NodeArg]:
        return [NodeArg(t) for t in self._engine.outputs]

    def get_overridable_initializers(self) -> List[NodeArg]:
        return []

    def get_providers(self) -> List[str]:
        return [name for name, device in _DEVICES.items() if device == self._engine.device] or [next(iter(_DEVICES))]

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        return {name: {} for name in self.get_providers()}

    def set_providers(self, providers: Optional[Sequence[Any]] = None, provider_options: Any = None) -> None:
        if _wanted(providers, provider_options)[0].split(":")[0] != self._engine.device:
            raise named(UsageError(f"set_providers: the session runs on {self._engine.device!r}; make another for another device"))

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        return ModelMetadata(self._engine.model)

    def disable_fallback(self) -> None:
        pass

    def enable_fallback(self) -> None:
        pass

    def end_profiling(self) -> str:
        """Times each layer on the last inputs and writes the Chrome trace that ONNX Runtime writes; returns the file's name."""
        import json
        from . import profile
        if not self._options.enable_profiling or self._last is None:
            raise UsageError("end_profiling: set SessionOptions.enable_profiling and run once before")
        engine = self._engine
        if engine.open:
            engine = engine.at({name: tuple(array.shape) for name, array in self._last.items()}, self._last)
        measured = profile(engine, inputs=self._last)
        events, at = [], 0.0
        for layer in measured["layers"]:
            micros = layer["median_ms"] * 1e3
            events.append({"cat": "Node", "pid": os.getpid(), "tid": 0, "dur": micros, "ts": at, "ph": "X", "name": layer["name"],
                           "args": {"provider": self.get_providers()[0], "op_name": layer["precision"], "tactic": layer["tactic"]}})
            at += micros
        name = f"{self._options.profile_file_prefix}.json"
        with open(name, "w", encoding="utf-8") as file:
            json.dump(events, file)
        return name


def get_available_providers() -> List[str]:
    """The GPU's, where there is one, and the CPU's."""
    here = [name.split(":")[0] for name in _devices()]
    return [name for name, device in reversed(list(_DEVICES.items())) if device in here]


def get_all_providers() -> List[str]:
    return list(reversed(list(_DEVICES)))


def get_device() -> str:
    return "GPU" if "CUDAExecutionProvider" in get_available_providers() else "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Without effect: octavo logs nothing by itself."""


def _wanted(providers: Optional[Sequence[Any]], provider_options: Optional[Sequence[Mapping[str, Any]]]) -> List[str]:
    """Devices in the order of the list, as build takes them; a later one is for models that the earlier cannot run."""
    if not providers:
        return ["cpu"]
    names = [p if isinstance(p, str) else p[0] for p in providers]
    options = list(provider_options or []) or [{} if isinstance(p, str) else dict(p[1]) for p in providers]
    known = [(name, option) for name, option in zip(names, options) if name in _DEVICES]
    if not known:
        raise named(UsageError(f"providers {names}: known are {' and '.join(_DEVICES)}"))
    there = get_available_providers() if any(name == "CUDAExecutionProvider" for name, _ in known) else ["CPUExecutionProvider"]
    devices = []
    for name, option in known:
        if name in there:
            number = int(option.get("device_id", 0)) if name == "CUDAExecutionProvider" else 0
            devices.append(f"cuda:{number}" if number else _DEVICES[name])
    if len(devices) > 1 and devices[0].startswith("cuda") and devices[1] == "cpu":
        devices[0] += ",cpu"  # as in ONNX Runtime: what the GPU has no kernel for runs on the CPU
    if not devices:
        raise EPFail(f"providers {names}: there is no NVIDIA GPU here that can be opened; available are {', '.join(there)}")
    if "CUDAExecutionProvider" in names and "CUDAExecutionProvider" not in there:
        warnings.warn(f"providers {names}: there is no NVIDIA GPU here that can be opened, {devices[0]} is taken", UserWarning, stacklevel=4)
    return devices


def _parses(model: Any) -> bool:
    """Whether it is an ONNX model at all."""
    try:
        if not isinstance(model, (bytes, bytearray, memoryview)):
            with open(model, "rb") as file:
                model = file.read()
        _model_info(bytes(model))
        return True
    except (Error, OSError):
        return False


def _unpickled(kind: Any, engine: Engine, options: SessionOptions) -> Any:
    session = kind.__new__(kind)
    session._engine, session._options, session._last = engine, options, None
    session._saved = engine._builds if engine.open else 1
    return session
