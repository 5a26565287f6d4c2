"""Errors of float convolutions of 3 x 3 taps beside sums in float64: Octavo's (by the tactic that its times choose, which is named), ONNX Runtime's, and of sums in the order of
docs/semantics.md: docs/lab/performance-float.md.

usage: winograd_errors.py
"""
import re
import subprocess
import tempfile
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import counterparts

SIZE, OUTPUTS = 28, 64
CASES = [(16, "normal"), (64, "normal"), (256, "normal"), (512, "normal"), (256, "relu"), (256, "0 to 255"), (256, "one pixel of 1e4")]


def inputs(rng, channels, kind):
    x = rng.standard_normal((1, channels, SIZE, SIZE)).astype(np.float32)
    if kind == "relu":
        x = np.maximum(x, 0)
    if kind == "0 to 255":
        x = (rng.random(x.shape) * 255).astype(np.float32)
    if kind == "one pixel of 1e4":
        x[0, :, 13, 13] = 1e4
    return x


def windows(x):
    """[input channel * tap, pixel]"""
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    return np.stack([padded[:, i:i + SIZE, j:j + SIZE] for i in range(3) for j in range(3)], 1).reshape(-1, SIZE * SIZE)


def in_order(x, w):
    """One fma after the other: a product of two floats is exact in float64."""
    total = np.zeros((OUTPUTS, SIZE * SIZE), np.float32)
    flat = w.reshape(OUTPUTS, -1).astype(np.float64)
    for k, row in enumerate(windows(x).astype(np.float64)):
        total = (total + flat[:, k:k + 1] * row).astype(np.float32)
    return total


def octavo(folder, model, x):
    """(outputs, the tactic of the convolution)"""
    command, engine = counterparts.octavo_command(), folder / "conv.octavo"
    np.savez(folder / "x.npz", x=x)
    subprocess.run([command, "build", model, "-o", engine, "--threads", "1", "--timing-cache", "none"], check=True, capture_output=True)
    explained = subprocess.run([command, "explain", engine], check=True, capture_output=True, text=True).stdout
    subprocess.run([command, "run", engine, "--input", folder / "x.npz", "--output", folder / "y.npz"], check=True, capture_output=True)
    return np.load(folder / "y.npz")["y"], re.search(r"cpu\.conv[a-z0-9_.]*", explained).group(0)


def main():
    rng = np.random.default_rng(1)
    print("| input channels | inputs | Octavo's tactic | Octavo | ONNX Runtime | in order |\n|---:|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = folder / "conv.onnx"
        for channels, kind in CASES:
            x = inputs(rng, channels, kind)
            w = (rng.standard_normal((OUTPUTS, channels, 3, 3)) * np.sqrt(2 / (9 * channels))).astype(np.float32)
            graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], kernel_shape=[3, 3])], "conv",
                                      [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                                      [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, OUTPUTS, SIZE, SIZE])], [numpy_helper.from_array(w, "w")])
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
            exact = w.reshape(OUTPUTS, -1).astype(np.float64) @ windows(x).astype(np.float64)
            own, tactic = octavo(folder, model, x)
            session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])

            def errors(y):
                """Root mean square, of that of the outputs; largest, of the largest output."""
                e = y.reshape(exact.shape) - exact
                return f"{np.sqrt((e**2).mean() / (exact**2).mean()):.1e}, {np.abs(e).max() / np.abs(exact).max():.1e}"

            print(f"| {channels} | {kind} | `{tactic}` | {errors(own)} | {errors(session.run(None, {'x': x})[0])} | {errors(in_order(x, w))} |", flush=True)


if __name__ == "__main__":
    main()
