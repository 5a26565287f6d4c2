"""Who may ask: bearer tokens, loading and unloading, Host and Origin, TLS; with http.client, curl and grpcio."""
import contextlib
import http.client
import json
import pathlib
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import time

import numpy as np
import pytest
from octavo.serve import Settings

octavo = pytest.importorskip("octavo")
from test_bodies import Raw, binary, plain  # noqa: E402
from test_grpc import INFER, Http2, grpc, message  # noqa: E402
from test_serve import ADMIN, QDQ, Running, ask_grpc, ask_http, engine, json_body, name, picture, triton_grpc, triton_http, want  # noqa: E402,F401

USER, OTHER = "a-token-of-the-users", "another-token-of-them"
LOAD = "/v2/repository/models/digits/load"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def server():
    """Without tokens for users; --repository-token-file is Running's own."""
    with Running(f"digits={QDQ}", "--batch", "1", "--delay-ms", "0", "--allow-host", "models.example", "--allow-origin", "https://app.example") as running:
        yield running


def codes(server, path, method="GET", body=b"", **headers):
    return server.ask(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})[0]


def test_clients_do_not_load_or_unload_unless_they_may(server):
    for path in (LOAD, LOAD.replace("load", "unload")):
        assert codes(server, path, "POST") == 401 and codes(server, path, "POST", Authorization="Bearer wrong-wrong-wrong-wrong") == 401
    assert codes(server, LOAD, "POST", **{k: v for k, v in ADMIN.items()}) == 200
    client = server.grpc
    for call in (client.load_model, client.unload_model):
        with pytest.raises(Exception, match="UNAUTHENTICATED"):
            call("digits")
    client.load_model("digits", headers=ADMIN)
    assert client.is_model_ready("digits")


def test_by_default_nobody_loads_or_unloads():
    assert Settings().repository_token_file is None
    from octavo.serve._errors import Forbidden
    from octavo.serve._guard import Guard
    with pytest.raises(Forbidden, match="switched off.*--repository-token-file"):
        Guard(Settings()).admit("localhost", "", "Bearer anything-at-all-here", change=True)


@pytest.mark.parametrize("host, status", [("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("10.1.2.3:8000", 200), ("models.example", 200),
                                          ("MODELS.example:1", 200), ("evil.example", 403), ("evil.example:8000", 403), ("127.0.0.1.evil.example", 403), ("localhost.evil", 403)])
def test_names_under_which_the_server_is_reached(server, name, host, status):
    """DNS rebinding: a page lets its own name point to this server, and the browser sends that name as Host."""
    assert codes(server, "/v2", Host=host) == status
    x = picture(0)
    headers, body = binary(name, x, 900)  # the short way too
    one = Raw(server)
    for _ in range(2):
        one.socket.sendall(plain(headers, body).replace(b"Host: localhost", b"Host: " + host.encode()))
        got = one.answer()
        assert got[0] == status, got
        if status == 403:
            assert "not a name of this server" in json.loads(got[2])["error"] and "--allow-host" in json.loads(got[2])["error"]
    one.close()


@pytest.mark.parametrize("lines, text", [(b"", "has no Host, or an empty one"), (b"Host:\r\n", "has no Host, or an empty one"), (b"Host:  \r\n", "has no Host, or an empty one"),
                                         (b"Host: localhost\r\nHost: localhost\r\n", "has 2 Host lines"), (b"Host: localhost\r\nX-A: b\r\nhost: evil.example\r\n", "has 2 Host lines")])
@pytest.mark.parametrize("protocol", [b"1.1", b"1.0"])
def test_requests_without_one_host(server, name, protocol, lines, text):
    """HTTP/1.1 demands one; here HTTP/1.0 needs it too. On the short way and on the long one, for health and with tokens as well."""
    headers, body = binary(name, picture(0), 900)
    small = json_body(name, picture(0))
    for request in (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", plain(headers, body), plain({}, small)):
        one = Raw(server)
        one.socket.sendall(request.replace(b"Host: localhost\r\n", lines).replace(b"HTTP/1.1", b"HTTP/" + protocol))
        status, _, said = one.answer()
        assert status == 400 and text in json.loads(said)["error"], (request[:60], said)
        one.close()
        one = Raw(server)
        one.socket.sendall(request.replace(b"HTTP/1.1", b"HTTP/" + protocol))
        assert one.answer()[0] == 200
        one.close()


def test_a_token_does_not_replace_the_host(tmp_path):
    from octavo.serve._errors import BadRequest
    from octavo.serve._guard import Guard, only
    (tmp_path / "tokens").write_text(USER)
    guard = Guard(Settings(token_file=str(tmp_path / "tokens")))
    guard.admit("any.example", "", f"Bearer {USER}")
    guard.admit(None, "", f"Bearer {USER}")  # gRPC
    for host in ("", " "):
        assert not guard.admits(host, "", f"Bearer {USER}")
    with pytest.raises(BadRequest, match="2 Host lines"):
        only(["a", "a"])


@pytest.mark.parametrize("origin, status", [("https://evil.example", 403), ("http://127.0.0.1:9999", 403), ("null", 403), ("https://app.example", 200)])
def test_pages_of_browsers(server, name, origin, status):
    """A page may let its browser send a request to this server (with text/plain it asks nobody first), and the browser says which page it was."""
    headers, body = binary(name, picture(0), 900)
    assert codes(server, "/v2/models/digits/infer", "POST", body, Origin=origin, **headers) == status
    assert codes(server, "/v2/models/digits/infer", "POST", json_body(name, picture(0)), Origin=origin, Content_Type="text/plain") == status
    assert codes(server, LOAD, "POST", Origin=origin, **ADMIN) == status
    with Http2(server) as one:
        one.send(one.head(1, "/inference.GRPCInferenceService/ServerLive", origin=origin), one.data(1, bytes(5), 5))
        assert one.code(1)[0] == (7 if status == 403 else 0)


def test_tokens(tmp_path, engine, name):
    """Every request needs one, but those for health; all ways; tokens are read again at SIGHUP, and a file that is wrong then changes nothing."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# of the users\n{USER}\n\n{OTHER}\n")
    x = picture(1)
    with Running(f"digits={QDQ}", "--batch", "1", "--delay-ms", "0", "--token-file", tokens) as server:
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert codes(server, path) == 200
        headers, body = binary(name, x, 900)
        for path, method, sent, more in (("/v2", "GET", b"", {}), ("/metrics", "GET", b"", {}), ("/v2/models/digits", "GET", b"", {}), ("/v2/models/digits/config", "GET", b"", {}),
                                         ("/v2/repository/index", "POST", b"", {}), ("/v2/models/digits/infer", "POST", body, headers),
                                         ("/v2/models/digits/infer", "POST", json_body(name, x), {})):
            status, said = server.ask(method, path, sent, more)
            assert status == 401 and "Bearer TOKEN" in json.loads(said)["error"], path
            assert server.ask(method, path, sent, {**more, **bearer("wrong-wrong-wrong-wrong")})[0] == 401
            assert server.ask(method, path, sent, {**more, **bearer(USER), "Host": "any.example"})[0] == 200, path
            assert server.ask(method, path, sent, {**more, **ADMIN})[0] == 200
        assert server.ask("POST", LOAD, b"", bearer(USER))[0] == 403 and server.ask("POST", LOAD, b"", ADMIN)[0] == 200
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", "/v2")
        answer = connection.getresponse()
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        connection.close()
        assert server.grpc.is_server_live() and server.grpc.is_server_ready()
        with pytest.raises(Exception, match="UNAUTHENTICATED"):
            ask_grpc(server.grpc, name, x)
        one = triton_grpc.InferInput(name[0], list(x.shape), "FP32")
        one.set_data_from_numpy(x)
        for token in (USER, OTHER):
            assert np.array_equal(server.grpc.infer("digits", [one], headers={"authorization": f"Bearer {token}"}).as_numpy(name[1]), want(engine, name, x))
        with Http2(server) as calls:
            calls.send(calls.head(1, "/inference.GRPCInferenceService/ModelStreamInfer"))
            assert calls.code(1)[0] == 16
        kept = Raw(server)  # a connection whose head is known
        request = plain({**headers, **bearer(USER)}, body)
        kept.socket.sendall(request)
        assert np.array_equal(kept.result(), want(engine, name, x))
        tokens.write_text("too short\n")
        server.process.send_signal(signal.SIGHUP)
        wait_for(server, "the old tokens")
        kept.socket.sendall(request)
        assert np.array_equal(kept.result(), want(engine, name, x))
        tokens.write_text(OTHER)
        server.process.send_signal(signal.SIGHUP)
        wait_for(server, "read tokens")
        kept.socket.sendall(request)
        assert kept.answer()[0] == 401
        kept.close()
        assert server.ask("GET", "/v2", b"", bearer(OTHER))[0] == 200
        assert server.stop() == 0


def wait_for(server, text, before=0):
    """`before`: lines that do not count."""
    end = time.monotonic() + 20
    while not any(text in line for line in server.said[before:]):
        assert time.monotonic() < end, server.said
        time.sleep(0.02)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


def make_certificate(folder):
    folder.mkdir(exist_ok=True)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)
    return folder


def test_tls(certificate, tmp_path, engine, name):
    """Both ports, with a token; by http.client, curl, tritonclient and grpcio; large and small bodies, at once and in pieces; who does not speak TLS is dropped."""
    tokens = tmp_path / "tokens"
    tokens.write_text(USER)
    with Running(f"digits={QDQ}", "--batch", "1,8", "--tls-cert", certificate / "cert.pem", "--tls-key", certificate / "key.pem", "--token-file", tokens, "--body-timeout", "3") as server:
        assert server.said[1].startswith("ready: https://") and ", grpcs://" in server.said[1]
        context = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=30, context=context)
        for rows in (1, 8, 3):
            x = picture(rows, rows)
            headers, body = binary(name, x, 3000)
            for cut in (None, 10, 3000):
                connection.putrequest("POST", "/v2/models/digits/infer")
                for key, value in {**headers, **bearer(USER), "Content-Length": str(len(body))}.items():
                    connection.putheader(key, value)
                connection.endheaders()
                connection.send(body[:cut] if cut else body)
                if cut:
                    time.sleep(0.02)
                    connection.send(body[cut:])
                answer = connection.getresponse()
                out = answer.read()
                assert answer.status == 200 and out.endswith(want(engine, name, x).tobytes())
        connection.request("GET", "/v2")
        assert connection.getresponse().status == 401
        connection.close()
        root = (certificate / "cert.pem").read_bytes()
        with grpc.secure_channel(f"localhost:{server.grpc_port}", grpc.ssl_channel_credentials(root)) as channel:
            call = channel.unary_unary(INFER)
            for rows in (1, 8):
                x = picture(rows, rows)
                got = triton_grpc.InferResult(triton_grpc.service_pb2.ModelInferResponse.FromString(call(message(name, x), metadata=[("authorization", f"Bearer {USER}")], timeout=30)))
                assert np.array_equal(got.as_numpy(name[1]), want(engine, name, x))
            with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                call(message(name, x), timeout=30)
        if shutil.which("curl"):
            done = subprocess.run(["curl", "-sS", "--cacert", certificate / "cert.pem", "-H", f"Authorization: Bearer {USER}", f"https://localhost:{server.port}/v2/models/digits/config"],
                                  capture_output=True, text=True, check=True, timeout=30)
            assert json.loads(done.stdout)["max_batch_size"] == 8
        plainly = Raw(server)
        plainly.socket.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with pytest.raises((IndexError, ConnectionError, ValueError)):
            plainly.answer()
        with pytest.raises(ssl.SSLError):
            old = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
            old.set_ciphers("ALL:@SECLEVEL=0")
            http.client.HTTPSConnection("localhost", server.port, timeout=30, context=old).request("GET", "/v2")
        assert server.stop() == 0


def tls_options(certificate):
    return "--tls-cert", certificate / "cert.pem", "--tls-key", certificate / "key.pem"


def asks_over_tls(server, certificate, name):
    """One good request over each protocol, with new connections."""
    context = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    with contextlib.closing(http.client.HTTPSConnection("localhost", server.port, timeout=5, context=context)) as connection:
        headers, body = binary(name, picture(1), 3000)
        connection.request("POST", "/v2/models/digits/infer", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", "localhost")]
    with grpc.secure_channel(f"127.0.0.1:{server.grpc_port}", grpc.ssl_channel_credentials((certificate / "cert.pem").read_bytes()), options) as channel:
        assert channel.unary_unary(INFER)(message(name, picture(1)), timeout=5)


def test_a_certificate_that_cannot_be_read_again_changes_nothing(certificate, tmp_path, name):
    """A new certificate whose key is another one's, or is not there: handshakes go on with the old one, on both ports. Then its own key comes."""
    mine = tmp_path / "mine"
    shutil.copytree(certificate, mine)
    new = make_certificate(tmp_path / "new")
    with Running(f"digits={QDQ}", "--batch", "1", "--delay-ms", "0", *tls_options(mine)) as server:
        asks_over_tls(server, certificate, name)
        for wrong in ("another", "missing"):
            shutil.copy(new / "cert.pem", mine / "cert.pem")
            if wrong == "missing":
                (mine / "key.pem").unlink()
            before = len(server.said)
            server.process.send_signal(signal.SIGHUP)
            wait_for(server, "the old certificate stay", before)
            asks_over_tls(server, certificate, name)
        shutil.copy(new / "key.pem", mine / "key.pem")
        server.process.send_signal(signal.SIGHUP)
        wait_for(server, "read tokens and certificate again")
        asks_over_tls(server, new, name)
        with pytest.raises(ssl.SSLCertVerificationError):
            asks_over_tls(server, certificate, name)


@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], ids=["silent", "half a greeting"])
def test_clients_that_do_not_finish_the_handshake(certificate, name, begin):
    """They have places from when they are accepted: more of them than the process may have files keep nobody out, and the others end in time."""
    with Running(f"digits={QDQ}", "--batch", "1", "--delay-ms", "0", *tls_options(certificate), "--max-connections", "16", "--body-timeout", "3") as server:
        asks_over_tls(server, certificate, name)
        files = len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (files + 50, files + 50))
        silent = []
        for _ in range(60):
            for port in (server.port, server.grpc_port):
                one = socket.create_connection(("127.0.0.1", port), 5)
                silent.append(one)
                with contextlib.suppress(OSError):
                    one.sendall(begin)
        time.sleep(1.2)
        for _ in range(3):
            asks_over_tls(server, certificate, name)
        began = time.monotonic()
        for one in silent:
            one.settimeout(8)
            with contextlib.suppress(ConnectionError):
                assert one.recv(1 << 12)[:1] in (b"", b"\x15")  # at most an alert
            one.close()
        assert time.monotonic() - began < 8
        asks_over_tls(server, certificate, name)
        assert not [line for line in server.said if "Traceback" in line or "Exception" in line], server.said


def test_options_that_are_wrong(tmp_path, certificate, capsys):
    """Before a model is built, with the option's name and the way out."""
    from octavo._serve_command import main
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "none").write_text("# nothing\n")
    for options, code, text in ((("--tls-cert", "x.pem"), 2, "go together"), (("--tls-cert", "absent.pem", "--tls-key", "absent.pem"), 7, "--tls-cert absent.pem"),
                                (("--tls-cert", str(certificate / "key.pem"), "--tls-key", str(certificate / "key.pem")), 7, "in PEM"),
                                (("--token-file", str(tmp_path / "absent")), 7, "cannot read --token-file"), (("--token-file", str(tmp_path / "short")), 2, "openssl rand"),
                                (("--repository-token-file", str(tmp_path / "none")), 2, "has no token"), (("--max-connections", "0"), 2, "max_connections=0"),
                                (("--allow-origin", "https://app.example/"), 2, "--allow-origin https://app.example"), (("--allow-host", "a.example:80"), 2, "--allow-host a.example")):
        assert main([str(QDQ), "--port", "0", "--grpc-port", "0", *options]) == code, options
        assert text in capsys.readouterr().err, options
