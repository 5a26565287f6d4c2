"""What clients may hold, and for how long: places (connections, calls) and time. Everything belongs to the event loop's thread.

A connection or call either waits for its client (for a head, a message, or for an answer to be read) or is being worked on. Two rules follow from
that alone. Who waits longer than a limit is told so by its Watch. And where all Places are taken, the one that has waited longest for its client
gives its place to the newcomer, so that clients who are silent never keep out those who are not."""
import asyncio
import contextlib
import ctypes
import resource
import time
from typing import Any, Callable, Dict, Optional

HANDSHAKE = 10.0  # seconds for that of TLS, at most
_GRACE = 1.0  # seconds for which a place is kept, whatever its client does


class Watch:
    """Things that have `seconds` from add() to drop(); `late` is called once, from the loop, with each that has not been dropped by then. Constant time each."""

    def __init__(self, seconds: float, late: Callable[[Any], None]) -> None:
        self.seconds, self._late = seconds, late
        self._since: Dict[Any, float] = {}  # in the order of their times
        self._sweeper: Optional[asyncio.TimerHandle] = None

    def add(self, one: Any) -> None:
        """From now on; once more: from now on."""
        self._since.pop(one, None)
        self._since[one] = time.monotonic()
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self.seconds, self._sweep)

    def drop(self, one: Any) -> None:
        self._since.pop(one, None)

    def __contains__(self, one: Any) -> bool:
        return one in self._since

    def __len__(self) -> int:
        return len(self._since)

    def _sweep(self) -> None:
        self._sweeper = None
        now = time.monotonic()
        while self._since:
            one, since = next(iter(self._since.items()))
            rest = since + self.seconds - now
            if rest > 0:
                self._sweeper = asyncio.get_running_loop().call_later(max(rest, 0.001), self._sweep)
                return
            del self._since[one]
            self._late(one)


class Places:
    """`limit` places. Who holds one says when it begins to wait for its client and when it no longer does; make_room() of a holder must give its place back
    at once."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._waiting: Dict[Any, float] = {}  # in the order of their times

    def take(self, one: Any) -> bool:
        """A place for `one`, which waits for its client from now on. False: all are taken by those that are being worked on, or came within the last second."""
        if self.taken >= self.limit:
            oldest = next(iter(self._waiting.items()), None)
            if oldest is not None and oldest[1] + _GRACE <= time.monotonic():
                del self._waiting[oldest[0]]
                oldest[0].make_room()
            if self.taken >= self.limit:
                return False
        self.taken += 1
        self._waiting[one] = time.monotonic()
        return True

    def give(self, one: Any) -> None:
        """Its place is free again."""
        self.taken -= 1
        self._waiting.pop(one, None)

    def waits(self, one: Any) -> None:
        self._waiting.pop(one, None)
        self._waiting[one] = time.monotonic()

    def works(self, one: Any) -> None:
        self._waiting.pop(one, None)


class Unread:
    """What a connection's transport keeps because its client does not read: charged to the account, and for so long at most. Without room in the account
    the connection ends. `times`: bytes that a byte of it may keep: the outputs of a whole batch live as long as a part of one."""

    def __init__(self, transport: Any, hold: Callable[[int], bool], watch: Watch, times: Callable[[], int] = lambda: 1) -> None:
        self._transport, self._hold, self._watch, self._times, self._held = transport, hold, watch, times, 0

    def paused(self) -> None:
        self.resumed()
        count = self._transport.get_write_buffer_size() * self._times()
        if self._hold(count):
            self._held = count
            self._watch.add(self)
        else:
            self._transport.abort()

    def resumed(self) -> None:
        """Read, or lost."""
        held, self._held = self._held, 0
        self._hold(-held)
        self._watch.drop(self)

    def give_up(self) -> None:
        self._transport.abort()


def give_memory_back() -> None:
    """Returns what was freed to the system, where the C library keeps it otherwise (glibc). Up to some hundred milliseconds after gigabytes."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def raise_file_limit(files: int) -> Optional[str]:
    """Lets this process have `files` open files where it may. What is wrong, where it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= files or soft == resource.RLIM_INFINITY:
        return None
    may = files if hard == resource.RLIM_INFINITY else min(files, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, may), hard))
    except (OSError, ValueError):
        may = soft
    return None if may >= files else f"{files} open files may be needed for this many connections, the limit of the process is {may}: raise it (ulimit -n) or lower --max-connections"
