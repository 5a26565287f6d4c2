"""Trains the example's network and writes digits_fp32.onnx and digits_qdq.onnx beside itself, the same bytes on every machine.

usage: train.py [--out DIR] [--epochs N]      about a minute; needs numpy, scikit-learn and onnx, nothing else
"""
import argparse
import hashlib
import pathlib

import numpy as np
from data import split
from export import export
from net import Net, init, softmax

BATCH = 64


def pixels(images):
    return images[..., None].astype(np.float64) / 255.0


def predict(params, images):
    return np.concatenate([np.argmax(Net(params).forward(pixels(images[i : i + 60])), axis=1) for i in range(0, len(images), 60)])


def digest(params):
    """Of every bit of the parameters: the same on every machine after the same steps."""
    return hashlib.sha256(b"".join(params[k].tobytes() for k in sorted(params))).hexdigest()[:16]


def train(images, labels, epochs, rng, stop_after=None):
    params = init(rng)
    mean = {k: np.zeros_like(v) for k, v in params.items()}
    square = {k: np.zeros_like(v) for k, v in params.items()}
    steps, step, decay1, decay2 = epochs * (len(images) // BATCH), 0, 1.0, 1.0
    for epoch in range(epochs):
        order, loss = np.argsort(rng.random(len(images)), kind="stable"), 0.0
        for i in range(len(images) // BATCH):
            pick = order[i * BATCH : (i + 1) * BATCH]
            x, shifts = pixels(images[pick]), (rng.random((BATCH, 2)) * 3).astype(np.int64) - 1
            x = np.stack([np.roll(a, tuple(s), (0, 1)) for a, s in zip(x, shifts)])  # by at most one pixel; the margins are blank
            net = Net(params)
            p = softmax(net.forward(x))
            loss -= float(np.log(p[np.arange(BATCH), labels[pick]]).mean())  # printed only
            grads = net.backward((p - np.eye(10)[labels[pick]]) / BATCH)
            step += 1
            rate = 3e-3 * min(1.0, step / 50.0) * (1.0 - (step - 1) / steps)
            decay1, decay2 = decay1 * 0.9, decay2 * 0.999
            for k, g in grads.items():  # Adam
                mean[k] = 0.9 * mean[k] + 0.1 * g
                square[k] = 0.999 * square[k] + 0.001 * (g * g)
                params[k] = params[k] - rate * (mean[k] / (1.0 - decay1)) / (np.sqrt(square[k] / (1.0 - decay2)) + 1e-8)
        print(f"epoch {epoch + 1:2d}: loss {loss / (len(images) // BATCH):.4f}, parameters {digest(params)}", flush=True)
        if epoch + 1 == stop_after:
            break
    return {k: v.astype(np.float32).astype(np.float64) for k, v in params.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--stop-after", type=int, help="stop after so many epochs and write nothing (to compare parameters)")
    args = parser.parse_args()
    (images, labels), (held_images, held_labels) = split()
    params = train(images, labels, args.epochs, np.random.default_rng(1), args.stop_after)
    if args.stop_after:
        return
    print(f"held out: {(predict(params, held_images) == held_labels).mean():.2%} of {len(held_labels)}")
    net = Net(params)
    net.forward(pixels(images[:256]))
    export(params, {k: (float(v.min()), float(v.max())) for k, v in net.values.items()}, args.out)


if __name__ == "__main__":
    main()
