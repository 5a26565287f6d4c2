#!/usr/bin/env python3
"""The things that failed when somebody tried Octavo for the first time, each as one check of a command: scripts/ways_in.py BINARY...

Prints a line a check and a column a binary, "ok" or why not; exits 0 when the last binary passes all. Checks of the Python package run with
the package in BINARY/../../python, where a build puts it, and say "-" when there is none. tests/cli and tests/python have the details.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples/digits"
QDQ, FP32, IMAGES, LABELS = DIGITS / "digits_qdq.onnx", DIGITS / "digits_fp32.onnx", DIGITS / "images", DIGITS / "labels.txt"
QUICK = ["--effort", "0", "--threads", "1"]


class Ways:
    """One binary, and a folder to work in."""

    def __init__(self, binary, folder):
        self.binary, self.folder = pathlib.Path(binary).resolve(), pathlib.Path(folder)
        package = self.binary.parents[1] / "python"
        self.package = package if (package / "octavo").exists() else None

    def run(self, *args, **more):
        return subprocess.run([self.binary, *map(str, args)], check=False, timeout=120, text=True, errors="replace",
                              **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})

    def python(self, code, *args):
        if self.package is None:
            raise LookupError
        return subprocess.run([sys.executable, "-c", code, *map(str, args)], check=False, timeout=60, text=True, capture_output=True,
                              env={**os.environ, "PYTHONPATH": str(self.package)})

    def jpeg(self, name, **options):
        import numpy as np
        from PIL import Image
        y, x = np.mgrid[:16, :16]
        path = self.folder / name
        Image.fromarray((7 * x + 8 * y).astype(np.uint8)).save(path, **options)
        return path

    def full(self, *args):
        with open("/dev/full", "w") as full:
            return self.run(*args, stdout=full).returncode == 7


def cut_jpeg(w):
    whole = w.jpeg("a.jpg", quality=95).read_bytes()
    codes = []
    for part in (0.5, 0.8, 0.95):
        (w.folder / "cut.jpg").write_bytes(whole[:int(part * len(whole))])
        codes.append(w.run("run", QDQ, "--input", w.folder / "cut.jpg", "--scale", "1/255", *QUICK).returncode)
    return codes == [5, 5, 5]


def rotated_jpeg(w):
    from PIL import Image
    exif = Image.Exif()
    exif[0x0112] = 3
    upright = w.run("run", QDQ, "--input", w.jpeg("a.png"), "--scale", "1/255", *QUICK).stdout.splitlines()[1:]
    turned = w.run("run", QDQ, "--input", w.jpeg("b.png", exif=exif), "--scale", "1/255", *QUICK).stdout.splitlines()[1:]
    return upright != turned


def sixteen_bits(w):
    import numpy as np
    from PIL import Image
    grey = np.arange(256, dtype=np.uint16).reshape(16, 16)
    Image.fromarray((grey * 257).astype(np.uint16)).save(w.folder / "deep.png")
    Image.fromarray(grey.astype(np.uint8)).save(w.folder / "flat.png")
    deep, flat = (w.run("run", QDQ, "--input", w.folder / name, "--scale", "1/255", *QUICK).stdout.splitlines()[1:] for name in ("deep.png", "flat.png"))
    return deep == flat and len(deep) > 0


def folder_as_table(w):
    codes = [w.run("build", FP32, "-o", w.folder / "e", "--calib", w.folder, *QUICK).returncode,
             w.run("convert", FP32, "--from-table", w.folder, "--qdq-model", w.folder / "q.onnx").returncode]
    return all(code in (2, 5, 7) for code in codes)


def folder_in_python(w):
    done = w.python("import sys, octavo\ntry: octavo.build(sys.argv[1])\nexcept octavo.FileError: print('ok')", w.folder)
    return done.stdout == "ok\n"


def early(*args):
    return lambda w: (lambda done: done.returncode == 7 and "] plan" not in done.stderr)(w.run(*args, *QUICK, "--verbose"))


def wrong_type(w):
    import numpy as np
    np.save(w.folder / "x.npy", np.zeros((1, 1, 16, 16), np.int64))
    done = w.run("run", QDQ, "--input", w.folder / "x.npy", *QUICK, "--verbose")
    return done.returncode == 5 and "] plan" not in done.stderr


def forked(w):
    done = w.python("""
import os, sys, signal, numpy as np, octavo
engine = octavo.build(sys.argv[1], threads=2, effort=0, default_batch=1)
x = {"image": np.zeros((1, 1, 16, 16), np.float32)}
engine.run(x)
pid = os.fork()
if pid == 0:
    signal.alarm(10)
    engine.run(x)
    os._exit(0)
print("ok" if os.waitpid(pid, 0)[1] == 0 else "hangs")
""", QDQ)
    return done.stdout == "ok\n"


def input_folder(w):
    (w.folder / "pictures").mkdir(exist_ok=True)
    for name, source in zip(("p10.png", "p9.png"), sorted(IMAGES.glob("*.png"))):
        shutil.copy(source, w.folder / "pictures" / name)
    done = w.run("run", QDQ, "--input", w.folder / "pictures", "--scale", "1/255", "--top", "1", *QUICK)
    return [pathlib.Path(line.split()[0]).name for line in done.stdout.splitlines()] == ["p9.png", "p10.png"]


def shell_pattern(w):
    paths = sorted(IMAGES.glob("*.png"))[:3]
    done = w.run("run", QDQ, "--scale", "1/255", "--top", "1", *QUICK, "--input", *paths)
    return [line.split()[0] for line in done.stdout.splitlines()] == [str(p) for p in paths]


def outputs_by_ending(w):
    picture = next(IMAGES.glob("*.png"))
    for ending in ("json", "csv"):
        if w.run("run", QDQ, "--input", picture, "--scale", "1/255", "-o", w.folder / f"o.{ending}", *QUICK).returncode != 0:
            return False
    return picture.name in (w.folder / "o.csv").read_text() and picture.name in json.loads((w.folder / "o.json").read_text())["results"][0]["input"]


def stdin_and_stdout(w):
    with open(next(IMAGES.glob("*.png")), "rb") as picture:
        done = w.run("run", QDQ, "--input", "-", "--scale", "1/255", "-o", "-", "--format", "json", *QUICK, stdin=picture)
    return done.returncode == 0 and json.loads(done.stdout)["results"][0]["input"] == "stdin"


def batches(w):
    done = w.run("run", QDQ, "--input", *sorted(IMAGES.glob("*.png"))[:5], "--batch", "2", "--scale", "1/255", "--top", "1", *QUICK)
    return done.returncode == 0 and len(done.stdout.splitlines()) == 5


def labels(w):
    (w.folder / "few.txt").write_text("one\n")
    done = w.run("run", QDQ, "--input", next(IMAGES.glob("*.png")), "--scale", "1/255", "--labels", w.folder / "few.txt", *QUICK)
    return "warning" in done.stderr


def stored(w):
    picture = next(IMAGES.glob("*.png"))
    w.run("build", QDQ, "-o", w.folder / "s.octavo", "--scale", "1/255", *QUICK)
    got = w.run("run", w.folder / "s.octavo", "--input", picture).stdout
    return got == w.run("run", QDQ, "--input", picture, "--scale", "1/255", *QUICK).stdout != ""


def trtexec(w):
    done = w.run(f"--onnx={FP32}", f"--saveEngine={w.folder / 't.engine'}", "--int8", "--fp16", "--workspace=4096", "--builderOptimizationLevel=0", "--duration=0.05")
    return done.returncode == 0 and (w.folder / "t.engine").exists()


def python(code):
    return lambda w: w.python("import sys, numpy as np, octavo, pickle\nx = np.zeros((1, 1, 16, 16), np.float32)\n"
                              "e = octavo.build(sys.argv[1], effort=0, default_batch=1)\n" + code + "\nprint('ok')", QDQ).stdout.endswith("ok\n")


def pin_foo(w):
    w.run("build", QDQ, "-o", w.folder / "e", "--effort", "1", "--threads", "1", "--timing-cache", w.folder / "t.txt")
    return w.run("cache", "pin", w.folder / "t.txt", "--match", "w s8[10,32,1,1]", "--tactic", "foo").returncode == 2


def lesser_cpu(w):
    picture = next(IMAGES.glob("*.png"))
    built = w.run("build", QDQ, "-o", w.folder / "p.octavo", "--cpu", "portable", *QUICK).returncode
    return built == 0 and w.run("run", w.folder / "p.octavo", "--input", picture).returncode == 0


CHECKS = {
    "a JPEG that is cut off is refused": cut_jpeg,
    "EXIF orientation turns the picture": rotated_jpeg,
    "16-bit PNG is as bright as 8-bit": sixteen_bits,
    "a folder as --calib or --from-table is an error": folder_as_table,
    "a folder given to octavo.build is FileError": folder_in_python,
    "explain to a full device fails": lambda w: w.full("explain", QDQ, *QUICK),
    "explain --json to a full device fails": lambda w: w.full("explain", QDQ, "--json", *QUICK),
    "a child forked after the first run works": forked,
    "-o into an absent folder fails before the build": early("build", QDQ, "-o", "/absent/e"),
    "an unwritable --exportLayerInfo fails before the build": early("build", QDQ, "-o", "/dev/null", "--exportLayerInfo", "/absent/l.json"),
    "an input of a wrong type fails before the build": wrong_type,
    "run --input FOLDER, sorted": input_folder,
    "run --input a b c, in order": shell_pattern,
    "outputs as JSON and CSV with names": outputs_by_ending,
    "stdin and stdout": stdin_and_stdout,
    "pictures fill a batch": batches,
    "labels that do not fit are warned of": labels,
    "preprocessing is stored in the engine": stored,
    "a call as trtexec is called": trtexec,
    "Python: run([x]), load(bytes), pickle": python("e.run([x]); octavo.load(e.tobytes()).run(x); pickle.loads(pickle.dumps(e)).run((x,))"),
    "Python: wrong shapes are errors of octavo": python("try: octavo.build(sys.argv[1], shapes={'image': 5})\nexcept octavo.Error: pass\nelse: raise SystemExit"),
    "Python: InferenceSession": python("octavo.InferenceSession(sys.argv[1]).run(None, {'image': x})"),
    "cache pin --tactic foo is refused": pin_foo,
    "--cpu builds for a lesser processor": lesser_cpu,
}


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    results = {}
    for binary in sys.argv[1:]:
        for name, check in CHECKS.items():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    result = "ok" if check(Ways(binary, folder)) else "fails"
                except LookupError:
                    result = "-"
                except Exception as e:  # a check that cannot go on has failed
                    result = f"fails ({type(e).__name__})"
            results.setdefault(name, []).append(result)
    wide = max(map(len, CHECKS))
    for name, row in results.items():
        print(f"{name:<{wide}}  " + "  ".join(f"{r:<22}" for r in row).rstrip())
    last = [row[-1] for row in results.values()]
    print(f"{last.count('ok')} of {len(last)} pass" + (f", {last.count('-')} not tried" if "-" in last else ""))
    return 0 if all(r == "ok" for r in last) else 1


if __name__ == "__main__":
    sys.exit(main())
