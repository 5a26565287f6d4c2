"""Dynamic batching of one model version: requests wait in one queue, and as many as fit run together.

Everything but the runs happens on the event loop's thread, so no lock is needed. A batch starts when an engine is free and either the
largest batch is full or the oldest request has waited for `delay`; one further full batch is handed over while an engine is busy, so that
it need not wait for the loop. Rows of a batch belong to the requests in order; rows that fill it up are zeros and are thrown away.
"""
import asyncio
import collections
import concurrent.futures
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence

import numpy

from .._errors import Error
from ._errors import Busy, Internal, Late, Unavailable

Arrays = Dict[str, Any]


class _Waiting:
    __slots__ = ("inputs", "rows", "future", "since")

    def __init__(self, inputs: Arrays, rows: int, future: "asyncio.Future[Arrays]") -> None:
        self.inputs, self.rows, self.future, self.since = inputs, rows, future, time.monotonic()


class Batcher:
    """`engines`: {batch size: engine}; a single size 0 means that requests are never joined."""

    def __init__(self, engines: Mapping[int, Any], *, delay: float, instances: int, queue: int, timeout: float,
                 observe: Callable[[int, int, List[float], float], None], waiting: Callable[[int], None]) -> None:
        self._engines = dict(sorted(engines.items()))
        self._most = max(self._engines)
        self._delay, self._instances, self._limit, self._timeout = delay, instances, queue, timeout
        self._observe, self._report = observe, waiting
        self._queue: Deque[_Waiting] = collections.deque()
        self._rows = self._running = 0
        self._timer: Optional[asyncio.TimerHandle] = None
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads = concurrent.futures.ThreadPoolExecutor(instances, thread_name_prefix="octavo-run")
        self._joined = threading.local()

    async def infer(self, inputs: Arrays, rows: int) -> Arrays:
        """The outputs of this request alone. Raises Busy, Late, Unavailable, Internal."""
        if self._closing:
            raise Unavailable("the model is being unloaded")
        if len(self._queue) >= self._limit:
            raise Busy(f"{len(self._queue)} requests are waiting for this model, the limit is {self._limit}; try again later")
        loop = asyncio.get_running_loop()
        one = _Waiting(inputs, rows, loop.create_future())
        self._queue.append(one)
        self._rows += max(rows, 1)
        self._idle.clear()
        self._report(len(self._queue))
        late = loop.call_later(self._timeout, self._give_up, one)
        self._dispatch()
        try:
            return await one.future
        except asyncio.CancelledError:  # the client went away
            self._drop(one)
            raise
        finally:
            late.cancel()

    async def close(self) -> None:
        """Takes no more requests; returns when those that wait have been answered."""
        self._closing = True
        await self._idle.wait()
        self._threads.shutdown(wait=False)

    def abandon(self) -> None:
        """Answers everything that waits with Unavailable, at once."""
        self._closing = True
        for one in list(self._queue):
            if not one.future.done():
                one.future.set_exception(Unavailable("the server is stopping"))
            self._drop(one)

    def _give_up(self, one: _Waiting) -> None:
        if one.future.done():
            return
        waited = time.monotonic() - one.since
        one.future.set_exception(Late(f"the request waited {waited:.1f} s, the limit is {self._timeout} s"))
        self._drop(one)

    def _drop(self, one: _Waiting) -> None:
        try:
            self._queue.remove(one)
        except ValueError:
            return  # it runs already
        self._rows -= max(one.rows, 1)
        self._settled()

    def _settled(self) -> None:
        self._report(len(self._queue))
        if not self._queue and self._running == 0:
            self._idle.set()

    def _dispatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue:
            full = self._rows >= self._most
            if self._running >= self._instances + (1 if full else 0):
                return  # the end of a run calls again
            rest = self._queue[0].since + self._delay - time.monotonic()
            if not full and self._most > 1 and rest > 0 and not self._closing:
                self._timer = asyncio.get_running_loop().call_later(rest, self._dispatch)
                return
            self._start(self._take())

    def _take(self) -> List[_Waiting]:
        batch = [self._queue.popleft()]
        rows = batch[0].rows
        while self._most > 0 and self._queue and rows + self._queue[0].rows <= self._most:
            batch.append(self._queue.popleft())
            rows += batch[-1].rows
        self._rows -= sum(max(one.rows, 1) for one in batch)
        self._report(len(self._queue))
        return batch

    def _start(self, batch: List[_Waiting]) -> None:
        self._running += 1
        loop = asyncio.get_running_loop()
        job = self._threads.submit(self._run, [one.inputs for one in batch], [one.rows for one in batch])
        job.add_done_callback(lambda done: loop.call_soon_threadsafe(self._finish, batch, done, time.monotonic()))

    def _run(self, inputs: Sequence[Arrays], rows: Sequence[int]) -> Any:
        """On a thread of the pool: joins, runs, splits."""
        start = time.monotonic()
        total = sum(rows)
        size = next(s for s in self._engines if s >= total) if self._most > 0 else 0
        if len(inputs) == 1 and total == size:
            joined = inputs[0]
        else:
            joined = {name: self._join(size, name, [one[name] for one in inputs]) for name in inputs[0]}
        outputs = self._engines[size].run(joined)
        split: List[Arrays] = []
        at = 0
        for n in rows:
            split.append(outputs if self._most == 0 else {name: array[at:at + n] for name, array in outputs.items()})
            at += n
        return split, total, size, start, time.monotonic()

    def _join(self, size: int, name: str, arrays: Sequence[Any]) -> Any:
        """In memory of this thread that its next run takes again: new pages cost more than copying into them. Engines keep no inputs."""
        made = self._joined.__dict__.get((size, name))
        if made is None:
            made = self._joined.__dict__[size, name] = numpy.empty((size, *arrays[0].shape[1:]), arrays[0].dtype)
        at = 0
        for array in arrays:
            made[at:at + len(array)] = array
            at += len(array)
        made[at:] = 0
        return made

    def _finish(self, batch: List[_Waiting], done: "concurrent.futures.Future[Any]", _: float) -> None:
        self._running -= 1
        self._dispatch()  # before the answers are written: the engine is free
        error = done.exception()
        if error is None:
            split, total, size, start, end = done.result()
            self._observe(total, size, [start - one.since for one in batch], end - start)
            for one, outputs in zip(batch, split):
                if not one.future.done():
                    one.future.set_result(outputs)
        else:
            text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(Internal(f"the run failed: {text}"))
        self._settled()
