"""Octavo, ONNX Runtime and OpenVINO on four networks with Q/DQ in two placements, one thread: the table of docs/performance.md.

The networks (ResNet50, MobileNetV2, a YOLOv8n-like one and a U-Net, weights seeded) and the placements come from the test data's bench
folder, whose place is OCTAVO_TEST_DATA (default ../shared).

usage: parity_cpu.py [--models DIR] [--styles outputs,residual] [--write] [compare.py's options]      about 10 minutes
"""
import argparse
import importlib.metadata
import os
import pathlib
import subprocess
import sys

import compare

DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", compare.ROOT / "../shared")).resolve()
NETS = ("resnet50", "mobilenet_v2", "yolov8n", "unet")


def make(folder, styles):
    """Paths of the quantized networks, made where they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    if not all((folder / f"{net}.onnx").exists() for net in NETS):
        subprocess.run([sys.executable, DATA / "bench/zoo.py", folder], check=True, stdout=sys.stderr)
    paths = []
    for net in NETS:
        for style in styles:
            path = folder / f"{net}_{style}.onnx"
            if not path.exists():
                subprocess.run([sys.executable, DATA / "bench/placements.py", folder / f"{net}.onnx", path, style], check=True, stdout=sys.stderr)
            paths.append(str(path))
    return paths


TEXT = """# Times beside ONNX Runtime and OpenVINO

Written by `bench/parity_cpu.py --write`: milliseconds an image on one thread, batch 1; median of {rounds} rounds, in which the engines took
turns, each measurement in a process of its own. {machine}; {versions}. The networks have the shapes of the real ones and seeded
weights; `_outputs` and `_residual` are two placements of Q/DQ pairs, int8 symmetric activations and weights per output channel. A ratio
above 1 means that Octavo is faster.

"""


def machine():
    """The processor's name."""
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, default=compare.ROOT / "build/bench_models", help="where the networks are kept")
    parser.add_argument("--styles", type=lambda t: t.split(","), default=["outputs", "residual"])
    parser.add_argument("--nets", type=lambda t: t.split(","), help="only these")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    compare.arguments(parser)
    parser.set_defaults(peers=["octavo", "ort", "openvino"], rounds=3)
    args = parser.parse_args()
    if not (DATA / "bench/zoo.py").exists():
        sys.exit(f"error: no test data at {DATA}; set OCTAVO_TEST_DATA")
    paths = [p for p in make(args.models, args.styles) if not args.nets or any(pathlib.Path(p).stem.startswith(n) for n in args.nets)]
    table = compare.table(args, compare.compare(args, paths))
    print(table)
    if args.write:
        packages = {"ort": "onnxruntime", "openvino": "openvino"}
        versions = ", ".join(f"{compare.NAMES[p]} {importlib.metadata.version(packages[p])}" for p in args.peers if p in packages)
        text = TEXT.format(rounds=args.rounds, machine=machine(), versions=versions)
        (compare.ROOT / "docs/performance.md").write_text(text + table + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
