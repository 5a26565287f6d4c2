"""The backend tests of the installed onnx package, run on Octavo: python -m octavo.backend_tests --device cpu|reference

Kinds: node, simple, pytorch-converted, pytorch-operator; tests that need downloads are left out. Each test ends in one class:

  cpu        passed, every computing layer in a kernel of the cpu device
  reference  passed, at least one layer in the reference evaluator (cpu.reference.*), or the device is "reference"
  static     passed, but the results depend on shapes and the values of inputs that decide them alone: nothing was computed when it ran; not counted as passed
  refused    UnsupportedError, with its reason
  wrong      results that differ, or another error
  crashed    the process died, or took longer than --timeout

Tests run one after the other in a forked worker; when it dies, another goes on with the next test.
"""
import argparse
import collections
import json
import os
import re
import select
import signal
import sys
import time
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
CLASSES = ("cpu", "reference", "static", "refused", "wrong", "crashed")


def load_tests(kinds=KINDS):
    """[(name, TestCase)] in a fixed order."""
    from onnx.backend.test.loader import load_model_tests
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for kind in kinds for case in load_model_tests(kind=kind)]
    return sorted(((f"{c.kind}/{c.name}", c) for c in cases if not c.url), key=lambda item: item[0])


def model_of(case):
    return case.model if case.model is not None else onnx.load(os.path.join(case.model_dir, "model.onnx"))


#: {test: (absolute tolerance, why)}: expected values that carry rounding errors larger than the package's own tolerance
NOISY = {name: (1e-6, "the expected zeros are rounding errors of NumPy's float32 FFT of values up to 100")
         for name in ("node/test_dft_inverse", "node/test_dft_inverse_opset19")}


def _value(item):
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    return item


def _read_value(path, declared):
    with open(path, "rb") as f:
        content = f.read()
    kind = declared.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def _data_sets(case, model):
    if case.model is not None:
        return [([_value(x) for x in i], [_value(x) for x in o]) for i, o in case.data_sets]
    sets = []
    initialised = {t.name for t in model.graph.initializer}
    for folder in sorted(os.listdir(case.model_dir)):
        if not folder.startswith("test_data_set"):
            continue
        at = os.path.join(case.model_dir, folder)
        count = {kind: sum(n.startswith(kind + "_") for n in os.listdir(at)) for kind in ("input", "output")}
        declared = [v for v in model.graph.input if v.name not in initialised]
        if len(declared) < count["input"]:
            declared = list(model.graph.input)
        sets.append(([_read_value(os.path.join(at, f"input_{i}.pb"), declared[i].type) for i in range(count["input"])],
                     [_read_value(os.path.join(at, f"output_{i}.pb"), model.graph.output[i].type) for i in range(count["output"])]))
    return sets


#: operators whose results depend on the shape of an operand only
_SHAPE_ONLY = ("Shape", "Size", "EyeLike")


def _captured(node):
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from inner.input
                yield from _captured(inner)
            yield from (o.name for o in attribute.g.output)


def depends_on_data(model, bound=()):
    """True if a path of nodes leads from a graph input to an output, other than through shapes alone. bound: inputs whose values the engine
    was built for."""
    known = set(bound) | {t.name for t in model.graph.initializer}
    reached = {v.name for v in model.graph.input if v.name not in known}
    for node in model.graph.node:
        if node.op_type not in _SHAPE_ONLY and not reached.isdisjoint([*node.input, *_captured(node)]):
            reached.update(node.output)
    return any(o.name in reached for o in model.graph.output)


def _class_of(model, engine, device):
    """Which kind of layers computed the outputs."""
    if not depends_on_data(model, [i["name"] for i in engine.inputs if (i["format"] or "").startswith("=")]):
        return "static", "its results depend on shapes and the values of inputs that decide them alone"
    if device == "reference":
        return "reference", ""
    slow = sorted({layer["tactic"] for layer in engine.layers if ".reference." in layer["tactic"]})
    return ("reference", ", ".join(slow)) if slow else ("cpu", "")


def run_test(case, device):
    """(class, text)"""
    from onnx.backend.test.runner import Runner

    import octavo
    from octavo import backend
    try:
        model = model_of(case)
        atol = max([case.atol, NOISY.get(f"{case.kind}/{case.name}", (0, ""))[0]])
        prepared = backend.prepare(model, device, threads=1)
        for inputs, expected in _data_sets(case, model):
            outputs = prepared.run(inputs)
            try:
                Runner.assert_similar_outputs(expected, list(outputs), rtol=case.rtol, atol=atol, model_dir=case.model_dir)
            except (AssertionError, TypeError) as e:
                return "wrong", " ".join(str(e).split())[:300]
        return _class_of(model, prepared.engine, device)
    except octavo.UnsupportedError as e:
        return "refused", reason_of(str(e))
    except Exception as e:  # any other error on a valid model counts as wrong
        return "wrong", f"{type(e).__name__}: " + " ".join(str(e).split())[:300]


def reason_of(text):
    """The reason in a refusal: of the first node, without its place."""
    found = re.search(r"\n  (\S+) \([^\n]*index \d+: ([^\n]*)\n", text)
    return f"{found.group(1)}: {found.group(2)}" if found else " ".join(text.split())


class _Worker:
    def __init__(self, tests, device):
        self._jobs_r, self._jobs_w = os.pipe()
        self._results_r, self._results_w = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._jobs_w)
            os.close(self._results_r)
            warnings.simplefilter("ignore")
            np.seterr(all="ignore")
            with os.fdopen(self._jobs_r) as jobs, os.fdopen(self._results_w, "w") as results:
                for line in jobs:
                    results.write(json.dumps(run_test(tests[int(line)][1], device)) + "\n")
                    results.flush()
            os._exit(0)
        os.close(self._jobs_r)
        os.close(self._results_w)

    def run(self, index, timeout):
        os.write(self._jobs_w, f"{index}\n".encode())
        text = b""
        end = time.monotonic() + timeout
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([self._results_r], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return "crashed", f"took longer than {timeout:g} s"
            part = os.read(self._results_r, 65536)
            if not part:
                _, status = os.waitpid(self.pid, 0)
                return "crashed", f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit status {status >> 8}"
            text += part
        return tuple(json.loads(text))

    def close(self):
        os.close(self._jobs_w)
        os.close(self._results_r)


def run_all(tests, device, timeout=30.0, progress=None):
    """{name: (class, text)}"""
    results = {}
    worker = _Worker(tests, device)
    for i, (name, _) in enumerate(tests):
        results[name] = worker.run(i, timeout)
        if results[name][0] == "crashed":
            worker.close()
            worker = _Worker(tests, device)
        if progress:
            progress(name, results[name])
    worker.close()
    return results


def read_pinned(path):
    """{test: reason} of a list of refused tests: "name: reason" a line, # comments."""
    with open(path) as f:
        lines = [line.rstrip("\n") for line in f if line.strip() and not line.startswith("#")]
    return dict(line.split(": ", 1) for line in lines)


def differences(results, pinned):
    """What `results` say otherwise than the list of refused tests, as texts."""
    out = []
    for name, (c, text) in results.items():
        if c in ("wrong", "crashed"):
            out.append(f"{name} is {c}: {text}")
        elif (c == "refused") != (name in pinned):
            out.append(f"{name} is {c}{': ' + text if text else ''}; the list says {'refused: ' + pinned[name] if name in pinned else 'passed'}")
        elif c == "refused" and text != pinned[name]:
            out.append(f"{name} is refused: {text}; the list says: {pinned[name]}")
    return out


def read_kernels(path):
    """The tests of a list of those that run in kernels alone: a name a line, # comments."""
    with open(path) as f:
        return [line.strip() for line in f if line.strip() and not line.startswith("#")]


def lost_kernels(results, names):
    """Tests among `names` that ran and do not run in kernels alone any more, as texts."""
    return [f"{name} is {results[name][0]}: {results[name][1]}; the list says that kernels run it"
            for name in names if name in results and results[name][0] != "cpu"]


def table(results):
    """Counts by kind and class, as text."""
    counts = collections.Counter((name.split("/")[0], c) for name, (c, _) in results.items())
    lines = [f"{'kind':<20}" + "".join(f"{c:>11}" for c in CLASSES) + f"{'tests':>8}"]
    for kind in [k for k in KINDS if any(n.startswith(k + "/") for n in results)] + ["all"]:
        row = [sum(n for (k, c), n in counts.items() if c == want and kind in (k, "all")) for want in CLASSES]
        lines.append(f"{kind:<20}" + "".join(f"{n:>11}" for n in row) + f"{sum(row):>8}")
    return "\n".join(lines)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m octavo.backend_tests", description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "reference"), default="cpu")
    parser.add_argument("--kind", choices=KINDS, action="append", help="may be repeated; default: all")
    parser.add_argument("--filter", default="", help="regular expression on the test's name (kind/test_...)")
    parser.add_argument("--part", default="1/1", help="K/N: every N-th test, the K-th part")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for one test")
    parser.add_argument("--list", choices=CLASSES, action="append", default=[], help="print the tests of a class with their texts")
    parser.add_argument("--json", help="write {test: [class, text]} to this file")
    parser.add_argument("--pinned", help="a list of refused tests; what differs from it is printed, and fails")
    parser.add_argument("--pin", help="write the list of refused tests to this file")
    parser.add_argument("--kernels", help="a list of tests that kernels alone run; what is not so is printed, and fails (device cpu)")
    parser.add_argument("--pin-kernels", help="write the list of tests that kernels alone run to this file; OCTAVO_CPU=portable for one that holds "
                        "on every processor")
    args = parser.parse_args(argv)
    part, parts = (int(n) for n in args.part.split("/"))
    tests = [t for t in load_tests(args.kind or KINDS) if re.search(args.filter, t[0])][part - 1::parts]
    start = time.monotonic()
    results = run_all(tests, args.device, args.timeout)
    for wanted in args.list:
        for name, (c, text) in results.items():
            if c == wanted:
                print(f"{c}  {name}: {text}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)
    if args.pin:
        with open(args.pin, "w") as f:
            f.write(f"# Backend tests of onnx {onnx.__version__} that are refused, with the reason. Written by: python -m octavo.backend_tests --pin FILE\n")
            f.writelines(f"{name}: {text}\n" for name, (c, text) in sorted(results.items()) if c == "refused")
    changed = differences(results, {**read_pinned(args.pinned)}) if args.pinned else []
    if args.pin_kernels:
        with open(args.pin_kernels, "w") as f:
            f.write(f"# Backend tests of onnx {onnx.__version__} that kernels alone run on every processor. Written by:\n"
                    "# OCTAVO_CPU=portable python -m octavo.backend_tests --device cpu --pin-kernels FILE\n")
            f.writelines(f"{name}\n" for name, (c, _) in sorted(results.items()) if c == "cpu")
    if args.kernels:
        changed += lost_kernels(results, read_kernels(args.kernels))
    for text in changed:
        print(text)
    print(table(results))
    passed = sum(c in ("cpu", "reference") for c, _ in results.values())
    print(f"device {args.device}: {passed} passed; onnx {onnx.__version__}; {time.monotonic() - start:.0f} s")
    return 1 if changed or any(c in ("wrong", "crashed") for c, _ in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
