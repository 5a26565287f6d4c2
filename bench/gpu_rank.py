"""How well estimates order the kernels of a region on a GPU: from what octavo_gpu_linear prints of every tile of a layer, or from a timing cache.

usage: octavo_gpu_linear one 12608 768 768 f16 residual >> times.txt, the same for other layers, bench/gpu_rank.py times.txt...
       octavo build MODEL --device cuda --effort 3 --timing-cache times.cache, the same for other models, then on any machine
       bench/gpu_rank.py --cache times.cache --gpu H100 [--allow int8,float32,float16] [--table kernels.tsv] MODEL[@batch=N|@SHAPES]...

With a cache, estimates are those of a build at effort 0 for the GPU of that name; regions that this plan does not have are left out. SHAPES: as `octavo build --shapes`.
Prints for every layer with eight kernels or more the rank correlation of estimates and times, over all of them and within each family, and what it costs to
time only the first K of each family, in the order of their estimates: the best of these beside the best of all. With a cache, also how much longer than its
estimate each family takes: the median, and the middle half.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

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


ROOT = pathlib.Path(__file__).resolve().parents[1]
ENTRY = re.compile(r"[0-9a-f]{8} t\d+\s+([\d.]+) us\s+(?:pin |disturbed@\d+ )?\s*(\S+)\s+\| (.*)")


def measured(path):
    """{(region key, tactic): microseconds} of a timing cache."""
    found = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if entry := ENTRY.match(line):
                found[entry[3].strip(), entry[2]] = float(entry[1])
    return found


def estimates(args, model):
    """{region key: {tactic: microseconds}} of a build at effort 0."""
    octavo = os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo"))
    with tempfile.TemporaryDirectory() as folder:
        engine = f"{folder}/x.octavo"
        path, _, shapes = model.partition("@")
        command = [octavo, "build", path, "-o", engine, "--gpu", args.gpu, "--effort", "0", "--allow", args.allow]
        if shapes:
            command += ["--batch", shapes[6:]] if shapes.startswith("batch=") else ["--shapes", shapes]
        subprocess.run(command, check=True, capture_output=True)
        explained = json.loads(subprocess.run([octavo, "explain", engine, "--json"], check=True, capture_output=True, text=True).stdout)
    return {r["key"]: {a["tactic"]: 1e6 * a["estimate"] for a in r["alternatives"] if a.get("estimate", -1) > 0} for r in explained["regions"]}


def of_cache(args):
    """As layers(), and {family: [time / estimate]}."""
    times, found, ratios, seen, rows = measured(args.cache), [], collections.defaultdict(list), set(), []
    for model in args.files:
        for key, offers in estimates(args, model).items():
            tiles = [(times[key, t], e, t.split("{")[0]) for t, e in offers.items() if (key, t) in times]
            if key in seen or not tiles:
                continue
            seen.add(key)
            rows += [f"{times[key, t]}\t{e:.3f}\t{t}\t{key}\n" for t, e in offers.items() if (key, t) in times]
            for time, estimate, family in tiles:
                ratios[family].append(time / estimate)
            if len(tiles) >= 3:
                found.append((key, tiles))
    if args.table:
        pathlib.Path(args.table).write_text("microseconds\testimate\ttactic\tregion\n" + "".join(rows), encoding="utf-8")
    return found, ratios


def main(args):
    all_layers, ratios = of_cache(args) if args.cache else (layers(args.files), {})
    losses = collections.defaultdict(list)
    for name, tiles in all_layers:
        families = collections.defaultdict(list)
        for t in tiles:
            families[t[2]].append(t)
        if len(tiles) >= max(COUNTS):
            within = ", ".join(f"{f} {correlation(t):.2f}" for f, t in families.items())
            print(f"{name}: {len(tiles)} tiles, rank correlation {correlation(tiles):.2f} ({within})")
        for count in COUNTS:
            losses[count].append(loss(families, count))
        losses["the first of all"].append(min(tiles, key=lambda t: t[1])[0] / min(t[0] for t in tiles))
    for count, values in losses.items():
        what = f"first {count} of each family" if isinstance(count, int) else count
        print(f"{what}: {statistics.mean(values):.3f} of the best on average, {max(values):.3f} at most, {len(values)} layers")
    for family, values in sorted(ratios.items()):
        low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        print(f"{family}: {middle:.2f} times its estimate, the middle half {low:.2f} to {high:.2f}, {len(values)} kernels")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="what octavo_gpu_linear printed; with --cache, models")
    parser.add_argument("--cache", help="a timing cache of builds that measured")
    parser.add_argument("--table", help="with --cache: a file for all times and estimates")
    parser.add_argument("--gpu", default="H100", help="the GPU that estimates are for")
    parser.add_argument("--allow", default="int8,float32", help="as octavo build")
    main(parser.parse_args())
