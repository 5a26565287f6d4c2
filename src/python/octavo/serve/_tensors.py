"""Tensors of the Open Inference Protocol as NumPy arrays, from binary data and from JSON numbers, and back."""
import itertools
import math
from typing import Any, Dict, Iterable, List, Sequence, Set

import numpy

from .._errors import UnsupportedError
from ._errors import BadRequest

TO_NUMPY = {"BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8", "INT16": "int16",
            "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64", "BF16": "bfloat16"}
FROM_NUMPY = {numpy_name: name for name, numpy_name in TO_NUMPY.items()}
_FITS: Dict[str, Set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}  # what may stand in JSON, by the kind of NumPy's type
_SAID = {bool: "true and false are", type(None): "null is", float: "a number with a fraction or an exponent is", int: "a number is", str: "a text is"}


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
    """Numbers of JSON, flat or nested, or an array of those of a protocol buffer."""
    dtype = _known(name, datatype)
    count = count_of(name, shape)
    if datatype == "BF16":
        raise BadRequest(f"input {name!r}: BF16 is taken as binary data only")
    if not isinstance(data, (list, numpy.ndarray)):
        raise BadRequest(f"input {name!r}: data is not a list of numbers")
    array = data if isinstance(data, numpy.ndarray) else _of_json(name, datatype, dtype, data)
    if array.size != count:
        raise BadRequest(f"input {name!r}: shape {list(shape)} has {count} elements, {array.size} were sent")
    if dtype.kind in "iu" and array.size:
        _in_range(name, datatype, dtype, int(array.min()), int(array.max()))
    with numpy.errstate(over="ignore"):
        made = array.astype(dtype)
    if dtype.kind == "f" and made.dtype.itemsize < array.dtype.itemsize:
        lost = numpy.isinf(made) & ~numpy.isinf(array)
        if lost.any():
            most = float(numpy.finfo(dtype).max)
            raise BadRequest(f"input {name!r}: {float(array[lost][0])!r} is outside {-most!r} to {most!r}, the range of {datatype}; infinity is taken as binary data only")
    return made.reshape(shape)


def _of_json(name: str, datatype: str, dtype: Any, data: List[Any]) -> Any:
    """An array that holds the numbers without a change. The elements are checked before NumPy sees them: it takes true as 1, and makes floats of integers of which some
    fit int64 and others fit uint64 alone."""
    try:
        wrong = set(map(type, _numbers(name, data))) - _FITS[dtype.kind]
        if list in wrong:
            raise _not_rectangular(name)
        if wrong == {float} and dtype.kind in "iu":
            large = [int(number) for number in _numbers(name, data) if isinstance(number, float) and 1 << 63 <= abs(number) < math.inf]
            _in_range(name, datatype, dtype, min(large, default=0), max(large, default=0))  # integers of more than 64 bits are floats here
        for kind in wrong:
            raise BadRequest(f"input {name!r}: data are not all numbers of the kind that {datatype} holds: {_SAID.get(kind, 'an object is')} not")
        try:
            return numpy.asarray(data, {"f": numpy.float64, "b": numpy.bool_}.get(dtype.kind, numpy.int64))
        except OverflowError:
            _in_range(name, datatype, dtype, min(_numbers(name, data)), max(_numbers(name, data)))
            return numpy.asarray(data, dtype)
    except (TypeError, ValueError, OverflowError):  # an element where a list should be; lists of several lengths
        raise _not_rectangular(name) from None


def _numbers(name: str, data: List[Any]) -> Iterable[Any]:
    """The elements of the innermost lists, without a copy; how deep they are is how deep the first one is."""
    depth, first = 0, data
    numbers: Iterable[Any] = data
    while first and type(first[0]) is list:
        depth, first = depth + 1, first[0]
        if depth > 32:
            raise _not_rectangular(name)
        numbers = itertools.chain.from_iterable(numbers)
    return numbers


def _not_rectangular(name: str) -> BadRequest:
    return BadRequest(f"input {name!r}: data is not a rectangular list of numbers")


def _in_range(name: str, datatype: str, dtype: Any, least: int, most: int) -> None:
    """Of an integer datatype; the others are no concern of it."""
    if dtype.kind not in "iu":
        return
    info = numpy.iinfo(dtype)
    if least < info.min or most > info.max:
        raise BadRequest(f"input {name!r}: {least if least < info.min else most} is outside {info.min} to {info.max}, the range of {datatype}")


def to_list(name: str, array: Any) -> List[Any]:
    """Row-major numbers of an output, for JSON. Raises BadRequest where JSON cannot express them: orjson would write null."""
    if array.dtype.kind == "f":
        lost = array.size - int(numpy.count_nonzero(numpy.isfinite(array)))
        if lost:
            raise BadRequest(f"output {name!r}: {lost} of {array.size} values are NaN or infinity, which JSON cannot express; ask for the output as binary data "
                             "(binary_data true), or over gRPC")
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
