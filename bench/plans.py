"""Outputs do not depend on the vector instructions.

For every network, placement style and cap of the instructions that this processor has (portable, avx2, avx512, avx512vnni, amx): an engine is built
for one thread with --effort 0 and runs on one seeded input. Outputs must be equal under all caps, bit for bit; where a region sums floats, whose order
is the kernel's, within 1e-4 of the largest value. What the plans are, whatever the processor, is compared by scripts/replay.py.

usage: plans.py [--nets all] [--styles float,residual,outputs,conv-act,everywhere] [--caps all]
"""
import argparse
import collections
import json
import pathlib
import re
import sys

import counterparts
import networks
from versions import feed_of

CAPS = ("portable", "avx2", "avx512", "avx512vnni", "amx")
STYLES = ("float", *networks.STYLES)
FLOAT_TOLERANCE = 1e-4


def caps_here():
    """The caps that are no more than this processor has: an engine under a higher one would be the same as under the highest."""
    flags = set(re.search(r"^flags\s*:(.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)[1].split())
    has = {"portable": True, "avx2": {"avx2", "fma", "f16c"} <= flags, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags}
    has["avx512vnni"] = has["avx512"] and "avx512_vnni" in flags
    has["amx"] = has["avx512vnni"] and {"amx_tile", "amx_int8"} <= flags
    return [c for c in CAPS if has[c]]


def describe(explained):
    """(counts in one text, whether a region sums floats) of what `octavo explain --json` says."""
    counts, sums = collections.Counter(), False
    for r in explained["regions"]:
        counts[f"{r['precision']} {r['tactic'].split('{')[0].split('(')[0]}"] += 1
        anchors = {s["anchor"] for s in r["stages"]}
        sums |= "int8" not in r["precision"] and bool(anchors & {"conv", "conv_transpose", "gemm", "matmul"})
        sums |= bool(anchors & {"avg_pool", "reduce_mean", "reduce_sum", "softmax"})
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items())), sums


def difference(outputs, first):
    """The largest |a - b| of any output, as a part of the largest |b|; infinite where names or shapes differ."""
    import numpy as np

    if outputs.keys() != first.keys() or any(outputs[k].shape != first[k].shape for k in first):
        return float("inf")
    worst = 0.0
    for k, b in first.items():
        if outputs[k].tobytes() != b.tobytes():
            gap, largest = (float(np.abs(x).max(initial=0)) for x in (outputs[k].astype(np.float64) - b, b.astype(np.float64)))
            worst = max(worst, gap / largest if largest > 0 else float("inf"))
    return worst


def compare(args, model, name):
    """One model under all caps; adds what is wrong to args.wrong."""
    import numpy as np

    feed, first = feed_of(model, args.models / f"{name}.npz"), None
    for cap in args.caps:
        words = ["--cpu", cap, "--threads", 1, "--effort", 0]
        text, sums = describe(json.loads(counterparts.run([args.octavo, "explain", model, "--json", *words])))
        engine, out = args.models / f"{name}.plans.octavo", args.models / f"{name}.plans.npz"
        counterparts.run([args.octavo, "build", model, "-o", engine, *words])
        counterparts.run([args.octavo, "run", engine, "--input", feed, "--output", out])
        outputs = dict(np.load(out))
        first = first or outputs
        gap = difference(outputs, first)
        if gap > (FLOAT_TOLERANCE if sums else 0):
            args.wrong.append(f"{name} {cap}: outputs differ from those under {args.caps[0]} by {gap:.3g} of the largest")
        print(f"{name} {cap}: {text}; outputs {'equal' if gap == 0 else f'differ by {gap:.1e}, floats are summed'}", flush=True)
        engine.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")
    counterparts.arguments(parser)
    parser.add_argument("--nets", type=split, default=["digits", *networks.ALL])
    parser.add_argument("--styles", type=split, default=list(STYLES))
    parser.add_argument("--caps", type=split)
    args = parser.parse_args()
    counterparts.finish(args)
    args.caps, args.wrong = args.caps or caps_here(), []
    for net in args.nets:
        for style in args.styles if net != "digits" else ["qdq", "fp32"]:
            if net == "digits":
                model = counterparts.ROOT / f"examples/digits/digits_{style}.onnx"
            else:
                model = networks.float_model(args, net) if style == "float" else networks.explicit_model(args, net, style)
            compare(args, model, f"{net} {style}".replace(" ", "."))
    for line in args.wrong:
        print(f"WRONG {line}")
    sys.exit(1 if args.wrong else 0)


if __name__ == "__main__":
    main()
