"""Bodies of HTTP requests, which `octavo serve` receives into their own memory: in pieces, pipelined, refused early, cut off, many at once."""
import concurrent.futures
import gzip
import http.client
import json
import socket
import time

import numpy as np
import pytest
from test_serve import QDQ, SHAPE, Running, engine, json_body, name, picture, want  # noqa: F401


@pytest.fixture(scope="module")
def server():
    with Running(f"digits={QDQ}", "--batch", "1,4,8,32", "--max-request-mb", "0.25", "--max-pending-mb", "4", "--body-timeout", "3") as running:
        yield running


def binary(name, x, padding=0):
    """(headers, body) of a request whose JSON part is `padding` bytes longer than it must be."""
    header = json.dumps({"inputs": [{"name": name[0], "datatype": "FP32", "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}],
                         "parameters": {"binary_data_output": True}}).encode() + b" " * padding
    return {"Inference-Header-Content-Length": str(len(header))}, header + x.tobytes()


def plain(headers, body, path="/v2/models/digits/infer"):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Raw:
    """A connection whose bytes are sent by hand."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.socket.makefile("rb")  # one reader: answers follow each other

    def answer(self):
        status = int(self.answers.readline().split()[1])
        headers = http.client.parse_headers(self.answers)
        return status, headers, self.answers.read(int(headers["Content-Length"]))

    def close(self):
        self.answers.close()
        self.socket.close()

    def result(self):
        status, headers, body = self.answer()
        assert status == 200, body
        n = int(headers["Inference-Header-Content-Length"])
        return np.frombuffer(body[n:], np.float32).reshape(json.loads(body[:n])["outputs"][0]["shape"])


@pytest.mark.parametrize("rows", [1, 4, 32])
def test_in_pieces(server, engine, name, rows):
    x = picture(rows, rows)
    request = plain(*binary(name, x))
    head = request.index(b"\r\n\r\n") + 4
    for cuts in ([head], [head - 2], [head + 1], [10, head, head + 50, len(request) - 1], [head + 5, head + 900], list(range(40, len(request), max(len(request) // 12, 1)))):
        one = Raw(server)
        for begin, end in zip([0, *cuts], [*cuts, len(request)]):
            one.socket.sendall(request[begin:end])
            time.sleep(0.005)
        assert np.array_equal(one.result(), want(engine, name, x)), cuts
        one.socket.sendall(request)  # the connection stays
        assert np.array_equal(one.result(), want(engine, name, x)), cuts
        one.close()


def test_pipelined(server, engine, name):
    pictures = [picture(i, 1 + 7 * (i % 2)) for i in range(5)]
    one = Raw(server)
    one.socket.sendall(b"".join(plain(*binary(name, x)) for x in pictures))
    for x in pictures:
        assert np.array_equal(one.result(), want(engine, name, x))
    one.close()


def test_an_answer_before_the_body(server, engine, name):
    """What is refused by its head is answered at once, the rest of its body is read and dropped, and the connection goes on."""
    x = picture(3, 8)
    headers, body = binary(name, x)
    valid = json_body(name, picture(0, 32))
    for path, first, status in (("/v2/models/unknown/infer", valid, 404), ("/v2/absent", valid, 404), ("/v2/models/digits/infer", b" " * 300_000, 413)):
        one = Raw(server)
        one.socket.sendall(plain({}, first, path))
        assert one.answer()[0] == status
        one.socket.sendall(plain(headers, body))
        assert np.array_equal(one.result(), want(engine, name, x))
        one.close()


def test_cut_off_and_slow(server, engine, name):
    headers, body = binary(name, picture(0, 8))
    for at in (100, 2000):
        gone = Raw(server)
        gone.socket.sendall(plain(headers, body)[:-at])
        gone.close()
    slow = Raw(server)
    began = time.monotonic()
    slow.socket.sendall(plain(headers, body)[:-1])
    assert slow.answer()[0] == 408 and time.monotonic() - began > 2
    slow.socket.sendall(body[-1:] + plain(headers, body))
    assert np.array_equal(slow.result(), want(engine, name, picture(0, 8)))
    slow.close()


def test_heads_that_are_not_plain(server, engine, name):
    x = picture(5, 8)
    headers, body = binary(name, x)
    status, out = server.ask("POST", "/v2/models/digits/infer", iter([body[:100], body[100:]]), headers)  # chunked
    assert status == 200 and out.endswith(want(engine, name, x).tobytes())
    text = json_body(name, x)
    packed = gzip.compress(text)
    assert server.ask("POST", "/v2/models/digits/infer", packed, {"Content-Encoding": "gzip"})[0] == 200
    assert server.ask("POST", "/v2/models/digits/infer", packed[:-9], {"Content-Encoding": "gzip"})[0] == 400
    one = Raw(server)
    one.socket.sendall(plain({**headers, "Expect": "100-continue"}, body)[:-len(body)])
    assert one.socket.recv(1000).startswith(b"HTTP/1.1 100 ")
    one.socket.sendall(body)
    assert np.array_equal(one.result(), want(engine, name, x))
    one.close()
    for wrong in ({**headers, "content-length": str(len(body) - 1)}, {**headers, "Transfer-Encoding": "chunked"}):  # beside the right length: two framings
        one = Raw(server)
        one.socket.sendall(plain(wrong, body))
        assert one.answer()[0] == 400
        one.close()


@pytest.mark.parametrize("change", [("HTTP/1.1", "HTTP/1.0"), ("Host: localhost", "Host: localhost\r\nConnection: close")])
def test_the_last_request_of_a_connection(server, engine, name, change):
    """It is answered, and the server closes."""
    x = picture(2, 8)
    one = Raw(server)
    one.socket.sendall(plain(*binary(name, x)).replace(*(c.encode() for c in change), 1))
    assert np.array_equal(one.result(), want(engine, name, x))
    assert one.answers.read() == b""
    one.close()


def test_more_connections_than_allowed(name):
    with Running(f"digits={QDQ}", "--batch", "32", "--max-connections", "3") as server:
        headers, body = binary(name, picture(0, 8))
        some = [Raw(server) for _ in range(4)]
        time.sleep(0.2)
        some[3].socket.sendall(plain(headers, body))
        assert some[3].answer()[0] == 503
        for one in some[:3]:
            one.close()
        time.sleep(0.2)
        some[3].close()
        assert server.ask("POST", "/v2/models/digits/infer", body, headers)[0] == 200


def test_many_at_once_keep_their_own_memory(server, engine, name):
    """Bodies of a few sizes, whose memory is used again and again, with JSON parts of every length modulo 64."""
    def ask(i):
        x = picture(i, 1 + i % 4)
        status, out = server.ask("POST", "/v2/models/digits/infer", binary(name, x, i % 64)[1], binary(name, x, i % 64)[0])
        return status == 200 and out.endswith(want(engine, name, x).tobytes())
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(400)))


@pytest.mark.long
def test_all_bodies_together_have_a_limit(name):
    with Running(f"digits={QDQ}", "--batch", "64", "--delay-ms", "1500", "--max-request-mb", "0.03", "--max-pending-mb", "0.05") as server:
        headers, body = binary(name, picture(0, 24))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            codes = sorted(code for code, _ in pool.map(lambda _: server.ask("POST", "/v2/models/digits/infer", body, headers), range(4)))
        assert codes[0] == 200 and codes[-1] == 429
        assert server.ask("POST", "/v2/models/digits/infer", body, headers)[0] == 200  # nothing is held any more
        assert server.stop() == 0


def test_heads_that_are_repeated(server, engine, name):
    """A head that equals the last one is not parsed again; what follows it may differ, and other requests may come between."""
    x, y = picture(1, 8), picture(2, 8)
    good = plain(*binary(name, x))
    head = good.index(b"\r\n\r\n") + 4
    other = good.replace(b"FP32", b"FP64", 1)
    broken = good.replace(b'{"inputs"', b'["inputs"', 1)
    second = plain(*binary(name, y))
    assert len({len(r) for r in (good, other, broken, second)}) == 1 and second[:head] == good[:head]
    small = json_body(name, picture(3, 1))
    index = b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    one = Raw(server)
    for _ in range(3):
        for request, expected in ((good, x), (second, y), (other, 400), (good, x), (broken, 400), (second, y), (index, 200), (good, x), (plain({}, small), 200), (second, y)):
            for cut in (None, head, head - 3, head + 20, head + 300):
                if cut is None:
                    one.socket.sendall(request)
                else:
                    one.socket.sendall(request[:cut])
                    time.sleep(0.002)
                    one.socket.sendall(request[cut:])
                if isinstance(expected, int):
                    assert one.answer()[0] == expected
                else:
                    assert np.array_equal(one.result(), want(engine, name, expected))
    one.socket.sendall(good + second + index + good)  # several at once
    for expected in (x, y, None, x):
        if expected is None:
            assert one.answer()[0] == 200
        else:
            assert np.array_equal(one.result(), want(engine, name, expected))
    one.close()


def test_a_connection_without_requests_is_closed_in_the_end(engine, name):
    """After --idle-timeout from the last answer, whichever way that went; not while requests come."""
    with Running(f"digits={QDQ}", "--batch", "1", "--idle-timeout", "1.5", "--delay-ms", "0") as server:
        x = picture(1, 1)
        one, other = Raw(server), Raw(server)
        for _ in range(5):
            one.socket.sendall(plain(*binary(name, x, 900)))
            other.socket.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert np.array_equal(one.result(), want(engine, name, x)) and other.answer()[0] == 200
            time.sleep(0.5)
        began = time.monotonic()
        for each in (one, other):
            each.socket.settimeout(10)
            assert each.answers.read() == b""
            each.close()
        assert 0.5 < time.monotonic() - began < 4


def test_the_same_json_with_other_rows_and_a_queue_of_slow_senders(server, engine, name):
    """Whole bodies are answered while others of the same batch are on their way, which are answered when they come."""
    pictures = [picture(i, 1) for i in range(40)]
    slow = [Raw(server) for _ in range(20)]
    for one, x in zip(slow, pictures):
        request = plain(*binary(name, x, 300))
        one.socket.sendall(request[:-200])
    quick = [Raw(server) for _ in range(20)]
    for one, x in zip(quick, pictures[20:]):
        one.socket.sendall(plain(*binary(name, x, 300)))
    for one, x in zip(quick, pictures[20:]):
        assert np.array_equal(one.result(), want(engine, name, x))
        one.close()
    for one in slow[::2]:
        one.close()
    for one, x in list(zip(slow, pictures))[1::2]:
        one.socket.sendall(plain(*binary(name, x, 300))[-200:])
        assert np.array_equal(one.result(), want(engine, name, x))
        one.close()
