#!/usr/bin/env python3
"""How long a detector's head takes for few and many of its boxes: behind a size that data decide, a run computes only as many elements as there are.

    bench/counted.py [--threads 2] [--runs 200]

The head is that of tests/python/test_counted.py, with wider layers: suppression keeps some of 300 boxes; a product of matrices and a convolution stand behind it. ONNX Runtime
runs beside it, in turn."""
import argparse
import pathlib
import sys
import time

import numpy as np
import onnxruntime as ort

import octavo

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/python"))
from test_counted import BOXES, boxes, detector  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=200)
    args = parser.parse_args()
    data = detector(features=1024, hidden=1024, channels=64)
    engine = octavo.build(data, effort=2, threads=args.threads)
    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    other = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    print("boxes  octavo ms  onnxruntime ms")
    for keep in (BOXES, 150, 75, 20, 5, 1, 0):
        feed = boxes(keep, keep, features=1024, channels=64)
        times = ([], [])
        for _ in range(args.runs):
            for which, run in enumerate((lambda: engine.run(feed), lambda: other.run(None, feed))):  # noqa: B023
                begin = time.perf_counter()
                run()
                times[which].append(time.perf_counter() - begin)
        print(f"{keep:5}  {np.median(times[0]) * 1e3:9.3f}  {np.median(times[1]) * 1e3:14.3f}")


if __name__ == "__main__":
    main()
