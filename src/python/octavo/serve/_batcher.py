"""Dynamic batching of one model version: requests wait in one queue, and as many as fit run together.

Everything but the runs happens on the event loop's thread, so no lock is needed. A batch starts when an engine is free and either the
largest batch is full or the oldest request has waited for `delay`; one further full batch is handed over while an engine is busy, so that
it need not wait for the loop. Rows of a batch belong to the requests in order. An open engine runs exactly the rows that there are, of any shape: those of
the oldest request and of others that have the same shape behind the first dimension. Engines of fixed sizes fill a batch up with rows that are thrown away.
"""
import asyncio
import collections
import concurrent.futures
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy

from .._errors import Error, InputError, ModelError, UnsupportedError
from ._errors import BadRequest, Busy, Internal, Late, ServeError, Unavailable
from ._seats import Board, Seat, Seats

Arrays = Dict[str, Any]
Done = Callable[[Optional[Arrays], Optional[ServeError]], None]
Key = Tuple[Tuple[int, ...], ...]


_SEARCHED = 256  # requests of other shapes that are looked past for those of the oldest one's


class Waiting:
    """A request. `done` is called once, with its outputs or with an error, and is None afterwards. `seat`: where its input already lies."""
    __slots__ = ("inputs", "rows", "done", "since", "seat", "row", "key")

    def __init__(self, inputs: Arrays, rows: int, done: Done, seat: Optional[Seat]) -> None:
        self.inputs, self.rows, self.seat, self.since = inputs, rows, seat, time.monotonic()
        self.done: Optional[Done] = done
        self.row = 0  # in a job's board
        self.key: Key = ()  # shapes behind the first dimension, where they are open

    def answer(self, outputs: Optional[Arrays], error: Optional[ServeError]) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(outputs, error)


class _Job:
    """A batch: in rows `start` to `start + size` of a board, or (None) to be joined. `copies`: what must be copied into the board first."""
    __slots__ = ("batch", "total", "size", "board", "start", "copies", "begun", "ended")

    def __init__(self, batch: List[Waiting], total: int, size: int) -> None:
        self.batch, self.total, self.size = batch, total, size
        self.board: Optional[Board] = None
        self.start = 0
        self.copies: List[Tuple[Seat, Any]] = []
        self.begun = self.ended = 0.0


class Batcher:
    """`engines`: {batch size: engine}; a single size 0 means that requests are never joined. `seats`: boards of the only input, where there are some.
    `most` above 0: the only engine, of size 0, is open, and runs any number of rows up to this. `keyed`: of any shapes behind the first dimension; whatever `most` is."""

    def __init__(self, engines: Mapping[int, Any], *, delay: float, instances: int, queue: int, timeout: float,
                 observe: Callable[[int, int, List[float], float], None], waiting: Callable[[int], None], name: str = "", seats: Optional[Seats] = None,
                 most: int = 0, keyed: bool = False) -> None:
        self._engines = dict(sorted(engines.items()))
        self._open, self._keyed = most > 0, keyed
        self._most = most or max(self._engines)
        self._of_key: Dict[Key, int] = {}  # rows that wait
        self._delay, self._instances, self._limit, self._timeout = delay, instances, queue, timeout
        self._observe, self._report = observe, waiting
        self._name, self.seats = name, seats
        self._queue: Deque[Waiting] = collections.deque()
        self._unanswered: Deque[Waiting] = collections.deque()  # in their order; answered ones leave when they are at the front
        self._rows = self._running = 0
        self._timer: Optional[asyncio.TimerHandle] = None
        self._sweeper: Optional[asyncio.TimerHandle] = None
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads = concurrent.futures.ThreadPoolExecutor(instances, thread_name_prefix="octavo-run")
        self._joined = threading.local()

    async def infer(self, inputs: Arrays, rows: int) -> Arrays:
        """The outputs of this request alone. Raises Busy, Late, Unavailable, Internal."""
        future: "asyncio.Future[Arrays]" = asyncio.get_running_loop().create_future()

        def done(outputs: Optional[Arrays], error: Optional[ServeError]) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(outputs or {})
            else:
                future.set_exception(error)
        one = self.submit(inputs, rows, done)
        try:
            return await future
        except asyncio.CancelledError:  # the client went away
            one.done = None
            self._drop(one)
            raise
        finally:
            del future  # the error that it holds holds this frame

    def submit(self, inputs: Arrays, rows: int, done: Done, seat: Optional[Seat] = None) -> Waiting:
        """`done` is called later, from the loop. `seat`: one of this batcher's, which holds the input; it must stay until then. Raises Busy, Unavailable."""
        if self._closing:
            raise Unavailable("the model is being unloaded")
        if len(self._queue) >= self._limit:
            raise Busy(f"{len(self._queue)} requests are waiting for this model, the limit is {self._limit}; try again later")
        if seat is not None and self.seats is not None and not seat.board.open:  # its board went without it
            if self.seats.move(seat):
                inputs = {self._name: seat.array()}
            else:
                seat = None
        one = Waiting(inputs, rows, done, seat)
        if self._keyed:
            one.key = tuple(tuple(array.shape[1 if self._open else 0:]) for _, array in sorted(inputs.items()))
        self._queue.append(one)
        while self._unanswered and self._unanswered[0].done is None:
            self._unanswered.popleft()
        self._unanswered.append(one)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self._timeout, self._sweep)
        self._count(one, max(rows, 1))
        self._idle.clear()
        self._dispatch()
        self._report(len(self._queue))
        return one

    def cancel(self, one: Waiting) -> bool:
        """Whether `one` still waited in the queue; then it is neither run nor answered."""
        if one.done is None or not self._drop(one):
            return False
        one.done = None
        return True

    async def close(self) -> None:
        """Takes no more requests; returns when those that wait have been answered."""
        self._closing = True
        self._dispatch()
        await self._idle.wait()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._threads.shutdown(wait=False)

    def abandon(self) -> None:
        """Answers everything that waits with Unavailable, at once."""
        self._closing = True
        for one in list(self._unanswered):
            one.answer(None, Unavailable("the server is stopping"))
            self._drop(one)

    def _sweep(self) -> None:
        """Answers what has waited too long, running or not."""
        self._sweeper = None
        now = time.monotonic()
        while self._unanswered and (self._unanswered[0].done is None or self._unanswered[0].since + self._timeout <= now):
            one = self._unanswered.popleft()
            one.answer(None, Late(f"the request waited {now - one.since:.1f} s, the limit is {self._timeout} s"))
            self._drop(one)
        if self._unanswered:
            rest = self._unanswered[0].since + self._timeout - now
            self._sweeper = asyncio.get_running_loop().call_later(max(rest, 0.001), self._sweep)

    def _drop(self, one: Waiting) -> bool:
        try:
            self._queue.remove(one)
        except ValueError:
            return False  # it runs already
        self._count(one, -max(one.rows, 1))
        one.inputs = {}  # it stays in _unanswered for a while
        self._settled()
        return True

    def _count(self, one: Waiting, rows: int) -> None:
        self._rows += rows
        left = self._of_key.get(one.key, 0) + rows
        if left:
            self._of_key[one.key] = left
        else:
            del self._of_key[one.key]

    def _settled(self) -> None:
        self._report(len(self._queue))
        if not self._queue and self._running == 0:
            self._idle.set()

    def _dispatch(self) -> None:
        while self._queue:
            full = self._of_key[self._queue[0].key] >= self._most
            if self._running >= self._instances + (1 if full else 0):
                return  # the end of a run calls again
            rest = self._queue[0].since + self._delay - time.monotonic()
            if not full and self._most > 1 and rest > 0 and not self._closing:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(max(rest, 0.001), self._waited)
                return
            self._start(self._take())

    def _waited(self) -> None:
        self._timer = None
        self._dispatch()

    def _take(self) -> _Job:
        batch = [self._queue.popleft()]
        rows, key = batch[0].rows, batch[0].key
        others: List[Waiting] = []  # of other shapes: they keep their places
        while self._most > 0 and self._queue and rows < self._most and len(others) < _SEARCHED:
            one = self._queue[0]
            if one.key != key:
                others.append(self._queue.popleft())
                continue
            if rows + one.rows > self._most:
                break
            batch.append(self._queue.popleft())
            rows += one.rows
        self._queue.extendleft(reversed(others))
        for one in batch:
            self._count(one, -max(one.rows, 1))
        job = _Job(batch, rows, rows if self._open else next(s for s in self._engines if s >= rows) if self._most > 0 else 0)
        if self.seats is not None:
            if self._together(job, self.seats):
                self.seats.close(job.board)  # type: ignore[arg-type]
            else:
                job.board = None
                for seat, _ in job.copies:
                    self.seats.leave(seat)
                job.copies = []
        return job

    def _together(self, job: _Job, seats: Seats) -> bool:
        """Whether all of a batch lie in one board within the rows of its engine, or can be brought there."""
        board = next((one.seat.board for one in job.batch if one.seat is not None), None)
        if board is None:
            return False
        first, last = self._most, 0
        for one in job.batch:
            seat = one.seat
            if seat is None or seat.board is not board:
                if one.rows == 1 and not board.holes and board.next == self._most:
                    seats.vacate(board)
                if seat is not None:
                    if not seats.move(seat, board):
                        return False
                    one.inputs = {self._name: seat.array()}
                else:
                    seat = seats.take_in(board, one.rows)
                    if seat is None:
                        return False
                    job.copies.append((seat, one.inputs[self._name]))
            one.row = seat.row
            first, last = min(first, seat.row), max(last, seat.row + seat.rows)
        if self._open:
            job.size = last - first  # rows between them that left are computed
        job.board, job.start = board, min(first, self._most - job.size)
        return last <= job.start + job.size

    def _start(self, job: _Job) -> None:
        self._running += 1
        loop = asyncio.get_running_loop()
        self._threads.submit(self._run, job).add_done_callback(lambda done: loop.call_soon_threadsafe(self._finish, job, done))

    def _run(self, job: _Job) -> Any:
        """On a thread of the pool: joins and runs."""
        job.begun = time.monotonic()
        batch = job.batch
        if job.board is not None:
            for seat, array in job.copies:
                seat.array()[:] = array
            joined = {self._name: job.board.array[job.start:job.start + job.size]}
        elif len(batch) == 1 and job.total == job.size:
            joined = batch[0].inputs
        else:
            joined = {name: self._join(job.size, name, [one.inputs[name] for one in batch]) for name in batch[0].inputs}
        outputs = self._engines[0 if self._open else job.size].run(joined)
        job.ended = time.monotonic()
        return outputs

    def _join(self, size: int, name: str, arrays: Sequence[Any]) -> Any:
        """In memory of this thread that its next run takes again: new pages cost more than copying into them. Engines keep no inputs."""
        count = size * int(numpy.prod(arrays[0].shape[1:], dtype=numpy.int64))
        flat = self._joined.__dict__.get(name)
        if flat is None or len(flat) < count:
            flat = self._joined.__dict__[name] = numpy.empty(count, arrays[0].dtype)
        made = flat[:count].reshape((size, *arrays[0].shape[1:]))
        at = 0
        for array in arrays:
            made[at:at + len(array)] = array
            at += len(array)
        made[at:] = 0
        return made

    def _finish(self, job: _Job, done: "concurrent.futures.Future[Any]") -> None:
        self._running -= 1
        for one in job.batch:
            one.inputs = {}  # it stays in _unanswered for a while
        self._dispatch()  # before the answers are written: the engine is free
        error = done.exception()
        if error is None:
            outputs, at = done.result(), 0
            self._observe(job.total, job.size, [job.begun - one.since for one in job.batch], job.ended - job.begun)
            for one in job.batch:
                if self._most == 0:
                    one.answer(outputs, None)
                    continue
                if job.board is not None:
                    at = one.row - job.start
                if one.done is not None:
                    one.answer({name: array[at:at + one.rows] for name, array in outputs.items()}, None)
                at += one.rows
        else:
            text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            unfit = self._keyed and isinstance(error, (InputError, ModelError, UnsupportedError))
            for one in job.batch:
                one.answer(None, BadRequest(f"the model cannot be built for this shape: {text}") if unfit else Internal(f"the run failed: {text}"))
        for seat, _ in job.copies:
            self.seats.leave(seat)  # type: ignore[union-attr]
        self._settled()
