"""The short way of an inference request of plain HTTP: from its body to its answer without the objects of ASGI and Starlette and without a task,
which took most of the time that a server adds to a run.

Clients repeat the JSON part of their requests, so what it says is kept with the model version: checked once, then found by its bytes."""
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy
import orjson

from ._bodies import Bodies, Incoming
from ._errors import ServeError
from ._models import Version
from ._requests import Request, Response, Service, known_error, rows_of
from ._rest import JSON_LENGTH, parse, parse_parts, render
from ._seats import Seat
from ._tensors import little_endian

_KNOWN = 64          # JSON parts that are kept for a model version
_LONGEST = 1 << 14   # bytes of a JSON part that is kept
_SMALL = 1 << 16     # bytes of an output that are copied rather than written from where they are
Reply = Callable[[Incoming, int, bytes, List[Any]], None]


class Head:
    """What the head of such a request says; `headers`: those that are read with the body."""
    __slots__ = ("model", "version", "headers", "size", "json")

    def __init__(self, model: str, version: str, headers: Dict[str, str], size: int) -> None:
        self.model, self.version, self.headers, self.size = model, version, headers, size
        length = headers.get(JSON_LENGTH, "")
        self.json = int(length) if length.isascii() and length.isdigit() and len(length) < 10 else 0


    def split(self) -> bool:
        """Whether the JSON part ends where binary data begin."""
        return 0 < self.json < self.size and "content-encoding" not in self.headers


class Known:
    """What a JSON part says, and what was answered to it last time: (headers, JSON part, names of the outputs). `size`: bytes of its inputs where all are
    binary."""
    __slots__ = ("inputs", "name", "size", "rows", "names", "classes", "said", "answer")

    def __init__(self, request: Request, said: Dict[str, Any], rows: int) -> None:
        self.rows, self.said, self.names, self.classes, self.size = rows, said, request.outputs, request.classes, 0
        self.inputs: List[Tuple[str, Any, Any, int]] = []  # name, type, shape, offset
        for name, array in request.inputs.items():
            self.inputs.append((name, array.dtype, array.shape, self.size))
            self.size += array.nbytes
        self.name = self.inputs[0][0] if self.inputs else ""
        self.answer: Optional[Tuple[bytes, bytes, List[str]]] = None

    def arrays(self, data: Any) -> Dict[str, Any]:
        return {name: numpy.ndarray(shape, dtype, data, at) for name, dtype, shape, at in self.inputs}


class Quick:
    """Asks the models; `reply` of each request is called once with what is to be sent."""

    def __init__(self, service: Service, bodies: Bodies) -> None:
        self.service, self.bodies = service, bodies

    def body(self, head: Head) -> Incoming:
        """The body of a request, which is received into rows of a batch where that can be."""
        one = Incoming(self.bodies, head.size, head.json)
        if head.split():
            try:
                seats = self.service.model(head.model, head.version).batcher.seats
            except ServeError:
                return one  # answered when the body is there
            if seats is not None and seats.rows(head.size - head.json):
                one.seats = seats
        return one

    def ask(self, one: Incoming, head: Head, reply: Reply) -> None:
        """The body has ended: whole, or refused."""
        call = _Call(self.service, one, reply)
        try:
            if one.refused is not None:
                raise one.refused.again()
            call.version = version = self.service.model(head.model, head.version)
            seat = one.seated(version.batcher.seats)
            known, inputs = self._read(one, head, call, seat)
            call.known = known
            version.batcher.submit(inputs, known.rows, call.done, seat)
        except Exception as e:
            call.done(None, known_error(e))

    def _read(self, one: Incoming, head: Head, call: "_Call", seat: Optional[Seat]) -> Tuple[Known, Dict[str, Any]]:
        version: Version = call.version  # type: ignore[assignment]
        if not head.split():
            coding, body = head.headers.get("content-encoding", "identity"), one.body()
            if coding != "identity":
                body = self.bodies.inflated(coding, body, self.service.models.largest(head.model), one.charge)
            request, said = parse(head.model, head.version, head.headers, body, self.service.models.widest(), one.charge)
            call.id = request.id
            return Known(request, said, rows_of(request, version)), request.inputs
        view, binary = one.parts()
        text = bytes(view)
        known: Optional[Known] = version.known.get(text)
        if known is not None and known.size == len(binary):
            return known, {known.name: seat.array()} if seat is not None else known.arrays(binary)
        request, said = parse_parts(head.model, head.version, text, binary, self.service.models.widest(), one.charge)
        call.id = request.id
        known = Known(request, said, rows_of(request, version))
        if known.size == len(binary) and "BOOL" not in request.datatypes.values() and not request.id and len(text) <= _LONGEST:
            if len(version.known) >= _KNOWN:
                version.known.clear()
            version.known[text] = known
        return known, request.inputs


class _Call:
    """A request that waits for its answer."""
    __slots__ = ("service", "one", "reply", "version", "known", "id", "start")

    def __init__(self, service: Service, one: Incoming, reply: Reply) -> None:
        self.service, self.one, self.reply, self.start = service, one, reply, time.monotonic()
        self.version: Optional[Version] = None
        self.known: Optional[Known] = None
        self.id = ""
        service.active += 1

    def done(self, outputs: Optional[Dict[str, Any]], error: Optional[ServeError]) -> None:
        if error is None:
            try:
                status, (lines, body) = 200, self._answer(outputs or {})
            except Exception as e:
                error = known_error(e)
        if error is not None:
            text = orjson.dumps({"error": str(error)})
            again = b"retry-after: 1\r\n" if error.status in (429, 503) else b""
            status, lines, body = error.status, b"content-type: application/json\r\ncontent-length: %d\r\n%b" % (len(text), again), [text]
        service, version, one = self.service, self.version, self.one
        service.active -= 1
        service.metrics.observe_request(version.name if version else "", version.version if version else "", "http", "ok" if error is None else str(status),
                                        time.monotonic() - self.start)
        one.forget(error is None)
        self.reply(one, status, lines, body)

    def _answer(self, outputs: Dict[str, Any]) -> Tuple[bytes, List[Any]]:
        known: Known = self.known  # type: ignore[assignment]
        if known.answer is not None:
            lines, text, names = known.answer
            return lines, [text, *[_bytes(outputs[name]) for name in names]]
        version: Version = self.version  # type: ignore[assignment]
        text, data = render(Response(version, self.id, {name: outputs[name] for name in known.names or version.output_names}, known.classes), known.said)
        size = len(text) + sum(len(one) for one in data)
        if not data:
            return b"content-type: application/json\r\ncontent-length: %d\r\n" % size, [text]
        lines = b"content-type: application/octet-stream\r\ncontent-length: %d\r\n%b: %d\r\n" % (size, JSON_LENGTH.encode(), len(text))
        if not self.id and not known.classes and len(data) == len(known.names or version.output_names):
            known.answer = lines, text, known.names or version.output_names
        return lines, [text, *data]


def _bytes(array: Any) -> Any:
    return array.tobytes() if array.nbytes <= _SMALL else little_endian(array)
