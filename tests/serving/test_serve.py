"""`octavo serve` as a process, asked by the standard client (tritonclient), by hand-made requests and by clients that misbehave.

Needs the packages of octavo[serve] and tritonclient's HTTP client (requirements-serving.txt). Without them every test here skips.
"""
import concurrent.futures
import contextlib
import gzip
import http.client
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest

octavo = pytest.importorskip("octavo")
for needed in ("uvicorn", "starlette", "prometheus_client", "orjson", "tritonclient.grpc"):
    pytest.importorskip(needed, reason=f"{needed} is not installed (make test-serving installs it)")
triton_http = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed (make test-serving installs it)")
import tritonclient.grpc as triton_grpc  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
QDQ, FP32 = ROOT / "examples/digits/digits_qdq.onnx", ROOT / "examples/digits/digits_fp32.onnx"
SHAPE = (1, 16, 16)
WITHOUT_COLLECTOR = pathlib.Path(__file__).with_name("without_collector.py")
TOKEN = "only-the-tests-know-this"  # of those who may load and unload
ADMIN = {"authorization": f"Bearer {TOKEN}"}
REQUESTS = int(os.environ.get("OCTAVO_SERVE_REQUESTS", "300"))
MUTATED = int(os.environ.get("OCTAVO_SERVE_MUTATED", "300"))


class Running:
    """A server process; its ports are those that it says. It runs without the collector of cycles, and at its end it must have left none (without_collector.py)."""

    def __init__(self, *arguments):
        self.folder = tempfile.TemporaryDirectory()
        tokens = pathlib.Path(self.folder.name) / "repository-tokens"
        tokens.write_text(TOKEN)
        more = [] if "--repository-token-file" in arguments else ["--repository-token-file", str(tokens)]
        if not str(arguments[0]).endswith(".octavo"):  # of engine files nothing is built
            more += ["--effort", "0"]
        self.process = subprocess.Popen([sys.executable, WITHOUT_COLLECTOR, "serve", *map(str, arguments), "--port", "0", "--grpc-port", "0",
                                         "--threads", "1", *more], stderr=subprocess.PIPE, text=True)
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            found = re.match(r"ready: https?://127.0.0.1:(\d+), grpcs?://127.0.0.1:(\d+)", line)
            if found:
                self.port, self.grpc_port = map(int, found.groups())
                break
        else:
            raise AssertionError(f"the server ended with {self.process.wait()}: {''.join(self.said)}")
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()
        self.http = triton_http.InferenceServerClient(f"127.0.0.1:{self.port}", concurrency=16, connection_timeout=60, network_timeout=60)
        self.grpc = triton_grpc.InferenceServerClient(f"127.0.0.1:{self.grpc_port}")

    def ask(self, method, path, body=b"", headers=None):
        """One request by hand: (status, body)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def metric(self, name):
        """The sum of a metric over its labels."""
        text = self.ask("GET", "/metrics")[1].decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if re.match(rf"{name}(\{{|\s)", line))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        return code

    def cycles(self):
        """What only the collector of cycles would free: {"kinds": {NAME: COUNT}, "bytes": BYTES}."""
        before, end = len(self.said), time.monotonic() + 30
        self.process.send_signal(signal.SIGUSR1)
        while time.monotonic() < end:
            for line in self.said[before:]:
                if line.startswith("cycles: "):
                    return json.loads(line[8:])
            time.sleep(0.01)
        raise AssertionError("the server does not say what it holds")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None and self.process.poll() is None:
                found = self.cycles()
                assert not found["kinds"] and found["bytes"] < 1 << 20, json.dumps(found)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait(30)
            self.folder.cleanup()


@pytest.fixture(scope="module")
def engine():
    return octavo.build(QDQ, threads=1, effort=0)


@pytest.fixture(scope="module")
def name(engine):
    return engine.inputs[0]["name"], engine.outputs[0]["name"]


@pytest.fixture(scope="module")
def server():
    with Running(f"digits={QDQ}", "--batch", "1,4,8") as running:
        yield running


def picture(seed, rows=1):
    return np.random.default_rng(seed).random((rows, *SHAPE), dtype=np.float32)


def want(engine, name, x):
    return np.concatenate([engine.run({name[0]: x[i:i + 1]})[name[1]] for i in range(len(x))])


def ask_http(client, name, x, model="digits", version="", binary=True, **more):
    one = triton_http.InferInput(name[0], list(x.shape), "FP32")
    one.set_data_from_numpy(x, binary_data=binary)
    return client.infer(model, [one], model_version=version, outputs=[triton_http.InferRequestedOutput(name[1], binary_data=binary)], **more)


def ask_grpc(client, name, x, model="digits", version=""):
    one = triton_grpc.InferInput(name[0], list(x.shape), "FP32")
    one.set_data_from_numpy(x)
    return client.infer(model, [one], model_version=version)


def json_body(name, x, **more):
    return json.dumps({"inputs": [{"name": name[0], "datatype": "FP32", "shape": list(x.shape), "data": x.reshape(-1).tolist()}], **more}).encode()


def test_health_and_metadata(server):
    for client in (server.http, server.grpc):
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("digits") and not client.is_model_ready("absent")
    meta = server.http.get_model_metadata("digits")
    assert meta["versions"] == ["1"] and meta["inputs"][0]["shape"] == [-1, *SHAPE] and meta["inputs"][0]["datatype"] == "FP32"
    assert list(server.grpc.get_model_metadata("digits").inputs[0].shape) == [-1, *SHAPE]
    assert server.http.get_server_metadata()["name"] == server.grpc.get_server_metadata().name == "octavo"
    assert server.http.get_model_repository_index() == [{"name": "digits", "version": "1", "state": "READY", "reason": ""}]
    assert server.grpc.get_model_repository_index().models[0].state == "READY"


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_every_form_gives_the_engines_bits(server, engine, name, rows):
    x = picture(rows, rows)
    right = want(engine, name, x)
    answers = [ask_http(server.http, name, x, request_id="seven"), ask_http(server.http, name, x, binary=False), ask_grpc(server.grpc, name, x),
               ask_http(server.http, name, x, request_compression_algorithm="gzip"),
               ask_http(server.http, name, x, request_compression_algorithm="deflate")]
    for answer in answers:
        assert np.array_equal(answer.as_numpy(name[1]), right)
    assert answers[0].get_response()["id"] == "seven"
    typed = triton_grpc.service_pb2.ModelInferRequest(model_name="digits")
    one = typed.inputs.add(name=name[0], datatype="FP32", shape=x.shape)
    one.contents.fp32_contents.extend(x.reshape(-1).tolist())
    answer = server.grpc._client_stub.ModelInfer(typed)
    assert np.array_equal(np.array(answer.outputs[0].contents.fp32_contents, np.float32).reshape(right.shape), right)


def test_a_stream(server, engine, name):
    answers = []
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    client.start_stream(lambda result, error: answers.append((result, error)))
    for i in range(20):
        one = triton_grpc.InferInput(name[0], [1, *SHAPE], "FP32")
        one.set_data_from_numpy(picture(i))
        client.async_stream_infer("digits" if i != 7 else "absent", [one], request_id=str(i))
    client.stop_stream()
    assert len(answers) == 20
    for i, (result, error) in enumerate(answers):
        if i == 7:
            assert "absent" in str(error)
        else:
            assert np.array_equal(result.as_numpy(name[1]), want(engine, name, picture(i)))


def test_many_requests_none_lost_none_mixed_up(server, engine, name):
    """Every request has data of its own; every answer must be that of its own data. Both protocols at once, from many threads."""
    pictures = [picture(1000 + i, 1 + i % 3) for i in range(64)]
    right = [want(engine, name, x) for x in pictures]
    before, runs = server.metric("octavo_requests_total"), server.metric("octavo_run_seconds_count")

    def one(i):
        local = threading.local()
        k = i % len(pictures)
        if i % 2:
            answer = ask_grpc(server.grpc, name, pictures[k])
        else:
            answer = None
            status, body = server.ask("POST", "/v2/models/digits/infer", json_body(name, pictures[k], id=str(i)))
            assert status == 200, body
            said = json.loads(body)
            assert said["id"] == str(i)
            assert np.array_equal(np.array(said["outputs"][0]["data"], np.float32).reshape(right[k].shape), right[k]), i
        if answer is not None:
            assert np.array_equal(answer.as_numpy(name[1]), right[k]), i
        del local
        return 1
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert sum(pool.map(one, range(REQUESTS))) == REQUESTS
    assert server.metric("octavo_requests_total") - before == REQUESTS
    assert server.metric("octavo_run_seconds_count") - runs < REQUESTS  # some ran together


BAD = [
    (b"", {}, 400, "not JSON"),
    (b"[]", {}, 400, "not a JSON object"),
    (b"{}", {}, 400, "inputs is not a list"),
    (b'{"inputs": [3]}', {}, 400, "inputs is not a list"),
    (b'{"inputs": [{"name": "image"}]}', {}, 400, "needs a name, a datatype and a shape"),
    (b'{"inputs": []}', {}, 400, "is missing"),
    (b'{"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 1, 16, 16], "data": [1]}]}', {}, 400, "256 elements, 1 were sent"),
    (b'{"inputs": [{"name": "image", "datatype": "FP32", "shape": [0, 1, 16, 16], "data": []}]}', {}, 400, "the model wants"),
    (b'{"inputs": [{"name": "image", "datatype": "INT8", "shape": [1], "data": [1]}]}', {}, 400, "the model wants FP32"),
    (b'{"inputs": [{"name": "imago", "datatype": "FP32", "shape": [1], "data": [1]}]}', {}, 400, "has no input 'imago'; it has 'image'"),
    (b'{"inputs": [{"name": "image", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]}', {}, 400, "bytes of binary data are left"),
    (b'{"inputs": []}xx', {"Inference-Header-Content-Length": "14"}, 400, "belong to no input"),
    (b"{}", {"Inference-Header-Content-Length": "99"}, 400, "the body has 2 bytes"),
    (b"{}", {"Inference-Header-Content-Length": "-1"}, 400, "the body has 2 bytes"),
    (b"{}", {"Content-Encoding": "gzip"}, 400, "not gzip"),
    (b"{}", {"Content-Encoding": "br"}, 400, "none of identity"),
    (b"[" * 400, {}, 400, "not JSON"),
    (b"[" * 100000, {}, 400, "lists, more than a request of these models needs"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_requests(server, case):
    body, headers, status, text = BAD[case]
    got = server.ask("POST", "/v2/models/digits/infer", body, headers)
    assert got[0] == status and text in json.loads(got[1])["error"], got


def test_more_bad_requests(server, name):
    x = picture(0)
    for path, status in (("/v2/models/absent/infer", 404), ("/v2/models/digits/versions/9/infer", 404), ("/v3", 404), ("/v2/models/digits/infer/x", 404)):
        got = server.ask("POST", path, json_body(name, x))
        assert got[0] == status and "error" in json.loads(got[1])
    assert server.ask("GET", "/v2/models/digits/infer")[0] == 405
    got = server.ask("POST", "/v2/models/digits/infer", json_body(name, x, outputs=[{"name": "other"}]))
    assert got[0] == 400 and "has no output 'other'" in json.loads(got[1])["error"]
    with pytest.raises(InferenceServerException, match="INVALID_ARGUMENT.*1..8"):
        ask_grpc(server.grpc, name, picture(0, 9))
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        ask_grpc(server.grpc, name, x, model="absent")
    status, body = server.ask("POST", "/v2/repository/models/digits/load", b'{"parameters": {"file:1/model.onnx": "AAAA"}}', ADMIN)
    assert status == 400 and "not supported" in json.loads(body)["error"]
    assert server.ask("POST", "/v2/repository/models/absent/load", headers=ADMIN)[0] == 404


def test_mutated_requests_give_errors_only(server, engine, name):
    """Bytes changed, cut, doubled, inserted: an answer or an error of the client's side, never 500, never silence; then right answers again."""
    rng = random.Random(1)
    x = picture(5)
    binary = json.dumps({"inputs": [{"name": name[0], "datatype": "FP32", "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}]}).encode()
    seeds = [(json_body(name, np.round(x, 1)), {}), (binary + x.tobytes(), {"Inference-Header-Content-Length": str(len(binary))}),
             (gzip.compress(binary), {"Content-Encoding": "gzip", "Inference-Header-Content-Length": str(len(binary))})]
    words = [b'"', b"{", b"}", b"[", b"]", b"-1", b"1e999", b"null", b"true", b"NaN", b"9" * 30, b"\\u0000", b"\xff\xfe", b"inputs", b"shape", b"datatype",
             b"INT8", b"binary_data_size", b"parameters", b"outputs", b"\0"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    counts = {}
    for _ in range(MUTATED):
        body, headers = rng.choice(seeds)
        body = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(min(len(body), 200) if rng.random() < 0.7 else len(body)) if body else 0
            kind = rng.randrange(5)
            if kind == 0 and body:
                body[at] = rng.randrange(256)
            elif kind == 1:
                del body[at:at + rng.randint(1, 40)]
            elif kind == 2:
                body[at:at] = rng.choice(words)
            elif kind == 3:
                body[at:at] = body[at:at + rng.randint(1, 40)]
            else:
                body = body[:rng.randint(0, len(body))]
        headers = dict(headers)
        if rng.random() < 0.1:
            headers["Inference-Header-Content-Length"] = rng.choice(["0", "1", "10", "99999999999999999999", "x", "-5", "²"]).encode("latin-1").decode("latin-1")
        headers.update(ADMIN)
        path = rng.choice(["/v2/models/digits/infer"] * 8 + ["/v2/repository/index", "/v2/repository/models/digits/load"])
        connection.request("POST", path, bytes(body), headers)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status in (200, 400, 404, 413), (answer.status, said, bytes(body)[:300])
        if answer.status != 200:
            assert json.loads(said)["error"]
        counts[answer.status] = counts.get(answer.status, 0) + 1
    message = triton_grpc.service_pb2.ModelInferRequest(model_name="digits")
    message.inputs.add(name=name[0], datatype="FP32", shape=x.shape)
    message.raw_input_contents.append(x.tobytes())
    whole = message.SerializeToString()
    import grpc
    call = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}").unary_unary("/inference.GRPCInferenceService/ModelInfer")
    for _ in range(MUTATED):
        body = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            body[rng.randrange(60 if rng.random() < 0.8 else len(body))] = rng.randrange(256)
        if rng.random() < 0.2:
            body = body[:rng.randrange(len(body))]
        try:
            call(bytes(body), timeout=60)
            code = "OK"
        except grpc.RpcError as e:
            code = e.code().name
            assert code in ("INVALID_ARGUMENT", "NOT_FOUND"), (code, e.details())
        counts[code] = counts.get(code, 0) + 1
    print(counts)
    assert counts.get(400, 0) > MUTATED // 3 and counts.get("INVALID_ARGUMENT", 0) > MUTATED // 10, counts
    assert np.array_equal(ask_http(server.http, name, x).as_numpy(name[1]), want(engine, name, x))
    assert server.process.poll() is None and not [line for line in server.said if "Traceback" in line]


def test_limits(name):
    with Running(f"digits={QDQ}", "--batch", "1", "--max-request-mb", "0.01", "--queue", "1", "--body-timeout", "0.5", "--max-connections", "40") as server:
        status, body = server.ask("POST", "/v2/models/digits/infer", b" " * 20000)
        assert status == 413 and "the limit is 10485" in json.loads(body)["error"]
        bomb = gzip.compress(b" " * 1000000)
        status, body = server.ask("POST", "/v2/models/digits/infer", bomb, {"Content-Encoding": "gzip"})
        assert len(bomb) < 10485 and status == 413 and "decompressed" in json.loads(body)["error"]
        with pytest.raises(InferenceServerException, match="RESOURCE_EXHAUSTED"):
            ask_grpc(server.grpc, name, picture(0, 40))
        # A sender that stops in the middle gets 408, and others are answered meanwhile.
        slow = socket.create_connection(("127.0.0.1", server.port))
        slow.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        assert np.isfinite(ask_http(server.http, name, picture(0)).as_numpy(name[1])).all()
        slow.settimeout(30)
        assert b" 408 " in slow.recv(1000).split(b"\r\n")[0]
        slow.close()
        # More at once than the queue takes: some are refused with 429, all are answered.
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            codes = [code for code, _ in pool.map(lambda i: server.ask("POST", "/v2/models/digits/infer", json_body(name, picture(i))), range(300))]
        assert set(codes) <= {200, 429, 503} and codes.count(200) > 0
        assert server.stop() == 0


def test_a_reader_that_does_not_read(server, name):
    """A client that asks and never reads its answers holds back nobody."""
    body = json_body(name, picture(0, 8))
    request = b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for one in idle:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        one.sendall(request)
    start = time.monotonic()
    for i in range(20):
        ask_grpc(server.grpc, name, picture(i))
    assert time.monotonic() - start < 30
    for one in idle:
        one.close()


def test_versions_reload_and_unload(tmp_path, name):
    engines = {}
    for version, model in (("1", QDQ), ("2", FP32)):
        (tmp_path / "repo/digits" / version).mkdir(parents=True)
        shutil.copy(model, tmp_path / "repo/digits" / version / "model.onnx")
        engines[version] = octavo.build(model, threads=1, effort=0)
    x = picture(3)
    right = {v: engines[v].run({engines[v].inputs[0]["name"]: x})[engines[v].outputs[0]["name"]] for v in engines}
    names = {v: (engines[v].inputs[0]["name"], engines[v].outputs[0]["name"]) for v in engines}
    with Running(tmp_path / "repo", "--batch", "1") as server:
        assert server.http.get_model_metadata("digits")["versions"] == ["1", "2"]
        for v in ("1", "2"):
            assert np.array_equal(ask_http(server.http, names[v], x, version=v).as_numpy(names[v][1]), right[v])
        newest = ask_grpc(server.grpc, names["2"], x)
        assert newest.get_response().model_version == "2" and np.array_equal(newest.as_numpy(names["2"][1]), right["2"])
        shutil.rmtree(tmp_path / "repo/digits/2")
        server.grpc.load_model("digits", headers=ADMIN)
        assert server.http.get_model_metadata("digits")["versions"] == ["1"]
        (tmp_path / "repo/digits/3").mkdir()
        (tmp_path / "repo/digits/3/model.onnx").write_bytes(b"no model")
        with pytest.raises(InferenceServerException, match="cannot be loaded"):
            server.http.load_model("digits", headers=ADMIN)
        assert np.array_equal(ask_http(server.http, names["1"], x).as_numpy(names["1"][1]), right["1"])  # the old one stays
        server.http.unload_model("digits", headers=ADMIN)
        assert not server.grpc.is_model_ready("digits")
        with pytest.raises(InferenceServerException, match="503.*not loaded: unloaded"):
            ask_http(server.http, names["1"], x)
        shutil.rmtree(tmp_path / "repo/digits/3")
        server.http.load_model("digits", headers=ADMIN)
        assert np.array_equal(ask_http(server.http, names["1"], x).as_numpy(names["1"][1]), right["1"])


@pytest.mark.long
def test_reload_under_load(tmp_path, name):
    """The file is replaced again and again while requests come: each answer is that of the old or the new model, whole, and none is lost."""
    models = [QDQ.read_bytes(), FP32.read_bytes()]
    engines = [octavo.build(m, threads=1, effort=0) for m in models]
    x = [picture(i) for i in range(8)]
    right = [[e.run([p]).popitem()[1] for p in x] for e in engines]
    path = tmp_path / "digits.onnx"
    path.write_bytes(models[0])
    with Running(path, "--batch", "1") as server:
        stop = threading.Event()

        def client(k):
            seen = [0, 0]
            mine = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
            i = 0
            while not stop.is_set():
                i += 1
                p = (k + i) % len(x)
                one = triton_grpc.InferInput(name[0], [1, *SHAPE], "FP32")
                one.set_data_from_numpy(x[p])
                got = next(iter([mine.infer("digits", [one])]))
                got = got.as_numpy(got.get_response().outputs[0].name)
                which = [np.array_equal(got, right[m][p]) for m in (0, 1)]
                assert sum(which) == 1, f"request {i} of client {k} got neither answer"
                seen[which.index(True)] += 1
            return seen
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(client, k) for k in range(4)]
            for turn in range(1, 7):
                (tmp_path / "new").write_bytes(models[turn % 2])
                os.replace(tmp_path / "new", path)
                server.http.load_model("digits", headers=ADMIN)
                time.sleep(0.1)
            stop.set()
            seen = [c.result(60) for c in clients]
        assert all(sum(one[m] for one in seen) > 0 for m in (0, 1)), seen
        assert server.metric("octavo_loads_total") == 7


@pytest.mark.long
def test_everything_at_once(tmp_path, name):
    """Several clients over both protocols, a queue that overflows, a slow sender, clients that never read, and the model replaced all the time: each
    request is answered once with the old or the new model's bits for its own data, or refused with 429 and asked again; the metrics agree."""
    models = [QDQ.read_bytes(), FP32.read_bytes()]
    engines = [octavo.build(m, threads=1, effort=0) for m in models]
    pictures = [picture(i, 1 + i % 3) for i in range(48)]
    right = [[np.concatenate([e.run([p[k:k + 1]]).popitem()[1] for k in range(len(p))]) for p in pictures] for e in engines]
    path = tmp_path / "digits.onnx"
    path.write_bytes(models[0])
    with Running(path, "--batch", "1,4,8", "--queue", "3") as server:
        done, lock, stop = {"refused": 0, "answers": [0, 0], "loads": 0}, threading.Lock(), threading.Event()

        def http_client():
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)

            def ask(i):
                x = pictures[i % len(pictures)]
                header = json.dumps({"id": str(i), "parameters": {"binary_data_output": True}, "inputs": [
                    {"name": name[0], "datatype": "FP32", "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}]}).encode()
                connection.request("POST", "/v2/models/digits/infer", header + x.tobytes(), {"Inference-Header-Content-Length": str(len(header))})
                answer = connection.getresponse()
                body = answer.read()
                if answer.status == 429:
                    return None
                assert answer.status == 200, body
                n = int(answer.headers["Inference-Header-Content-Length"])
                assert json.loads(body[:n])["id"] == str(i)
                return np.frombuffer(body[n:], np.float32)
            return ask

        def grpc_client():
            mine = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")

            def ask(i):
                try:
                    answer = ask_grpc(mine, name, pictures[i % len(pictures)])
                except InferenceServerException as e:
                    if "RESOURCE_EXHAUSTED" in str(e):
                        return None
                    raise
                return answer.as_numpy(answer.get_response().outputs[0].name).reshape(-1)
            return ask

        def work(k):
            ask = (http_client if k % 2 else grpc_client)()
            for i in itertools.count(k, 12):
                # On until both models have answered, however few requests were asked for: before the first reload there is nothing to mix up.
                if i >= REQUESTS and (all(done["answers"]) or time.monotonic() > began + 120):
                    return
                while (got := ask(i)) is None:
                    with lock:
                        done["refused"] += 1
                    time.sleep(0.002)
                which = [np.array_equal(got, right[m][i % len(pictures)].reshape(-1)) for m in (0, 1)]
                assert sum(which) == 1, f"request {i} got neither answer"
                with lock:
                    done["answers"][which.index(True)] += 1

        def replace():
            while not stop.wait(0.5):
                (tmp_path / "new").write_bytes(models[(done["loads"] + 1) % 2])
                os.replace(tmp_path / "new", path)
                server.http.load_model("digits", headers=ADMIN)
                done["loads"] += 1

        def send_slowly():
            whole = json_body(name, pictures[0])
            slow = socket.create_connection(("127.0.0.1", server.port))
            slow.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(whole))
            for at in range(0, len(whole), 64):
                if stop.wait(0.01):
                    break
                with contextlib.suppress(OSError):
                    slow.sendall(whole[at:at + 64])
            slow.close()

        request = json_body(name, pictures[0])
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]  # ask, and never read
        for one in idle:
            one.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(request) + request)
        others = [threading.Thread(target=t, daemon=True) for t in (replace, send_slowly)]
        began = time.monotonic()
        for t in others:
            t.start()
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            list(pool.map(work, range(12)))
        seconds = time.monotonic() - began
        stop.set()
        for t in others:
            t.join(60)
        print(f"{sum(done['answers'])} requests in {seconds:.0f} s, answers of the two models {done['answers']}, {done['refused']} refused with 429, {done['loads']} reloads")
        asked = sum(done["answers"])
        assert asked >= REQUESTS and all(done["answers"]) and done["loads"] >= 1, done
        text = server.ask("GET", "/metrics")[1].decode()
        ok = sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("octavo_requests_total{") and 'outcome="ok"' in line)
        busy = sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("octavo_requests_total{") and 'outcome="429"' in line)
        assert asked <= ok <= asked + len(idle) + 1  # and those of the clients that did not read
        assert done["refused"] <= busy <= done["refused"] + len(idle) + 1
        assert not [line for line in server.said if "Traceback" in line]


def test_stopping_finishes_what_was_accepted(name, engine):
    with Running(f"digits={QDQ}", "--batch", "8", "--delay-ms", "1500") as server:
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            asked = [pool.submit(ask_grpc, triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}"), name, picture(i)) for i in range(5)]
            while server.metric("octavo_waiting_requests") < 5:
                time.sleep(0.02)
            assert server.stop() == 0
            for i, one in enumerate(asked):
                assert np.array_equal(one.result(30).as_numpy(name[1]), want(engine, name, picture(i)))
        assert "5 requests to finish" in "".join(server.said)


def test_what_cannot_start(capsys):
    from octavo._serve_command import main
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = subprocess.run([sys.executable, "-m", "octavo", "serve", QDQ, "--port", str(taken.getsockname()[1])], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 7 and "cannot listen on 127.0.0.1" in done.stderr and "--port" in done.stderr
    for arguments, wanted, text in ((("/absent.onnx",), 7, "no such file"), ((QDQ, "--batch", "x"), 2, "give sizes such as"),
                                    ((QDQ, "--queue", "0"), 2, "queue=0"), ((f"a={QDQ}", f"a={QDQ}"), 2, "is given twice")):
        code, said = main([str(a) for a in (*arguments, "--port", "0", "--grpc-port", "0")]), capsys.readouterr().err
        assert code == wanted and text in said and "Traceback" not in said, (code, said)


def test_engine_files_of_several_batch_sizes(tmp_path, engine, name):
    for size in (1, 4):
        octavo.build(QDQ, shapes={name[0]: (size, *SHAPE)}, threads=1, effort=0).save(tmp_path / f"x{size}.octavo")
    with Running(f"digits={tmp_path / 'x1.octavo'},{tmp_path / 'x4.octavo'}", f"one={tmp_path / 'x4.octavo'}") as server:
        for rows in (1, 2, 4):
            x = picture(rows, rows)
            assert np.array_equal(ask_http(server.http, name, x).as_numpy(name[1]), want(engine, name, x))
        with pytest.raises(InferenceServerException, match="1..4"):
            ask_http(server.http, name, picture(0, 5))
        with pytest.raises(InferenceServerException, match=re.escape("wants [4, 1, 16, 16]")):
            ask_http(server.http, name, picture(0, 1), model="one")  # alone it is not batched
        assert ask_http(server.http, name, picture(0, 4), model="one").as_numpy(name[1]).shape[0] == 4
