"""The classification extension of the protocol (`class_count` of Triton's clients): in place of an output its largest values, each as the text VALUE:INDEX."""
import struct
from typing import Any, List, Tuple

import numpy

from ._errors import BadRequest


def count_of(name: str, value: Any) -> int:
    """The parameter `classification` of an output. Raises BadRequest."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1 << 31:
        raise BadRequest(f"output {name!r}: classification is {value!r}, not a count of classes")
    return value


def largest(array: Any, count: int, batched: bool) -> Tuple[List[int], List[bytes]]:
    """The shape and the texts, row by row, largest first, the first of equal ones first; NaN last. All values where there are fewer than `count`."""
    rows = array.reshape(array.shape[0] if batched else 1, -1)
    count = min(count, rows.shape[1])
    if rows.dtype.kind == "f":
        keys = -rows.astype(numpy.float64)  # argsort puts NaN last
    else:
        keys = rows.max(initial=0) - rows.astype(object) if rows.dtype.itemsize == 8 else -rows.astype(numpy.int64)
    texts = []
    for row, key in zip(rows, keys):
        best = numpy.argsort(key, kind="stable")[:count]
        texts += [(f"{row[i]:f}" if rows.dtype.kind == "f" else str(int(row[i]))).encode() + b":%d" % i for i in best]
    return ([len(rows), count] if batched else [count]), texts


def packed(texts: List[bytes]) -> bytes:
    """A BYTES tensor as binary data."""
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
