"""float32, bfloat16 and int8 of the same float network, one thread: the table of docs/lab/precision.md.

Each network is built four times: with one type alone allowed where it can be (float32 elsewhere), and with all three, where measured times
decide. Ranges come from the network's own Q/DQ form (placement `outputs`), as a calibration table. The engines take turns, round after
round, each measurement in a process of its own; figures are medians of the processes' medians. Errors are those of an output against
float32 on one random input, as a part of its largest magnitude.

usage: precisions.py [--models DIR] [--nets resnet50,mobilenet_v2] [-t THREADS] [-s SECONDS] [-r ROUNDS] [--octavo COMMAND] [--record NAME]
       -r 7 -s 2: about 4 minutes
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import compare
import figures
import networks
import peer
import peer_report

KINDS = {"float32": ("float32", False), "bfloat16": ("float32,bfloat16", False), "int8": ("int8,float32", True),
         "all three": ("int8,float32,bfloat16", True)}


TITLE = "float32, bfloat16 and int8"


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def layers(octavo, engine):
    """Regions with weights by precision: "50 bfloat16, 3 float32"."""
    counts = {}
    for region in json.loads(run(octavo, "explain", engine, "--json"))["regions"]:
        if region["macs"] > 0:
            counts[region["precision"]] = counts.get(region["precision"], 0) + 1
    return ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items(), key=lambda c: -c[1]))


def outputs(octavo, engine, inputs, folder):
    import numpy as np

    given = [option for name, path in inputs.items() for option in ("--input", f"{name}={path}")]
    run(octavo, "run", engine, *given, "--threads", 1, "--output", folder / "out.npz")
    with np.load(folder / "out.npz") as arrays:
        return [arrays[name] for name in arrays.files]


def error(exact, found):
    return max(float(abs(a - b).max() / abs(a).max()) for a, b in zip(exact, found))


def main():
    import numpy as np

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, default=compare.ROOT / "build/peers", help="where the networks are kept")
    parser.add_argument("--nets", type=lambda t: t.split(","), default=list(networks.ZOO))
    compare.arguments(parser)
    figures.add_option(parser)
    args = parser.parse_args()
    results, rows, facts = {}, {}, {}
    figures.claim(results, args.octavo)
    print(f"{args.threads} thread{'s' * (args.threads > 1)}, batch 1, milliseconds an image, median of {args.rounds} interleaved rounds; "
          f"{peer_report.machine([])}\n")
    print("| network | allowed | ms | float32 ÷ it | error | regions with weights |\n|---|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for net in args.nets:
            model, table = args.models / f"{net}.onnx", folder / "ranges.cache"
            run(args.octavo, "convert", networks.placed_model(args, net, "outputs"), "--to-table", table)
            for kind, (allowed, ranges) in KINDS.items():
                run(args.octavo, "build", model, "-o", folder / kind, "--threads", args.threads, "--allow", allowed, "--timing-cache",
                    folder / f"{net}.times", *(["--calibration", table] if ranges else []))
            rounds = {kind: [] for kind in KINDS}
            for _ in range(args.rounds):
                for kind in KINDS:
                    rounds[kind].append(compare.one(args, "octavo", str(folder / kind)))
            ms = {kind: statistics.median(r) for kind, r in rounds.items()}
            inputs = {}
            for name, array in peer.inputs_of(str(model), 1).items():
                inputs[name] = folder / f"{len(inputs)}.npy"
                np.save(inputs[name], array)
            exact = outputs(args.octavo, folder / "float32", inputs, folder)
            for kind in KINDS:
                off, regions = error(exact, outputs(args.octavo, folder / kind, inputs, folder)), layers(args.octavo, folder / kind)
                print(f"| {net} | {kind} | {ms[kind]:.3f} | {ms['float32'] / ms[kind]:.2f} | {off:.1e} | {regions} |", flush=True)
                rows[f"{net}, {kind}"] = {"octavo": rounds[kind], **({"float32": rounds["float32"]} if kind != "float32" else {})}
                facts[f"{net}, {kind}"] = {"error": f"{off:.1e}", "regions": regions}
    if args.record:
        view = {"columns": [["octavo", "ms"], ["own", "float32 ÷ it"], ["error", "error"], ["regions", "regions with weights"]],
                "ratios": {"own": {"of": ["float32"], "over": "octavo", "words": ["faster", "level", "slower"]}}, "facts": facts}
        figures.save(figures.record(results, {TITLE: rows}, views={TITLE: view}), args.record)


if __name__ == "__main__":
    main()
