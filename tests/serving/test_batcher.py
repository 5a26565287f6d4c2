"""The queue of `octavo serve` without a network: joining, splitting, limits, closing. Needs no further package."""
import asyncio
import threading
import time

import numpy as np
import pytest

octavo = pytest.importorskip("octavo")
from octavo.serve import BadRequest, Busy, Internal, Late, Unavailable  # noqa: E402
from octavo.serve._batcher import Batcher  # noqa: E402
from octavo.serve._pieces import Pieces  # noqa: E402
from octavo.serve._seats import Seats  # noqa: E402


class Double:
    """An engine of one batch size: y = 2 x, slowly."""

    def __init__(self, size, seconds=0.0):
        self.size, self.seconds, self.runs = size, seconds, []

    def run(self, inputs):
        x = inputs["x"]
        assert len(x) == self.size or self.size == 0
        time.sleep(self.seconds)
        self.runs.append(np.count_nonzero(x[:, 0]) if self.size else 1)
        if np.isnan(x).any():
            raise ValueError("not a number")
        return {"y": 2 * x}


def batcher(engines, **options):
    seen = []
    made = {"delay": 0.01, "instances": 1, "queue": 100, "timeout": 10.0, "observe": lambda *run: seen.append(run), "waiting": lambda n: None, **options}
    return Batcher(engines, **made), seen


def rows(*values):
    return {"x": np.array(values, np.float32).reshape(-1, 1)}


def test_each_request_gets_its_own_rows():
    async def main():
        engines = {1: Double(1), 4: Double(4)}
        b, seen = batcher(engines)
        requests = [rows(1), rows(2, 3), rows(4), rows(5, 6, 7), rows(8)]
        answers = await asyncio.gather(*(b.infer(r, len(r["x"])) for r in requests))
        for request, answer in zip(requests, answers):
            assert np.array_equal(answer["y"], 2 * request["x"])
        assert engines[4].runs == [4, 4] and engines[1].runs == []
        assert [run[:2] for run in seen] == [(4, 4), (4, 4)]
        await b.close()
    asyncio.run(main())


def test_a_lone_request_waits_no_longer_than_the_delay():
    async def main():
        b, _ = batcher({1: Double(1), 8: Double(8)}, delay=0.05)
        start = time.monotonic()
        await b.infer(rows(1), 1)
        assert 0.045 < time.monotonic() - start < 2
        await b.close()
    asyncio.run(main())


def test_a_full_queue_and_a_long_wait_are_refused():
    async def main():
        b, _ = batcher({1: Double(1, 0.3)}, queue=2, timeout=0.1, delay=0.0)
        tasks = [asyncio.ensure_future(b.infer(rows(i + 1), 1)) for i in range(8)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = [type(r) for r in results]
        # The first runs, the second is handed over while it does, two wait too long, the rest find the queue full.
        assert kinds.count(Busy) == 4 and kinds.count(Late) >= 2, kinds
        assert "limit is 2" in str(next(r for r in results if isinstance(r, Busy)))
        await b.close()
    asyncio.run(main())


def test_a_failed_run_fails_its_own_requests_only():
    async def main():
        b, _ = batcher({2: Double(2)}, delay=0.0)
        bad = asyncio.ensure_future(b.infer(rows(float("nan"), 1), 2))
        good = asyncio.ensure_future(b.infer(rows(3, 4), 2))
        assert np.array_equal((await good)["y"], [[6], [8]])
        with pytest.raises(Internal, match="not a number"):
            await bad
        await b.close()
    asyncio.run(main())


def test_closing_answers_what_waits_and_takes_no_more():
    async def main():
        b, _ = batcher({1: Double(1, 0.02)}, delay=0.0)
        tasks = [asyncio.ensure_future(b.infer(rows(i + 1), 1)) for i in range(5)]
        await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(b.close())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await b.infer(rows(1), 1)
        answers = await asyncio.gather(*tasks)
        assert [float(a["y"][0, 0]) for a in answers] == [2, 4, 6, 8, 10]
        await closing
    asyncio.run(main())


def test_a_client_that_leaves_takes_its_request_along():
    async def main():
        engine = Double(1, 0.05)
        b, _ = batcher({1: engine}, delay=0.0)
        tasks = [asyncio.ensure_future(b.infer(rows(i + 1), 1)) for i in range(6)]
        await asyncio.sleep(0.01)
        for task in tasks[3:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await b.close()
        assert len(engine.runs) <= 4
    asyncio.run(main())


def test_models_without_a_batch_run_alone():
    async def main():
        engine = Double(0)
        b, _ = batcher({0: engine})
        answers = await asyncio.gather(*(b.infer(rows(i, i), 0) for i in range(4)))
        assert [float(a["y"][0, 0]) for a in answers] == [0, 2, 4, 6] and engine.runs == [1, 1, 1, 1]
        await b.close()
    asyncio.run(main())


def test_instances_run_at_the_same_time():
    async def main():
        meeting = threading.Barrier(2, timeout=5)

        class Meets:
            def run(self, inputs):
                meeting.wait()
                return {"y": inputs["x"]}
        b, _ = batcher({1: Meets()}, instances=2, delay=0.0)
        await asyncio.gather(*(b.infer(rows(i), 1) for i in range(4)))
        await b.close()
    asyncio.run(main())


class Sender:
    """Who receives a row's value into its seat, as a connection does, perhaps late, and can be told to go elsewhere."""

    def __init__(self, seats, values):
        self.seats, self.values, self.done = seats, np.array(values, np.float32).reshape(-1, 1), 0
        self.seat = seats.take(len(values), self)
        self.own = None if self.seat else np.empty_like(self.values)

    def memory(self):
        return self.own if self.seat is None else self.seat.array()

    def receive(self, count):
        self.memory()[self.done:self.done + count] = self.values[self.done:self.done + count]
        self.done = min(self.done + count, len(self.values))
        return self.done == len(self.values)

    def evict(self):
        self.own = self.memory().copy()
        self.leave()

    def leave(self):
        seat, self.seat = self.seat, None
        if seat is not None:
            self.seats.leave(seat)


@pytest.mark.parametrize("seed", range(12))
def test_seats_hold_each_request_apart(seed):
    """Bodies arrive interleaved, some slowly, some never whole, some without a seat; every answer is its own request's, and all boards come back."""
    random = np.random.default_rng(seed)
    most = int(random.choice([2, 4, 8]))

    async def main():
        seats = Seats([most, 1], np.dtype(np.float32), 4 * most * int(random.integers(2, 7)))
        boards = seats._left
        engines = {size: Double(size, 0.0005) for size in {1, most // 2, most}}
        b, seen = batcher(engines, delay=0.002, seats=seats, name="x", queue=10_000)
        got, senders = [], []
        for i in range(1, 400):
            senders.append(Sender(seats, [1000 * i + row for row in range(int(random.choice([1, 1, 1, 1, 2, most])))]))
            for sender in [s for s in senders if random.random() < 0.7]:
                fate = random.random()
                if fate < 0.03:  # its client goes away
                    sender.leave()
                elif fate < 0.1:  # comes as JSON: no seat
                    sender.leave()
                    ask(b, sender, {"x": sender.values}, None, got)
                elif not sender.receive(1):
                    continue
                else:
                    seat = sender.seat
                    if seat is not None:
                        seat.owner = None
                    ask(b, sender, {"x": sender.memory()}, seat, got)
                senders.remove(sender)
            if random.random() < 0.2:
                await asyncio.sleep(float(random.choice([0, 0.001, 0.004])))
        for sender in senders:
            sender.leave()
        await b.close()
        assert sum(run[0] for run in seen) == sum(len(values) for values, _ in got) and len(got) > 300
        for values, answer in got:
            assert np.array_equal(answer, 2 * values)
        assert seats._left + len(seats._free) + (seats._current is not None) == boards
        assert all(not board.seats for board in [*seats._free, *filter(None, [seats._current])])
    asyncio.run(main())


def ask(b, sender, inputs, seat, got):
    def done(outputs, error):
        assert error is None
        got.append((sender.values, outputs["y"].copy()))
        sender.leave()
    b.submit(inputs, len(sender.values), done, seat)


def test_full_batches_are_run_where_they_lie():
    """Also when a row of each batch comes late: the rows behind it move up, and the next batch is whole again."""
    async def main():
        seats = Seats([4, 1], np.dtype(np.float32), 1 << 20)
        engine, joined = Double(4, 0.001), []
        b, _ = batcher({4: engine}, seats=seats, name="x", delay=5.0)
        b._join = lambda *a: joined.append(a) or Batcher._join(b, *a)
        got, late = [], None
        for i in range(1, 81):
            sender = Sender(seats, [i])
            if i % 4 == 2 and late is None:
                late = sender  # its body takes longer than those of the next four
                continue
            ready = [sender]
            if late is not None and i % 4 == 3 and i > 5:
                ready, late = [sender, late], None
            for one in ready:
                one.receive(1)
                if one.seat is None:  # somebody needed its row
                    one.seat = seats.take(1)
                    one.seat.array()[:] = one.values
                one.seat.owner = None
                ask(b, one, {"x": one.memory()}, one.seat, got)
            await asyncio.sleep(0)
        while len(got) < 80:
            await asyncio.sleep(0.01)
        assert all(np.array_equal(answer, 2 * values) for values, answer in got)
        assert not joined and engine.runs == [4] * 20
        await b.close()
    asyncio.run(main())


def test_pieces_are_the_bytes_that_came():
    rng = np.random.default_rng(5)
    pieces, whole = Pieces(), b""
    for turn in range(400):
        part = rng.bytes(int(rng.choice([0, 1, 2, 5, 1000, 65536, 200_000], p=[.1, .3, .2, .2, .1, .05, .05])))
        pieces.add(part)
        whole += part
        assert pieces.size == len(whole)
        count = int(rng.integers(0, len(whole) + 1))
        assert pieces.first(min(5, count)) == whole[:min(5, count)]
        if turn % 2:
            assert pieces.take(count) == whole[:count]
            whole = whole[count:]
    assert pieces.take(len(whole)) == whole and pieces.size == 0
    pieces.add(b"x")
    pieces.clear()
    assert pieces.size == 0 and pieces.first(0) == b""


class AnyShape:
    """An open engine: counts what it was asked for."""

    def __init__(self):
        self.runs = []

    def run(self, inputs):
        time.sleep(0.02)
        self.runs.append(inputs["x"].shape)
        if inputs["x"].shape[1] > 5:
            raise octavo.InputError("at most 5")
        return {"y": 2 * inputs["x"]}


def test_an_open_engine_runs_exactly_the_rows_of_one_shape():
    async def main():
        engine = AnyShape()
        b, seen = batcher({0: engine}, most=4, keyed=True)
        requests = [{"x": np.full((n, k), i, np.float32)} for i, (n, k) in enumerate(((1, 3), (1, 2), (2, 3), (1, 3), (1, 2), (1, 5), (3, 3)))]
        answers = await asyncio.gather(*(b.infer(r, len(r["x"])) for r in requests))
        for request, answer in zip(requests, answers):
            assert np.array_equal(answer["y"], 2 * request["x"])
        assert engine.runs == [(4, 3), (2, 2), (1, 5), (3, 3)]
        assert all(total == size for total, size, *_ in seen), "rows were padded"
        with pytest.raises(BadRequest, match="cannot be built for this shape: at most 5"):
            await b.infer({"x": np.zeros((1, 6), np.float32)}, 1)
        assert not b._of_key and b._rows == 0
        await b.close()
    asyncio.run(main())
