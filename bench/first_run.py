"""What the first run of a new shape costs, and how its plan compares with an engine that was built for exactly that shape.

usage: first_run.py [--networks mobilenet resnet50 encoder] [--shapes N] [--exact N] [--later N] [--seconds S] [--threads N] [--effort N] [--caches empty full] [--work DIR] [--record NAME]

An open engine is built and tuned for a few shapes (asked for, and not counted). Then every other shape runs once, which is the first run, and --later times again, fewer (but twice) where a shape would take more than its share of --seconds. For each network: the
time of the first run minus the median of later ones (median and worst), and the same of the processor time of all threads, which other processes on the machine change little; whether anything was timed in a run; and for --exact of the shapes the time of these runs against an engine that was
built for the shape alone, in turn (geometric mean and worst), and whether the outputs are equal bit for bit. The timing cache is a file in DIR for each network: --caches empty removes it before
the engine is built, full takes what the round before left there. --record: docs/lab/records/NAME.json, from which bench/figures.py makes the table of docs/lab/new-shapes.md.
"""
import argparse
import math
import pathlib
import statistics
import sys
import time

import numpy as np

import octavo

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import figures


def encoder(path, layers=12, n=768, heads=12, words=30522, positions=512, inner=3072):
    """BERT's architecture with seeded weights, open batch and length, as exporters write it: shapes are computed by nodes."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)
    nodes, constants, lists = [], [], {}

    def constant(value):
        constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(constants)}"))
        return constants[-1].name

    def ints(*values):
        if values not in lists:
            lists[values] = constant(np.int64(values))
        return lists[values]

    def node(op, *inputs, **attributes):
        nodes.append(helper.make_node(op, list(inputs), [f"v{len(nodes)}"], name=f"n{len(nodes)}_{op}", **attributes))
        return nodes[-1].output[0]

    def weight(*shape):
        return constant(rng.standard_normal(shape, dtype=np.float32) * np.float32(0.7 / np.sqrt(shape[0])))

    def vector(k, around=0.0):
        return constant((around + 0.1 * rng.standard_normal(k)).astype(np.float32))

    def norm(x):
        return node("LayerNormalization", x, vector(n, 1), vector(n), axis=-1, epsilon=1e-5)

    def linear(x, a, b):
        return node("Add", node("MatMul", x, weight(a, b)), vector(b))

    def extent(x, axis):
        return node("Unsqueeze", node("Gather", node("Shape", x), constant(np.int64(axis)), axis=0), ints(0))

    def split(x, perm):
        shape = node("Concat", extent(x, 0), extent(x, 1), ints(heads), ints(n // heads), axis=0)
        return node("Transpose", node("Reshape", x, shape), perm=perm)

    spots = node("Slice", constant(np.arange(positions, dtype=np.int64)[None]), ints(0), extent("ids", 1), ints(1))
    x = norm(node("Add", node("Gather", weight(words, n), "ids"), node("Gather", weight(positions, n), spots)))
    mask = node("Cast", node("Unsqueeze", "mask", ints(1, 2)), to=TensorProto.FLOAT)
    mask = node("Mul", node("Sub", constant(np.float32(1)), mask), constant(np.float32(-1e4)))
    for _ in range(layers):
        q, k, v = (split(linear(x, n, n), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = node("Add", node("Div", node("MatMul", q, k), constant(np.float32(np.sqrt(n // heads)))), mask)
        mixed = node("Transpose", node("MatMul", node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        mixed = node("Reshape", mixed, node("Concat", extent(mixed, 0), extent(mixed, 1), ints(n), axis=0))
        x = norm(node("Add", linear(mixed, n, n), x))
        h = linear(x, n, inner)
        erf = node("Erf", node("Div", h, constant(np.float32(np.sqrt(2)))))
        h = node("Mul", node("Mul", h, node("Add", erf, constant(np.float32(1)))), constant(np.float32(0.5)))
        x = norm(node("Add", linear(h, inner, n), x))
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in ("ids", "mask")]
    result = helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", "length", n])
    graph = helper.make_graph(nodes, "encoder", inputs, [result], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def texts(shape, rng):
    return {"ids": rng.integers(0, 1000, shape), "mask": np.ones(shape, np.int64)}


def seconds(call, runs, clock=time.perf_counter):
    times = []
    for _ in range(runs):
        start = clock()
        call()
        times.append(clock() - start)
    return times


def both(call, runs):
    """Times by the clock of the wall, and of the processors."""
    times = []
    for _ in range(runs):
        spent = time.process_time()
        times += [(seconds(call, 1)[0], time.process_time() - spent)]
    return [list(t) for t in zip(*times)]


def measure(name, model, tuned, shapes, profiles, inputs, args, state):
    """What a record has of it (bench/figures_open.py)."""
    file = args.work / f"timing-{name}.txt"
    if state == "empty":
        file.unlink(missing_ok=True)
    elif not file.exists():
        raise SystemExit(f"{file} is missing: a full cache is what a round with --caches empty leaves")
    cache = str(file)
    options = {"effort": args.effort, "threads": args.threads, "timing_cache": cache}
    start = time.perf_counter()
    engine = octavo.build(model, profiles=profiles, **options)
    octavo.tune(engine, *tuned)
    print(f"{name}, {state} cache: built and tuned for {len(tuned)} shapes in {time.perf_counter() - start:.1f} s", flush=True)
    rng = np.random.default_rng(7)
    costs, engines = [], engine._builds
    outputs = {}
    found = {"shapes": [], "first": [], "later": [], "first_processors": [], "later_processors": [], "beside": {}, "equal": 0}
    for number, shape in enumerate(shapes):
        data = inputs(shape, rng)
        (first,), (first_spent,) = both(lambda: engine.run(data), 1)
        fits = int((args.seconds / len(shapes) - first) / max(first, 1e-6))  # what the shape's share of the time has room for
        later, later_spent = map(statistics.median, both(lambda: engine.run(data), min(args.later, max(fits, 2))))
        costs.append((first - later, shape, first_spent - later_spent))
        found["shapes"].append(" × ".join(map(str, shape)))
        for key, value in (("first", first), ("later", later), ("first_processors", first_spent), ("later_processors", later_spent)):
            found[key].append(round(value * 1e3, 3))
        if args.verbose:
            print(f"  {shape}: first {first * 1e3:.1f} ms, later {later * 1e3:.2f} ms; processors {first_spent * 1e3:.1f} and {later_spent * 1e3:.2f} ms", flush=True)
        if number < args.exact:
            outputs[number] = data, engine.run(data)
    rest = costs[1:] or costs  # the first shape of all finds no memory at all
    extra = sorted(c[0] * 1e3 for c in rest)
    worst, processors = max(rest), sorted(c[2] * 1e3 for c in rest)
    print(f"{name}: {len(shapes)} shapes, {engine._builds - engines} engines made in runs; the first of all {costs[0][0] * 1e3:.1f} ms; of the others first run minus later: median {statistics.median(extra):.1f} ms, worst {extra[-1]:.1f} ms at {worst[1]}; processors: median {statistics.median(processors):.1f} ms, worst {processors[-1]:.1f} ms",
          flush=True)
    ratios, equal = [], 0
    for number, (data, out) in outputs.items():
        own = octavo.build(model, shapes={k: list(v.shape) for k, v in data.items()}, **options)
        same = own.run(data)
        equal += all(np.array_equal(out[k], same[k]) for k in same)
        mine = engine.at({k: list(v.shape) for k, v in data.items()})
        a, b = [], []
        for _ in range(args.later):
            a += seconds(lambda: mine.run(data), 1)
            b += seconds(lambda: own.run(data), 1)
        ratios.append(statistics.median(a) / statistics.median(b))
        found["beside"][found["shapes"][number]] = [round(x / y, 4) for x, y in zip(a, b)]
        if args.verbose:
            print(f"  {shapes[number]}: {ratios[-1]:.3f} of the engine for this shape alone", flush=True)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{name}: against engines for the shape alone: geometric mean {mean:.3f}, worst {max(ratios):.3f}; outputs equal in {equal} of {len(outputs)}", flush=True)
    found["equal"] = equal
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="*", help="default: those of --model, and encoder")
    parser.add_argument("--model", action="append", default=[], help="NAME=FILE: the model of a network with one open batch")
    parser.add_argument("--shapes", type=int, default=200, help="of the encoder")
    parser.add_argument("--exact", type=int, default=8)
    parser.add_argument("--later", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=400, help="of the runs of one network, shared by its shapes; each has at least two later runs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--effort", type=int, default=2)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--caches", nargs="+", choices=("empty", "full"), default=["empty"], help="of times, in turn")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("first-run"))
    figures.add_option(parser)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    given = dict(pair.split("=", 1) for pair in args.model)
    results, rows = {}, {}
    figures.claim(results, octavo._octavo.__file__)
    for name, state in [(n, c) for n in args.networks or [*given, "encoder"] for c in args.caches]:
        if name != "encoder" and name not in given:
            parser.error(f"--networks {name}: its file is missing; give --model {name}=FILE")
        if name == "encoder":
            path = args.work / f"encoder{args.layers}.onnx"
            if not path.exists():
                encoder(path, layers=args.layers)
            rng = np.random.default_rng(5)
            drawn = [(int(rng.integers(1, 9)), int(rng.integers(1, 513))) for _ in range(args.shapes)]
            tuned = [{"ids": s, "mask": s} for s in ((1, 128), (4, 32), (4, 256))]
            profiles = {k: ((1, 1), (1, 128), (8, 512)) for k in ("ids", "mask")}
            rows[f"{name}, {state}"] = measure(name, path, tuned[1:], drawn, profiles, texts, args, state)
            keep(results, rows, args)
            continue
        path = given[name]
        plain = octavo.build(path, effort=0)
        info = plain.inputs[0]
        rest = tuple(info["shape"][1:])
        tuned = [{info["name"]: (n, *rest)} for n in (1, 2, 8, 32)]
        profiles = {info["name"]: ((1, *rest), (1, *rest), (32, *rest))}
        order = [int(n) for n in np.random.default_rng(5).permutation(np.arange(1, 33))]
        rows[f"{name}, {state}"] = measure(name, path, tuned[1:], [(n, *rest) for n in order], profiles,
                                           lambda shape, rng, key=info["name"]: {key: rng.standard_normal(shape, dtype=np.float32)}, args, state)
        keep(results, rows, args)


def keep(results, rows, args):
    """After each row: a run may be ended before its last one."""
    if args.record:
        figures.save(figures.record(results, {"first runs": rows}, kind="first runs"), args.record)


if __name__ == "__main__":
    main()
