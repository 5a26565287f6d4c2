"""octavo eval --metric: COCO's average precision of detectors against numbers of pycocotools, and metrics in a Python file."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared"))
SIDE, CLASSES, BINS = 64, 3, 4
SIZES = [(80, 60), (64, 64), (50, 100), (128, 96)]  # width, height


def run(*args, code=0, python=sys.executable):
    env = {**os.environ, "OCTAVO_PYTHON": python}
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=600, env=env)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def cells():
    return [(s, x, y) for s in (8, 16, 32) for y in range(SIDE // s) for x in range(SIDE // s)]


def network(path, outputs):
    """A network whose outputs are `outputs` plus the mean of its input, which is small, times a pattern: not the same for two pictures."""
    h = onnx.helper
    nodes, values, infos = [h.make_node("ReduceMean", ["image"], ["mean"], keepdims=0)], [], []
    for name, base in outputs.items():
        pattern = np.random.default_rng(len(name)).standard_normal(base.shape).astype(np.float32)
        values += [onnx.numpy_helper.from_array(base.astype(np.float32), f"{name}.base"), onnx.numpy_helper.from_array(pattern, f"{name}.p")]
        nodes += [h.make_node("Mul", ["mean", f"{name}.p"], [f"{name}.m"]), h.make_node("Add", [f"{name}.base", f"{name}.m"], [name])]
        infos.append(h.make_tensor_value_info(name, 1, base.shape))
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("image", 1, [1, 3, SIDE, SIDE])], infos, values)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)


def heads(rng):
    count = len(cells())
    score = np.where(rng.random((1, count, CLASSES)) < 0.15, rng.random((1, count, CLASSES)), 0.001)
    yolox = np.concatenate([rng.uniform(0, 1, (1, count, 2)), rng.uniform(0, 1.2, (1, count, 2)), rng.uniform(0.3, 1, (1, count, 1)), score], 2)
    nano, start = {}, 0
    for s in (8, 16, 32):
        n = (SIDE // s) ** 2
        nano[f"cls{s}"] = score[:, start:start + n]
        start += n
    for s in (8, 16, 32):
        nano[f"dis{s}"] = 3 * rng.standard_normal((1, (SIDE // s) ** 2, 4 * BINS))
    rng = np.random.default_rng(12)  # those above stay as they were

    def ready(rows):  # center and size in pixels
        some = rng.random((1, rows, CLASSES))
        return (rng.uniform(4, 60, (1, rows, 2)), rng.uniform(4, 24, (1, rows, 2)), np.where(some < 0.15, rng.random((1, rows, CLASSES)), 0.0001))

    x5, w5, s5 = ready(3 * count)
    v5 = np.concatenate([x5, w5, rng.uniform(0.3, 1, (1, 3 * count, 1)), s5], 2)
    x8, w8, s8 = ready(count)
    v8 = np.concatenate([x8, w8, s8], 2).transpose(0, 2, 1)
    sides = 2 * rng.standard_normal((1, 4 * 16, count))
    raw = np.concatenate([sides, np.log(s8 / (1 - s8)).transpose(0, 2, 1)], 1)
    corner, size, best = rng.uniform(0, 50, (1, 40, 2)), rng.uniform(4, 24, (1, 40, 2)), rng.random((1, 40, 1))
    chosen = np.concatenate([corner, corner + size, best, rng.integers(0, CLASSES, (1, 40, 1)) + 0.5], 2)
    return {"yolox": {"out": yolox}, "nanodet": nano, "yolov5": {"out": v5}, "yolov8": {"out": v8}, "yolov8-raw": {"out": raw}, "chosen": {"out": chosen}}


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Pictures of different sizes, both kinds of heads, and objects next to what the heads say (some of them crowds)."""
    folder, rng = tmp_path_factory.mktemp("detectors"), np.random.default_rng(11)
    (folder / "pictures").mkdir()
    for i, (width, height) in enumerate(SIZES):
        Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8)).save(folder / f"pictures/{i}.png")
    for kind, outputs in heads(rng).items():
        network(folder / f"{kind}.onnx", outputs)
        for letterbox in ("", "114"):
            objects = []
            for i, (width, height) in enumerate(SIZES):
                across, down = scales(i, letterbox)
                found = boxes_of(kind, outputs)
                for k in rng.permutation(len(found))[:8]:
                    c, _, x, y, w, h = found[k]
                    jitter = rng.uniform(0.8, 1.25, 2) if k % 4 else np.array([3.0, 3.0])
                    box = [x / across, y / down, w * jitter[0] / across, h * jitter[1] / down]
                    objects.append({"id": len(objects) + 1, "image_id": 10 + i, "category_id": [2, 5, 7][c], "bbox": box, "area": box[2] * box[3],
                                    "iscrowd": int(k % 4 == 0)})
            coco = {"images": [{"id": 10 + i, "file_name": f"{i}.png", "width": w, "height": h} for i, (w, h) in enumerate(SIZES)],
                    "annotations": objects, "categories": [{"id": i, "name": str(i)} for i in (7, 2, 5)]}
            (folder / f"{kind}{letterbox}.json").write_text(json.dumps(coco))
    return folder


def scales(picture, letterbox):
    """Pixels of the input for one of the picture."""
    width, height = SIZES[picture]
    across, down = SIDE / width, SIDE / height
    return (min(across, down),) * 2 if letterbox else (across, down)


def evaluate(scene, model, *args, labels=None, code=0):
    common = ("--data", scene / "pictures", "--scale", "1/25500", "--metric", "map50", "--labels", labels or scene / "yolox.json")
    return run("eval", scene / model, *common, *args, code=code)


def boxes_of(kind, out):
    """The boxes of one run by the definition of the head, in pixels of the input: (class, score, x, y, w, h), doubles suppressed."""
    found = []
    if kind == "yolox":
        for (s, cx, cy), v in zip(cells(), out["out"][0], strict=True):
            c = int(v[5:].argmax())
            w, h = np.exp(v[2:4]) * s
            x, y = (v[0] + cx) * s, (v[1] + cy) * s
            found.append((c, v[4] * v[5 + c], x - w / 2, y - h / 2, w, h))
        least, most = 0.01, 0.65
    elif kind in ("yolov5", "yolov8"):
        for row in out["out"][0] if kind == "yolov5" else out["out"][0].T:
            x, y, w, h = row[:4]
            object_, scores = (row[4], row[5:]) if kind == "yolov5" else (1, row[4:])
            found += [(c, object_ * score, x - w / 2, y - h / 2, w, h) for c, score in enumerate(scores)]
        least, most = 0.001, 0.6 if kind == "yolov5" else 0.7
    elif kind == "yolov8-raw":
        for (s, cx, cy), row in zip(cells(), out["out"][0].T.astype(np.float64), strict=True):
            p = np.exp(row[:64].reshape(4, 16))
            left, top, right, bottom = (p / p.sum(1, keepdims=True) @ np.arange(16)) * s
            x, y = (cx + 0.5) * s - left, (cy + 0.5) * s - top
            found += [(c, 1 / (1 + np.exp(-logit)), x, y, left + right, top + bottom) for c, logit in enumerate(row[64:])]
        least, most = 0.001, 0.7
    elif kind == "chosen":
        found = [(int(c), score, x0, y0, x1 - x0, y1 - y0) for x0, y0, x1, y1, score, c in out["out"][0]]
        least, most = 0.001, 2  # the network has suppressed doubles
    else:
        for s in (8, 16, 32):
            for i, (v, d) in enumerate(zip(out[f"cls{s}"][0], out[f"dis{s}"][0], strict=True)):
                p = np.exp(d.reshape(4, BINS).astype(np.float64))
                left, top, right, bottom = (p / p.sum(1, keepdims=True) @ np.arange(BINS)) * s
                x, y = (i % (SIDE // s) + 0.5) * s, (i // (SIDE // s) + 0.5) * s
                x0, y0 = max(0, x - left), max(0, y - top)
                found += [(c, score, x0, y0, min(SIDE, x + right) - x0, min(SIDE, y + bottom) - y0) for c, score in enumerate(v)]
        least, most = 0.05, 0.6

    def iou(a, b):
        w = min(a[2] + a[4], b[2] + b[4]) - max(a[2], b[2])
        h = min(a[3] + a[5], b[3] + b[5]) - max(a[3], b[3])
        both = max(w, 0) * max(h, 0)
        return both / (a[4] * a[5] + b[4] * b[5] - both)

    kept = []
    for f in sorted((f for f in found if f[1] >= least), key=lambda f: -f[1]):
        if all(k[0] != f[0] or iou(k, f) <= most for k in kept):
            kept.append(f)
    return {"yolox": kept, "nanodet": kept[:100]}.get(kind, kept[:300])


def reference(scene, kind, folder, letterbox):
    """By pycocotools, from the outputs that `octavo eval --save` wrote."""
    from pycocotools.coco import COCO  # noqa: PLC0415
    from pycocotools.cocoeval import COCOeval  # noqa: PLC0415

    results = []
    for i in range(len(SIZES)):
        arrays = {k.split(".", 1)[1]: v for k, v in np.load(folder / f"{i:05}.npz").items()}
        across, down = scales(i, letterbox)
        for c, score, x, y, w, h in boxes_of(kind, arrays):
            results.append({"image_id": 10 + i, "category_id": [2, 5, 7][c], "score": float(score), "bbox": [x / across, y / down, w / across, h / down]})
    truth = COCO(str(scene / f"{kind}{letterbox}.json"))
    e = COCOeval(truth, truth.loadRes(results), "bbox")
    e.params.iouThrs = np.array([0.5])
    e.evaluate()
    e.accumulate()
    precision = e.eval["precision"][0, :, :, 0, -1]
    return float(precision[precision > -1].mean())


# of version 2.0.11 on this scene, for where it is not installed
PYCOCOTOOLS = {("yolox", ""): 0.282407, ("yolox", "114"): 0.290525, ("nanodet", ""): 0.315795, ("nanodet", "114"): 0.441129,
               ("yolov5", ""): 0.081460, ("yolov5", "114"): 0.114520, ("yolov8", ""): 0.260216, ("yolov8", "114"): 0.239972,
               ("yolov8-raw", ""): 0.543963, ("yolov8-raw", "114"): 0.538965, ("chosen", ""): 0.322279, ("chosen", "114"): 0.285455}


@pytest.mark.parametrize(("kind", "letterbox"), PYCOCOTOOLS)
def test_average_precision_is_that_of_pycocotools(scene, tmp_path, kind, letterbox):
    recipe = ("--letterbox", letterbox) if letterbox else ()
    out = evaluate(scene, f"{kind}.onnx", *recipe, "--json", tmp_path / "e.json", "--save", tmp_path / "saved",
                   labels=scene / f"{kind}{letterbox}.json").stdout
    ours = json.loads((tmp_path / "e.json").read_text())["models"][0]["mAP@.5"]
    try:
        theirs = reference(scene, kind, tmp_path / "saved", letterbox)
    except ImportError:
        theirs = PYCOCOTOOLS[kind, letterbox]
    assert ours == pytest.approx(theirs, abs=1e-6) and f"{100 * ours:.1f} %" in out
    assert theirs == pytest.approx(PYCOCOTOOLS[kind, letterbox], abs=1e-4) and theirs > 0.05


def test_labels_that_do_not_fit_are_named(scene, tmp_path):
    coco = json.loads((scene / "yolox.json").read_text())

    def wrong(text, **change):
        (tmp_path / "l.json").write_text(json.dumps({**coco, **change}))
        assert text in evaluate(scene, "yolox.onnx", labels=tmp_path / "l.json", code=5).stderr

    wrong('no picture "0.png" in it', images=coco["images"][1:])
    wrong("2 categories, and the network knows 3 classes", categories=coco["categories"][:2], annotations=[])
    wrong("category 99, which is not among", annotations=[{**coco["annotations"][0], "category_id": 99}])
    wrong("not a COCO file of objects", annotations=[{"id": 1}])
    wrong("no object in any of the pictures", annotations=[])
    (tmp_path / "l.json").write_text("file,class_index\n")
    assert "not a COCO file" in evaluate(scene, "yolox.onnx", labels=tmp_path / "l.json", code=5).stderr
    common = ("eval", scene / "yolox.onnx", "--data", scene / "pictures")
    assert "give --labels instances.json" in run(*common, "--metric", "map50", code=2).stderr
    assert "known are top1, top5, sqnr, map50" in run(*common, "--metric", "fid", code=2).stderr
    assert "boxes of cropped pictures" in evaluate(scene, "yolox.onnx", "--crop", "32", code=2).stderr


def test_outputs_that_are_no_head_are_named(scene, tmp_path):
    network(tmp_path / "m.onnx", {"scores": np.zeros((1, 10))})
    done = evaluate(scene, tmp_path / "m.onnx", code=2)
    assert 'no head that is known has the outputs "scores" f32[1,10]' in done.stderr and "--metric FILE.py" in done.stderr


def test_a_class_that_the_labels_lack_is_named(scene, tmp_path):
    network(tmp_path / "m.onnx", {"out": np.float32([[[1, 1, 20, 20, 0.9, 7.5]]])})
    assert "a box has class 7 (from 0), and the labels have 3 categories" in evaluate(scene, tmp_path / "m.onnx", code=5).stderr


def test_a_metric_in_a_python_file(scene, tmp_path):
    (tmp_path / "largest.py").write_text("""
def metric(outputs, reference, samples, labels):
    assert len(outputs) == len(samples) == 4 and labels is None and samples[0].endswith("0.png")
    assert all(abs(a["out"] - b["out"]).max() < 1e-3 for a, b in zip(outputs, reference))
    return max(o["out"].max() for o in outputs)
""")
    common = ("eval", scene / "yolox.onnx", scene / "yolox.onnx", "--data", scene / "pictures", "--scale", "1/25500")
    run(*common, "--metric", f"{tmp_path / 'largest.py'},sqnr", "--json", tmp_path / "e.json", "--save", tmp_path / "saved")
    largest = max(np.load(tmp_path / f"saved/{i:05}.npz")["0.out"].max() for i in range(4))
    assert [m["largest"] for m in json.loads((tmp_path / "e.json").read_text())["models"]] == [pytest.approx(largest)] * 2
    for text, said in (("def metric(o, r, s, l): raise ValueError('bad day')", "bad day"), ("x = 1", "no attribute 'metric'"),
                       ("def metric(o, r, s, l): return float('nan')", "a result is not a number")):
        (tmp_path / "m.py").write_text(text)
        assert said in run(*common, "--metric", tmp_path / "m.py", code=5).stderr
    assert "no such file" in run(*common, "--metric", tmp_path / "none.py", code=7).stderr
    done = run(*common, "--metric", tmp_path / "m.py", code=5, python="/bin/true")
    assert '"/bin/true" was started to run it, and wrote no result' in done.stderr and "OCTAVO_PYTHON names" in done.stderr


@pytest.mark.skipif(not (DATA / "images/coco").exists(), reason="no shared test data")
def test_detectors_on_photos():
    done = run("eval", DATA / "models/yolox_nano_416.onnx", "--data", DATA / "images/coco", "--preset", "yolox", "--metric", "map50", "--labels",
               DATA / "images/coco/instances.json")
    assert 52 < float(done.stdout.splitlines()[2].split()[0]) < 57  # 0.483 on all of coco128
