"""Dynamically quantized products of few rows (DynamicQuantizeLinear, MatMulInteger, scales, bias) beside ONNX Runtime: docs/lab/dynamic-products.md.

The engines take turns, round after round, each in a process of its own on the same cores. Every round of a row is kept in the work folder; with
--resume an interrupted run goes on where it stopped, with the same binary.

usage: dynamic_products.py [--threads 1,2] [--rounds N] [--seconds S] [--resume] [--record NAME] [--octavo COMMAND] [--work DIR]
Exit status 1 if outputs differ from ONNX Runtime's without optimizations in more than the last bits, or a row is behind.
"""
import json
import sys

import numpy as np
import packaged
import peer
import products

SIZES = [(1, k, n) for k in (256, 1024, 4096) for n in (256, 1024, 4096)] + [(m, s, s) for m in (2, 4) for s in (256, 1024, 4096)]
CLOSE = 1e-6


def model(path, rows, depth, columns):
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    constants = {"w": rng.integers(-127, 128, (depth, columns)).astype("int8"), "w_scale": np.float32(0.01), "w_zero": np.int8(0),
                 "bias": rng.standard_normal(columns).astype("float32")}
    op = helper.make_node
    nodes = [op("DynamicQuantizeLinear", ["x"], ["codes", "scale", "zero"]), op("MatMulInteger", ["codes", "w", "zero", "w_zero"], ["sums"]),
             op("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT), op("Mul", ["scale", "w_scale"], ["both"]), op("Mul", ["floats", "both"], ["scaled"]),
             op("Add", ["scaled", "bias"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "product", [value("x", TensorProto.FLOAT, [rows, depth])], [value("y", TensorProto.FLOAT, [rows, columns])],
                              [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return {"x": rng.standard_normal((rows, depth)).astype("float32")}


def measure(args, size, threads):
    """Milliseconds of each round by engine, and how far the outputs differ."""
    call, start = packaged.call, packaged.prefix(args, threads)
    path, engine, feeds_file, out = (args.work / f"{'x'.join(map(str, size))}{end}" for end in (".onnx", ".octavo", ".npz", ".out.npz"))
    feeds = model(path, *size)
    np.savez(feeds_file, **feeds)
    call(*start, args.octavo, "build", path, "-o", engine, "--threads", threads, "--timing-cache", args.work / "times.txt")
    call(args.octavo, "run", engine, "--threads", threads, "--input", feeds_file, "--output", out)
    run, get = peer.open_ort(path, 1, feeds, plain=True)
    run()
    times = {"octavo": [], "ort": []}
    for _ in range(args.rounds):
        for who, words in (("octavo", [args.octavo, "bench", engine, "--threads", threads, "--input", feeds_file, "--json", "--seconds", args.seconds]),
                           ("ort", [sys.executable, peer.__file__, "ort", path, "-t", threads, "-s", args.seconds, "--inputs", feeds_file])):
            times[who].append(json.loads(call(*start, *words).splitlines()[-1])["median_ms"])
    return times, packaged.difference(dict(np.load(out)), get())


def main():
    parser = products.options(__doc__, "dynamic-products")
    products.run(parser.parse_args(), SIZES, measure, CLOSE)


if __name__ == "__main__":
    main()
