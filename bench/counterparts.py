"""Explicit models and their implicit counterparts: making both, building them, and timing them against each other.

The implicit counterpart of a Q/DQ model is its float model with a TensorRT calibration table that holds the scale of every tensor which the
model quantizes. Scales are written as bits, so both say the same.
"""
import json
import math
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys

import figures

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared")).resolve()


def octavo_command():
    return os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo"))


def scales_of(model):
    """{tensor: scale} of the activations that a Q/DQ model quantizes, per tensor and symmetric; anything else is an error."""
    from onnx import numpy_helper

    constants = {t.name: t for t in model.graph.initializer}
    pairs = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "DequantizeLinear"}
    source = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "QuantizeLinear"}
    scales = {}
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in constants:
            continue
        scale = numpy_helper.to_array(constants[node.input[1]])
        zero = numpy_helper.to_array(constants[node.input[2]])
        if scale.size != 1 or zero.any() or zero.dtype != "int8":
            raise ValueError(f'"{node.name}": a table holds one scale a tensor and zero point 0')
        name = node.input[0]
        while name in pairs and pairs[name] in source:  # a pair behind a pair belongs to the tensor before both
            name = source[pairs[name]]
        scales[name] = max(scales.get(name, 0.0), float(scale))
    return scales


def write_table(path, scales):
    """A calibration table as TensorRT writes it: the bits of each float32 scale."""
    lines = ["TRT-8601-MinMaxCalibration"] + [f"{name}: {struct.pack('>f', s).hex()}" for name, s in scales.items()]
    pathlib.Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(command):
    """stdout of a command; its stderr ends this program when it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(c) for c in command)}\n{done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def octavo(args, *words):
    """stdout of the octavo command, on the cores `args.cpus` where it has any, held to the instructions `args.level` where that is given."""
    cpus, level = getattr(args, "cpus", None), getattr(args, "level", "")
    pin = ["taskset", "-c", ",".join(map(str, cpus))] if cpus and shutil.which("taskset") else []
    return run([*(["env", f"OCTAVO_CPU={level}"] if level else []), *pin, args.octavo, *words])


def on_gpu(args):
    """Are the engines for a GPU?"""
    return getattr(args, "device", "cpu") != "cpu"


def build(args, model, engine, threads, table=None, strict=False):
    """Builds an engine with the run's shared timing cache. `strict`: a time that it does not have is an error."""
    command = ["build", model, "-o", engine, "--threads", threads, "--effort", args.effort]
    if on_gpu(args):
        command += ["--device", args.device]
    if args.effort > 0:
        command += ["--timing-cache", args.cache] + (["--strict-timing"] if strict else [])
    if table:
        command += ["--calibration", table]
    octavo(args, *command)
    return engine


def bench(args, engine, threads, seconds=None):
    """One process: the JSON line of `octavo bench`; on a GPU without copies between its memory and the host's."""
    stay = ["--noDataTransfers"] if on_gpu(args) else []
    return json.loads(octavo(args, "bench", engine, "--json", "--threads", threads, "--seconds", seconds or args.seconds, *stay).splitlines()[-1])


def plan_of(args, engine):
    """`octavo explain --json` of an engine."""
    return json.loads(octavo(args, "explain", engine, "--json"))


MOVES = {"QuantizeLinear", "DequantizeLinear", "Concat", "Split", "Slice", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze",
         "Identity", "Cast", "Gather", "Expand", "Constant", "Shape", "Pad", "Dropout"}


def passes(plan, model):
    """Regions of an explained plan that only move data or change its type or scale: {kind, name, reason, onnx_nodes, decisions}; kind one of
    copy, quantize, requantize, dequantize. Those at a network input or output, which change between the caller's form and ours, are
    not listed. `model`: the ONNX model that it was built from."""
    ops = {n.name: n.op_type for n in model.graph.node}
    edges = {v.name for v in [*model.graph.input, *model.graph.output]}
    kinds = {"move": "copy", "float32->int8": "quantize", "int8": "requantize", "int8->float32": "dequantize"}
    found = []
    for r in plan["regions"]:
        tensors = {t["name"] for s in r["stages"] for t in s["inputs"] + s["outputs"]}
        kind = kinds.get(r["precision"])
        if kind is None or tensors & edges or any(s["anchor"] not in ("none", "reshape") for s in r["stages"]):
            continue
        if kind != "copy" and any(ops.get(n) not in MOVES for n in r["onnx_nodes"]):
            continue  # it computes
        weighed = [d for d in plan["decisions"] if set(d["onnx_nodes"]) & set(r["onnx_nodes"])]
        found.append({"kind": kind, "name": r["name"], "reason": r["reason"], "onnx_nodes": r["onnx_nodes"], "decisions": weighed})
    return found


def interleaved(args, a, b, threads):
    """`args.pairs` pairs of processes that take turns: lists of milliseconds."""
    times = ([], [])
    for i in range(args.pairs):
        order = (0, 1) if i % 2 == 0 else (1, 0)  # neither is always first
        for k in order:
            times[k].append(bench(args, (a, b)[k], threads)["median_ms"])
    return times


def interval(a, b):
    """Median of the pairs' ratios a / b, and its 95 % interval (figures.interval); of fewer than six pairs nothing is known: 0 to infinity."""
    ratios = [x / y for x, y in zip(a, b)]
    return statistics.median(ratios), *(figures.interval(ratios) or (0.0, math.inf))


def gpu():
    """The GPU's name, as its driver gives it."""
    return run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()[0].strip()


machine = figures.machine


def arguments(parser):
    """Options that both programs have."""
    parser.add_argument("--octavo", default=octavo_command(), help="the octavo command (default: $OCTAVO, or build/release/bin/octavo)")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "build/bench_models", help="where models, tables and engines are kept")
    parser.add_argument("--cache", type=pathlib.Path, help="timing cache shared by all builds (default: in --models)")
    parser.add_argument("--effort", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=30, help="pairs of processes where the plans differ")
    parser.add_argument("--seconds", type=float, default=0.15, help="seconds that each process measures")


def finish(args):
    """Fills in what depends on other options."""
    args.models.mkdir(parents=True, exist_ok=True)
    args.cache = args.cache or args.models / "timing.cache"
    if not pathlib.Path(args.octavo).exists():
        sys.exit(f"error: no octavo command at {args.octavo}; build it, or set OCTAVO")
