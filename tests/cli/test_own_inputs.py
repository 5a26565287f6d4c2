"""No command overwrites a file that it reads: neither the model nor a key, a table, data. And a file option without a value (a shell variable that is not
set) is refused by name. "Before any work" is seen by --verbose, which names each step as it begins."""
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DIGITS = ROOT / "examples/digits"
COMMANDS = ("build", "run", "bench", "profile", "explain", "view", "check", "doctor", "advise", "quantize", "eval", "convert", "rebuild")
FILES_IN_HELP = re.compile(r"^  +((?:-\w,)?--[\w-]+(?:,--\w+)*) (FILE|PATH|ENGINE|FOLDER|PUBLIC\.pem|PRIVATE\.pem)\b", re.M)
# What a command does with the files that its options name. A new option of --help has to be put here, and a case below.
READ = {"--onnx", "--calibration", "--verify", "--sign", "--input", "--labels", "--data", "--beside", "--beside-calibration", "--graph", "--accuracy", "--beside-accuracy",
        "--minmax", "--ranges", "--from-table"}
WRITTEN = {"--output", "--timing-cache", "--exportProfile", "--exportLayerInfo", "--exportTimes", "--exportOutput", "--exportMetadata", "--html", "--build-without",
           "--build-without-all", "--picture", "--apply", "--float-model", "--curve", "--report", "--json", "--save", "--to-table", "--qdq-model"}

# The command line, the two options, and the file that both name. q: with Q/DQ pairs, f: without.
CASES = [
    ("build q.onnx -o q.onnx", "--output", "MODEL", "q.onnx"),
    ("build --onnx=q.onnx --saveEngine=q.onnx", "--output", "MODEL", "q.onnx"),
    ("build q.onnx -o key.pem --sign key.pem", "--output", "--sign", "key.pem"),
    ("build f.onnx -o r.json --calibration r.json", "--output", "--calibration", "r.json"),
    ("build f.onnx -o x.npy --data x.npy", "--output", "--data", "x.npy"),
    ("build q.onnx -o times.txt --timing-cache times.txt", "--output", "--timing-cache", "times.txt"),
    ("build q.onnx -o e --timing-cache q.onnx", "--timing-cache", "MODEL", "q.onnx"),
    ("build q.onnx -o e --exportLayerInfo q.onnx", "--exportLayerInfo", "MODEL", "q.onnx"),
    ("build q.onnx -o e --exportProfile q.onnx", "--exportProfile", "MODEL", "q.onnx"),
    ("build q.onnx -o e --exportTimes q.onnx", "--exportTimes", "MODEL", "q.onnx"),
    ("build q.onnx -o e --exportOutput q.onnx", "--exportOutput", "MODEL", "q.onnx"),
    ("build q.onnx -o e --exportMetadata key.pem --sign key.pem", "--exportMetadata", "--sign", "key.pem"),
    ("run q.onnx --input x.npy -o x.npy", "--output", "--input", "x.npy"),
    ("run q.onnx --input image=x.npy -o x.npy", "--output", "--input", "x.npy"),
    ("run q.onnx --input x.npy -o labels.txt --labels labels.txt", "--output", "--labels", "labels.txt"),
    ("run e.octavo --input x.npy -o e.octavo --format json", "--output", "MODEL", "e.octavo"),
    ("run e.octavo --input x.npy -o key.pem --format json --verify key.pem", "--output", "--verify", "key.pem"),
    ("bench q.onnx --exportTimes q.onnx", "--exportTimes", "MODEL", "q.onnx"),
    ("profile q.onnx --exportMetadata q.onnx", "--exportMetadata", "MODEL", "q.onnx"),
    ("explain q.onnx --html q.onnx", "--html", "MODEL", "q.onnx"),
    ("explain q.onnx --roundings --build-without q.onnx", "--build-without", "MODEL", "q.onnx"),
    ("explain q.onnx --roundings --build-without-all q.onnx", "--build-without-all", "MODEL", "q.onnx"),
    ("view q.onnx -o q.onnx", "--output", "MODEL", "q.onnx"),
    ("view q.onnx --beside f.onnx -o f.onnx", "--output", "--beside", "f.onnx"),
    ("view q.onnx --beside f.onnx --beside-calibration r.json -o r.json", "--output", "--beside-calibration", "r.json"),
    ("view q.onnx --graph f.onnx -o f.onnx", "--output", "--graph", "f.onnx"),
    ("view q.onnx --accuracy r.json -o r.json", "--output", "--accuracy", "r.json"),
    ("view q.onnx --beside f.onnx --beside-accuracy r.json -o r.json", "--output", "--beside-accuracy", "r.json"),
    ("check q.onnx --data x.npy --picture x.npy", "--picture", "--data", "x.npy"),
    ("check q.onnx f.onnx --data x.npy --timing-cache f.onnx", "--timing-cache", "OTHER", "f.onnx"),
    ("doctor q.onnx --data x.npy --picture q.onnx", "--picture", "MODEL", "q.onnx"),
    ("doctor f.onnx --calibration r.json --minmax t.cache --picture t.cache --data x.npy", "--picture", "--minmax", "t.cache"),
    ("advise q.onnx --apply q.onnx", "--apply", "MODEL", "q.onnx"),
    ("advise q.onnx --ranges r.json --apply r.json", "--apply", "--ranges", "r.json"),
    ("quantize f.onnx --data x.npy -o f.onnx", "--output", "MODEL", "f.onnx"),
    ("quantize f.onnx --data x.npy -o x.npy", "--output", "--data", "x.npy"),
    ("quantize f.onnx --data x.npy -o new.json --float-model f.onnx", "--float-model", "MODEL", "f.onnx"),
    ("quantize f.onnx --data x.npy -o new.onnx --report x.npy", "--report", "--data", "x.npy"),
    ("quantize f.onnx --data x.npy -o new.onnx --min-sqnr 20 --curve f.onnx", "--curve", "MODEL", "f.onnx"),
    ("quantize f.onnx --data x.npy -o e.octavo --sign e.octavo", "--output", "--sign", "e.octavo"),
    ("eval f.onnx q.onnx --data x.npy --json q.onnx", "--json", "OTHERS", "q.onnx"),
    ("eval f.onnx --data x.npy --labels labels.txt --json labels.txt", "--json", "--labels", "labels.txt"),
    ("eval f.onnx --data x.npy --metric m.py --json m.py", "--json", "--metric", "m.py"),
    ("eval f.onnx --data arrays --save arrays", "--save", "--data", "arrays"),
    ("convert q.onnx --to-table q.onnx --approximate", "--to-table", "MODEL", "q.onnx"),
    ("convert q.onnx --to-table new.cache --approximate --float-model q.onnx", "--float-model", "MODEL", "q.onnx"),
    ("convert q.onnx --to-table new.cache --approximate --json q.onnx", "--json", "MODEL", "q.onnx"),
    ("convert f.onnx --from-table r.json --qdq-model r.json", "--qdq-model", "--from-table", "r.json"),
    ("convert f.onnx --from-table r.json --qdq-model f.onnx", "--qdq-model", "MODEL", "f.onnx"),
    ("rebuild e.octavo --timing-cache key.pem --sign key.pem", "--timing-cache", "--sign", "key.pem"),
]


def octavo(*args, folder):
    return subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120, cwd=folder)


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    path = tmp_path_factory.mktemp("origin")
    shutil.copy(DIGITS / "digits_qdq.onnx", path / "q.onnx")
    shutil.copy(DIGITS / "digits_fp32.onnx", path / "f.onnx")
    np.save(path / "x.npy", np.full((1, 1, 16, 16), 0.5, np.float32))
    (path / "arrays").mkdir()
    shutil.copy(path / "x.npy", path / "arrays/00000.npz")
    (path / "r.json").write_text('{"image": 1.0}')
    (path / "t.cache").write_text("TRT-8510-MinMaxCalibration\nimage: 3c010a14\n")
    for name in ("key.pem", "labels.txt", "times.txt", "m.py"):
        (path / name).write_text(f"the user's {name}\n")
    assert octavo("build", "q.onnx", "-o", "e.octavo", "--effort", "0", "--threads", "1", folder=path).returncode == 0
    return path


@pytest.fixture
def folder(origin, tmp_path):
    shutil.copytree(origin, tmp_path / "files")
    return tmp_path / "files"


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(args, out, where, folder):
    before = contents(folder)
    done = octavo(*args, folder=folder)
    assert done.returncode == 2, f"octavo {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    assert re.match(rf"error: {out} \S+: it is also an input, {where} \S+, and would be overwritten\n", done.stderr), done.stderr
    assert contents(folder) == before and not done.stdout, "before any work"
    return done.stderr


@pytest.mark.parametrize("line, out, where, file", CASES, ids=[c[0] for c in CASES])
def test_an_output_that_is_an_input_is_refused(line, out, where, file, folder):
    assert file in refused(line.split(), out, where, folder)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_file_option_is_read_or_written(command, folder):
    said = octavo(command, "--help", folder=folder).stdout.split("\nPositionals")[-1]
    found = {next(n for n in names.split(",") if n.startswith("--")) for names, _ in FILES_IN_HELP.findall(said)}
    assert found and not found - READ - WRITTEN, f"octavo {command}: this file does not know {found - READ - WRITTEN}"


def test_each_option_has_a_case():
    seen = {option for _, out, where, _ in CASES for option in (out, where)}
    assert not (READ | WRITTEN) - seen - {"--onnx"}, (READ | WRITTEN) - seen


def test_other_names_of_the_same_file(folder):
    (folder / "link.onnx").symlink_to("q.onnx")
    os.link(folder / "q.onnx", folder / "hard.onnx")
    (folder / "below").mkdir()
    for name in ("./q.onnx", "below/../q.onnx", str(folder / "q.onnx"), "link.onnx", "hard.onnx"):
        refused(["build", "q.onnx", "-o", name], "--output", "MODEL", folder)
        refused(["build", name, "-o", "q.onnx"], "--output", "MODEL", folder)
    (folder / "list.txt").write_text("x.npy\n")
    refused(["run", "q.onnx", "--input", "@list.txt", "-o", "list.txt"], "--output", "--input", folder)


def test_what_is_none_of_its_inputs_is_overwritten(folder):
    """A copy is another file, devices are written to, and an engine file is built again in place."""
    shutil.copy(folder / "q.onnx", folder / "copy.onnx")
    quick = ["--effort", "0", "--threads", "1"]
    for args in (["build", "q.onnx", "-o", "copy.onnx", *quick], ["build", "q.onnx", "-o", "e.octavo", *quick], ["build", "q.onnx", "-o", "/dev/null", *quick, "--exportLayerInfo", "/dev/null"],
                 ["build", "q.onnx", "-o", "e.octavo", "--effort", "1", "--threads", "1", "--timing-cache", "new.txt"], ["rebuild", "--all", "e.octavo"],
                 ["run", "q.onnx", "--input", "x.npy", "-o", "-", "--format", "json", *quick]):
        done = octavo(*args, folder=folder)
        assert done.returncode == 0, (args, done.stderr)


EMPTY = [("build q.onnx -o e", "--sign"), ("build q.onnx -o e", "--calibration"), ("build q.onnx -o e", "--timing-cache"), ("quantize f.onnx --data x.npy -o e.octavo", "--sign"),
         ("rebuild e.octavo", "--verify"), ("rebuild --all e.octavo", "--sign"), ("run e.octavo --input x.npy", "--labels"), ("convert q.onnx --approximate", "--to-table"),
         *((f"{command} e.octavo{more}", "--verify") for command, more in (("run", " --input x.npy"), ("bench", ""), ("profile", ""), ("explain", ""), ("view", " -o p.html"), ("check", " q.onnx"),
                                                                          ("eval", " --data x.npy")))]


@pytest.mark.parametrize("line, option", EMPTY, ids=[f"{line} {option}" for line, option in EMPTY])
def test_an_empty_value_is_refused(line, option, folder):
    """As two words and as one; before the next argument is taken for the value."""
    before = contents(folder)
    for given in ([option, ""], [f"{option}="], [f"{option}=", "--threads", "1"]):
        done = octavo(*line.split(), *given, folder=folder)
        assert done.returncode == 2 and done.stderr.startswith(f"error: {option}: the value is empty (a shell variable that is not set?)\n"), (given, done.stderr)
        assert contents(folder) == before
