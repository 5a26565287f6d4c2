"""Builds one model many times with default options, in separate processes, the machine idle and then loaded, and compares plan hashes and engine
files: there must be one of each. Times come from a timing cache of the user's own kind (XDG_CACHE_HOME points to an empty folder), which the first
build fills. Then models with the same meaning and other Q/DQ placements are built: every pair twice in a row, a pair of its own for every reader, and
both; they must give the same plan hash. Last a build with another empty cache, which measures anew: times must differ, and its engine must run.

usage: determinism.py MODEL.onnx [--octavo COMMAND] [--builds 10] [--table FILE] [-- OPTIONS OF octavo build ...]
"""
import argparse
import hashlib
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def spin():
    while True:
        pass


class Builder:
    def __init__(self, args, folder):
        self.args, self.folder, self.engine = args, folder, folder / "engine.octavo"

    def build(self, model, cache="cache"):
        """(plan hash, digest of the engine file)."""
        command = [self.args.octavo, "build", model, "-o", self.engine, *self.args.options]
        command += ["--calibration", self.args.table] if self.args.table else []
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                              env={**os.environ, "XDG_CACHE_HOME": str(self.folder / cache)})
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(str(c) for c in command)}\n{done.stderr.strip()}")
        plan = re.search(r"\bplan ([0-9a-f]{32})\b", done.stdout)[1]
        return plan, hashlib.sha256(self.engine.read_bytes()).hexdigest()

    def times(self, cache):
        """{line without its time: line} of the timing cache."""
        measured = re.compile(r"\s+([0-9.]+) us\b")
        lines = (self.folder / cache / "octavo/timing.txt").read_text(encoding="utf-8").splitlines()
        return {measured.sub("", line): line for line in lines if measured.search(line)}


def placements(path, folder):
    """{name: file} of models with the same meaning. A pair after itself changes nothing: each of its values is on its grid."""
    import onnx

    def copies(graph, pair_of, name, tag):
        """A Q and a DQ as `pair_of`, reading `name`; gives the name of the result."""
        made = []
        for node in pair_of:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = f"{node.name or node.output[0]}.{tag}"
            copy.input[0], copy.output[0] = name, f"{node.output[0]}.{tag}"
            name = copy.output[0]
            made.append(copy)
        graph.node.extend(made)
        return name

    def pairs(graph):
        made = {o: n for n in graph.node for o in n.output}
        return [(made[n.input[0]], n) for n in graph.node if n.op_type == "DequantizeLinear" and n.input[0] in made
                and made[n.input[0]].op_type == "QuantizeLinear"]

    def readers(graph, tensor):
        return [(n, i) for n in graph.node for i, name in enumerate(n.input) if name == tensor]

    def doubled(model):
        for q, dq in pairs(model.graph):
            users = readers(model.graph, dq.output[0])
            result = copies(model.graph, (q, dq), dq.output[0], "again")
            for n, i in users:
                n.input[i] = result

    def split(model):
        for q, dq in pairs(model.graph):
            for k, (n, i) in enumerate(readers(model.graph, dq.output[0])[1:]):
                n.input[i] = copies(model.graph, (q, dq), q.input[0], f"reader{k}")

    def both(model):
        split(model)
        doubled(model)

    def sort(model):
        made = {o for n in model.graph.node for o in n.output}
        ready, waiting, order = set(), list(model.graph.node), []
        while waiting:
            now = [n for n in waiting if all(i in ready or i not in made for i in n.input)]
            order += now
            ready |= {o for n in now for o in n.output}
            waiting = [n for n in waiting if not any(n is m for m in now)]
        order = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
        del model.graph.node[:]
        model.graph.node.extend(order)

    found = {}
    for name, change in (("every pair twice", doubled), ("a pair for every reader", split), ("both", both)):
        model = onnx.load(path)
        if not pairs(model.graph):
            return {}
        change(model)
        sort(model)
        found[name] = folder / f"{change.__name__}.onnx"
        onnx.save(model, found[name])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[1]
    parser.add_argument("model")
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(root / "build/release/bin/octavo")))
    parser.add_argument("--builds", type=int, default=10)
    parser.add_argument("--table", help="calibration table: the model is then built as an implicit one")
    parser.add_argument("options", nargs="*", help="after --: options of octavo build")
    args = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(args, pathlib.Path(folder))
        first = builder.build(args.model)
        filled = builder.times("cache")
        found = {"idle": [builder.build(args.model) for _ in range(args.builds // 2)]}
        load = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
        for p in load:
            p.start()
        found["loaded"] = [builder.build(args.model) for _ in range(args.builds - args.builds // 2)]
        for p in load:
            p.terminate()
        for name, builds in found.items():
            plans, files = ({b[i] for b in builds} for i in (0, 1))
            print(f"{name}: {len(builds)} builds, {len(plans)} plan(s), {len(files)} different engine file(s)", flush=True)
            if {first} != set(builds):
                wrong.append(f"{name}: not the first build's plan or engine")
        for name, model in placements(args.model, builder.folder).items():
            same = builder.build(model)[0] == first[0]
            print(f"placement \"{name}\": {'the same plan' if same else 'another plan'}", flush=True)
            if not same:
                wrong.append(f'placement "{name}" has another plan')
        if filled and builder.times("cache").keys() != filled.keys():
            print(f"{len(builder.times('cache').keys() - filled.keys())} times were added by later builds")
        builder.build(args.model, "other")
        again = builder.times("other")
        common = filled.keys() & again.keys()
        differ = sum(filled[k] != again[k] for k in common)
        print(f"without the cache: {len(again)} lines measured anew, {differ} of {len(common)} common ones have another time")
        if common and differ == 0:
            wrong.append("no time differs: nothing was measured")
        done = subprocess.run([args.octavo, "bench", builder.engine, "--seconds", "0.05", "--json"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            wrong.append(f"the engine built without the cache does not run: {done.stderr.strip()}")
    print("\n".join(f"error: {w}" for w in wrong) or "ok")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
