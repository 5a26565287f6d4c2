"""The plans of effort 0, which no measured time decides: a committed list of them, and a check that outputs do not depend on the vector instructions.

For every network, placement style and cap of the instructions that this processor has (portable, avx2, avx512, avx512vnni, amx): an engine is built
for one thread with --effort 0 and --disable stage-operand (whose default depends on the size of the L2 cache). The list has a line for each: how many
regions run in which precision and family of tactics, and a digest of (ONNX nodes, precision, tactic, stages) of all regions in order. Then the engines
run on one seeded input: outputs must be equal under all caps, bit for bit; where a region sums floats, whose order is the kernel's, within 1e-4 of
the largest value, and the line says so.

usage: plans.py [--nets all] [--styles float,residual,outputs,conv-act,everywhere] [--caps all] [--list tests/plans.txt] [--write]
Without --write, a line that differs from the list's is an error. --write replaces the lines of what was run and keeps the others, so that a machine
adds the caps that another one lacks.
"""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import re
import sys

import counterparts
import networks
from versions import feed_of

CAPS = ("portable", "avx2", "avx512", "avx512vnni", "amx")
STYLES = ("float", *networks.STYLES)
HEAD = ("# Plans of effort 0 (bench/plans.py): network style cap | regions by precision and family of tactics | digest\n"
        "# capped: float convolutions on a processor with more than the cap, where oneDNN, which follows no cap, is left out\n")
FLOAT_TOLERANCE = 1e-4


def caps_here():
    """The caps that are no more than this processor has: an engine under a higher one would be the same as under the highest."""
    flags = set(re.search(r"^flags\s*:(.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)[1].split())
    has = {"portable": True, "avx2": {"avx2", "fma", "f16c"} <= flags, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags}
    has["avx512vnni"] = has["avx512"] and "avx512_vnni" in flags
    has["amx"] = has["avx512vnni"] and {"amx_tile", "amx_int8"} <= flags
    return [c for c in CAPS if has[c]]


def describe(explained):
    """(counts in one text, digest, whether a region sums floats) of what `octavo explain --json` says."""
    counts, digest, sums = collections.Counter(), hashlib.sha256(), False
    for r in explained["regions"]:
        family = r["tactic"].split("{")[0].split("(")[0]
        counts[f"{r['precision']} {family}"] += 1
        digest.update(json.dumps([sorted(r["onnx_nodes"]), r["precision"], r["tactic"], len(r["stages"])]).encode())
        anchors = {s["anchor"] for s in r["stages"]}
        sums |= "int8" not in r["precision"] and bool(anchors & {"conv", "conv_transpose", "gemm", "matmul"})
        sums |= bool(anchors & {"avg_pool", "reduce_mean", "reduce_sum", "softmax"})
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items())), digest.hexdigest()[:16], sums


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


def plans_of(args, model, name):
    """{list key: list text} of one model under all caps; adds what is wrong to args.wrong."""
    import numpy as np

    feed, found, first = feed_of(model, args.models / f"{name}.npz"), {}, None
    for cap in args.caps:
        words = ["--cpu", cap, "--threads", 1, "--effort", 0, "--disable", "stage-operand"]
        text, digest, sums = describe(json.loads(counterparts.run([args.octavo, "explain", model, "--json", *words])))
        engine, out = args.models / f"{name}.plans.octavo", args.models / f"{name}.plans.npz"
        counterparts.run([args.octavo, "build", model, "-o", engine, *words])
        counterparts.run([args.octavo, "run", engine, "--input", feed, "--output", out])
        outputs = dict(np.load(out))
        first = first or outputs
        gap = difference(outputs, first)
        if gap > (FLOAT_TOLERANCE if sums else 0):
            args.wrong.append(f"{name} {cap}: outputs differ from those under {args.caps[0]} by {gap:.3g} of the largest")
        capped = " capped" if cap not in ("portable", caps_here()[-1]) and ".f32." in text else ""
        found[f"{name} {cap}{capped}"] = f"{text} | {digest}"
        print(f"{name} {cap}: {text}; outputs {'equal' if gap == 0 else f'differ by {gap:.1e}, floats are summed'}", flush=True)
        engine.unlink()
    return found


def read_list(path):
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(line.split(" | ", 1) for line in lines if line and not line.startswith("#"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")
    counterparts.arguments(parser)
    parser.add_argument("--nets", type=split, default=["digits", *networks.ALL])
    parser.add_argument("--styles", type=split, default=list(STYLES))
    parser.add_argument("--caps", type=split)
    parser.add_argument("--list", type=pathlib.Path, default=counterparts.ROOT / "tests/plans.txt")
    args = parser.parse_args()
    counterparts.finish(args)
    args.caps, args.wrong = args.caps or caps_here(), []
    listed, found = read_list(args.list), {}
    for net in args.nets:
        for style in args.styles if net != "digits" else ["qdq", "fp32"]:
            if net == "digits":
                model = counterparts.ROOT / f"examples/digits/digits_{style}.onnx"
            else:
                model = networks.float_model(args, net) if style == "float" else networks.explicit_model(args, net, style)
            found |= plans_of(args, model, f"{net} {style}".replace(" ", "."))
    if args.write:
        part = args.list.with_suffix(".part")
        part.write_text(HEAD + "".join(f"{k} | {v}\n" for k, v in sorted((listed | found).items())), encoding="utf-8")
        os.replace(part, args.list)
    else:
        args.wrong += [f"{k}: {v}\n  the list has: {listed.get(k, 'no such line')}" for k, v in found.items() if listed.get(k) != v]
    print("\n".join(args.wrong) or f"ok: {len(found)} plans", file=sys.stderr if args.wrong else sys.stdout)
    sys.exit(1 if args.wrong else 0)


if __name__ == "__main__":
    main()
