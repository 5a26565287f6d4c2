"""The short way of an inference request of gRPC (as _quick is that of HTTP): its one raw tensor is received into its row of the next batch, and what stands before
the tensor is looked up by its bytes.

A message of ModelInfer is fields of which raw_input_contents are written last. Where there is one of them and nothing follows it, the bytes before it (the
"lead") say all about the request, and the rest is the tensor."""
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb

from ._batcher import Waiting
from ._bodies import Bodies, Incoming
from ._bounds import Split, Widest, split
from ._classes import count_of, largest, packed
from ._errors import BadRequest, Cancelled, ServeError
from ._models import Version
from ._quick import Known
from ._requests import Request, Response, Service, known_error, rows_of
from ._seats import Seat
from ._tensors import from_bytes, from_list, little_endian

_KNOWN = 256         # leads that are kept
_LONGEST = 1 << 12   # bytes of a lead that is kept
_RAW_INPUT, _RAW_OUTPUT = 7 << 3 | 2, 6 << 3 | 2  # raw_input_contents of the request, raw_output_contents of the answer
CONTENTS = {"BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
            "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
            "FP32": "fp32_contents", "FP64": "fp64_contents"}
_HOLDS = {"bool_contents": "bool", "int_contents": "int32", "int64_contents": "int64", "uint_contents": "uint32", "uint64_contents": "uint64", "fp32_contents": "float32",
          "fp64_contents": "float64"}  # what NumPy does not see: it makes floats of some unsigned integers
Reply = Callable[[List[Any], Optional[ServeError]], None]


def decode(kind: Any, data: Any, widest: Widest = Widest()) -> Any:
    """A message without bulk data. One that is no protocol buffer is the client's mistake. Raises BadRequest."""
    return _decode(kind, split(data, kind.DESCRIPTOR, widest))


def decode_infer(data: Any, widest: Widest, charge: Callable[[int], None]) -> Tuple[Any, List[Any]]:
    """ModelInferRequest without its raw_input_contents, and those: views of `data`. `charge` is called with the bytes that are made of it. Raises BadRequest,
    and what `charge` raises."""
    found = split(data, pb.ModelInferRequest.DESCRIPTOR, widest, _RAW_INPUT >> 3)
    charge(found.cost)
    return _decode(pb.ModelInferRequest, found), found.raw


def _decode(kind: Any, found: Split) -> Any:
    try:
        return kind.FromString(found.rest)
    except DecodeError as e:
        raise BadRequest(f"the message is not a protocol buffer of this call: {e}") from None


def parse(message: Any, raw: Any) -> Request:
    """`raw`: raw_input_contents, which `message` is without."""
    inputs: Dict[str, Any] = {}
    datatypes: Dict[str, str] = {}
    made = 0
    if raw and len(raw) != len(message.inputs):
        raise BadRequest(f"{len(message.inputs)} inputs, but {len(raw)} raw_input_contents")
    for i, one in enumerate(message.inputs):
        if one.name in inputs:
            raise BadRequest(f"input {one.name!r} is given twice")
        for refused in one.parameters:
            raise BadRequest(f"input {one.name!r}: parameter {refused!r} is not supported")
        shape = list(one.shape)
        datatypes[one.name] = one.datatype
        if raw:
            if one.HasField("contents"):
                raise BadRequest(f"input {one.name!r} has contents beside raw_input_contents; give one of them")
            inputs[one.name] = from_bytes(one.name, one.datatype, shape, raw[i])
            continue
        field = CONTENTS.get(one.datatype)
        if field is None:
            raise BadRequest(f"input {one.name!r}: {one.datatype or 'no datatype'} is taken as raw_input_contents only")
        inputs[one.name] = from_list(one.name, one.datatype, shape, numpy.asarray(getattr(one.contents, field), _HOLDS[field]))
        made += inputs[one.name].nbytes
    for refused in ("sequence_id", "priority"):
        if refused in message.parameters and message.parameters[refused].WhichOneof("parameter_choice"):
            kind = message.parameters[refused].WhichOneof("parameter_choice")
            if getattr(message.parameters[refused], kind):
                raise BadRequest(f"parameter {refused!r} is not supported")
    classes = {}
    for output in message.outputs:
        if "classification" in output.parameters and (count := count_of(output.name, output.parameters["classification"].int64_param)):
            classes[output.name] = count
    return Request(message.model_name, message.model_version, message.id, inputs, datatypes, [o.name for o in message.outputs] or None, classes, made)


def render(response: Response, raw: bool) -> Tuple[bytes, List[Any]]:
    """The answer without its raw contents, and those. Raw for requests that were, and for types that have no other form."""
    made = pb.ModelInferResponse(model_name=response.version.name, model_version=response.version.version, id=response.id)
    raw = raw or any(name in response.classes or response.version.datatypes[name] not in CONTENTS for name in response.outputs)
    contents: List[Any] = []
    for name, array in response.outputs.items():
        if name in response.classes:
            shape, texts = largest(array, response.classes[name], response.version.batched)
            made.outputs.add(name=name, datatype="BYTES", shape=shape)
            contents.append(packed(texts))
            continue
        one = made.outputs.add(name=name, datatype=response.version.datatypes[name], shape=array.shape)
        if raw:
            contents.append(little_endian(array))
        else:
            getattr(one.contents, CONTENTS[one.datatype]).extend(array.reshape(-1).tolist())
    return made.SerializeToString(), contents


def joined(text: bytes, data: List[Any]) -> List[Any]:
    """The parts of the message that render() made."""
    parts: List[Any] = [text]
    for one in data:
        parts += [bytes((_RAW_OUTPUT,)) + _varint(len(one)), one]
    return parts


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def lead_of(data: bytes, size: int) -> int:
    """Bytes before the tensor in a message of `size` bytes that begins with `data`; 0: it has no such form, or that cannot be told yet."""
    at = 0
    try:
        while True:
            tag = data[at]
            at, length, shift = at + 1, 0, 0
            if tag & 7 != 2 or tag > 127:
                return 0
            while True:
                byte = data[at]
                length |= (byte & 127) << shift
                at, shift = at + 1, shift + 7
                if byte < 128:
                    break
                if shift > 35:
                    return 0
            if tag == _RAW_INPUT:
                return at if length and at + length == size else 0
            at += length
    except IndexError:
        return 0


class Lead:
    """What stands before a tensor: its bytes, and what they say. `size`: of the whole message."""
    __slots__ = ("text", "size", "message", "model", "version")

    def __init__(self, text: bytes, size: int, widest: Widest) -> None:
        tag = text.rindex(bytes((_RAW_INPUT,)), 0, len(text) - 1)  # before the length of the tensor, whose bytes are not that tag's by their place
        self.text, self.size = text, size
        self.message = decode(pb.ModelInferRequest, text[:tag], widest)
        self.model, self.version = self.message.model_name, self.message.model_version


class Infers:
    """Asks the models for calls of ModelInfer."""

    def __init__(self, service: Service, bodies: Bodies) -> None:
        self.service, self.bodies = service, bodies
        self._leads: Dict[Tuple[int, bytes], Lead] = {}
        self._last: Optional[Lead] = None  # mostly the next call says the same

    def body(self, data: bytes, size: int) -> Tuple[Incoming, Optional[Lead]]:
        """Memory for a message of `size` bytes that begins with `data`: rows of a batch where that can be. Raises BadRequest."""
        lead = self._last
        if lead is not None and lead.size == size and data.startswith(lead.text):
            length = len(lead.text)
        else:
            length = lead_of(data, size)
            if not length:
                return Incoming(self.bodies, size, 0), None
            text = bytes(data[:length])
            lead = self._leads.get((size, text))
        if lead is None:
            lead = Lead(text, size, self.service.models.widest())
            if length <= _LONGEST:
                if len(self._leads) >= _KNOWN:
                    self._leads.clear()
                self._leads[size, text] = lead
        self._last = lead
        one = Incoming(self.bodies, size, length)
        try:
            seats = self.service.model(lead.model, lead.version).batcher.seats
        except ServeError:
            return one, lead  # answered when the body is there
        if seats is not None and seats.rows(size - length):
            one.seats = seats
        return one, lead

    def ask(self, one: Incoming, lead: Optional[Lead], reply: Reply, data: Any = None) -> "Asked":
        """The message is whole. `data`: it, where it did not come as it is. `reply` is called once with the parts of the answer, or an error, unless what is
        returned is cancelled before."""
        call = Asked(self.service, one, reply)
        try:
            seat: Optional[Seat] = None
            if lead is None or data is not None:
                message, raw = decode_infer((one.body() if one.size else b"") if data is None else data, self.service.models.widest(), one.charge)
                call.version = version = self.service.model(message.model_name, message.model_version)
                request = parse(message, raw)
                one.charge(request.made)
                call.id, inputs = request.id, request.inputs
                known = Known(request, {"raw": bool(raw)}, rows_of(request, version))
            else:
                call.version = version = self.service.model(lead.model, lead.version)
                seat = one.seated(version.batcher.seats)
                _, binary = one.parts()
                found: Optional[Known] = version.leads.get(lead.text)
                if found is not None and found.size == len(binary):
                    known, inputs = found, {found.name: seat.array()} if seat is not None else found.arrays(binary)
                else:
                    request = parse(lead.message, [binary])
                    call.id, inputs = request.id, request.inputs
                    known = Known(request, {"raw": True}, rows_of(request, version))
                    if "BOOL" not in request.datatypes.values() and not request.id and len(lead.text) <= _LONGEST:
                        if len(version.leads) >= _KNOWN:
                            version.leads.clear()
                        version.leads[lead.text] = known
            call.known = known
            call.waiting = version.batcher.submit(inputs, known.rows, call.done, seat)
        except Exception as e:
            call.done(None, known_error(e))
        return call


class Asked:
    """A request that waits for its answer."""
    __slots__ = ("service", "one", "reply", "version", "known", "id", "start", "waiting")

    def __init__(self, service: Service, one: Incoming, reply: Reply) -> None:
        self.service, self.one, self.reply, self.start = service, one, reply, time.monotonic()
        self.version: Optional[Version] = None
        self.known: Optional[Known] = None
        self.id = ""
        self.waiting: Optional[Waiting] = None
        service.active += 1

    def cancel(self) -> None:
        """Its client has gone: it is not run any more where it does not run yet."""
        if self.version is not None and self.waiting is not None and self.version.batcher.cancel(self.waiting):
            self.done(None, Cancelled("the client has cancelled the call"))

    def done(self, outputs: Optional[Dict[str, Any]], error: Optional[ServeError]) -> None:
        parts: List[Any] = []
        if error is None:
            try:
                parts = self._answer(outputs or {})
            except Exception as e:
                error = known_error(e)
        service, version = self.service, self.version
        service.active -= 1
        service.metrics.observe_request(version.name if version else "", version.version if version else "", "grpc", "ok" if error is None else str(error.status),
                                        time.monotonic() - self.start)
        self.one.forget(error is None)
        self.reply(parts, error)

    def _answer(self, outputs: Dict[str, Any]) -> List[Any]:
        known: Known = self.known  # type: ignore[assignment]
        version: Version = self.version  # type: ignore[assignment]
        if known.answer is not None:
            _, text, names = known.answer
            return joined(text, [little_endian(outputs[name]) for name in names])
        names = known.names or version.output_names
        text, data = render(Response(version, self.id, {name: outputs[name] for name in names}, known.classes), known.said["raw"])
        if not self.id and not known.classes and len(data) == len(names):
            known.answer = b"", text, names
        return joined(text, data)
