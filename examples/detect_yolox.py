"""Object detection with YOLOX-nano through the octavo command: boxes on a photo.

usage: detect_yolox.py MODEL PHOTO -o PICTURE [--mosaic] [--score 0.4] [--octavo COMMAND]

--mosaic replaces the photo by coarse blocks, for pictures that may be published where the photo may not. Prints one line a detection.
Needs numpy and pillow. Preprocessing and decoding as in Megvii's YOLOX (Apache-2.0): letterbox to 416 with 114, BGR, 0 to 255; strides 8, 16, 32.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image, ImageDraw

SIZE, STRIDES = 416, (8, 16, 32)
COCO = (
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,bench,bird,cat,dog,horse,"
    "sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,skis,snowboard,sports ball,kite,baseball bat,"
    "baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,"
    "carrot,hot dog,pizza,donut,cake,chair,couch,potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,"
    "oven,toaster,sink,refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush"
).split(",")


def run(octavo, model, photo):
    """The model's output [3549, 85] for a photo; the command does the preprocessing."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.npz")
        done = subprocess.run([octavo, "run", model, "--input", photo, "--preset", "yolox", "--output", out], check=False)
        if done.returncode != 0:
            sys.exit(done.returncode)  # octavo has said why
        return next(iter(np.load(out).values()))[0]


def decode(output):
    """Boxes [n, 4] (x0, y0, x1, y1 in the 416 square), scores and classes."""
    cells = [np.stack(np.meshgrid(np.arange(SIZE // s), np.arange(SIZE // s)), -1).reshape(-1, 2) for s in STRIDES]
    grid = np.concatenate(cells)
    stride = np.concatenate([np.full((len(c), 1), s) for c, s in zip(cells, STRIDES)])
    center, size = (output[:, :2] + grid) * stride, np.exp(output[:, 2:4]) * stride
    classes = output[:, 5:].argmax(1)
    return np.concatenate([center - size / 2, center + size / 2], 1), output[:, 4] * output[np.arange(len(output)), 5 + classes], classes


def suppress(boxes, scores, classes, threshold, overlap=0.45):
    """Indices kept by non-maximum suppression within each class, best first."""
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if scores[i] < threshold:
            break
        area = np.prod(boxes[i, 2:] - boxes[i, :2])
        for j in kept:
            if classes[i] != classes[j]:
                continue
            inner = np.clip(np.minimum(boxes[i, 2:], boxes[j, 2:]) - np.maximum(boxes[i, :2], boxes[j, :2]), 0, None).prod()
            if inner > overlap * (area + np.prod(boxes[j, 2:] - boxes[j, :2]) - inner):
                break
        else:
            kept.append(i)
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("photo")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--mosaic", action="store_true")
    parser.add_argument("--score", type=float, default=0.4)
    parser.add_argument("--octavo", default=str(pathlib.Path(__file__).resolve().parents[1] / "build/release/bin/octavo"))
    args = parser.parse_args()

    picture = Image.open(args.photo).convert("RGB")
    boxes, scores, classes = decode(run(args.octavo, args.model, args.photo))
    boxes = boxes / min(SIZE / picture.width, SIZE / picture.height)
    if args.mosaic:
        columns = 32
        small = picture.resize((columns, max(1, columns * picture.height // picture.width)), Image.BOX)
        picture = small.resize(picture.size, Image.NEAREST)
    draw = ImageDraw.Draw(picture)
    for i in suppress(boxes, scores, classes, args.score):
        box, label = [float(v) for v in boxes[i]], f"{COCO[classes[i]]} {scores[i]:.2f}"
        color = tuple(int(v) for v in np.random.default_rng(int(classes[i])).integers(80, 256, 3))
        draw.rectangle(box, outline=color, width=3)
        corner = (max(0.0, box[0]) + 4, max(0.0, box[1]) + 2)
        draw.rectangle(draw.textbbox(corner, label, font_size=15), fill="black")
        draw.text(corner, label, fill=color, font_size=15)
        print(f"{label}  at {box[0]:.0f},{box[1]:.0f} to {box[2]:.0f},{box[3]:.0f}")
    picture.save(args.output)


if __name__ == "__main__":
    main()
