"""Time per image of Octavo beside other engines, on this machine, in one run.

Each measurement is a process of its own; the engines take turns, round after round, so that what else the machine does falls on all of
them; figures are medians over rounds of each process's median. Compare only figures from one run.

usage: compare.py MODEL.onnx... [--peers octavo,ort,openvino] [-t THREADS] [-b BATCH] [-s SECONDS] [-r ROUNDS] [--octavo COMMAND]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = {"octavo": "Octavo", "ort": "ONNX Runtime", "openvino": "OpenVINO"}
TYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 10: "float16"}


def inputs_of(path, batch):
    """Random arrays for the model's inputs; an open first dimension becomes `batch`, other open ones are an error."""
    import numpy as np
    import onnx

    graph, rng, feeds = onnx.load(path, load_external_data=False).graph, np.random.default_rng(0), {}
    constants = {t.name for t in graph.initializer}
    for value in graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value or (batch if i == 0 else 0) for i, d in enumerate(tensor.shape.dim)]
        if 0 in shape:
            sys.exit(f'error: {path}: input "{value.name}" has open dimensions; bind them first')
        feeds[value.name] = rng.standard_normal(shape).astype(TYPES[tensor.elem_type])
    return feeds


def run_ort(path, threads, batch):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session, feeds = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]), inputs_of(path, batch)
    return lambda: session.run(None, feeds)


def run_openvino(path, threads, batch):
    import openvino as ov

    core, feeds = ov.Core(), inputs_of(path, batch)
    model = core.read_model(path)
    model.reshape({name: list(array.shape) for name, array in feeds.items()})
    request = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}).create_infer_request()
    return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)


def measure(run, seconds):
    """Median milliseconds of at least 10 runs."""
    end = time.perf_counter() + seconds / 10
    while time.perf_counter() < end:
        run()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 10 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def one(args, peer, path):
    """One process of one peer: median milliseconds of a run."""
    common = ["--threads", str(args.threads), "--seconds", str(args.seconds)]
    if peer == "octavo":
        command = [args.octavo, "bench", path, "--json", *common] + (["--batch", str(args.batch)] if args.batch > 1 else [])
    else:
        command = [sys.executable, __file__, path, "--one", peer, *common, "--batch", str(args.batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}\n{done.stderr.strip() or done.stdout.strip()}")
    return json.loads(done.stdout.splitlines()[-1])["median_ms"]


def compare(args, paths, progress=True):
    """{path: {peer: milliseconds}}"""
    results = {}
    for path in paths:
        rounds = {peer: [] for peer in args.peers}
        for _ in range(args.rounds):
            for peer in args.peers:
                rounds[peer].append(one(args, peer, path))
        results[path] = {peer: statistics.median(ms) for peer, ms in rounds.items()}
        if progress and sys.stderr.isatty():
            print(f"{path}: {results[path]}", file=sys.stderr)
    return results


def table(args, results):
    """Markdown: milliseconds an image, and each other engine's time over Octavo's."""
    others = [p for p in args.peers if p != "octavo"]
    head = ["model"] + [f"{NAMES[p]}, ms" for p in args.peers] + [f"{NAMES[p]} ÷ Octavo" for p in others]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for path, ms in results.items():
        cells = [pathlib.Path(path).stem] + [f"{ms[p] / args.batch:.3f}" for p in args.peers] + [f"{ms[p] / ms['octavo']:.2f}" for p in others]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def arguments(parser):
    parser.add_argument("--peers", type=lambda t: t.split(","), default=["octavo", "ort"])
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("-b", "--batch", type=int, default=1)
    parser.add_argument("-s", "--seconds", type=float, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo")), help="the octavo command")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--one", choices=["ort", "openvino"], help=argparse.SUPPRESS)
    arguments(parser)
    args = parser.parse_args()
    if args.one:
        run = {"ort": run_ort, "openvino": run_openvino}[args.one](args.models[0], args.threads, args.batch)
        print(json.dumps({"median_ms": measure(run, args.seconds)}))
        return
    print(f"{args.threads} thread{'s' * (args.threads > 1)}, batch {args.batch}, milliseconds an image, median of {args.rounds} interleaved rounds")
    print(table(args, compare(args, args.models)))


if __name__ == "__main__":
    main()
