"""The wheel of scripts/wheel.sh in an environment that has nothing else: what is in it, the command, the pages, the server, the Python tests.

Takes the newest dist/octavo-*x86_64.whl, or the one that OCTAVO_WHEEL names; with OCTAVO_LONG it is built. Skipped where there is none."""
import glob
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
QDQ = ROOT / "examples/digits/digits_qdq.onnx"
PICTURE = sorted((ROOT / "examples/digits").rglob("*.png"))[0]
LIMIT = 40 << 20  # bytes of a wheel
# What every Linux with glibc has (PEP 600), and what only the graphics driver may bring.
SYSTEM = re.compile(r"^(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d+|ld-linux-x86-64\.so\.2|libz\.so\.1)$")


def clean_environment(**more):
    """No path of this checkout, no option of Octavo's, nothing that Python takes from the environment."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OCTAVO", "PYTHON", "LD_", "VIRTUAL_ENV"))}
    return {**kept, **more}


def run(*args, code=0, **more):
    more = {"env": clean_environment(), "timeout": 900, **more}
    done = subprocess.run([*map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **more)
    assert done.returncode == code, f"{args}: {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel():
    if os.environ.get("OCTAVO_WHEEL"):
        return pathlib.Path(os.environ["OCTAVO_WHEEL"])
    if os.environ.get("OCTAVO_LONG"):
        run(ROOT / "scripts/wheel.sh", ROOT / "dist", env=dict(os.environ), timeout=7200)
    built = sorted(glob.glob(str(ROOT / "dist/octavo-*x86_64.whl")), key=os.path.getmtime)
    if not built:
        pytest.skip("no wheel is built (scripts/wheel.sh)")
    return pathlib.Path(built[-1])


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """The scripts' folder of an environment with the wheel and what pip installs with it."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, with_pip=True)
    done = subprocess.run([folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", wheel], capture_output=True, text=True,
                          check=False, timeout=600, env=clean_environment(), stdin=subprocess.DEVNULL)
    if done.returncode != 0 and "ConnectionError" in done.stderr + done.stdout:
        pytest.skip("numpy and nanobind-backend cannot be fetched here")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_tags_and_size(wheel):
    version = re.search(r"project\(octavo VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert re.fullmatch(rf"octavo-{re.escape(version)}-cp311-abi3-manylinux_2_\d+_x86_64\.whl", wheel.name)
    assert wheel.stat().st_size < LIMIT


def test_it_needs_no_library_of_the_system(wheel, tmp_path):
    """Every library that a file of the wheel names is in the wheel, or is of glibc, the compiler's runtime or zlib."""
    with zipfile.ZipFile(wheel) as z:
        z.extractall(tmp_path)
    helper = tmp_path / "octavo/octavo-nvrtc"
    files = [helper] + [p for p in tmp_path.rglob("*") if ".so" in p.name and not p.name.endswith(".txt")]
    inside, needed = {p.name for p in files}, set()
    for file in files:
        dynamic = run("readelf", "-d", file)
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        for path in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic):
            assert path.startswith("$ORIGIN"), f"{file.name} looks in {path}"
    foreign = sorted(n for n in needed - inside if not SYSTEM.match(n))
    assert len(inside) > 3 and not foreign
    licences = {p.stem for p in tmp_path.glob("*.dist-info/licenses/*.txt")}
    assert len(licences) >= len({p.name for p in tmp_path.glob("octavo.libs/*")}) - 1, licences  # some are of one package
    exports = [line.split()[-1] for line in run("nm", "-D", "--defined-only", next(tmp_path.glob("octavo/_octavo*.so"))).splitlines()]
    assert [e.split("@")[0] for e in exports] == ["PyInit__octavo"]


def test_the_command_in_an_empty_folder(bare, tmp_path):
    version = run(bare / "octavo", "--version", cwd=tmp_path)
    assert version.startswith("octavo ") and run(bare / "python", "-m", "octavo", "--version", cwd=tmp_path) == version
    assert re.search(r"\b\d\b.*%|\d", run(bare / "octavo", "run", QDQ, "--input", PICTURE, "--effort", "0", cwd=tmp_path))
    run(bare / "octavo", "view", QDQ, "--effort", "0", "-o", "page.html", cwd=tmp_path)
    assert (tmp_path / "page.html").stat().st_size > 100_000
    run(bare / "octavo", "build", QDQ, "--effort", "0", "--shapes", "image:1x1x16x16", "-o", "digits.octavo", cwd=tmp_path)
    script = ("import sys, numpy, octavo; e = octavo.load('digits.octavo'); print(e.run(numpy.zeros((1, 1, 16, 16), 'f4'))['head'].shape);"
              "print('onnx' in sys.modules)")
    assert run(bare / "python", "-c", script, cwd=tmp_path).split("\n")[:2] == ["(1, 10)", "False"]
    (helper,) = bare.parent.glob("lib/python*/site-packages/octavo/octavo-nvrtc")
    said = subprocess.run([helper], stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60, cwd=tmp_path, env=clean_environment())
    assert b"octavo-nvrtc, messages " in said.stdout, "it starts, says what it is, and ends with its input"
    system = run(bare / "octavo", "doctor", "--system", cwd=tmp_path)
    assert "oneDNN" in system and "NVRTC" in system


def test_serve_without_its_packages_says_what_to_install(bare, tmp_path):
    done = subprocess.run([bare / "octavo", "serve", QDQ], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
                          env=clean_environment())
    assert done.returncode == 2 and "pip install " in done.stderr and "[serve]" in done.stderr


@pytest.mark.skipif(not os.environ.get("OCTAVO_LONG"), reason="installs 50 MB; with OCTAVO_LONG only")
def test_serve(wheel, bare, tmp_path):
    run(bare / "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[serve]")
    with subprocess.Popen([bare / "octavo", "serve", f"digits={QDQ}", "--port", "0", "--grpc-port", "-1", "--batch", "1", "--effort", "0"],
                          stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=clean_environment()) as server:
        try:
            line = next(line for line in server.stderr if line.startswith("ready:"))
            port = re.search(r"http://127.0.0.1:(\d+)", line).group(1)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/digits", timeout=30) as answer:
                assert b'"image"' in answer.read()
        finally:
            server.terminate()
        assert server.wait(60) == 0


def test_the_python_tests_pass(bare, tmp_path):
    """With the installed package in the place of the built one. Packages that only tests need come from this interpreter."""
    probe = run(bare / "python", "-c", "import octavo, sys; print(octavo.__file__, sys.version_info[:2])").split(maxsplit=1)
    assert str(bare.parent) in probe[0]
    if probe[1].strip() != str(sys.version_info[:2]):
        pytest.skip("the environment has another Python than the tests' packages")
    folders = [p for p in sys.path if p.endswith("site-packages")]
    (next(bare.parent.glob("lib/python*/site-packages")) / "of_the_tests.pth").write_text("\n".join(folders) + "\n")
    tests = ["test_engine.py", "test_ways_in.py", "test_view.py", "test_quantizing.py", "test_fork.py", "test_onnxruntime_scripts.py"]
    if os.environ.get("OCTAVO_LONG"):
        tests = ["."]
    began = time.monotonic()
    out = run(bare / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *(ROOT / "tests/python" / t for t in tests), cwd=tmp_path,
              env=clean_environment(OCTAVO_TEST_DATA=os.environ.get("OCTAVO_TEST_DATA", ""), PYTHONDONTWRITEBYTECODE="1"))
    assert re.search(r"\d+ passed", out) and "failed" not in out, out[-2000:]
    print(f"the Python tests against the wheel: {time.monotonic() - began:.0f} s")
