"""How long planning takes for graphs of many nodes: chains of pointwise operators, transformers of small layers, in float32 and with Q/DQ pairs, and blocks of dense convolutions.

usage: large_graphs.py [--octavo COMMAND] [--work DIR] [--only TEXT]

Builds at effort 0, which times nothing: what is left is import, rewriting, planning and code generation. Networks are small, of seeded weights; only their number of nodes counts. Prints a table.
"""
import argparse
import pathlib
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Network:
    """A graph that grows node by node."""

    def __init__(self, shape):
        self.shape, self.nodes, self.constants, self.rng = shape, [], [], np.random.default_rng(0)

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, kind, *inputs, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [f"t{len(self.nodes)}"], name=f"n{len(self.nodes)}_{kind}", **attributes))
        return self.nodes[-1].output[0]

    def random(self, *shape, scale=0.1):
        return self.constant((scale * self.rng.standard_normal(shape)).astype(np.float32))

    def model(self, output):
        graph = helper.make_graph(self.nodes, "large", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
                                  [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(n):
    net, x = Network([1, 64]), "x"
    for i in range(n):
        x = net.op(("Sigmoid", "Tanh", "Abs", "Neg")[i % 4], x)
    return net.model(x)


def transformer(layers, quantized, d=64, tokens=16, heads=4):
    net = Network([1, tokens, d])
    scale, zero = net.constant(np.float32(0.05)), net.constant(np.int8(0))

    def pair(x):
        return net.op("DequantizeLinear", net.op("QuantizeLinear", x, scale, zero), scale, zero) if quantized else x

    def linear(x, rows, columns):
        weights = net.random(rows, columns)
        if quantized:
            weights = net.op("DequantizeLinear", net.constant(net.rng.integers(-127, 128, (rows, columns)).astype(np.int8)), net.constant(np.float32(0.001)), zero)
        return net.op("Add", net.op("MatMul", pair(x), weights), net.random(columns))

    def norm(x):
        return net.op("LayerNormalization", x, net.constant(np.ones(d, np.float32)), net.constant(np.zeros(d, np.float32)), axis=-1)

    def split(x, perm):
        return net.op("Transpose", net.op("Reshape", x, net.constant(np.array([1, tokens, heads, d // heads]))), perm=perm)

    x, whole = "x", net.constant(np.array([1, tokens, d]))
    for _ in range(layers):
        y = norm(x)
        q, k, v = (split(linear(y, d, d), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        weights = net.op("Softmax", net.op("Mul", net.op("MatMul", pair(q), pair(k)), net.constant(np.float32(0.25))), axis=-1)
        y = net.op("Reshape", net.op("Transpose", net.op("MatMul", pair(weights), pair(v)), perm=[0, 2, 1, 3]), whole)
        x = net.op("Add", x, linear(y, d, d))
        y = linear(norm(x), d, 4 * d)
        half = net.op("Add", net.op("Erf", net.op("Div", y, net.constant(np.float32(2**0.5)))), net.constant(np.float32(1)))
        x = net.op("Add", x, linear(net.op("Mul", net.op("Mul", y, half), net.constant(np.float32(0.5))), 4 * d, d))
    return net.model(x)


def dense(n):
    net, parts = Network([1, 8, 8, 8]), ["x"]
    for _ in range(n):
        joined = net.op("Concat", *parts[-24:], axis=1)
        parts.append(net.op("Relu", net.op("Conv", joined, net.random(8, 8 * len(parts[-24:]), 3, 3), pads=[1, 1, 1, 1])))
    return net.model(parts[-1])


NETWORKS = {"pointwise-1000": lambda: chain(1000), "pointwise-4000": lambda: chain(4000), "transformer-24": lambda: transformer(24, False),
            "transformer-24-qdq": lambda: transformer(24, True), "transformer-96": lambda: transformer(96, False),
            "transformer-96-qdq": lambda: transformer(96, True), "dense-400": lambda: dense(400)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--octavo", default=str(ROOT / "build/release/bin/octavo"))
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/large_graphs")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print("| network | nodes | s |\n|---|---:|---:|")
    for name in (n for n in NETWORKS if args.only in n):
        model = NETWORKS[name]()
        onnx.save(model, args.work / f"{name}.onnx")
        begun = time.monotonic()
        done = subprocess.run([args.octavo, "build", args.work / f"{name}.onnx", "-o", args.work / "engine.oct", "--effort", "0"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"error: {name}: {done.stderr.strip()}")
        print(f"| {name} | {len(model.graph.node)} | {time.monotonic() - begun:.2f} |", flush=True)


if __name__ == "__main__":
    main()
