"""Runs the test data's placements.py with the ranges of a network's tensors kept in a file: measured once for all styles, and not at all
where they are given (ONNX Runtime is not needed then).

usage: place.py RANGES.json PLACEMENTS.py FLOAT.onnx OUT.onnx STYLE [its options]
"""
import importlib.util
import json
import os
import pathlib
import sys
import types


def main():
    kept, script = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    if kept.exists() and importlib.util.find_spec("onnxruntime") is None:
        sys.modules["onnxruntime"] = types.ModuleType("onnxruntime")  # imported, not used
    code, call = script.read_text(encoding="utf-8").rstrip().rsplit("\n", 1)
    if call != "main()":
        sys.exit(f'error: {script}: its last line is "{call}", not "main()"')
    space = {"__name__": "placements", "__doc__": ""}
    exec(compile(code, str(script), "exec"), space)  # pylint: disable=exec-used
    measure = space["ranges"]

    def ranges(*args):
        if kept.exists():
            return json.loads(kept.read_text())
        found = measure(*args)
        part = kept.with_name(f"{kept.name}.{os.getpid()}")
        part.write_text(json.dumps(found))
        part.replace(kept)
        return found

    space["ranges"] = ranges
    sys.argv[:3] = [str(script)]
    space["main"]()


if __name__ == "__main__":
    main()
