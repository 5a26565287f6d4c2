"""How well estimates order the tiles of kernels on a GPU, from what octavo_gpu_linear prints of every tile of a layer.

usage: octavo_gpu_linear one 12608 768 768 f16 residual >> times.txt, the same for other layers, bench/gpu_rank.py times.txt...

Prints for every layer the rank correlation of estimates and times, over all tiles and within each family, and what it costs to time only the first K tiles
of each family, in the order of their estimates: the best of these beside the best of all.
"""
import collections
import re
import statistics
import sys

TILE = re.compile(r"\s+([\d.]+) us \(estimate\s+([\d.]+)\).*?(conv\.\S+)")
COUNTS = (1, 2, 3, 4, 6, 8)


def layers(paths):
    """(name, [(measured, estimate, family)]) of every layer with eight tiles or more."""
    found = []
    for path in paths:
        with open(path) as lines:
            for line in lines:
                if line.startswith("one:"):
                    found.append((line[4:].strip(), []))
                elif found and (tile := TILE.match(line)):
                    found[-1][1].append((float(tile[1]), float(tile[2]), tile[3]))
    return [(name, tiles) for name, tiles in found if len(tiles) >= max(COUNTS)]


def correlation(tiles):
    """Spearman's, without a correction for ties."""
    def ranks(values):
        order = sorted(range(len(values)), key=values.__getitem__)
        return [order.index(i) for i in range(len(values))]
    if len(tiles) < 3:
        return 0.0
    return statistics.correlation(ranks([t[0] for t in tiles]), ranks([t[1] for t in tiles]))


def loss(families, count):
    """The best of the first `count` tiles of each family, as a multiple of the best of all."""
    first = [t for tiles in families.values() for t in sorted(tiles, key=lambda t: t[1])[:count]]
    return min(t[0] for t in first) / min(t[0] for tiles in families.values() for t in tiles)


def main(paths):
    losses = collections.defaultdict(list)
    for name, tiles in layers(paths):
        families = collections.defaultdict(list)
        for t in tiles:
            families[t[2]].append(t)
        within = ", ".join(f"{f} {correlation(t):.2f}" for f, t in families.items())
        print(f"{name}: {len(tiles)} tiles, rank correlation {correlation(tiles):.2f} ({within})")
        for count in COUNTS:
            losses[count].append(loss(families, count))
    for count, values in losses.items():
        print(f"first {count} of each family: {statistics.mean(values):.3f} of the best on average, {max(values):.3f} at most, {len(values)} layers")


if __name__ == "__main__":
    main(sys.argv[1:])
