"""Octavo beside ONNX Runtime and OpenVINO on this machine: the tables of docs/lab/performance.md and the README (--record, bench/figures.py).

The networks have the shapes of the real ones and seeded weights; each is written as symmetric int8 Q/DQ models in several placements, as the
uint8 model that suits the peers, and in float (for OpenVINO in bfloat16 too). Every measurement is a process of its own; the engines take
turns, round after round, on the same file and the same inputs with the same cores; figures are medians over rounds. The outputs of every
engine in every configuration are judged too. Engines of Octavo are built first, at the default effort. `--real`: the trained models of the test
data instead, as they are and quantized, beside our own float. Results are kept in --json; a run that is repeated adds its rounds.

usage: peers.py [--nets A,B] [--configs 1x1,2x1,1x8,2x8] [--rounds N] [--steady X] [--real] [--record NAME] [--json FILE]      configs: THREADSxBATCH
       peers.py --prepare DIR [--wheels DIR]      one folder for a machine without network; says which wheels it needs
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

import bundle
import networks
import peer
import peer_report
import roofline
import counterparts
import figures

STYLES = {"resnet50": ("residual", "outputs"), "mobilenet_v2": ("residual", "outputs"), "yolov8n": ("outputs", "everywhere", "inputs"),
          "unet": ("residual", "outputs")}
CHIEF = {"resnet50": "residual", "mobilenet_v2": "residual", "yolov8n": "outputs", "unet": "residual"}  # of the other configurations
FLOATS = {"float": ("f32", ("octavo", "ort", "openvino")), "bfloat16": ("bf16", ("openvino",))}
PEERS = ("octavo", "ort", "openvino")

Case = collections.namedtuple("Case", "net form path shapes")


def zoo_cases(args):
    """The seeded networks: symmetric placements, uint8, float."""
    networks.make_zoo(args, args.nets)
    for net in args.nets:
        base = args.models / f"{net}.onnx"
        for style in STYLES[net]:
            yield Case(net, style, networks.placed_model(args, net, style), {})
        uint8 = args.models / f"{net}.u8.onnx"
        if not uint8.exists():
            counterparts.run([sys.executable, counterparts.DATA / "bench/quantize.py", args.models, net])
        yield Case(net, "uint8", uint8, {})
        for form in FLOATS:
            yield Case(net, form, base, {})


def real_cases(args):
    """The trained models: each file, its Q/DQ placements, and the uint8 form of those."""
    import onnx
    import real_data

    folder = args.models / "real"
    folder.mkdir(parents=True, exist_ok=True)
    for model in real_data.MODELS:
        shapes = {model.input: list(model.shape)} if model.shape else {}
        net = re.match(r"[a-z]+[0-9]*", model.file)[0]  # "mobilenetv2": three files
        net += "-small" * (net in networks.ZOO)
        for name, path in real_data.variants(model, folder):
            coded = any(n.op_type in ("QuantizeLinear", "QLinearConv") for n in onnx.load(path).graph.node)
            found = [Case(net, name if coded else "float", path, shapes)]
            counterpart = folder / f"{name}_u8.onnx"
            if coded and path.parent == folder and (counterpart.exists() or real_data.as_uint8(path, counterpart)):
                found.append(Case(net, f"{name}_u8", counterpart, shapes))
            for case in found:  # one of its pictures, not noise
                kept_feeds(args, case, 1, lambda: {model.input: real_data.feed(model, 1)[0][:1]})
                yield case


def prefix(args, threads):
    """What a measured process is started with: its cores, and real-time priority where that is allowed."""
    words = ["taskset", "-c", ",".join(map(str, args.cpus[-threads:]))] if shutil.which("taskset") else []
    return (["chrt", "-f", "70"] if args.realtime else []) + words


def call(command):
    """The last line of a process's output as JSON."""
    return json.loads(counterparts.run(command).splitlines()[-1])


def last_line(error):
    return str(error).strip().splitlines()[-1][:200]


def shapes_text(case, batch):
    """--shapes for a build, or nothing."""
    if case.shapes:
        return ["--shapes", ",".join(f"{k}:{'x'.join(map(str, v))}" for k, v in case.shapes.items())]
    return ["--shapes", ",".join(f"{k}:{'x'.join(map(str, v.shape))}" for k, v in peer.inputs_of(case.path, batch).items())]


def engine_of(args, case, threads, batch):
    """Octavo's engine, built once a configuration and command."""
    path = args.models / "engines" / f"{case.path.stem}.t{threads}.b{batch}.{args.digest}.octavo"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        part = path.with_suffix(".part")
        counterparts.run([*prefix(args, threads), args.octavo, "build", case.path, "-o", part, "--threads", threads, "--timing-cache",
                   args.models / f"times.{args.digest}.txt", *shapes_text(case, batch)])
        part.replace(path)
    return path


def kept_feeds(args, case, batch, make):
    """The file with the inputs of all engines, made once."""
    import numpy as np

    path = args.models / "engines" / f"{case.path.stem}.b{batch}.npz"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        np.savez(path, **make())
    return path


def feeds_of(args, case, batch):
    return kept_feeds(args, case, batch, lambda: peer.inputs_of(case.path, batch, case.shapes))


def process_of(args, case, engine, threads, batch, seconds, outputs=None):
    """The command of one process of one engine: every engine reads the same file of inputs. `outputs`: the file to write its outputs to, which
    `octavo bench` does not do: there it is `octavo run` on the same engine and inputs."""
    feeds, words = feeds_of(args, case, batch), prefix(args, threads)
    if engine == "octavo":
        own = [*words, args.octavo, "run" if outputs else "bench", engine_of(args, case, threads, batch), "--threads", threads, "--input", feeds]
        return own + (["--output", outputs] if outputs else ["--json", "--seconds", seconds])
    words += [sys.executable, pathlib.Path(peer.__file__), engine, case.path, "-t", threads, "-s", seconds, "--inputs", feeds]
    words += ["--precision", FLOATS[case.form][0]] if case.form in FLOATS else []
    return words + (["--outputs", outputs] if outputs else [])


def measure(args, case, engine, threads, batch):
    """What one process of one engine measured."""
    return call(process_of(args, case, engine, threads, batch, args.seconds))


def agree(args, case, threads, batch):
    """{engine: peer_report.difference of its outputs}, the reference being ONNX Runtime without optimizations on the same inputs."""
    import numpy as np

    def outputs(name, command):
        counterparts.run(command)
        return {k: v.astype(np.float64) for k, v in np.load(folder / f"{name}.npz").items()}

    folder = args.models / "engines"
    feeds = feeds_of(args, case, batch)
    plain = outputs("plain", [sys.executable, pathlib.Path(peer.__file__), "ort", case.path, "-s", 0, "--inputs", feeds, "--plain", "--outputs",
                              folder / "plain.npz"])
    found = {}
    for engine in engines_for(args, case):
        try:
            found[engine] = outputs(engine, process_of(args, case, engine, threads, batch, 0, folder / f"{engine}.npz"))
        except RuntimeError as error:
            print(f"{case.path}: {engine} cannot run it: {last_line(error)}", file=sys.stderr)
    return {engine: peer_report.difference(own, plain) for engine, own in found.items()}


def start_of(args, case):
    """From the ONNX file to the first result, a core each: building with an empty and a full timing cache, loading, memory."""
    words, cache = prefix(args, 1), args.models / "engines" / f"{case.path.stem}.start.txt"
    cache.unlink(missing_ok=True)
    tail = ["--json", "--seconds", 0.01, "--input", feeds_of(args, case, 1)]
    build = [args.octavo, "bench", case.path, "--threads", 1, "--timing-cache", cache, *shapes_text(case, 1), *tail]
    loads = [call([*words, args.octavo, "bench", engine_of(args, case, 1, 1), *tail]) for _ in range(5)]
    load = {k: statistics.median(r[k] for r in loads) for k in ("load_ms", "first_ms", "memory_kb")}
    two = ["taskset", "-c", ",".join(map(str, args.cpus[-2:]))] if shutil.which("taskset") else []
    found = {"empty": call([*two, *build]), "full": call([*words, *build]), "load": load}
    for engine in args.peers:
        if engine != "octavo":
            found[engine] = call([*words, sys.executable, pathlib.Path(peer.__file__), engine, case.path, "-s", 0, "--inputs", feeds_of(args, case, 1)])
    return found


def peak_of(args, threads):
    """GMAC/s of the fastest 8-bit dot instruction, in a round of its own."""
    found = call([*prefix(args, threads), args.layer_bench, "--peak", threads])
    return max(found["vnni"], found["amx"])


def engines_for(args, case):
    return [p for p in args.peers if p in FLOATS.get(case.form, ("", PEERS))[1]]


def measured(args, case, threads, batch):
    """Whether a case is measured in a configuration: all of them on one thread with one image, the chief ones in the others."""
    if (threads, batch) == (1, 1):
        return True
    return batch == 1 if args.real else case.form in (CHIEF[case.net], "uint8")


def save(args, results):
    part = args.json.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1), encoding="utf-8")
    part.replace(args.json)


def run(args, cases, results):
    """Adds `args.rounds` rounds of every case and configuration to the results."""
    import onnx

    say = sys.stderr
    if results.get("of") != args.digest:
        results["agree"] = {}  # outputs of another build
    for case in cases:
        if case.net not in results["work"]:
            try:
                results["work"][case.net] = [list(k) for k in roofline.kernels_of(onnx.load(case.path), given=case.shapes)]
            except (ValueError, KeyError) as error:
                print(f"{case.path}: no roofline: {error}", file=say)
    results |= {"of": args.digest, "realtime": args.realtime}
    for round_ in range(args.rounds):
        for threads, batch in args.configs:
            if args.layer_bench.exists():
                results["peaks"].setdefault(str(threads), []).append(peak_of(args, threads))
            for case in cases:
                if not measured(args, case, threads, batch):
                    continue
                name = f"{case.net} {case.form} {threads}x{batch}"
                if getattr(args, "agree", True) and name not in results["agree"]:
                    try:
                        results["agree"][name] = agree(args, case, threads, batch)
                    except RuntimeError as error:
                        print(f"{case.path}: ONNX Runtime without optimizations, the reference: {last_line(error)}", file=say)
                times = results["times"].setdefault(name, {})
                for engine in engines_for(args, case):
                    try:
                        times.setdefault(engine, []).append(measure(args, case, engine, threads, batch)["median_ms"])
                    except RuntimeError as error:
                        print(f"{case.path}: {engine}: {last_line(error)}", file=say)
                print(f"round {round_ + 1}: {name}: " + ", ".join(f"{e} {v[-1]:.3f}" for e, v in times.items() if v), file=say, flush=True)
                save(args, results)


def prepare(args):
    """The folder for another machine, and the wheels that it needs beside it."""
    args.nets = list(networks.ZOO)
    bundle.SCRIPTS = (*bundle.SCRIPTS, "peers.py", "peer.py", "peer_report.py", "roofline.py", "chart.py", "layers.py")
    size = bundle.prepare(args, args.prepare)
    for tool in [args.layer_bench] if args.layer_bench.exists() else []:
        bundle.pack(tool, args.prepare / "bin/octavo_layer_bench", args.models / "packed")
        for library in bundle.libraries(tool):
            bundle.pack(library.resolve(), args.prepare / "bin" / library.name, args.models / "packed")
    shutil.copy(counterparts.DATA / "bench/quantize.py", args.prepare / "shared/bench")
    print(f"{args.prepare}: {size / 2**20:.1f} MiB. Bring along, for that machine's Python, in {args.prepare}/wheels:\n"
          f"  pip download --only-binary=:all: -d {args.prepare}/wheels numpy onnx onnxruntime openvino\n"
          f"there: pip install --no-index --find-links wheels numpy onnx onnxruntime openvino\n"
          f"       python bench/peers.py --run .")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=lambda t: t.split(","), default=list(networks.ZOO))
    parser.add_argument("--configs", type=lambda t: [tuple(map(int, c.split("x"))) for c in t.split(",")], default=[(1, 1), (2, 1), (1, 8), (2, 8)])
    parser.add_argument("--peers", type=lambda t: t.split(","), default=list(PEERS))
    parser.add_argument("--forms", type=lambda t: t.split(","), help="only these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="a process")
    parser.add_argument("--steady", type=float, metavar="X", help="leave out the rounds in which some engine took more than X times its fastest, for all engines alike: for hosts that share a core's units")
    parser.add_argument("--real", action="store_true", help="the trained models of the test data")
    parser.add_argument("--no-agree", dest="agree", action="store_false", help="do not compare outputs (another run does)")
    parser.add_argument("--start", action="store_true", help="times to build, to load and to the first result, and memory, as well")
    parser.add_argument("--models", type=pathlib.Path, default=counterparts.ROOT / "build/peers", help="where models and engines are kept")
    parser.add_argument("--json", type=pathlib.Path, help="where results are kept (default: in --models)")
    parser.add_argument("--cpus", type=lambda t: [int(c) for c in t.split(",")], help="cores to measure on, the last ones first")
    parser.add_argument("--octavo", default=counterparts.octavo_command())
    parser.add_argument("--layer-bench", type=pathlib.Path, help="octavo_layer_bench (default: beside the build of --octavo)")
    parser.add_argument("--prepare", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--run", type=pathlib.Path, metavar="DIR", help="what --prepare made")
    parser.add_argument("--wheels", type=pathlib.Path, metavar="DIR", help="wheels to put into the prepared folder")
    figures.add_option(parser)
    args = parser.parse_args()
    args.models.mkdir(parents=True, exist_ok=True)
    args.cpus = args.cpus or sorted(os.sched_getaffinity(0))
    args.configs = [c for c in args.configs if c[0] <= len(args.cpus)]
    if args.run:
        args.octavo = str(bundle.unpack(args.run, args.models))
        args.layer_bench = args.models / "bin/run-octavo_layer_bench"
        args.layer_bench.write_text(pathlib.Path(args.octavo).read_text(encoding="utf-8").replace('/octavo" ', '/octavo_layer_bench" '), encoding="utf-8")
        args.layer_bench.chmod(0o755)
        counterparts.DATA = (args.run / "shared").resolve()
    args.layer_bench = args.layer_bench or pathlib.Path(args.octavo).parents[1] / "bench/octavo_layer_bench"
    args.json = args.json or args.models / ("real.json" if args.real else "peers.json")
    args.realtime = shutil.which("chrt") is not None and subprocess.run(["chrt", "-f", "70", "true"], capture_output=True, check=False).returncode == 0
    args.digest = bundle.digest(args.octavo) if args.rounds > 0 or args.prepare else ""
    return args


def main():
    args = arguments()
    if args.prepare:
        prepare(args)
        return
    if not (counterparts.DATA / "bench/zoo.py").exists():
        sys.exit(f"error: no test data at {counterparts.DATA}; set OCTAVO_TEST_DATA")
    empty = {"times": {}, "agree": {}, "work": {}, "peaks": {}, "start": {}, "machine": peer_report.machine(args.peers)}
    results = empty | (json.loads(args.json.read_text(encoding="utf-8")) if args.json.exists() else {})
    if args.rounds > 0:
        figures.claim(results, args.octavo)
        cases = [c for c in (real_cases if args.real else zoo_cases)(args) if not args.forms or c.form in args.forms]
        run(args, cases, results)
        if args.start:
            results["start"] |= {c.net: start_of(args, c) for c in cases if c.form == CHIEF.get(c.net)}
        save(args, results)
    if args.steady:
        results["steady"] = args.steady
    if args.record:
        figures.save(figures.record(results, peer_report.record_tables(results), results.get("steady"), peer_report.record_views(results)), args.record)
    print(peer_report.text(results, args.real))


if __name__ == "__main__":
    main()
