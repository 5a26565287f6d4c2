"""Text requests of random lengths through `octavo serve`: how long each takes beside others of about its length.

usage: serve_text.py [MODEL] [--requests N] [--most LENGTH] [--clients N] [--settle SECONDS] [--factor X] [--runtime octavo|onnxruntime] [--layers N] ...

MODEL: an ONNX model or an engine file with two inputs (ids, mask) of int64 [batch, length]; without it an encoder with seeded weights is written (bench/first_run.py). Each client keeps
one request under way over HTTP. Requests that began in the first --settle seconds are not counted. A class is an eighth of the lengths. For each class: requests, median, the slowest, and
its ratio to the median; the exit code is 1 where a ratio is above --factor. --runtime onnxruntime: ONNX Runtime behind the same server, with the same number of threads.
--record: docs/lab/records/NAME.json, from which bench/figures.py makes the table of docs/lab/new-shapes.md: each runtime has a record of its own.
Needs what requirements-serving.txt lists.
"""
import argparse
import http.client
import json
import multiprocessing
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import figures


class Runtime:
    """ONNX Runtime as the server sees an open engine."""
    open = True

    def __init__(self, path, threads):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = [self._info(t) for t in self.session.get_inputs()]
        self.outputs = [self._info(t) for t in self.session.get_outputs()]

    @staticmethod
    def _info(t):
        types = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(uint8)": "uint8"}
        return {"name": t.name, "dtype": types[t.type], "shape": [d if isinstance(d, int) else None for d in t.shape]}

    def at(self, shapes):
        other = Runtime.__new__(Runtime)
        other.session = self.session
        other.inputs = [{**t, "shape": list(shapes[t["name"]])} for t in self.inputs]
        given = dict(zip((d for t in self.session.get_inputs() for d in t.shape), (d for t in other.inputs for d in t["shape"])))
        other.outputs = [{**o, "shape": [given.get(d, d) for d in t.shape]} for o, t in zip(self.outputs, self.session.get_outputs())]
        return other

    def run(self, arrays):
        return dict(zip((o["name"] for o in self.outputs), self.session.run(None, dict(arrays))))


def serve_runtime(arguments):
    """`octavo serve`, with ONNX Runtime in the place of engines."""
    from octavo import _serve_command
    from octavo.serve import _models
    _models.build = lambda path, threads, **_: Runtime(path, threads)
    _models.tune = lambda model, *shapes: None
    raise SystemExit(_serve_command.main(arguments))


def client(port, names, most, words, seed, numbers, results):
    rng = np.random.default_rng(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(numbers):
        length = int(rng.integers(1, most + 1))
        arrays = [rng.integers(0, words, (1, length)), np.ones((1, length), np.int64)]
        header = json.dumps({"inputs": [{"name": n, "datatype": "INT64", "shape": [1, length], "parameters": {"binary_data_size": a.nbytes}} for n, a in zip(names, arrays)],
                             "parameters": {"binary_data_output": True}}).encode()
        began = time.monotonic()
        connection.request("POST", "/v2/models/m/infer", header + b"".join(a.tobytes() for a in arrays), {"Inference-Header-Content-Length": str(len(header))})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}: {said[:500]!r}")
        results.put((began, length, time.monotonic() - began))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?")
    p.add_argument("--requests", type=int, default=10000)
    p.add_argument("--most", type=int, default=512, help="tokens of the longest request")
    p.add_argument("--words", type=int, default=1000)
    p.add_argument("--clients", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--settle", type=float, default=60)
    p.add_argument("--factor", type=float, default=3)
    p.add_argument("--layers", type=int, default=12, help="of the encoder that is written")
    p.add_argument("--runtime", choices=("octavo", "onnxruntime"), default="octavo")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("."))
    p.add_argument("--serve", action="append", default=[], help="further options of octavo serve, as in --serve=--effort --serve=1")
    figures.add_option(p)
    a = p.parse_args()
    recorded = {}
    import octavo
    figures.claim(recorded, octavo._octavo.__file__)  # both runtimes stand behind this server
    model = a.model
    if model is None:
        import first_run
        model = a.work / f"encoder{a.layers}.onnx"
        if not model.exists():
            first_run.encoder(model, layers=a.layers)
    options = [f"m={model}", "--port", "0", "--grpc-port", "-1", "--threads", str(a.threads), "--timing-cache", str(a.work / "serve_times.txt"), "--timeout", "300", *a.serve]
    program = ["-m", "octavo", "serve"] if a.runtime == "octavo" else [__file__, "--as-server"]
    server = subprocess.Popen([sys.executable, *program, *options], stderr=subprocess.PIPE, text=True)
    started = time.monotonic()
    ready = next((m for m in (re.match(r"ready: http://127.0.0.1:(\d+)", line) or sys.stderr.write(line) and None for line in server.stderr) if m), None)
    if ready is None:
        raise SystemExit("the server did not start")
    print(f"{a.runtime}: ready after {time.monotonic() - started:.1f} s", flush=True)
    try:
        port = int(ready.group(1))
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/v2/models/m")
        names = sorted(t["name"] for t in json.loads(connection.getresponse().read())["inputs"])
        results = multiprocessing.Queue()
        workers = [multiprocessing.Process(target=client, args=(port, names, a.most, a.words, i, a.requests // a.clients, results)) for i in range(a.clients)]
        began = time.monotonic()
        for w in workers:
            w.start()
        times = [results.get() for _ in range(a.requests // a.clients * a.clients)]
        spent = time.monotonic() - began
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    classes = {}
    for at, length, seconds in times:
        if at >= began + a.settle:
            classes.setdefault((length - 1) * 8 // a.most, []).append((seconds, length))
    print(f"{a.runtime}: {len(times)} requests in {spent:.1f} s; {sum(map(len, classes.values()))} began after the first {a.settle:g} s")
    worst = 0.0
    for k, found in sorted(classes.items()):
        median, slowest = statistics.median(s for s, _ in found), max(found)
        worst = max(worst, slowest[0] / median)
        print(f"  {k * a.most // 8 + 1:4d} to {(k + 1) * a.most // 8:4d} tokens: {len(found):5d} requests, median {1e3 * median:7.2f} ms, slowest {1e3 * slowest[0]:7.2f} ms ({slowest[1]} tokens): "
              f"{slowest[0] / median:.2f}")
    print(f"{a.runtime}: the slowest request took {worst:.2f} times the median of its class; wanted at most {a.factor:g}")
    if a.record:
        rows = {f"{k * a.most // 8 + 1} to {(k + 1) * a.most // 8}": [round(1e3 * s, 2) for s, _ in found] for k, found in sorted(classes.items())}
        name = "ort" if a.runtime == "onnxruntime" else "octavo"
        figures.save(figures.record(recorded, {"requests": {name: rows}}, kind="requests"), a.record)
    return 1 if worst > a.factor else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-server"]:
        serve_runtime(sys.argv[2:])
    sys.exit(main())
