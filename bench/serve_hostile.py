"""What hostile clients can take from `octavo serve`: serve_hostile.py [--seconds 600] [--turn 10] [--only NAME,...] [--grpcio]

Starts a server on 127.0.0.1 (a network of one 4.9 MB input and two outputs, 4.9 MB and 12 bytes; 64 MiB a request, --pending-mb 1024 for all, 1024 connections and calls) and
attacks it in turns of --turn seconds, over HTTP and gRPC, from a process of its own, until --seconds are over. Meanwhile a client asks twice a second over each
protocol. For each kind of attack: requests of that client that were answered, refused, or not answered within 10 s, its slowest answer, and the largest resident
memory of the server. The server is killed where it has more than --most-gb. Every loop has a limit in count and time; nothing but the loopback is used.
--grpcio: grpc.aio's own server in place of Octavo's, with every limit that it has (maximum_concurrent_rpcs, message length), for the gRPC attacks.

Needs what requirements-serving.txt lists."""
import argparse
import collections
import contextlib
import gzip
import http.client
import importlib
import json
import multiprocessing
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

SIDE = 640
INPUT = 3 * SIDE * SIDE * 4  # bytes
INFER, STREAM = "/inference.GRPCInferenceService/ModelInfer", "/inference.GRPCInferenceService/ModelStreamInfer"
CALLS = 1024

GRPCIO = """
import asyncio, os, grpc
from tritonclient.grpc import service_pb2 as pb
async def infer(request, context):
    await asyncio.sleep(0.005)
    return pb.ModelInferResponse(model_name="m", raw_output_contents=[bytes(request.raw_input_contents[0])] if request.raw_input_contents else [])
async def stream(requests, context):
    async for request in requests:
        await asyncio.sleep(0.005)
        yield pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse(model_name="m", raw_output_contents=list(request.raw_input_contents)))
async def main():
    server = grpc.aio.server(maximum_concurrent_rpcs=1024, options=[("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {
        "ModelInfer": grpc.unary_unary_rpc_method_handler(infer, pb.ModelInferRequest.FromString, pb.ModelInferResponse.SerializeToString),
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(stream, pb.ModelInferRequest.FromString, pb.ModelStreamInferResponse.SerializeToString)})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ready: http://127.0.0.1:0, grpc://127.0.0.1:{port}", file=__import__("sys").stderr, flush=True)
    await server.wait_for_termination()
asyncio.run(main())
"""


def network(path):
    import onnx
    from onnx import TensorProto, helper
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["same"]), helper.make_node("GlobalAveragePool", ["x"], ["mean"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
                              [helper.make_tensor_value_info("same", TensorProto.FLOAT, ["n", 3, SIDE, SIDE]), helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["n", 3, 1, 1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(x=None, output="mean"):
    """ModelInferRequest with one raw tensor, by hand: the attackers need no package."""
    tensor = field(1, b"x") + field(2, b"FP32") + field(3, b"".join(varint(d) for d in (1, 3, SIDE, SIDE)))
    return field(1, b"m") + field(5, tensor) + field(6, field(1, output.encode())) + field(7, bytes(INPUT) if x is None else x)


def json_request(output):
    return json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3, SIDE, SIDE], "parameters": {"binary_data_size": INPUT}}],
                       "outputs": [{"name": output, "parameters": {"binary_data": True}}]}).encode()


def post(body, *more, size=None):
    lines = ["POST /v2/models/m/infer HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body) if size is None else size}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def head(stream, path, *more, end=False):
    lines = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers"), ("content-type", "application/grpc"), *more]
    block = b"".join(b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in lines)
    return frame(1, 4 | int(end), stream, block)


def data(stream, payload, end=False, size=1 << 14):
    return b"".join(frame(0, int(end and at + size >= len(payload)), stream, payload[at:at + size]) for at in range(0, max(len(payload), 1), size))


def framed(payload, flag=0):
    return struct.pack(">BI", flag, len(payload)) + payload


class Peer:
    """An attacker's connection. Everything it sends has a limit in time; what it cannot send it drops."""

    def __init__(self, port, reads=True, receive=None):
        self.socket = socket.socket()
        if receive:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.socket.settimeout(5)
        self.socket.connect(("127.0.0.1", port))
        self.socket.settimeout(0.5)
        self.reads = reads

    def http2(self, window=1 << 30):
        settings = frame(4, 0, 0, struct.pack(">HI", 4, window))
        with contextlib.suppress(OSError):
            self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + frame(8, 0, 0, struct.pack(">I", 1 << 30)))
            self.socket.settimeout(5)
            self.socket.recv(1 << 12)  # the server's settings: larger windows hold when they are acknowledged
            self.socket.settimeout(0.5)
            self.socket.sendall(frame(4, 1, 0, b""))

    def send(self, what):
        """False: the server does not take it, or has closed."""
        with contextlib.suppress(OSError):
            self.socket.sendall(what)
            if self.reads:
                self.drain()
            return True
        return False

    def drain(self):
        with contextlib.suppress(OSError):
            for _ in range(64):
                if not self.socket.recv(1 << 16, socket.MSG_DONTWAIT):
                    return

    def close(self):
        self.socket.close()


def peers(count, port, **options):
    made = []
    for _ in range(count):
        try:
            made.append(Peer(port, **options))
        except OSError:
            break
    return made


def hold(some, until, step=None):
    """Keeps connections until then; `step` is called with each about once a second."""
    while time.monotonic() < until:
        began = time.monotonic()
        for one in some:
            if time.monotonic() >= until:
                break
            if step is not None:
                step(one)
        time.sleep(max(0.05, min(1.0, until - time.monotonic()) - (time.monotonic() - began)))
    for one in some:
        one.close()


def silent_connections(http_port, grpc_port, until):
    hold(peers(CALLS, http_port) + peers(CALLS, grpc_port), until)


def silent_calls(http_port, grpc_port, until, path=INFER):
    """1,024 calls that are heads and nothing more, begun again as soon as they end, in 8 connections."""
    state = []
    for one in peers(8, grpc_port):
        one.http2()
        state.append([one, 1])

    def step(entry):
        one, stream = entry
        one.send(b"".join(head(stream + 2 * i, path) for i in range(CALLS // 8)))
        entry[1] += 2 * (CALLS // 8)
    while time.monotonic() < until:
        for entry in state:
            step(entry)
        time.sleep(1.0)
    for one, _ in state:
        one.close()


def silent_streams(http_port, grpc_port, until):
    silent_calls(http_port, grpc_port, until, STREAM)


def slow_heads(http_port, grpc_port, until):
    some = peers(CALLS, http_port)
    for one in some:
        one.send(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    hold(some, until, lambda one: one.send(b"X-A: b\r\n"))


def endless_heads(http_port, grpc_port, until):
    some = peers(64, http_port)
    for one in some:
        one.send(b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ")
    while time.monotonic() < until:
        for one in some:
            if time.monotonic() < until:
                one.send(b"a" * (1 << 18))
        time.sleep(0.05)
    hold(some, until)


def slow_bodies(http_port, grpc_port, until):
    """Bodies of 4.9 MB of which nearly all comes at once and the rest a byte a second."""
    body = json_request("mean") + bytes(INPUT)
    some = peers(256, http_port)
    for one in some:
        if time.monotonic() < until:
            one.send(post(body[:-100000], f"Inference-Header-Content-Length: {len(json_request('mean'))}", size=len(body)))
    hold(some, until, lambda one: one.send(b"\0"))


def slow_messages(http_port, grpc_port, until):
    some = peers(64, grpc_port)
    whole = framed(message())
    for one in some:
        one.http2()
        for stream in (1, 3, 5, 7):
            if time.monotonic() < until:
                one.send(head(stream, INFER if stream < 5 else STREAM) + data(stream, whole[:-100000]))
    hold(some, until, lambda one: one.send(data(1, b"\0")))


def small_messages(http_port, grpc_port, until):
    """100,000 messages of five bytes, nothing in them, a stream; the answers are read by half of the connections."""
    some = peers(8, grpc_port) + peers(8, grpc_port, reads=False)
    bytes_ = [None] * len(some)
    for i, one in enumerate(some):
        one.http2()
        one.send(head(1, STREAM))
        bytes_[i] = 5 * 100_000
    burst = data(1, bytes(5 * 2000))
    while time.monotonic() < until and any(bytes_):
        for i, one in enumerate(some):
            if bytes_[i] and time.monotonic() < until:
                bytes_[i] = bytes_[i] - len(burst) + 9 if one.send(burst) else 0
                bytes_[i] = max(bytes_[i], 0)
    hold(some, until, Peer.drain)


def many_small_messages(http_port, grpc_port, until):
    """As many bytes of five-byte messages as the windows of 64 streams take; nothing is read."""
    some = peers(64, grpc_port, reads=False)
    for one in some:
        one.http2()
        one.send(head(1, STREAM))
    burst = data(1, bytes(1 << 20))
    for _ in range(63):
        for one in some:
            if time.monotonic() < until:
                one.send(burst)
    hold(some, until)


def queued_messages(http_port, grpc_port, until):
    """Whole requests on streams, as many as the windows take; nothing is read."""
    some = peers(64, grpc_port, reads=False)
    for one in some:
        one.http2()
        one.send(head(1, STREAM))
    burst = data(1, framed(message(output="same")))
    for _ in range(12):
        for one in some:
            if time.monotonic() < until:
                one.send(burst)
    hold(some, until)


def bombs(http_port, grpc_port, until):
    """Requests that are small until they are decompressed: valid ones of 4.9 MB, and 64 MB of nothing; 128 connections of each protocol."""
    good = json_request("mean") + bytes(INPUT)
    length = f"Inference-Header-Content-Length: {len(json_request('mean'))}"
    requests = [post(gzip.compress(good), "Content-Encoding: gzip", length), post(gzip.compress(b" " * (60 << 20)), "Content-Encoding: gzip")]
    messages = [zlib.compress(message()), zlib.compress(bytes(60 << 20))]
    over_http, over_grpc = peers(128, http_port), peers(128, grpc_port)
    for one in over_grpc:
        one.http2()
    stream = -1
    for turn in range(200):
        for one in over_http:
            if time.monotonic() < until and not one.send(requests[turn % 4 == 3]):
                one.close()
        for i, one in enumerate(over_grpc):
            stream = 2 * turn + 1
            if time.monotonic() < until:
                one.send(head(stream, (INFER, STREAM)[i % 2], ("grpc-encoding", "deflate")) + data(stream, framed(messages[turn % 4 == 3], 1), i % 2 == 0))
        if time.monotonic() >= until:
            break
    hold(over_http + over_grpc, until)


def many_objects(http_port, grpc_port, until):
    """Requests of some 60 kB that are 30 million empty messages, lists or objects when they are decompressed and decoded; 32 connections of each protocol."""
    count = 20 << 20
    lists, objects = (zlib.compress(b'{"inputs":[' + one * (count - 1) + one[:2] + b"]}", 9) for one in (b"[],", b"{},"))
    requests = [post(one, "Content-Encoding: deflate") for one in (lists, objects)]
    messages = [zlib.compress(one * (30 << 20), 9) for one in (b"\x2a\0", b"\x32\0", b"\x3a\0", b"\x22\0")]
    over_http, over_grpc = peers(32, http_port), peers(32, grpc_port)
    for one in over_grpc:
        one.http2()
    for turn in range(200):
        for one in over_http:
            if time.monotonic() < until and not one.send(requests[turn % 2]):
                one.close()
        for i, one in enumerate(over_grpc):
            if time.monotonic() < until:
                one.send(head(2 * turn + 1, (INFER, STREAM)[i % 2], ("grpc-encoding", "deflate")) + data(2 * turn + 1, framed(messages[turn % 4], 1), i % 2 == 0))
        if time.monotonic() >= until:
            break
    hold(over_http + over_grpc, until)


def unread_answers(http_port, grpc_port, until):
    """Answers of 4.9 MB that nobody reads: HTTP, calls without a window, streams."""
    body = json_request("same") + bytes(INPUT)
    request = post(body, f"Inference-Header-Content-Length: {len(json_request('same'))}")
    whole = framed(message(output="same"))
    while time.monotonic() < until:
        some = peers(100, http_port, reads=False, receive=4096)
        for one in some:
            if time.monotonic() < until:
                one.send(request)
        few = peers(20, grpc_port, reads=False, receive=4096)
        for one in few:
            one.http2(window=0)
            for stream in (1, 3, 5, 7, 9):
                if time.monotonic() < until:
                    one.send(head(stream, INFER if stream < 7 else STREAM) + data(stream, whole, stream < 7))
        hold(some + few, until)


def cancelled_calls(http_port, grpc_port, until):
    """Calls that are cancelled as soon as they are whole."""
    some = peers(8, grpc_port)
    whole = framed(message())
    for one in some:
        one.http2()
    for turn in range(2000):
        for one in some:
            if time.monotonic() >= until:
                hold(some, until)
                return
            one.send(head(2 * turn + 1, INFER) + data(2 * turn + 1, whole, True) + frame(3, 0, 2 * turn + 1, struct.pack(">I", 8)))
    hold(some, until)


ATTACKS = [silent_connections, silent_calls, silent_streams, slow_heads, endless_heads, slow_bodies, slow_messages, small_messages, many_small_messages, queued_messages, bombs,
           many_objects, unread_answers, cancelled_calls]
OF_GRPC = [silent_calls, silent_streams, slow_messages, small_messages, many_small_messages, queued_messages, unread_answers]


class Good:
    """A client that behaves: asks over one protocol twice a second; a new connection each time, as health checks and functions do."""

    def __init__(self, protocol, port):
        self.protocol, self.port, self.counts, self.slowest, self.stopped = protocol, port, collections.Counter(), 0.0, False
        self.reasons = collections.Counter()  # of refusals
        self.body = json_request("mean") + bytes(INPUT)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopped:
            began = time.monotonic()
            self.counts[self.ask()] += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            time.sleep(max(0.0, 0.5 - (time.monotonic() - began)))

    def ask(self):
        try:
            if self.protocol == "http":
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                with contextlib.closing(connection):
                    connection.request("POST", "/v2/models/m/infer", self.body, {"Inference-Header-Content-Length": str(len(self.body) - INPUT)})
                    response = connection.getresponse()
                    if response.status != 200:
                        self.reasons[f"HTTP {response.status}: {response.read(200).decode(errors='replace')}"] += 1
                    return "ok" if response.status == 200 else "refused"
            grpc = importlib.import_module("grpc")
            with grpc.insecure_channel(f"127.0.0.1:{self.port}", [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]) as channel:
                channel.unary_unary(INFER)(message(), timeout=10)
            return "ok"
        except Exception as e:
            text = str(e)
            if "DEADLINE" in text or "timed out" in text:
                return "none"
            self.reasons[f"{self.protocol}: {text.splitlines()[0][:80]} {getattr(e, 'details', lambda: '')()}"[:250]] += 1
            return "refused"


def resident(pid):
    """Bytes; 0: it has ended."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--turn", type=float, default=10)
    p.add_argument("--only", default="")
    p.add_argument("--pending-mb", type=int, default=1024)
    p.add_argument("--most-gb", type=float, default=6)
    p.add_argument("--grpcio", action="store_true")
    p.add_argument("--options", default="", help="more options of octavo serve, divided by spaces")
    a = p.parse_args()
    attacks = [f for f in (OF_GRPC if a.grpcio else ATTACKS) if not a.only or f.__name__ in a.only.split(",")]
    rows, ended, reasons, stalled = collections.OrderedDict(), None, collections.Counter(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        network(f"{folder}/m.onnx")

        def start():
            command = [sys.executable, "-c", GRPCIO] if a.grpcio else [
                sys.executable, "-m", "octavo", "serve", f"m={folder}/m.onnx", "--port", "0", "--grpc-port", "0", "--batch", "1,4", "--threads", "1", "--effort", "0",
                "--max-pending-mb", str(a.pending_mb), *a.options.split()]
            server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            for line in server.stderr:
                found = re.match(r"ready: http://127.0.0.1:(\d+), grpc://127.0.0.1:(\d+)", line)
                if found:
                    threading.Thread(target=lambda: collections.deque(server.stderr, 0), daemon=True).start()
                    return server, int(found.group(1)), int(found.group(2))
            raise SystemExit("the server did not start")

        server, http_port, grpc_port = start()
        end = time.monotonic() + a.seconds
        try:
            while time.monotonic() < end:
                for attack in attacks:
                    if time.monotonic() >= end:
                        break
                    until = min(time.monotonic() + a.turn, end)
                    row = rows.setdefault(attack.__name__, {"turns": 0, "peak": 0, "killed": 0, "http": collections.Counter(), "grpc": collections.Counter(), "slowest": 0.0})
                    before = resident(server.pid)
                    attacker = multiprocessing.Process(target=attack, args=(http_port, grpc_port, until), daemon=True)
                    attacker.start()
                    good = [Good("grpc", grpc_port)] + ([] if a.grpcio else [Good("http", http_port)])
                    looked = time.monotonic()
                    while time.monotonic() < until + 2:
                        stalled = max(stalled, time.monotonic() - looked)
                        looked = time.monotonic()
                        now = resident(server.pid)
                        row["peak"] = max(row["peak"], now)
                        if now > a.most_gb * 2**30 or now == 0:
                            row["killed"] += 1
                            break
                        time.sleep(0.05)
                    for one in good:
                        one.stopped = True
                        one.thread.join(11)
                        row[one.protocol].update(one.counts)
                        row["slowest"] = max(row["slowest"], one.slowest)
                        reasons.update({f"{attack.__name__}: {reason}": n for reason, n in one.reasons.items()})
                    attacker.kill()
                    attacker.join(5)
                    row["turns"] += 1
                    print(f"{attack.__name__}: {before >> 20} MB before, {row['peak'] >> 20} at most; http {dict(row['http'])}, grpc {dict(row['grpc'])}, slowest {row['slowest']:.1f} s"
                          f"{', the server was ended' if row['killed'] else ''}", flush=True)
                    if resident(server.pid) == 0 or resident(server.pid) > a.most_gb * 2**30:
                        server.kill()
                        server.wait(30)
                        server, http_port, grpc_port = start()
            time.sleep(1)
            ended = resident(server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(40)
            except subprocess.TimeoutExpired:
                server.kill()
    print(f"\n| attack | turns | largest resident memory, MB | HTTP: answered, refused, none | gRPC: answered, refused, none | slowest answer, s |\n|{'---|' * 6}")
    for name, row in rows.items():
        three = ["" if not row[k] else ", ".join(str(row[k][w]) for w in ("ok", "refused", "none")) for k in ("http", "grpc")]
        print(f"| {name.replace('_', ' ')} | {row['turns']} | {row['peak'] >> 20}{' (ended)' if row['killed'] else ''} | {three[0]} | {three[1]} | {row['slowest']:.1f} |")
    print(f"\nresident memory at the end: {(ended or 0) >> 20} MB; this script was itself stopped for {stalled:.1f} s at most, which its times include")
    for reason, n in reasons.most_common():
        print(f"refused {n}: {reason}")


if __name__ == "__main__":
    main()
