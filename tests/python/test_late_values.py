"""Inputs whose values decide shapes: bound by the arrays of a run, built once for each value, limited in number."""
import subprocess
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import octavo

S64, F32, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL


def model(nodes, inputs, outputs=("y",), opset=18):
    graph = helper.make_graph(nodes, "late", [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info(o, F32, None) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()


def slices():
    """y = relu(x[start:end]), where `end` is computed from a small input."""
    return model([helper.make_node("Add", ["start", "length"], ["end"]), helper.make_node("Slice", ["x", "start", "end"], ["part"]),
                  helper.make_node("Relu", ["part"], ["y"])],
                 [("x", F32, [8, 3]), ("start", S64, [1]), ("length", S64, [1])])


def feed(x, start, length):
    return {"x": x, "start": np.array([start], np.int64), "length": np.array([length], np.int64)}


X = np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32)


def test_bound_by_the_first_run_and_kept():
    engine = octavo.build(slices(), effort=0)
    assert engine.open
    for start, length in [(1, 3), (2, 6), (1, 3), (0, 8)]:
        assert np.array_equal(engine.run(feed(X, start, length))["y"], np.maximum(X[start:start + length], 0))
    one = engine.at({}, feed(X, 1, 3))
    assert not one.open and {i["name"]: i["format"] for i in one.inputs} == {"x": None, "start": "=1", "length": "=3"}
    assert one.plan_hash == engine.at({}, feed(X, 1, 3)).plan_hash
    with pytest.raises(octavo.InputError, match=r'"start".*is \[2\], the engine was built for \[1\]'):
        one.run(feed(X, 2, 3))
    with pytest.raises(octavo.InputError, match='value of input "length"'):
        engine.at({})


def test_an_engine_file_refuses_another_value(tmp_path):
    engine = octavo.build(slices(), effort=0, values={"start": np.array([1]), "length": np.array([2])})
    assert not engine.open
    engine.save(tmp_path / "e.octavo")
    loaded = octavo.load(tmp_path / "e.octavo")
    assert np.array_equal(loaded.run(feed(X, 1, 2))["y"], np.maximum(X[1:3], 0))
    with pytest.raises(octavo.InputError, match=r"is \[3\], the engine was built for \[2\]"):
        loaded.run(feed(X, 1, 3))


def test_data_is_no_part_of_the_key():
    """Only what the operator asks for is bound: a small operand that is data stays an input."""
    engine = octavo.build(model([helper.make_node("TopK", ["x", "k"], ["y", "i"])], [("x", F32, [4]), ("k", S64, [1])]), effort=0)
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal(4).astype(np.float32)
        for k in (1, 3):
            assert np.array_equal(engine.run({"x": x, "k": np.array([k])})["y"], np.sort(x)[::-1][:k])
            formats = {i["name"]: i["format"] for i in engine.at({}, {"x": x, "k": np.array([k])}).inputs}
            assert formats == {"x": None, "k": f"={k}"}


def test_the_number_of_engines_is_limited():
    engine = octavo.build(slices(), effort=0, most_engines=2)
    held = engine.at({}, feed(X, 0, 1))
    for length in (1, 2, 1, 3, 1, 2):  # tests/api counts the builds
        assert engine.run(feed(X, 0, length))["y"].shape == (length, 3)
    assert held.run(feed(X, 0, 1))["y"].shape == (1, 3)
    with pytest.raises(octavo.UsageError, match="most_engines"):
        octavo.build(slices(), most_engines=0)


def test_threads():
    wrong = []
    engine = octavo.build(slices(), effort=0, most_engines=3)

    def runs(seed):
        for length in np.random.default_rng(seed).permutation(4) + 1:
            if not np.array_equal(engine.run(feed(X, 0, length))["y"], np.maximum(X[:length], 0)):
                wrong.append(length)

    threads = [threading.Thread(target=runs, args=(s,)) for s in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("node, late, value, expected", [
    (helper.make_node("Reshape", ["x", "v"], ["z"]), (S64, [2]), [4, -1], lambda x: x.reshape(4, 6)),
    (helper.make_node("Expand", ["x", "v"], ["z"]), (S64, [3]), [2, 8, 3], lambda x: np.broadcast_to(x, (2, 8, 3))),
    (helper.make_node("Tile", ["x", "v"], ["z"]), (S64, [2]), [1, 2], lambda x: np.tile(x, (1, 2))),
    (helper.make_node("Pad", ["x", "v"], ["z"]), (S64, [4]), [1, 0, 0, 2], lambda x: np.pad(x, ((1, 0), (0, 2)))),
    (helper.make_node("Unsqueeze", ["x", "v"], ["z"]), (S64, [1]), [1], lambda x: x[:, None]),
    (helper.make_node("ReduceMax", ["x", "v"], ["z"], keepdims=0), (S64, [1]), [1], lambda x: x.max(1)),
    (helper.make_node("Split", ["x", "v"], ["z", "w"], axis=0), (S64, [2]), [3, 5], lambda x: x[:3]),
    (helper.make_node("Resize", ["x", "", "v"], ["z"], mode="nearest"), (F32, [2]), [2.0, 1.0], lambda x: np.repeat(x, 2, 0)),
    (helper.make_node("Compress", ["x", "v"], ["z"], axis=1), (BOOL, [3]), [True, False, True], lambda x: x[:, [0, 2]]),
])
def test_operators(node, late, value, expected):
    engine = octavo.build(model([node, helper.make_node("Neg", ["z"], ["y"])], [("x", F32, [8, 3]), ("v", *late)]), effort=0)
    v = np.array(value, {S64: np.int64, F32: np.float32, BOOL: np.bool_}[late[0]])
    assert np.array_equal(engine.run({"x": X, "v": v})["y"], -expected(X))


def test_what_follows_from_data_is_refused():
    nodes = [helper.make_node("Cast", ["x"], ["n"], to=S64), helper.make_node("Reshape", ["z", "n"], ["y"])]
    with pytest.raises(octavo.UnsupportedError, match=r'Reshape.*"x" f32\[8,3\], which is data'):
        octavo.build(model(nodes, [("x", F32, [8, 3]), ("z", F32, [2])]))


def test_open_dimensions_and_values_together():
    data = model([helper.make_node("Slice", ["x", "start", "end"], ["y"])], [("x", F32, ["n", 3]), ("start", S64, [1]), ("end", S64, [1])])
    engine = octavo.build(data, effort=0)
    for rows, start in ((8, 2), (5, 1), (8, 1)):
        y = engine.run({"x": X[:rows], "start": np.array([start]), "end": np.array([2**63 - 1])})["y"]
        assert np.array_equal(y, X[start:rows])


def test_the_command(tmp_path):
    (tmp_path / "m.onnx").write_bytes(slices())
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "length.npy", np.array([3]))
    done = subprocess.run([*COMMAND, "run", "m.onnx", "--effort", "0", "--input", "x=x.npy", "--input", "start=2", "--input",
                           "length=length.npy", "-o", "y.npy"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.maximum(X[2:5], 0))
    done = subprocess.run([*COMMAND, "build", "m.onnx", "--effort", "0", "-o", "m.octavo"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and '"length"' in done.stderr and "Slice" in done.stderr


def test_a_file_of_several_values_and_shapes(tmp_path):
    data = model([helper.make_node("Slice", ["x", "start", "end"], ["y"])], [("x", F32, ["n", 3]), ("start", S64, [1]), ("end", S64, [1])])
    engine = octavo.build(data, effort=0)
    sets = [(rows, start, end) for rows in (5, 8) for start in (1, 2) for end in (3, 4)]
    given = lambda rows, start, end: {"x": X[:rows], "start": np.array([start]), "end": np.array([end])}
    for s in sets:
        engine.run(given(*s))
    engine.save(tmp_path / "e.octavo")
    loaded = octavo.load(tmp_path / "e.octavo")
    assert loaded.open and {i["name"]: i["shape"] for i in loaded.inputs} == {"x": (None, 3), "start": (1,), "end": (1,)}
    for rows, start, end in sets:
        assert np.array_equal(loaded.run(given(rows, start, end))["y"], X[start:end])
    assert octavo.load(engine.tobytes()).run(given(8, 2, 4))["y"].shape == (2, 3)
    with pytest.raises(octavo.InputError, match=r'"x" has shape \[6,3\]: dimension 0 is 6, the engine was built for 5, 8'):
        loaded.run(given(6, 1, 3))
    with pytest.raises(octavo.InputError, match=r'"end" is \[5\], the engine was built for \[3\], \[4\]'):
        loaded.run(given(8, 1, 5))
    with pytest.raises(octavo.UsageError, match="engines for 8 sets of shapes"):
        loaded.plan_hash
    loaded.save(tmp_path / "again.octavo")
    assert (tmp_path / "again.octavo").read_bytes() == (tmp_path / "e.octavo").read_bytes()

    (tmp_path / "m.onnx").write_bytes(data)  # the command makes the same file
    values = [f"--values={name}={v}" for name, vs in (("start", (2, 1)), ("end", (3, 4))) for v in vs]
    done = subprocess.run([*COMMAND, "build", "m.onnx", "--effort", "0", "--shapes", "x=8x3", "--shapes", "x:5x3", *values, "-o", "c.octavo"],
                          cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "8 plans" in done.stdout, done.stderr
    assert {e.plan_hash for e in (octavo.load(tmp_path / "c.octavo").at({"x": (r, 3)}, given(r, s, n)) for r, s, n in sets)} == {
        engine.at({"x": (r, 3)}, given(r, s, n)).plan_hash for r, s, n in sets}
    np.save(tmp_path / "x.npy", X[:5])
    run = [*COMMAND, "run", "c.octavo", "--input", "x=x.npy", "--input", "start=1", "-o", "y.npy", "--input"]
    assert subprocess.run([*run, "end=4"], cwd=tmp_path, check=True) and np.array_equal(np.load(tmp_path / "y.npy"), X[1:4])
    done = subprocess.run([*run, "end=2"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and 'input "end" is [2], the engine was built for [3], [4]' in done.stderr
    done = subprocess.run([*COMMAND, "bench", "c.octavo"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "holds engines for several shapes, and 8 fit" in done.stderr
    done = subprocess.run([*COMMAND, "build", "m.onnx", "--values", "k=3", "-o", "d.octavo"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and 'has no input "k"; its inputs are "x", "start", "end"' in done.stderr


def test_a_range_in_the_command(tmp_path):
    (tmp_path / "m.onnx").write_bytes(model([helper.make_node("Add", ["x", "z"], ["y"])], [("x", F32, ["n", 3]), ("z", F32, ["n", 3])]))
    both = lambda n: f"x:{n}x3,z:{n}x3"
    ends = lambda low, most: ["--effort", "0", "--minShapes", both(low), "--optShapes", both(2), "--maxShapes", both(most)]
    call = lambda *args: subprocess.run([*COMMAND, *args], cwd=tmp_path, capture_output=True, text=True)
    done = call("build", "m.onnx", *ends(1, 4), "-o", "e.octavo")
    assert done.returncode == 0 and "for x [1,3] to [4,3], z [1,3] to [4,3]; plans:" in done.stdout, done.stderr + done.stdout
    engine = octavo.load(tmp_path / "e.octavo")
    for n in range(1, 5):
        assert np.array_equal(engine.run({"x": X[:n], "z": X[:n]})["y"], 2 * X[:n])
    with pytest.raises(octavo.InputError, match=r'"x" has shape \[5,3\]: dimension 0 is 5, its profile goes from 1 to 4\n  to do: widen'):
        engine.run({"x": X[:5], "z": X[:5]})
    done = call("build", "m.onnx", *ends(1, 99), "-o", "f.octavo")
    assert done.returncode == 0, done.stderr
    engine = octavo.load(tmp_path / "f.octavo")
    big = np.arange(99 * 3, dtype=np.float32).reshape(99, 3)
    assert all(np.array_equal(engine.run({"x": big[:n], "z": big[:n]})["y"], 2 * big[:n]) for n in range(1, 100, 7))
    done = call("bench", "m.onnx", *ends(1, 99), "--seconds", "0.01", "--shapes", both(100))
    assert "dimension 0 is 100, --minShapes and --maxShapes go from 1 to 99" in done.stderr
    assert "batch 2" in call("bench", "m.onnx", *ends(1, 99), "--seconds", "0.01").stdout  # the opt shapes
    np.save(tmp_path / "x.npy", X[:7])
    done = call("run", "m.onnx", *ends(1, 99), "--input", "x=x.npy", "--input", "z=x.npy", "-o", "y.npy")
    assert done.returncode == 0 and np.array_equal(np.load(tmp_path / "y.npy"), 2 * X[:7]), done.stderr


COMMAND = [__import__("sys").executable, "-m", "octavo"]
