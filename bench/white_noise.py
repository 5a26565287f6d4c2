"""What white noise of int8's size does to a detector's average precision: the float network with noise at the inputs of its last convolutions.

usage: white_noise.py [--build DIR] [--data DIR] [--db DB] [--seeds N] [--half even|odd|all] [--at in|out]     needs onnx, onnxruntime, numpy, pillow

NanoDet-m on the shared COCO photos. `--db`: how far the noise lies below each tensor, whose mean square is taken over the first ten photos of the
calibration half (`in`: of the whole tensor; `out`: noise at the results of the convolutions, of each channel). A seed's noise is the same for every photo.
Prints a row a seed (average precision at an overlap of 0.5, SQNR at the outputs), then mean, standard deviation, extremes and how many seeds stay within 1 point
of float. docs/lab/accuracy.md reports what it printed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from accuracy import NETWORKS, ROOT  # noqa: E402

onnxruntime.set_default_logger_severity(3)
LAST = ("Conv_292", "Conv_309", "Conv_326")
MEAN, STD = np.array([103.53, 116.28, 123.675], np.float32), np.array([57.375, 57.12, 58.395], np.float32)


def sizes(path, tensors, photos, by_channel):
    """{tensor: (shape, root mean square)} of the float network over `photos`."""
    model = onnx.load(path)
    model.graph.output.extend(helper.make_empty_tensor_value_info(t) for t in tensors)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    seen = {t: [] for t in tensors}
    for photo in photos:
        x = (np.asarray(Image.open(photo).convert("RGB").resize((416, 416)), np.float32)[:, :, ::-1] - MEAN) / STD
        for t, v in zip(tensors, session.run(tensors, {session.get_inputs()[0].name: np.ascontiguousarray(x.transpose(2, 0, 1))[None]})):
            seen[t].append(v.astype(np.float64))
    squares = {t: np.stack(v) ** 2 for t, v in seen.items()}
    return {t: (s.shape[1:], np.sqrt(s.mean((0, 1, 3, 4), keepdims=True)[0] if by_channel else s.mean())) for t, s in squares.items()}


def with_noise(path, found, db, seed):
    """The model with constant white noise added to the tensors of `found`."""
    rng, model = np.random.default_rng(seed), onnx.load(path)
    graph = model.graph
    for i, (tensor, (shape, rms)) in enumerate(found.items()):
        noise = (rng.standard_normal(shape) * rms * 10 ** (-db / 20)).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(noise, f"noise{i}"))
        for node in graph.node:
            for k, name in enumerate(node.input):
                if name == tensor:
                    node.input[k] = tensor + "_noisy"
        producer = next(k for k, node in enumerate(graph.node) if tensor in node.output)
        graph.node.insert(producer + 1, helper.make_node("Add", [tensor, f"noise{i}"], [tensor + "_noisy"], name=f"noise_add{i}"))
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared")))
    parser.add_argument("--db", type=float, default=22)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--half", choices=("even", "odd", "all"), default="odd")
    parser.add_argument("--at", choices=("in", "out"), default="in")
    args = parser.parse_args()
    file, kind, recipe, _ = NETWORKS["nanodet_m"]
    path, photos = args.data / "models" / file, sorted((args.data / "images" / kind).glob("*.jpg"))
    by_name = {n.name: n for n in onnx.load(path).graph.node}
    tensors = [by_name[c].input[0] if args.at == "in" else by_name[c].output[0] for c in LAST]
    found = sizes(path, tensors, photos[::2][:10], args.at == "out")
    with tempfile.TemporaryDirectory() as scratch:
        tmp = pathlib.Path(scratch)
        (tmp / "photos").mkdir()
        for photo in {"even": photos[::2], "odd": photos[1::2], "all": photos}[args.half]:
            (tmp / "photos" / photo.name).symlink_to(photo.resolve())
        models = []
        for seed in range(args.seeds):
            models.append(tmp / f"{seed}.onnx")
            onnx.save(with_noise(path, found, args.db, seed), models[-1])
        command = [args.build / "bin/octavo", "eval", path, *models, "--data", tmp / "photos", *recipe, "--metric", "map50", "--labels",
                   args.data / "images/coco/instances.json", "--json", tmp / "out.json"]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, env={"OCTAVO_PYTHON": sys.executable, **os.environ})
        exact, *noisy = json.loads((tmp / "out.json").read_text())["models"]
    points = np.array([100 * m["mAP@.5"] for m in noisy])
    for seed, m in enumerate(noisy):
        print(f"seed {seed}: {points[seed]:.2f}, {m['sqnr_db']:.2f} dB")
    kept = 100 * exact["mAP@.5"]
    print(f"float {kept:.2f}; with noise {points.mean():.2f}, standard deviation {points.std(ddof=min(1, len(points) - 1)):.2f}, {points.min():.2f} to "
          f"{points.max():.2f}; {int((points >= kept - 1).sum())} of {len(points)} seeds within 1 point of float")


if __name__ == "__main__":
    main()
