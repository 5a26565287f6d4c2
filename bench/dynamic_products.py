"""Dynamically quantized products of few rows (DynamicQuantizeLinear, MatMulInteger, scales, bias) beside ONNX Runtime: docs/lab/dynamic-products.md.

The engines take turns, round after round, each in a process of its own on the same cores. Every round of a row is kept in the work folder; with
--resume an interrupted run goes on where it stopped, with the same binary.

usage: dynamic_products.py [--threads 1,2] [--rounds N] [--seconds S] [--resume] [--record NAME] [--octavo COMMAND] [--work DIR]
Exit status 1 if outputs differ from ONNX Runtime's without optimizations in more than the last bits, or a row is behind.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

import figures
import numpy as np
import packaged
import peer

ROOT = pathlib.Path(__file__).resolve().parents[1]
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--realtime", action="store_true", help="run with real-time priority (chrt -f), ahead of other programs")
    figures.add_option(parser)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/dynamic-products")
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo")))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    kept = args.work / "measured.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if args.resume and kept.exists() else {}
    figures.claim(results, args.octavo)
    tables, problems, ratios = results.setdefault("tables", {}), 0, []
    for threads in args.threads:
        rows = tables.setdefault(f"{threads} thread{'s' * (threads > 1)}", {})
        for size in SIZES:
            name = f"{size[0]} × {size[1]} × {size[2]}"
            if name not in rows:
                times, difference = measure(args, size, threads)
                rows[name] = times
                kept.write_text(json.dumps(results), encoding="utf-8")
                if difference > CLOSE:
                    problems += 1
                    print(f"  PROBLEM {name}: outputs differ by {difference:.1e}", flush=True)
            of = figures.ratios(rows[name], list(range(len(rows[name]["octavo"]))))
            ratios.append(statistics.median(of))
            problems += ratios[-1] < 1
            print(f"{name}, {threads}: {figures.verdict(of)}", flush=True)
    print(figures.summary(ratios))
    if args.record:
        figures.save(figures.record(results, tables), args.record)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
