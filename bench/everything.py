"""Measures everything that README and the reference pages show, at one commit, with one command: every script with its best settings for this machine, into records named by it.

usage: everything.py [--plan | --prepare] [--budget MINUTES] [--only NAME,NAME] [--work DIR] [--out DIR] [--octavo COMMAND] [--rounds N] [--seconds S]
       everything.py --prepare     makes the models that CPU rows measure, which needs no build
       everything.py --publish     writes the tables of all pages and the picture from the records, and shortens docs/lab/records/unrecorded.txt

--plan prints what would be measured, with the minutes expected, and measures nothing. --budget begins nothing that does not fit; rows come in the order of their importance. What is recorded
at this commit is not measured again, and the rounds of a measurement that was stopped are kept in --work: the same command goes on. A round that was interrupted is dropped for all rows.

Which rows: a machine with N cores and the instructions LEVEL (amx, vnni, avx2) has the rows LEVEL-N; one with more than two cores LEVEL-2 too, on two of them; one with more than AVX2 also
(without AMX) avx2-2, where Octavo (OCTAVO_CPU) and OpenVINO (ONEDNN_MAX_CPU_ISA) use nothing beyond it (ONNX Runtime cannot be told to and is left out); one with a GPU the rows of its name. With eight cores and more, rows of one and two
threads are measured four networks at a time, each on two cores of its own; the engines of a row still take turns.

It refuses a tree with changes in sources or bench/, and, where there is no checkout, to run without OCTAVO_COMMIT; otherwise it first builds what the sources changed. A row whose Python packages are
missing is named. Needs numpy and onnx; the peers onnxruntime and openvino; serving requirements-serving.txt and the Python module; the GPU rows PyTorch, torchvision, transformers.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import figures
import gpu_time
import parity
from everything_rows import NETS, PARITY, command_of, missing, steps_here

ROOT, HERE = figures.ROOT, pathlib.Path(__file__).resolve().parent


def python_of(args):
    """Where the build's Python module is."""
    return str(pathlib.Path(args.octavo).resolve().parents[1] / "python")


def first(times, n):
    """The first n rounds of every list in dictionaries of dictionaries."""
    return {k: first(v, n) if isinstance(v, dict) else v[:n] for k, v in times.items()}


class Run:
    """Measures what is wanted and not recorded."""

    def __init__(self, args):
        self.args, self.commit = args, figures.measured_commit()
        self.end = time.monotonic() + 60 * args.budget
        self.digest = figures.provenance(args.octavo)["binary"][:8]
        args.work.mkdir(parents=True, exist_ok=True)

    def left(self):
        return self.end - time.monotonic()

    def json(self, step):
        return self.args.work / f"{step.record}.{self.commit}.{self.digest}.{self.args.seconds:g}.json"

    def recorded(self, step):
        file = figures.RECORDS / f"{step.record}.json"
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return found.get("commit") == self.commit and not found.get("left_out")

    def kept(self, step):
        """Complete rounds of a row that is measured round by round. What an interrupted one left is dropped."""
        file, state = self.json(step), self.json(step).with_suffix(".rounds")
        n = int(state.read_text()) if state.exists() else 0
        if file.exists():
            results = json.loads(file.read_text(encoding="utf-8"))
            results["times"] = first(results["times"], n) if n else {}
            file.write_text(json.dumps(results), encoding="utf-8")
        return n

    def call(self, step, *more, said=None):
        """One call of a row's script; whether it did what it should. `said`: the command for the record."""
        a = self.args
        fill = {"work": a.work, "seconds": a.seconds, "rounds": a.rounds, "left": max(10, int(self.left()) - 15), "minutes": max(0.1, self.left() / 60 - 0.7), "json": self.json(step),
                "octavo": a.octavo, "build": pathlib.Path(a.octavo).resolve().parents[1], "data": os.environ.get("OCTAVO_TEST_DATA", str(ROOT / "../shared"))}
        words = [w.format(**fill) for w in step.words]
        words += [] if step.script in ("accuracy.py", "gpu_networks.py", "gpu_transformers.py", "serve_text.py") else ["--octavo", str(a.octavo)]
        environment = {**os.environ, **step.environment, "OCTAVO_RECORDS": str(figures.RECORDS), "PYTHONUNBUFFERED": "1",
                       "OCTAVO_RECORD_COMMAND": said or command_of(step, fill, a.rounds), "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), python_of(a)]))}
        self.prepare(step)
        with open(a.work / f"{step.record}.log", "a", encoding="utf-8") as log:
            try:
                done = subprocess.run([sys.executable, HERE / step.script, *words, *map(str, more)], cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, check=False,
                                      timeout=max(10, self.left()), preexec_fn=lambda: os.sched_setaffinity(0, step.cpus or os.sched_getaffinity(0)))
            except subprocess.TimeoutExpired:
                print(f"{step.record}: stopped, the time is over", flush=True)
                return False
        if done.returncode != 0:
            tail = (a.work / f"{step.record}.log").read_text(encoding="utf-8").strip().splitlines()[-3:]
            print(f"{step.record}: {step.script} ended with {done.returncode}: " + " / ".join(t[:200] for t in tail), flush=True)
        return done.returncode == 0

    def prepare(self, step):
        """The command where the scripts about GPUs look for it."""
        if step.script.startswith("gpu"):
            (self.args.work / "gpu/bin").mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.args.octavo, self.args.work / "gpu/bin/octavo")

    def measure(self, step):
        if not step.by_round:
            return self.call(step, "--record", step.record)
        done = self.beside(step) if step.lanes and len(step.cpus) >= 2 * len(step.lanes) else self.rounds(step)
        return done and self.call(step, "--json", self.json(step), "--rounds", 0, "--record", step.record)

    def beside(self, step):
        """The rounds of a row's networks, beside each other; then in one file."""
        prepare(self.args.work, (step.script,))
        cores = parity.quiet_cores(2 * len(step.lanes))
        lanes = [step._replace(record=f"{step.record}~{i}", words=[*step.words, "--nets", nets], cpus=cores[2 * i:2 * i + 2]) for i, nets in enumerate(step.lanes)]
        said = command_of(step, {"seconds": self.args.seconds, "rounds": self.args.rounds}, self.args.rounds, len(lanes))
        with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
            done = list(pool.map(lambda lane: self.rounds(lane, said), lanes))
        if not all(done):
            return False
        found = [json.loads(self.json(lane).read_text(encoding="utf-8")) for lane in lanes]
        for other in found[1:]:
            for key in figures.SAME:
                if other["provenance"][key] != found[0]["provenance"][key]:
                    raise figures.Mistake(f"{step.record}: the networks were measured with different {key}")
            for key in ("times", "work", "peaks"):
                found[0].setdefault(key, {}).update(other.get(key, {}))
        self.json(step).write_text(json.dumps(found[0]), encoding="utf-8")
        return True

    def rounds(self, step, said=None):
        """All rounds of a row, call by call; whether they are complete."""
        n, longest = self.kept(step), 0.0
        while n < self.args.rounds:
            if self.left() < 1.1 * longest:
                print(f"{step.record}: {n} of {self.args.rounds} rounds; no time for another", flush=True)
                return False
            begun = time.monotonic()
            if not self.call(step, "--json", self.json(step), "--rounds", 1, said=said):
                return False
            n, longest = n + 1, time.monotonic() - begun
            self.json(step).with_suffix(".rounds").write_text(str(n))
        return True

    def state(self, step):
        """In words, for the plan; "": to be measured."""
        if self.recorded(step):
            return "recorded"
        if absent := missing(step):
            return f"cannot: no Python package {', '.join(absent)}"
        return ""

    def all(self, steps):
        """Whether everything is recorded."""
        complete = True
        for step in steps:
            state = self.state(step)
            if state:
                print(f"{step.record}: {state}", flush=True)
                complete &= state == "recorded"
                continue
            if self.left() < 60 * self.least(step):
                print(f"{step.record}: left out, {step.minutes} minutes expected, {max(0, self.left() / 60):.1f} left", flush=True)
                complete = False
                continue
            begun = time.monotonic()
            done = self.measure(step)
            complete &= done
            print(f"{step.record}: {'recorded' if done else 'not complete'} after {(time.monotonic() - begun) / 60:.1f} minutes", flush=True)
        return complete

    def least(self, step):
        """Minutes that beginning it needs: all of it, or a part where what is measured is kept."""
        return step.minutes / 3 if step.by_round or "{json}" in step.words else step.minutes


def refuse(args):
    """Why this tree or binary must not be measured; None: it may be."""
    if not pathlib.Path(args.octavo).exists():
        return f"no octavo command at {args.octavo}: build it, or set OCTAVO"
    commit = figures.measured_commit()
    if not commit:
        return "no git checkout here: set OCTAVO_COMMIT to the commit that the binary was built from"
    if os.environ.get("OCTAVO_COMMIT"):
        return None
    changed = figures.git("status", "--porcelain", "--untracked-files=no", "--", *figures.SOURCES, "bench")
    if changed:
        return f"the tree has changes ({', '.join(line.split()[-1] for line in changed.splitlines()[:4])}): commit or remove them, build, and measure then"
    return None


def build(octavo):
    """Brings the command and the Python module up to date with the sources, where their build folder is; why that failed, or None."""
    folder = pathlib.Path(octavo).resolve().parents[1]
    if os.environ.get("OCTAVO_COMMIT") or not (folder / "build.ninja").exists():
        return None
    known = subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"], capture_output=True, text=True, check=False).stdout
    targets = [t for t in ("octavo_command", "octavo_python") if re.search(rf"^{t}: ", known, re.M)]
    done = subprocess.run(["ninja", "-C", folder, *targets], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"the build fails: {done.stdout[-500:]}{done.stderr[-500:]}"


def plan(run, steps):
    """The plan as a table, with what a budget leaves out."""
    total, budget = 0.0, run.args.budget
    print(f"commit {run.commit}, binary {run.digest}, {figures.machine()}" + (f"; {gpu}" if (gpu := gpu_time.device()) else ""))
    for step in steps:
        state = run.state(step) or (f"{n} of {run.args.rounds} rounds are kept" if step.by_round and (n := run.kept(step)) else "")
        if not run.recorded(step) and not missing(step):
            total += step.minutes
            state = state or ("over the budget" if total > budget else "")
        print(f"  {step.record:26} {step.minutes:4} min  {step.script:20} {state}")
    print(f"{total:.0f} minutes to measure" + (f", {budget:.0f} allowed" if budget < 1e6 else ""))


def prepare(work, scripts=("peers.py", "floats.py", "parity.py")):
    """The models of CPU rows: several processes that measure beside each other would make the same."""
    import floats
    import networks
    import peers

    of = argparse.Namespace(models=work / ("parity" if "parity.py" in scripts else "models"), nets=list(PARITY), precision="f32")
    of.models.mkdir(parents=True, exist_ok=True)
    if "parity.py" in scripts:
        networks.make_zoo(of, of.nets)
        print(f"{len([networks.table_of(of, net, style) for net in of.nets for style in networks.STYLES])} placements", flush=True)
    of.models, of.nets = work / "models", list(NETS)
    of.models.mkdir(parents=True, exist_ok=True)
    if "peers.py" in scripts:
        print(f"{len(list(peers.zoo_cases(of)))} files of networks with seeded weights", flush=True)
    of.nets = None
    if "floats.py" in scripts:
        print(f"{len(floats.models(of))} float networks", flush=True)


def publish():
    """Pages, picture and list from the records."""
    import peer_report

    for page in figures.pages():
        text = figures.page(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: written")
    sys.path.insert(0, str(ROOT / "scripts"))
    record, picture = __import__("claims").PICTURE
    if (figures.RECORDS / record).exists():
        (ROOT / picture).write_text(peer_report.picture_of_record(json.loads((figures.RECORDS / record).read_text(encoding="utf-8"))), encoding="utf-8")
    return subprocess.run([sys.executable, ROOT / "scripts/claims.py", "--pin"], check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--budget", type=float, default=1e9, metavar="MINUTES")
    parser.add_argument("--only", type=lambda t: t.split(","), default=[""], help="records whose names contain one of these")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/everything", help="where models, engines and rounds are kept")
    parser.add_argument("--out", type=pathlib.Path, help="where records go instead of docs/lab/records")
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo")))
    parser.add_argument("--rounds", type=int, default=figures.LEAST_ROUNDS)
    parser.add_argument("--seconds", type=float, default=0.25, help="a process")
    args = parser.parse_args()
    if args.publish:
        sys.exit(publish())
    args.work = args.work.resolve()
    sys.path.append(python_of(args))
    if args.prepare:
        prepare(args.work)
        return
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        figures.RECORDS = args.out.resolve()
    if why := refuse(args):
        sys.exit(f"error: {why}")
    if not args.plan and (why := build(args.octavo)):
        sys.exit(f"error: {why}")
    run, steps = Run(args), [s for s in steps_here() if any(text in s.record for text in args.only)]
    if args.plan:
        plan(run, steps)
        return
    sys.exit(0 if run.all(steps) else 1)


if __name__ == "__main__":
    main()
