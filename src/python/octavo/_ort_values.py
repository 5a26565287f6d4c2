"""ONNX Runtime's OrtValue, IOBinding, NodeArg and ModelMetadata (octavo/onnxruntime.py)."""
from typing import Any, Dict, List, Optional, Sequence, Union

from ._errors import InputError, UnsupportedError
from ._types import ModelInfo, TensorInfo
from .capi.onnxruntime_pybind11_state import InvalidArgument

ONNX_TYPES = {
    "float32": "tensor(float)", "float64": "tensor(double)", "float16": "tensor(float16)", "bfloat16": "tensor(bfloat16)", "bool": "tensor(bool)",
    "int8": "tensor(int8)", "uint8": "tensor(uint8)", "int16": "tensor(int16)", "uint16": "tensor(uint16)", "int32": "tensor(int32)",
    "uint32": "tensor(uint32)", "int64": "tensor(int64)", "uint64": "tensor(uint64)"}

# Numbers of onnx.TensorProto; bfloat16 as the bits that NumPy can hold.
_BY_NUMBER = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
              12: "uint32", 13: "uint64", 16: "uint16"}
_NUMBERS = {name: number for number, name in _BY_NUMBER.items() if number != 16} | {"bfloat16": 16}

_CUDA, _CPU = 2, 1  # DLPack's numbers of devices


class NodeArg:
    """Name, type ("tensor(float)") and shape of an input or output. Where a dimension is open: the model's name of it, or None."""

    def __init__(self, info: TensorInfo) -> None:
        self.name = info["name"]
        self.type = ONNX_TYPES.get(info["dtype"], f"tensor({info['dtype']})")
        self.shape: List[Union[int, str, None]] = [symbol if d is None else d for d, symbol in zip(info["shape"], info["symbols"])]

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


class ModelMetadata:
    """What the model file says of itself; an engine file says the same."""

    def __init__(self, info: ModelInfo) -> None:
        self.producer_name = info["producer_name"]
        self.graph_name = info["graph_name"]
        self.domain = info["domain"]
        self.description = info["description"]
        self.graph_description = info["graph_description"]
        self.version = info["version"]
        self.custom_metadata_map: Dict[str, str] = dict(info["metadata"])


class _OnDevice:
    """Memory of a GPU by its address, as other libraries describe theirs."""

    def __init__(self, address: int, shape: Sequence[int], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), dtype
        self.__cuda_array_interface__ = {"shape": self.shape, "typestr": dtype.str, "data": (address, False), "strides": None, "version": 3}


def on_gpu(value: Any) -> bool:
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) == _CUDA
    return hasattr(value, "__cuda_array_interface__")


def _device(device_type: str) -> str:
    kind = str(device_type).lower()
    if kind not in ("cpu", "cuda"):
        raise UnsupportedError(f"device {device_type!r}: memory is that of the host (\"cpu\") or of an NVIDIA GPU (\"cuda\")")
    return kind


def _dtype(element_type: Any) -> Any:
    import numpy
    if isinstance(element_type, int):
        if element_type not in _BY_NUMBER:
            raise UnsupportedError(f"element type {element_type}: of onnx.TensorProto's numbers {sorted(_BY_NUMBER)} are taken")
        element_type = _BY_NUMBER[element_type]
    return numpy.dtype(element_type)


def at_address(what: str, device_type: str, element_type: Any, shape: Sequence[int], address: int) -> Any:
    """An array over memory of the caller, who keeps it alive."""
    import ctypes
    import numpy
    if element_type is None or shape is None:
        raise InvalidArgument(f"{what}: an address needs element_type and shape, too")
    if not address:
        raise InvalidArgument(f"{what}: the address is 0")
    dtype = _dtype(element_type)
    if _device(device_type) == "cuda":
        return _OnDevice(int(address), shape, dtype)
    count = 1
    for d in shape:
        count *= int(d)
    memory = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(int(address))
    return numpy.frombuffer(memory, numpy.uint8).view(dtype).reshape(tuple(shape)) if count else numpy.empty(tuple(shape), dtype)


class OrtValue:
    """An array: of NumPy in host memory, or of a library that keeps it in a GPU's (PyTorch, CuPy)."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(array: Any, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        _host_only(device_type)
        return OrtValue(array)

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        import numpy
        _host_only(device_type)
        return OrtValue(numpy.empty(shape, _dtype(element_type)))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> "OrtValue":
        if on_gpu(data):
            return OrtValue(data)
        import numpy
        array = numpy.from_dlpack(data)
        return OrtValue(array.view(numpy.bool_) if is_bool_tensor and array.dtype == numpy.uint8 else array)

    def __dlpack__(self, *, stream: Optional[int] = None, **rest: Any) -> Any:
        return self._array.__dlpack__(stream=stream, **rest)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def to_dlpack(self) -> Any:
        return self._array.__dlpack__()

    def numpy(self) -> Any:
        if on_gpu(self._array):
            raise UnsupportedError("OrtValue.numpy: the array is in a GPU's memory; bind the output to \"cpu\", or take it over with torch.from_dlpack")
        return self._array

    def update_inplace(self, array: Any) -> None:
        """Copies `array`, of the same shape and type, into the value's memory."""
        mine = self.numpy()
        if mine.shape != array.shape or mine.dtype != array.dtype:
            raise InputError(f"update_inplace: the value is {mine.dtype}{mine.shape}, the array {array.dtype}{array.shape}")
        mine[...] = array

    def data_ptr(self) -> int:
        """The address of the first element; of a GPU where device_name() is "cuda"."""
        for name in ("__cuda_array_interface__", "__array_interface__"):
            if hasattr(self._array, name):
                return int(getattr(self._array, name)["data"][0])
        return int(self._array.data_ptr())

    def shape(self) -> List[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        name = str(self._array.dtype).rsplit(".", 1)[-1]
        return ONNX_TYPES.get(name, f"tensor({name})")

    def element_type(self) -> int:
        """The number that onnx.TensorProto has for the type."""
        return _NUMBERS.get(str(self._array.dtype).rsplit(".", 1)[-1], 0)

    def device_name(self) -> str:
        return "cuda" if on_gpu(self._array) else "cpu"

    def is_tensor(self) -> bool:
        return True

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return False

    def has_value(self) -> bool:
        return self._array is not None


class IOBinding:
    """Inputs and outputs by name, kept for run_with_iobinding. The engine reads and writes arrays and addresses where they are: an address
    must stay valid, and hold `shape` elements of `element_type` without gaps, until it is bound anew or the binding is gone."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs: Dict[str, Any] = {}
        self._outputs: Dict[str, Any] = {}  # an array that is written, or the device that a new one is to be on
        self._results: List[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self._inputs[name] = arr_on_cpu

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int) -> None:
        self._inputs[name] = at_address(f"bind_input {name!r}", device_type, element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._inputs[name] = ortvalue._array

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None, shape: Any = None,
                    buffer_ptr: Any = None) -> None:
        kind = _device(device_type)
        if kind == "cuda" and self._session.engine.device != "cuda":
            raise UnsupportedError(f"bind_output {name!r}: the session runs on {self._session.engine.device!r}, whose results are in the memory of the "
                                   "host; make it with providers=[\"CUDAExecutionProvider\"]")
        self._outputs[name] = kind if buffer_ptr is None else at_address(f"bind_output {name!r}", kind, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._outputs[name] = ortvalue._array

    def synchronize_inputs(self) -> None:
        """Without effect: a run begins behind what the default stream was given."""

    def synchronize_outputs(self) -> None:
        """Without effect: a run is done when it returns."""

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()

    def get_outputs(self) -> List[OrtValue]:
        return [OrtValue(a) for a in self._results]

    def get_outputs_as_ortvaluevector(self) -> List[OrtValue]:
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> List[Any]:
        return [OrtValue(a).numpy() for a in self._results]

    def _run(self) -> None:
        engine = self._session.engine
        if engine.open:
            import numpy
            shapes = {name: tuple(getattr(a, "shape", numpy.shape(a))) for name, a in self._inputs.items()}
            engine = engine.at(shapes, {name: a for name, a in self._inputs.items() if not on_gpu(a)})
        infos = {info["name"]: info for info in engine.outputs}
        wanted = self._outputs or {name: "cpu" for name in infos}
        for name in wanted:
            if name not in infos:
                raise InputError(f"no output {name!r}; the outputs are {', '.join(map(repr, infos))}")
        rooms = {name: room for name, room in wanted.items() if not isinstance(room, str)}
        if engine.device == "cuda" and any(room == "cuda" or on_gpu(room) for room in wanted.values() if isinstance(room, str) or on_gpu(room)):
            import numpy  # on a GPU what has no room is new memory there
            rooms.update({name: numpy.empty(infos[name]["shape"], infos[name]["dtype"]) for name, room in wanted.items()
                          if isinstance(room, str) and room == "cpu"})
        results = engine.run(self._inputs, outputs=rooms if rooms or "cuda" in [r for r in wanted.values() if isinstance(r, str)] else None)
        self._session._was_run(self._inputs)
        self._results = [results[name] for name in wanted]


def _host_only(device_type: str) -> None:
    if _device(device_type) != "cpu":
        raise UnsupportedError("OrtValue: arrays in a GPU's memory come from the library that owns them: OrtValue(tensor), or IOBinding with an address")
