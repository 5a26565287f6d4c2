#!/usr/bin/env python3
"""What somebody types in the first hour, with one or two builds of Octavo: bench/first_hour.py [BEFORE] AFTER, each the folder of a build (with
bin/octavo and python/octavo). Each action says what must come out; the table says for each build whether it did, and if not the last line that came.
Exit code 1 if an action fails with AFTER. Needs numpy, onnx and, for one action, onnxruntime."""
import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples/digits"


@dataclasses.dataclass
class Action:
    topic: str
    what: str
    does: str            # a shell line ("octavo ..."), or Python after "python:"
    says: tuple          # every one of these comes out
    code: object = 0     # the exit code; None: any but 0
    never: str = ""      # what must not come out


ACTIONS = [
    Action("options", "bench an engine with --bind", "octavo bench e.octavo --seconds 0.01 --bind image=uint8", ("--bind image=uint8 has no effect", "e.octavo"), 2),
    Action("options", "trtexec: --loadEngine with shapes that the engine lacks", "octavo --loadEngine=e.octavo --shapes=image:9x1x16x16 --duration=0.01", ("image",), None),
    Action("options", "trtexec: --saveEngine with --batch=8", "octavo --onnx=fp32.onnx --saveEngine=b.octavo --batch=8 --builderOptimizationLevel=0 --duration=0.01", ("batch 8",)),
    Action("options", "octavo build --batch 8", "octavo build fp32.onnx -o b.octavo --batch 8 --effort 0 && octavo bench b.octavo --seconds 0.01", ("batch 8",)),
    Action("options", "one --shapes for each input", "octavo build two.onnx -o two.octavo --effort 0 --shapes a:2x3 --shapes b:3x4", ("two.octavo",)),
    Action("options", "preprocessing of an array", "octavo run e.octavo --input x.npy --scale 1/255", ("--scale 1/255 has no effect",), 2),
    Action("options", "a number that is none", "octavo bench e.octavo --seconds nan", ("--seconds", "nan"), 2),
    Action("options", "a divisor of pixels that is 0", "octavo run e.octavo --input data --std 0", ("--std 0",), 2),
    Action("options", "two options for the same shapes", "octavo bench fp32.onnx --shapes image:1x1x16x16 --optShapes image:2x1x16x16 --effort 0 --seconds 0.01",
           ("--optShapes image:2x1x16x16 has no effect",), 2),
    Action("options", "trtexec: a range of shapes, and --shapes to measure",
           "octavo --onnx=fp32.onnx --saveEngine=r.octavo --minShapes=image:1x1x16x16 --optShapes=image:2x1x16x16 --maxShapes=image:3x1x16x16 --shapes=image:3x1x16x16 "
           "--builderOptimizationLevel=0 --duration=0.01", ("batch 3",)),
    Action("options", "a Python number that is none", "python: import octavo; octavo.bench(octavo.build('fp32.onnx', shapes={'image': (1, 1, 16, 16)}, effort=0), float('nan'))", ("seconds=nan",), 1),
    Action("names", "an input under a wrong name", "octavo run fp32.onnx --input imagee=x.npy --effort 0", ('the model has no input "imagee"; nearest: "image"',), 2),
    Action("names", "an array under a wrong name", "octavo run fp32.onnx --input wrong.npz --effort 0", ('"picture"', '"image"'), 5),
    Action("names", "results carry the file of their array", "octavo run e.octavo --input x.npy --output - --format json", ('"x.npy"',)),
    Action("names", "a range of an unknown tensor", "python: import octavo; octavo.build('fp32.onnx', calibration={'imag': 1.0})", ('no tensor "imag"; nearest: "image"',), 1),
    Action("names", "an unknown session entry", "python: import octavo; octavo.SessionOptions().add_session_config_entry('octavo.efort', '0')", ('"octavo.efort"; nearest: "octavo.effort"',), 1),
    Action("names", "an unknown feed beside a missing one",
           "python: import octavo, numpy; octavo.InferenceSession('fp32.onnx').run(None, {'imag': numpy.zeros((1, 1, 16, 16), numpy.float32)})", ('no input "imag"; nearest: "image"',), 1),
    Action("folders", "run goes on after an unreadable picture", "octavo run e.octavo --input broken --scale 1/255", ("good.png", "1 file could not be read"), 5),
    Action("folders", "labels inside a folder of data", "octavo eval fp32.onnx --data labelled --labels labelled/labels.txt --scale 1/255 --shapes image:1x1x16x16", ("top-1",), never="labels.txt is left out"),
    Action("advise", "what pays", "octavo advise qdq.onnx --effort 0 --threads 1 --shapes image:1x1x16x16", ("1 % of that or more",)),
    Action("sessions", "model and input names of a session",
           "python: import octavo; s = octavo.InferenceSession('fp32.onnx'); print(s.get_modelmeta().graph_name != '', s.get_inputs()[0].shape)", ("True", "[")),
    Action("sessions", "a session travels by pickle",
           "python: import octavo, pickle; print(pickle.loads(pickle.dumps(octavo.InferenceSession('fp32.onnx'))).get_inputs()[0].name)", ("image",)),
    Action("sessions", "ONNX Runtime's exceptions",
           "python: import octavo; from octavo.capi.onnxruntime_pybind11_state import NoSuchFile\ntry: octavo.InferenceSession('absent.onnx')\nexcept NoSuchFile: print('caught')", ("caught",)),
    Action("check", "a model and its engine", "octavo check fp32.onnx e.octavo --effort 0 --atol 1e-3", ()),
    Action("check", "a model and ONNX Runtime", "octavo check fp32.onnx --against onnxruntime --effort 0 --shapes image:1x1x16x16", ()),
    Action("check", "eval of the same network under other names",
           "octavo eval fp32.onnx renamed.onnx --data data --scale 1/255 --shapes image:1x1x16x16", ("inputs are matched by position: image -> pixels", "equal")),
    Action("sessions", "run_async",
           "python: import octavo, numpy, threading; e = threading.Event(); s = octavo.InferenceSession('fp32.onnx')\n"
           "s.run_async(None, {'image': numpy.zeros((2, 1, 16, 16), numpy.float32)}, lambda r, data, error: (print(r[0].shape, data, repr(error)), e.set()), 7); e.wait(60)",
           ("(2, 10) 7 ''",)),
    Action("quantize", "a model of opset 11",
           "octavo quantize old.onnx --data data --scale 1/255 --rounding nearest -o old.q.onnx --shapes image:1x1x16x16", ("old.q.onnx",)),
    Action("serving", "a model's configuration, as Triton names it", "python: from octavo.serve._config import model_config; print('there')", ("there",)),
    Action("files", "a checkpoint instead of a model", "octavo run weights.pt --input x.npy", ("PyTorch",), None),
    Action("files", "--preset imagenet", "octavo build three.onnx -o p.octavo --effort 0 --preset imagenet", ("p.octavo",)),
    Action("engine files", "octavo rebuild", "octavo rebuild --all e.octavo", ("e.octavo",)),
    Action("NaN", "Relu keeps NaN", "python: import octavo, numpy; e = octavo.build('relu.onnx', effort=0); print(e.run(numpy.full((1, 4), numpy.nan, numpy.float32))['y'])", ("nan nan nan nan",)),
    Action("NaN", "run --count-nonfinite", "octavo run relu.onnx --input nan.npy --effort 0 --count-nonfinite", ("1 NaN",)),
    Action("view", "a page of a model", "octavo view fp32.onnx -o v.html --effort 0 --shapes image:1x1x16x16 && head -c 600 v.html", ("<title>",)),
]


def prepare(folder, octavo):
    """The files that the actions name."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    def save(name, nodes, inputs, outputs, opset=17):
        value = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in part] for part in (inputs, outputs)]
        onnx.save(helper.make_model(helper.make_graph(nodes, name, *value), opset_imports=[helper.make_opsetid("", opset)], ir_version=8), folder / f"{name}.onnx")

    shutil.copy(DIGITS / "digits_fp32.onnx", folder / "fp32.onnx")
    shutil.copy(DIGITS / "digits_qdq.onnx", folder / "qdq.onnx")
    save("two", [helper.make_node("MatMul", ["a", "b"], ["y"])], [("a", ["n", 3]), ("b", [3, "m"])], [("y", ["n", "m"])])
    save("relu", [helper.make_node("Relu", ["x"], ["y"])], [("x", [1, 4])], [("y", [1, 4])])
    save("three", [helper.make_node("Relu", ["x"], ["y"])], [("x", [1, 3, 8, 8])], [("y", [1, 3, 8, 8])])
    renamed = onnx.load(folder / "fp32.onnx")
    for node in renamed.graph.node:
        node.input[:] = ["pixels" if n == "image" else n for n in node.input]
    renamed.graph.input[0].name = "pixels"
    onnx.save(renamed, folder / "renamed.onnx")
    rng = np.random.default_rng(1)
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [4, 1, 3, 3], rng.normal(size=36).astype(np.float32)),
               helper.make_tensor("v", TensorProto.FLOAT, [4 * 256, 3], (rng.normal(size=4 * 256 * 3) / 32).astype(np.float32))]
    nodes = [helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]), helper.make_node("Flatten", ["r"], ["f"]),
             helper.make_node("MatMul", ["f", "v"], ["y"])]
    graph = helper.make_graph(nodes, "old", [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 16, 16])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6), folder / "old.onnx")
    x = np.full((1, 1, 16, 16), 0.5, np.float32)
    np.save(folder / "x.npy", x)
    np.savez(folder / "wrong.npz", picture=x)
    np.save(folder / "nan.npy", np.float32([[1, np.nan, -1, 2]]))
    pictures = sorted((DIGITS / "images").glob("*.png"))[:4]
    for name in ("data", "broken", "labelled"):
        (folder / name).mkdir()
    for source in pictures:
        shutil.copy(source, folder / "data")
        shutil.copy(source, folder / "labelled")
    (folder / "labelled/labels.txt").write_text("1\n" * len(pictures))
    shutil.copy(pictures[0], folder / "broken/good.png")
    (folder / "broken/bad.png").write_bytes(pictures[0].read_bytes()[:60])
    import zipfile
    with zipfile.ZipFile(folder / "weights.pt", "w") as archive:
        archive.writestr("weights/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("weights/version", b"3\n")
    subprocess.run([octavo, "build", "fp32.onnx", "-o", "e.octavo", "--effort", "0", "--threads", "1", "--shapes", "image:1x1x16x16"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)


def judge(action, build, folder):
    """"" if the action gave what it must, else what came instead."""
    environment = {**os.environ, "PATH": f"{build / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(build / "python"), "OCTAVO_PYTHON": sys.executable}
    script = action.does.removeprefix("python:")
    command = [sys.executable, "-c", script.strip()] if script != action.does else ["bash", "-c", action.does]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return "no end after two minutes"
    text = done.stdout + done.stderr
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "nothing printed")
    if done.returncode != action.code and not (action.code is None and done.returncode != 0):
        return f"exit code {done.returncode}: {last}"
    missing = [s for s in action.says if s not in text]
    if action.never and action.never in text:
        return f"says {action.never!r}"
    return f"lacks {missing[0]!r}: {last}" if missing else ""


def column(build, actions):
    with tempfile.TemporaryDirectory(prefix="octavo-first-hour-") as scratch:
        folder = pathlib.Path(scratch)
        prepare(folder, build / "bin/octavo")
        return [judge(a, build, folder) for a in actions]


def table(actions, columns):
    lines = ["| | action | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    for i, a in enumerate(actions):
        cells = [c[i].replace("|", "\\|") or "ok" for c in columns.values()]
        lines.append(f"| {a.topic} | {a.what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("builds", nargs="+", type=pathlib.Path, help="the folder of one build, or of two: BEFORE AFTER")
    parser.add_argument("--topic", help="only the actions of this topic")
    args = parser.parse_args()
    if len(args.builds) > 2:
        parser.error(f"{len(args.builds)} builds are given; BEFORE and AFTER are two")
    builds = [b.resolve() for b in args.builds]
    for build in builds:
        if not (build / "bin/octavo").is_file():
            parser.error(f"{build} holds no bin/octavo: give the folder of a build, such as build/release")
    actions = [a for a in ACTIONS if args.topic in (None, a.topic)]
    if not actions:
        parser.error(f"--topic {args.topic}: the topics are {', '.join(dict.fromkeys(a.topic for a in ACTIONS))}")
    names = ["before", "after"][2 - len(builds):]
    columns = {name: column(build, actions) for name, build in zip(names, builds)}
    print(table(actions, columns))
    print("\n" + ", ".join(f"{name}: {sum(not cell for cell in cells)} of {len(actions)}" for name, cells in columns.items()))
    sys.exit(1 if any(columns["after"]) else 0)


if __name__ == "__main__":
    main()
