"""HTTP connections and the bodies of their requests: uvicorn's, but a large body of a declared size is received where it stays.

uvicorn hands a body over in parts, each of which is copied several times on its way; requests of pictures are mostly body. What is not a
plain body of a declared size goes uvicorn's way."""
import asyncio
import contextlib
import functools
import re
import socket
import zlib
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, List, Optional, Tuple

import httptools
import numpy
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ._errors import BadRequest, Busy, ServeError, SlowSender, TooLarge
from ._settings import Settings

JSON_LENGTH = "inference-header-content-length"
_JSON_LENGTH = JSON_LENGTH.encode()
_INFER = re.compile(rb"/v2/models/([A-Za-z0-9._-]+)(?:/versions/([0-9]+))?/infer")
_INCOMING = "octavo.incoming"  # in the scope of a request
_LEAST = 1 << 10               # bytes of a body; smaller ones gain nothing
_FEW = 1 << 14                 # bytes read at once where it is not known what they are
_WAKE = 1 << 20                # bytes of a body that the kernel collects before it is read
_ALIGN = 64                    # bytes; an engine copies inputs that are not aligned to their elements
_NUMBER = re.compile("[0-9]{1,18}")


class Incoming:
    """A body on its way into its memory, which `bodies` counts once somebody reads it. `cycle`: the request and its answer as uvicorn knows them;
    on the short way that is this object, with the attributes that uvicorn's protocol reads and sets."""
    __slots__ = ("size", "at", "cycle", "changed", "counted", "refused", "response_complete", "disconnected", "keep_alive", "more_body", "_bodies",
                 "_json", "_memory", "_raw")

    def __init__(self, bodies: "Bodies", size: int, json: int) -> None:
        self.size, self.at, self.counted = size, 0, -1
        self.cycle: Any = self
        self.changed = asyncio.Event()
        self.response_complete = self.disconnected = False
        self.keep_alive = self.more_body = True
        self.refused: Optional[ServeError] = None
        self._bodies, self._json = bodies, json
        self._memory: Any = None
        self._raw: Any = None

    @property
    def message_event(self) -> asyncio.Event:
        return self.changed

    def rest(self) -> Any:
        """Memory for what is missing. The binary data behind the JSON part are aligned."""
        if self._memory is None:
            self._raw = self._bodies.memory(self.size + _ALIGN)
            start = -(self._raw.ctypes.data + self._json) % _ALIGN
            self._memory = self._raw.data[start:start + self.size]
        return self._memory[self.at:]

    def add(self, count: int) -> None:
        self.at += count
        if self.counted >= 0:
            self._bodies.count(self, count)

    def wanted(self) -> bool:
        return self.refused is None and not self.cycle.response_complete and not self.cycle.disconnected

    async def whole(self) -> Any:
        """Waits for all of it."""
        self.counted = 0
        self._bodies.count(self, self.at)
        late = asyncio.get_running_loop().call_later(self._bodies.settings.body_timeout, self._late)
        try:
            while self.refused is None and self.at < self.size:
                if self.cycle.disconnected:
                    raise ClientDisconnect
                await self.changed.wait()
                self.changed.clear()
        finally:
            late.cancel()
        if self.refused is not None:
            raise self.refused
        return self._memory

    def refuse(self, error: ServeError) -> None:
        self.refused = error
        self.changed.set()

    def _late(self) -> None:
        self.refuse(self._bodies.slow())

    def forget(self, reuse: bool) -> None:
        """It has been read; `reuse`: nothing refers to its memory any more."""
        self._bodies.count(self, -self.counted)
        self.counted = -1
        raw, self._raw, self._memory = self._raw, None, None
        if reuse and raw is not None:
            self._bodies.give_back(raw)


class _Parsed(HttpToolsProtocol):
    """uvicorn's part of a connection, which large bodies do not pass through."""

    def __init__(self, bodies: "Bodies", **options: Any) -> None:
        super().__init__(**options)
        self._bodies = bodies
        self.incoming: Optional[Incoming] = None

    def on_headers_complete(self) -> None:
        self.incoming = one = self._large_body()
        found = _INFER.fullmatch(self.url) if one is not None else None
        if found is not None and self._short_way(one, found):  # type: ignore[arg-type]
            return
        super().on_headers_complete()
        if one is not None:
            one.cycle = self.cycle
            self.scope[_INCOMING] = one  # type: ignore[typeddict-unknown-key]

    def _large_body(self) -> Optional[Incoming]:
        """Of a plain request; None for all others."""
        headers = self._by_name = dict(self.headers)
        digits, json = headers.get(b"content-length", b""), headers.get(_JSON_LENGTH, b"")
        plain = digits.isdigit() and len(digits) < 19 and len(headers) == len(self.headers) and b"transfer-encoding" not in headers
        if not plain or self.expect_100_continue or self.parser.should_upgrade():
            return None
        size = int(digits)
        if not _LEAST <= size <= self._bodies.settings.max_request:
            return None
        return Incoming(self._bodies, size, int(json) if json.isdigit() and len(json) < 10 else 0)

    def _short_way(self, one: Incoming, found: Any) -> bool:
        """An inference request is answered without the objects of ASGI and Starlette, which took a third of its time. What is out of the ordinary is
        left to uvicorn."""
        free = self.cycle is None or self.cycle.response_complete
        parser = self.parser
        if not free or parser.get_method() != b"POST" or parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return False
        if self._bodies.infer is None or max(len(self.connections), len(self.tasks)) >= (self.limit_concurrency or 1 << 30):
            return False
        self.cycle = one  # type: ignore[assignment]
        task = self.loop.create_task(self._answer(one, found))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        return True

    async def _answer(self, one: Incoming, found: Any) -> None:
        headers = {name: self._by_name[name.encode()].decode("latin-1") for name in (JSON_LENGTH, "content-encoding") if name.encode() in self._by_name}
        status, kind, more, body = await self._bodies.infer(found[1].decode(), (found[2] or b"").decode(), headers, one)  # type: ignore[misc]
        if one.disconnected:
            return
        if self.flow.write_paused:
            await self.flow.drain()
        lines = [STATUS_LINE[status], *(b"%b: %b\r\n" % line for line in self.server_state.default_headers),
                 b"content-type: %b\r\ncontent-length: %d\r\n" % (kind, len(body)), more, b"" if one.keep_alive else b"connection: close\r\n", b"\r\n", body]
        self.transport.write(b"".join(lines))
        one.response_complete = True
        one.changed.set()
        if not one.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_body(self, body: bytes) -> None:
        if self.incoming is None:
            super().on_body(body)
            return
        if self.incoming.wanted():
            self.incoming.rest()[:len(body)] = body
        self.incoming.add(len(body))

    def on_message_complete(self) -> None:
        self._end_incoming()
        super().on_message_complete()

    def on_incoming_complete(self) -> None:
        """The whole body is there. The parser has not seen it, so another one takes the next request."""
        self.parser = httptools.HttpRequestParser(self)
        self.on_message_complete()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        super().connection_lost(exc)
        self._end_incoming()

    def _end_incoming(self) -> None:
        one, self.incoming = self.incoming, None
        if one is not None:
            one.changed.set()


class Connection(asyncio.BufferedProtocol):
    """What a connection's bytes are read into: the memory of a body, or a few bytes for the parser."""
    _few = memoryview(bytearray(_FEW))  # of all connections: filled and taken before the loop does anything else

    def __init__(self, bodies: "Bodies", **options: Any) -> None:
        self._parsed = _Parsed(bodies, **options)
        self._socket: socket.socket
        self._least = 1

    def connection_made(self, transport: Any) -> None:
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())  # uvloop's own makes another at each call
        self._parsed.connection_made(transport)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._socket.detach()  # the transport closes it
        self._parsed.connection_lost(exc)

    def pause_writing(self) -> None:
        self._parsed.pause_writing()

    def resume_writing(self) -> None:
        self._parsed.resume_writing()

    def eof_received(self) -> None:
        self._parsed.eof_received()

    def get_buffer(self, sizehint: int) -> Any:
        one = self._parsed.incoming
        if one is None:
            return self._few
        return one.rest() if one.wanted() else self._few[:one.size - one.at]  # answered already: the rest is read and dropped

    def buffer_updated(self, count: int) -> None:
        one = self._parsed.incoming
        if one is None:
            self._parsed.data_received(bytes(self._few[:count]))
            one = self._parsed.incoming
        else:
            one.add(count)
            if one.at == one.size:
                self._parsed.on_incoming_complete()
                one = None
        self._wake_for(1 if one is None else one.size - one.at)

    def _wake_for(self, count: int) -> None:
        """Bytes that must be there before the loop is woken: once for a body, not for each of its packets, between which an engine runs."""
        count = min(count, _WAKE)
        if count != self._least:
            self._least = count
            with contextlib.suppress(OSError):  # closed meanwhile; not Linux
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)


class Bodies:
    """Reads bodies within the limits on one request, on all together, and on time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.infer: Optional[Callable[..., Awaitable[Tuple[int, bytes, bytes, bytes]]]] = None
        self._held = 0
        self._free: Dict[int, List[Any]] = {}
        self._spare = 0

    def connection(self) -> Any:
        """What uvicorn calls for each connection."""
        return functools.partial(Connection, self)

    def count(self, one: Incoming, count: int) -> None:
        one.counted += count
        self._held += count
        if self._held > self.settings.max_pending and count > 0:
            one.refuse(self._too_many())

    def memory(self, size: int) -> Any:
        """Memory that was touched before, where there is some: new pages cost more than copying into them."""
        free = self._free.get(size)
        if not free:
            return numpy.empty(size, numpy.uint8)  # not touched: a declared size alone costs nothing
        self._spare -= size
        return free.pop()

    def give_back(self, memory: Any) -> None:
        if self._spare + memory.size > self.settings.max_request:
            self._free.clear()
            self._spare = 0
        self._free.setdefault(memory.size, []).append(memory)
        self._spare += memory.size

    @contextlib.asynccontextmanager
    async def read(self, request: HttpRequest) -> AsyncIterator[Any]:
        """The body, bytes or a view of bytes."""
        declared = request.headers.get("content-length", "0")
        size = int(declared) if _NUMBER.fullmatch(declared) else 0
        if size > self.settings.max_request:
            raise TooLarge(f"the request has {size} bytes, the limit is {self.settings.max_request}")
        one: Optional[Incoming] = request.scope.get(_INCOMING)
        held, answered = [0], False
        try:
            if one is not None:
                body = await one.whole()
            else:
                try:
                    async with asyncio.timeout(self.settings.body_timeout):
                        body = await self._parts(request, held)
                except TimeoutError:
                    raise self.slow() from None
            yield self.inflated(request.headers, body)
            answered = True
        finally:
            self._held -= held[0]
            if one is not None:
                one.forget(answered)

    async def _parts(self, request: HttpRequest, held: List[int]) -> bytes:
        parts = bytearray()
        async for part in request.stream():
            held[0] += len(part)
            self._held += len(part)
            if held[0] > self.settings.max_request:
                raise TooLarge(f"the request has more than {self.settings.max_request} bytes, the limit")
            if self._held > self.settings.max_pending:
                raise self._too_many()
            parts += part
        return bytes(parts)

    def slow(self) -> SlowSender:
        return SlowSender(f"the body did not arrive within {self.settings.body_timeout} s")

    def _too_many(self) -> Busy:
        return Busy(f"requests that are being answered hold {self.settings.max_pending} bytes, the limit; try again later")

    def inflated(self, headers: Any, body: Any) -> Any:
        coding = headers.get("content-encoding", "identity")
        if coding == "identity":
            return body
        if coding not in ("gzip", "deflate"):
            raise BadRequest(f"content-encoding {coding!r} is none of identity, gzip, deflate")
        inflate = zlib.decompressobj(wbits=47)  # both have a header that tells
        try:
            made = inflate.decompress(body, self.settings.max_request)
        except zlib.error as e:
            raise BadRequest(f"the body is not {coding}: {e}") from None
        if inflate.unconsumed_tail:
            raise TooLarge(f"the request has more than {self.settings.max_request} bytes when it is decompressed, the limit")
        if not inflate.eof:
            raise BadRequest(f"the body is {coding} that is cut off")
        return made
