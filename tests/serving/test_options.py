"""Options of `octavo serve` that have no effect, or that name what is not there: refused at the start, or noted where a later load can change that."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import numpy as np
import pytest

octavo = pytest.importorskip("octavo")
from test_serve import QDQ, SHAPE, Running, ask_http, engine, name, picture, want  # noqa: E402,F401


@pytest.fixture(scope="module")
def file(engine, name, tmp_path_factory):
    made = tmp_path_factory.mktemp("options") / "four.octavo"
    engine.at({name[0]: (4, *SHAPE)}).save(made)
    return made


def start(capsys, *arguments):
    """The exit code, and what was said; a server that starts is stopped after a while, with 0."""
    from octavo._serve_command import main
    stop = threading.Timer(15, os.kill, (os.getpid(), signal.SIGINT))
    stop.start()
    try:
        return main([str(a) for a in (*arguments, "--port", "0", "--grpc-port", "0")]), capsys.readouterr().err
    finally:
        stop.cancel()


@pytest.mark.parametrize("option, way", [(("--effort", "0"), "octavo build MODEL.onnx -o {file} --effort 0"), (("--timing-cache", "t.txt"), "octavo build MODEL.onnx -o {file} --timing-cache t.txt"),
                                         (("--max-shapes", "3"), "leave it out")])
def test_options_about_builds_where_nothing_is_built(file, capsys, option, way):
    for models in ((file,), (f"a={file}", f"b={file}")):
        code, said = start(capsys, *models, *option)
        assert code == 2 and f'{" ".join(option)} has no effect: it applies to builds, and "{file}" is an engine' in said and way.format(file=file) in said, said


@pytest.mark.parametrize("device, text", [("foo", 'device "foo" is not known; known are "cpu"'), ("cuda:no such", 'no GPU "no such" is known'),
                                          ("reference", "--device reference has no effect: \"{file}\" is an engine that was built for cpu\n  build one: octavo build MODEL.onnx -o {file} --device reference"),
                                          ("cuda:1", "--device cuda:1 has no effect: \"{file}\" is an engine that was built for cpu")])
def test_devices_that_are_not_those_of_the_files(file, capsys, device, text):
    code, said = start(capsys, file, "--device", device)
    assert code == 2 and text.format(file=file) in said, said


def test_a_device_that_is_not_known_is_refused_whatever_is_served(capsys):
    code, said = start(capsys, QDQ, "--device", "foo", "--effort", "0")
    assert code == 2 and 'device "foo" is not known' in said and "model" not in said.split("error:")[0], said


def test_which_engine_files_a_device_is_for():
    """A file for a GPU runs on the first one."""
    from octavo.serve._effects import _other_device
    from octavo.serve._models import Source

    class Version:
        device, source = "cuda", Source("a", "1", ("a.octavo",))
    for device in ("cuda", "cuda:0", "cuda,cpu", "cuda:0,cpu"):
        assert _other_device([Version()], device) == (None, "")
    assert "built for cuda" in _other_device([Version()], "cpu")[0]
    for device in ("cuda:1", "cuda:1,cpu", "cuda:sm_90"):
        why, to_do = _other_device([Version()], device)
        assert "run on the first GPU" in why and "CUDA_VISIBLE_DEVICES" in to_do


def test_a_key_is_read_even_if_nothing_is_verified(tmp_path, capsys):
    subprocess.run("openssl genpkey -algorithm ed25519 -out private.pem && openssl pkey -in private.pem -pubout -out public.pem", shell=True, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "text").write_text("no key")
    for key, code, text in (("absent.pem", 7, "cannot read key"), ("text", 2, "it is no PEM file"), ("private.pem", 2, "the public key is a private one")):
        got, said = start(capsys, QDQ, "--effort", "0", "--verify", tmp_path / key)
        assert got == code and text in said and "model digits" not in said, said
    with Running(QDQ, "--batch", "1", "--verify", tmp_path / "public.pem") as server:
        assert [line for line in server.said if line.startswith(f"note: --verify {tmp_path / 'public.pem'} has no effect now: it applies to engine files")], server.said


@pytest.mark.parametrize("option", ["--verify", "--timing-cache", "--token-file", "--repository-token-file", "--tls-cert", "--allow-host", "--allow-origin", "--device", "--host", "--batch"])
def test_empty_values(capsys, option):
    """As of a shell variable that is not set: what the option switches on must not stay off."""
    code, said = start(capsys, QDQ, "--effort", "0", f"{option}=")
    assert code == 2 and f"error: {option}: the value is empty" in said, said
    if option == "--verify":
        for model in ("", ","):
            code, said = start(capsys, model)
            assert code == 2 and ("MODEL: the value is empty" in said or "no file is named" in said), said


def test_options_that_a_later_load_may_need_are_noted(file, name, engine):
    """A folder can get models to build, and a file can become one for a GPU."""
    with Running(file.parent, "--batch", "1,8", "--code", "rebuild", "--max-shapes", "2", "--device", "reference") as server:
        notes = [line.split(" has no effect now: ")[0] for line in server.said if line.startswith("note: ")]
        assert sorted(notes) == ["note: --batch 1,8", "note: --code rebuild", "note: --device reference", "note: --effort 0", "note: --max-shapes 2"], server.said
        assert np.array_equal(ask_http(server.http, name, picture(0, 4), model="four").as_numpy(name[1]), want(engine, name, picture(0, 4)))
    with Running(file, "--device", "cpu") as server:
        assert not [line for line in server.said if line.startswith("note: ")], server.said


def test_an_address_of_ipv6_has_brackets():
    from octavo.serve._server import _url
    assert _url("grpcs", "0.0.0.0", 1) == "grpcs://0.0.0.0:1" and _url("http", "localhost", 2) == "http://localhost:2" and _url("http", "::1", 80) == "http://[::1]:80"
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:  # a machine without IPv6
        return
    with subprocess.Popen([sys.executable, "-m", "octavo", "serve", QDQ, "--host", "::1", "--port", "0", "--grpc-port", "0", "--effort", "0", "--batch", "1"],
                          stderr=subprocess.PIPE, text=True) as server:
        try:
            ready = next(line for line in server.stderr if line.startswith("ready: "))
            found = re.fullmatch(r"ready: http://(\[::1\]:[0-9]+), grpc://\[::1\]:[0-9]+\n", ready)
            assert found, ready
            with urllib.request.urlopen(f"http://{found[1]}/v2", timeout=30) as answer:
                assert json.load(answer)["name"] == "octavo"
        finally:
            server.terminate()
