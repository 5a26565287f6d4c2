"""Throughput of octavo.ray.Predictor with 1, 2 and 4 workers on a local cluster of as many nodes: ray_workers.py MODEL [PICTURES] [ROUNDS]

MODEL takes one picture of 3 channels. Seeded pictures (JPEG, 320 x 240) in a folder, from `read_binary_files` to Parquet files; the counts are in
turns, medians of the rounds. Needs what requirements-ray.txt lists."""
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


def job(model, folder, out, workers):
    started = time.perf_counter()
    data = ray.data.read_binary_files(f"file://{folder}", include_paths=True, override_num_blocks=32)
    found = data.map_batches(octavo.ray.Predictor, fn_constructor_args=[model, 8],
                             fn_constructor_kwargs={"picture": "bytes", "preset": "torch", "effort": 0}, batch_size=8, concurrency=workers, num_cpus=1)
    found.write_parquet(str(out))
    seconds = time.perf_counter() - started
    return seconds, ray.data.read_parquet(str(out)).count()


def main():
    model, pictures, rounds = sys.argv[1], int((sys.argv[2:] or ["512"])[0]), int((sys.argv[3:] or ["3"])[0])
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work, "photos")
        folder.mkdir()
        rng = np.random.default_rng(1)
        for i in range(pictures):
            pixels = rng.integers(0, 256, (15, 20, 3), np.uint8)
            Image.fromarray(pixels).resize((320, 240), Image.Resampling.BICUBIC).save(folder / f"{i:06}.jpg")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 200 << 20})
        for _ in range(4):
            cluster.add_node(num_cpus=1, resources={"worker": 1}, object_store_memory=200 << 20)
        ray.init(address=cluster.address, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        times = {1: [], 2: [], 4: []}
        for turn in range(rounds + 1):
            for workers, found in times.items():
                seconds, rows = job(model, folder, pathlib.Path(work, f"out{turn}-{workers}"), workers)
                assert rows == pictures, f"{rows} rows for {pictures} pictures"
                if turn:  # the first starts processes
                    found.append(seconds)
        for workers, found in times.items():
            s = statistics.median(found)
            print(f"{workers} workers: {s:6.2f} s, {pictures / s:7.1f} pictures/s, {statistics.median(times[1]) / s:.2f} of one worker", flush=True)
        ray.shutdown()
        cluster.shutdown()


main()
