"""ONNX Runtime's Python interface over octavo engines: a script written for it runs with one changed import,

    import octavo as onnxruntime        # or: import octavo.onnxruntime as ort

What ONNX Runtime calls a session is an engine here; it is built when the session is made, or at the first run where dimensions are open.
Names and meanings follow onnxruntime's documentation of InferenceSession, SessionOptions, RunOptions, IOBinding and OrtValue. What has no
counterpart is either without effect (docs/from-onnxruntime.md lists which options) or raises UnsupportedError; nothing is ignored that would
change results.
"""
import enum
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._errors import InputError, UnsupportedError, UsageError
from ._files import is_engine
from ._octavo import Engine, __version__, load
from ._types import TensorInfo

_PROVIDER = "CPUExecutionProvider"

_ONNX_TYPES = {
    "float32": "tensor(float)", "float64": "tensor(double)", "float16": "tensor(float16)", "bfloat16": "tensor(bfloat16)", "bool": "tensor(bool)",
    "int8": "tensor(int8)", "uint8": "tensor(uint8)", "int16": "tensor(int16)", "uint16": "tensor(uint16)", "int32": "tensor(int32)",
    "uint32": "tensor(uint32)", "int64": "tensor(int64)", "uint64": "tensor(uint64)"}


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


class SessionOptions:
    """ONNX Runtime's attributes; those with an effect are intra_op_num_threads, graph_optimization_level, optimized_model_filepath (the
    engine is saved there), enable_profiling (end_profiling writes the time of each layer), add_free_dimension_override_by_name, and the
    configuration entries "octavo.effort", "octavo.timing_cache" and "octavo.calibration"."""

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
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        if key not in self._entries:
            raise UsageError(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

    def has_session_config_entry(self, key: str) -> bool:
        return key in self._entries

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """The dimension that the model calls `name`. It must be the batch, the first dimension: shapes= of octavo.build takes the others."""
        self._free[name] = int(value)

    def register_custom_ops_library(self, path: str) -> None:
        raise UnsupportedError(f"custom operators ({path}): octavo has no plugins; octavo.doctor lists operators that are not covered")


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


class NodeArg:
    """Name, type ("tensor(float)") and shape (None where open) of an input or output."""

    def __init__(self, info: TensorInfo) -> None:
        self.name = info["name"]
        self.type = _ONNX_TYPES.get(info["dtype"], f"tensor({info['dtype']})")
        self.shape: List[Optional[int]] = list(info["shape"])

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


class ModelMetadata:
    """Of what the model file says of itself an engine keeps nothing."""

    def __init__(self) -> None:
        self.producer_name = self.graph_name = self.domain = self.description = self.graph_description = ""
        self.version = 0
        self.custom_metadata_map: Dict[str, str] = {}


class OrtValue:
    """An array in host memory."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(array: Any, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        _cpu_only(device_type)
        return OrtValue(array)

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        import numpy
        _cpu_only(device_type)
        return OrtValue(numpy.empty(shape, element_type))

    def numpy(self) -> Any:
        return self._array

    def shape(self) -> List[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        return _ONNX_TYPES.get(str(self._array.dtype), f"tensor({self._array.dtype})")

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return True

    def has_value(self) -> bool:
        return self._array is not None


class IOBinding:
    """Inputs and outputs by name, kept for run_with_iobinding. Bound output arrays are written to."""

    def __init__(self, session: "InferenceSession") -> None:
        self._session = session
        self._inputs: Dict[str, Any] = {}
        self._outputs: Dict[str, Optional[Any]] = {}
        self._results: List[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._inputs[name] = ortvalue.numpy()

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None, shape: Any = None,
                    buffer_ptr: Any = None) -> None:
        _cpu_only(device_type)
        if buffer_ptr is not None:
            raise UnsupportedError("bind_output: addresses are not taken; bind_ortvalue_output binds an array")
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._outputs[name] = ortvalue.numpy()

    def synchronize_inputs(self) -> None:
        pass

    def synchronize_outputs(self) -> None:
        pass

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()

    def get_outputs(self) -> List[OrtValue]:
        return [OrtValue(a) for a in self._results]

    def copy_outputs_to_cpu(self) -> List[Any]:
        return list(self._results)

    def _run(self) -> None:
        names = list(self._outputs) or [o.name for o in self._session.get_outputs()]
        results = self._session.run(names, self._inputs)
        for i, name in enumerate(names):
            room = self._outputs.get(name)
            if room is not None:
                if room.shape != results[i].shape or room.dtype != results[i].dtype:
                    raise InputError(f"output {name!r} is {results[i].dtype}{results[i].shape}, the array bound to it {room.dtype}{room.shape}")
                room[...] = results[i]
                results[i] = room
        self._results = results


class InferenceSession:
    """A model, an engine file, or the bytes of either, ready to run."""

    def __init__(self, path_or_bytes: Union[str, bytes, "os.PathLike[str]"], sess_options: Optional[SessionOptions] = None,
                 providers: Optional[Sequence[Any]] = None, provider_options: Optional[Sequence[Mapping[str, Any]]] = None, **kwargs: Any) -> None:
        from . import build
        self._options = sess_options or SessionOptions()
        names = [p if isinstance(p, str) else p[0] for p in providers or [_PROVIDER]]
        if _PROVIDER not in names:
            raise UsageError(f"providers {names}: the only one here is {_PROVIDER}")
        threads = self._options.intra_op_num_threads or None
        data = path_or_bytes if isinstance(path_or_bytes, bytes) else b""
        if not data:
            with open(path_or_bytes, "rb") as file:
                data = file.read(8)
        if is_engine(data):
            self._engine = load(path_or_bytes, threads)
        else:
            entries = self._options._entries
            effort = int(entries.get("octavo.effort", "0" if self._options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL else "2"))
            free = list(self._options._free.values())
            if len(set(free)) > 1:
                raise UnsupportedError("add_free_dimension_override_by_name: one dimension, the batch; octavo.build takes shapes= for others")
            self._engine = build(path_or_bytes, threads=threads, effort=effort, timing_cache=entries.get("octavo.timing_cache"),
                                 calibration=entries.get("octavo.calibration"), default_batch=free[0] if free else 0)
        if self._options.optimized_model_filepath:
            self._engine.save(self._options.optimized_model_filepath)
        self._last: Optional[Dict[str, Any]] = None

    @property
    def engine(self) -> Engine:
        """The engine behind the session."""
        return self._engine

    def run(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any], run_options: Optional[RunOptions] = None) -> List[Any]:
        """The named outputs (None: all) as a list of arrays."""
        feed = {name: value.numpy() if isinstance(value, OrtValue) else value for name, value in input_feed.items()}
        results = self._engine.run(feed)
        if self._options.enable_profiling:
            self._last = feed
        wanted = list(output_names) if output_names else list(results)
        for name in wanted:
            if name not in results:
                raise InputError(f"no output {name!r}; the outputs are {', '.join(map(repr, results))}")
        return [results[name] for name in wanted]

    def run_with_ort_values(self, output_names: Optional[Sequence[str]], input_dict_ort_values: Mapping[str, OrtValue],
                            run_options: Optional[RunOptions] = None) -> List[OrtValue]:
        return [OrtValue(a) for a in self.run(output_names, input_dict_ort_values, run_options)]

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Optional[RunOptions] = None) -> None:
        iobinding._run()

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def get_inputs(self) -> List[NodeArg]:
        return [NodeArg(t) for t in self._engine.inputs]

    def get_outputs(self) -> List[NodeArg]:
        return [NodeArg(t) for t in self._engine.outputs]

    def get_overridable_initializers(self) -> List[NodeArg]:
        return []

    def get_providers(self) -> List[str]:
        return [_PROVIDER]

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        return {_PROVIDER: {}}

    def set_providers(self, providers: Optional[Sequence[Any]] = None, provider_options: Any = None) -> None:
        names = [p if isinstance(p, str) else p[0] for p in providers or [_PROVIDER]]
        if _PROVIDER not in names:
            raise UsageError(f"providers {names}: the only one here is {_PROVIDER}")

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        return ModelMetadata()

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
                           "args": {"provider": _PROVIDER, "op_name": layer["precision"], "tactic": layer["tactic"]}})
            at += micros
        name = f"{self._options.profile_file_prefix}.json"
        with open(name, "w", encoding="utf-8") as file:
            json.dump(events, file)
        return name


def get_available_providers() -> List[str]:
    return [_PROVIDER]


def get_all_providers() -> List[str]:
    return [_PROVIDER]


def get_device() -> str:
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Without effect: octavo logs nothing by itself."""


def _cpu_only(device_type: str) -> None:
    if device_type not in ("cpu", "Cpu", "CPU"):
        raise UnsupportedError(f"device {device_type!r}: memory is the host's here")
