"""gRPC connections: HTTP/2 by nghttp2 (_http2), messages received where they stay (_bodies), as HTTP's are (_http).

grpcio's own server needs 0.9 to 1.4 ms of a core for 600 kB before any work is done (docs/lab/serving.md), more than some networks take."""
import asyncio
import collections
import socket
import urllib.parse
import zlib
from typing import Any, Awaitable, Callable, Deque, Dict, List, Mapping, Optional, Set, Tuple

from . import _http2
from ._bodies import Bodies, Incoming, nothing
from ._errors import BadRequest, Busy, ServeError, TooLarge, Unavailable
from ._grpc_infer import Infers, Lead
from ._requests import known_error
from ._settings import Settings

CODES = {"OK": 0, "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5, "RESOURCE_EXHAUSTED": 8, "UNIMPLEMENTED": 12,
         "INTERNAL": 13, "UNAVAILABLE": 14}
_FRAME = 1 << 22    # bytes of one frame, at most: a message of a picture is one frame where the client can
_DIRECT = 1 << 14   # bytes of a frame that are worth a read of their own; clients of Go send frames of that size, which are read several at a time
_FEW, _MANY = 1 << 14, 1 << 18
_WAKE = 1 << 22     # as in _http
_PATIENCE = 1.0     # seconds after which a message that has not come is looked at before all of it is there: its call may have been cancelled
_BACKLOG = 1 << 20  # bytes of a stream's answers that wait for their client before the next request is run
Handler = Callable[[Any], Awaitable[List[Any]]]
BEGIN, DATA, END, CLOSED = _http2.BEGIN, _http2.DATA, _http2.END, _http2.CLOSED


class Unimplemented(ServeError):
    """No such method."""
    status, code = 501, "UNIMPLEMENTED"


class Methods:
    """What the calls are answered by. `unary`: functions of a message's bytes to the parts of the answer; `streams`: the same for each message of a stream, errors
    being answers; `infer`: the path of those that Infers takes."""

    def __init__(self, infer: bytes, infers: Infers, unary: Mapping[bytes, Handler], streams: Mapping[bytes, Handler], bodies: Bodies, settings: Settings) -> None:
        self.infer, self.infers, self.unary, self.streams, self.bodies, self.settings = infer, infers, unary, streams, bodies, settings
        self.calls = 0  # under way
        self.connections: Set["Connection"] = set()

    def window(self) -> int:
        """What may arrive of a call before it is read: a whole message."""
        return min(self.settings.max_request + (1 << 20), 0x7fffffff)

    def inflated(self, encoding: bytes, body: Any) -> bytes:
        most = self.settings.max_request
        if encoding not in (b"gzip", b"deflate"):
            raise BadRequest(f"a compressed message with grpc-encoding {encoding.decode('latin-1')!r}, which is none of gzip, deflate")
        inflate = zlib.decompressobj(wbits=47)
        try:
            made = inflate.decompress(body, most + 1)
        except zlib.error as e:
            raise BadRequest(f"the message is not {encoding.decode()}: {e}") from None
        if len(made) > most:
            raise TooLarge(f"the message has more than {most} bytes when it is decompressed, the limit")
        if not inflate.eof:
            raise BadRequest(f"the message is {encoding.decode()} that is cut off")
        return made


class _Unary:
    """A call with one message. It is over when `finished`."""
    __slots__ = ("connection", "stream", "path", "encoding", "begun", "flag", "one", "lead", "whole", "finished")

    def __init__(self, connection: "Connection", stream: int, path: bytes, encoding: bytes) -> None:
        self.connection, self.stream, self.path, self.encoding = connection, stream, path, encoding
        self.begun: Any = b""  # what came before the message's size was known
        self.flag = 0
        self.one: Optional[Incoming] = None
        self.lead: Optional[Lead] = None
        self.whole = self.finished = False

    def room(self, size: int) -> Any:
        one = self.one
        return one.rest()[:size] if one is not None and not self.whole and one.at < one.size and one.wanted() else None

    def put(self, data: Any) -> None:
        if self.finished:
            return
        try:
            if self.one is None:
                if self.begun or len(data) < 5:
                    self.begun = data = bytes(self.begun) + bytes(data)
                    if len(data) < 5:
                        return
                    data = memoryview(data)
                self._begin(data[0], int.from_bytes(data[1:5], "big"), data[5:])
                data = data[5:]
            one: Incoming = self.one  # type: ignore[assignment]
            if len(data) > one.size - one.at:
                raise BadRequest("the call has more than one message")
            one.put(data)
        except Exception as e:
            self.fail(known_error(e))

    def add(self, count: int) -> None:
        self.one.add(count)  # type: ignore[union-attr]

    def missing(self) -> int:
        """Bytes of the message that are still to come."""
        one = self.one
        return one.size - one.at if one is not None and not self.finished else 0

    def _begin(self, flag: int, size: int, data: Any) -> None:
        methods = self.connection.methods
        if flag > 1:
            raise BadRequest(f"the message begins with a byte {flag}, which gRPC does not know")
        if size > methods.settings.max_request:
            raise TooLarge(f"the message has {size} bytes, the limit is {methods.settings.max_request}")
        self.flag = flag
        if flag == 0 and self.path == methods.infer:
            self.one, self.lead = methods.infers.body(bytes(data[:min(size, 1 << 12)]), size)
        else:
            self.one = Incoming(methods.bodies, size, 0)
        one = self.one
        one.ended = self._changed
        methods.bodies.watch(one)
        one.begin()

    def _changed(self) -> None:
        """The body was refused while it came."""
        if self.one is not None and self.one.refused is not None and not self.whole:
            self.fail(self.one.refused)

    def end(self) -> None:
        """The client has sent all."""
        if self.finished:
            return
        one = self.one
        if one is None or one.at < one.size:
            self.fail(BadRequest(f"the call ended before its message did: {'no size' if one is None else f'{one.at} of {one.size} bytes'} came"))
            return
        self.whole, one.ended = True, nothing
        methods = self.connection.methods
        methods.bodies.unwatch(one)
        try:
            data = methods.inflated(self.encoding, one.body() if one.size else b"") if self.flag else None
            if self.path == methods.infer:
                methods.infers.ask(one, self.lead, self._reply, data)
                return
            if data is None:
                data = bytes(one.body()) if one.size else b""
        except Exception as e:
            self.fail(known_error(e))
            return
        one.forget(True)
        self.connection.task(self._run(methods.unary[self.path], data))

    async def _run(self, handler: Handler, data: bytes) -> None:
        try:
            self._reply(await handler(data), None)
        except Exception as e:
            self._reply([], known_error(e))

    def _reply(self, parts: List[Any], error: Optional[ServeError]) -> None:
        if self.finished:
            return
        self.finished = True
        self.connection.answer(self.stream, parts, error)

    def fail(self, error: ServeError) -> None:
        self._forget()
        self._reply([], error)

    def gone(self) -> None:
        """The client has cancelled it, or its connection is lost. What runs is finished and dropped."""
        self._forget()
        self.finished = True

    def _forget(self) -> None:
        one = self.one
        if one is not None and not self.whole:
            one.ended, self.whole = nothing, True
            self.connection.methods.bodies.unwatch(one)
            one.forget(True)


class _Stream:
    """A call with many messages, which are answered in their order; an error is an answer, and the stream goes on."""

    def __init__(self, connection: "Connection", stream: int, path: bytes, encoding: bytes) -> None:
        self.connection, self.stream, self.encoding = connection, stream, encoding
        self._handler = connection.methods.streams[path]
        self._bytes = bytearray()
        self._messages: Deque[Tuple[int, bytes]] = collections.deque()
        self._held = 0
        self._changed = asyncio.Event()
        self._all = self.finished = False
        connection.session.hold(stream)
        self._task = connection.task(self._run())

    def room(self, size: int) -> Any:
        return None

    def add(self, count: int) -> None:
        raise AssertionError("a stream gives no memory of its own")

    def missing(self) -> int:
        return 0

    def put(self, data: Any) -> None:
        """Collects messages. The client's account is charged until they are answered, so it can send no more than a window ahead."""
        methods = self.connection.methods
        if self.finished:
            return
        if not methods.bodies.hold(len(data)):
            self._finish(Busy(f"requests that are being answered hold {methods.settings.max_pending} bytes, the limit; try again later"))
            return
        self._held += len(data)
        self._bytes += data
        while len(self._bytes) >= 5:
            size = int.from_bytes(self._bytes[1:5], "big")
            if self._bytes[0] > 1 or size > methods.settings.max_request:
                self._finish(TooLarge(f"the message has {size} bytes, the limit is {methods.settings.max_request}") if self._bytes[0] <= 1 else
                             BadRequest(f"the message begins with a byte {self._bytes[0]}, which gRPC does not know"))
                return
            if len(self._bytes) < 5 + size:
                return
            self._messages.append((self._bytes[0], bytes(self._bytes[5:5 + size])))
            del self._bytes[:5 + size]
            self._changed.set()

    def end(self) -> None:
        self._all = True
        self._changed.set()

    async def _run(self) -> None:
        methods, session = self.connection.methods, self.connection.session
        while True:
            while not self._messages:
                if self._all:
                    self._finish(BadRequest("the stream ended within a message") if self._bytes else None)
                    return
                self._changed.clear()
                await self._changed.wait()
            flag, data = self._messages.popleft()
            size = 5 + len(data)
            try:
                parts = await self._handler(methods.inflated(self.encoding, data) if flag else data)
            except Exception as e:
                self._finish(known_error(e))
                return
            if self.finished:
                return
            self._held -= size
            methods.bodies.hold(-size)
            session.consume(self.stream, size)
            session.message(self.stream, parts)
            self.connection.flush()
            while session.waiting(self.stream) > _BACKLOG:  # the client does not read
                await asyncio.sleep(0.02)

    def _finish(self, error: Optional[ServeError]) -> None:
        if not self.finished:
            self._release()
            self.connection.answer(self.stream, None, error)

    def _release(self) -> None:
        self.finished = True
        self.connection.methods.bodies.hold(-self._held)
        self._held = 0
        self._messages.clear()
        self._bytes.clear()

    def fail(self, error: ServeError) -> None:
        self._finish(error)

    def gone(self) -> None:
        if not self.finished:
            self._release()
        self._task.cancel()


class Connection(asyncio.BufferedProtocol):
    """One client's connection and its calls."""
    _few = memoryview(bytearray(_FEW))    # of all connections: filled and taken before the loop does anything else
    _many = memoryview(bytearray(_MANY))

    def __init__(self, methods: Methods) -> None:
        self.methods = methods
        self.session = _http2.Session(methods.settings.max_connections, methods.window(), _FRAME)
        self._calls: Dict[int, Any] = {}
        self._tasks: Set["asyncio.Task[None]"] = set()
        self._into: Any = self._few
        self._direct: Any = None
        self._least, self._small = 1, False
        self._turns = self._seen = 0
        self._looking: Optional[asyncio.TimerHandle] = None
        self._paused = self._feeding = False
        self._transport: Any = None
        self._socket: socket.socket

    def task(self, work: Any) -> "asyncio.Task[None]":
        made: "asyncio.Task[None]" = asyncio.get_running_loop().create_task(work)
        self._tasks.add(made)
        made.add_done_callback(self._tasks.discard)
        return made

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())
        self.methods.connections.add(self)
        if len(self.methods.connections) > self.methods.settings.max_connections:
            self.session.shut()
            self.flush()
            transport.close()
            return
        self.flush()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._socket.detach()  # the transport closes it
        self.methods.connections.discard(self)
        calls, self._calls = self._calls, {}
        self.methods.calls -= len(calls)
        self._transport = None
        for call in calls.values():
            call.gone()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def eof_received(self) -> None:
        return None  # the transport closes

    def get_buffer(self, sizehint: int) -> Any:
        session = self.session
        self._direct = None
        if session.rest >= _DIRECT:
            call = self._calls.get(session.inside)
            if call is not None:
                self._direct = call
                self._into = call.room(session.rest)
                if self._into is not None:
                    return self._into
                self._direct = None
        self._into = self._many if self._small or session.rest else self._few
        return self._into

    def buffer_updated(self, count: int) -> None:
        data, direct, session = self._into[:count], self._direct, self.session
        self._feeding = True
        for kind, stream, a, b in session.feed(data):
            if kind == DATA:
                call = self._calls.get(stream)
                if call is None:
                    continue
                if direct is call and a == 0:
                    call.add(b)
                else:
                    call.put(data[a:a + b] if direct is None else bytes(data[a:a + b]))
            elif kind == BEGIN:
                self._begin(stream, a)
            elif kind == END:
                call = self._calls.get(stream)
                if call is not None:
                    call.end()
            else:
                self._drop(stream)
        full = count == len(self._into)  # then it is read again at once
        self._into = self._direct = None
        self._feeding = False
        rest = session.rest
        self._small = 0 < rest < _DIRECT or (self._small and rest == 0 and bool(self._calls))
        if session.sends:
            self.flush()
        if session.broken and self._transport is not None:
            self._transport.close()
            return
        call = self._calls.get(session.inside)
        missing = 0 if call is None else call.missing()
        self._wake_for(missing if missing >= _DIRECT and not full else 1)

    def _look(self) -> None:
        """Nobody is told of what comes after a message that never does; so it is not waited for as a whole for ever."""
        self._looking = None
        if self._least > 1 and self._transport is not None:
            if self._seen == self._turns:
                self._wake_for(1)
            else:
                self._wait()

    def _wait(self) -> None:
        self._seen = self._turns
        self._looking = asyncio.get_running_loop().call_later(_PATIENCE, self._look)

    def _wake_for(self, count: int) -> None:
        """Bytes that must be there before the loop is woken: once for a message, not for each of its packets, between which an engine runs."""
        self._turns += 1
        if count > 1:
            count = min(count, _WAKE)
            if self._looking is None:
                self._wait()
        if count != self._least:
            self._least = count
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            except OSError:  # closed meanwhile; not Linux
                pass

    def _begin(self, stream: int, head: Any) -> None:
        if head is None:
            return
        method, path, kind, encoding = head
        methods, session = self.methods, self.session
        if not kind.startswith(b"application/grpc"):
            session.refuse(stream, 415)
            return
        if method != b"POST":
            session.refuse(stream, 405)
            return
        call: Any
        if methods.calls >= methods.settings.max_connections:
            self._refuse(stream, Busy(f"{methods.calls} calls are under way, the limit; try again later"))
            return
        if path == methods.infer or path in methods.unary:
            call = _Unary(self, stream, path, encoding)
        elif path in methods.streams:
            call = _Stream(self, stream, path, encoding)
        else:
            self._refuse(stream, Unimplemented(f"no such method: {path[:200].decode('latin-1')}"))
            return
        self._calls[stream] = call
        methods.calls += 1

    def _refuse(self, stream: int, error: ServeError) -> None:
        self.session.finish(stream, CODES[error.code], urllib.parse.quote(str(error), safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}~").encode())

    def answer(self, stream: int, parts: Optional[List[Any]], error: Optional[ServeError]) -> None:
        """The end of a call, with its message where there is one."""
        if self._calls.pop(stream, None) is None:
            return
        self.methods.calls -= 1
        if error is not None:
            self._refuse(stream, error)
        else:
            if parts is not None:
                self.session.message(stream, parts)
            self.session.finish(stream, 0, b"")
        if not self._feeding:
            self.flush()

    def _drop(self, stream: int) -> None:
        call = self._calls.pop(stream, None)
        if call is not None:
            self.methods.calls -= 1
            call.gone()

    def flush(self) -> None:
        session, transport = self.session, self._transport
        if self._feeding or transport is None:
            return
        while not self._paused:
            data = session.take()
            if not data:
                break
            if not transport.is_closing():
                transport.write(data)
        for stream in session.gone():
            self._drop(stream)

    def shut(self) -> None:
        """No further calls."""
        self.session.shut()
        self.flush()

    def close(self) -> None:
        for call in list(self._calls.values()):
            call.fail(Unavailable("the server is stopping"))
        self.flush()
        if self._transport is not None:
            self._transport.close()


class GrpcServer:
    """Listens with `methods`."""

    def __init__(self, methods: Methods) -> None:
        self._methods = methods
        self._listening: Any = None

    async def start(self, listening: socket.socket) -> None:
        self._listening = await asyncio.get_running_loop().create_server(lambda: Connection(self._methods), sock=listening)

    async def stop(self, seconds: float) -> None:
        """Answers what is under way for that long, then closes."""
        if self._listening is not None:
            self._listening.close()
        for one in list(self._methods.connections):
            one.shut()
        end = asyncio.get_running_loop().time() + seconds
        while self._methods.calls and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        for one in list(self._methods.connections):
            one.close()
        await asyncio.sleep(0)
