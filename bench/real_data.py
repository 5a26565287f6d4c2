"""The real models of the test data: which there are, how their pictures are prepared, and their Q/DQ variants.

OCTAVO_TEST_DATA (default ../shared) holds models/, images/ and bench/placements.py; its own README names sources and licences.
"""
import csv
import dataclasses
import lzma
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnx.version_converter
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared")).resolve()
IMAGENET_MEAN, IMAGENET_STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


@dataclasses.dataclass(frozen=True)
class Model:
    file: str
    input: str
    recipe: str  # a function below
    pictures: str  # imagenet, cifar10, coco, text
    shape: tuple = ()  # bound shape of one run, where the file leaves it open
    dtype: type = np.float32
    placements: tuple = ()  # styles of placements.py, with @percentile of the calibrated range


MODELS = (
    Model("mobilenetv2-12-qdq.onnx", "input", "torch", "imagenet", (1, 3, 224, 224)),
    Model("mobilenetv2_qdq_perchannel_s8.onnx", "image", "torch", "imagenet"),
    Model("mobilenetv2_op17_fp32.onnx.xz", "input", "torch", "imagenet", (1, 3, 224, 224)),
    Model("mobilenetv1_025_224_fp32.onnx", "input", "tf", "imagenet", (1, 3, 224, 224)),
    Model("squeezenet11_fp16.onnx", "data_0", "caffe", "imagenet", dtype=np.float16),
    Model("resnet20_cifar10_fp32.onnx", "input", "cifar", "cifar10", (1, 3, 32, 32), placements=("outputs", "residual")),
    Model("resnet56_cifar10_fp32.onnx", "input", "cifar", "cifar10", (1, 3, 32, 32), placements=("outputs", "residual")),
    Model("tinycnn_cifar_fp32.onnx", "input", "cifar", "cifar10"),
    Model("tinycnn_cifar_qoperator.onnx", "input", "cifar", "cifar10"),
    Model("yolox_nano_416.onnx", "images", "yolox", "coco", placements=("outputs", "inputs@99.9")),
    Model("nanodet_m_416.onnx", "input.1", "nanodet", "coco", placements=("outputs",)),
    Model("unet_small.onnx", "input", "grey", "coco", (1, 1, 224, 224), placements=("outputs",)),
    Model("ppocrv3_det_op14.onnx", "x", "text", "text", (1, 3, 320, 480), placements=("outputs",)),
    Model("retina_lp_mnet025.onnx", "input", "retina", "coco"),
    Model("yunet_120x160.onnx", "input", "yunet", "coco"),
)


def crop224(image):
    w, h = image.size
    image = image.resize((256 if w <= h else 256 * w // h, 256 if h <= w else 256 * h // w), Image.BILINEAR)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    return np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32)


def torch(image):
    return (crop224(image) / 255 - IMAGENET_MEAN) / IMAGENET_STD


def tf(image):
    return crop224(image) / np.float32(127.5) - 1


def caffe(image):
    return crop224(image)[..., ::-1] - np.float32([104, 117, 123])


def cifar(image):
    return (np.asarray(image, np.float32) / 255 - IMAGENET_MEAN) / IMAGENET_STD


def yolox(image):
    scale = min(416 / image.width, 416 / image.height)
    canvas = np.full((416, 416, 3), 114, np.float32)
    small = np.asarray(image.resize((int(image.width * scale), int(image.height * scale)), Image.BILINEAR), np.float32)
    canvas[: small.shape[0], : small.shape[1]] = small[..., ::-1]
    return canvas


def nanodet(image):
    bgr = np.asarray(image.resize((416, 416), Image.BILINEAR), np.float32)[..., ::-1]
    return (bgr - np.float32([103.53, 116.28, 123.675])) / np.float32([57.375, 57.12, 58.395])


def grey(image):
    return np.asarray(image.convert("L").resize((224, 224), Image.BILINEAR), np.float32)[..., None] / 255


def text(image):
    return (np.asarray(image.resize((480, 320), Image.BILINEAR), np.float32) / 255 - IMAGENET_MEAN) / IMAGENET_STD


def retina(image):
    return np.asarray(image.resize((640, 640), Image.BILINEAR), np.float32)[..., ::-1] - np.float32([104, 117, 123])


def yunet(image):
    return np.asarray(image.resize((160, 120), Image.BILINEAR), np.float32)[..., ::-1]


def as_uint8(path, to):
    """The same model with int8 activation codes written as uint8, zero points 128 higher: the same values. ONNX Runtime has integer kernels
    for uint8 activations only on x86, so its optimizations show on this form."""
    model = onnx.load(path)
    constants = {t.name: t for t in model.graph.initializer}
    used = {}
    for node in model.graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or len(node.input) < 3 or node.input[0] in constants:
            continue
        source = next((n for n in model.graph.node if node.input[0] in n.output), None)
        if source is not None and source.op_type == "QuantizeLinear" and source.input[0] in constants:
            continue  # weights
        if node.op_type == "QuantizeLinear" and node.input[0] in constants:
            continue
        zero = onnx.numpy_helper.to_array(constants[node.input[2]])
        if zero.dtype == np.int8:
            name = node.input[2] + "_u8"
            used[name] = (zero.astype(np.int32) + 128).astype(np.uint8)
            node.input[2] = name
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in used.items())
    onnx.save(model, to)
    return len(used)


def channels_of(model, constants, weight):
    """Input channels of a convolution whose weight is a constant, or Q/DQ of one; 0 if it is neither."""
    while weight not in constants:
        node = next((n for n in model.graph.node if weight in n.output), None)
        if node is None or node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            return 0
        weight = node.input[0]
    return constants[weight].shape[1]


def spell_out(path, to):
    """The same model with Sigmoid written as 1 / (1 + exp(-x)), BatchNormalization as (x - mean) / deviation * scale + bias, and each ordinary
    convolution as the sum of two over half the input channels each: the same functions, rounded differently in the last bits. Returns how
    many were found."""
    model = onnx.load(path)
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes, added, found = [], {"one/": np.float32(1)}, 0
    for node in model.graph.node:
        x, y = node.input[0], node.output[0]
        if node.op_type == "Sigmoid":
            steps = (("Neg", [x], "n"), ("Exp", [y + "/n"], "e"), ("Add", [y + "/e", "one/"], "a"), ("Div", ["one/", y + "/a"], ""))
        elif node.op_type == "BatchNormalization":
            scale, bias, mean, variance = (constants[name].reshape(-1, 1, 1) for name in node.input[1:])
            epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
            added |= {y + "/mean": mean, y + "/deviation": np.sqrt(variance + np.float32(epsilon)), y + "/scale": scale, y + "/bias": bias}
            steps = (("Sub", [x, y + "/mean"], "s"), ("Div", [y + "/s", y + "/deviation"], "d"), ("Mul", [y + "/d", y + "/scale"], "m"),
                     ("Add", [y + "/m", y + "/bias"], ""))
        elif node.op_type == "Conv" and all(a.i == 1 for a in node.attribute if a.name == "group"):
            w, zero, half, end = node.input[1], "zero/", y + "/half", "end/"
            channels = channels_of(model, constants, w)
            if channels < 2:
                nodes.append(node)
                continue
            added |= {zero: np.int64([0]), half: np.int64([channels // 2]), end: np.int64([1 << 30]), "axis/": np.int64([1])}
            for part, low, high, bias in (("a", zero, half, list(node.input[2:])), ("b", half, end, [])):
                for what, tensor in (("x", x), ("w", w)):
                    nodes.append(onnx.helper.make_node("Slice", [tensor, low, high, "axis/"], [f"{y}/{what}{part}"]))
                conv = onnx.helper.make_node("Conv", [f"{y}/x{part}", f"{y}/w{part}", *bias], [f"{y}/{part}"])
                conv.attribute.extend(node.attribute)
                nodes.append(conv)
            steps = (("Add", [y + "/a", y + "/b"], ""),)
        else:
            nodes.append(node)
            continue
        found += 1
        nodes += [onnx.helper.make_node(kind, inputs, [y + "/" + output if output else y]) for kind, inputs, output in steps]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in added.items())
    onnx.save(model, to)
    return found


RECIPES = {f.__name__: f for f in (torch, tf, caffe, cifar, yolox, nanodet, grey, text, retina, yunet)}


def pictures(kind, limit=None):
    """(paths, labels or None)"""
    folder = DATA / "images" / kind
    if kind == "imagenet":
        rows = list(csv.DictReader(open(folder / "labels.csv", newline="", encoding="utf-8")))[:limit]
        return [folder / r["file"] for r in rows], np.array([int(r["class_index"]) for r in rows])
    if kind == "cifar10":
        classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        paths = [p for name in classes for p in sorted((folder / name).glob("*.jpg"))][:limit]
        return paths, np.array([classes.index(p.parent.name) for p in paths])
    return sorted(folder.glob("*.jpg"))[: limit or (8 if kind == "coco" else None)], None


def feed(model, limit=None):
    """(array [n, C, H, W] in the model's input type, labels or None)"""
    paths, labels = pictures(model.pictures, limit)
    arrays = [RECIPES[model.recipe](Image.open(p).convert("RGB")).transpose(2, 0, 1) for p in paths]
    return np.ascontiguousarray(np.stack(arrays)).astype(model.dtype), labels


def at_opset_13(source, folder):
    """placements.py works on opset 13 and later, where Resize no longer takes empty scales beside sizes."""
    model = onnx.load(source)
    if next(o.version for o in model.opset_import if o.domain == "") >= 13:
        return source
    model = onnx.version_converter.convert_version(model, 13)
    for node in model.graph.node:
        if node.op_type == "Resize" and len(node.input) == 4 and node.input[3]:
            node.input[1] = node.input[2] = ""
    constants = {t.name for t in model.graph.initializer}  # old files list them as inputs too
    for value in [v for v in model.graph.input if v.name in constants]:
        model.graph.input.remove(value)
    path = folder / f"{source.stem}_op13.onnx"
    onnx.save(model, path)
    return path


def unpacked(model, folder):
    """The model's file; a compressed one is unpacked into `folder`."""
    source = DATA / "models" / model.file
    if source.suffix != ".xz":
        return source
    path = folder / source.stem
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.decompress(source.read_bytes()))
    return path


def variants(model, folder):
    """[(name, path)]: the file itself, and its Q/DQ variants, calibrated on some of its pictures, in `folder`."""
    source = unpacked(model, folder)
    found = [(source.stem, source)]
    for placement in model.placements:
        style, _, percentile = placement.partition("@")
        path = folder / f"{source.stem}_{style}{'_p' * bool(percentile)}{percentile}.onnx"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            calibration = folder / f"{source.stem}_calibration.npz"
            array, _ = feed(model)
            np.savez(calibration, **{model.input: array[:: max(1, len(array) // 16)]})
            command = [sys.executable, DATA / "bench/placements.py", at_opset_13(source, folder), path, style, "--calib", calibration]
            command += ["--percentile", percentile] if percentile else []
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append((path.stem, path))
    return found
