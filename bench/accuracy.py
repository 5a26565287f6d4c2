"""Accuracy of octavo quantize: even-numbered images (sorted by name) calibrate, odd ones evaluate.

usage: accuracy.py [--build DIR] [--data DIR] [--threads N] [--out FOLDER] [--forms A,B] [--record NAME] [NETWORK...]      needs nothing but Python and the built command

Prints a Markdown table: the metric of float and of each form (top-1; average precision of detectors; for the text detector the overlap of the
pixels that it and the float network mark), and SQNR in dB: 10 log10(sum float^2 / sum (int8 - float)^2) over the network's
outputs on the evaluation half. Every choice is made on the calibration half. `--out` keeps the models and the JSON of `octavo eval`.
Detectors are also evaluated on all photos: 20 are few for an average over categories.
Networks and pictures come from the shared test data (OCTAVO_TEST_DATA, default ../shared).
"""
import argparse
import csv
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import figures

TITLE = "accuracy of octavo quantize"
ROOT = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = {  # name: file, pictures, recipe, the least SQNR that issue 16 asks for
    "mobilenetv2_op17": ("mobilenetv2_op17_fp32.onnx.xz", "imagenet", ["--preset", "torch"], 22.5),
    "mobilenetv1_025": ("mobilenetv1_025_224_fp32.onnx", "imagenet", ["--preset", "tf"], 12.0),
    "resnet20_cifar10": ("resnet20_cifar10_fp32.onnx", "cifar10", ["--preset", "cifar"], 29.5),
    "resnet56_cifar10": ("resnet56_cifar10_fp32.onnx", "cifar10", ["--preset", "cifar"], 28.5),
    "yolox_nano": ("yolox_nano_416.onnx", "coco", ["--preset", "yolox"], None),
    "nanodet_m": ("nanodet_m_416.onnx", "coco", ["--bgr", "--mean", "103.53,116.28,123.675", "--std", "57.375,57.12,58.395"], None),
    "ppocrv3_det": ("ppocrv3_det_op14.onnx", "text", ["--preset", "torch", "--letterbox", "124", "--shapes", "x:1x3x448x704"], None),
}
MEASURES = {"imagenet": "top1", "cifar10": "top1", "coco": "mAP@.5", "text": "text_pixels"}
FORMS = {  # name: options of quantize, the file it writes
    "table min-max": (["--method", "minmax"], "minmax.cache"),
    "table default": ([], "default.cache"),
    "JSON default": ([], "default.json"),  # with zero points
    "JSON and float model": (["--float-model"], "with-model.json"),
    "table and float model": (["--float-model"], "with-model.cache"),  # the float model that the table belongs to is corrected
    "Q/DQ nearest": (["--rounding", "nearest", "--no-bias-correction", "--weights", "minmax", "--no-equalization"], "nearest.onnx"),
    "Q/DQ bias": (["--rounding", "nearest"], "bias.onnx"),
    "Q/DQ default": ([], "default.onnx"),
    "Q/DQ 8 stages": (["--stages", "8"], "stages.onnx"),
}


def images(folder, kind):
    """(path, class, name within its half), in the order that decides about even and odd."""
    if kind in ("coco", "text"):
        return [(f, 0) for f in sorted((folder / kind).glob("*.jpg"))]
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
            (folder / (path.name if kind == "coco" else f"{i:04}{path.suffix}")).symlink_to(path.resolve())  # COCO's labels go by name
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
    figures.add_option(parser)
    args = parser.parse_args()
    octavo = args.build / "bin/octavo"
    results, facts = {}, {}
    figures.claim(results, octavo)

    def run(*command):
        done = subprocess.run([octavo, *map(str, command)], capture_output=True, text=True, check=False, env={"OCTAVO_PYTHON": sys.executable, **os.environ})
        if done.returncode != 0:
            raise SystemExit(f"octavo {' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    with tempfile.TemporaryDirectory() as scratch:
        tmp = pathlib.Path(scratch)
        out = args.out or tmp
        out.mkdir(parents=True, exist_ok=True)
        folders = {}
        print("| network | form | metric | int8 | float | same top-1 | SQNR, dB | at least | layers int8, float | quantized in, s |\n"
              "|---|---|---|---:|---:|---:|---:|---:|---:|---:|")
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
                report = out / f"{name}.{written}.report.json"
                run("quantize", model, "--data", calibration, *recipe, *options, "--threads", args.threads, "--no-measure", "--report", report, "-o", result)
                seconds = time.monotonic() - begun
                layers = [layer["int8"] for layer in json.loads(report.read_text())["layers"]]
                shapes = recipe[recipe.index("--shapes"):] if "--shapes" in recipe else []
                if corrected:
                    run("build", corrected, *shapes, "--calibration", result, "--effort", 0, "--threads", 1, "-o",
                        out / f"{name}.{written}.octavo")
                    result = out / f"{name}.{written}.octavo"
                also = ["--calibration", result] if written.endswith((".cache", ".json")) and not corrected else [result]
                measure = MEASURES[kind]
                asked = {"coco": ["--metric", "map50", "--labels", args.data / "images/coco/instances.json"],
                         "text": ["--metric", ROOT / "bench/text_pixels.py"]}.get(kind, ["--labels", labels])
                for half, where in {"": evaluation, **({" (all photos)": args.data / "images/coco"} if kind == "coco" else {})}.items():
                    run("eval", model, *also, "--data", where, *recipe, *asked, "--threads", args.threads, "--json", out / f"{name}.{written}.json")
                    exact, got = json.loads((out / f"{name}.{written}.json").read_text())["models"]
                    same = f"{100 * got['same_top']:.1f}" if "same_top" in got else ""
                    print(f"| {name} | {form}{half} | {measure} | {100 * got[measure]:.1f} | {100 * exact[measure]:.1f} | {same} | {got['sqnr_db']:.2f} | "
                          f"{least or ''} | {sum(layers)}, {len(layers) - sum(layers)} | {seconds:.1f} |", flush=True)
                    facts[f"{name}, {form}{half}"] = {"metric": measure, "int8": f"{100 * got[measure]:.1f}", "float": f"{100 * exact[measure]:.1f}", "same": same or "–",
                                                      "sqnr": f"{got['sqnr_db']:.2f}", "least": str(least or "–"), "layers": f"{sum(layers)}, {len(layers) - sum(layers)}"}
    if args.record:
        columns = [["metric", "metric"], ["int8", "int8"], ["float", "float"], ["same", "same top-1"], ["sqnr", "signal to noise, dB"], ["least", "at least"],
                   ["layers", "layers int8, float"]]
        figures.save(figures.record(results, {TITLE: {row: {} for row in facts}}, views={TITLE: {"columns": columns, "facts": facts}}), args.record)


if __name__ == "__main__":
    main()
