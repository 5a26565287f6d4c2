"""The cases of docs/cases.md at realistic sizes: each as a Q/DQ model and as its implicit counterpart, built with one timing cache and timed in turns.

usage: cases.py [--only C1,C2] [--pairs 10] [--seconds 0.15] [--effort 2] [--threads 1] [--device cuda] [--write]
       (--write: the table of docs/cases.md, of the CPU or of the GPU)
"""
import argparse
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

import counterparts


class Net:
    """A network written once, as Q/DQ model or as float model with a table; weights are seeded."""

    def __init__(self, explicit):
        self.explicit, self.nodes, self.inits, self.scales = explicit, [], [], {}
        self.inputs, self.channels, self.rng, self.n = [], {}, np.random.default_rng(0), 0

    def op(self, kind, ins, channels, **attrs):
        self.n += 1
        name = f"{kind.lower()}_{self.n}"
        self.nodes.append(h.make_node(kind, ins, [name + "_out"], name=name, **attrs))
        self.channels[name + "_out"] = channels
        return name + "_out"

    def const(self, array, tag="c"):
        self.n += 1
        self.inits.append(nh.from_array(np.asarray(array), f"{tag}_{self.n}"))
        return f"{tag}_{self.n}"

    def input(self, name, shape, kind=T.FLOAT):
        self.inputs.append(h.make_tensor_value_info(name, kind, shape))
        self.channels[name] = shape[1]
        return name

    def q(self, x, scale):
        """x read through int8 at `scale`."""
        if not self.explicit:
            self.scales[x] = scale
            return x
        s, z = self.const(np.float32(scale), "scale"), self.const(np.int8(0), "zero")
        c = self.channels[x]
        return self.op("DequantizeLinear", [self.op("QuantizeLinear", [x, s, z], c), s, z], c)

    def weights(self, shape, axis):
        fan = np.prod(shape) / shape[axis]
        w = (self.rng.standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32)
        name = self.const(w, "w")
        if self.explicit:
            others = tuple(k for k in range(4) if k != axis)
            s, z = self.const((np.abs(w).max(axis=others) / np.float32(127)).astype(np.float32), "ws"), self.const(np.zeros(shape[axis], np.int8), "wz")
            name = self.op("QuantizeLinear", [name, s, z], 0, axis=axis)
            name = self.op("DequantizeLinear", [name, s, z], 0, axis=axis)
        return name

    def conv(self, x, channels, k=3, s=1, scale=0.03, g=1):
        x = self.q(x, scale) if scale else x
        b = self.const((self.rng.standard_normal(channels) * 0.05).astype(np.float32), "b")
        w = self.weights((channels, self.channels[x] // g, k, k), 0)
        return self.op("Conv", [x, w, b], channels, kernel_shape=[k, k], strides=[s, s], pads=[k // 2] * 4, group=g)

    def deconv(self, x, channels, scale=0.03):
        x = self.q(x, scale)
        b = self.const((self.rng.standard_normal(channels) * 0.05).astype(np.float32), "b")
        w = self.weights((self.channels[x], channels, 2, 2), 1)
        return self.op("ConvTranspose", [x, w, b], channels, kernel_shape=[2, 2], strides=[2, 2])

    def relu(self, x):
        return self.op("Relu", [x], self.channels[x])

    def silu(self, x):
        return self.op("Mul", [x, self.op("Sigmoid", [x], self.channels[x])], self.channels[x])

    def concat(self, *xs):
        return self.op("Concat", list(xs), sum(self.channels[x] for x in xs), axis=1)

    def split(self, x):
        c = self.channels[x] // 2
        self.n += 1
        names = [f"split_{self.n}_a", f"split_{self.n}_b"]
        self.nodes.append(h.make_node("Split", [x, self.const(np.array([c, c], np.int64))], names, name=f"split_{self.n}", axis=1))
        self.channels.update({n: c for n in names})
        return names

    def model(self, *outputs):
        info = [h.make_tensor_value_info(o, T.FLOAT, None) for o in outputs]
        model = h.make_model(h.make_graph(self.nodes, "case", self.inputs, info, self.inits), opset_imports=[h.make_opsetid("", 17)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model)
        return model


def c1(n):
    x = n.input("x", [1, 32, 80, 80])
    parts = [n.relu(n.conv(x, 64, k)) for k in (1, 3, 3)]
    return [n.conv(n.concat(*parts), 64)]


def c1_inputs(n):
    return [n.conv(n.concat(*(n.input(name, [1, 64, 40, 40]) for name in "abc")), 64)]


def c2(n):
    return [n.conv(n.silu(n.deconv(n.input("x", [1, 64, 64, 64]), 64)), 32, 1)]


def c3(n):
    return [n.conv(n.silu(n.q(n.deconv(n.input("x", [1, 64, 64, 64]), 64), 0.04)), 32, 1)]


def c4(n):
    x = n.input("x", [1, 64, 56, 56])
    for _ in range(6):
        x = n.relu(n.conv(x, 64))
    return [n.conv(x, 64, 1)]


def c6(n):
    x = n.relu(n.conv(n.input("x", [1, 3, 224, 224]), 64, 7, 2, 0.02))
    return [n.conv(n.op("MaxPool", [x], 64, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64, 1)]


def c7(n):
    return [n.conv(n.silu(n.q(n.conv(n.input("x", [1, 64, 80, 80]), 64), 0.04)), 64)]


def c8(n):
    return [n.conv(n.silu(n.conv(n.input("x", [1, 64, 80, 80]), 64)), 64)]


def bottleneck(place):
    def make(n):
        pair = (lambda v, s: n.q(v, s)) if place == "all" else (lambda v, s: v)

        def block(x):
            c = pair(n.conv(x, 64, scale=0.02), 0.04)
            return n.op("Mul", [c, pair(n.op("Sigmoid", [c], 64), 1 / 127)], 64)

        x = n.relu(n.conv(n.input("x", [1, 32, 80, 80]), 64))
        z = block(block(x))
        if place in ("all", "after"):
            z = n.q(z, 0.025)
        other = n.q(x, 0.02) if place in ("branch", "all") else x
        return [n.conv(n.op("Add", [z, other], 64), 64, 1)]
    return make


def c10(n):
    a, b = n.split(n.q(n.relu(n.conv(n.input("x", [1, 64, 80, 80]), 64)), 0.05))
    return [n.conv(a, 64, scale=0.07), n.conv(b, 64, scale=0.05)]


def c11(n):
    x = n.input("x", [1, 32, 80, 80])
    y = n.concat(*(n.q(n.relu(n.conv(x, 32)), 0.05) for _ in range(2)))
    a, b = n.split(n.q(y, 0.05))
    return [n.conv(a, 64, scale=0.05), n.conv(b, 64, scale=0.05)]


def c12(n):
    stem = n.relu(n.conv(n.input("x", [1, 32, 56, 56]), 64))
    y = n.q(n.conv(stem, 64, scale=7 / 127), 2.5 / 127)
    return [n.conv(n.relu(n.op("Add", [y, n.q(stem, 7 / 127)], 64)), 64, 1, scale=0.06)]


def c13(n):
    x = n.input("x", [1, 32, 80, 80])
    a, b = n.q(n.relu(n.conv(x, 64)), 0.02), n.q(n.relu(n.conv(x, 64, 1)), 0.07)
    return [n.conv(n.concat(a, b), 64, scale=None)]


def c14(n):
    x = n.input("x", [1, 64, 40, 40])
    for _ in range(4):
        y, c = n.conv(x, 64), 64
        stats = [n.const(v.astype(np.float32), "bn") for v in (np.full(c, 0.9), np.full(c, 0.1), np.zeros(c), np.ones(c))]
        x = n.silu(n.op("BatchNormalization", [y, *stats], c))
    return [n.conv(x, 64, 1)]


def c15(n):
    stem = n.relu(n.conv(n.input("x", [1, 64, 80, 80]), 128))
    heads = [n.conv(n.relu(n.conv(stem, 32, 1, scale=0.04)), 64, 3, scale=0.05) for _ in range(2)]
    return heads


CASES = {
    "C1": c1, "C1, network inputs": c1_inputs, "C2": c2, "C3": c3, "C4": c4, "C6": c6, "C7": c7, "C8": c8,
    "C9, only inputs": bottleneck("inputs"), "C9, everywhere": bottleneck("all"), "C9, one branch": bottleneck("branch"),
    "C9, before Add": bottleneck("after"), "C10": c10, "C11": c11, "C12": c12, "C13": c13, "C14": c14, "C15": c15,
}


def regions_of(args, engine):
    """Regions and copies of an engine, from `octavo explain --json`."""
    plan = json.loads(counterparts.run([args.octavo, "explain", engine, "--json"]))
    regions = plan["regions"] if isinstance(plan, dict) else plan
    return len(regions), sum(r["precision"] == "move" for r in regions)


def measure(args, name, make):
    stem = args.models / f"{args.device}.{name.replace(', ', '_').replace(' ', '_')}"
    made = {}
    for form, explicit in (("explicit", True), ("counterpart", False)):
        n = Net(explicit)
        onnx.save(n.model(*make(n)), f"{stem}.{form}.onnx")
        table = f"{stem}.table" if not explicit else None
        if table:
            counterparts.write_table(table, n.scales)
        made[form] = counterparts.build(args, f"{stem}.{form}.onnx", f"{stem}.{form}.octavo", args.threads, table)
    regions, copies = regions_of(args, made["explicit"])
    same = len({counterparts.bench(args, e, args.threads, 0.05)["plan_hash"] for e in made.values()}) == 1
    x, y = counterparts.interleaved(args, made["explicit"], made["counterpart"], args.threads)
    ratio, low, high = counterparts.interval(x, y)
    return {"case": name, "explicit": sorted(x)[len(x) // 2], "counterpart": sorted(y)[len(y) // 2], "ratio": ratio, "low": low, "high": high,
            "same": same, "regions": regions, "copies": copies}


def table(rows):
    lines = ["| case | explicit, ms | counterpart, ms | explicit ÷ counterpart, 95 % | plans | regions | copies |", "|---|---:|---:|---:|---|---:|---:|"]
    for r in rows:
        lines.append(f"| {r['case']} | {r['explicit']:.3f} | {r['counterpart']:.3f} | {r['ratio']:.3f} [{r['low']:.3f}, {r['high']:.3f}] | "
                     f"{'same' if r['same'] else 'differ'} | {r['regions']} | {r['copies']} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda t: t.split(","), help="cases by number: C1,C9")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="cuda: engines for this machine's GPU, whose inputs and outputs stay in its memory")
    counterparts.arguments(parser)
    parser.add_argument("--write", action="store_true", help="write the documents")
    parser.set_defaults(pairs=10, models=counterparts.ROOT / "build/bench_cases")
    args = parser.parse_args()
    args.cache = args.cache or args.models / f"timing.{args.device}.cache"
    counterparts.finish(args)
    rows, failed = [], 0
    for name, make in CASES.items():
        if args.only and name.split(",")[0] not in args.only:
            continue
        try:
            rows.append(measure(args, name, make))
            print(f"{table(rows).splitlines()[-1]}", flush=True)
        except RuntimeError as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
    print(table(rows))
    if args.write:
        path = counterparts.ROOT / "docs/cases.md"
        mark = "times-gpu" if counterparts.on_gpu(args) else "times"
        begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
        head, rest = path.read_text(encoding="utf-8").split(begin, 1)
        where = f"{counterparts.gpu()}, without transfers" if counterparts.on_gpu(args) else f"{counterparts.machine()}; {args.threads} thread(s)"
        note = f"{where}, effort {args.effort}, {args.pairs} pairs of processes that take turns.\n\n"
        path.write_text(head + begin + "\n" + note + table(rows) + "\n" + end + rest.split(end, 1)[1], encoding="utf-8")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
