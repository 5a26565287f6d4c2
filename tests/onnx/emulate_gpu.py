#!/usr/bin/env python3
"""Single-operator models (op_cases.py) through the GPU's kernels under their emulation, against the reference evaluator.

  emulate_gpu.py --tool build/tests/onnx/octavo_gpu_ref [--work DIR] [--only REGEX] [--every N] [--jobs N] [--write]

Cases without a GPU kernel are those of without_gpu_kernel.txt, with the reason, and no others: the list only becomes shorter (--write takes out what has a
kernel). Every case takes seconds of compilation for the host: one in --every runs (36; with OCTAVO_FULL 12, with OCTAVO_LONG 3), and all of those in the list.
Exit code 77: the onnx package is not installed."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

try:
    import numpy as np
    import onnx  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "support")]
import op_cases  # noqa: E402
from rounds import rounds  # noqa: E402

LIST = pathlib.Path(__file__).with_name("without_gpu_kernel.txt")


def listed():
    rows = (line.split(": ", 1) for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return dict(rows)


def reason(answer):
    """Of a refusal the operator, or what the kernel's family needs."""
    why = re.sub(r"\[[\d,]*\]", "[]", answer.split("|")[1].strip() if "|" in answer else answer)
    return why.replace("no kernel for operator: device the GPU, op", "no kernel:")


def run(tool, work, part, steps):
    """The tool's answers to jobs, [(index, case)]; a job that ends the tool gets "died"."""
    answers, left = {}, list(part)
    while left:
        lines = []
        for i, case in left:
            path = work / f"{i}.onnx"
            path.write_bytes(case.model.SerializeToString())
            fields = [str(path), "-"]
            for name, array in case.feeds.items():
                file = work / f"in{i}_{len(fields)}.npy"
                np.save(file, np.ascontiguousarray(array).reshape(array.shape))
                fields.append(f"{name}={file}")
            lines.append("\t".join(fields))
        batch = work / f"jobs_{left[0][0]}.txt"
        batch.write_text("\n".join(lines) + "\n")
        out = subprocess.run([tool, str(batch)], capture_output=True, text=True, env=os.environ | {"OCTAVO_STEPS": str(steps)}, check=False)
        done = out.stdout.splitlines()
        for (i, _), line in zip(left, done):
            answers[i] = line
        if len(done) < len(left):
            answers[left[len(done)][0]] = f"died {out.returncode} {out.stderr[-300:]}"
        left = left[len(done) + 1:]
    return answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--work", default="/tmp/octavo_emulate_gpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=rounds(36, 12, 3))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    started, without = time.time(), listed()
    chosen = [(i, c) for i, c in enumerate(op_cases.all_cases())
              if re.search(args.only, c.name) and (i % args.every == 0 or c.name in without)]
    parts = [([x for x in chosen[k::args.jobs] if x[1].steps == steps], steps) for k in range(args.jobs) for steps in sorted({c.steps for _, c in chosen})]
    answers = {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for part in pool.map(lambda p: run(args.tool, work, *p), [p for p in parts if p[0]]):
            answers.update(part)
    failures, gone, families = [], [], {}
    for i, case in chosen:
        answer = answers[i]
        if answer.startswith("ok"):
            for family in answer.split()[1:]:
                families[family] = families.get(family, 0) + 1
            if case.name in without:
                gone.append(case.name)
        elif answer.startswith("refused"):
            if without.get(case.name) != reason(answer):
                failures.append((case.name, f"not in {LIST.name}: {reason(answer)}"))
        else:
            failures.append((case.name, answer))
    if args.write:
        rows = [line for line in LIST.read_text().splitlines() if line.split(": ", 1)[0] not in gone]
        LIST.write_text("\n".join(rows) + "\n")
    elif gone:
        failures += [(name, f"has a kernel now: --write takes it out of {LIST.name}") for name in gone]
    for name, problem in failures:
        print(f"FAILED {name}: {problem}\n  repeat: {sys.argv[0]} --tool {args.tool} --only '^{re.escape(name)}$' --every 1")
    print("families: " + ", ".join(f"{n} {k}" for n, k in sorted(families.items())))
    print(f"{len(chosen)} cases, {len(failures)} failed, {time.time() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
