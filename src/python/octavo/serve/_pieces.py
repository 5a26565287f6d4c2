"""Bytes that come in parts of any size and are taken from the front, in pieces of some 64 kB: one growing bytearray is copied about nine times on its way to its
size, and a piece for each part needs forty times its bytes where parts are single bytes."""
import collections
from typing import Any, Deque

_PIECE = 1 << 16


class Pieces:
    __slots__ = ("size", "_pieces", "_begin")

    def __init__(self) -> None:
        self.size = self._begin = 0  # bytes; those of the first piece that were taken
        self._pieces: Deque[bytearray] = collections.deque()

    def add(self, data: Any) -> None:
        self.size += len(data)
        if self._pieces and len(self._pieces[-1]) + len(data) <= _PIECE:
            self._pieces[-1] += data
        elif len(data):
            self._pieces.append(bytearray(data))

    def first(self, count: int) -> bytes:
        """The first bytes, which stay; there must be so many."""
        out = bytearray()
        begin = self._begin
        for piece in self._pieces:
            out += memoryview(piece)[begin:begin + count - len(out)]
            begin = 0
            if len(out) == count:
                break
        return bytes(out)

    def take(self, count: int) -> bytes:
        """The first bytes; there must be so many."""
        out = bytearray(count)
        at = 0
        self.size -= count
        while at < count:
            piece = self._pieces[0]
            some = min(len(piece) - self._begin, count - at)
            out[at:at + some] = memoryview(piece)[self._begin:self._begin + some]
            at += some
            self._begin += some
            if self._begin == len(piece):
                self._pieces.popleft()
                self._begin = 0
        return bytes(out)

    def clear(self) -> None:
        self._pieces.clear()
        self.size = self._begin = 0
