"""Throughput of octavo.ray.Predictor by the number of workers on a local cluster of as many nodes: ray_workers.py MODEL [PICTURES] [ROUNDS] [WORKERS, as in 1,2,4] [PACE]

MODEL takes one picture of 3 channels. Seeded pictures (JPEG, 320 x 240) in a folder, from `read_binary_files` to Parquet files; the counts are in
turns, medians of the rounds. Every picture must come out once. Each worker has one thread and, while there are cores left, a core of its own. Two rates: of the whole
job, with starting the workers and building the model in each, and of the time in which all workers have begun and none has ended; and what a picture costs a worker in
time of its thread (decoding and the network) and by the clock, which differ by what other processes took of its core. PACE: a worker sleeps until so many
milliseconds have passed for each picture of its batch, as if its machine were so slow. Then a few cores are enough for all workers, and what remains is whether Ray and the predictor
keep every worker busy; it says nothing about what cores share (memory, caches, clocks). Needs what requirements-ray.txt lists."""
import fcntl
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("RAY_worker_niceness", "0")
import numpy as np
import ray
from PIL import Image
from ray.cluster_utils import Cluster

import octavo.ray


def take_core(folder):
    """A core that no other worker has, and what holds its lock; all cores and None where every one is taken."""
    cores = os.sched_getaffinity(0)
    for core in sorted(cores):
        held = open(pathlib.Path(folder, f"core{core}"), "w")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return {core}, held
    return cores, None


class Timed(octavo.ray.Predictor):
    """Says who did a row, when, and what it cost the thread."""

    def __init__(self, model, batch, cores, pace, **options):
        self._pace = pace
        self._core = take_core(cores)
        os.sched_setaffinity(0, self._core[0])
        super().__init__(model, batch, threads=1, **options)

    def __call__(self, batch):
        os.sched_setaffinity(0, self._core[0])  # of this thread: Ray may call from another than it constructed in
        began, spent = time.time(), time.thread_time()
        out = super().__call__(batch)
        rows, spent = len(out["path"]), time.thread_time() - spent
        time.sleep(max(0.0, began + rows * self._pace - time.time()))
        ended = time.time()
        return {"path": out["path"], "worker": np.full(rows, os.getpid()), "began": np.full(rows, began), "ended": np.full(rows, ended),
                "spent": np.full(rows, spent / rows), "clock": np.full(rows, (ended - began) / rows)}


def job(model, folder, out, workers, pace):
    started = time.perf_counter()
    data = ray.data.read_binary_files(f"file://{folder}", include_paths=True, override_num_blocks=64)
    found = data.map_batches(Timed, fn_constructor_args=[model, 8, str(folder.parent), pace], fn_constructor_kwargs={"picture": "bytes", "preset": "torch", "effort": 0}, batch_size=8,
                             concurrency=workers, num_cpus=1, resources={"worker": 1})
    found.write_parquet(str(out))
    seconds = time.perf_counter() - started
    rows = ray.data.read_parquet(str(out)).take_all()
    begin, end = {}, {}
    for row in rows:
        begin[row["worker"]] = min(begin.get(row["worker"], 1e18), row["began"])
        end[row["worker"]] = max(end.get(row["worker"], 0), row["ended"])
    first, last = max(begin.values()), min(end.values())
    # A batch that only partly lies in the time in which all are at work counts by that part.
    within = sum(max(0.0, min(row["ended"], last) - max(row["began"], first)) / (row["ended"] - row["began"]) for row in rows)
    all_at_work = within / (last - first) if last > first else 0.0
    cost = [1e3 * statistics.median(row[k] for row in rows) for k in ("spent", "clock")]
    return (seconds, all_at_work, *cost), [row["path"] for row in rows], len(begin)


def main():
    model, pictures, rounds = sys.argv[1], int((sys.argv[2:] or ["512"])[0]), int((sys.argv[3:] or ["3"])[0])
    counts = [int(count) for count in (sys.argv[4:] or ["1,2,4"])[0].split(",")]
    pace = float((sys.argv[5:] or ["0"])[0]) / 1e3
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work, "photos")
        folder.mkdir()
        rng = np.random.default_rng(1)
        for i in range(pictures):
            pixels = rng.integers(0, 256, (15, 20, 3), np.uint8)
            Image.fromarray(pixels).resize((320, 240), Image.Resampling.BICUBIC).save(folder / f"{i:06}.jpg")
        # The head reads and writes; each other node has one processor, for one worker.
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "object_store_memory": 200 << 20})
        for _ in range(max(counts)):
            cluster.add_node(num_cpus=1, resources={"worker": 1}, object_store_memory=200 << 20)
        ray.init(address=cluster.address, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        times = {count: [] for count in counts}
        for turn in range(rounds + 1 if rounds > 1 else 1):
            for workers, found in times.items():
                figures, paths, used = job(model, folder, pathlib.Path(work, f"out{turn}-{workers}"), workers, pace)
                seconds, rate, spent, clock = figures
                assert len(paths) == len(set(paths)) == pictures, f"{len(paths)} rows, {len(set(paths))} different, for {pictures} pictures"
                print(f"round {turn}: {workers} workers ({used} worked): {seconds:.2f} s, {pictures / seconds:.1f} pictures/s, all at work {rate:.1f} pictures/s; a picture "
                      f"{spent:.2f} ms of the thread, {clock:.2f} by the clock", flush=True)
                if turn or rounds == 1:  # the first starts processes
                    found.append(figures)
        one = None
        for workers, found in times.items():
            s, rate, spent, clock = (statistics.median(row[k] for row in found) for k in range(4))
            one = one or (s, rate)
            print(f"{workers} workers: {s:6.2f} s, {pictures / s:7.1f} pictures/s, {one[0] / s:.2f} of {counts[0]} workers; all at work {rate:7.1f} pictures/s, "
                  f"{rate / one[1] if one[1] else 0:.2f} of {counts[0]} workers; a picture {spent:.2f} ms of the thread, {clock:.2f} by the clock", flush=True)
        ray.shutdown()
        cluster.shutdown()


main()
