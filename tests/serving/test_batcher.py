"""The queue of `octavo serve` without a network: joining, splitting, limits, closing. Needs no further package."""
import asyncio
import threading
import time

import numpy as np
import pytest

pytest.importorskip("octavo")
from octavo.serve import Busy, Internal, Late, Unavailable  # noqa: E402
from octavo.serve._batcher import Batcher  # noqa: E402


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
