"""What decoding a request can make, found before it is decoded: one pass over its structure, which skips bulk data by its length.

A decoder makes an object for each value, however few bytes the value has: 90 bytes for the two of an empty message, 100 for the three of `[],`. So a compressed
request of 40 kB could make gigabytes and hold the event loop for seconds. Here a request with more fields, lists or numbers than any request of the loaded models
can have is refused, and what the rest can become is charged (Bodies) while it is decoded. The bytes of an object are measured (CPython 3.11, orjson 3.11, upb 3.13:
resident memory at its peak) and rounded up; tests/serving/test_bounds.py measures them again."""
import functools
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy

from ._errors import BadRequest

_FIELDS = 256        # fields of a request besides those of its tensors
_OF_TENSOR = 32      # fields of an input or output
_TEXT = 1 << 16      # bytes of a name or another text in a protocol buffer
_FIELD = 128         # bytes that a field of a protocol buffer becomes, without its contents
_NUMBER = 72         # bytes of a packed number: in the message, as an object, in an array
_COUNTED = 1 << 16   # bytes of JSON that are looked at in one step
# Bytes that parts of JSON become: the parser's record of a value, the object, its place in a list or dictionary.
_VALUE, _LIST, _OBJECT, _QUOTE = 64, 128, 272, 48


class Widest(NamedTuple):
    """The most that a request of the loaded models has: inputs and outputs, elements of all inputs, lists if they are nested in JSON."""
    tensors: int = 0
    elements: int = 0
    lists: int = 0

    @property
    def fields(self) -> int:
        return _FIELDS + _OF_TENSOR * self.tensors


def json_cost(text: Any, widest: Widest) -> int:
    """Bytes that orjson.loads(text) takes at most. Raises BadRequest."""
    size, wide = len(text), False
    commas = lists = objects = names = quotes = 0
    view = memoryview(text)
    for at in range(0, size, _COUNTED):
        some = bytes(view[at:at + _COUNTED])  # fits a cache
        commas += _count(some, 44)
        lists += _count(some, 91)
        objects += _count(some, 123)
        names += _count(some, 58)
        quotes += _count(some, 34)
        wide = wide or not some.isascii() or 92 in some
        if objects + names > widest.fields:
            raise BadRequest(f"the JSON part has more than {widest.fields} objects and names, more than a request of these models needs")
        if commas > widest.elements + widest.fields:
            raise BadRequest(f"the JSON part has more than {widest.elements + widest.fields} values, more than a request of these models needs")
        if lists > widest.lists + widest.fields:
            raise BadRequest(f"the JSON part has more than {widest.lists + widest.fields} lists, more than a request of these models needs")
    letters = size * (4 if wide else 1)  # Python keeps a text in up to four bytes a letter
    return letters + _VALUE * (commas + 1) + _LIST * lists + _OBJECT * objects + _QUOTE * quotes


def _count(some: bytes, sign: int) -> int:
    if len(some) < 1024:
        return some.count(sign)  # a byte a nanosecond, as against NumPy's microseconds for a call
    return int(numpy.count_nonzero(numpy.frombuffer(some, numpy.uint8) == sign)) if sign in some else 0


class _Field(NamedTuple):
    """A field of a message. `inner`: the fields of a message in it. `width`: bytes of a packed number, 0: of any length, -1: it holds no packed numbers."""
    inner: Optional[Dict[int, "_Field"]]
    width: int
    text: bool


_WIDTHS = {1: 8, 2: 4, 6: 8, 7: 4, 15: 4, 16: 8, **dict.fromkeys((3, 4, 5, 8, 13, 14, 17, 18), 0)}  # by FieldDescriptor.type


@functools.lru_cache(None)
def _fields(kind: Any) -> Dict[int, _Field]:
    """Of a message that does not contain itself, by its descriptor."""
    return {f.number: _Field(None if f.message_type is None else _fields(f.message_type), _WIDTHS.get(f.type, -1), f.type == f.TYPE_STRING) for f in kind.fields}


class Split(NamedTuple):
    """A protocol buffer in two parts: all fields but one (`rest`, again a protocol buffer), and the contents of that one where they lie. `cost`: bytes that `rest`
    becomes at most."""
    rest: bytes
    raw: List[Any]
    cost: int


def split(data: Any, descriptor: Any, widest: Widest, raw: int = 0) -> Split:
    """`raw`: the number of a field of bulk data; 0: none. Raises BadRequest."""
    walk = _Walk(data, widest)
    try:
        walk.message(0, len(data), _fields(descriptor), raw)
    except IndexError:
        raise _broken("it ends within a field") from None
    view = memoryview(data)
    pieces, at = [], 0
    for begin, start, end in walk.found:
        pieces.append(view[at:begin])
        at = end
    pieces.append(view[at:])
    rest = b"".join(pieces)
    return Split(rest, [view[start:end] for _, start, end in walk.found], len(rest) + _FIELD * walk.fields + _NUMBER * walk.numbers)


class _Walk:
    """Over fields, their tags and lengths; contents are skipped, and numbers are counted."""
    __slots__ = ("data", "widest", "fields", "numbers", "found")

    def __init__(self, data: Any, widest: Widest) -> None:
        self.data, self.widest = data, widest
        self.fields = self.numbers = 0
        self.found: List[Tuple[int, int, int]] = []  # raw fields: where they begin, where their contents begin and end

    def message(self, at: int, end: int, fields: Dict[int, _Field], raw: int = 0) -> None:
        data = self.data
        while at < end:
            begin, tag = at, data[at]
            at += 1
            if tag > 127:
                tag, at = self._varint(begin)
            self.fields += 1
            if self.fields > self.widest.fields:
                raise BadRequest(f"the message has more than {self.widest.fields} fields, more than a request of these models needs; numbers must be packed")
            kind, number = tag & 7, tag >> 3
            if kind == 2:
                length = data[at]
                at += 1
                if length > 127:
                    length, at = self._varint(at - 1)
                start, at = at, at + length
                if at > end:
                    raise _broken("a field is longer than what it is in")
                if number == raw:
                    self.found.append((begin, start, at))
                    continue
                field = fields.get(number)
                if field is None:
                    continue
                if field.inner is not None:
                    self.message(start, at, field.inner)
                elif field.width >= 0:
                    self._count(start, at, field.width)
                elif field.text and length > _TEXT:
                    raise BadRequest(f"a text of the message has {length} bytes, the limit is {_TEXT}")
            elif kind == 0:
                while data[at] > 127:
                    at += 1
                at += 1
            elif kind == 5:
                at += 4
            elif kind == 1:
                at += 8
            else:
                raise _broken(f"no field has the wire type {kind}")
        if at != end:
            raise _broken("a field is longer than what it is in")

    def _count(self, start: int, end: int, width: int) -> None:
        if width:
            self.numbers += (end - start) // width
        elif end - start <= 64:
            self.numbers += sum(byte < 128 for byte in self.data[start:end])
        else:
            self.numbers += int(numpy.count_nonzero(numpy.frombuffer(self.data, numpy.uint8, end - start, start) < 128))
        if self.numbers > self.widest.elements + self.widest.fields:
            raise BadRequest(f"the message has more than {self.widest.elements + self.widest.fields} numbers, more than a request of these models needs")

    def _varint(self, at: int) -> Tuple[int, int]:
        value = shift = 0
        while True:
            byte = self.data[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value, at
            if shift > 63:
                raise _broken("a number has more than ten bytes")


def _broken(why: str) -> BadRequest:
    return BadRequest(f"the message is not a protocol buffer of this call: {why}")
