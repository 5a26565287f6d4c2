"""Models with sequences and optional values among their inputs and outputs, as models of tensors: what is given says how long sequences are and which values are there.
Octavo's graphs have tensors alone; sequences between nodes are resolved at import."""
import numpy as np
import onnx
from onnx import helper, numpy_helper

from ._errors import UnsupportedError

_OPTIONAL = ("Optional", "OptionalGetElement", "OptionalHasElement")


def needed(model):
    """Whether the model is not one of tensors alone."""
    values = [*model.graph.input, *model.graph.output]
    return any(v.type.WhichOneof("value") != "tensor_type" for v in values) or any(n.op_type in _OPTIONAL for n in model.graph.node) or bool(_positions(model))


def _positions(model):
    """Inputs that say where a sequence is read, changed or divided, or which branch gives it."""
    at = {"SplitToSequence": 1, "SequenceAt": 1, "SequenceErase": 1, "SequenceInsert": 2}
    decided = {n.input[at[n.op_type]] for n in model.graph.node if n.op_type in at and len(n.input) > at[n.op_type]}
    sequences = {v.name for v in model.graph.output if v.type.WhichOneof("value") != "tensor_type"}
    decided |= {n.input[0] for n in model.graph.node if n.op_type == "If" and not sequences.isdisjoint(n.output)}
    return decided & {v.name for v in model.graph.input} - {t.name for t in model.graph.initializer}


def _tensor_type(kind):
    """The element type of the tensors in a type."""
    while kind.WhichOneof("value") in ("optional_type", "sequence_type"):
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    if kind.WhichOneof("value") != "tensor_type":
        raise UnsupportedError("a map is among the inputs or outputs; only tensors, sequences of them and optional ones are supported")
    return kind.tensor_type.elem_type


def _is_sequence(kind):
    while kind.WhichOneof("value") == "optional_type":
        kind = kind.optional_type.elem_type
    return kind.WhichOneof("value") == "sequence_type"


def of_inputs(model, given):
    """(model, arrays): of tensors. Outputs may still be sequences."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    inputs, nodes, arrays, absent = [], [], {}, set()
    initialised = {t.name for t in graph.initializer}
    decided, lengths = _positions(model), {}
    for v in graph.input:
        value, plain = given.get(v.name), v.type.WhichOneof("value") == "tensor_type"
        if v.name in initialised and v.name not in given:
            inputs.append(v)
        elif value is None and not plain:
            absent.add(v.name)
        elif v.name in decided and plain:
            graph.initializer.append(numpy_helper.from_array(np.asarray(value), v.name))
        elif plain:
            inputs.append(v)
            arrays[v.name] = np.asarray(value)
        elif _is_sequence(v.type):
            parts = [np.asarray(x) for x in value]
            lengths[v.name] = len(parts)
            names = [f"{v.name}[{i}]" for i in range(len(parts))]
            inputs += [helper.make_tensor_value_info(name, _tensor_type(v.type), x.shape) for name, x in zip(names, parts)]
            arrays.update(zip(names, parts))
            nodes.append(helper.make_node("SequenceConstruct", names, [v.name]) if parts else helper.make_node("SequenceEmpty", [], [v.name], dtype=_tensor_type(v.type)))
        else:
            arrays[v.name] = np.asarray(value)
            inputs.append(helper.make_tensor_value_info(v.name, _tensor_type(v.type), arrays[v.name].shape))
    for node in graph.node:
        if node.op_type == "OptionalHasElement" and not node.domain:
            there = len(node.input) > 0 and node.input[0] != "" and node.input[0] not in absent
            node = helper.make_node("Constant", [], node.output, name=node.name, value=numpy_helper.from_array(np.array(there)))
        elif node.op_type in _OPTIONAL and not node.domain:
            if not node.input or not node.input[0] or node.input[0] in absent:
                raise UnsupportedError(f"{node.op_type} \"{node.name}\" of a value that is not there; only values that are there are supported")
            node = helper.make_node("Identity", node.input, node.output, name=node.name)
        nodes += _steps(node, lengths) if node.op_type == "SequenceMap" and not node.domain and node.input[0] in lengths else [node]
    used = {name for node in nodes for name in node.input}
    if lost := sorted(absent & used):
        raise UnsupportedError(f"input \"{lost[0]}\" is an optional value that is not given, and a node reads it")
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend(nodes)
    return made, arrays


def _steps(node, lengths):
    """A SequenceMap over sequences of known lengths: its body for each element."""
    body = node.attribute[0].g
    nodes, results = [], [[] for _ in node.output]
    for i in range(lengths[node.input[0]]):
        names = {v.name: f"{node.output[0]}/{i}/{v.name}" for v in [*body.input, *body.initializer]}
        names.update((o, f"{node.output[0]}/{i}/{o}") for inner in body.node for o in inner.output if o)
        for outer, inner in zip(node.input, body.input):
            if outer in lengths:
                at = f"{names[inner.name]} at"
                nodes += [helper.make_node("Constant", [], [at], value=numpy_helper.from_array(np.int64(i))), helper.make_node("SequenceAt", [outer, at], [names[inner.name]])]
            else:
                nodes.append(helper.make_node("Identity", [outer], [names[inner.name]]))
        nodes += [helper.make_node("Constant", [], [names[t.name]], value=t) for t in body.initializer]
        for inner in body.node:
            made = onnx.NodeProto()
            made.CopyFrom(inner)
            made.name = f"{node.name or node.output[0]}/{i}/{inner.name}"
            made.input[:] = [names.get(name, name) for name in inner.input]
            made.output[:] = [names.get(name, name) for name in inner.output]
            nodes.append(made)
        for k, o in enumerate(body.output):
            results[k].append(names[o.name])
    return nodes + [helper.make_node("SequenceConstruct", parts, [name]) for parts, name in zip(results, node.output)]


def sequence_outputs(model):
    return [v.name for v in model.graph.output if _is_sequence(v.type)]


def _with_outputs(model, make):
    """The model with `make(value info)`, (nodes, value infos), in the place of each output that is no tensor."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    outputs = []
    for v in made.graph.output:
        if v.type.WhichOneof("value") == "tensor_type":
            outputs.append(v)
        elif _is_sequence(v.type):
            nodes, infos = make(v)
            made.graph.node.extend(nodes)
            outputs += infos
        else:
            outputs.append(helper.make_tensor_value_info(v.name, _tensor_type(v.type), None))
    del made.graph.output[:]
    made.graph.output.extend(outputs)
    return made


def with_lengths(model):
    """Outputs "NAME[]" are how long sequences are."""
    def make(v):
        name = f"{v.name}[]"
        return [helper.make_node("SequenceLength", [v.name], [name])], [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [])]
    return _with_outputs(model, make)


def with_elements(model, lengths):
    """Outputs "NAME[0]", "NAME[1]", ... are the elements of sequences."""
    def make(v):
        nodes, infos = [], []
        for i in range(lengths[v.name]):
            name = f"{v.name}[{i}]"
            nodes += [helper.make_node("Constant", [], [f"{name} at"], value=numpy_helper.from_array(np.int64(i))), helper.make_node("SequenceAt", [v.name, f"{name} at"], [name])]
            infos.append(helper.make_tensor_value_info(name, _tensor_type(v.type), None))
        return nodes, infos
    return _with_outputs(model, make)
