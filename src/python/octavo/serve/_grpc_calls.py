"""The calls of a gRPC connection: what each has received, what it holds, and what it waits for.

From its head on a call has a place (Methods.places) and is watched: for its message, for the next one, for its answer to be read. All bytes that it holds are
charged to Bodies."""
import asyncio
import re
from typing import Any, Awaitable, Callable, Dict, List, Mapping, Optional, Tuple

from ._bodies import Bodies, Incoming, nothing
from ._errors import BadRequest, Busy, Late, ServeError, TooLarge
from ._grpc_infer import Infers, Lead
from ._guard import Guard
from ._limits import Places, Watch
from ._pieces import Pieces
from ._requests import known_error
from ._settings import Settings

_BACKLOG = 1 << 20  # bytes of a stream's answers that wait for their client before the next request is run
_PROGRESS = 1 << 16  # bytes of an answer that a client must read within the limit for reading, or all of it
_FAILED = 50        # messages of a stream in a row that are answered with errors; each waits a little longer than the one before
_SMALL = 1 << 20    # bytes of a message that is no inference
_UNIT = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
CANCEL, CALM = 8, 11  # codes of HTTP/2
Charge = Callable[[int], None]
Handler = Callable[[bytes], Awaitable[List[Any]]]
StreamHandler = Callable[[bytes, Charge], Awaitable[Tuple[List[Any], bool]]]


class Methods:
    """What the calls are answered by. `unary`: functions of a message's bytes to the parts of the answer; `streams`: of a message's bytes, and of what charges for
    bytes made of it, to the parts of the answer and whether it is an error; `infer`: the path of those that Infers takes. `public`: paths that need no token;
    `changing`: those that load or unload. What all connections share is here too."""

    def __init__(self, infer: bytes, infers: Infers, unary: Mapping[bytes, Handler], streams: Mapping[bytes, StreamHandler], bodies: Bodies, settings: Settings,
                 guard: Guard, public: Any, changing: Any) -> None:
        self.infer, self.infers, self.unary, self.streams, self.bodies, self.settings = infer, infers, unary, streams, bodies, settings
        self.guard, self.public, self.changing = guard, public, changing
        self.places = Places(settings.max_connections)       # of calls
        self.connections = Places(settings.max_connections)
        self.all: Dict[Any, None] = {}                       # connections, in their order
        self.quiet = Watch(settings.idle_timeout, lambda one: one.quiet())       # connections without a call
        self.idle = Watch(settings.idle_timeout, lambda one: one.idle())         # streams between two messages
        self.whole = Watch(settings.stream_timeout, lambda one: one.too_long())  # streams

    def window(self) -> int:
        """What may arrive of a call before it is read: a whole message."""
        return min(self.settings.max_request + (1 << 20), 0x7fffffff)

    def most(self) -> int:
        """Bytes of a decompressed message."""
        return self.infers.service.models.largest()


def seconds(timeout: bytes) -> Optional[float]:
    """Of a grpc-timeout. Raises BadRequest."""
    if not timeout:
        return None
    found = re.fullmatch(r"([0-9]{1,8})([HMSmun])", timeout.decode("latin-1"))
    if found is None:
        raise BadRequest(f"grpc-timeout {timeout[:50].decode('latin-1')!r} is not up to 8 digits and one of H, M, S, m, u, n")
    return int(found[1]) * _UNIT[found[2]]


class Call:
    """What all calls have. `finished`: its answer, or the end of it, is on its way to the client. `works`: it does not wait for its client."""
    __slots__ = ("connection", "stream", "path", "encoding", "finished", "works", "timer", "limit", "out", "left")

    def __init__(self, connection: Any, stream: int, path: bytes, encoding: bytes, limit: Optional[float]) -> None:
        self.connection, self.stream, self.path, self.encoding, self.limit = connection, stream, path, encoding, limit
        self.finished = self.works = False
        self.out = self.left = 0  # bytes of its answer that are charged; those that had not been read when that was last looked at
        self.timer: Optional[asyncio.TimerHandle] = None if limit is None else asyncio.get_running_loop().call_later(limit, self._expired)
        connection.methods.bodies.coming.add(self)

    def fail(self, error: ServeError) -> None:
        raise NotImplementedError

    def _expired(self) -> None:
        self.timer = None
        self.fail(Late(f"the call has taken longer than its own limit (grpc-timeout) of {self.limit:g} s"))

    def late(self) -> None:
        """Its message has not come."""
        self.fail(self.connection.methods.bodies.slow())

    def make_room(self) -> None:
        """Others need its place, and it waits for its client. It is no longer there afterwards."""
        self.fail(Busy(f"{self.connection.methods.places.limit} calls are under way, the limit, and this one has waited longest for its client; try again later"))
        self.connection.give_up(self)

    def unread(self) -> None:
        """Its answer is on its way, but its client has not taken it."""
        if self._charge_answer():
            self.left = self.out
            self.connection.methods.bodies.unread.add(self)
            self.connection.waits(self)

    def give_up(self) -> None:
        """The answer has not been read in time: some of it must have been."""
        left = self.connection.session.waiting(self.stream)
        if 0 < left <= self.left - _PROGRESS:
            if self._charge_answer():
                self.left = left
                self.connection.methods.bodies.unread.add(self)
        else:
            self.connection.give_up(self)

    def _charge_answer(self) -> bool:
        """Counts what was not read of its answer; False: it is more than may be held, and the call is over."""
        connection = self.connection
        now = connection.session.waiting(self.stream)
        if not connection.methods.bodies.hold(now - self.out):
            connection.give_up(self)
            return False
        self.out = now
        return True

    def gone(self) -> None:
        """It has left the connection: answered, cancelled, or lost with it. What runs for it is finished and dropped."""
        bodies = self.connection.methods.bodies
        self.finished = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        bodies.coming.drop(self)
        bodies.unread.drop(self)
        bodies.hold(-self.out)
        self.out = 0


class Unary(Call):
    """A call with one message."""
    __slots__ = ("begun", "flag", "one", "lead", "whole", "asked")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.begun: Any = b""  # what came before the message's size was known
        self.flag = 0
        self.one: Optional[Incoming] = None
        self.lead: Optional[Lead] = None
        self.whole = False
        self.asked: Any = None  # a request that waits for its run

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
        most = methods.settings.max_request if self.path == methods.infer else min(methods.settings.max_request, _SMALL)
        if size > most:
            raise TooLarge(f"the message has {size} bytes, the limit is {most}")
        self.flag = flag
        if flag == 0 and self.path == methods.infer:
            self.one, self.lead = methods.infers.body(bytes(data[:min(size, 1 << 12)]), size)
        else:
            self.one = Incoming(methods.bodies, size, 0)
        one = self.one
        one.ended = self._changed
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
        methods.bodies.coming.drop(self)
        self.connection.at_work(self)
        try:
            data = None
            if self.flag:
                most = methods.most() if self.path == methods.infer else _SMALL
                data = methods.bodies.inflated(self.encoding.decode("latin-1"), one.body() if one.size else b"", most, one.charge)
            if self.path == methods.infer:
                asked = methods.infers.ask(one, self.lead, self._reply, data)
                if not self.finished:  # answered at once
                    self.asked = asked
                return
            if data is None:
                data = bytes(one.body()) if one.size else b""
        except Exception as e:
            one.forget(True)
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
        self.asked = None
        if not self.finished:
            self.connection.answer(self, parts, error)

    def fail(self, error: ServeError) -> None:
        self._forget()
        self._reply([], error)

    def gone(self) -> None:
        self._forget()
        super().gone()

    def _forget(self) -> None:
        one, asked = self.one, self.asked
        if asked is not None:
            self.asked = None
            finished, self.finished = self.finished, True  # what cancel() replies is for nobody
            asked.cancel()
            self.finished = finished
        elif one is not None and not self.whole:
            one.ended, self.whole = nothing, True
            one.forget(True)


class Stream(Call):
    """A call with many messages, which are answered in their order; an error is an answer, and the stream goes on. Messages stay the bytes that came until it is
    their turn, so that many small ones hold no more than their bytes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        connection = self.connection
        self._handler: StreamHandler = connection.methods.streams[self.path]
        self._bytes = Pieces()
        self._held = self._messages = self._failed = 0
        self._changed = asyncio.Event()
        self._read = asyncio.Event()
        self._all = False
        connection.methods.whole.add(self)
        connection.session.hold(self.stream)
        self._task: "Optional[asyncio.Task[None]]" = connection.task(self._run())

    def room(self, size: int) -> Any:
        return None

    def add(self, count: int) -> None:
        raise AssertionError("a stream gives no memory of its own")

    def missing(self) -> int:
        return 0

    def put(self, data: Any) -> None:
        """The client's account of HTTP/2 is charged until messages are answered, so it can send no more than a window ahead."""
        methods = self.connection.methods
        if self.finished:
            return
        if not methods.bodies.hold(len(data)):
            self.fail(Busy(f"requests that are being answered hold {methods.settings.max_pending} bytes, the limit; try again later"))
            return
        self._held += len(data)
        self._bytes.add(data)
        if not self.works:
            self._wait()
        self._changed.set()

    def end(self) -> None:
        self._all = True
        self._changed.set()

    def _whole(self) -> int:
        """Bytes of the next message where it is whole, else 0. Raises TooLarge, BadRequest."""
        if self._bytes.size < 5:
            return 0
        begun = self._bytes.first(5)
        size, most = int.from_bytes(begun[1:5], "big"), self.connection.methods.settings.max_request
        if begun[0] > 1:
            raise BadRequest(f"the message begins with a byte {begun[0]}, which gRPC does not know")
        if size > most:
            raise TooLarge(f"the message has {size} bytes, the limit is {most}")
        return 5 + size if self._bytes.size >= 5 + size else 0

    def _wait(self) -> None:
        """For the rest of a message, or for the next one."""
        methods = self.connection.methods
        self.connection.waits(self)
        if self._bytes.size and self not in methods.bodies.coming:
            methods.idle.drop(self)
            methods.bodies.coming.add(self)
        elif not self._bytes.size and self._messages:
            methods.bodies.coming.drop(self)
            methods.idle.add(self)

    async def _run(self) -> None:
        methods = self.connection.methods
        try:
            while True:
                size = self._whole()
                if size:
                    methods.idle.drop(self)
                    methods.bodies.coming.drop(self)
                    self.connection.at_work(self)
                    await self._answer(size)
                    if self.finished:
                        return
                    await asyncio.sleep(0)  # others get their turn, however small the messages are
                    continue
                if self._all:
                    self._finish(BadRequest("the stream ended within a message") if self._bytes.size else None)
                    return
                self._wait()
                self._changed.clear()
                await self._changed.wait()
        except Exception as e:
            self._finish(known_error(e))

    async def _answer(self, size: int) -> None:
        """The first message, of `size` bytes."""
        connection, methods = self.connection, self.connection.methods
        bodies, session = methods.bodies, self.connection.session
        self._messages += 1
        if self._messages > methods.settings.stream_messages:
            raise Busy(f"the stream has had {methods.settings.stream_messages} messages, the limit; open another one")
        flag, data = self._bytes.take(5)[0], self._bytes.take(size - 5)
        made = 0

        def charge(count: int) -> None:
            nonlocal made
            bodies.charge(count)
            made += count
        try:
            if flag:
                data = bodies.inflated(self.encoding.decode("latin-1"), data, methods.most(), charge)
            charge(len(data))
            answer = self._handler(data, charge)
            del data  # from here on it is the handler's
            parts, failed = await answer
        finally:
            bodies.hold(-made)
        if self.finished:
            return
        self._held -= size
        bodies.hold(-size)
        session.consume(self.stream, size)
        session.message(self.stream, parts)  # a copy, which is charged until it was read
        del parts
        connection.flush()
        if self.finished or not self._charge_answer():
            return
        self._failed = self._failed + 1 if failed else 0
        if self._failed >= _FAILED:
            raise BadRequest(f"the last {_FAILED} messages of the stream were refused; the answers say why")
        if failed:
            await asyncio.sleep(5e-3 * min(self._failed, 10))
        while self.out > _BACKLOG:  # the client does not read
            if self not in bodies.unread:
                self.unread()
            self._read.clear()
            connection.backlog[self.stream] = self._read
            await self._read.wait()
            if self.finished or not self._charge_answer():
                return
        bodies.unread.drop(self)

    def _finish(self, error: Optional[ServeError]) -> None:
        if not self.finished:
            self._release()
            self.connection.answer(self, None, error)

    def _release(self) -> None:
        methods = self.connection.methods
        methods.bodies.hold(-self._held)
        self._held = 0
        self._bytes.clear()
        methods.bodies.coming.drop(self)
        methods.idle.drop(self)
        methods.whole.drop(self)

    def fail(self, error: ServeError) -> None:
        self._finish(error)

    def idle(self) -> None:
        self.fail(Late(f"the stream has had no message for {self.connection.methods.settings.idle_timeout:g} s, the limit"))

    def too_long(self) -> None:
        self.fail(Late(f"the stream has lasted {self.connection.methods.settings.stream_timeout:g} s, the limit; open another one"))

    def gone(self) -> None:
        if not self.finished:
            self._release()
        super().gone()
        self.connection.backlog.pop(self.stream, None)
        self._read.set()
        task, self._task = self._task, None  # a task that was cancelled holds the frames it stood in, and they hold this
        if task is not None and not task.done() and task is not asyncio.current_task():
            task.cancel()
