#!/usr/bin/env python3
"""Writes docs/operators.md from the importer's tables (src/onnx/import/ops/ops_*.cc) and the results of the onnx package's backend tests.

  PYTHONPATH=build/release/python python scripts/operators_doc.py           writes it (runs the backend tests on the cpu device)
  ... scripts/operators_doc.py --results results.json                       from a file that octavo.backend_tests --json wrote
"""
import argparse
import collections
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROW = re.compile(r'OpRow\{"(\w+)", (""|kMicrosoft), (\d+), (\d+), (-?\d+), (-?\d+),')
WHERE = {("cpu",): "kernel", ("reference",): "reference", ("cpu", "reference"): "kernel; some forms by reference", (): ""}
TYPES = {1: "f32", 2: "u8", 3: "s8", 4: "u16", 5: "s16", 6: "s32", 7: "s64", 9: "bool", 10: "f16", 11: "f64", 12: "u32", 13: "u64", 16: "bf16",
         17: "f8e4m3fn", 18: "f8e4m3fnuz", 19: "f8e5m2", 20: "f8e5m2fnuz", 21: "u4", 22: "s4", 23: "f4e2m1", 24: "f8e8m0", 25: "u2", 26: "s2"}

HEAD = """# Operators

Written by `scripts/operators_doc.py` from the importer's tables and the results of the onnx package's backend tests; do not edit. `tests/backend/refused.txt` lists the refused tests with their reasons. [onnx.md](onnx.md)
describes how operators are lowered.

- *opset*: the first opset of the row; a range if ONNX removed the operator, or if another row continues.
- *runs*: how the tests of this operator alone run. **kernel**: in a kernel of the cpu device. **reference**: in the reference evaluator inside a region (`cpu.reference.*`; right but slow; `octavo explain` names it). *folded*:
  evaluated at import. Empty: the onnx package has no test of this operator alone, but the tests of this repository have.
- *types*: the types of the first operand in the tests that pass. float16, bfloat16 and float64 are held as float32 inside, 4- and 2-bit integers as 8-bit integers, and floats of 8 and 4 bits as float32 (with the values of their
  type).

"""


def rows():
    found = collections.defaultdict(list)
    for file in sorted((ROOT / "src" / "onnx" / "import" / "ops").glob("ops_*.cc")):
        for name, domain, since, until, *_ in ROW.findall(file.read_text()):
            found[("com.microsoft" if domain == "kMicrosoft" else "", name)].append((int(since), int(until)))
    return found


def evidence(results):
    """{operator: ({class}, {types})} from the tests whose model is one node."""
    from octavo import backend_tests
    out = collections.defaultdict(lambda: (set(), set()))
    for name, case in backend_tests.load_tests():
        model = backend_tests.model_of(case)
        if len(model.graph.node) != 1:
            continue
        node = model.graph.node[0]
        kind = results.get(name, ("refused", ""))[0]
        if kind not in ("cpu", "reference", "static"):
            continue
        classes, types = out[(node.domain.replace("ai.onnx", ""), node.op_type)]
        classes.add(kind)
        declared = {v.name: v.type.tensor_type.elem_type for v in model.graph.input}
        if node.input and declared.get(node.input[0]) in TYPES:
            types.add(declared[node.input[0]])
    return out


def opsets(ranges):
    return ", ".join(f"{a}" if b == 0 else f"{a}-{b}" for a, b in sorted(set(ranges)))


def document(results):
    seen = evidence(results)
    lines = [HEAD.rstrip(), ""]
    for domain, title in (("", "ai.onnx"), ("com.microsoft", "com.microsoft")):
        lines += [f"## Domain {title}", "", "| operator | opset | runs | types |", "|---|---|---|---|"]
        for (d, name), ranges in sorted(rows().items()):
            if d != domain:
                continue
            classes, types = seen.get((d, name), (set(), set()))
            run = tuple(sorted(classes - {"static"}))
            where = WHERE[run] or ("folded" if "static" in classes else "")
            versions = opsets(ranges) if not domain else ""
            lines.append(f"| {name} | {versions} | {where} | {', '.join(TYPES[t] for t in TYPES if t in types)} |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", help="what octavo.backend_tests --json wrote")
    args = parser.parse_args()
    if args.results:
        results = json.loads(pathlib.Path(args.results).read_text())
    else:
        from octavo import backend_tests
        results = backend_tests.run_all(backend_tests.load_tests(), "cpu")
    (ROOT / "docs" / "operators.md").write_text(document(results))


if __name__ == "__main__":
    main()
