"""What detection heads end with (Cast, TopK, NonMaxSuppression) alone, at the sizes of real detectors: Octavo's vector kernel, its reference evaluator,
and ONNX Runtime, in turns, one thread, medians of microseconds. All three results are compared and must be equal.

usage: detection_heads.py [--turns N]
"""
import argparse
import os
import statistics
import tempfile
import time

import numpy as np


def model(nodes, inputs, outputs, constants=()):
    import onnx
    from onnx import helper

    value = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
    graph = helper.make_graph(nodes, "head", [value(*v) for v in inputs], [value(*v) for v in outputs], list(constants))
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(m)
    return m


def cases():
    """(name, model, feed, do the results have rows of another number in ONNX Runtime?)"""
    from onnx import TensorProto as T
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(3)
    constant = lambda name, value: numpy_helper.from_array(np.asarray(value), name)
    for name, a, b, dtype in (("int64 to float", T.INT64, T.FLOAT, "int64"), ("float to int64", T.FLOAT, T.INT64, "float32")):
        x = (rng.standard_normal(100000) * 1000).astype(dtype)
        yield f"Cast, 100,000 of {name}", model([helper.make_node("Cast", ["x"], ["y"], to=b)], [("x", a, [100000])], [("y", b, [100000])]), {"x": x}, False
    for n, k in ((8400, 300), (25200, 1000)):
        node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1)
        m = model([node], [("x", T.FLOAT, [1, n])], [("v", T.FLOAT, [1, k]), ("i", T.INT64, [1, k])], [constant("k", np.int64([k]))])
        yield f"TopK, {k} of {n:,}", m, {"x": rng.random((1, n), dtype=np.float32)}, False
    for n, classes, most, least in ((8400, 1, 300, 0.25), (8400, 80, 100, 0.95)):
        node = helper.make_node("NonMaxSuppression", ["b", "s", "m", "o", "l"], ["y"])
        constants = [constant("m", np.int64([most])), constant("o", np.float32([0.45])), constant("l", np.float32([least]))]
        m = model([node], [("b", T.FLOAT, [1, n, 4]), ("s", T.FLOAT, [1, classes, n])], [("y", T.INT64, ["rows", 3])], constants)
        corner, size = rng.random((1, n, 2)) * 600, rng.random((1, n, 2)) * 100 + 5
        boxes = np.concatenate([corner, corner + size], 2).astype(np.float32)
        yield f"NonMaxSuppression, {n:,} boxes, {classes} classes", m, {"b": boxes, "s": rng.random((1, classes, n), dtype=np.float32)}, True


def engine(path, feed, reference):
    """A run of the model by Octavo: with its kernels, or by the reference evaluator."""
    import octavo

    e = octavo.build(path, threads=1, effort=0, device="reference" if reference else "cpu")
    return lambda: e.run(feed)


def runtime(path, feed):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)


def as_list(result):
    return list(result.values()) if isinstance(result, dict) else list(result)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    args = parser.parse_args()
    import onnx

    print("| operator | vector kernel, us | reference evaluator | ONNX Runtime | ONNX Runtime / vector kernel |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, m, feed, open_rows in cases():
            path = os.path.join(folder, "head.onnx")
            onnx.save(m, path)
            runs = [engine(path, feed, False), engine(path, feed, True), runtime(path, feed)]
            results = [as_list(run()) for run in runs]
            for other in results[1:]:
                for x, y in zip(results[0], other):
                    x, y = np.asarray(x), np.asarray(y)
                    assert np.array_equal(x[: len(y)] if open_rows else x, y), name
                    assert np.all(x[len(y):] == -1) if open_rows else True, name
            times = [[], [], []]
            for _ in range(args.turns):
                for k, run in enumerate(runs):
                    repeats, start = 0, time.perf_counter()
                    while repeats < 3 or time.perf_counter() - start < 0.01:
                        run()
                        repeats += 1
                    times[k].append((time.perf_counter() - start) / repeats * 1e6)
            ours, slow, peer = (statistics.median(t) for t in times)
            print(f"| {name} | {ours:.1f} | {slow:.1f} | {peer:.1f} | {peer / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
