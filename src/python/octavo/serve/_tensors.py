"""Tensors of the Open Inference Protocol as NumPy arrays, from binary data and from JSON numbers, and back."""
from typing import Any, Dict, List, Sequence

import numpy

from .._errors import UnsupportedError
from ._errors import BadRequest

TO_NUMPY = {"BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8", "INT16": "int16",
            "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64", "BF16": "bfloat16"}
FROM_NUMPY = {numpy_name: name for name, numpy_name in TO_NUMPY.items()}


def dtype_of(name: str) -> Any:
    """NumPy's dtype; bfloat16 travels as its 16 bits, which engines take as they are."""
    return numpy.dtype("uint16" if name == "bfloat16" else name)


def datatype_of(numpy_name: str) -> str:
    if numpy_name not in FROM_NUMPY:
        raise UnsupportedError(f"the Open Inference Protocol has no name for the type {numpy_name}")
    return FROM_NUMPY[numpy_name]


def count_of(name: str, shape: Sequence[int]) -> int:
    """Elements; a shape that no tensor has is refused."""
    if len(shape) > 32:
        raise BadRequest(f"input {name!r}: a shape of {len(shape)} dimensions is larger than any tensor")
    count = 1
    for dim in shape:
        if isinstance(dim, bool) or not isinstance(dim, int) or dim < 0 or dim > 1 << 40:
            raise BadRequest(f"input {name!r}: shape {list(shape)!r} is not a list of sizes")
        count *= dim
    if count > 1 << 40:
        raise BadRequest(f"input {name!r}: shape {list(shape)!r} is larger than any tensor")
    return count


def from_bytes(name: str, datatype: str, shape: Sequence[int], data: Any) -> Any:
    """A view of `data` (bytes or memoryview), which must hold exactly that many bytes; little-endian."""
    dtype = _known(name, datatype)
    count = count_of(name, shape)
    if len(data) != count * dtype.itemsize:
        raise BadRequest(f"input {name!r}: {datatype}{list(shape)} is {count * dtype.itemsize} bytes, {len(data)} were sent")
    array = numpy.frombuffer(data, dtype).reshape(shape)
    if datatype == "BOOL" and array.size and array.view(numpy.uint8).max() > 1:
        raise BadRequest(f"input {name!r}: a byte of a BOOL tensor is neither 0 nor 1")
    return array


def from_list(name: str, datatype: str, shape: Sequence[int], data: Any) -> Any:
    """Numbers of JSON or of a protocol buffer, flat or nested."""
    dtype = _known(name, datatype)
    count = count_of(name, shape)
    if datatype == "BF16":
        raise BadRequest(f"input {name!r}: BF16 is taken as binary data only")
    if not isinstance(data, (list, numpy.ndarray)):
        raise BadRequest(f"input {name!r}: data is not a list of numbers")
    try:
        array = numpy.asarray(data)
    except (ValueError, OverflowError) as e:
        raise BadRequest(f"input {name!r}: data is not a rectangular list of numbers ({e})") from None
    if array.size != count:
        raise BadRequest(f"input {name!r}: shape {list(shape)} has {count} elements, {array.size} were sent")
    fits = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}[dtype.kind]
    if array.size and array.dtype.kind not in fits:
        raise BadRequest(f"input {name!r}: data are not all numbers of the kind that {datatype} holds")
    if dtype.kind in "iu" and array.size:
        info = numpy.iinfo(dtype)
        if int(array.min()) < info.min or int(array.max()) > info.max:
            raise BadRequest(f"input {name!r}: a value is outside {info.min} to {info.max}, the range of {datatype}")
    with numpy.errstate(over="ignore"):
        return array.astype(dtype).reshape(shape)


def to_list(array: Any) -> List[Any]:
    """Row-major numbers of an array."""
    flat: List[Any] = array.reshape(-1).tolist()
    return flat


def little_endian(array: Any) -> Any:
    """The bytes of an array as a flat view; copied only where the array has gaps."""
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8).data


def _known(name: str, datatype: str) -> Any:
    if datatype not in TO_NUMPY:
        raise BadRequest(f"input {name!r}: datatype {datatype!r} is none of {', '.join(TO_NUMPY)}")
    return dtype_of(TO_NUMPY[datatype])


def describe(infos: Sequence[Any], batched: bool) -> List[Dict[str, Any]]:
    """Inputs or outputs of an engine as the protocol's metadata; -1 for the batch and for what is open."""
    return [{"name": t["name"], "datatype": datatype_of(t["dtype"]),
             "shape": [-1 if d is None or (batched and i == 0) else int(d) for i, d in enumerate(t["shape"])]} for t in infos]
