"""Every option of every command is given once, with a value that must change what is said or be refused: no option is dropped silently. An option
of --help without a row here fails, and so does a row whose text also comes without the option."""
import dataclasses
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
QDQ, FP32, LABELS = DIGITS / "digits_qdq.onnx", DIGITS / "digits_fp32.onnx", DIGITS / "labels.txt"
ONE = "image:1x1x16x16"
ENGINE_COMMANDS = ("run", "bench", "profile", "explain", "view", "check", "eval")
MODEL_COMMANDS = (*ENGINE_COMMANDS, "build", "doctor", "advise", "quantize")
COMMANDS = (*MODEL_COMMANDS, "convert", "rebuild", "cache show", "cache diff", "cache merge", "cache pin", "cache unpin", "cache prune")
NAMES_IN_HELP = re.compile(r"^  +((?:-\w,)?--?[\w-]+(?:,--\w+)*)(?: |$)", re.M)
TYPES_IN_HELP = re.compile(r"^  +((?:-\w,)?--?[\w-]+(?:,--\w+)*) (\S.*?)(?:  |$)", re.M)
# What options take that are no numbers, as --help names it. A word that is not here is a number's.
TEXTS = {"FILE", "FILE|DIR", "FOLDER", "PATH", "NAME", "LEVEL", "RULE", "CHOICE", "PATTERN=TYPE", "NAME=FORMAT", "NAME=N", "FORMATS", "FORMAT", "TYPE", "KEY", "TEXT", "PUBLIC.pem",
         "PRIVATE.pem", "ENGINE", "demand|permit", "file|rebuild", "LAYOUT"}


@dataclasses.dataclass
class Row:
    """`says`: what comes on stdout or stderr with these arguments, and does not without them. `drop`: options of the base that are left out.
    `base`: arguments of both."""
    args: list
    says: str
    drop: tuple = ()
    base: list = dataclasses.field(default_factory=list)
    hides: str = ""  # what comes without these arguments only


@dataclasses.dataclass
class Unseen:
    """An option whose effect no text shows; why."""
    why: str


def octavo(*args):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("options")
    np.save(path / "x.npy", np.full((1, 1, 16, 16), 0.5, np.float32))
    (path / "data").mkdir()
    for source in sorted((DIGITS / "images").glob("*.png"))[:3]:
        shutil.copy(source, path / "data" / source.name)
    (path / "arrays").mkdir()
    shutil.copy(path / "x.npy", path / "arrays")
    (path / "ranges.json").write_text('{"image": 1.0}')
    (path / "empty.txt").write_text("")
    assert octavo("build", FP32, "-o", path / "e.octavo", "--shapes", ONE, "--effort", "0", "--threads", "1")[0] == 0
    assert octavo("build", FP32, "-o", path / "t.octavo", "--shapes", ONE, "--effort", "1", "--threads", "1", "--timing-cache", path / "times.txt")[0] == 0
    return path


# The command line that each row adds to: {option: value} and positionals. FOLDER is the test's.
COMMON = {"--shapes": ONE, "--effort": "0", "--threads": "1"}
PICTURE = "FOLDER/data"
BASE = {
    "build": ([FP32], {"-o": "FOLDER/out.octavo", **COMMON}), "run": ([FP32], {"--input": "FOLDER/x.npy", **COMMON}),
    "bench": ([FP32], {"--seconds": "0.01", **COMMON}), "profile": ([FP32], {"--runs": "1", **COMMON}), "explain": ([FP32], COMMON),
    "view": ([FP32], {"-o": "FOLDER/out.html", **COMMON}), "check": ([FP32], COMMON), "doctor": ([FP32], COMMON), "advise": ([QDQ], COMMON),
    "quantize": ([FP32], {"--data": PICTURE, "-o": "FOLDER/out.onnx", "--scale": "1/255", "--shapes": ONE, "--threads": "1", "--rounding": "nearest", "--no-measure": None}),
    "eval": ([FP32], {"--data": PICTURE, "--scale": "1/255", **COMMON}), "convert": ([QDQ], {"--to-table": "FOLDER/out.cache", "--approximate": None}),
    "rebuild": (["FOLDER/e.octavo"], {}), "cache show": (["FOLDER/times.txt"], {}), "cache diff": (["FOLDER/times.txt", "FOLDER/times.txt"], {}),
    "cache merge": (["FOLDER/merged.txt", "FOLDER/times.txt"], {}), "cache pin": (["FOLDER/times.txt"], {"--tactic": "nosuch", "--match": "float"}),
    "cache unpin": (["FOLDER/times.txt"], {"--match": "float"}), "cache prune": (["FOLDER/times.txt"], {}),
}
TIMED = Row(["--effort", "1", "--timing-cache", "FOLDER/empty.txt", "--strict-timing"], "strict timing: the timing cache has no time", drop=("--effort",))
BAD_PICTURE = {"--preset": "nosuch", "--resize": "nosuch", "--crop": "nosuch", "--letterbox": "nosuch", "--scale": "nosuch", "--mean": "nosuch", "--std": "nosuch"}
NOT_AN_ENGINE = "applies to engine files"

SHARED = {
    "--help": Row(["--help"], "Usage: octavo"),
    "--onnx": Row(["--onnx", "absent.onnx"], "absent.onnx", drop=("MODEL",)),
    "--shapes": Row(["--shapes", "nosuch:1x2"], "nosuch", drop=("--shapes",)),
    "--values": Row(["--values", "nosuch=1"], "nosuch"),
    "--max-elements": Row(["--max-elements", "nosuch=4"], "nosuch"),
    "--optShapes": Row(["--optShapes", "nosuch:1x2"], "nosuch", drop=("--shapes",)),
    "--minShapes": Row(["--minShapes", "image:2x1x16x16"], "min <= opt <= max"),
    "--maxShapes": Row(["--maxShapes", "image:1x1x8x8"], "min <= opt <= max"),
    "--batch": Row(["--batch", "3"], "--batch 3"),
    "--threads": Unseen("results do not depend on it; bench says it"),
    "--device": Row(["--device", "nosuch"], 'device "nosuch" is not known'),
    "--gpu": Row(["--gpu", "nosuch"], 'no GPU "nosuch" is known'),
    "--cpu": Row(["--cpu", "nosuch"], "nosuch"),
    "--disable": Row(["--disable", "nosuch"], "nosuch"),
    "--force": Row(["--force", "nosuch"], "nosuch"),
    "--effort": TIMED, "--timing-cache": Row(["--effort", "1", "--timing-cache", "/absent/x"], "/absent/x", drop=("--effort",)), "--strict-timing": TIMED,
    "--calibration": Row(["--calibration", "absent.json"], "absent.json"),
    "--qdq": Unseen("what it does depends on times; refused beside engine files, below"),
    "--precision": Row(["--precision", "nosuch"], "is not PATTERN=TYPE"),
    "--bind": Row(["--bind", "nosuch"], "is not NAME=FORMAT"),
    "--inputIOFormats": Row(["--inputIOFormats", "nosuch"], "nosuch"),
    "--outputIOFormats": Row(["--outputIOFormats", "nosuch"], "nosuch"),
    "--verify": Row(["--verify", "absent.pem"], NOT_AN_ENGINE), "--code": Row(["--code", "rebuild"], NOT_AN_ENGINE),
    "--no-upgrade": Row(["--no-upgrade"], NOT_AN_ENGINE),
    "--max-error": Unseen("a float model has nothing to keep in float32; refused beside engine files, below"),
    "--allow": Row(["--allow", "nosuch"], "nosuch"),
    "--verbose": Row(["--verbose"], "s] "),
    "--bgr": Row(["--bgr"], "--bgr has no effect"), "--layout": Row(["--layout", "nhwc"], "--layout nhwc has no effect"),
    **{name: Row([name, value], value, drop=(name,)) for name, value in BAD_PICTURE.items()},
    # of profiles
    "--runs": Row(["--runs", "3"], "nothing is measured"),
    "--exportProfile": Row(["--exportProfile", "/absent/x"], "/absent/x"), "--exportLayerInfo": Row(["--exportLayerInfo", "/absent/x"], "/absent/x"),
    "--exportTimes": Row(["--exportTimes", "/absent/x"], "/absent/x"), "--exportOutput": Row(["--exportOutput", "/absent/x"], "/absent/x"),
    "--exportMetadata": Row(["--exportMetadata", "/absent/x"], "/absent/x"),
    "--separateProfileRun": Row(["--separateProfileRun"], "note: --separateProfileRun has no effect"),
    "--dumpProfile": Row(["--dumpProfile"], "region (tactic)"), "--dumpLayerInfo": Row(["--dumpLayerInfo"], '"Layers"'),
    "--profilingVerbosity": Row(["--profilingVerbosity", "none"], "note: --profilingVerbosity none has no effect"),
}
NO_PICTURE = {name: Row([name, "1"], f"{name} 1 has no effect") for name in BAD_PICTURE if name not in ("--preset", "--layout")} | {
    "--preset": Row(["--preset", "torch"], "--preset torch has no effect")}
ROWS = {
    "build": {"--output": Row(["-o", "/absent/x"], "/absent/x", drop=("-o",)), "--data": Row(["--data", "/absent"], "/absent"),
              "--no-model": Row(["--no-model"], "", hides="(its model"), "--sign": Row(["--sign", "absent.pem"], "absent.pem"),
              "--bgr": Row(["--bgr", "--scale", "nosuch"], "nosuch"), "--layout": Row(["--layout", "nhwc"], "it belongs to a preprocessing")},
    "run": {"--input": Row(["--input", "nosuch=x.npy"], 'the model has no input "nosuch"', drop=("--input",)),
            "--output": Row(["-o", "x.nosuch"], "the ending says the format"), "--format": Row(["--format", "nosuch"], "nosuch"),
            "--labels": Row(["--labels", "absent.txt"], "absent.txt"), "--top": Row(["--top", "10", "--format", "npy"], "--top 10 has no effect"),
            "--debug-memory": Row(["--debug-memory"], "memory:"), "--count-nonfinite": Row(["--count-nonfinite"], "no NaN"), **NO_PICTURE},
    "bench": {"--threads": Row(["--threads", "3"], "3 threads", drop=("--threads",)), "--seconds": Row(["--seconds", "-1"], "--seconds: Value -1 not in range", drop=("--seconds",)),
              "--noDataTransfers": Unseen("of GPUs; on a CPU there are no transfers, as --help says"), "--regions": Row(["--regions"], "conv1"),
              "--region-key": Row(["--region-key", "nosuch"], "--region-key"), "--percentile": Row(["--percentile", "12.5"], "p12.5"),
              "--input": Row(["--input", "nosuch=x.npy"], 'the model has no input "nosuch"'), "--runs": Row(["--runs", "4000"], "(4000 runs)"),
              "--json": Row(["--json"], "median_ms"), **NO_PICTURE},
    "profile": {"--input": Row(["--input", "nosuch=x.npy"], 'the model has no input "nosuch"'), "--runs": Row(["--runs", "7"], "of 7", drop=("--runs",)),
                "--dumpProfile": Unseen("profile prints the table anyway"), **NO_PICTURE},
    "explain": {"--region": Row(["--region", "nosuch"], "nosuch"), "--tensor": Row(["--tensor", "nosuch"], "nosuch"), "--node": Row(["--node", "nosuch"], "nosuch"),
                "--all": Row(["--all", "--json"], "--all has no effect"), "--copies": Row(["--copies", "--json"], "--copies has no effect"),
                "--laws": Row(["--laws", "--roundings"], "--laws has no effect"), "--roundings": Row(["--roundings"], "", hides="ONNX nodes"),
                "--build-without": Row(["--build-without", "x.octavo"], "--roundings"), "--build-without-all": Row(["--build-without-all", "x.octavo"], "--roundings"),
                "--json": Row(["--json"], '"plan_hash"'), "--html": Row(["--html", "/absent/x"], "/absent/x")},
    "view": {"--output": Row(["-o", "/absent/x"], "/absent/x", drop=("-o",)), "--beside": Row(["--beside", "absent.onnx"], "absent.onnx"),
             "--beside-calibration": Row(["--beside-calibration", "x"], "--beside-calibration"), "--profile": Row(["--profile", "--verbose"], "time 20 runs"),
             "--runs": Row(["--runs", "3"], "nothing is measured"), "--graph": Row(["--graph", "absent.onnx"], "absent.onnx"),
             "--accuracy": Row(["--accuracy", "absent.json"], "absent.json"), "--beside-accuracy": Row(["--beside-accuracy", "x"], "--beside-accuracy")},
    "check": {"--against": Row(["--against", "onnxruntime", "--picture", "x.svg"], "--picture"), "--atol": Row(["--atol", "1"], "are for two models"),
              "--rtol": Row(["--rtol", "1"], "are for two models"), "--from-model": Row(["--from-model", "--allow", "int8"], "--from-model"),
              "--input": Row(["--input", "nosuch=x.npy"], 'the model has no input "nosuch"'), "--seed": Row(["--seed", "77"], "--seed 77"),
              "--data": Row(["--data", "/absent"], "/absent"), "--samples": Row(["--samples", "2"], "--samples 2 has no effect"),
              "--picture": Row(["--picture", "x.svg"], "--picture"), "--json": Row(["--json"], '"first_divergence"'), **NO_PICTURE},
    "doctor": {"--minmax": Row(["--minmax", "x"], "--minmax"), "--data": Row(["--data", "/absent"], "/absent"), "--picture": Row(["--picture", "x.svg"], "--picture"),
               "--no-nodes": Row(["--no-nodes", "--json"], "--no-nodes has no effect"), "--system": Row(["--system"], "--system"), "--json": Row(["--json"], '"findings"'),
               "--values": Row(["--values", "k=1"], "--values k=1 has no effect"), **NO_PICTURE},
    "advise": {"--apply": Row(["--apply", "/absent/x"], "/absent/x"), "--ranges": Row(["--ranges", "absent.json"], "absent.json"),
               "--errors": Unseen("of changes that pay: with estimated times none does here"), "--most": Unseen("the same; tests/cli/test_advise.py has both"), "--device": Row(["--device", "cuda"], "--device cuda has no effect"),
               "--values": Row(["--values", "k=1"], "--values k=1 has no effect")},
    "quantize": {"--data": Row(["--data", "/absent"], "/absent", drop=("--data",)), "--output": Row(["-o", "/absent/x.onnx"], "/absent/x.onnx", drop=("-o",)),
                 "--method": Row(["--method", "nosuch"], "nosuch"), "--percentile": Row(["--percentile", "99"], "--percentile 99 has no effect"),
                 "--activations": Row(["--activations", "asymmetric", "-o", "FOLDER/x.cache"], "--activations asymmetric", drop=("-o", "--rounding")),
                 **{name: Row([name, *value, "-o", "FOLDER/x.cache"], f"{name}{' ' if value else ''}{''.join(value)} has no effect", drop=("-o", "--rounding"))
                    for name, value in {"--weights": ["minmax"], "--rounding": ["nearest"], "--no-equalization": [], "--no-bias-correction": [], "--stages": ["2"], "--gains": []}.items()},
                 "--float-model": Row(["--float-model", "x.onnx"], "--float-model"), "--min-sqnr": Row(["--min-sqnr", "20", "-o", "FOLDER/x.cache"], "--min-sqnr", drop=("-o", "--rounding")),
                 "--max-drop": Row(["--max-drop", "1%"], "--max-drop"), "--labels": Row(["--labels", "x"], "--labels x has no effect"),
                 "--metric": Row(["--metric", "top1"], "--metric top1 has no effect"), "--min-layer-sqnr": Row(["--min-layer-sqnr", "199"], "below 199 dB (--min-layer-sqnr)", drop=("--no-measure",)),
                 "--curve": Row(["--curve", "x.svg"], "--curve"), "--placement": Row(["--placement", "nosuch"], "nosuch"),
                 "--header": Row(["--header", "8510-MinMaxCalibration"], "--header 8510-MinMaxCalibration has no effect"),
                 "--no-measure": Row([], "(on the calibration data)", drop=("--no-measure",)), "--report": Row(["--report", "/absent/x"], "/absent/x"),
                 "--values": Row(["--values", "k=1"], "--values k=1 has no effect"), "--bgr": Row(["--bgr"], "no picture", drop=("--data",), base=["--data", "FOLDER/arrays"]),
                 "--layout": Row(["--layout", "nhwc"], "in NCHW or NHWC order"),
                 **{name: Row([name, *value], f"{name}{' ' if value else ''}{''.join(value)} has no effect: it applies to engines") for name, value in {
                     "--sign": ["x"], "--device": ["cpu"], "--cpu": ["portable"], "--disable": ["x"], "--force": ["x"], "--effort": ["1"], "--timing-cache": ["x"], "--strict-timing": [],
                     "--calibration": ["x"], "--qdq": ["permit"], "--precision": ["a=int8"], "--bind": ["a=int8"], "--inputIOFormats": ["int8:chw"], "--outputIOFormats": ["int8:chw"],
                     "--max-error": ["0.1"]}.items()},
                 "--allow": Row(["--allow", "int8"], "--allow int8")},
    "eval": {"--bgr": Row(["--bgr"], "--bgr has no effect", drop=("--data", "--scale"), base=["--data", "FOLDER/arrays"]), "--layout": Row(["--layout", "nhwc"], "in NCHW or NHWC order"), "--data": Row(["--data", "/absent"], "/absent", drop=("--data",)), "--labels": Row(["--labels", "absent.txt"], "absent.txt"),
             "--metric": Row(["--metric", "nosuch"], "nosuch"), "--json": Row(["--json", "/absent/x"], "/absent/x"), "--save": Row(["--save", "/proc/absent"], "/proc/absent")},
    "convert": {"--to-table": Row(["--to-table", "/absent/x"], "/absent/x", drop=("--to-table",)), "--float-model": Row(["--float-model", "/absent/x"], "/absent/x"),
                "--json": Row(["--json", "/absent/x"], "/absent/x"), "--header": Row(["--header", "nosuch"], "nosuch"),
                "--approximate": Row(["--approximate", "--from-table", "x"], "--to-table", drop=("--to-table", "--approximate")),
                "--from-table": Row(["--from-table", "absent.json"], "--from-table", drop=("--to-table", "--approximate")),
                "--qdq-model": Row(["--qdq-model", "x"], "--from-table"), "--placement": Row(["--placement", "inputs"], "--from-table")},
    "rebuild": {"--all": Row(["--all"], "rebuilt"), "--dry-run": Row(["--all", "--dry-run"], "would be"), "--timing-cache": Row(["FOLDER/t.octavo", "--all", "--timing-cache", "/absent/x"], "/absent/x"),
                "--verify": Row(["--verify", "absent.pem"], "absent.pem"), "--sign": Row(["--sign", "absent.pem"], "absent.pem"),
                "--sign-unsigned": Row(["--sign-unsigned"], "--sign-unsigned requires --sign"), "--verbose": Unseen("says the steps of builds; nothing is built again here")},
    "cache show": {"--match": Row(["--match", "nosuch"], "0 of ")}, "cache diff": {}, "cache merge": {},
    "cache pin": {"--key": Row(["--key", "nosuch"], "no key of this machine fits", drop=("--match",)), "--match": Row(["--match", "nosuch"], "no key of this machine fits", drop=("--match",)),
                  "--threads": Row(["--threads", "77"], "no key of this machine fits"), "--tactic": Row([], "--tactic", drop=("--tactic",))},
    "cache unpin": {"--key": Row(["--key", "nosuch"], "no key of this machine fits", drop=("--match",)), "--match": Row(["--match", "nosuch"], "no key of this machine fits", drop=("--match",)),
                    "--threads": Row(["--threads", "77"], "no key of this machine fits")},
    "cache prune": {"--other-devices": Row(["--other-devices"], "times.txt"), "--other-versions": Row(["--other-versions"], "times.txt"),
                    "--keep-keys-of": Row(["--keep-keys-of", "absent.octavo"], "absent.octavo")},
}


def options_of(command):
    """The first long name of each option that --help lists."""
    code, text = octavo(*command.split(), "--help")
    assert code == 0
    return [next(n for n in names.split(",") if n.startswith("--")) for names in NAMES_IN_HELP.findall(text.split("\nPositionals")[-1])]


def row_of(command, option):
    return ROWS[command].get(option) or SHARED.get(option)


def line(command, row, given):
    positionals, options = BASE[command]
    out = [*command.split(), *([] if "MODEL" in row.drop else positionals), *row.base]
    for name, value in options.items():
        if given and name in row.drop:
            continue
        out += [name] if value is None else [name, value]
    return out + (row.args if given else [])


def in_folder(args, folder):
    return [str(a).replace("FOLDER", str(folder)) for a in args]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_row(command):
    missing = [o for o in options_of(command) if row_of(command, o) is None]
    assert not missing, f"octavo {command}: no row in this file for {missing}"
    gone = set(ROWS[command]) - set(options_of(command))
    assert not gone, f"octavo {command} has no {gone}"


@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_that_are_none_are_refused_by_name(command, folder):
    """Every option that --help does not say takes text: "nan" and the like are no values of it."""
    _, text = octavo(*command.split(), "--help")
    wrong, tried = [], 0
    for names, kind in TYPES_IN_HELP.findall(text.split("\nPositionals")[-1]):
        if re.split(r"[: ]", kind)[0] in TEXTS or "{" in kind:
            continue
        option = next(n for n in names.split(",") if n.startswith("--"))
        row = row_of(command, option)
        row = row if isinstance(row, Row) else Row([], "")
        plain = in_folder(line(command, dataclasses.replace(row, drop=(*row.drop, option)), True)[:-len(row.args) or None], folder)
        for value in ("nan", "-inf", "1e400", "", *(["-1"] if " in [" in kind or option == "--seed" else [])):
            if option == "--threads" and not value:
                continue  # trtexec's flag
            tried += 1
            code, said = octavo(*plain, f"{option}={value}")
            errors = [said_line for said_line in said.splitlines() if said_line.startswith("error: ")]
            if code != 2 or not any(name in errors[0] for name in names.split(",")):
                wrong.append(f"{option}={value}: code {code}\n{said[-300:]}")
    assert not wrong, "\n".join(wrong)
    assert tried or command in ("convert", "rebuild", "cache show", "cache diff", "cache merge", "cache prune"), "no option takes a number"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_changes_something_or_is_refused(command, folder):
    wrong = []
    without = {}
    for option in options_of(command):
        row = row_of(command, option)
        if isinstance(row, Unseen):
            continue
        plain = in_folder(line(command, row, False), folder)
        key = tuple(plain)
        if key not in without:
            without[key] = octavo(*plain)
        args = in_folder(line(command, row, True), folder)
        code, text = octavo(*args)
        if row.says not in text:
            wrong.append(f"{option}: {' '.join(args)}\n  code {code}, without {row.says!r}:\n{text[:600]}")
        elif row.says and row.says in without[key][1]:
            wrong.append(f"{option}: {row.says!r} also comes without it")
        elif row.hides and (row.hides in text or row.hides not in without[key][1]):
            wrong.append(f"{option}: {row.hides!r} still comes, or never did")
    assert not wrong, "\n".join(wrong)


BUILDING = {"--optShapes": ONE, "--minShapes": ONE, "--maxShapes": ONE, "--disable": "x", "--force": "x", "--effort": "1", "--timing-cache": "x", "--strict-timing": None,
            "--calibration": "x", "--qdq": "permit", "--precision": "conv1=int8", "--bind": "image=uint8", "--inputIOFormats": "fp32:chw", "--outputIOFormats": "fp32:chw",
            "--max-error": "0.1", "--allow": "int8"}


@pytest.mark.parametrize("command", ["run", "bench", "profile", "explain", "view", "eval"])
def test_engines_are_built_already(command, folder):
    engine = str(folder / "e.octavo")
    more = {"run": ["--input", folder / "x.npy"], "view": ["-o", folder / "v.html"], "eval": ["--data", folder / "arrays"]}.get(command, [])
    for option, value in BUILDING.items():
        given = [option] if value is None else [option, value]
        code, text = octavo(command, engine, *more, *given)
        assert code == 2 and f"error: {' '.join(given)} has no effect: it applies to builds" in text and engine in text, (given, code, text)
    code, text = octavo(command, engine, *more, "--device", "reference")
    assert code == 2 and "--device reference has no effect" in text or command == "eval", text
    # a model among the others is built: the options are for it
    if command == "eval":
        assert "absent.json" in octavo(command, engine, FP32, *more, "--calibration", "absent.json")[1]


def test_shapes_of_an_engine_file(folder):
    """trtexec's call: --shapes chooses among the engines of a file, or is refused with what there is."""
    several = folder / "several.octavo"
    code, text = octavo("build", FP32, "-o", several, "--effort", "0", "--threads", "1", "--shapes", ONE, "--shapes", "image:4x1x16x16")
    assert code == 0, text
    code, text = octavo(f"--loadEngine={several}", "--shapes=image:4x1x16x16", "--duration=0.01")
    assert code == 0 and "batch 4" in text, text
    code, text = octavo(f"--loadEngine={several}", "--shapes=image:9x1x16x16", "--duration=0.01")
    assert code != 0 and "9" in text and "image" in text, text
    code, text = octavo(f"--loadEngine={folder / 'e.octavo'}", "--shapes=image:9x1x16x16", "--duration=0.01")
    assert code != 0 and "image" in text, text
    code, text = octavo(f"--loadEngine={several}", "--optShapes=image:4x1x16x16", "--duration=0.01")
    assert code == 2 and "--optShapes image:4x1x16x16 has no effect" in text and "--shapes image:4x1x16x16" in text, text


def test_shapes_beside_a_range(folder):
    """As trtexec's: a range is built, and --shapes says which of its shapes is measured; build tunes it. Elsewhere two options for the same shapes are refused."""
    ends = ["--minShapes=image:1x1x16x16", "--optShapes=image:2x1x16x16", "--maxShapes=image:4x1x16x16"]
    call = [f"--onnx={FP32}", f"--saveEngine={folder / 'r.octavo'}", *ends, "--builderOptimizationLevel=0", "--duration=0.01"]
    for shapes in (["--shapes=image:3x1x16x16"], ["--shapes", "image:3x1x16x16"]):
        code, text = octavo(*call, *shapes)
        assert code == 0 and "for image [1,1,16,16] to [4,1,16,16]" in text and "batch 3" in text, text
    code, text = octavo(*call)
    assert code == 0 and "batch 2" in text, text
    code, text = octavo("build", FP32, "-o", folder / "r.octavo", *ends, "--shapes", ONE, "--effort", "0")
    plans = re.findall(r"[0-9a-f]{32} (image \S+)$", text, re.M)
    assert code == 0 and plans == ["image [2,1,16,16]", "image [1,1,16,16]"], text  # --shapes is tuned as well
    code, text = octavo("bench", FP32, "--shapes", ONE, "--optShapes", "image:2x1x16x16", "--effort", "0", "--seconds", "0.01")
    assert code == 2 and "--optShapes image:2x1x16x16 has no effect" in text, text
    for option in ("--minShapes", "--optShapes", "--maxShapes"):
        code, text = octavo("build", FP32, "-o", folder / "r.octavo", *(e for e in ends if not e.startswith(option)), option, "image:0", "--effort", "0")
        assert code == 2 and f'error: {option} image:0: "image:0" is not NAME:DIMxDIMx...' in text, text


def test_batch_of_a_build(folder):
    engine = folder / "eight.octavo"
    code, text = octavo("build", QDQ, "-o", engine, "--batch", "8", "--effort", "0", "--threads", "1")
    assert code == 0, text
    assert "batch 8" in octavo("bench", engine, "--seconds", "0.01")[1]
    code, text = octavo(f"--onnx={QDQ}", f"--saveEngine={engine}", "--batch=4", "--builderOptimizationLevel=0", "--duration=0.01")
    assert code == 0 and "batch 4" in text, text
    code, text = octavo("run", engine, "--input", folder / "x.npy", "--batch", "2")
    assert code == 2 and f'--batch 2: the batch of "{engine}" is fixed at 4' in text, text


def test_measuring_options_beside_skip_inference(folder):
    code, text = octavo(f"--onnx={FP32}", f"--saveEngine={folder / 's.octavo'}", "--skipInference", "--exportTimes=t.json")
    assert code == 2 and "--exportTimes=t.json has no effect" in text


def test_shapes_in_parts(folder):
    """One --shapes for each input is one set; inputs that come again make several."""
    import onnx
    from onnx import TensorProto, helper
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="product")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in (("a", ["n", 3]), ("b", [3, "m"]), ("y", ["n", "m"]))]
    model = folder / "two.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "two", values[:2], values[2:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    common = [model, "--effort", "0", "--threads", "1"]
    code, text = octavo("build", *common, "-o", folder / "two.octavo", "--shapes", "a:2x3", "--shapes", "b:3x4")
    assert code == 0 and "2 plans" not in text, text
    code, text = octavo("explain", *common, "--shapes", "a:2x3", "--shapes", "b:3x4")
    assert code == 0, text
    code, text = octavo("build", *common, "-o", folder / "two.octavo", "--shapes", "a:2x3", "--shapes", "b:3x4", "--shapes", "a:5x3")
    assert code == 2 and "these name different inputs" in text and "b:3x4" in text, text
    code, text = octavo("build", *common, "-o", folder / "two.octavo", "--shapes", "a:2x3,b:3x4", "--shapes", "a:5x3,b:3x4")
    assert code == 0 and "2 plans" in text, text
