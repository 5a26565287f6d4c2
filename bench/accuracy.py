"""Accuracy of octavo quantize: even-numbered images (sorted by name) calibrate, odd ones evaluate.

usage: accuracy.py [--build DIR] [--data DIR] [--threads N] [--out FOLDER] [NETWORK...]      needs nothing but Python and the built command

Prints a Markdown table: top-1 of float and of each form, and SQNR in dB: 10 log10(sum float^2 / sum (int8 - float)^2) over the network's
outputs on the evaluation half. Every choice is made on the calibration half. `--out` keeps the models and the JSON of `octavo eval`.
Networks and pictures come from the shared test data (OCTAVO_TEST_DATA, default ../shared).
"""
import argparse
import csv
import json
import lzma
import os
import pathlib
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = {  # name: file, pictures, recipe, the least SQNR that issue 16 asks for
    "mobilenetv2_op17": ("mobilenetv2_op17_fp32.onnx.xz", "imagenet", ["--preset", "torch"], 22.5),
    "mobilenetv1_025": ("mobilenetv1_025_224_fp32.onnx", "imagenet", ["--preset", "tf"], 12.0),
    "resnet20_cifar10": ("resnet20_cifar10_fp32.onnx", "cifar10", ["--preset", "cifar"], 29.5),
    "resnet56_cifar10": ("resnet56_cifar10_fp32.onnx", "cifar10", ["--preset", "cifar"], 28.5),
}
FORMS = {  # name: options of quantize, the file it writes
    "table min-max": (["--method", "minmax"], "minmax.cache"),
    "table default": ([], "default.cache"),
    "table and float model": (["--float-model"], "with-model.cache"),  # the float model that the table belongs to is corrected
    "Q/DQ nearest": (["--rounding", "nearest", "--no-bias-correction", "--weights", "minmax", "--no-equalization"], "nearest.onnx"),
    "Q/DQ bias": (["--rounding", "nearest"], "bias.onnx"),
    "Q/DQ default": ([], "default.onnx"),
    "Q/DQ 8 stages": (["--stages", "8"], "stages.onnx"),
}


def images(folder, kind):
    """(path, class, name within its half), in the order that decides about even and odd."""
    if kind == "imagenet":
        rows = sorted(csv.DictReader((folder / kind / "labels.csv").open()), key=lambda r: r["file"])
        return [(folder / kind / r["file"], int(r["class_index"])) for r in rows]
    classes = sorted(d.name for d in (folder / kind).iterdir() if d.is_dir())
    return sorted(((f, classes.index(d)) for d in classes for f in (folder / kind / d).iterdir()), key=lambda x: (x[0].name, x[1]))


def halves(where, data, kind):
    """Folders of links: calibration, evaluation; and the labels of the second, one a line in the order of the command's data."""
    listed, made = images(data / "images", kind), []
    for half in (0, 1):
        folder = where / f"{kind}{half}"
        folder.mkdir()
        labels = []
        for i, (path, label) in enumerate(listed[half::2]):
            (folder / f"{i:04}{path.suffix}").symlink_to(path.resolve())
            labels.append(str(label))
        (where / f"{kind}{half}.txt").write_text("\n".join(labels) + "\n")
        made.append(folder)
    return *made, where / f"{kind}1.txt"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared")))
    parser.add_argument("--threads", default="0")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--forms", default=",".join(FORMS), help="names of forms, separated by commas")
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    args = parser.parse_args()
    octavo = args.build / "bin/octavo"

    def run(*command):
        done = subprocess.run([octavo, *map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"octavo {' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    with tempfile.TemporaryDirectory() as scratch:
        tmp = pathlib.Path(scratch)
        out = args.out or tmp
        out.mkdir(parents=True, exist_ok=True)
        folders = {}
        print("| network | form | top-1 | float's | same top-1 | SQNR, dB | at least | quantized in, s |\n|---|---|---:|---:|---:|---:|---:|---:|")
        for name in args.networks or NETWORKS:
            file, kind, recipe, least = NETWORKS[name]
            model = args.data / "models" / file
            if model.suffix == ".xz":
                (tmp / f"{name}.onnx").write_bytes(lzma.decompress(model.read_bytes()))
                model = tmp / f"{name}.onnx"
            if kind not in folders:
                folders[kind] = halves(tmp, args.data, kind)
            calibration, evaluation, labels = folders[kind]
            for form in args.forms.split(","):
                options, written = FORMS[form]
                corrected = out / f"{name}.{written}.float.onnx" if "--float-model" in options else None
                options = [*options, corrected] if corrected else options
                result, begun = out / f"{name}.{written}", time.monotonic()
                run("quantize", model, "--data", calibration, *recipe, *options, "--threads", args.threads, "--no-measure", "-o", result)
                seconds = time.monotonic() - begun
                if corrected:
                    run("build", corrected, "--calibration", result, "--effort", 0, "--threads", 1, "-o",
                        out / f"{name}.{written}.octavo")
                    result = out / f"{name}.{written}.octavo"
                also = ["--calibration", result] if written.endswith(".cache") and not corrected else [result]
                run("eval", model, *also, "--data", evaluation, *recipe, "--labels", labels, "--threads", args.threads, "--json",
                    out / f"{name}.{written}.json")
                exact, got = json.loads((out / f"{name}.{written}.json").read_text())["models"]
                print(f"| {name} | {form} | {100 * got['top1']:.1f} | {100 * exact['top1']:.1f} | {100 * got['same_top']:.1f} | "
                      f"{got['sqnr_db']:.2f} | {least} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
