#!/usr/bin/env python3
"""The pictures of docs/quantization.md, from YOLOX-nano and photos of the shared test data.

usage: quantization_pictures.py [--data DIR] [--out docs/quantization]      needs numpy, onnx, onnxruntime, pillow (.venv)
layers.svg is what `octavo doctor --picture` writes for that network with a min-max table of 20 photos, on 4 photos.
"""
import argparse
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
TENSOR = "687"  # what the first depthwise convolution reads


def photo(path):
    image = Image.open(path).convert("RGB")
    ratio = min(416 / image.width, 416 / image.height)
    small = image.resize((max(1, int(image.width * ratio)), max(1, int(image.height * ratio))), Image.BILINEAR)
    square = np.full((416, 416, 3), 114, np.float32)
    square[: small.height, : small.width] = np.asarray(small)
    return square[:, :, ::-1].transpose(2, 0, 1)[None].copy()


def activations(data):
    model = onnx.load(data / "models/yolox_nano_416.onnx")
    model.graph.output.append(onnx.helper.make_tensor_value_info(TENSOR, 1, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    photos = sorted((data / "images/coco").glob("*.jpg"))[::10]
    return np.concatenate([session.run([TENSOR], {"images": photo(p)})[0] for p in photos])


def svg(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n{body}</svg>\n')


def histogram(values):
    """Counts on a logarithmic scale, the 256 codes of min-max as marks, and the range that holds 99.99 %."""
    left, top, width, height = 60, 40, 620, 220
    low, high = float(values.min()), float(values.max())
    counts, _ = np.histogram(values, 124, (low, high))
    tall = np.log10(counts.max() + 1)

    def at(v):
        return left + width * (v - low) / (high - low)

    body = "".join(f'<rect x="{left + width * i / 124:.1f}" y="{top + height * (1 - np.log10(c + 1) / tall):.1f}" width="4.2" '
                   f'height="{height * np.log10(c + 1) / tall:.1f}" fill="#3060a0"/>\n' for i, c in enumerate(counts) if c)
    step = (high - min(low, 0)) / 255
    body += "".join(f'<path d="M{at(low + k * step):.1f} {top + height}v6" stroke="#888" stroke-width="0.6"/>\n' for k in range(256))
    cut = float(np.percentile(values, 99.99))
    body += f'<path d="M{at(cut):.1f} {top}v{height}" stroke="#c03020" stroke-dasharray="4"/>\n'
    body += f'<text x="{at(cut) + 6:.1f}" y="{top + 12}" fill="#c03020">99.99 % lie left of {cut:.1f}</text>\n'
    body += f'<text x="{left}" y="20">How often each value occurs (logarithmic); below, the 256 codes of the range from min to max</text>\n'
    body += "".join(f'<text x="{at(v):.1f}" y="{top + height + 24}" text-anchor="middle">{v:.1f}</text>\n' for v in (low, 0.5 * (low + high), high))
    return svg(left + width + 40, top + height + 40, body)


def channels(values):
    """The range of each channel on a logarithmic scale, and the step of the scale that all share."""
    left, top, height, column = 70, 40, 240, 36
    most = np.abs(values).max((0, 2, 3))
    step = float(values.max() - min(values.min(), 0)) / 255
    low, high = np.log10(min(most.min(), step) / 2), np.log10(most.max() * 1.5)

    def at(v):
        return top + height * (1 - (np.log10(v) - low) / (high - low))

    body = '<text x="70" y="20">Largest magnitude of each channel (logarithmic), and the step of the scale that they share</text>\n'
    for i, m in enumerate(most):
        x = left + column * i
        body += f'<rect x="{x}" y="{at(m):.1f}" width="{column - 8}" height="{top + height - at(m):.1f}" fill="{"#3060a0" if m > 4 * step else "#c03020"}"/>\n'
        body += f'<text x="{x + (column - 8) / 2}" y="{at(m) - 4:.1f}" text-anchor="middle" font-size="10">{m:.2g}</text>\n'
    wide = column * len(most)
    body += f'<path d="M{left} {at(step):.1f}h{wide}" stroke="black" stroke-dasharray="4"/><text x="{left + wide + 4}" y="{at(step) + 4:.1f}">{step:.2g}</text>\n'
    return svg(left + wide + 50, top + height + 30, body + f'<text x="{left}" y="{top + height + 18}">{len(most)} channels</text>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared")))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/quantization")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    wild = activations(args.data)
    (args.out / "wild.svg").write_text(histogram(wild))
    (args.out / "channels.svg").write_text(channels(wild))


if __name__ == "__main__":
    main()
