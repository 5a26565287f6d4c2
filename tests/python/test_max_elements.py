"""Bounds of sizes that data decide: max_elements of octavo.build, --max-elements of the command.

Each case is a model whose results have a size that nothing bounds. Without a bound it is refused by name, with the option that helps; with one it
gives what ONNX Runtime gives, from no elements to the bound; and a run that needs one element more is an error that names tensor, bound and size."""
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import octavo

ort = pytest.importorskip("onnxruntime")

I64, F32, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def ints(name, values, shape=None):
    return helper.make_tensor(name, I64, [len(values)] if shape is None else shape, values)


def model(nodes, inputs, outputs, constants=(), opset=17):
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(constants))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 9
    onnx.checker.check_model(made)
    return made.SerializeToString()


#: A number that data decide: how many elements of a tensor of 100 are greater than 0.5. No input of few elements tells it.
COUNT = [helper.make_node("Greater", ["x", "half"], ["is"]), helper.make_node("Cast", ["is"], ["one"], to=I64),
         helper.make_node("ReduceSum", ["one", "axes"], ["n"], keepdims=0)]
COUNT_CONSTANTS = [helper.make_tensor("half", F32, [], [0.5]), ints("axes", [0])]
X = value("x", F32, [100])


def given(count):
    x = np.zeros(100, np.float32)
    x[:count] = 1
    return np.random.default_rng(count).permutation(x)


def counted(nodes, outputs, constants=(), **options):
    return model([*COUNT, *nodes], [X], outputs, [*COUNT_CONSTANTS, *constants], **options)


def listed(name="n1"):
    return [helper.make_node("Reshape", ["n", "minus"], [name])], [ints("minus", [1])]


def range_ints():
    return counted([helper.make_node("Range", ["zero", "n", "two"], ["y"])], [value("y", I64, ["k"])],
                   [ints("zero", [0], []), ints("two", [2], [])])


def range_floats():
    nodes = [helper.make_node("Cast", ["n"], ["f"], to=F32), helper.make_node("Range", ["start", "f", "delta"], ["y"])]
    return counted(nodes, [value("y", F32, ["k"])],
                   [helper.make_tensor("start", F32, [], [-0.5]), helper.make_tensor("delta", F32, [], [0.7])])


def range_by_data():
    """A delta that data decide too."""
    nodes = [helper.make_node("Add", ["n", "one_"], ["delta"]), helper.make_node("Range", ["zero", "limit", "delta"], ["y"])]
    return counted(nodes, [value("y", I64, ["k"])], [ints("zero", [0], []), ints("one_", [1], []), ints("limit", [20], [])])


def constant_of_shape():
    more, constants = listed()
    nodes = [*more, helper.make_node("ConstantOfShape", ["n1"], ["c"], value=helper.make_tensor("v", F32, [1], [3])),
             helper.make_node("Add", ["c", "half"], ["y"])]
    return counted(nodes, [value("y", F32, ["k"])], constants)


def expand():
    more, constants = listed()
    nodes = [*more, helper.make_node("Concat", ["n1", "four"], ["s"], axis=0), helper.make_node("Expand", ["row", "s"], ["e"]),
             helper.make_node("ReduceSum", ["e", "axes"], ["total"], keepdims=0), helper.make_node("Identity", ["e"], ["y"])]
    return counted(nodes, [value("y", F32, ["k", 4]), value("total", F32, [4])],
                   [*constants, ints("four", [4]), helper.make_tensor("row", F32, [1, 4], [1, 2, 3, 4])])


def tile():
    more, constants = listed()
    nodes = [*more, helper.make_node("Concat", ["n1", "one1"], ["s"], axis=0), helper.make_node("Tile", ["rows", "s"], ["y"])]
    return counted(nodes, [value("y", F32, ["k", 2])], [*constants, ints("one1", [1]), helper.make_tensor("rows", F32, [3, 2], [1, 2, 3, 4, 5, 6])])


def non_zero():
    """Bounded by itself: a smaller bound makes less room."""
    return model([helper.make_node("Greater", ["x", "half"], ["is"]), helper.make_node("NonZero", ["is"], ["y"])], [X],
                 [value("y", I64, [1, "k"])], COUNT_CONSTANTS[:1])


def unique():
    nodes = [helper.make_node("CumSum", ["x", "zero"], ["sums"]), helper.make_node("Unique", ["sums"], ["y", "", "", "times"])]
    return model(nodes, [X], [value("y", F32, ["k"]), value("times", I64, ["k"])], [ints("zero", [0], [])])


def body(nodes, inputs, outputs, constants=()):
    return helper.make_graph(nodes, "body", inputs, outputs, constants)


STEP = [value("i", I64, []), value("go", BOOL, [])]


def loop_by_trips():
    steps = body([helper.make_node("Cast", ["i"], ["f"], to=F32), helper.make_node("Add", ["s", "f"], ["s2"]),
                  helper.make_node("Identity", ["go"], ["go2"]), helper.make_node("Mul", ["s2", "s2"], ["row"])],
                 [*STEP, value("s", F32, [2])], [value("go2", BOOL, []), value("s2", F32, [2]), value("row", F32, [2])])
    nodes = [helper.make_node("Loop", ["n", "", "start"], ["end", "y"], body=steps)]
    return counted(nodes, [value("y", F32, ["k", 2]), value("end", F32, [2])], [helper.make_tensor("start", F32, [2], [1, 2])])


def loop_by_condition():
    """A decoder: it goes on until a sum is large enough, and says each number that it had."""
    steps = body([helper.make_node("Add", ["s", "one_"], ["s2"]), helper.make_node("Less", ["s2", "n"], ["go2"]),
                  helper.make_node("Identity", ["s2"], ["row"])],
                 [*STEP, value("s", I64, [])], [value("go2", BOOL, []), value("s2", I64, []), value("row", I64, [])])
    nodes = [helper.make_node("Greater", ["n", "zero"], ["first"]), helper.make_node("Loop", ["", "first", "zero"], ["end", "y"], body=steps)]
    return counted(nodes, [value("y", I64, ["k"]), value("end", I64, [])], [ints("zero", [0], []), ints("one_", [1], [])])


def loop_that_grows():
    """The state has a row more after each step."""
    steps = body([helper.make_node("Identity", ["go"], ["go2"]), helper.make_node("Reshape", ["i", "minus"], ["i1"]),
                  helper.make_node("Concat", ["s", "i1"], ["s2"], axis=0)],
                 [*STEP, value("s", I64, ["r"])], [value("go2", BOOL, []), value("s2", I64, ["r2"])])
    return counted([helper.make_node("Loop", ["n", "", "start"], ["y"], body=steps)], [value("y", I64, ["k"])],
                   [ints("start", [7]), ints("minus", [1])])


def loop_of_a_sequence():
    steps = body([helper.make_node("Identity", ["go"], ["go2"]), helper.make_node("Cast", ["i"], ["f"], to=F32),
                  helper.make_node("Mul", ["row", "f"], ["one_row"]), helper.make_node("SequenceInsert", ["s", "one_row"], ["s2"])],
                 [*STEP, helper.make_tensor_sequence_value_info("s", F32, None)],
                 [value("go2", BOOL, []), helper.make_tensor_sequence_value_info("s2", F32, None)])
    nodes = [helper.make_node("SequenceConstruct", ["row"], ["s0"]), helper.make_node("Loop", ["n", "", "s0"], ["all"], body=steps),
             helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=0), helper.make_node("SequenceLength", ["all"], ["length"])]
    return counted(nodes, [value("y", F32, ["k", 3]), value("length", I64, [])],
                   [helper.make_tensor("row", F32, [1, 3], [1, 2, 3])])


#: name: (model, elements of the result by the number that data decide, is it refused without a bound?)
CASES = {
    "range_ints": (range_ints, lambda n: -(-n // 2), True),
    "range_floats": (range_floats, lambda n: int(np.ceil((n + 0.5) / np.float32(0.7))), True),
    "range_by_data": (range_by_data, lambda n: -(-20 // (n + 1)), True),
    "constant_of_shape": (constant_of_shape, lambda n: n, True),
    "expand": (expand, lambda n: n, True),
    "tile": (tile, lambda n: 3 * n, True),
    "non_zero": (non_zero, lambda n: n, False),
    "unique": (unique, lambda n: n + 1, False),
    "loop_by_trips": (loop_by_trips, lambda n: n, True),
    "loop_by_condition": (loop_by_condition, lambda n: n, True),
    "loop_that_grows": (loop_that_grows, lambda n: n + 1, True),
    "loop_of_a_sequence": (loop_of_a_sequence, lambda n: n + 1, True),
}
#: What takes the bound, where it is not the result.
NAMED = {"constant_of_shape": "c", "expand": "e", "loop_of_a_sequence": "all"}
#: Steps, where the result has another number of elements.
STEPS = {"loop_that_grows": lambda n: n, "loop_of_a_sequence": lambda n: n}
MOST = 24


def same(case, data, results):
    session = ort.InferenceSession(data[0], providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    for name, want in zip(names, session.run(names, {"x": data[1]})):
        assert results[name].shape == want.shape, (case, name)
        np.testing.assert_allclose(results[name], want, rtol=1e-6, err_msg=f"{case} {name}")


@pytest.mark.parametrize("case", CASES)
def test_results_have_their_size(case):
    make, size, _ = CASES[case]
    data, counts = make(), STEPS.get(case, size)
    engine = octavo.build(data, effort=0, max_elements={NAMED.get(case, "y"): MOST})
    within = [n for n in range(0, 60) if counts(n) <= MOST]
    for n in sorted({within[0], within[len(within) // 2], within[-1]}):
        x = given(n)
        same(case, (data, x), engine.run({"x": x}))


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_needs_more_is_an_error(case):
    make, size, _ = CASES[case]
    counts, name = STEPS.get(case, size), NAMED.get(case, "y")
    engine = octavo.build(make(), effort=0, max_elements={name: 8})
    over = [n for n in range(0, 60) if counts(n) > 8]
    with pytest.raises(octavo.InputError, match=f'size of "{name}".*at most 8'):
        engine.run({"x": given(over[0])})
    within = [n for n in range(0, 60) if counts(n) <= 8]
    if within:  # the engine runs on
        x = given(within[-1])
        same(case, (make(), x), engine.run({"x": x}))


@pytest.mark.parametrize("case", [c for c in CASES if CASES[c][2]])
def test_without_a_bound_it_is_refused_by_name(case):
    with pytest.raises(octavo.UnsupportedError, match=r"--max-elements \w+=N"):
        octavo.build(CASES[case][0](), effort=0)


def number():
    more, constants = listed()
    nodes = [*more, helper.make_node("Range", ["zero", "n", "one_"], ["r"]), helper.make_node("Cast", ["r"], ["f"], to=F32),
             helper.make_node("ConstantOfShape", ["n1"], ["c"], value=helper.make_tensor("v", F32, [1], [3])),
             helper.make_node("Add", ["f", "c"], ["y"])]
    return counted(nodes, [value("y", F32, ["k"])], [*constants, ints("zero", [0], []), ints("one_", [1], [])])


def test_a_bound_of_the_number_itself():
    """Everything behind the number has the bound that follows from it: two results of its size fit each other."""
    data = number()
    engine = octavo.build(data, effort=0, max_elements={"n": 10})
    for n in (0, 1, 10):
        same("number", (data, given(n)), engine.run({"x": given(n)}))
    with pytest.raises(octavo.InputError, match='size of "n" 11.*at most 10'):
        engine.run({"x": given(11)})


def top_k_and_slices():
    more, constants = listed()
    nodes = [*more, helper.make_node("TopK", ["x", "n1"], ["y", "at"]), helper.make_node("Slice", ["x", "n1", "end"], ["tail"]),
             helper.make_node("Neg", ["n1"], ["minus_n"]), helper.make_node("Slice", ["x", "minus_n", "end"], ["last"])]
    return counted(nodes, [value("y", F32, ["k"]), value("at", I64, ["k"]), value("tail", F32, ["t"]), value("last", F32, ["l"])],
                   [*constants, ints("end", [1 << 60])])


def test_top_k_and_slice_are_bounded_by_their_operand():
    data = top_k_and_slices()
    engine = octavo.build(data, effort=0)
    for n in (1, 37, 100):
        x = np.random.default_rng(n).permutation(np.linspace(-1, 0.4, 100, dtype=np.float32))
        x[np.random.default_rng(n).permutation(100)[:n]] += 2
        same("top_k", (data, x), engine.run({"x": x}))


def test_engine_files_keep_the_bound(tmp_path):
    data = range_ints()
    octavo.build(data, effort=0, max_elements={"y": 8}).save(tmp_path / "e.octavo")
    engine = octavo.load(tmp_path / "e.octavo")
    same("file", (data, given(9)), engine.run({"x": given(9)}))
    with pytest.raises(octavo.InputError, match='size of "y" 9.*at most 8'):
        engine.run({"x": given(17)})


def test_bounds_of_nothing_are_refused():
    with pytest.raises(octavo.UsageError, match='"nothing".*no tensor or node'):
        octavo.build(range_ints(), effort=0, max_elements={"y": 8, "nothing": 3})
    for wrong in (0, -1, (1 << 28) + 1):
        with pytest.raises(octavo.UsageError, match="max_elements"):
            octavo.build(range_ints(), effort=0, max_elements={"y": wrong})


def test_the_command_takes_bounds(tmp_path):
    path, out = tmp_path / "range.onnx", tmp_path / "out"
    path.write_bytes(range_ints())
    np.save(tmp_path / "x.npy", given(9))

    def run(*more):
        return subprocess.run([sys.executable, "-m", "octavo", "run", str(path), "--effort", "0", "--input", f"x={tmp_path / 'x.npy'}", *more], capture_output=True, text=True)

    done = run("--max-elements", "y=8")
    assert done.returncode == 0, done.stderr
    less = run("--max-elements", "y=4")
    assert less.returncode != 0 and 'size of "y" 5' in less.stderr and "--max-elements y=5" in less.stderr, less.stderr
    none = run()
    assert none.returncode != 0 and "--max-elements y=N" in none.stderr, none.stderr
    bad = run("--max-elements", "y")
    assert bad.returncode != 0 and "NAME=N" in bad.stderr, bad.stderr


def random_chain(seed):
    """Some operators one behind the other on tensors whose first dimension has as many elements as data decide."""
    random = np.random.default_rng(seed)
    more, constants = listed()
    nodes = [*more, helper.make_node("Range", ["zero", "n", "one_"], ["r"]), helper.make_node("Cast", ["r"], ["t0"], to=F32)]
    constants = [*constants, ints("zero", [0], []), ints("one_", [1], []), ints("two1", [2]), ints("one1", [1]), ints("nil1", [0]), ints("far", [1 << 60]),
                 helper.make_tensor("c3", F32, [3], [0.5, -1, 2]), helper.make_tensor("tenth", F32, [], [0.1])]
    last, outputs = "t0", []
    for k in range(1, int(random.integers(3, 8))):
        new, op = f"t{k}", random.choice(["scale", "sum", "join", "cumulate", "cut", "twice", "soft", "double", "first"])
        if op == "scale":
            nodes += [helper.make_node("Mul", [last, "tenth"], [f"m{k}"]), helper.make_node("Tanh", [f"m{k}"], [new])]
        elif op == "sum":
            nodes += [helper.make_node("ReduceSum", [last, "axes"], [f"s{k}"], keepdims=1), helper.make_node("Add", [last, f"s{k}"], [new])]
        elif op == "join":
            nodes += [helper.make_node("Concat", [last, "c3"], [new], axis=0)]
        elif op == "cumulate":
            nodes += [helper.make_node("CumSum", [last, "zero"], [new])]
        elif op == "cut":
            nodes += [helper.make_node("Slice", [last, "one1", "far"], [new])]
        elif op == "twice":
            nodes += [helper.make_node("Tile", [last, "two1"], [new])]
        elif op == "soft":
            nodes += [helper.make_node("Softmax", [last], [new], axis=0)]
        elif op == "double":
            nodes += [helper.make_node("Add", [last, last], [new])]
        else:
            nodes += [helper.make_node("Slice", [last, "nil1", "n1"], [new])]
        last = new
        outputs.append(new)
    return counted(nodes, [value(o, F32, [f"k{o}"]) for o in outputs], constants)


@pytest.mark.parametrize("seed", range(12))
def test_random_chains(seed):
    data = random_chain(seed)
    engine = octavo.build(data, effort=0, max_elements={"n": 12})
    for n in (0, 1, 2, 7, 12):
        same(f"chain {seed} of {n}", (data, given(n)), engine.run({"x": given(n)}))
    with pytest.raises(octavo.InputError, match='size of "n" 13'):
        engine.run({"x": given(13)})
