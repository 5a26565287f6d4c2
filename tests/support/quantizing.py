"""Running octavo quantize in tests: the digits, their pictures, and networks that are hard to quantize."""
import os
import pathlib
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared"))
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DIGITS = ROOT / "examples/digits"
FP32, QDQ, PICTURES = DIGITS / "digits_fp32.onnx", DIGITS / "digits_qdq.onnx", DIGITS / "images"
RECIPE = ("--scale", "1/255", "--effort", 0)


def run(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=600)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def pictures(data):
    """Are there any among the data? A recipe for them is refused where there are none."""
    data = pathlib.Path(data)
    files = [data] if data.is_file() else list(data.iterdir()) if data.is_dir() else []
    return not data.exists() or any(f.suffix.lower() in (".png", ".jpg", ".jpeg") for f in files)


def quantize(output, *args, data=PICTURES, model=FP32, code=0):
    threads = () if "--threads" in args else ("--threads", 2)
    recipe = (RECIPE[:2] if pictures(data) else ()) + (RECIPE[2:] if str(output).endswith(".octavo") else ())
    return run("quantize", model, "--data", data, *recipe, *threads, *args, "-o", output, code=code)


def every_form(folder):
    """Every form of output, each with what was printed and its report."""
    for name in ("model.q.onnx", "ranges.cache", "ranges.json", "model.octavo"):
        (folder / f"{name}.txt").write_text(quantize(folder / name, "--report", folder / f"{name}.report").stdout)
    return folder


def bottlenecks(path, rng=np.random.default_rng(5)):
    """Two inverted bottlenecks with an addition, as in MobileNetV2, whose channels are up to 40 times as wide as others."""
    nodes, values = [], []

    def conv(x, y, outs, ins, kernel=1, group=1):
        unlike = 40.0 ** (rng.random(outs) - 1)
        w = (rng.standard_normal((outs, ins // group, kernel, kernel)) * unlike[:, None, None, None]).astype(np.float32)
        values.extend([onnx.numpy_helper.from_array(w, f"{y}.w"), onnx.numpy_helper.from_array((rng.standard_normal(outs) * unlike).astype(np.float32), f"{y}.b")])
        nodes.append(onnx.helper.make_node("Conv", [x, f"{y}.w", f"{y}.b"], [y], y, group=group, pads=[kernel // 2] * 4))

    def activation(op, x, y):
        nodes.append(onnx.helper.make_node(op, [x, *(["zero", "six"] if op == "Clip" else [])], [y], y))

    values.extend([onnx.numpy_helper.from_array(np.float32(v), name) for v, name in ((0, "zero"), (6, "six"))])
    conv("image", "first", 8, 1)
    for block, (op, x) in enumerate((("Relu", "first"), ("Clip", "sum0"))):
        conv(x, f"e{block}", 16, 8)
        activation(op, f"e{block}", f"ea{block}")
        conv(f"ea{block}", f"d{block}", 16, 16, 3, 16)
        activation(op, f"d{block}", f"da{block}")
        conv(f"da{block}", f"p{block}", 8, 16)
        nodes.append(onnx.helper.make_node("Add", [x, f"p{block}"], [f"sum{block}"], f"sum{block}"))
    conv("sum1", "scores", 4, 8)
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("image", 1, [1, 1, 16, 16])],
                                   [onnx.helper.make_tensor_value_info("scores", 1, [1, 4, 16, 16])], values)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


def unlike_channels(path, listed_as_inputs=False, drowned=False):
    """Channels that differ by a factor of 10,000 behind an activation that no factor passes, and a depthwise layer that makes them alike.
    `drowned`: what comes of it is added to something much larger."""
    h, rng = onnx.helper, np.random.default_rng(3)
    wide = np.logspace(-2, 2, 8).astype(np.float32)
    values = {"a.w": rng.standard_normal((8, 1, 3, 3)) * wide[:, None, None, None], "d.w": rng.standard_normal((8, 1, 3, 3)) / wide[:, None, None, None],
              "e.w": rng.standard_normal((4, 8, 1, 1))}
    nodes = [h.make_node("Conv", ["image", "a.w"], ["a"], "a", pads=[1] * 4), h.make_node("Sigmoid", ["a"], ["s"]), h.make_node("Mul", ["a", "s"], ["m"]),
             h.make_node("Conv", ["m", "d.w"], ["d"], "d", group=8, pads=[1] * 4), h.make_node("Conv", ["d", "e.w"], ["scores"], "e")]
    if drowned:
        nodes[-1].output[0] = "small"
        values["f.w"] = 1e4 * rng.standard_normal((4, 1, 3, 3))
        nodes += [h.make_node("Conv", ["image", "f.w"], ["f"], "f", pads=[1] * 4), h.make_node("Add", ["small", "f"], ["scores"])]
    infos = {name: h.make_tensor_value_info(name, 1, v.shape) for name, v in values.items()}
    inputs = [h.make_tensor_value_info("image", 1, [1, 1, 16, 16]), *(infos.values() if listed_as_inputs else ())]
    graph = h.make_graph(nodes, "g", inputs, [h.make_tensor_value_info("scores", 1, [1, 4, 16, 16])],
                         [onnx.numpy_helper.from_array(v.astype(np.float32), name) for name, v in values.items()])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=3 if listed_as_inputs else 8), path)
