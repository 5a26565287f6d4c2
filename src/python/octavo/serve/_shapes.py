"""Models whose height, width or other dimensions beside the first are open: requests of each shape have a batcher of their own, which is made when the shape
first comes. That takes as long as a build; requests of that shape wait for it, others do not."""
import asyncio
import collections
import concurrent.futures
from typing import Any, Callable, Dict, List, Optional, Tuple

from .._errors import Error
from ._batcher import Arrays, Batcher, Done, Waiting
from ._errors import BadRequest, Busy, Internal, Late, ServeError, Unavailable

Key = Tuple[Tuple[int, ...], ...]


class _Shape:
    """`batcher`: None while it is made; `waiting`: requests until then."""

    def __init__(self) -> None:
        self.batcher: Optional[Batcher] = None
        self.waiting: List[Waiting] = []


class OpenBatcher:
    """What Batcher is for models of one shape. `make`: function of a shape to its batcher, called on a thread; raises octavo's errors. `most`: shapes at once."""
    seats = None

    def __init__(self, make: Callable[[Key], Batcher], batched: bool, most: int, queue: int, timeout: float) -> None:
        self._make, self._batched, self._most, self._limit, self._timeout = make, batched, most, queue, timeout
        self._shapes: "collections.OrderedDict[Key, _Shape]" = collections.OrderedDict()  # the one used last at the end
        self._builder = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="octavo-build")
        self._closing: List["asyncio.Task[None]"] = []
        self._closed = False

    async def infer(self, inputs: Arrays, rows: int) -> Arrays:
        future: "asyncio.Future[Arrays]" = asyncio.get_running_loop().create_future()

        def done(outputs: Optional[Arrays], error: Optional[ServeError]) -> None:
            if not future.done():
                if error is None:
                    future.set_result(outputs or {})
                else:
                    future.set_exception(error)
        self.submit(inputs, rows, done)
        return await future

    def submit(self, inputs: Arrays, rows: int, done: Done, seat: Any = None) -> Waiting:
        """As Batcher's. A shape that cannot be built is BadRequest, which says why."""
        if self._closed:
            raise Unavailable("the model is being unloaded")
        key = tuple(tuple(array.shape[1 if self._batched else 0:]) for _, array in sorted(inputs.items()))
        one = self._shapes.get(key)
        if one is None:
            one = self._new(key)
        self._shapes.move_to_end(key)
        waiting = Waiting(inputs, rows, done, None)
        if one.batcher is not None:
            return one.batcher.submit(inputs, rows, done)
        if len(one.waiting) >= self._limit:
            raise Busy(f"{len(one.waiting)} requests wait until the model is built for this shape, the limit is {self._limit}; try again later")
        one.waiting.append(waiting)
        asyncio.get_running_loop().call_later(self._timeout, self._late, one, waiting)
        return waiting

    def cancel(self, waiting: Waiting) -> bool:
        for one in self._shapes.values():
            if waiting in one.waiting:
                one.waiting.remove(waiting)
                waiting.done = None
                return True
            if one.batcher is not None and one.batcher.cancel(waiting):
                return True
        return False

    async def close(self) -> None:
        self._closed = True
        while any(one.batcher is None for one in self._shapes.values()):
            await asyncio.sleep(0.02)
        await asyncio.gather(*self._closing, *(one.batcher.close() for one in self._shapes.values() if one.batcher is not None))
        self._builder.shutdown(wait=False)

    def abandon(self) -> None:
        self._closed = True
        for one in self._shapes.values():
            for waiting in one.waiting:
                waiting.answer(None, Unavailable("the server is stopping"))
            one.waiting = []
            if one.batcher is not None:
                one.batcher.abandon()

    def _late(self, one: _Shape, waiting: Waiting) -> None:
        if waiting in one.waiting:
            one.waiting.remove(waiting)
            waiting.answer(None, Late(f"the model was not built for this shape within {self._timeout:g} s, the limit; it is being built, so try again later"))

    def _new(self, key: Key) -> _Shape:
        if len(self._shapes) >= self._most:
            oldest = next((k for k, s in self._shapes.items() if s.batcher is not None), None)
            if oldest is None:
                raise Busy(f"the model is being built for {len(self._shapes)} shapes, the limit; try again later (--max-shapes)")
            gone = self._shapes.pop(oldest).batcher
            self._closing = [t for t in self._closing if not t.done()] + [asyncio.ensure_future(gone.close())]  # type: ignore[union-attr]
        self._shapes[key] = one = _Shape()
        loop = asyncio.get_running_loop()
        self._builder.submit(self._make, key).add_done_callback(lambda made: loop.call_soon_threadsafe(self._made, key, one, made))
        return one

    def _made(self, key: Key, one: _Shape, made: "concurrent.futures.Future[Batcher]") -> None:
        waiting, one.waiting = one.waiting, []
        error = made.exception()
        if error is not None:
            self._shapes.pop(key, None)
            said = BadRequest(f"the model cannot be built for this shape: {error}") if isinstance(error, Error) else Internal(f"the build failed: {type(error).__name__}: {error}")
            for request in waiting:
                request.answer(None, said)
            return
        one.batcher = made.result()
        for request in waiting:
            if request.done is not None:
                try:
                    one.batcher.submit(request.inputs, request.rows, request.answer)
                except ServeError as e:
                    request.answer(None, e)
