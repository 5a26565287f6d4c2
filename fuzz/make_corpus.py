#!/usr/bin/env python3
"""Writes fuzz/corpus: small valid files of every kind that the fuzz targets read. `make_corpus.py --octavo build/release/bin/octavo`.

onnx: for each operator the largest of its models in tests/onnx/op_cases.py, and every model of op_cases_wide.py; engine: what `octavo build`
makes of some of them. Hostile.TheCorpusReachesEveryImporter (tests/onnx) names the operators that are missing."""
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
    for name, data in sorted((best | wide).items()):
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
