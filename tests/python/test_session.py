"""octavo.InferenceSession where scripts read more than results: metadata, names of dimensions, addresses, pickles, run_async, exceptions."""
import ctypes
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import octavo
from octavo.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile, NotImplemented

ROOT = pathlib.Path(__file__).resolve().parents[2]
FP32 = ROOT / "examples/digits/digits_fp32.onnx"
METADATA = {"names": "{0: 'cat', 1: 'dog'}", "stride": "32", "task": "detect"}


def quick(**attributes):
    options = octavo.SessionOptions()
    options.add_session_config_entry("octavo.effort", "0")
    options.intra_op_num_threads = 1
    for name, value in attributes.items():
        setattr(options, name, value)
    return options


def saved(path):
    """y = Relu(Conv(x)), z = y + mask; batch, height and width are open, and the file says much of itself."""
    w = np.linspace(-1, 1, 4 * 3 * 3 * 3).reshape(4, 3, 3, 3).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"], name="relu"),
         helper.make_node("Add", ["y", "mask"], ["z"], name="add")], "detector",
        [helper.make_tensor_value_info("image", 1, ["batch", 3, "height", "width"]), helper.make_tensor_value_info("mask", 1, [1, 1, "height", "width"])],
        [helper.make_tensor_value_info("y", 1, ["batch", 4, "height", "width"]), helper.make_tensor_value_info("z", 1, ["batch", 4, "height", "width"])],
        [numpy_helper.from_array(w, "w")], doc_string="of the graph")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch", domain="ai.example",
                              model_version=7, doc_string="finds cats")
    for key, value in METADATA.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("session") / "m.onnx")


def feed(height=8, width=8, batch=1):
    rng = np.random.default_rng(height * 100 + width)
    return {"image": rng.standard_normal((batch, 3, height, width)).astype(np.float32), "mask": rng.standard_normal((1, 1, height, width)).astype(np.float32)}


def said(session):
    m = session.get_modelmeta()
    return (m.producer_name, m.graph_name, m.domain, m.description, m.graph_description, m.version, m.custom_metadata_map,
            [(a.name, a.type, a.shape) for a in session.get_inputs() + session.get_outputs()])


def test_metadata_and_dimensions_are_those_of_onnx_runtime_also_from_engine_files(model, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    session = octavo.InferenceSession(model, quick())
    assert said(session) == said(ort.InferenceSession(model))
    assert session.get_inputs()[0].shape == ["batch", 3, "height", "width"] and session.get_outputs()[1].shape == ["batch", 4, "height", "width"]
    for height in (8, 12):
        session.run(None, feed(height))
    session.engine.save(tmp_path / "two.octavo")
    loaded = octavo.InferenceSession(tmp_path / "two.octavo")
    assert said(loaded)[:7] == said(session)[:7]
    assert loaded.get_inputs()[0].shape == [1, 3, "height", 8]  # where its engines differ
    fixed = octavo.build(model, effort=0, threads=1, shapes={"image": (1, 3, 8, 8), "mask": (1, 1, 8, 8)})
    fixed.save(tmp_path / "one.octavo")
    one = octavo.load(tmp_path / "one.octavo")
    assert one.model == fixed.model and one.model["metadata"] == METADATA
    assert one.inputs[0]["shape"] == (1, 3, 8, 8) and one.inputs[0]["symbols"] == ("batch", None, "height", "width")


def test_the_command_keeps_them_too(model, tmp_path):
    done = subprocess.run([sys.executable, "-m", "octavo", "build", str(model), "--shapes", "image:1x3x8x8,mask:1x1x8x8", "--effort", "0", "--threads", "1", "-o",
                           str(tmp_path / "e.octavo")], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert octavo.InferenceSession(tmp_path / "e.octavo").get_modelmeta().custom_metadata_map == METADATA


def test_the_package_command_compares_with_its_own_onnx_runtime():
    pytest.importorskip("onnxruntime")
    environment = {k: v for k, v in os.environ.items() if k != "OCTAVO_PYTHON"}
    done = subprocess.run([sys.executable, "-m", "octavo", "check", str(FP32), "--against", "onnxruntime", "--effort", "0", "--threads", "1"],
                          capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode == 0 and "in onnxruntime" in done.stdout, done.stderr


def test_dimensions_are_overridden_by_name(model):
    options = quick()
    options.add_free_dimension_override_by_name("height", 12)
    session = octavo.InferenceSession(model, options)
    assert session.get_inputs()[0].shape == ["batch", 3, 12, "width"] and session.get_inputs()[1].shape == [1, 1, 12, "width"]
    with pytest.raises(InvalidArgument):
        session.run(None, feed(8))
    options.add_free_dimension_override_by_name("depth", 3)
    with pytest.raises(InvalidArgument, match="no dimension 'depth'; their dimensions are 'batch', 'height', 'width'"):
        octavo.InferenceSession(model, options)


def test_addresses_are_read_and_written_in_place(model):
    session = octavo.InferenceSession(model, quick())
    given = feed()
    want = dict(zip(("y", "z"), session.run(None, given)))
    room = np.zeros((1, 4, 8, 8), np.float32)
    raw = (ctypes.c_float * room.size)()
    binding = session.io_binding()
    image = given["image"]
    binding.bind_input("image", "cpu", 0, np.float32, image.shape, image.ctypes.data)
    binding.bind_input("mask", "cpu", 0, onnx.TensorProto.FLOAT, given["mask"].shape, given["mask"].ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, (1, 4, 8, 8), ctypes.addressof(raw))
    binding.bind_ortvalue_output("z", octavo.OrtValue.ortvalue_from_numpy(room))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(np.frombuffer(raw, np.float32).reshape(room.shape), want["y"])
    np.testing.assert_array_equal(room, want["z"])
    assert [v.data_ptr() for v in binding.get_outputs()] == [ctypes.addressof(raw), room.ctypes.data]
    image[...] = 0  # the address is read at each run
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], np.zeros_like(room))
    with pytest.raises(InvalidArgument, match="needs element_type and shape"):
        binding.bind_output("y", "cpu", buffer_ptr=ctypes.addressof(raw))
        session.run_with_iobinding(binding)


def test_a_run_writes_into_arrays_of_the_caller_and_refuses_others(model):
    engine = octavo.build(model, effort=0, threads=1, shapes={"image": (1, 3, 8, 8), "mask": (1, 1, 8, 8)})
    given, room = feed(), np.zeros((1, 4, 8, 8), np.float32)
    want = engine.run(given)
    got = engine.run(given, outputs={"z": room})
    assert got["z"] is room and np.array_equal(room, want["z"]) and np.array_equal(got["y"], want["y"])
    for bad, why in ((np.zeros((1, 4, 8, 9), np.float32), "has shape"), (np.zeros((1, 4, 8, 8)), "is float32"), (np.zeros((1, 4, 8, 16), np.float32)[..., ::2], "C-contiguous"),
                     (np.frombuffer(bytes(1024), np.float32).reshape(1, 4, 8, 8), "writable"), ([0.0] * 256, "float64")):
        with pytest.raises(octavo.InputError, match=why):
            engine.run(given, outputs={"z": bad})
    with pytest.raises(octavo.InputError, match="overlaps that of output \"y\""):
        engine.run(given, outputs={"y": room, "z": room})
    both = np.zeros(1024, np.float32)
    with pytest.raises(octavo.InputError, match="overlaps that of input \"image\""):
        engine.run({**given, "image": both[:192].reshape(1, 3, 8, 8)}, outputs={"z": both[100:356].reshape(1, 4, 8, 8)})
    with pytest.raises(octavo.InputError, match="none of that name"):
        engine.run(given, outputs={"q": room})


def test_run_async_calls_back(model):
    session = octavo.InferenceSession(model, quick())
    want = session.run(["z"], feed())
    answers, there = [], threading.Semaphore(0)

    def callback(results, data, error):
        answers.append((results, data, error))
        there.release()

    session.run_async(["z"], feed(), callback, "mine")
    assert there.acquire(timeout=60)
    np.testing.assert_array_equal(answers[0][0][0], want[0])
    assert answers[0][1:] == ("mine", "")
    session.run_async(["nothing"], feed(), callback, 2)
    assert there.acquire(timeout=60)
    assert answers[1][0] == [] and "no output 'nothing'" in answers[1][2]
    with pytest.raises(ValueError, match="mask"):
        session.run_async(None, {"image": feed()["image"]}, callback, None)


def test_the_optimized_file_of_an_open_model_grows_with_its_runs(model, tmp_path):
    path = tmp_path / "optimized.octavo"
    session = octavo.InferenceSession(model, quick(optimized_model_filepath=str(path)))
    results = {}
    for height in (8, 12, 8):
        results[height] = session.run(["z"], feed(height))[0]
    loaded = octavo.InferenceSession(path)
    for height in (8, 12):
        np.testing.assert_array_equal(loaded.run(["z"], feed(height))[0], results[height])
    before = path.stat().st_mtime_ns
    session.run(["z"], feed(12))
    assert path.stat().st_mtime_ns == before  # nothing new
    with pytest.raises(NoSuchFile, match="no such folder"):
        octavo.InferenceSession(model, quick(optimized_model_filepath=str(tmp_path / "absent/e.octavo")))


def test_sessions_are_pickled_before_and_after_they_ran(model):
    fresh = octavo.InferenceSession(model, quick())
    data = pickle.dumps(fresh)
    want = fresh.run(None, feed(8))
    ran = pickle.dumps(fresh)
    model.rename(model.with_suffix(".away"))  # the file need not be there
    try:
        for pickled, built in ((data, 1), (ran, 0)):
            copy = pickle.loads(pickled)
            np.testing.assert_array_equal(copy.run(None, feed(8))[0], want[0])
            assert copy.engine._builds == built  # the engine of a session that ran comes along
            assert copy.run(None, feed(12))[0].shape == (1, 4, 12, 8)  # and builds for others
            assert copy.get_modelmeta().custom_metadata_map == METADATA and copy.get_session_options().intra_op_num_threads == 1
        fixed = octavo.InferenceSession(FP32, _batch_of_one())
        x = np.zeros((1, 1, 16, 16), np.float32)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            np.testing.assert_array_equal(pool.apply(_run, (fixed, {"image": x})), fixed.run(None, {"image": x})[0])
    finally:
        model.with_suffix(".away").rename(model)


def _batch_of_one():
    options = quick()
    options.add_free_dimension_override_by_name("N", 1)
    return options


def _run(session, given):
    return session.run(None, given)[0]


def test_exceptions_have_onnx_runtimes_names_and_are_octavos(model, tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"\x00junk" * 40)
    with pytest.raises(InvalidProtobuf) as caught:
        octavo.InferenceSession(tmp_path / "junk.onnx", quick())
    assert isinstance(caught.value, octavo.ModelError)
    (tmp_path / "damaged.octavo").write_bytes(octavo.build(model, effort=0, shapes={"image": (1, 3, 8, 8), "mask": (1, 1, 8, 8)}).tobytes()[:-200])
    with pytest.raises(InvalidProtobuf) as caught:
        octavo.InferenceSession(tmp_path / "damaged.octavo")
    assert isinstance(caught.value, octavo.EngineFileError)
    broken = onnx.load(model)
    broken.graph.node[1].input[0] = "nobody"
    with pytest.raises(InvalidGraph, match="nobody"):
        octavo.InferenceSession(broken.SerializeToString(), quick())
    unknown = onnx.load(model)
    unknown.graph.node[1].op_type = "TfIdfVectorizer"
    with pytest.raises(NotImplemented, match="TfIdfVectorizer") as caught:
        octavo.InferenceSession(unknown.SerializeToString(), quick())
    assert isinstance(caught.value, octavo.UnsupportedError)
    with pytest.raises(NoSuchFile, match="absent.onnx") as caught:
        octavo.InferenceSession("absent.onnx")
    assert isinstance(caught.value, (octavo.FileError, FileNotFoundError))
    with pytest.raises(Fail):
        octavo.InferenceSession(tmp_path)  # a folder
    session = octavo.InferenceSession(model, quick())
    for bad in ({"image": feed()["image"]}, {**feed(), "image": np.zeros((1, 3, 8, 8))}, {**feed(), "image": np.zeros((1, 4, 8, 8), np.float32)}):
        with pytest.raises(InvalidArgument) as caught:
            session.run(None, bad)
        assert isinstance(caught.value, (octavo.InputError, ValueError))
    import octavo.onnxruntime as ort
    assert ort.capi.onnxruntime_pybind11_state.Fail is Fail


def test_providers():
    available = octavo.get_available_providers()
    assert available[-1] == "CPUExecutionProvider"
    with pytest.raises(ValueError, match="known are CPUExecutionProvider and CUDAExecutionProvider"):
        octavo.InferenceSession(FP32, quick(), providers=["OpenVINOExecutionProvider"])
    if "CUDAExecutionProvider" not in available:
        with pytest.warns(UserWarning, match="no NVIDIA GPU here"):
            session = octavo.InferenceSession(FP32, quick(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
        assert session.get_providers() == ["CPUExecutionProvider"]
        with pytest.raises(Fail, match="no NVIDIA GPU"):
            octavo.InferenceSession(FP32, quick(), providers=["CUDAExecutionProvider"])
