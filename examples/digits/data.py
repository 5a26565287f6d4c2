"""scikit-learn's handwritten digits as 16x16 grey pictures, and the split that the example is trained and judged on.

data.py OUT.npz   writes the held-out split: image f32 [360,1,16,16] (grey value / 255), label i64 [360]
data.py --images DIR   writes held-out pictures, two of each digit, as DIR/<n>_<index>.png, and DIR/../labels.txt
"""
import pathlib
import sys

import numpy as np
from sklearn.datasets import load_digits

HELD_OUT = 360  # of 1797


def enlarge(images):
    """[n,8,8] of 0..16 -> [n,16,16] uint8: bilinear by a factor of two, in integers, so that every machine gets the same picture."""
    a = images.astype(np.int64)
    for axis in (1, 2):
        p = np.pad(a, [(1, 1) if k == axis else (0, 0) for k in range(3)], mode="edge")
        before, here, after = (np.take(p, range(s, s + 8), axis) for s in (0, 1, 2))
        a = np.stack([3 * here + before, 3 * here + after], axis + 1).reshape([16 if k <= axis and k else n for k, n in enumerate(a.shape)])
    return ((a * 255 + 128) // 256).astype(np.uint8)


def split():
    """(train images, train labels), (held-out images, held-out labels); images uint8 [n,16,16]."""
    digits = load_digits()
    order = np.argsort(np.random.default_rng(7).random(len(digits.target)), kind="stable")
    images, labels = enlarge(digits.images)[order], digits.target[order].astype(np.int64)
    return (images[HELD_OUT:], labels[HELD_OUT:]), (images[:HELD_OUT], labels[:HELD_OUT])


def main():
    _, (images, labels) = split()
    if sys.argv[1] == "--images":
        from PIL import Image

        folder = pathlib.Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        for digit in range(10):
            for index in np.flatnonzero(labels == digit)[:2]:
                Image.fromarray(images[index]).save(folder / f"{digit}_{index:03d}.png", optimize=True)
        (folder.parent / "labels.txt").write_text("".join(f"{name}\n" for name in "zero one two three four five six seven eight nine".split()))
    else:
        np.savez(sys.argv[1], image=(images[:, None].astype(np.float32) / np.float32(255)), label=labels)


if __name__ == "__main__":
    main()
