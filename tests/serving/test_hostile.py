"""Clients that are silent, slow, or send and ask for more than they may, over HTTP and gRPC: others are answered, time ends it, memory stays within its limit.
bench/serve_hostile.py does the same for ten minutes at full size."""
import contextlib
import gzip
import http.client
import json
import os
import pathlib
import socket
import struct
import time
import zlib

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from test_bodies import Raw, binary, plain  # noqa: E402
from test_grpc import INFER, RST, Http2, framed, grpc, message, pb  # noqa: E402
from test_serve import QDQ, Running, ask_grpc, ask_http, engine, name, picture, want  # noqa: E402,F401

STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
PLACES = 32


@pytest.fixture(scope="module")
def server():
    with Running(f"digits={QDQ}", "--batch", "1,4", "--max-connections", PLACES, "--body-timeout", "2", "--idle-timeout", "1.5", "--stream-timeout", "4",
                 "--stream-messages", "150", "--max-pending-mb", "64") as running:
        yield running


def resident(server):
    """MB."""
    return int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096 / 2**20


def quiet_log(server):
    assert not [line for line in server.said if "Traceback" in line or "Exception" in line]


def fresh_call(server, name):
    """A new client's call."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        return channel.unary_unary(INFER)(message(name, picture(1)), timeout=20)


@pytest.mark.parametrize("path", [INFER, STREAM])
def test_silent_calls_keep_nobody_out_and_end(server, name, path):
    """As many calls as there may be say nothing: the one that has waited longest makes room, and the others end by themselves."""
    with Http2(server) as silent:
        silent.send(*(silent.head(1 + 2 * i, path) for i in range(PLACES)))
        time.sleep(1.3)
        for _ in range(3):
            assert fresh_call(server, name)
        assert silent.code(1)[0] == 8 and "has waited longest" in silent.code(1)[1]
        began = time.monotonic()
        assert silent.code(2 * PLACES - 1) == (4, "the body did not arrive within 2.0 s")
        assert time.monotonic() - began < 5
        silent.send(silent.head(2 * PLACES + 1), silent.data(2 * PLACES + 1, framed(message(name, picture(2))), 1000))
        assert silent.code(2 * PLACES + 1)[0] == 0
    quiet_log(server)


def test_silent_connections_keep_nobody_out_and_end(server, engine, name):
    silent = [socket.create_connection(("127.0.0.1", port)) for port in (server.port, server.grpc_port) for _ in range(PLACES)]
    half = silent[:PLACES // 2]
    for one in half:
        one.sendall(b"POST /v2 HTTP/1.1\r\nHost: localhost\r\n")
    time.sleep(1.3)
    for i in range(3):
        assert fresh_call(server, name)
        status, body = server.ask("POST", "/v2/models/digits/infer", *reversed(binary(name, picture(i))))
        assert status == 200 and body.endswith(want(engine, name, picture(i)).tobytes())
    began = time.monotonic()
    for one in silent:
        one.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while one.recv(1 << 16):
                pass
    assert time.monotonic() - began < 6
    for one in silent:
        one.close()


def test_heads_that_do_not_end(server):
    """A head that comes slowly is answered with 408, one that is too large with 431; small chunks and trailers count too."""
    slow = socket.create_connection(("127.0.0.1", server.port))
    slow.settimeout(10)
    slow.sendall(b"\r\n")
    began, got = time.monotonic(), b""
    while time.monotonic() < began + 6 and not got:
        with contextlib.suppress(OSError):
            slow.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-A: b" if not got else b"")
            slow.settimeout(0.3)
            got = slow.recv(1000)
    assert b" 408 " in got.split(b"\r\n")[0] and 1.5 < time.monotonic() - began < 5.5
    for begin, more in ((b"GET /v2 HTTP/1.1\r\nX-A: ", b"a"), (b"GET /v2 HTTP/1.1\r\n", b"A: b\r\n"), (b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2;", b"x=y;"),
                        (b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"A: b\r\n")):
        large = socket.create_connection(("127.0.0.1", server.port))
        large.settimeout(10)
        sent, got = len(begin), b""
        with contextlib.suppress(OSError):
            large.sendall(begin)
            while sent < 1 << 20:
                large.sendall(more * (10000 // len(more)))
                sent += 10000
        with contextlib.suppress(ConnectionError):  # reset: it was closed while more came
            got = large.recv(1000)
            assert not got or b" 431 " in got.split(b"\r\n")[0], got
        large.close()
    slow.close()


def test_slow_bodies_and_messages(server, name):
    """A byte now and then does not make a message come in time."""
    over_http, whole = Raw(server), plain(*binary(name, picture(0, 4)))
    over_http.socket.sendall(whole[:-100])
    with Http2(server) as one, Http2(server) as other:
        data = framed(message(name, picture(0)))
        one.send(one.head(1), one.data(1, data[:-100], 1000, end=False))
        other.send(other.head(1, STREAM), other.data(1, data[:-100], 1000, end=False))
        for _ in range(5):
            time.sleep(0.5)
            with contextlib.suppress(OSError):
                over_http.socket.sendall(b"\0")
            one.send(one.data(1, b"\0", 1, end=False))
            other.send(other.data(1, b"\0", 1, end=False))
        assert over_http.answer()[0] == 408
        assert one.code(1)[0] == 4 and other.code(1)[0] == 4
    over_http.close()


def test_streams_end_in_time(server, name):
    """Between two messages, and as a whole."""
    data = framed(message(name, picture(0)))
    with Http2(server) as idle, Http2(server) as long:
        idle.send(idle.head(1, STREAM), idle.data(1, data, 1000, end=False))
        long.send(long.head(1, STREAM))
        began = time.monotonic()
        while time.monotonic() < began + 3.7:
            long.send(long.data(1, data, 1000, end=False))
            time.sleep(0.5)
        assert idle.code(1) == (4, "the stream has had no message for 1.5 s, the limit") and idle.read(1)[1]
        assert long.code(1)[0] == 4 and "lasted 4 s" in long.code(1)[1] and long.read(1)[1]


def test_calls_that_are_refused_and_reset_in_one_read(server):
    """Nothing is sent for them any more; what the connection remembered of them goes with it."""
    for _ in range(10):
        raw = socket.create_connection(("127.0.0.1", server.grpc_port))
        raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Http2.frame(4, 0, 0, b""))
        raw.recv(100)
        raw.sendall(Http2.frame(4, 1, 0, b"") + Http2.head(Http2, 1, INFER) + Http2.data(Http2, 1, bytes([7] * 60), 1000, end=False) + Http2.frame(RST, 0, 1, struct.pack(">I", 8)))
        time.sleep(0.02)
        raw.close()
    time.sleep(0.2)
    assert server.cycles() == {"kinds": {}, "bytes": 0}


def test_streams_end_after_so_many_messages(name):
    """Of a server that gives them time, because a machine with other work may need more than 4 s for 150."""
    data = framed(message(name, picture(0)))
    with Running(f"digits={QDQ}", "--batch", "1,4", "--stream-messages", "150") as server, Http2(server) as one:
        one.send(one.head(1, STREAM))
        for _ in range(7):
            one.send(one.data(1, 25 * data, 1 << 20, end=False))
        assert one.code(1) == (8, "the stream has had 150 messages, the limit; open another one")


def test_a_call_has_the_time_that_its_client_says(name, engine):
    """grpc-timeout: the answer comes no later, and what waited in the queue is not run; a client that cancels frees it too."""
    with Running(f"digits={QDQ}", "--batch", "8", "--delay-ms", "2000") as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel, Http2(server) as one:
            one.send(one.head(1, grpc_timeout="400m"), one.data(1, framed(message(name, picture(0))), 1000))
            began = time.monotonic()
            assert one.code(1) == (4, "the call has taken longer than its own limit (grpc-timeout) of 0.4 s") and time.monotonic() - began < 2
            assert server.metric("octavo_waiting_requests") == 0
            one.send(one.head(3, grpc_timeout="4x"), one.head(5), one.data(5, framed(message(name, picture(0))), 1000))
            assert one.code(3)[0] == 3
            deadline = time.monotonic() + 5
            while server.metric("octavo_waiting_requests") != 1 and time.monotonic() < deadline:
                time.sleep(0.02)
            one.send(one.frame(RST, 0, 5, struct.pack(">I", 8)))
            while server.metric("octavo_waiting_requests") != 0 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert server.metric("octavo_waiting_requests") == 0 and server.metric("octavo_run_seconds_count") == 0
            del channel


def test_many_small_messages(server, engine, name):
    """100,000 messages of five bytes on each of four streams: refused after the first fifty, in little memory; others are answered meanwhile."""
    before = resident(server)
    some = [Http2(server) for _ in range(4)]
    for one in some:
        one.send(one.head(1, STREAM))
        one.socket.settimeout(10)
        with contextlib.suppress(OSError):
            one.send(one.data(1, bytes(500_000), 1 << 16, end=False))
    slowest = 0.0
    for i in range(10):
        began = time.monotonic()
        assert np.array_equal(ask_grpc(server.grpc, name, picture(i)).as_numpy(name[1]), want(engine, name, picture(i)))
        slowest = max(slowest, time.monotonic() - began)
    for one in some:
        code, text = one.code(1)
        assert code == 3 and "last 50 messages" in text
        one.__exit__()
    assert slowest < 5 and resident(server) - before < 60, (slowest, before, resident(server))
    quiet_log(server)


SIDE = 512
INPUT = 3 * SIDE * SIDE * 4


@pytest.fixture(scope="module")
def large_model(tmp_path_factory):
    """A network with 3 MB in, and 3 MB or 12 bytes out."""
    from onnx import TensorProto, helper
    shape = ["n", 3, SIDE, SIDE]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["same"]), helper.make_node("GlobalAveragePool", ["x"], ["mean"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("same", TensorProto.FLOAT, shape), helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["n", 3, 1, 1])])
    path = tmp_path_factory.mktemp("large") / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def large(large_model):
    """48 MB for all clients."""
    with Running(large_model, "--batch", "1,2", "--max-request-mb", "16", "--max-pending-mb", "48", "--body-timeout", "2", "--queue", "200", "--delay-ms", "300") as running:
        yield running


def large_http(output):
    text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3, SIDE, SIDE], "parameters": {"binary_data_size": INPUT}}],
                       "outputs": [{"name": output, "parameters": {"binary_data": True}}]}).encode()
    return {"Inference-Header-Content-Length": str(len(text))}, text + bytes(INPUT)


def large_grpc(output, x=bytes(INPUT)):
    made = pb.ModelInferRequest(model_name="large")
    made.inputs.add(name="x", datatype="FP32", shape=(1, 3, SIDE, SIDE))
    made.outputs.add(name=output)
    made.raw_input_contents.append(x)
    return made.SerializeToString()


def answered(server):
    """Whether other clients are, within some seconds: places in memory come free again."""
    headers, body = large_http("mean")
    for _ in range(40):
        if server.ask("POST", "/v2/models/large/infer", body, headers)[0] == 200:
            return True
        time.sleep(0.2)
    return False


def peak_while(server, seconds):
    end, most = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        most = max(most, resident(server))
        time.sleep(0.02)
    return most


def test_decompressed_bytes_are_charged(large):
    """Small requests that are large when they are decompressed: of those that would hold more than --max-pending-mb together, some are refused."""
    assert answered(large)
    before = resident(large)
    headers, body = large_http("mean")
    headers = {**headers, "Content-Encoding": "gzip"}
    packed = gzip.compress(body)
    assert len(packed) < 10000
    many = [Raw(large) for _ in range(24)]
    for one in many:
        one.socket.sendall(plain(headers, packed, "/v2/models/large/infer"))
    with Http2(large) as calls:
        small = zlib.compress(large_grpc("mean"))
        calls.send(*(calls.head(1 + 2 * i, grpc_encoding="deflate") + calls.data(1 + 2 * i, framed(small, 1), 1 << 14) for i in range(24)))
        most = peak_while(large, 1.0)
        codes = [one.answer()[0] for one in many] + [{0: 200, 8: 429}[calls.code(1 + 2 * i)[0]] for i in range(24)]
    for one in many:
        one.close()
    assert set(codes) == {200, 429} and most - before < 48 + 60, (codes, before, most)
    bomb = gzip.compress(b" " * (40 << 20), 1)
    assert large.ask("POST", "/v2/models/large/infer", bomb, {"Content-Encoding": "gzip"})[0] == 413
    assert answered(large)


def test_what_no_model_needs_is_not_decompressed(server):
    """1.3 MB are enough for any request of these digits, in any form: 64 MB are allowed, and not made."""
    before = resident(server)
    status, body = server.ask("POST", "/v2/models/digits/infer", gzip.compress(b" " * (40 << 20), 1), {"Content-Encoding": "gzip"})
    assert status == 413 and "more than 10" in json.loads(body)["error"] and resident(server) - before < 20
    bomb = framed(gzip.compress(bytes(40 << 20), 1), 1)
    with Http2(server) as one:
        one.send(one.head(1, grpc_encoding="gzip"), one.data(1, bomb, 1 << 14))
        assert one.code(1)[0] == 8 and resident(server) - before < 20


def peak(server, again=False):
    """MB: the largest resident memory since the last call that said `again`."""
    of = pathlib.Path(f"/proc/{server.process.pid}")
    found = next(int(line.split()[1]) for line in (of / "status").read_text().splitlines() if line.startswith("VmHWM:")) / 1024
    if again:
        (of / "clear_refs").write_text("5")
    return found


def cpu_seconds(server):
    """Of the server's process."""
    return sum(map(int, pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


MANY = 5_000_000
EMPTY = {"inputs": b"\x2a\0" * MANY, "outputs": b"\x32\0" * MANY, "raw contents": b"\x3a\0" * MANY, "parameters of an input": b"\x2a" + b"\x80\xad\xe2\4" + b"\x22\0" * MANY,
         "lists": b'{"inputs":[' + b"[]," * (MANY - 1) + b"[]]}", "objects": b'{"inputs":[' + b"{}," * (MANY - 1) + b"{}]}",
         "lists in parameters": b'{"parameters":{"a":[' + b"[]," * (MANY - 1) + b"[]]}}"}


@pytest.mark.parametrize("kind", EMPTY)
def test_small_requests_that_are_many_objects_when_they_are_decoded(large, kind):
    """10 or 15 MB of empty messages or lists are 15 kB compressed, and would be 200 to 500 MB of objects. They are refused before they are decoded: memory stays
    within its limit, and others are answered in time."""
    assert answered(large)
    before, began_cpu = resident(large), cpu_seconds(large)
    peak(large, again=True)
    packed = zlib.compress(EMPTY[kind], 9)
    assert len(packed) < 40_000
    paths = [INFER, STREAM] if EMPTY[kind][0] != ord("{") else ["/v2/models/large/infer", "/v2/repository/index", "/v2/models/large/infer"]
    some = [Http2(large) if path in (INFER, STREAM) else Raw(large) for path in paths]
    for one, path in zip(some, paths):
        if path in (INFER, STREAM):
            one.send(one.head(1, path, grpc_encoding="deflate"), one.data(1, framed(packed, 1), 1 << 14))
        else:
            one.socket.sendall(plain({"Content-Encoding": "deflate"}, packed, path))
    slowest, end = 0.0, time.monotonic() + 0.7
    while time.monotonic() < end:
        began = time.monotonic()
        assert large.ask("GET", "/v2/health/live")[0] == 200
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.02)
    answers = [one.code(1) if path == INFER else one.read(1) if path == STREAM else one.answer() for one, path in zip(some, paths)]
    most, used = peak(large), cpu_seconds(large) - began_cpu
    assert most - before < 48 + 60 and slowest < 5, (before, most, slowest)
    assert used < 0.25 * len(some) + 0.2, used  # the time to decode one on the event loop: 0.3 to 1 s
    for path, answer in zip(paths, answers):
        if path in (INFER, STREAM):
            assert "more than a request of these models needs" in str(answer) and (answer[0] == 3 or path == STREAM), answer
        else:
            assert answer[0] in (400, 413), answer
    for one in some:
        one.__exit__() if isinstance(one, Http2) else one.close()
    quiet_log(large)


def test_numbers_are_charged_while_they_are_decoded(large):
    """3 MB as numbers are 6 MB of text, which become 50 MB of objects for a moment, and 3 MB in a message become 56: more than 48 for all clients."""
    assert answered(large)
    numbers = 3 * SIDE * SIDE
    text = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3,%d,%d],"data":[%b0.25]}],"outputs":[{"name":"mean"}]}' % (SIDE, SIDE, b"0.25," * (numbers - 1))
    status, said = large.ask("POST", "/v2/models/large/infer", text)
    assert status == 413 and "decoding the request takes up to" in json.loads(said)["error"], said
    made = pb.ModelInferRequest(model_name="large")
    one = made.inputs.add(name="x", datatype="FP32", shape=(1, 3, SIDE, SIDE))
    one.contents.fp32_contents.extend([0.25] * numbers)
    with Http2(large) as calls:
        for stream, path in ((1, INFER), (3, STREAM)):
            calls.send(calls.head(stream, path), calls.data(stream, framed(made.SerializeToString()), 1 << 14))
            assert "decoding the request takes up to" in str(calls.read(stream))
    assert answered(large)


@pytest.mark.long
def test_queued_messages_are_charged(large):
    """Whole requests on streams wait for their turn: together they hold no more than is allowed."""
    assert answered(large)
    before = resident(large)
    some = []
    data = framed(large_grpc("same"))
    for _ in range(8):
        one = Http2(large)
        one.socket.settimeout(0.5)
        with contextlib.suppress(OSError):
            one.send(one.head(1, STREAM))
            for _ in range(5):
                one.send(one.data(1, data, 1 << 20, end=False))
        some.append(one)
    assert peak_while(large, 1.0) - before < 48 + 80, before
    for one in some:
        one.__exit__()
    assert answered(large)


@pytest.mark.parametrize("kind", ["http", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("calls", "streams"))])
def test_answers_that_are_not_read_are_charged_and_given_up(large, kind):
    """Clients that ask for 3 MB and do not read them: their answers count, and end after --body-timeout."""
    assert answered(large)
    before = resident(large)
    some = []
    for _ in range(16):
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(1)
        raw.connect(("127.0.0.1", large.port if kind == "http" else large.grpc_port))
        some.append(raw)
        with contextlib.suppress(OSError):
            if kind == "http":
                raw.sendall(plain(*large_http("same"), "/v2/models/large/infer"))
            else:
                raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Http2.frame(4, 0, 0, struct.pack(">HI", 4, 0)))
                raw.recv(100)
                raw.sendall(Http2.frame(4, 1, 0, b""))
                path = INFER if kind == "calls" else STREAM
                raw.sendall(Http2.head(Http2, 1, path) + Http2.data(Http2, 1, framed(large_grpc("same")), 1 << 20, end=kind == "calls"))
    most = peak_while(large, 1.5)
    assert most - before < 48 + 40, (before, most)
    time.sleep(2.5)  # the limit for reading
    assert answered(large)
    if kind == "http":  # they were closed
        ended = 0
        for raw in some:
            raw.settimeout(5)
            with contextlib.suppress(ConnectionError):
                while raw.recv(1 << 20):
                    pass
            ended += 1
        assert ended == len(some)
    for raw in some:
        raw.close()
    quiet_log(large)


@pytest.mark.parametrize("way", ["short", "long"])
def test_a_second_answer_that_waits_for_the_first_to_be_read_is_charged(large_model, way):
    """20 clients ask twice for 3 MB over one connection and read nothing. The first answers are mostly in the kernel's memory. The second ones wait, and 48 MB are enough
    for 16 of them; on the short way for 8, because the outputs of a batch of 2 are kept together."""
    with Running(large_model, "--batch", "1,2", "--max-request-mb", "16", "--max-pending-mb", "48", "--body-timeout", "20", "--delay-ms", "0") as server:
        headers, body = large_http("same")
        request = plain(headers, body, "/v2/models/large/infer")
        if way == "long":  # bodies without a declared size are uvicorn's
            head, _, _ = request.partition(b"\r\n\r\n")
            head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")) + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
            request = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        some = []
        for turn in (1, 2):
            for i in range(20):
                if turn == 1:
                    raw = socket.socket()
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    raw.settimeout(20)
                    raw.connect(("127.0.0.1", server.port))
                    some.append(raw)
                before, end = server.metric("octavo_requests_total"), time.monotonic() + 2
                with contextlib.suppress(ConnectionError):
                    some[i].sendall(request)
                while server.metric("octavo_requests_total") == before and time.monotonic() < end:  # one by one: bodies are charged too
                    time.sleep(0.01)
        answered = [0, 0]
        for raw in some:
            with contextlib.suppress(ConnectionError, IndexError, http.client.HTTPException, ValueError), contextlib.closing(raw), raw.makefile("rb") as answers:
                for turn in range(2):
                    status = int(answers.readline().split()[1])
                    said = http.client.parse_headers(answers)
                    if len(answers.read(int(said["Content-Length"]))) < int(said["Content-Length"]):
                        break  # the server has closed it
                    answered[turn] += status == 200
        assert answered[0] >= 2 and 1 <= answered[1] <= (8 if way == "short" else 16), answered
        quiet_log(server)
