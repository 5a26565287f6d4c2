"""Connections before their TLS handshake: each has a place from the moment when it is accepted, as connections without TLS do, and a limit in time.

The event loop tells a protocol of a connection with TLS only after the handshake. So the server accepts connections without TLS, takes their places here, and
then gives their sockets back to the loop for the handshake."""
import asyncio
import os
import socket
import ssl
from typing import Any, Callable, Dict, Optional

from ._guard import Guard
from ._limits import HANDSHAKE, Places

Made = Callable[[Callable[[], None]], Any]  # makes a protocol, which calls the function when its handshake is over, before it takes a place of its own


class Doors:
    """All connections of one port that are in their handshake."""

    def __init__(self, guard: Guard, protocol: str, places: Places) -> None:
        self.guard, self.protocol, self.places = guard, protocol, places
        self.seconds = min(HANDSHAKE, guard.settings.body_timeout)
        self.open: Dict["_Door", None] = {}
        self.closed = False

    def door(self, made: Made) -> Any:
        """The protocol of an accepted connection; without TLS that which `made` makes."""
        return made(nothing) if self.guard.tls(self.protocol) is None else _Door(self, made)

    def close(self) -> None:
        """Of those that are there and that may still be accepted."""
        self.closed = True
        for one in list(self.open):
            one.make_room()


class _Door(asyncio.Protocol):
    """A connection in its handshake. It waits for its client."""

    def __init__(self, doors: Doors, made: Made) -> None:
        self._doors, self._made = doors, made
        self._socket: Optional[socket.socket] = None
        self._task: "Optional[asyncio.Task[None]]" = None

    def connection_made(self, transport: Any) -> None:
        """Before anything of it was read."""
        if not self._doors.closed and self._doors.places.take(self):
            self._doors.open[self] = None
            try:
                self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
            except OSError:  # the process has as many files as it may have
                self._leave()
            else:
                self._socket.setblocking(False)
                self._task = asyncio.get_running_loop().create_task(self._shake(self._socket))
        transport.abort()  # ends the connection only if it has no place: nothing that the client understands can be said before the handshake

    def make_room(self) -> None:
        """Another client needs the place."""
        self._leave()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr] # ends the handshake
        except OSError:  # the client has closed it
            pass

    def _leave(self) -> None:
        if self in self._doors.open:
            del self._doors.open[self]
            self._doors.places.give(self)

    async def _shake(self, connection: socket.socket) -> None:
        doors = self._doors
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self._made(self._leave), connection, ssl=doors.guard.tls(doors.protocol),
                                                                     ssl_handshake_timeout=doors.seconds)
        except (OSError, ssl.SSLError, asyncio.TimeoutError):  # not TLS, or too slow, or gone: the loop has closed it
            pass
        finally:
            self._leave()
            self._task = self._socket = None


class _Gone(asyncio.BufferedProtocol):
    """In place of the protocol of a connection that has ended."""

    def get_buffer(self, sizehint: int) -> Any:
        return bytearray(1)

    def buffer_updated(self, count: int) -> None:
        pass


_GONE = _Gone()


def part(transport: Any) -> None:
    """A transport with TLS keeps its protocol, which keeps the transport, after the connection is lost: without this only the collector of cycles would free them."""
    transport.set_protocol(_GONE)


def nothing() -> None:
    pass
