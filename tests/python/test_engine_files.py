"""Engine files through the Python package: versions, the model inside, signatures."""
import pathlib
import shutil
import struct
import subprocess
import sys
import warnings

import numpy as np
import pytest

import octavo

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
from test_rebuild import written_by  # noqa: E402  (how another version writes a header)

QDQ = ROOT / "examples/digits/digits_qdq.onnx"


@pytest.fixture(scope="module")
def engine():
    return octavo.build(QDQ, shapes={"image": (1, 1, 16, 16)}, threads=1, effort=0)


def feed():
    return {"image": np.random.default_rng(1).random((1, 1, 16, 16), np.float32)}


def test_an_old_file_is_built_again_with_a_warning(engine, tmp_path):
    engine.save(tmp_path / "e")
    written_by(tmp_path / "e", 0, 0, 9)
    with pytest.warns(UserWarning, match="built by Octavo 0.0.9 .* octavo rebuild"):
        loaded = octavo.load(tmp_path / "e")
    assert loaded.plan_hash == engine.plan_hash and loaded.built_by == octavo.__version__
    for name, value in engine.run(feed()).items():
        np.testing.assert_array_equal(loaded.run(feed())[name], value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="octavo rebuild"):
            octavo.load(tmp_path / "e")
    with pytest.raises(octavo.EngineFileError, match="octavo rebuild"):
        octavo.load(tmp_path / "e", upgrade=False)
    written_by(tmp_path / "e", 7, 0, 0)
    with pytest.raises(octavo.EngineFileError, match="later than this Octavo"):
        octavo.load(tmp_path / "e")


def test_the_model_is_kept_where_it_is_wanted(engine, tmp_path):
    data = QDQ.read_bytes()
    assert data in engine.tobytes()
    small = octavo.build(QDQ, shapes={"image": (1, 1, 16, 16)}, threads=1, effort=0, keep_model=False)
    assert data not in small.tobytes() and small.plan_hash == engine.plan_hash
    from_bytes = octavo.build(data, shapes={"image": (1, 1, 16, 16)}, threads=1, effort=0)
    assert from_bytes.tobytes() == engine.tobytes(), "equal models and options: equal bytes"
    copy = tmp_path / "m.onnx"
    shutil.copy(QDQ, copy)
    made = octavo.build(copy, shapes={"image": (1, 1, 16, 16)}, threads=1, effort=0)
    copy.write_bytes(data + b"x")
    with pytest.raises(octavo.FileError, match="changed after the engine was built"):
        made.save(tmp_path / "e")


def test_external_data_comes_back(tmp_path):
    onnx = pytest.importorskip("onnx")
    (tmp_path / "m").mkdir()
    weights = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, 64]) for n in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:], [onnx.numpy_helper.from_array(weights, "w")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m/m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=16)
    built = octavo.build(tmp_path / "m/m.onnx", threads=1, effort=0)
    built.save(tmp_path / "e")
    shutil.rmtree(tmp_path / "m")
    written_by(tmp_path / "e", 0, 0, 9)
    with pytest.warns(UserWarning):
        loaded = octavo.load(tmp_path / "e")
    x = np.random.default_rng(3).standard_normal((4, 64)).astype(np.float32)
    np.testing.assert_array_equal(loaded.run({"x": x})["y"], built.run({"x": x})["y"])


def test_verify(engine, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make keys with")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "k.pem"], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", tmp_path / "k.pem", "-pubout", "-out", tmp_path / "k.pub"], check=True, capture_output=True)
    engine.save(tmp_path / "plain")
    with pytest.raises(octavo.EngineFileError, match="it is not signed"):
        octavo.load(tmp_path / "plain", verify=tmp_path / "k.pub")
    from octavo._octavo import _main
    assert _main(["rebuild", "--all", "--sign", str(tmp_path / "k.pem"), "--sign-unsigned", str(tmp_path / "plain")]) == 0
    signed = tmp_path / "plain"
    for key in (tmp_path / "k.pub", str(tmp_path / "k.pub"), (tmp_path / "k.pub").read_text(), (tmp_path / "k.pub").read_bytes()):
        assert octavo.load(signed, verify=key).plan_hash == engine.plan_hash
    assert octavo.load(signed.read_bytes(), verify=tmp_path / "k.pub").plan_hash == engine.plan_hash
    with pytest.raises(octavo.UsageError, match="private one"):
        octavo.load(signed, verify=tmp_path / "k.pem")
    for empty in ("", b""):  # a variable of the environment that is not set, say
        for file in (signed, signed.read_bytes()):
            with pytest.raises(octavo.UsageError, match='verify="": the key is empty'):
                octavo.load(file, verify=empty)
        with pytest.raises(octavo.UsageError, match='sign="": the key is empty'):
            engine.save(tmp_path / "unsigned", sign=empty)
    assert not (tmp_path / "unsigned").exists()
    with pytest.raises(octavo.UsageError, match="file.*rebuild"):
        octavo.load(signed, code="none")
    assert octavo.load(signed, code="rebuild").plan_hash == engine.plan_hash, "no difference for the CPU"


def test_other_ways_in_verify(engine, tmp_path):
    """octavo.InferenceSession and octavo.ray load engine files only as they are told; for models the two words have no meaning."""
    import octavo.ray
    model = b"not an engine"
    for key in ("k", "other"):
        subprocess.run(f"openssl genpkey -algorithm ed25519 -out {key}.pem && openssl pkey -in {key}.pem -pubout -out {key}.pub", shell=True, cwd=tmp_path, check=True, capture_output=True)
    engine.save(tmp_path / "plain")
    engine.save(tmp_path / "signed", sign=tmp_path / "k.pem")

    def session(file, **entries):
        options = octavo.SessionOptions()
        for name, value in entries.items():
            options.add_session_config_entry(f"octavo.{name}", str(value))
        return octavo.InferenceSession(file, options)

    def runner(file, **options):
        return octavo.ray._engine(file if isinstance(file, bytes) else file.read_bytes(), 1, 1, options)
    for made in (session, runner):
        assert made(tmp_path / "signed", verify=tmp_path / "k.pub", code="rebuild") and made(tmp_path / "plain", code="rebuild")
        for file, key, why in (("plain", "k.pub", "is not signed"), ("signed", "other.pub", "was signed by the key"), ("signed", "absent.pub", "cannot read key")):
            with pytest.raises(Exception, match=why):
                made(tmp_path / file, verify=tmp_path / key)
        with pytest.raises(Exception, match="verify.* is empty|verify=.*key is empty"):
            made(tmp_path / "plain", verify="")
        with pytest.raises(Exception, match="file.*rebuild"):
            made(tmp_path / "plain", code="none")
        for option in ({"verify": tmp_path / "k.pub"}, {"code": "file"}):
            with pytest.raises(Exception, match="for engine files"):
                made(model, **option)


def test_save_signs(engine, tmp_path):
    """The same bytes as `octavo build --sign` would put behind the file; a key that does not fit leaves no file."""
    subprocess.run("openssl genpkey -algorithm ed25519 -out k.pem && openssl pkey -in k.pem -pubout -out k.pub", shell=True, cwd=tmp_path, check=True)
    for key in (tmp_path / "k.pem", (tmp_path / "k.pem").read_text(), (tmp_path / "k.pem").read_bytes()):
        engine.save(tmp_path / "signed", sign=key)
        assert octavo.load(tmp_path / "signed", verify=tmp_path / "k.pub").plan_hash == engine.plan_hash
    assert (tmp_path / "signed").read_bytes()[:-128] == engine.tobytes() and octavo.load(tmp_path / "signed").plan_hash == engine.plan_hash
    for key, why in ((tmp_path / "k.pub", "public"), (tmp_path / "absent.pem", "cannot read key")):
        with pytest.raises(octavo.Error, match=why):
            engine.save(tmp_path / "other", sign=key)
    assert not (tmp_path / "other").exists()


def test_header_is_what_the_test_takes_it_for(engine):
    assert struct.unpack_from("<I", engine.tobytes(), 8)[0] == 4
