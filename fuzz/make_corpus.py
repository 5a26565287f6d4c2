#!/usr/bin/env python3
"""Writes fuzz/corpus: small valid files of every kind that the fuzz targets read. `make_corpus.py --octavo build/release/bin/octavo`.

onnx: for each operator the largest of its models in tests/onnx/op_cases.py, every model of op_cases_wide.py, and forms that only some functions of
the importer see; engine: what `octavo build` makes of some of them. Hostile.TheCorpusReachesEveryImporter (tests/onnx) names the operators that are missing."""
import argparse
import io
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/onnx"))
import op_cases  # noqa: E402
import op_cases_wide  # noqa: E402


def write(folder, name, data):
    path = ROOT / "fuzz/corpus" / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def models():
    best, wide = {}, {}
    families = {family.__name__ for family in op_cases_wide.FAMILIES}
    for case in op_cases.all_cases():
        data = case.model.SerializeToString()
        if len(data) > 4000:
            continue
        family, name = case.name.split("/")
        if family in families:
            wide[f"{family}.{re.sub('[^A-Za-z0-9_]+', '_', name)}"] = data
            continue
        for node in case.model.graph.node:
            key = f"{node.domain}.{node.op_type}".lstrip(".")
            if len(data) > len(best.get(key, b"")):
                best[key] = data
    return best, wide


def forms():
    """Models by name, each for functions of the importer that no largest model reaches."""
    f, u8, s8, s32, f64, s4 = (getattr(onnx.TensorProto, t) for t in ("FLOAT", "UINT8", "INT8", "INT32", "DOUBLE", "INT4"))
    node, tensor = onnx.helper.make_node, onnx.helper.make_tensor
    out = {}

    def add(name, nodes, inputs, constants, outputs, opset=21):
        infos = [[onnx.helper.make_tensor_value_info(n, t, shape) for n, (t, shape) in side.items()] for side in (inputs, outputs)]
        graph = onnx.helper.make_graph(nodes, name, *infos, constants)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        onnx.checker.check_model(model, full_check=True)
        out[f"form.{name}"] = model.SerializeToString()

    add("blocks_int4", [node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1, block_size=4),
                        node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, block_size=4)], {"x": (f, [2, 8])},
        [tensor("s", f, [2, 2], [0.5, 0.25, 0.125, 1]), tensor("z", s4, [2, 2], [0, 1, -2, 3])], {"y": (f, [2, 8])})
    add("scales_at_run_time", [node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1), node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1)],
        {"x": (f, [2, 3]), "s": (f, [3]), "z": (u8, [3])}, [], {"y": (f, [2, 3])})
    add("channel_of_zeros", [node("DequantizeLinear", ["w", "s"], ["y"], axis=0), node("Mul", ["x", "y"], ["r"])], {"x": (f, [2, 2])},
        [tensor("w", s8, [2, 2], [0, 0, 3, -4]), tensor("s", f, [2], [0, 0.5])], {"r": (f, [2, 2])})
    add("gemm_factors", [node("Gemm", ["a", "b", "c"], ["y"], alpha=0.5, beta=2.0)], {"a": (f, [2, 3]), "c": (f, [2, 2])},
        [tensor("b", f, [3, 2], [1, 2, 3, 4, 5, 6])], {"y": (f, [2, 2])})
    add("conv_integer_pads", [node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1, 1, 1, 1])], {"x": (u8, [1, 1, 3, 3]), "z": (u8, [])},
        [tensor("w", u8, [1, 1, 2, 2], [1, 2, 3, 4])], {"y": (s32, [1, 1, 4, 4])})
    add("pad_wrap", [node("Pad", ["x", "p"], ["y"], mode="wrap")], {"x": (f, [2, 3])}, [tensor("p", onnx.TensorProto.INT64, [4], [0, 1, 1, 2])],
        {"y": (f, [3, 6])})
    add("pad_value_at_run_time", [node("Pad", ["x", "p", "v"], ["y"])], {"x": (f, [2, 3]), "v": (f, [])},
        [tensor("p", onnx.TensorProto.INT64, [4], [0, 1, 1, 2])], {"y": (f, [3, 6])})
    add("avg_pool_ceil", [node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, count_include_pad=1)],
        {"x": (f, [1, 1, 5, 5])}, [], {"y": (f, [1, 1, 3, 3])})
    add("codes_reshaped", [node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0), node("Reshape", ["d", "n"], ["r"]), node("Mul", ["x", "r"], ["y"])],
        {"x": (f, [2, 4])}, [tensor("w", s8, [2, 2, 2], [1, 2, 3, 4, 5, 6, 7, 8]), tensor("s", f, [2], [0.5, 0.25]), tensor("z", s8, [2], [0, 0]),
                             tensor("n", onnx.TensorProto.INT64, [2], [2, 4])], {"y": (f, [2, 4])})
    add("resize_antialias", [node("Resize", ["x", "", "", "n"], ["y"], mode="linear", antialias=1)], {"x": (f, [1, 1, 6, 6])},
        [tensor("n", onnx.TensorProto.INT64, [4], [1, 1, 3, 4])], {"y": (f, [1, 1, 3, 4])})
    add("doubles", [node("Add", ["x", "c"], ["y"]), node("Sqrt", ["y"], ["r"])], {"x": (f64, [3])}, [tensor("c", f64, [1], [0.1])], {"r": (f64, [3])})
    for name, code in (("f32", f), ("s32", s32), ("s16", onnx.TensorProto.INT16)):
        add(f"range_{name}", [node("Range", ["a", "b", "d"], ["r"]), node("Cast", ["r"], ["c"], to=f), node("Add", ["x", "c"], ["y"])], {"x": (f, [3])},
            [tensor("a", code, [], [0]), tensor("b", code, [], [6]), tensor("d", code, [], [2])], {"y": (f, [3])})
    return out


def png(width, height, kind, depth, pixels):
    def chunk(tag, data):
        return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(pixels)) +
            chunk(b"IEND", b""))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--octavo", default=ROOT / "build/release/bin/octavo")
    options = parser.parse_args()
    best, wide = models()
    for name, data in sorted((best | wide | forms()).items()):
        write("onnx", f"{name}.onnx", data)
    with tempfile.TemporaryDirectory() as work:
        for name in ("Conv", "MaxPool", "QLinearConv", "Softmax", "Resize"):
            model, engine = pathlib.Path(work, "m.onnx"), pathlib.Path(work, "m.octavo")
            model.write_bytes(best[name])
            subprocess.run([options.octavo, "build", model, "-o", engine, "--effort", "0", "--threads", "2"], check=True, stdout=subprocess.DEVNULL)
            write("engine", f"{name}.octavo", engine.read_bytes())
    write("table", "trt.cache", "TRT-8510-EntropyCalibration2\nx: 3c010a14\nconv1: 3d0a0a14\na: b: 7f800000\nzero: 0\n")
    write("table", "amax.json", '{"x": 1.5, "y": {"amax": 2e-3}, "z": 0}')
    write("timing", "cache", "# octavo timing cache 1\n# kept\ndevice 5f1c22ab = a processor; avx2\n"
                             "5f1c22ab t1 v0.1.0     41.27 us      cpu.conv.u8s8.block.avx2 | conv int u8[1,64,56,56]\n"
                             "5f1c22ab t2 v0.1.0     ? us pin  cpu.conv.u8s8.block.portable | conv int u8[1,64,56,56]\n")
    rgb = bytes(b for y in range(3) for b in [y % 5, *range(12)])
    write("image", "rgb.png", png(4, 3, 2, 8, rgb))
    write("image", "grey16.png", png(2, 2, 0, 16, b"\0abcd\0abcd"))
    try:
        from PIL import Image
        for mode in ("RGB", "L", "CMYK"):
            out = io.BytesIO()
            Image.new(mode, (9, 5), 7 if mode == "L" else tuple(range(len(mode)))).save(out, "JPEG")
            write("image", f"{mode}.jpg", out.getvalue())
    except ImportError:
        print("no Pillow: JPEG files stay as they are")
    for dtype in ("f4", "i8", "u1", "?", "f2"):
        for order in "CF":
            out = io.BytesIO()
            np.save(out, np.asarray(np.arange(6).reshape(2, 3), dtype=dtype, order=order))
            write("npy", f"{dtype.replace('?', 'b')}{order}.npy", out.getvalue())
    out = io.BytesIO()
    np.savez_compressed(out, x=np.arange(4, dtype=np.float32), y=np.zeros((0, 3), np.int8))
    write("npy", "two.npz", out.getvalue())


if __name__ == "__main__":
    main()
