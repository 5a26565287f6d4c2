#!/usr/bin/env python3
"""How long a detector's head takes for few and many of its boxes: behind a size that data decide, a run computes only as many elements as there are.

    bench/counted.py [--threads 2] [--runs 200]

The head is that of tests/python/test_counted.py, with wider layers: suppression keeps some of 300 boxes; a product of matrices and a convolution stand behind it. Octavo and
ONNX Runtime take turns, each in a process of its own; medians over rounds."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/python"))
from test_counted import BOXES, boxes, detector  # noqa: E402

COUNTS = (BOXES, 150, 75, 20, 5, 1, 0)


def times(engine, threads, runs):
    """Milliseconds by the number of boxes that are kept."""
    data = detector(features=1024, hidden=1024, channels=64)
    if engine == "octavo":
        import octavo

        run = octavo.build(data, effort=2, threads=threads).run
    else:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])

        def run(feed):
            return session.run(None, feed)
    found = []
    for keep in COUNTS:
        feed, taken = boxes(keep, keep, features=1024, channels=64), []
        for _ in range(runs):
            begin = time.perf_counter()
            run(feed)
            taken.append(time.perf_counter() - begin)
        found.append(statistics.median(taken) * 1e3)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--engine", choices=("octavo", "onnxruntime"), help="one engine, in this process: its times as JSON")
    args = parser.parse_args()
    if args.engine:
        print(json.dumps(times(args.engine, args.threads, args.runs)))
        return
    rounds = {"octavo": [], "onnxruntime": []}
    for _ in range(args.rounds):
        for engine, found in rounds.items():
            words = [sys.executable, __file__, "--engine", engine, "--threads", str(args.threads), "--runs", str(args.runs)]
            found.append(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1]))
    print("| boxes | " + " | ".join(f"{e}, ms (least to greatest round)" for e in rounds) + " |\n|---:|---:|---:|")
    for i, keep in enumerate(COUNTS):
        cells = [[r[i] for r in found] for found in rounds.values()]
        print(f"| {keep} | " + " | ".join(f"{statistics.median(c):.3f} ({min(c):.3f} to {max(c):.3f})" for c in cells) + " |")


if __name__ == "__main__":
    main()
