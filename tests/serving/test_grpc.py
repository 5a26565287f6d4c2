"""gRPC connections of `octavo serve`, written by hand: messages in frames of every size, padded, compressed, several calls of one connection in turns, calls that are cancelled,
too large, late, cut off, or no gRPC at all; mutated frames."""
import concurrent.futures
import os
import random
import socket
import struct
import time
import zlib

import numpy as np
import pytest

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (make test-serving installs it)")
hpack = pytest.importorskip("hpack", reason="hpack is not installed (make test-serving installs it)")
from test_serve import QDQ, SHAPE, Running, ask_grpc, engine, name, picture, triton_grpc, want  # noqa: F401

pb = triton_grpc.service_pb2
INFER = "/inference.GRPCInferenceService/ModelInfer"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
MUTATED = int(os.environ.get("OCTAVO_SERVE_MUTATED", "300"))


@pytest.fixture(scope="module")
def server():
    with Running(f"digits={QDQ}", "--batch", "1,4,8,32", "--max-request-mb", "0.25", "--max-pending-mb", "4", "--body-timeout", "4", "--max-connections", "60") as running:
        yield running


def message(name, x, **more):
    """ModelInferRequest of one raw tensor."""
    made = pb.ModelInferRequest(model_name="digits", **more)
    made.inputs.add(name=name[0], datatype="FP32", shape=x.shape)
    made.raw_input_contents.append(x.tobytes())
    return made.SerializeToString()


def framed(data, flag=0):
    return struct.pack(">BI", flag, len(data)) + data


class Http2:
    """A client's connection, frame by frame."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.grpc_port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.decoder = hpack.Decoder()
        self.answers = self.socket.makefile("rb")
        self.got = {}
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(SETTINGS, 0, 0, b""))
        head = self.answers.read(9)  # the server's settings hold from here on: larger frames and windows
        assert head[3] == SETTINGS and not head[4], head
        self.answers.read(int.from_bytes(head[:3], "big"))
        self.socket.sendall(self.frame(SETTINGS, 1, 0, b""))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answers.close()
        self.socket.close()

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def head(self, stream, path=INFER, end=False, **more):
        lines = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers", "content-type": "application/grpc",
                 **{k.replace("__", ":").replace("_", "-"): v for k, v in more.items()}}
        lines = sorted(lines.items(), key=lambda line: not line[0].startswith(":"))
        return self.frame(HEADERS, 4 | int(end), stream, hpack.Encoder().encode(lines))  # a new encoder: nothing is remembered

    def data(self, stream, data, size, end=True, padding=None):
        """In frames of `size` bytes."""
        out = []
        for at in range(0, max(len(data), 1), size):
            part = data[at:at + size]
            last = end and at + size >= len(data)
            out.append(self.frame(DATA, int(last), stream, part) if padding is None else
                       self.frame(DATA, 8 | int(last), stream, bytes([padding]) + part + bytes(padding)))
        return b"".join(out)

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def read(self, stream):
        """(lines, data) of a call's answer when it has ended."""
        while True:
            lines, data, ended = self.got.setdefault(stream, [{}, b"", False])
            if ended:
                return lines, data
            head = self.answers.read(9)
            assert len(head) == 9, "the server closed the connection"
            size, kind, flags, of = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:9], "big")
            payload = self.answers.read(size)
            entry = self.got.setdefault(of, [{}, b"", False])
            if kind == HEADERS:
                entry[0].update(self.decoder.decode(payload))
            elif kind == DATA:
                entry[1] += payload
            elif kind == RST:
                entry[0].setdefault("reset", int.from_bytes(payload, "big"))
            elif kind == PING and not flags & 1:
                self.send(self.frame(PING, 1, 0, payload))
            assert kind != GOAWAY or int.from_bytes(payload[4:8], "big") == 0, payload
            entry[2] = entry[2] or kind == RST or (kind in (DATA, HEADERS) and bool(flags & 1))

    def code(self, stream):
        lines = self.read(stream)[0]
        return int(lines["grpc-status"]), lines.get("grpc-message", "")

    def result(self, stream):
        lines, data = self.read(stream)
        assert lines["grpc-status"] == "0", lines
        answer = pb.ModelInferResponse.FromString(data[5:])
        return np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(answer.outputs[0].shape)


@pytest.mark.parametrize("size, rows", [(1, 1), *((size, rows) for size in (7, 1000, 16384, 1 << 20) for rows in (1, 4, 32))])
def test_frames_of_every_size(server, engine, name, rows, size):
    x = picture(rows, rows)
    data = framed(message(name, x))
    with Http2(server) as one:
        for turn, padding in enumerate((None, 0, 200)):
            stream = 2 * turn + 1
            one.send(one.head(stream), one.data(stream, data, size, padding=padding))
            assert np.array_equal(one.result(stream), want(engine, name, x))


@pytest.mark.parametrize("cut", [1, 9, 20, 60, 100, 150, 1000])
def test_packets_of_every_size(server, engine, name, cut):
    """What one read brings ends anywhere; the head, the size, the lead and a frame's head come in pieces."""
    x = picture(cut, 2)
    with Http2(server) as one:
        bytes_ = one.head(1) + one.data(1, framed(message(name, x)), 1 << 20)
        for at in range(0, min(len(bytes_), 40 * cut), cut):
            one.send(bytes_[at:at + cut])
            time.sleep(0.002)
        one.send(bytes_[min(len(bytes_), 40 * cut):])
        assert np.array_equal(one.result(1), want(engine, name, x))


def test_large_frames_stop_and_go_on(server, engine, name):
    """A frame that is received into its row, in two parts with other connections' requests between them; then the same call again on the connection."""
    x = picture(7, 32)
    data = framed(message(name, x))
    with Http2(server) as one, Http2(server) as other:
        for stream in (1, 3, 5):
            bytes_ = one.head(stream) + one.data(stream, data, 1 << 20)
            one.send(bytes_[:len(bytes_) // 2])
            time.sleep(0.05)
            y = picture(stream, 3)
            other.send(other.head(stream), other.data(stream, framed(message(name, y)), 1 << 20))
            assert np.array_equal(other.result(stream), want(engine, name, y))
            one.send(bytes_[len(bytes_) // 2:])
            assert np.array_equal(one.result(stream), want(engine, name, x))


def test_calls_of_one_connection_in_turns(server, engine, name):
    pictures = [picture(i, 1 + i % 3) for i in range(40)]
    rng = random.Random(2)
    with Http2(server) as one:
        parts = {2 * i + 1: [one.head(2 * i + 1)] + [one.frame(DATA, 0, 2 * i + 1, piece) for piece in
                             (lambda d: [d[at:at + 700] for at in range(0, len(d), 700)])(framed(message(name, x)))] + [one.frame(DATA, 1, 2 * i + 1, b"")]
                 for i, x in enumerate(pictures)}
        heads = sorted(parts)
        for stream in heads:
            one.send(parts[stream].pop(0))  # streams begin in order
        while parts:
            stream = rng.choice(list(parts))
            one.send(parts[stream].pop(0))
            if not parts[stream]:
                del parts[stream]
        for stream, x in zip(heads, pictures):
            assert np.array_equal(one.result(stream), want(engine, name, x)), stream


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed(server, engine, name, coding):
    x = picture(3, 2)
    compress = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    data = compress.compress(message(name, x)) + compress.flush()
    with Http2(server) as one:
        one.send(one.head(1, grpc_encoding=coding), one.data(1, framed(data, 1), 500))
        assert np.array_equal(one.result(1), want(engine, name, x))
        one.send(one.head(3, grpc_encoding=coding), one.data(3, framed(data[:-9], 1), 500))
        assert one.code(3)[0] == 3
        one.send(one.head(5, grpc_encoding="br"), one.data(5, framed(data, 1), 500))
        assert one.code(5)[0] == 3 and "none of identity, gzip, deflate" in one.code(5)[1]
        bomb = zlib.compress(bytes(1 << 20))
        one.send(one.head(7, grpc_encoding="deflate"), one.data(7, framed(bomb, 1), 500))
        assert one.code(7)[0] == 8 and "decompressed" in one.code(7)[1]


def test_what_is_no_call(server, engine, name):
    x = picture(0)
    data = framed(message(name, x))
    with Http2(server) as one:
        one.send(one.head(1, "/inference.GRPCInferenceService/Trace", end=True))
        assert one.code(1)[0] == 12
        one.send(one.head(3, content_type="application/json"), one.data(3, b"{}", 10))
        assert one.read(3)[0][":status"] == "415"
        one.send(one.head(5, __method="GET", end=True))
        assert one.read(5)[0][":status"] == "405"
        one.send(one.head(7), one.data(7, data + data, 1000))
        assert one.code(7) == (3, "the call has more than one message")
        one.send(one.head(9, end=True))
        assert one.code(9)[0] == 3 and "no size" in one.code(9)[1]
        one.send(one.head(11), one.data(11, data[:-5], 1000))
        assert one.code(11)[0] == 3 and "ended before its message did" in one.code(11)[1]
        one.send(one.head(13), one.data(13, b"\x02" + data[1:], 1000))
        assert one.code(13)[0] == 3
        one.send(one.head(15), one.data(15, b"\0\x10\0\0\0", 1000, end=False))
        assert one.code(15)[0] == 8 and "the limit is 262144" in one.code(15)[1]
        one.send(one.head(17), one.data(17, framed(b""), 1000))
        assert one.code(17)[0] == 5  # no name, so no such model
        one.send(one.head(19), one.data(19, framed(message(name, x, model_version="7")), 1000))
        assert one.code(19)[0] == 5
        one.send(one.head(21), one.data(21, data, 1 << 20))
        assert np.array_equal(one.result(21), want(engine, name, x))


@pytest.mark.long
def test_late_and_cancelled(server, engine, name):
    """A call that stops in the middle is ended, one that is cancelled is forgotten: 4 MiB of pending bytes are enough for many of them, and rows are free again."""
    x = picture(1, 32)
    data = framed(message(name, x))
    with Http2(server) as one:
        one.send(one.head(1), one.data(1, data[:-50], 1 << 20, end=False))
        assert one.code(1) == (4, "the body did not arrive within 4.0 s")
    for _ in range(200):
        with Http2(server) as one:
            one.send(one.head(1), one.data(1, data[:-50], 5000, end=False), one.frame(RST, 0, 1, struct.pack(">I", 8)), one.head(3),
                     one.data(3, data[:-50], 1 << 20, end=False))
    with Http2(server) as one:
        one.send(one.head(1), one.data(1, data, 5000))
        assert np.array_equal(one.result(1), want(engine, name, x))
    with Http2(server) as one:  # the rest of a message never comes; that its call is cancelled is seen all the same, and the next call is answered
        one.send(one.head(1), one.data(1, data, 1 << 20)[:20000])
        time.sleep(0.1)
        one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.send(one.data(1, data, 1 << 20)[20000:])
        assert np.array_equal(one.result(1), want(engine, name, x))
        began = time.monotonic()
        one.send(one.head(3), one.data(3, data[:5000], 5000, end=False))
        time.sleep(0.05)
        one.send(one.frame(RST, 0, 3, struct.pack(">I", 8)), one.head(5), one.data(5, framed(message(name, picture(1))), 1000))
        assert np.array_equal(one.result(5), want(engine, name, picture(1))) and time.monotonic() - began < 3.5
    assert server.metric("octavo_waiting_requests") == 0


def test_mutated_frames(server, engine, name):
    """Bytes of the connection changed: it is answered, refused or closed; others are served."""
    rng = random.Random(5)
    x = picture(2, 2)
    right = want(engine, name, x)
    with Http2(server) as steady:
        for turn in range(max(50, MUTATED // 10)):
            with Http2(server) as one:
                bytes_ = bytearray(one.head(1) + one.data(1, framed(message(name, x)), rng.choice([50, 700, 1 << 20])))
                for _ in range(rng.randint(1, 4)):
                    at = rng.randrange(150 if rng.random() < 0.7 else len(bytes_))
                    kind = rng.randrange(3)
                    if kind == 0:
                        bytes_[at] = rng.randrange(256)
                    elif kind == 1:
                        del bytes_[at:at + rng.randint(1, 20)]
                    else:
                        bytes_[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 20)))
                one.send(bytes(bytes_))
                one.socket.shutdown(socket.SHUT_WR)
                try:
                    while one.socket.recv(1 << 16):
                        pass
                except ConnectionError:
                    pass
            if turn % 20 == 0:
                stream = 2 * (turn // 20) + 1
                steady.send(steady.head(stream), steady.data(stream, framed(message(name, x)), 1000))
                assert np.array_equal(steady.result(stream), right)
    assert server.process.poll() is None and not [line for line in server.said if "Traceback" in line or "Exception" in line]


def test_a_stream_that_is_not_read(server, engine, name):
    """Answers wait for their client within bounds, and others are served meanwhile."""
    x = picture(4, 8)
    with Http2(server) as one:
        one.send(one.head(1, "/inference.GRPCInferenceService/ModelStreamInfer"))
        one.socket.settimeout(1)
        sent = 0
        try:
            for _ in range(500):
                one.send(one.data(1, framed(message(name, x)), 1 << 20, end=False))
                sent += 1
        except TimeoutError:
            pass
        assert sent > 5
        assert np.array_equal(ask_grpc(server.grpc, name, x).as_numpy(name[1]), want(engine, name, x))


def test_a_stream_answers_errors_and_goes_on(server, engine, name):
    x = picture(6)
    with Http2(server) as one:
        data = framed(message(name, x, id="a")) + framed(b"\xff\xff") + framed(message(name, picture(6, 33), id="c")) + framed(message(name, x, id="d"))
        one.send(one.head(1, "/inference.GRPCInferenceService/ModelStreamInfer"), one.data(1, data, 333))
        lines, out = one.read(1)
        assert lines["grpc-status"] == "0"
        answers = []
        while out:
            size = int.from_bytes(out[1:5], "big")
            answers.append(pb.ModelStreamInferResponse.FromString(out[5:5 + size]))
            out = out[5 + size:]
        assert [a.infer_response.id for a in answers] == ["a", "", "c", "d"]
        assert "not a protocol buffer" in answers[1].error_message and "1..32" in answers[2].error_message
        for a in (answers[0], answers[3]):
            assert np.array_equal(np.frombuffer(a.infer_response.raw_output_contents[0], np.float32).reshape(1, -1), want(engine, name, x).reshape(1, -1))


@pytest.mark.long
def test_too_many_calls(name):
    """More than --max-connections at once are refused; when they are done there is room again."""
    with Running(f"digits={QDQ}", "--batch", "32", "--delay-ms", "700", "--max-connections", "8") as server:
        channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")
        call = channel.unary_unary(INFER)
        calls = [call.future(message(name, picture(i)), timeout=30) for i in range(8)]
        with Http2(server) as one:
            while server.metric("octavo_waiting_requests") < 8:
                time.sleep(0.02)
            one.send(one.head(1), one.data(1, framed(message(name, picture(0))), 1000))
            assert one.code(1)[0] == 8
        assert all(c.result() for c in calls)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert all(pool.map(lambda i: call(message(name, picture(i)), timeout=30), range(4)))
        assert server.stop() == 0
