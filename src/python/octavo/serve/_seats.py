"""Memory of whole batches of a model with one input, into whose rows bodies are received: a run takes them where they are, without a copy.

Rows are given in the order in which data begin to arrive, and batches are taken in the order in which they are complete; where the two differ, a
row is moved. All of it happens on the event loop's thread."""
from typing import Any, List, Optional, Sequence, Set

import numpy

_ALIGN = 64
_SPARE = 4  # boards that are kept though nothing is in them


class Seat:
    """Rows of a board that belong to a request. `owner`: who still receives into them, and can be told to go elsewhere (evict())."""
    __slots__ = ("board", "row", "rows", "owner")

    def __init__(self, board: "Board", row: int, rows: int, owner: Any) -> None:
        self.board, self.row, self.rows, self.owner = board, row, rows, owner

    def array(self) -> Any:
        return self.board.array[self.row:self.row + self.rows]


class Board:
    """The largest batch. Rows from `next` on and those of `holes` are free; once a run has taken it (`open` False) no row is given again until all
    are back."""
    __slots__ = ("array", "data", "next", "holes", "seats", "open")

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        size = int(numpy.prod(shape, dtype=numpy.int64)) * dtype.itemsize
        raw = numpy.empty(size + _ALIGN, numpy.uint8)  # not touched until data come
        raw = raw[-raw.ctypes.data % _ALIGN:][:size]
        self.array, self.data = raw.view(dtype).reshape(shape), raw.data
        self.seats: Set[Seat] = set()
        self.clear()

    def clear(self) -> None:
        self.next, self.open = 0, True
        self.holes: List[int] = []


class Seats:
    """The boards of one model version, at most `bytes` of them."""

    def __init__(self, shape: Sequence[int], dtype: Any, limit: int) -> None:
        self._shape, self._dtype, self.most = list(shape), dtype, shape[0]
        self.row_bytes = int(numpy.prod(shape[1:], dtype=numpy.int64)) * dtype.itemsize
        self._left = limit // max(self.row_bytes * self.most, 1)  # boards that may still be made
        self._free: List[Board] = []
        self._current: Optional[Board] = None

    def rows(self, size: int) -> int:
        """Rows of `size` bytes; 0: no number of rows has that size."""
        rows = size // self.row_bytes if self.row_bytes else 0
        return rows if rows * self.row_bytes == size and rows <= self.most else 0

    def take(self, rows: int, owner: Any = None) -> Optional[Seat]:
        """None: there are as many boards as there may be."""
        seat = None if self._current is None else self.take_in(self._current, rows, owner)
        if seat is not None:
            return seat
        if self._free:
            self._current = self._free.pop()
        elif self._left > 0:
            self._left -= 1
            self._current = Board(self._shape, self._dtype)
        else:
            return None
        return self.take_in(self._current, rows, owner)

    def take_in(self, board: Board, rows: int, owner: Any = None) -> Optional[Seat]:
        if rows == 1 and board.holes:
            row = board.holes.pop()
        elif board.next + rows <= self.most:
            row = board.next
            board.next += rows
        else:
            return None
        seat = Seat(board, row, rows, owner)
        board.seats.add(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        board = seat.board
        board.seats.discard(seat)
        if board.seats:
            if board.open and seat.rows == 1:
                board.holes.append(seat.row)
            return
        board.clear()
        if board is self._current:
            return
        if len(self._free) < _SPARE:
            self._free.append(board)
        else:
            self._left += 1

    def close(self, board: Board) -> None:
        """A run takes it."""
        board.open = False
        if board is self._current:
            self._current = None

    def vacate(self, board: Board) -> None:
        """Makes a free row of one whose data are still on their way, where there is one."""
        for seat in board.seats:
            if seat.owner is not None and seat.rows == 1:
                seat.owner.evict()
                return

    def move(self, seat: Seat, board: Optional[Board] = None) -> bool:
        """With its data, to `board` or to where rows are given now. False: no room."""
        to = self.take(seat.rows) if board is None else self.take_in(board, seat.rows)
        if to is None:
            return False
        to.array()[:] = seat.array()
        old = Seat(seat.board, seat.row, seat.rows, None)
        old.board.seats.discard(seat)
        old.board.seats.add(old)
        to.board.seats.discard(to)
        seat.board, seat.row = to.board, to.row
        seat.board.seats.add(seat)
        self.leave(old)
        return True
