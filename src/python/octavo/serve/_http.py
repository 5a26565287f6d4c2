"""HTTP connections: uvicorn's, but a large body of a declared size is received where it stays, and inference requests go the short way (_quick).

uvicorn hands a body over in parts, each of which is copied several times on its way; requests of pictures are mostly body. What is not a
plain body of a declared size goes uvicorn's way.

uvicorn watches neither heads nor readers, so that is done here: a connection has a place (Shared.places), its head must be there in time and within _HEAD bytes,
and what it does not read is charged and given up after a while."""
import asyncio
import functools
import re
import socket
import weakref
from typing import Any, Callable, List, Optional, Tuple

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ._bodies import INCOMING, Bodies, Incoming, nothing
from ._doors import Doors, part
from ._guard import Guard
from ._limits import Places, Unread, Watch
from ._quick import Head, Quick
from ._rest import JSON_LENGTH

_JSON_LENGTH = JSON_LENGTH.encode()
_INFER = re.compile(rb"/v2/models/([A-Za-z0-9._-]+)(?:/versions/([0-9]+))?/infer")
_LEAST = 1 << 10               # bytes of a body; smaller ones gain nothing
_FEW = 1 << 14                 # bytes read at once where it is not known what they are
_WAKE = 1 << 22                # bytes of a body that the kernel collects before it is read
_HEAD = 1 << 16                # bytes of a head; and of what is neither head nor body: sizes of chunks, trailers
_JOINED = 1 << 16              # bytes of an answer that are written as one piece


class Shared:
    """What all connections share."""

    def __init__(self, bodies: Bodies, quick: Quick, guard: Guard) -> None:
        settings = bodies.settings
        self.bodies, self.quick, self.guard = bodies, quick, guard
        self.places = Places(settings.max_connections)
        self.heads = Watch(settings.body_timeout, lambda one: one.no_head())      # connections whose request has begun, or that never had one
        self.idle = Watch(settings.idle_timeout, lambda one: one.nothing_more())  # between two requests


class _Parsed(HttpToolsProtocol):
    """uvicorn's part of a connection, which large bodies do not pass through."""

    def __init__(self, shared: Shared, **options: Any) -> None:
        super().__init__(**options)
        self._shared, self._bodies, self._quick = shared, shared.bodies, shared.quick
        self._placed = False
        self._loose = 0                   # bytes of the request that are no body
        self._generation = -1             # of the tokens when the last head was admitted
        self._unread: Optional[Unread] = None
        self._used = False                # the parser has seen something since it was new
        self._head: Optional[Head] = None  # of the request that is being read, on the short way
        self._bytes = b""                 # its bytes; with them the next request can begin
        self._messages = 0                # that began in one read
        self._complete = False            # the parser has seen the end of the last of them
        self._default: Any = (None, b"")
        self.incoming: Optional[Incoming] = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._unread = Unread(transport, self._bodies.hold, self._bodies.unread, self._quick.service.models.most)
        self._placed = self._shared.places.take(self)
        if self._placed:
            self._shared.heads.add(self)
        else:
            self._shortly(503, f"{self._shared.places.limit} connections are open, the limit; try again later")

    def _leave(self) -> None:
        if self._placed:
            self._placed = False
            self._shared.places.give(self)
            self._shared.heads.drop(self)
            self._shared.idle.drop(self)

    def make_room(self) -> None:
        """Another client needs its place, and it waits for its own."""
        self._leave()
        self.transport.abort()

    def no_head(self) -> None:
        self._shortly(408, f"the head of a request did not arrive within {self._bodies.settings.body_timeout:g} s")

    def nothing_more(self) -> None:
        self.transport.close()

    def _shortly(self, status: int, text: str) -> None:
        """The last answer of a connection whose request is not read."""
        if not self.transport.is_closing():
            said = orjson.dumps({"error": text})
            self.transport.write(b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (STATUS_LINE[status], len(said), said))
            self.transport.close()

    def _at_work(self) -> None:
        """A request is whole, or its body is on its way and watched as such."""
        self._shared.places.works(self)

    def _rests(self) -> None:
        """It is its client's turn again."""
        if self._placed:
            self._shared.places.waits(self)
            self._shared.idle.add(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.paused()  # type: ignore[union-attr]
        if self._placed:
            self._shared.places.waits(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.resumed()  # type: ignore[union-attr]

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()  # idle of Shared is for that
        if not self.pipeline:
            self._rests()

    def data_received(self, data: bytes) -> None:
        shared = self._shared
        if not self._placed:
            return
        fresh, self._used, self._messages = not self._used, True, 0
        self._loose += len(data)
        shared.idle.drop(self)
        super().data_received(data)
        if self._loose > _HEAD:
            self._shortly(431, f"more than {_HEAD} bytes of a request are no body")
            return
        if (self.cycle is None or self.cycle.response_complete) and self.incoming is None and self not in shared.heads and self not in shared.idle and self._placed:
            shared.heads.add(self)
        if fresh and self._messages == 1 and self._head is not None:  # what one read brought begins with the request's head
            self._bytes = data[:data.find(b"\r\n\r\n") + 4]
            if self._complete and self.parser is not None:
                self._renew()

    def again(self, data: Any, count: int) -> bool:
        """Takes the first `count` of `data` where they begin with the head of the last request; then the parser need not see them."""
        begin = len(self._bytes)
        if begin < 4 or count < begin or self._used or not data.startswith(self._bytes) or not self._free() or self._generation != self._shared.guard.generation:
            return False
        self._shared.idle.drop(self)
        one = self._begin(self._head)  # type: ignore[arg-type]
        if count > begin:
            end = min(count, begin + one.size)
            one.put(memoryview(data)[begin:end])
            if one.at == one.size:
                self.on_incoming_complete()
            if end < count:
                self.data_received(bytes(data[end:count]))
        return True

    def _renew(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self._used = False

    def on_message_begin(self) -> None:
        self._messages += 1
        self._loose = 0
        self._complete = False
        if self._placed and self not in self._shared.heads:
            self._shared.idle.drop(self)
            self._shared.heads.add(self)
        self._head = None
        self._bytes = b""
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.incoming = None
        self._shared.heads.drop(self)
        size = self._large_body()
        if size is not None:
            found = _INFER.fullmatch(self.url)
            if found is not None and self._plain() and self._admitted():
                headers = {name: self._by_name[name.encode()].decode("latin-1") for name in (JSON_LENGTH, "content-encoding") if name.encode() in self._by_name}
                self._head = Head(found[1].decode(), (found[2] or b"").decode(), headers, size)
                self._begin(self._head)
                return
        super().on_headers_complete()
        if size is not None:
            json = self._by_name.get(_JSON_LENGTH, b"")
            self.incoming = one = Incoming(self._bodies, size, int(json) if json.isdigit() and len(json) < 10 else 0)
            one.cycle = weakref.ref(self.cycle)
            self.scope[INCOMING] = one  # type: ignore[literal-required]

    def _admitted(self) -> bool:
        """The others are told why by the application."""
        self._generation = self._shared.guard.generation
        return self._shared.guard.admits(*(self._by_name.get(name, b"").decode("latin-1") for name in (b"host", b"origin", b"authorization")))

    def _large_body(self) -> Optional[int]:
        """The size of a plain request's; None for all others."""
        headers = self._by_name = dict(self.headers)
        digits = headers.get(b"content-length", b"")
        plain = digits.isdigit() and len(digits) < 19 and len(headers) == len(self.headers) and b"transfer-encoding" not in headers
        if not plain or self.expect_100_continue or self.parser.should_upgrade():
            return None
        size = int(digits)
        return size if _LEAST <= size <= self._bodies.settings.max_request else None

    def _plain(self) -> bool:
        """What is out of the ordinary is left to uvicorn."""
        parser = self.parser
        return self._free() and parser.get_method() == b"POST" and parser.get_http_version() == "1.1" and parser.should_keep_alive()

    def _free(self) -> bool:
        """Whether no earlier request of the connection waits for its answer."""
        return (self.cycle is None or self.cycle.response_complete) and self._placed

    def _begin(self, head: Head) -> Incoming:
        """A request on the short way."""
        self.incoming = one = self._quick.body(head)
        self.cycle = one  # type: ignore[assignment]
        one.ended = functools.partial(self._ended, one, head)
        self._bodies.coming.add(one)
        one.begin()
        return one

    def _ended(self, one: Incoming, head: Head) -> None:
        if one.asked:
            return
        one.asked, one.ended = True, nothing
        self._bodies.coming.drop(one)
        self._at_work()
        if one.disconnected and one.at < one.size:
            one.forget(True)
        else:
            self._quick.ask(one, head, self._reply)

    def _reply(self, one: Incoming, status: int, lines: bytes, body: List[Any]) -> None:
        if one.disconnected:
            return
        if self.flow.write_paused:  # the client does not read what it was sent before
            held = sum(map(len, body)) * self._quick.service.models.most()  # as Unread
            if not self._bodies.hold(held):
                self.transport.abort()
                return
            task = self.loop.create_task(self._reply_later(one, status, lines, body, held))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
            return
        default, text = self._default
        if default is not self.server_state.default_headers:  # uvicorn makes another list each second
            default = self.server_state.default_headers
            text = b"".join(b"%b: %b\r\n" % line for line in default)
            self._default = default, text
        head = b"".join((STATUS_LINE[status], text, lines, b"\r\n" if one.keep_alive else b"connection: close\r\n\r\n", body[0]))
        if sum(map(len, body)) < _JOINED:
            self.transport.write(b"".join((head, *body[1:])))
        else:
            self.transport.writelines([head, *body[1:]])
        one.response_complete = True
        if not one.keep_alive:
            self.transport.close()
        if self.pipeline or self.flow.read_paused:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self._rests()

    async def _reply_later(self, one: Incoming, status: int, lines: bytes, body: List[Any], held: int) -> None:
        """`held`: bytes that are charged for the body until its client has read what was before it."""
        try:
            await self.flow.drain()
        finally:
            self._bodies.hold(-held)
        self._reply(one, status, lines, body)

    def on_body(self, body: bytes) -> None:
        self._loose -= 16 * len(body)  # small chunks have more size than body
        if self.incoming is None:
            super().on_body(body)
            return
        self.incoming.put(memoryview(body))

    def on_message_complete(self) -> None:
        self._complete = True
        if self.cycle is not None and not self.cycle.response_complete:
            self._at_work()
        self._end_incoming()
        super().on_message_complete()

    def on_incoming_complete(self) -> None:
        """The whole body is there. The parser has not seen it, so another one takes the next request."""
        if self._used:
            self._renew()
        if self._head is not None:
            self._end_incoming()
        else:
            self.on_message_complete()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        super().connection_lost(exc)
        self._leave()
        self._unread.resumed()  # type: ignore[union-attr]
        self._end_incoming()

    def _end_incoming(self) -> None:
        one, self.incoming = self.incoming, None
        if one is not None:
            one.ended()


class Connection(asyncio.BufferedProtocol):
    """What a connection's bytes are read into: the memory of a body, or a few bytes for the parser."""
    _few = bytearray(_FEW)  # of all connections: filled and taken before the loop does anything else
    _view = memoryview(_few)

    def __init__(self, shared: Shared, entered: Callable[[], None], **options: Any) -> None:
        self._entered = entered
        self._begin = functools.partial(_Parsed, shared, **options)  # not made yet: its parser refers to it, and connection_lost() ends that
        self._parsed: _Parsed
        self._socket: socket.socket
        self._least = 1
        self._secure = False

    def connection_made(self, transport: Any) -> None:
        entered, self._entered = self._entered, nothing
        entered()
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())  # uvloop's own makes another at each call
        self._parsed = self._begin()
        self._parsed.connection_made(transport)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._socket.detach()  # the transport closes it
        if self._secure:
            part(self._parsed.transport)
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
            return self._view
        return one.rest() if one.wanted() else self._view[:one.size - one.at]  # answered already: the rest is read and dropped

    def buffer_updated(self, count: int) -> None:
        parsed = self._parsed
        one = parsed.incoming
        if one is None:
            if not parsed.again(self._few, count):
                parsed.data_received(bytes(self._view[:count]))
            one = parsed.incoming
        else:
            one.add(count)
            if one.at == one.size:
                parsed.on_incoming_complete()
                one = None
        self._wake_for(1 if one is None else one.size - one.at)

    def _wake_for(self, count: int) -> None:
        """Bytes that must be there before the loop is woken: once for a body, not for each of its packets, between which an engine runs."""
        count = min(count, _WAKE)
        if count != self._least and not self._secure:  # with TLS the kernel's bytes are not those of the body
            self._least = count
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            except OSError:  # closed meanwhile; not Linux
                pass


def connection(bodies: Bodies, quick: Quick, guard: Guard) -> Tuple[Callable[..., Any], Doors]:
    """What uvicorn calls for each connection, and those that are in their handshake."""
    shared = Shared(bodies, quick, guard)
    doors = Doors(guard, "http/1.1", shared.places)
    return lambda **options: doors.door(lambda entered: Connection(shared, entered, **options)), doors
