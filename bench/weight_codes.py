"""Products of floats by weights of 4 bits (MatMulNBits) beside ONNX Runtime and OpenVINO: docs/lab/weight-codes.md.

A network is four products in a row, depth -> columns -> depth -> columns -> depth: more weights than caches hold, as in a language model. ONNX Runtime runs it
twice: as it is, with the floats that the model says ("ort"), and with accuracy_level 4, which lets it round the rows to 8 bits ("rounded"). OpenVINO is told
not to round them. The engines take turns, round after round, each in a process of its own on the same cores.

usage: weight_codes.py [--threads 1,2] [--rounds N] [--seconds S] [--resume] [--record NAME] [--octavo COMMAND] [--work DIR]
Exit status 1 if outputs differ from ONNX Runtime's in more than rounding of sums, or a row is behind.
"""
import json
import sys

import numpy as np
import packaged
import peer
import products

SIZES = [(m, 2048, 5632) for m in (1, 2, 4, 8, 32, 128)] + [(1, 1024, 1024), (1, 4096, 4096)]
VIEW = {"columns": [["octavo", "Octavo, ms"], ["ort", "ONNX Runtime, ms"], ["openvino", "OpenVINO, ms"], ["rounded", "rounded, ms"], ["ratio", "fastest exact other ÷ Octavo"]],
        "ratios": {"ratio": {"of": ["ort", "openvino"], "over": "octavo"}}}
CLOSE = 1e-4  # of the root mean square of the elements, behind four products


def model(path, rows, depth, columns, zeros, accuracy_level=0, bits=4, block=32):
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    nodes, constants, value = [], [], helper.make_tensor_value_info
    for i in range(4):
        k, n = (depth, columns) if i % 2 == 0 else (columns, depth)
        blocks = -(-k // block)
        own = [(rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8), f"codes{i}"),
               ((rng.random(n * blocks) * 0.01 / k**0.5).astype(np.float32), f"scales{i}")]
        if zeros:
            own.append((rng.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8), f"zeros{i}"))
        constants += [numpy_helper.from_array(array, name) for array, name in own]
        more = {"accuracy_level": accuracy_level} if accuracy_level else {}
        nodes.append(helper.make_node("MatMulNBits", [f"x{i}" if i else "x"] + [name for _, name in own], [f"x{i + 1}" if i < 3 else "y"],
                                      domain="com.microsoft", K=k, N=n, bits=bits, block_size=block, **more))
    graph = helper.make_graph(nodes, "products", [value("x", TensorProto.FLOAT, [rows, depth])], [value("y", TensorProto.FLOAT, [rows, depth])], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8), path)
    return {"x": rng.standard_normal((rows, depth)).astype("float32")}


def measure(args, size, threads):
    """Milliseconds of each round by engine, and how far the outputs differ."""
    call, start = packaged.call, packaged.prefix(args, threads)
    path, rounded, engine, feeds_file, out = (args.work / f"{'x'.join(map(str, size))}{end}" for end in (".onnx", ".rounded.onnx", ".octavo", ".npz", ".out.npz"))
    model(rounded, *size, args.zeros, accuracy_level=4)
    feeds = model(path, *size, args.zeros)
    np.savez(feeds_file, **feeds)
    call(*start, args.octavo, "build", path, "-o", engine, "--threads", threads, "--timing-cache", args.work / "times.txt")
    call(args.octavo, "run", engine, "--threads", threads, "--input", feeds_file, "--output", out)
    run, get = peer.open_ort(path, 1, feeds)
    run()
    words = {"octavo": [args.octavo, "bench", engine, "--threads", threads, "--input", feeds_file, "--json", "--seconds", args.seconds]}
    for who, name, of in (("ort", "ort", path), ("openvino", "openvino", path), ("rounded", "ort", rounded)):
        words[who] = [sys.executable, peer.__file__, name, of, "-t", threads, "-s", args.seconds, "--inputs", feeds_file, "--precision", "f32"]
    times = {who: [] for who in words}
    for _ in range(args.rounds):
        for who, line in words.items():
            times[who].append(json.loads(call(*start, *line).splitlines()[-1])["median_ms"])
    return times, packaged.difference(dict(np.load(out)), get())


def main():
    parser = products.options(__doc__, "weight-codes")
    parser.add_argument("--zeros", action="store_true", help="a zero point a block")
    products.run(parser.parse_args(), SIZES, measure, CLOSE, inexact=("rounded",), view=VIEW)


if __name__ == "__main__":
    main()
