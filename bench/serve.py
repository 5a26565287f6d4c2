"""Images a second of `octavo serve` beside those of the engine alone at the same batch: serve.py MODEL --core C [--batch 8] [--seconds 8] [--rounds 6] [--record NAME]

MODEL: an ONNX model, or engine files of batch 1 and --batch (one.octavo,eight.octavo); inputs are float32 or uint8. The server (one thread a run) and the engine alone (a loop
over run, one thread) are pinned to the same core, in turns; the clients, processes of their own, to the others. Each client keeps one request of `--rows` rows (binary tensors)
under way over HTTP, or gRPC. Prints each round, with what a picture costs clients, server and engine, and medians. Needs what requirements-serving.txt lists."""
import argparse
import http.client
import importlib
import json
import multiprocessing
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

import figures
import numpy as np

ROOT = figures.ROOT
ALONE = """
import os, sys, time, numpy, octavo
os.sched_setaffinity(0, {int(sys.argv[3])})
last = sys.argv[1].split(",")[-1]
e = octavo.load(last, 1) if last.endswith(".octavo") else octavo.build(last, default_batch=int(sys.argv[2]), threads=1, timing_cache=sys.argv[4])
x = [(255 * numpy.random.default_rng(1).random(t["shape"], dtype=numpy.float32)).astype(t["dtype"]) for t in e.inputs]
if x[0].shape[0] != int(sys.argv[2]):
    sys.exit(f"error: {last} has batches of {x[0].shape[0]}, not of {sys.argv[2]}: its batch must be open")
e.run(x)
print("ready", flush=True)
for line in sys.stdin:
    wall, cpu, n = time.monotonic(), time.process_time(), 0
    while time.monotonic() < wall + float(line):
        e.run(x)
        n += 1
    print(n / (time.monotonic() - wall), n / (time.process_time() - cpu), octavo.bench(e, 0.5, threads=1)["median_ms"], flush=True)
"""


def client(port, name, datatype, shape, core, counts, index):
    os.sched_setaffinity(0, core)
    x = (255 * np.random.default_rng(index).random(shape, dtype=np.float32)).astype({"FP32": np.float32, "UINT8": np.uint8}[datatype])
    header = json.dumps({"inputs": [{"name": name, "datatype": datatype, "shape": list(shape), "parameters": {"binary_data_size": x.nbytes}}],
                         "parameters": {"binary_data_output": True}}).encode()
    body = header + x.tobytes()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not counts[-1]:
        connection.request("POST", "/v2/models/m/infer", body, {"Inference-Header-Content-Length": str(len(header))})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}")
        counts[index] += 1


def grpc_client(port, name, datatype, shape, core, counts, index):
    os.sched_setaffinity(0, core)
    triton = sys.modules["tritonclient.grpc"]  # imported once, before the clients are
    x = (255 * np.random.default_rng(index).random(shape, dtype=np.float32)).astype({"FP32": np.float32, "UINT8": np.uint8}[datatype])
    one = triton.InferInput(name, list(shape), datatype)
    one.set_data_from_numpy(x)
    connection = triton.InferenceServerClient(f"127.0.0.1:{port}")
    while not counts[-1]:
        connection.infer("m", [one])
        counts[index] += 1


TITLE = "octavo serve beside the engine alone"


def idle_seconds(core):
    fields = next(line for line in open("/proc/stat") if line.startswith(f"cpu{core} ")).split()
    return int(fields[4]) / os.sysconf("SC_CLK_TCK")


def rows_and_runs(port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    return [float(re.search(rf"^octavo_batch_rows_{what}\{{.*?\}} (\S+)", text, re.M).group(1)) for what in ("sum", "count")]


def processor_seconds(pid):
    """Of all threads, user and kernel; in nanoseconds, where /proc/PID/stat counts hundredths of a second."""
    return sum(int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0]) for task in os.listdir(f"/proc/{pid}/task")) / 1e9


def record(a, results, clients, rates):
    """Milliseconds of a picture, by the clock and by the processor."""
    row = f"{pathlib.Path(a.model.split(',')[-1]).stem}, {'gRPC' if a.grpc else 'HTTP'}, {clients} clients, {a.rows} a request, batch {a.batch}"
    times = {key: [1e3 / r[i] for r in rates] for i, key in enumerate(("wall", "wall alone", "cpu", "cpu alone"))}
    ratio = lambda key: {"of": [f"{key} alone"], "over": key, "words": ["ahead", "level", "behind"]}
    view = {"columns": [["wall", "served, ms a picture"], ["wall alone", "the engine alone"], ["throughput", "served ÷ alone, pictures a second"], ["cpu", "processor time served, ms"],
                        ["cpu alone", "alone"], ["processor", "served ÷ alone, pictures a second of the processor"]],
            "ratios": {"throughput": ratio("wall"), "processor": ratio("cpu")}}
    figures.save(figures.record(results, {TITLE: {row: times}}, views={TITLE: view}), a.record)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--core", type=int, default=0)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--rows", type=int, default=1)
    p.add_argument("--clients", type=int, default=0, help="0: twice the batch over the rows")
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--octavo", default=os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo")), help="the command of the same build: its digest stands in the record")
    figures.add_option(p)
    p.add_argument("--grpc", action="store_true", help="the clients use gRPC (tritonclient) in place of HTTP")
    p.add_argument("--delay-ms", default="5")
    p.add_argument("--timing-cache", default="serve_times.txt")
    a = p.parse_args()
    results = {}
    figures.claim(results, a.octavo)
    if a.grpc:
        importlib.import_module("tritonclient.grpc")
    clients = a.clients or 2 * a.batch // a.rows
    others = set(os.sched_getaffinity(0)) - {a.core} or {a.core}
    server = subprocess.Popen([sys.executable, "-m", "octavo", "serve", f"m={a.model}", "--port", "0", "--grpc-port", "0" if a.grpc else "-1", "--batch", str(a.batch), "--threads", "1",
                               "--delay-ms", a.delay_ms, "--timing-cache", a.timing_cache], stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: os.sched_setaffinity(0, {a.core}))
    ready = next(m for m in (re.match(r"ready: http://127.0.0.1:(\d+)(?:, grpc://127.0.0.1:(\d+))?", line) for line in server.stderr) if m)
    port, asked = int(ready.group(1)), int(ready.group(2) or ready.group(1))
    alone = subprocess.Popen([sys.executable, "-c", ALONE, a.model, str(a.batch), str(a.core), a.timing_cache], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if not alone.stdout.readline():
        server.kill()
        sys.exit(1)  # it has said why
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/v2/models/m")
        info = json.loads(connection.getresponse().read())["inputs"][0]
        shape = (a.rows, *info["shape"][1:])
        rates = []

        def ask_alone():
            alone.stdin.write(f"{a.seconds / 2}\n")
            alone.stdin.flush()
            return [float(v) for v in alone.stdout.readline().split()]

        for turn in range(a.rounds + 1):
            before = ask_alone()
            counts = multiprocessing.Array("l", clients + 1)  # the last: they stop
            workers = [multiprocessing.Process(target=grpc_client if a.grpc else client, args=(asked, info["name"], info["datatype"], shape, others, counts, i)) for i in range(clients)]
            for w in workers:
                w.start()
            while not all(counts[:clients]) and all(w.is_alive() for w in workers):
                time.sleep(0.1)
            time.sleep(0.5)
            rows = rows_and_runs(port)
            sent, began, used, own, idle = sum(counts), time.monotonic(), processor_seconds(server.pid), sum(processor_seconds(w.pid) for w in workers), idle_seconds(a.core)
            time.sleep(a.seconds)
            images, spent = (sum(counts) - sent) * a.rows, time.monotonic() - began
            wall, cpu = images / spent, images / (processor_seconds(server.pid) - used)
            client_us = 1e6 * (sum(processor_seconds(w.pid) for w in workers) - own) / images
            free = (idle_seconds(a.core) - idle) / spent
            rows, runs = (now - then for now, then in zip(rows_and_runs(port), rows))
            counts[-1] = 1
            for w in workers:
                w.join()
            after = ask_alone()  # before and after: the machine's speed drifts
            bare = [a.batch * (x + y) / 2 for x, y in zip(before, after)]
            if turn:
                rates.append((wall, bare[0], cpu, bare[1]))
                print(f"round {turn}: images a second served {wall:.1f}, alone {bare[0]:.1f}: {wall / bare[0]:.3f}; a second of the processor served {cpu:.1f}, alone "
                      f"{bare[1]:.1f}: {cpu / bare[1]:.3f}; octavo bench {1e3 * a.batch * 2 / (before[2] + after[2]):.1f}; a picture costs the clients {client_us:.0f} us, the server {1e6 / cpu:.0f}, "
                      f"the engine {1e6 / bare[1]:.0f}; the server's core was idle for {free:.0%}; {rows / runs:.2f} rows a run", flush=True)
        print(f"{a.model}: batch {a.batch}, {clients} clients of {a.rows} rows, medians: served over alone {statistics.median(r[0] / r[1] for r in rates):.3f}, by the processor's "
              f"time {statistics.median(r[2] / r[3] for r in rates):.3f}")
        if a.record:
            record(a, results, clients, rates)
    finally:
        server.send_signal(signal.SIGTERM)
        alone.stdin.close()
        server.wait(60)


if __name__ == "__main__":
    main()
