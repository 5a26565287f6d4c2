"""What is served and how it describes itself: ModelConfig, classification (class_count), open height and width, folders of engines, what to install."""
import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys
import zlib

import numpy as np
import pytest

octavo = pytest.importorskip("octavo")
onnx = pytest.importorskip("onnx")
from octavo.serve._classes import largest, packed  # noqa: E402
from test_bodies import binary  # noqa: E402
from test_serve import (  # noqa: E402,F401
    ADMIN, FP32, QDQ, ROOT, SHAPE, InferenceServerException, Running, ask_grpc, ask_http, engine, name, picture, triton_grpc, triton_http, want)


@pytest.fixture(scope="module")
def repository(tmp_path_factory, engine):
    """One folder: engines of different models, an ONNX model whose height and width are open, a set of batch sizes in versions."""
    from onnx import TensorProto, helper
    folder = tmp_path_factory.mktemp("repository")
    engine.at({engine.inputs[0]["name"]: (4, *SHAPE)}).save(folder / "four.octavo")
    octavo.build(FP32, shapes={octavo.build(FP32, threads=1, effort=0).inputs[0]["name"]: (1, *SHAPE)}, threads=1, effort=0).save(folder / "floats.octavo")
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)

    def network(path, shape, nodes):
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                                  [helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.tobytes(), raw=True)])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    convolution = helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1])
    network(folder / "open.onnx", ["n", 3, "h", "w"], [convolution, helper.make_node("Relu", ["a"], ["y"])])
    network(folder / "one.onnx", [1, 3, "h", "w"], [convolution, helper.make_node("GlobalAveragePool", ["a"], ["y"])])
    for size in (1, 2):
        (folder / "set/5").mkdir(parents=True, exist_ok=True)
        engine.at({engine.inputs[0]["name"]: (size, *SHAPE)}).save(folder / f"set/5/x{size}.octavo")
    (folder / "notes").mkdir()
    (folder / "notes/readme.txt").write_text("no model")
    return folder


@pytest.fixture(scope="module")
def server(repository):
    with Running(repository, f"digits={QDQ}", "--batch", "1,4", "--max-shapes", "2", "--delay-ms", "1") as running:
        yield running


def test_a_folder_serves_each_file_by_its_own_name(server, engine, name):
    names = sorted((m["name"], m["version"]) for m in server.http.get_model_repository_index())
    assert names == [("digits", "1"), ("floats", "1"), ("four", "1"), ("one", "1"), ("open", "1"), ("set", "5")]
    x = picture(1, 4)
    assert np.array_equal(ask_http(server.http, name, x, model="four").as_numpy(name[1]), want(engine, name, x))
    assert np.array_equal(ask_grpc(server.grpc, name, x[:2], model="set").as_numpy(name[1]), want(engine, name, x[:2]))


def test_engine_files_that_must_be_signed(engine, name, tmp_path, capsys):
    """--verify: at the start and at each load."""
    from octavo._serve_command import main
    for key in ("mine", "other"):
        subprocess.run(f"openssl genpkey -algorithm ed25519 -out {key}.pem && openssl pkey -in {key}.pem -pubout -out {key}.pub", shell=True, cwd=tmp_path, check=True, capture_output=True)
    one = engine.at({engine.inputs[0]["name"]: (4, *SHAPE)})
    file = tmp_path / "digits.octavo"
    verify = "--verify", str(tmp_path / "mine.pub")
    for sign, why in ((None, "is not signed"), (tmp_path / "other.pem", "was signed by the key")):
        one.save(file, **({} if sign is None else {"sign": sign}))
        assert main([str(file), "--port", "0", "--grpc-port", "0", *verify]) == 6
        said = capsys.readouterr().err
        assert f"model 'digits' cannot be loaded: engine \"{file}\"" in said and re.search(why, said), said
    assert main([str(file), "--port", "0", "--grpc-port", "0", "--verify", str(tmp_path / "absent.pub")]) == 7
    assert "absent.pub" in capsys.readouterr().err
    one.save(file, sign=tmp_path / "mine.pem")
    x = picture(1, 4)
    with Running(file, *verify, "--code", "rebuild") as server:
        assert np.array_equal(ask_http(server.http, name, x).as_numpy(name[1]), want(engine, name, x))
        for options in ({}, {"sign": tmp_path / "other.pem"}):
            one.save(tmp_path / "new", **options)
            (tmp_path / "new").rename(file)
            status, said = server.ask("POST", "/v2/repository/models/digits/load", b"", ADMIN)
            assert status == 400 and re.search("sign", json.loads(said)["error"]), said
            assert np.array_equal(ask_http(server.http, name, x).as_numpy(name[1]), want(engine, name, x))
        one.save(tmp_path / "new", sign=tmp_path / "mine.pem")
        (tmp_path / "new").rename(file)
        assert server.ask("POST", "/v2/repository/models/digits/load", b"", ADMIN)[0] == 200


def test_code_is_compiled_again_where_the_settings_say_so(tmp_path, engine, monkeypatch):
    from octavo.serve import Settings, _models
    engine.at({engine.inputs[0]["name"]: (4, *SHAPE)}).save(tmp_path / "one.octavo")
    said = []
    monkeypatch.setattr(_models, "load", lambda *arguments, **options: said.append(options) or octavo.load(*arguments, **options))
    for code in ("file", "rebuild"):
        _models._engines(_models.find(str(tmp_path / "one.octavo"))[0], Settings(threads=1, code=code))
    assert said == [{"verify": None, "code": "file"}, {"verify": None, "code": "rebuild"}]
    with pytest.raises(octavo.UsageError, match="code='none': known are"):
        Settings(code="none")


def test_numbers_for_open_shapes(server):
    """Their shapes allow any count, and small compressed requests would keep the event loop busy for seconds. 64 MiB allow 4,194,304 numbers."""
    text = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3,1000,1000],"data":[%b1]}]}' % (b"1," * 4_999_999)
    status, said = server.ask("POST", "/v2/models/open/infer", zlib.compress(text), {"Content-Encoding": "deflate"})
    assert status == 400 and re.search("more than 419[0-9]{4} values", json.loads(said)["error"]), said


def test_what_a_folder_names(tmp_path):
    from octavo.serve._models import find
    for path in ("a.octavo", "b.octavo", "c.onnx", "d/model.onnx", "e/2/model.onnx", "f/x1.octavo", "f/x8.octavo", "g/h/3/m.onnx", "empty/x.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"")

    def found(argument):
        return sorted((s.name, s.version, len(s.files)) for s in find(argument))
    assert found(str(tmp_path)) == [("a", "1", 1), ("b", "1", 1), ("c", "1", 1), ("d", "1", 1), ("e", "2", 1), ("f", "1", 2), ("h", "3", 1)]
    assert found(f"joined={tmp_path / 'f'}") == [("joined", "1", 2)] and found(str(tmp_path / "f")) == [("x1", "1", 1), ("x8", "1", 1)]
    with pytest.raises(octavo.Error, match="holds no models"):
        find(str(tmp_path / "empty"))


def test_config(server):
    """What Triton's clients and perf_analyzer read; the same over both protocols."""
    for model, most, dims in (("digits", 4, [1, 16, 16]), ("four", 0, [4, 1, 16, 16]), ("set", 2, [1, 16, 16]), ("open", 4, [3, -1, -1]), ("one", 0, [1, 3, -1, -1])):
        said = server.http.get_model_config(model)
        assert said["name"] == model and said["max_batch_size"] == most and said["backend"] == "octavo", said
        assert said["input"][0]["dims"] == dims and said["input"][0]["data_type"] == "TYPE_FP32"
        over_grpc = server.grpc.get_model_config(model, as_json=True)["config"]
        assert over_grpc["name"] == model and over_grpc.get("max_batch_size", 0) == most and [int(d) for d in over_grpc["input"][0]["dims"]] == dims
        assert ("dynamic_batching" in said) == (most > 0)
    assert server.http.get_model_config("set", model_version="5")["dynamic_batching"]["preferred_batch_size"] == [1, 2]
    for client in (server.http, server.grpc):
        with pytest.raises(InferenceServerException, match="absent"):
            client.get_model_config("absent")
    assert "classification" in server.http.get_server_metadata()["extensions"]


def test_an_input_under_a_wrong_name_is_named(server, name):
    """Not the one that is missing for it."""
    for ask, client in ((ask_http, server.http), (ask_grpc, server.grpc)):
        with pytest.raises(InferenceServerException, match=f"no input 'imag'; it has '{name[0]}'"):
            ask(client, ("imag", name[1]), picture(1, 1), model="digits")


@pytest.mark.parametrize("rows", [1, 3])
def test_class_count(server, engine, name, rows):
    x = picture(rows, rows)
    right = want(engine, name, x)
    order = np.argsort(-right, axis=1, kind="stable")
    answers = []
    one = triton_http.InferInput(name[0], list(x.shape), "FP32")
    for binary_in in (True, False):
        one.set_data_from_numpy(x, binary_data=binary_in)
        for binary_out in (True, False):
            answers.append(server.http.infer("digits", [one], outputs=[triton_http.InferRequestedOutput(name[1], binary_data=binary_out, class_count=3)]))
    call = triton_grpc.InferInput(name[0], list(x.shape), "FP32")
    call.set_data_from_numpy(x)
    for _ in range(2):  # the answer is not kept for the next call
        answers.append(server.grpc.infer("digits", [call], outputs=[triton_grpc.InferRequestedOutput(name[1], class_count=3)]))
        assert np.array_equal(server.grpc.infer("digits", [call]).as_numpy(name[1]), right)
    for answer in answers:
        got = answer.as_numpy(name[1])
        assert got.shape == (rows, 3), got.shape
        for row in range(rows):
            for k in range(3):
                value, index = (got[row][k] if isinstance(got[row][k], bytes) else str(got[row][k]).encode()).split(b":")
                assert int(index) == order[row, k] and abs(float(value) - right[row, order[row, k]]) < 1e-5
    everything = server.http.infer("digits", [one], outputs=[triton_http.InferRequestedOutput(name[1], class_count=99)]).as_numpy(name[1])
    assert everything.shape == (rows, 10)
    status, said = server.ask("POST", "/v2/models/digits/infer", json.dumps({"inputs": [{"name": name[0], "datatype": "FP32", "shape": list(x.shape), "data": x.reshape(-1).tolist()}],
                                                                           "outputs": [{"name": name[1], "parameters": {"classification": "3"}}]}).encode())
    assert status == 400 and "not a count of classes" in json.loads(said)["error"]


def test_the_largest_values_of_any_type():
    for dtype in ("int8", "uint8", "int32", "uint64", "int64", "float16", "float32"):
        x = np.array([[3, 1, 3, 0, 2]], dtype)
        shape, texts = largest(x, 3, True)
        number = "{:f}" if np.dtype(dtype).kind == "f" else "{}"
        assert shape == [1, 3] and texts == [f"{number.format(v)}:{i}".encode() for v, i in ((3, 0), (3, 2), (2, 4))]
    assert largest(np.array([[np.nan, -np.inf, 1.0]], np.float32), 9, True)[1] == [b"1.000000:2", b"-inf:1", b"nan:0"]
    assert largest(np.array([2**63, 5], np.uint64), 1, False) == ([1], [b"9223372036854775808:0"])
    assert packed([b"ab", b""]) == b"\2\0\0\0ab\0\0\0\0"


def test_open_height_and_width(server, repository):
    """Each shape is built when it first comes, at most --max-shapes of them are kept; requests of one shape are joined; every answer is right."""
    engine = octavo.build(repository / "open.onnx", threads=1, effort=0)
    rng = np.random.default_rng(3)

    def ask(i):
        rows, height, width = 1 + i % 2, 16 + 8 * (i % 3), 24
        x = rng.random((rows, 3, height, width), dtype=np.float32)
        names = ("x", "y")
        answer = ask_http(server.http, names, x, model="open") if i % 2 else ask_grpc(server.grpc, names, x, model="open")
        return np.allclose(answer.as_numpy("y"), engine.run({"x": x})["y"], rtol=1e-5, atol=1e-5)
    assert all(ask(i) for i in range(9))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # of one shape
        assert all(pool.map(ask, (4, 4, 4, 4)))
    x = rng.random((1, 3, 20, 30), dtype=np.float32)
    assert ask_grpc(server.grpc, ("x", "y"), x, model="one").as_numpy("y").shape == (1, 4, 1, 1)
    meta = server.http.get_model_metadata("open")
    assert meta["inputs"][0]["shape"] == [-1, 3, -1, -1] and meta["outputs"][0]["shape"] == [-1, 4, -1, -1]
    assert server.http.get_model_metadata("one")["outputs"][0]["shape"] == [1, 4, 1, 1]
    for shape, text in (((1, 5, 16, 24), "the model wants"), ((9, 3, 16, 24), "1..4"), ((1, 3, 16), "the model wants")):
        with pytest.raises(InferenceServerException, match=re.escape(text)):
            ask_http(server.http, ("x", "y"), np.zeros(shape, np.float32), model="open")
    assert not [line for line in server.said if "Traceback" in line]


def test_a_shape_that_cannot_be_built_is_the_clients_mistake(tmp_path):
    from onnx import TensorProto, helper
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "s"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "k"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [helper.make_tensor("s", TensorProto.INT64, [3], [0, 4, 16])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "m.onnx")
    with Running(tmp_path / "m.onnx", "--batch", "1,2") as server:
        x = np.random.default_rng(0).random((2, 64), dtype=np.float32)
        assert np.array_equal(ask_http(server.http, ("x", "y"), x, model="m").as_numpy("y"), x.reshape(2, 4, 16))
        with pytest.raises(InferenceServerException, match="400.*cannot be built for this shape"):
            ask_http(server.http, ("x", "y"), np.zeros((1, 65), np.float32), model="m")
        assert np.array_equal(ask_grpc(server.grpc, ("x", "y"), x, model="m").as_numpy("y"), x.reshape(2, 4, 16))


def test_what_to_install_is_what_the_wheel_asks_for():
    """The error without the packages names those of octavo[serve] in pyproject.toml, and how to install them with the wheel at hand."""
    import tomllib
    from octavo._serve_command import PACKAGES, to_install
    assert PACKAGES == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["serve"]
    assert all(f"'{p}'" in to_install() for p in PACKAGES) and ".whl" in to_install()
    pages = [p for p in (*ROOT.glob("docs/*.md"), ROOT / "README.md", *(ROOT / "src").rglob("*.py"), ROOT / "src/cli/app.cc") if "pip install 'octavo[serve]'" in p.read_text()]
    assert not pages, f"there is no package index that has octavo: {pages}"


def test_an_engine_file_for_a_range_and_one_for_several_shapes(engine, name, tmp_path):
    ranged = octavo.build(QDQ, profiles={name[0]: ((1, *SHAPE), (4, *SHAPE), (6, *SHAPE))}, threads=1, effort=0)
    ranged.save(tmp_path / "range.octavo")
    several = octavo.build(QDQ, threads=1, effort=0)
    for size in (1, 3):
        several.at({name[0]: (size, *SHAPE)})
    several.save(tmp_path / "several.octavo")
    with Running(tmp_path, "--batch", "1,8") as server:
        for rows in (1, 2, 3, 5, 6):
            x = picture(rows, rows)
            assert np.array_equal(ask_http(server.http, name, x, model="range").as_numpy(name[1]), want(engine, name, x))
            assert np.array_equal(ask_grpc(server.grpc, name, x, model="range").as_numpy(name[1]), want(engine, name, x))
        with pytest.raises(InferenceServerException, match=re.escape("1..6")):
            ask_http(server.http, name, picture(7, 7), model="range")
        x = picture(3, 3)
        assert np.array_equal(ask_http(server.http, name, x, model="several").as_numpy(name[1]), want(engine, name, x))
        with pytest.raises(InferenceServerException, match="400.*the engine was built for 1, 3"):
            ask_http(server.http, name, picture(2, 2), model="several")
