"""Random graphs over all operators: the reference device against the onnx package's own reference implementation, and the cpu device
against the reference device. A failure prints the seed and the nodes; OCTAVO_SEED repeats one; how many there are: tests/support/rounds.py."""
import os
import time
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import graph_ops  # noqa: E402
import graph_ops_moving  # noqa: E402, F401  (adds to graph_ops.OPS, as the next)
import graph_ops_wide  # noqa: E402, F401
import octavo  # noqa: E402
from rounds import rounds  # noqa: E402

OPSET = 24
GRAPHS = rounds(500, 2000, 20000)
NODES = 4
LARGEST = 200.0


class Graph:
    """A graph that grows node by node; every value is computed at once by the onnx package."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.list, self.constants, self.values, self._exact, self.feeds = [], {}, {}, {}, {}
        for i in range(2):
            rank = int(self.rng.choice([1, 2, 3, 4, 4, 5]))
            shape = [int(self.rng.integers(1, 3))] + [int(self.rng.integers(2, 7)) for _ in range(rank - 1)]
            if rank == 5:
                shape = [1, 2, 3, 3, 4]
            self.values[f"x{i}"] = self.feeds[f"x{i}"] = self.array(shape)
            self._exact[f"x{i}"] = True

    def array(self, shape):
        return (self.rng.integers(-16, 17, shape) / 8).astype(np.float32)

    def pick(self, items):
        items = list(items)
        return items[int(self.rng.integers(0, len(items)))]

    def chance(self, p):
        return bool(self.rng.random() < p)

    def maybe(self, **attrs):
        return {k: v for k, v in attrs.items() if self.chance(0.5)}

    def shape(self, name):
        return tuple(self.values[name].shape)

    def dtype(self, name):
        return self.values[name].dtype

    def exact(self, name):
        return self._exact.get(name, False)

    def mark(self, name, exact):
        self._exact[name] = exact
        return name

    def largest(self, name):
        return float(np.max(np.abs(self.values[name]), initial=0))

    def axis(self, name):
        return int(self.rng.integers(0, len(self.shape(name))))

    def reals(self, exact=False):
        return [n for n, v in self.values.items() if v.dtype == np.float32 and n not in self.constants and (self._exact.get(n) or not exact)]

    def real(self, rank=None, least=0, most=5, exact=False):
        names = [n for n in self.reals(exact) if (rank is None or len(self.shape(n)) == rank) and least <= len(self.shape(n)) <= most]
        if not names:
            raise Skip
        return names[-1] if self.chance(0.4) else self.pick(names)

    def clipped(self, low, high, exact=False):
        x = self.real(exact=exact)
        return self.node("Clip", [x, self.constant(np.float32(low)), self.constant(np.float32(high))], exact=self.exact(x))

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = self.values[name] = np.asarray(array)
        if self.values[name].dtype == np.float64:
            self.constants[name] = self.values[name] = self.values[name].astype(np.float32)
        self._exact[name] = True
        return name

    def nodes(self, kind, operands, results, captured=(), **attrs):
        names = [f"v{len(self.list)}_{i}" for i in range(results)]
        node = helper.make_node(kind, operands, names, name=f"n{len(self.list)}", **attrs)
        given = {n: self.values[n] for n in [*operands, *captured] if n}
        typed = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given.items()]
        graph = helper.make_graph([node], "one", typed, [onnx.ValueInfoProto(name=n) for n in names])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                outputs = [np.asarray(o) for o in ReferenceEvaluator(model).run(None, given)]
            except (IndexError, ValueError, TypeError, RuntimeError, OverflowError) as e:  # a mistake of the onnx package's
                raise Skip from e
        for o in outputs:
            real = np.issubdtype(o.dtype, np.floating)
            if o.size == 0 or o.size > 8192 or real and (not np.isfinite(o).all() or np.abs(o).max() > LARGEST):
                raise Skip
        self.list.append(node)
        self.values.update(zip(names, outputs))
        return names

    def node(self, kind, operands, exact=False, **attrs):
        name, = self.nodes(kind, operands, 1, **attrs)
        self._exact[name] = exact
        return name

    def model(self):
        """The last results of every node that no other reads are the outputs."""
        read = {n for node in self.list for n in node.input}
        ends = [o for node in self.list for o in node.output if o not in read and o in self.values][-4:]

        def info(n):
            return helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(self.values[n].dtype), self.values[n].shape)
        used = [n for n in self.feeds if n in read]
        graph = helper.make_graph(self.list, "random", [info(n) for n in used], [info(n) for n in ends],
                                  [numpy_helper.from_array(v, n) for n, v in self.constants.items() if n in read])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10), {n: self.feeds[n] for n in used}, ends


class Skip(Exception):
    """An operator found no value to work on, or gave one that is too large."""


def make(seed):
    g, made, tries = Graph(seed), [], 0
    first = graph_ops.OPS[seed % len(graph_ops.OPS)]
    while len(made) < NODES and tries < 40:
        tries += 1
        f = first if tries <= 3 and not made else g.pick(graph_ops.OPS)
        try:
            if f(g) is not None:
                made.append(f.__name__)
        except Skip:
            pass
    return g, made


def disagreement(ours, theirs, what):
    """What two results differ in, or ""."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{what}: {ours.dtype}{list(ours.shape)} and {theirs.dtype}{list(theirs.shape)}"
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    worst = np.max(np.abs(a - b), initial=0)
    allowed = 2e-4 * max(1.0, np.max(np.abs(b), initial=0)) if np.issubdtype(theirs.dtype, np.floating) else 0
    return "" if worst <= allowed else f"{what}: they differ by {worst:g}, allowed {allowed:g}"


def run(seed):
    """(names of the operators, disagreements)"""
    g, made = make(seed)
    if not g.list:
        return made, []
    model, feeds, ends = g.model()
    content = model.SerializeToString()
    found = []
    by_reference = octavo.build(content, device="reference", effort=0, threads=1).run(feeds)
    by_cpu = octavo.build(content, device="cpu", effort=0, threads=1).run(feeds)
    for name in ends:
        found.append(disagreement(by_reference[name], g.values[name], f"{name}: reference and onnx"))
        found.append(disagreement(by_cpu[name], by_reference[name], f"{name}: cpu and reference"))
    found = [text for text in found if text]
    if found:
        found.append(onnx.printer.to_text(model))
    return made, found


def seeds():
    if os.environ.get("OCTAVO_SEED"):
        return [int(os.environ["OCTAVO_SEED"])]
    return range(GRAPHS)


def test_random_graphs_agree():
    start, seen, failures = time.monotonic(), {}, []
    for seed in seeds():
        try:
            made, found = run(seed)
        except octavo.Error as e:
            made, found = [], [f"{type(e).__name__}: {e}", onnx.printer.to_text(make(seed)[0].model()[0])]
        if found:
            failures.append(f"seed {seed}:\n  " + "\n  ".join(found))
        for name in made:
            seen[name] = seen.get(name, 0) + 1
        if len(failures) >= 5:
            break
    assert not failures, "\n".join(failures)
    if len(seeds()) > 1:
        print(f"{len(seeds())} graphs, {sum(seen.values())} operators of {len(seen)} kinds, {time.monotonic() - start:.0f} s")
        never = {f.__name__ for f in graph_ops.OPS} - set(seen)
        assert not never, f"operators that no graph has: {sorted(never)}"


def test_codes_along_an_axis_are_broadcast():
    """A per-axis pair of rank 2 read by an operator of rank 4: its axis is the last of the four."""
    rng = np.random.default_rng(3)
    scale = np.array([0.125, 0.5, 0.25], np.float32)
    zero = np.array([100, 110, 120], np.uint8)
    a, b = (rng.integers(-16, 17, [1, 3]) / 8).astype(np.float32), rng.standard_normal((2, 3, 4, 3)).astype(np.float32)
    nodes = [helper.make_node("QuantizeLinear", ["a", "s", "z"], ["q"], axis=1), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=1),
             helper.make_node("Sub", ["d", "b"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("a", 1, a.shape), helper.make_tensor_value_info("b", 1, b.shape)],
                              [helper.make_tensor_value_info("y", 1, b.shape)], [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    codes = np.clip(np.rint(a / scale) + zero, 0, 255)
    for device in ("reference", "cpu"):
        y = octavo.build(model, device=device, effort=0).run({"a": a, "b": b})["y"]
        np.testing.assert_array_equal(y, ((codes - zero) * scale).astype(np.float32) - b)
