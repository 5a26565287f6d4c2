"""Replay: do two versions of the project make the same of the same networks?

What octavo_replay prints is compared: plan hashes, tactics, packed constants, generated CPU code, and the texts and launches of GPU kernels, for every
level of x86-64 processors (oneDNN, which looks at the real processor, is left out) and for sm_80 and sm_90a, at effort 0. Nothing runs, so
any x86-64 machine can do it, and in half a minute.

  replay.py --base COMMIT   builds octavo_replay of COMMIT under build/replay, runs both over the networks of the test data, the benchmark networks
                            in all styles, transformers, the operator cases and 500 random networks, and lists what differs. Exit code 1: something does.
  replay.py --list FILE     compares a small set (the digits networks, 60 random ones) with the list in FILE; --write makes the list anew.

What differs is allowed only where the commit's message names it.
"""
import argparse
import collections
import hashlib
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared")).resolve()
SMALL = ["--random", "1", "40", "--wide", "1", "20", "examples/digits/digits_qdq.onnx", "examples/digits/digits_fp32.onnx"]
RANDOM = ["--random", "1", "350", "--wide", "1", "150"]
PARTS = ("plan", "tactics", "constants", "code", "launch")
HEAD = ("# What the planner makes of small networks at effort 0 (scripts/replay.py --list). A line: network, target, regions, then digests of\n"
        "# plan, tactics, constants, code and launch. A commit that changes it names what changed, and why.\n")


def fields_of(line):
    """What one line of octavo_replay says, by part; a refusal is one of all parts."""
    if found := re.fullmatch(r"(\S+) (\S+) plan (\S+)", line):
        return found[1], found[2], {"plan": found[3]}
    if found := re.fullmatch(r"(\S+) (\S+) (\d+ .*) \| constants (\S+) \| code (.*) \| launch (\S+)", line):
        return found[1], found[2], {"tactics": found[3], "constants": found[4], "code": found[5], "launch": found[6]}
    if found := re.fullmatch(r"(\S+) (?:(\S+) )?refused: (.*)", line):
        return found[1], found[2] or "-", {p: "refused: " + found[3] for p in PARTS}
    sys.exit(f"error: a line of octavo_replay that is not understood: {line}")


def read(text):
    """{(network, target): {part: [what each region says]}} of the output of octavo_replay."""
    plans = collections.defaultdict(lambda: {p: [] for p in PARTS})
    for line in text.splitlines():
        network, target, fields = fields_of(line)
        for part, value in fields.items():
            plans[network, target][part].append(value)
    return dict(plans)


def differences(old, new):
    """[(network, target, parts that differ, the first region that does in both)], and networks that only one has."""
    found = []
    for key in sorted(old.keys() | new.keys()):
        if key not in old or key not in new:
            found.append((*key, ["only in the " + ("old" if key in old else "new") + " version"], ""))
        elif old[key] != new[key]:
            parts = [p for p in PARTS if old[key][p] != new[key][p]]
            pairs = [(a, b) for p in parts for a, b in zip(old[key][p], new[key][p]) if a != b]
            found.append((*key, parts, f"{pairs[0][0]}  ->  {pairs[0][1]}" if pairs else "another number of regions"))
    return found


def report(found, most=20):
    """The summary that is printed: how many networks differ in what, and examples."""
    lines = [f"{n} networks and targets differ in {parts}" for parts, n in collections.Counter(", ".join(f[2]) for f in found).most_common()]
    lines += [f"  {network} {target}: {', '.join(parts)}: {example}" for network, target, parts, example in found[:most]]
    if len(found) > most:
        lines.append(f"  and {len(found) - most} more")
    return "\n".join(lines)


def run(binary, words):
    # The variable caps processors; SMALL names files from ROOT on.
    plain = {k: v for k, v in os.environ.items() if k != "OCTAVO_CPU"}
    return read(subprocess.run([binary, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=plain).stdout)


def short(plans):
    """{"network target": the list's text} of plans."""
    digest = lambda values: hashlib.sha256("\n".join(values).encode()).hexdigest()[:10]
    return {f"{network} {target}": " ".join([str(len(parts["tactics"])), *(digest(parts[p]) for p in PARTS)])
            for (network, target), parts in plans.items()}


def check_list(binary, path, write):
    now = short(run(binary, SMALL))
    if write:
        part = path.with_name(path.name + ".part")
        part.write_text(HEAD + "".join(f"{k} {v}\n" for k, v in now.items()), encoding="utf-8")
        part.replace(path)
        print(f"{path}: {len(now)} plans")
        return 0
    lines = [line.rsplit(" ", 1 + len(PARTS)) for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    listed = {words[0]: words[1:] for words in lines}
    wrong = 0
    for key in sorted(listed.keys() | now.keys()):
        a, b = listed.get(key), now[key].split() if key in now else None
        if a == b:
            continue
        wrong += 1
        which = [p for p, x, y in zip(("number of regions", *PARTS), a, b) if x != y] if a and b else ["listed" if a else "not listed"]
        print(f"{key}: {', '.join(which)}" if a and b else f"{key}: {which[0]} only" if a else f"{key}: not in the list")
    print(f"{len(now)} plans, {wrong} differ from {path}")
    if wrong:
        print("  If that is intended, write the list anew (make replay-list) and name what changed in the commit's message.\n"
              "  What differs region by region: make replay BASE=<the commit before>")
    return 1 if wrong else 0


def networks(folder):
    """The models of the whole set, made once in `folder`."""
    sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/onnx")]
    import networks as benchmark
    import op_cases
    import onnx
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    models = [*sorted((ROOT / "examples/digits").glob("*.onnx"))]
    if (DATA / "models").is_dir():
        models += sorted((DATA / "models").glob("*.onnx"))
        args = argparse.Namespace(models=folder)
        for net in benchmark.ALL:
            models += [benchmark.float_model(args, net), *(benchmark.explicit_model(args, net, s) for s in (*benchmark.STYLES, *benchmark.MORE))]
    else:
        print(f"no test data at {DATA}: without real and benchmark networks", file=sys.stderr)
    for name, make in transformers.NETWORKS.items():
        path = folder / f"{name}.onnx"
        if not path.exists():
            make(path)
        models.append(path)
    cases = folder / "cases"
    if not cases.is_dir():
        part = folder / "cases.part"
        part.mkdir(exist_ok=True)
        for case in op_cases.all_cases():
            onnx.save(case.model, part / (re.sub(r"\W+", "_", case.name) + ".onnx"))
        part.rename(cases)
    return models + sorted(cases.glob("*.onnx"))


def base_binary(commit, jobs):
    """octavo_replay of a commit, built in a work tree of its own; kept for the next time."""
    sha = subprocess.run(["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    tree = ROOT / "build/replay" / sha[:12]
    binary = tree / "build/tests/octavo_replay"
    if binary.exists():
        return binary
    if not tree.exists():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--detach", tree, sha], cwd=ROOT, check=True, stdout=sys.stderr)
    if not (tree / "tests/tools/replay.cc").exists():
        sys.exit(f"error: commit {sha[:12]} has no octavo_replay (tests/tools/replay.cc): it cannot be compared with")
    subprocess.run(["cmake", "--preset", "release", "-DOCTAVO_UNITY=ON", "-B", tree / "build"], cwd=tree, check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", tree / "build", "-j", str(jobs), "--target", "octavo_replay"], cwd=tree, check=True, stdout=sys.stderr)
    return binary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the commit to compare with")
    parser.add_argument("--old", type=pathlib.Path, help="octavo_replay of the version to compare with, where it is built already")
    parser.add_argument("--list", type=pathlib.Path, help="the list to compare with")
    parser.add_argument("--write", action="store_true", help="write the list")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/release/tests/octavo_replay", help="of this version")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if sum(a is not None for a in (args.base, args.old, args.list)) != 1:
        parser.error("give one of --base, --old and --list")
    if args.list:
        sys.exit(check_list(args.binary, args.list, args.write))
    base = args.old or base_binary(args.base, args.jobs)
    words = [*RANDOM, *networks(ROOT / "build/replay/models")]
    old, new = run(base, words), run(args.binary, words)
    found = differences(old, new)
    regions = sum(len(p["tactics"]) for p in new.values())
    print(f"{len(words) - len(RANDOM)} models and 500 random networks, {len(new)} plans, {regions} regions: {len(found)} plans differ")
    if found:
        print(report(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
