"""The bodies of requests: received where they stay, within the limits on one request, on all together, and on time. And the account of all bytes that are
held for clients, whatever holds them: bodies, what is decompressed or decoded from them, answers that were not read yet."""
import asyncio
import contextlib
import re
import weakref
import zlib
from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Tuple

import numpy
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from ._errors import BadRequest, Busy, ServeError, SlowSender, TooLarge
from ._limits import Watch, give_memory_back
from ._seats import Seat, Seats
from ._settings import Settings

INCOMING = "octavo.incoming"  # in the scope of a request
_FLOOD = 1 << 28               # bytes held at once, after which freed memory is given back
_ALIGN = 64                    # bytes; an engine copies inputs that are not aligned to their elements
_NUMBER = re.compile("[0-9]{1,18}")


class Incoming:
    """A body on its way into its memory. `ended`: called when it is whole, refused, or its connection is gone, perhaps more than once. `cycle`: a weak
    reference to the request and its answer as uvicorn knows them, which hold this object; None on the short way, where that is this object, with the attributes
    that uvicorn's protocol reads and sets. `seats`: boards whose rows the binary data behind the JSON part are received into; without them all is in one piece
    of memory."""
    __slots__ = ("size", "json", "at", "cycle", "forgotten", "ended", "counted", "refused", "seats", "seat", "asked", "response_complete", "disconnected",
                 "keep_alive", "more_body", "_bodies", "_text", "_memory", "_raw")

    def __init__(self, bodies: "Bodies", size: int, json: int) -> None:
        self.size, self.json, self.at, self.counted = size, json, 0, -1
        self.cycle: "Optional[weakref.ref[Any]]" = None
        self.forgotten = False
        self.ended: Callable[[], None] = nothing
        self.asked = self.response_complete = self.disconnected = False
        self.keep_alive = self.more_body = True
        self.refused: Optional[ServeError] = None
        self.seats: Optional[Seats] = None
        self.seat: Optional[Seat] = None
        self._bodies = bodies
        self._text: Any = b""
        self._memory: Any = None
        self._raw: Any = None

    @property
    def message_event(self) -> "Incoming":
        return self

    def set(self) -> None:
        """uvicorn's word for: something has changed."""
        if self.disconnected:
            self.ended()

    def rest(self) -> Any:
        """Memory for what is missing, or for a part of it. Binary data behind a JSON part are aligned."""
        if self.seats is None:
            if self._memory is None:
                self._own(self.size, self.json)
            return self._memory[self.at:]
        if self.at < self.json:
            if not self._text:
                self._text = memoryview(bytearray(self.json))
            return self._text[self.at:]
        if self._memory is None:
            row = self.seats.row_bytes
            self.seat = self.seats.take((self.size - self.json) // row, self)
            if self.seat is None:
                self._own(self.size - self.json, 0)
            else:
                self._memory = self.seat.board.data[self.seat.row * row:(self.seat.row + self.seat.rows) * row]
        return self._memory[self.at - self.json:]

    def _own(self, size: int, before: int) -> None:
        """Memory of its own, of which what follows `before` bytes is aligned."""
        self._raw = self._bodies.memory(size + _ALIGN)
        start = -(self._raw.ctypes.data + before) % _ALIGN
        self._memory = self._raw.data[start:start + size]

    def evict(self) -> None:
        """Somebody needs its row more: what has arrived goes to memory of its own."""
        come, self._memory = self._memory[:self.at - self.json], None
        self._own(self.size - self.json, 0)
        self._memory[:len(come)] = come
        self.leave()

    def leave(self) -> None:
        seat, self.seat = self.seat, None
        if seat is not None:
            self.seats.leave(seat)  # type: ignore[union-attr]

    def put(self, data: Any) -> None:
        """Bytes that were read elsewhere."""
        while data:
            if not self.wanted():
                self.add(len(data))
                return
            into = self.rest()
            count = min(len(into), len(data))
            into[:count] = data[:count]
            self.add(count)
            data = data[count:]

    def add(self, count: int) -> None:
        self.at += count
        if self.counted >= 0:
            self._bodies.count(self, count)

    def begin(self) -> None:
        """Somebody wants it: what it holds is counted from here on."""
        self.counted = 0
        self._bodies.count(self, self.at)

    def charge(self, count: int) -> None:
        """Counts bytes that were made of it, until forget(). Raises Busy."""
        self._bodies.charge(count)
        self.counted = max(self.counted, 0) + count

    def wanted(self) -> bool:
        if self.refused is not None or self.forgotten:
            return False
        request = self._request()
        return request is not None and not request.response_complete and not request.disconnected

    def _request(self) -> Any:
        """The request and its answer as uvicorn's protocol knows them; None: they are gone."""
        return self if self.cycle is None else self.cycle()

    def parts(self) -> Tuple[Any, Any]:
        """The JSON part and the binary data behind it, of a whole body whose JSON part has the size that was declared."""
        if self.seats is not None:
            return self._text, self._memory
        return self._memory[:self.json], self._memory[self.json:]

    def body(self) -> Any:
        """All of a whole body that has no seat."""
        return self._memory

    def seated(self, seats: Optional[Seats]) -> Optional[Seat]:
        """The seat of a whole body in boards `seats`; one that was evicted takes another."""
        if self.seats is not seats or seats is None:
            return None
        if self.seat is None:
            self.seat = seats.take(seats.rows(self.size - self.json))
            if self.seat is not None:
                row = seats.row_bytes
                self.seat.board.data[self.seat.row * row:(self.seat.row + self.seat.rows) * row] = self._memory
                self._memory = self.seat.board.data[self.seat.row * row:(self.seat.row + self.seat.rows) * row]
        else:
            self.seat.owner = None
        return self.seat

    async def whole(self) -> Any:
        """Waits for all of it."""
        changed = asyncio.Event()
        self.ended = changed.set
        self.begin()
        late = asyncio.get_running_loop().call_later(self._bodies.settings.body_timeout, self.late)
        try:
            while self.refused is None and self.at < self.size:
                request = self._request()
                if request is None or request.disconnected:
                    raise ClientDisconnect
                await changed.wait()
                changed.clear()
        finally:
            late.cancel()
        if self.refused is not None:
            raise self.refused.again()
        return self._memory

    def refuse(self, error: ServeError) -> None:
        self.refused = error
        self.ended()

    def late(self) -> None:
        self.refuse(self._bodies.slow())

    def forget(self, reuse: bool) -> None:
        """It has been read; `reuse`: nothing refers to its memory any more."""
        if self.counted >= 0:
            self._bodies.count(self, -self.counted)
            self.counted = -1
        self.leave()
        self.forgotten, self.ended, self._text = True, nothing, b""
        raw, self._raw, self._memory = self._raw, None, None
        if reuse and raw is not None:
            self._bodies.give_back(raw)


def nothing() -> None:
    pass


class Bodies:
    """What all bodies share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._held = self._most = 0  # now, and since memory was given back
        self._free: Dict[int, List[Any]] = {}
        self._spare = 0
        self.coming = Watch(settings.body_timeout, lambda one: one.late())  # Incoming and calls of gRPC: refused when they are not whole in time
        self.unread = Watch(settings.body_timeout, lambda one: one.give_up())  # answers that their clients do not read

    @property
    def held(self) -> int:
        """Bytes."""
        return self._held

    def _less(self) -> None:
        """Called where less is held: after a flood the memory goes back to the system."""
        if self._most > _FLOOD and self._held < self._most // 8:
            self._most = 0
            with contextlib.suppress(RuntimeError):  # no loop: the server has ended
                asyncio.get_running_loop().call_later(0.5, give_memory_back)

    def count(self, one: Incoming, count: int) -> None:
        one.counted += count
        self._held += count
        if count < 0:
            self._less()
        elif self._held > self._most:
            self._most = self._held
        if self._held > self.settings.max_pending and count > 0:
            one.refuse(self._too_many())

    def hold(self, count: int) -> bool:
        """Counts bytes that are held elsewhere, or (negative) no longer; False: they would be too many, and are not counted."""
        if count > 0 and self._held + count > self.settings.max_pending:
            return False
        self._held += count
        if count < 0:
            self._less()
        elif self._held > self._most:
            self._most = self._held
        return True

    def charge(self, count: int) -> None:
        """As hold(). Raises Busy, or TooLarge where there will never be so much room."""
        if count > self.settings.max_pending:
            raise TooLarge(f"decoding the request takes up to {count} bytes, the limit on what is held for all clients is {self.settings.max_pending}")
        if not self.hold(count):
            raise self._too_many()

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
    async def read(self, request: HttpRequest, most: int) -> AsyncIterator[Tuple[Any, Callable[[int], None]]]:
        """The body, bytes or a view of bytes, and what charges for bytes that are made of it until the end. `most`: bytes of it when it is decompressed."""
        declared = request.headers.get("content-length", "0")
        size = int(declared) if _NUMBER.fullmatch(declared) else 0
        if size > self.settings.max_request:
            raise TooLarge(f"the request has {size} bytes, the limit is {self.settings.max_request}")
        one: Optional[Incoming] = request.scope.get(INCOMING)
        held, answered = [0], False

        def charge(count: int) -> None:
            self.charge(count)
            held[0] += count
        try:
            if one is not None:
                body = await one.whole()
            else:
                try:
                    async with asyncio.timeout(self.settings.body_timeout):
                        body = await self._parts(request, held)
                except TimeoutError:
                    raise self.slow() from None
            coding = request.headers.get("content-encoding", "identity")
            yield (body if coding == "identity" else self.inflated(coding, body, most, charge)), charge
            answered = True
        finally:
            self.hold(-held[0])
            if one is not None:
                one.forget(answered)

    async def _parts(self, request: HttpRequest, held: List[int]) -> bytes:
        parts = bytearray()
        async for part in request.stream():
            if len(parts) + len(part) > self.settings.max_request:
                raise TooLarge(f"the request has more than {self.settings.max_request} bytes, the limit")
            self.charge(2 * len(part))  # once more when it is whole
            held[0] += 2 * len(part)
            parts += part
        return bytes(parts)

    def slow(self) -> SlowSender:
        return SlowSender(f"the body did not arrive within {self.settings.body_timeout} s")

    def _too_many(self) -> Busy:
        return Busy(f"requests that are being answered hold {self.settings.max_pending} bytes, the limit; try again later")

    def inflated(self, coding: str, body: Any, most: int, charge: Callable[[int], None]) -> Any:
        """`body` decompressed, at most `most` bytes, for which `charge` is called. No more than may be held is ever made. Raises BadRequest, TooLarge, Busy."""
        if coding not in ("gzip", "deflate"):
            raise BadRequest(f"a body or message that is compressed as {coding[:100]!r}, which is none of identity, gzip, deflate")
        free = max(self.settings.max_pending - self._held, 0)
        inflate = zlib.decompressobj(wbits=47)  # both have a header that tells
        try:
            made = inflate.decompress(body, min(most, free) + 1)
        except zlib.error as e:
            raise BadRequest(f"the body or message is not {coding}: {e}") from None
        if len(made) > most:
            raise TooLarge(f"the request has more than {most} bytes when it is decompressed, the limit")
        charge(len(made))
        if not inflate.eof:
            raise BadRequest(f"the body or message is {coding} that is cut off")
        return made
