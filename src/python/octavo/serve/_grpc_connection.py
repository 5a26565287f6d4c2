"""gRPC connections: HTTP/2 by nghttp2 (_http2), messages received where they stay (_bodies), as HTTP's are (_http). What the calls do is in _grpc_calls.

grpcio's own server needs 0.9 to 1.4 ms of a core for 600 kB before any work is done (docs/lab/serving.md), more than some networks take, and watches neither
silent calls nor what it holds for clients."""
import asyncio
import socket
import urllib.parse
from typing import Any, Callable, Dict, List, Optional, Set

from . import _http2
from ._doors import Doors, nothing, part
from ._errors import Busy, ServeError, Unavailable
from ._grpc_calls import CALM, CANCEL, Call, Methods, Stream, Unary, seconds
from ._limits import Unread
from ._requests import known_error

CODES = {"OK": 0, "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8,
         "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14, "UNAUTHENTICATED": 16}
_FRAME = 1 << 22    # bytes of one frame, at most: a message of a picture is one frame where the client can
_DIRECT = 1 << 14   # bytes of a frame that are worth a read of their own; clients of Go send frames of that size, which are read several at a time
_FEW, _MANY = 1 << 14, 1 << 18
_WAKE = 1 << 22     # as in _http
_PATIENCE = 1.0     # seconds after which a message that has not come is looked at before all of it is there: its call may have been cancelled
BEGIN, DATA, END, CLOSED = _http2.BEGIN, _http2.DATA, _http2.END, _http2.CLOSED


class Unimplemented(ServeError):
    """No such method."""
    status, code = 501, "UNIMPLEMENTED"


class Connection(asyncio.BufferedProtocol):
    """One client's connection and its calls."""
    _few = memoryview(bytearray(_FEW))    # of all connections: filled and taken before the loop does anything else
    _many = memoryview(bytearray(_MANY))

    def __init__(self, methods: Methods, entered: Callable[[], None]) -> None:
        self.methods, self._entered = methods, entered
        self.session = _http2.Session(methods.settings.max_connections, methods.window(), _FRAME)
        self.backlog: Dict[int, asyncio.Event] = {}  # streams that go on when more of their answers were sent
        self._calls: Dict[int, Any] = {}
        self._answered: List[Call] = []              # of which it is not known yet whether their clients read
        self._working = 0                            # calls that do not wait for their client
        self._head: Any = None                       # the last one that was admitted
        self._admitted = -1                          # the tokens' generation then
        self._placed = self._secure = False
        self._unread: Optional[Unread] = None
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
        methods = self.methods
        entered, self._entered = self._entered, nothing
        entered()
        self._transport = transport
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())
        self._unread = Unread(transport, methods.bodies.hold, methods.bodies.unread)
        methods.all[self] = None
        self._placed = methods.connections.take(self)
        if not self._placed:
            self.session.shut()
            self.flush()
            transport.close()
            return
        methods.quiet.add(self)
        self.flush()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._socket.detach()  # the transport closes it
        if self._secure:
            part(self._transport)
        self._transport = None
        self._unread.resumed()  # type: ignore[union-attr]
        for stream in list(self._calls):
            self._drop(stream)
        self._answered.clear()  # calls hold their connection
        self._direct = self._into = None
        self.methods.all.pop(self, None)
        self.methods.quiet.drop(self)
        self._leave()

    def _leave(self) -> None:
        if self._placed:
            self._placed = False
            self.methods.connections.give(self)

    def make_room(self) -> None:
        """Another client needs its place, and it does nothing."""
        self._leave()
        self.session.shut()
        self.flush()
        if self._transport is not None:
            (self._transport.abort if self._paused else self._transport.close)()

    def quiet(self) -> None:
        """It has had no call for a while; clients open another one when they need it."""
        self.session.shut()
        self.flush()
        if self._transport is not None:
            (self._transport.abort if self._paused else self._transport.close)()

    def pause_writing(self) -> None:
        self._paused = True
        self._unread.paused()  # type: ignore[union-attr]

    def resume_writing(self) -> None:
        self._paused = False
        self._unread.resumed()  # type: ignore[union-attr]
        self.flush()

    def at_work(self, call: Call) -> None:
        """Its client has done its part."""
        if not call.works:
            call.works = True
            self.methods.places.works(call)
            self._working += 1
            if self._working == 1:
                self.methods.connections.works(self)

    def waits(self, call: Call) -> None:
        """It is its client's turn."""
        if call.works:
            self._rest(call)
            self.methods.places.waits(call)

    def _rest(self, call: Call) -> None:
        call.works = False
        self._working -= 1
        if self._working == 0 and self._placed:
            self.methods.connections.waits(self)

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
        if count != self._least and not self._secure:  # with TLS the kernel's bytes are not those of the message
            self._least = count
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            except OSError:  # closed meanwhile; not Linux
                pass

    def _begin(self, stream: int, head: Any) -> None:
        if head is None:
            return
        method, path, kind, encoding, authorization, origin, timeout = head
        methods, session = self.methods, self.session
        if not kind.startswith(b"application/grpc"):
            session.refuse(stream, 415)
            return
        if method != b"POST":
            session.refuse(stream, 405)
            return
        limit = None
        try:
            if head is not self._head or self._admitted != methods.guard.generation:
                methods.guard.admit(None, origin.decode("latin-1"), authorization.decode("latin-1"), public=path in methods.public, change=path in methods.changing)
                self._head, self._admitted = head, methods.guard.generation
            if timeout:
                limit = seconds(timeout)
        except ServeError as e:
            self._refuse(stream, e)
            return
        kind = Unary if path == methods.infer or path in methods.unary else Stream if path in methods.streams else None
        if kind is None:
            self._refuse(stream, Unimplemented(f"no such method: {path[:200].decode('latin-1')}"))
            return
        made = kind(self, stream, path, encoding, limit)
        if not methods.places.take(made):
            made.gone()
            self._refuse(stream, Busy(f"{methods.places.limit} calls are under way, the limit; try again later"))
            return
        if not self._calls:
            methods.quiet.drop(self)
        self._calls[stream] = made

    def _refuse(self, stream: int, error: ServeError) -> None:
        self.session.finish(stream, CODES[error.code], urllib.parse.quote(str(error), safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}~").encode())

    def answer(self, call: Call, parts: Optional[List[Any]], error: Optional[ServeError]) -> None:
        """The end of a call, with its message where there is one."""
        if self._calls.get(call.stream) is not call:
            return
        call.finished = True
        if error is not None:
            self._refuse(call.stream, error)
        else:
            if parts is not None:
                self.session.message(call.stream, parts)
            self.session.finish(call.stream, 0, b"")
        self._answered.append(call)
        if not self._feeding:
            self.flush()

    def give_up(self, call: Call) -> None:
        """Its client gets no more."""
        if self._calls.get(call.stream) is call:
            self.session.reset(call.stream, CALM if call.finished else CANCEL)
            self._drop(call.stream)
            if not self._feeding:
                self.flush()

    def _drop(self, stream: int) -> None:
        call = self._calls.pop(stream, None)
        if call is None:
            return
        if call.works:
            self._rest(call)
        self.methods.places.give(call)
        call.gone()
        if not self._calls and self._placed and self._transport is not None:
            self.methods.quiet.add(self)

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
        if self._answered:
            answered, self._answered = self._answered, []
            for call in answered:
                if self._calls.get(call.stream) is call:  # not all of it went out
                    call.unread()
        if self.backlog:
            waiting, self.backlog = self.backlog, {}
            for event in waiting.values():
                event.set()

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
        self._doors = Doors(methods.guard, "h2", methods.connections)
        self._listening: Any = None

    async def start(self, listening: socket.socket) -> None:
        self._listening = await asyncio.get_running_loop().create_server(lambda: self._doors.door(lambda entered: Connection(self._methods, entered)), sock=listening)

    async def stop(self, seconds: float) -> None:
        """Answers what is under way for that long, then closes."""
        if self._listening is not None:
            self._listening.close()
        self._doors.close()
        for one in list(self._methods.all):
            one.shut()
        end = asyncio.get_running_loop().time() + seconds
        while self._methods.places.taken and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        for one in list(self._methods.all):
            one.close()
        await asyncio.sleep(0)
