"""octavo rebuild, signatures, and engine files of other versions, as their user sees them."""
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ = ROOT / "examples/digits/digits_qdq.onnx"
PICTURE = sorted((ROOT / "examples/digits/images").glob("*.png"))[0]
FAST = ("--effort", "0", "--threads", "1")


def octavo(*args, code=0):
    """stdout and stderr of a run that must end with `code`."""
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def xxh3(data):
    """XXH3-64 of 33 to 64 bytes, seed 0: the checksum of an engine file's header."""
    secret = bytes.fromhex("b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c")
    low = (1 << 64) - 1

    def fold(at, key):
        a, b = struct.unpack_from("<QQ", data, at)
        c, d = struct.unpack_from("<QQ", secret, key)
        product = (a ^ c) * (b ^ d)
        return (product & low) ^ (product >> 64)
    n = len(data)
    h = n * 0x9E3779B185EBCA87 + fold(16, 32) + fold(n - 32, 48) + fold(0, 0) + fold(n - 16, 16)
    h &= low
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & low
    return h ^ h >> 32


def written_by(path, major, minor, patch, fmt=None):
    """The file as another version of Octavo would have written it."""
    data = bytearray(path.read_bytes())
    assert struct.unpack_from("<Q", data, 56)[0] == xxh3(bytes(data[:56])), "the header's checksum is not what this test takes it for"
    struct.pack_into("<III", data, 12, major, minor, patch)
    if fmt is not None:
        struct.pack_into("<I", data, 8, fmt)
    struct.pack_into("<Q", data, 56, xxh3(bytes(data[:56])))
    path.write_bytes(data)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("built") / "digits.octavo"
    octavo("build", QDQ, "-o", path, *FAST)
    return path


@pytest.fixture
def old(built, tmp_path):
    path = tmp_path / "old.octavo"
    shutil.copy(built, path)
    written_by(path, 0, 0, 9)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make keys with")
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", folder / f"{name}.pem"], check=True, capture_output=True)
        subprocess.run(["openssl", "pkey", "-in", folder / f"{name}.pem", "-pubout", "-out", folder / f"{name}.pub"], check=True, capture_output=True)
    return folder


def test_an_old_file_runs_with_a_warning_and_is_left_as_it_is(built, old):
    before = old.read_bytes()
    want, _ = octavo("run", built, "--input", PICTURE)
    got, said = octavo("run", old, "--input", PICTURE)
    assert got == want
    assert said.count("warning: ") == 1 and "built by Octavo 0.0.9 (file format 4)" in said and f"octavo rebuild {old} builds it once" in said
    assert old.read_bytes() == before
    _, said = octavo("run", old, "--no-upgrade", "--input", PICTURE, code=6)
    assert "it was built by Octavo 0.0.9" in said and "octavo rebuild" in said


def test_a_fleet_is_rebuilt(built, old, tmp_path):
    fleet = tmp_path / "fleet"
    (fleet / "below").mkdir(parents=True)
    shutil.copy(built, fleet / "current.octavo")
    for place in (fleet / "a.octavo", fleet / "below" / "b.engine", fleet / "damaged.octavo"):
        shutil.copy(old, place)
    damaged = bytearray((fleet / "damaged.octavo").read_bytes())
    at = bytes(damaged).find(QDQ.read_bytes()[:64])
    assert at > 0, "the model is in the file"
    damaged[at + 1000] ^= 1
    (fleet / "damaged.octavo").write_bytes(damaged)
    (fleet / "notes.txt").write_text("no engine")
    current = (fleet / "current.octavo").read_bytes()

    out, _ = octavo("rebuild", "--dry-run", fleet)
    assert out.count("would be rebuilt") == 3 and (fleet / "a.octavo").read_bytes() == old.read_bytes()
    out, said = octavo("rebuild", fleet, code=6)
    assert "2 rebuilt, 1 left as they are, 1 failed" in out and "damaged.octavo" in said and "damaged: section" in said
    assert (fleet / "damaged.octavo").read_bytes() == damaged, "what fails stays"
    assert (fleet / "current.octavo").read_bytes() == current
    assert (fleet / "a.octavo").read_bytes() == built.read_bytes(), "the same model, options and version: the same bytes"
    for path in (fleet / "a.octavo", fleet / "below" / "b.engine"):
        _, said = octavo("run", path, "--input", PICTURE)
        assert "warning" not in said
    _, said = octavo("rebuild", tmp_path / "keys-not-here", code=7)
    (tmp_path / "empty").mkdir()
    _, said = octavo("rebuild", tmp_path / "empty", code=2)
    assert "holds no engine file" in said


def test_a_real_file_of_an_earlier_build(tmp_path):
    """Written by an Octavo of the same version whose softmax kernel was of version 1 (a model of one Softmax, --cpu portable): it runs with a warning, and is rebuilt."""
    path, x = tmp_path / "softmax.octavo", np.random.default_rng(1).normal(size=(2, 40)).astype(np.float32)
    shutil.copy(ROOT / "tests/cli/files/softmax-of-2026-11-25.octavo", path)
    np.save(tmp_path / "x.npy", x)
    want = np.exp(x) / np.exp(x).sum(1, keepdims=True)

    def run(code=0, *more):
        out, said = octavo("run", path, *more, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npz", code=code)
        return said
    assert "cpu.softmax.block.portable is of version 1" in run(4, "--no-upgrade")
    assert "with kernels that this Octavo" in run() and "octavo rebuild" in run()
    np.testing.assert_allclose(next(iter(np.load(tmp_path / "y.npz").values())), want, rtol=1e-5)
    out, _ = octavo("rebuild", path)
    assert "rebuilt (its kernels were those of another build; now Octavo" in out
    assert "warning" not in run()
    np.testing.assert_allclose(next(iter(np.load(tmp_path / "y.npz").values())), want, rtol=1e-5)
    assert "current" in octavo("rebuild", path)[0]


def test_a_later_file_is_refused_by_version(built, tmp_path):
    path = tmp_path / "later.octavo"
    for version in ((9, 0, 0), (0, 99, 0, 4), (0, 1, 0, 77)):
        shutil.copy(built, path)
        written_by(path, *version)
        _, said = octavo("run", path, "--input", PICTURE, code=6)
        assert f"it was built by Octavo {'.'.join(map(str, version[:3]))}" in said and "is later than this Octavo" in said
        _, said = octavo("rebuild", path, code=6)
        assert "is later than this Octavo" in said


def test_without_its_model(tmp_path, built):
    path = tmp_path / "small.octavo"
    octavo("build", QDQ, "-o", path, "--no-model", *FAST)
    assert path.stat().st_size + QDQ.stat().st_size <= built.stat().st_size <= path.stat().st_size + QDQ.stat().st_size + 2048
    out, _ = octavo("explain", path)
    assert "without its model" in out and "not signed" in out
    written_by(path, 0, 0, 9)
    for command in (("run", path, "--input", PICTURE), ("rebuild", path)):
        _, said = octavo(*command, code=2 if command[0] == "rebuild" else 6)
        assert "build it again" in said


def test_explain_says_who_built_it(built):
    out, _ = octavo("explain", built)
    assert "engine file: built by Octavo " in out and "holds its model (" in out
    out, _ = octavo("explain", built, "--json")
    version = octavo("--version")[0].split()[1]
    assert f'"built_by": "{version}"' in out
    _, said = octavo("run", QDQ, "--verify", "x", "--input", PICTURE, code=2)
    assert "applies to engine files" in said


def test_signatures(keys, tmp_path, built):
    path = tmp_path / "signed.octavo"
    octavo("build", QDQ, "-o", path, "--sign", keys / "mine.pem", *FAST)
    want, _ = octavo("run", built, "--input", PICTURE)
    assert octavo("run", path, "--verify", keys / "mine.pub", "--input", PICTURE)[0] == want
    assert octavo("run", path, "--input", PICTURE)[0] == want, "nobody has to verify"
    assert "; signed" in octavo("explain", path)[0]
    for file, key, part in ((path, "other.pub", "was signed by the key"), (built, "mine.pub", "is not signed"), (path, "mine.pem", "a private one")):
        _, said = octavo("run", file, "--verify", keys / key, "--input", PICTURE, code=2 if key == "mine.pem" else 6)
        assert part in said
    changed = bytearray(path.read_bytes())
    at = bytes(changed).find(QDQ.read_bytes()[:64])
    changed[at + 1000] ^= 1  # in the model, which a load does not read: the signature covers it too
    path.write_bytes(changed)
    octavo("run", path, "--input", PICTURE)
    _, said = octavo("run", path, "--verify", keys / "mine.pub", "--input", PICTURE, code=6)
    assert "changed after it was signed" in said
    _, said = octavo("build", QDQ, "-o", tmp_path / "none", "--sign", keys / "mine.pub", *FAST, code=2)
    assert "private key is a public one" in said and not (tmp_path / "none").exists(), "before the build"


def test_signed_files_are_not_rebuilt_unsigned(keys, tmp_path):
    path = tmp_path / "signed.octavo"
    octavo("build", QDQ, "-o", path, "--sign", keys / "mine.pem", *FAST)
    before = path.read_bytes()
    _, said = octavo("rebuild", "--all", path, code=2)
    assert "it is signed" in said and path.read_bytes() == before
    octavo("rebuild", "--all", "--verify", keys / "mine.pub", "--sign", keys / "mine.pem", path)
    octavo("run", path, "--verify", keys / "mine.pub", "--input", PICTURE)


@pytest.fixture(scope="module")
def signed(keys, tmp_path_factory):
    """The same engine: signed by each key, and not signed."""
    folder = tmp_path_factory.mktemp("signed")
    for name in ("mine", "other"):
        octavo("build", QDQ, "-o", folder / f"{name}.octavo", "--sign", keys / f"{name}.pem", *FAST)
    octavo("build", QDQ, "-o", folder / "plain.octavo", *FAST)
    return folder


@pytest.mark.parametrize("command", ["check", "eval"])
@pytest.mark.parametrize("order", ["first", "second", "both"])
def test_every_engine_that_is_loaded_is_verified(command, order, keys, signed):
    """--verify, --code and --no-upgrade are about each engine file of a command, wherever it stands."""
    def run(engine, *more, code=0):
        files = {"first": (engine, QDQ), "second": (QDQ, engine), "both": (signed / "mine.octavo", engine)}[order]
        data = ("--data", PICTURE, "--scale", "1/255") if command == "eval" else ()
        return octavo(command, *files, *data, *(FAST if QDQ in files else FAST[2:]), *more, code=code)
    key = ("--verify", keys / "mine.pub")
    run(signed / "mine.octavo", *key)
    run(signed / "plain.octavo")
    assert "was signed by the key" in run(signed / "other.octavo", *key, code=6)[1]
    assert "it is not signed" in run(signed / "plain.octavo", *key, code=6)[1]
    assert "a private one" in run(signed / "mine.octavo", "--verify", keys / "mine.pem", code=2)[1]


@pytest.mark.parametrize("command", ["check", "eval", "view"])
def test_no_upgrade_is_about_every_engine(command, built, old, tmp_path):
    more = {"eval": ("--data", PICTURE, "--scale", "1/255"), "view": ("-o", tmp_path / "p.html")}.get(command, ())
    for files in ((QDQ, old), (old, QDQ), (built, old), (old, built)):
        named = files if command != "view" else (files[0], "--beside", files[1])
        quick = FAST if QDQ in files else FAST[2:]
        assert "is built again" in octavo(command, *named, *more, *quick)[1] or command == "view"
        _, said = octavo(command, *named, *more, *quick, "--no-upgrade", code=6)
        assert "old.octavo" in said and "Octavo 0.0.9" in said, said


def test_options_of_engine_files_need_one(tmp_path):
    for command in (("check", QDQ, QDQ), ("eval", QDQ, QDQ, "--data", PICTURE), ("view", QDQ, "--beside", QDQ, "-o", tmp_path / "p.html")):
        for option in (("--verify", "k.pub"), ("--code", "rebuild"), ("--no-upgrade",)):
            assert f"{' '.join(option)} has no effect: it applies to engine files" in octavo(*command, *option, code=2)[1]


def test_rebuild_signs_only_what_its_key_signed(keys, signed, tmp_path):
    files = {}
    for name in ("mine", "other", "plain"):
        files[name] = tmp_path / f"{name}.octavo"
        shutil.copy(signed / f"{name}.octavo", files[name])
    before = {name: path.read_bytes() for name, path in files.items()}
    key, others = ("--sign", keys / "mine.pem"), ("--verify", keys / "other.pub")

    def verified(path, public, code=0):
        return octavo("run", path, "--verify", keys / public, "--input", PICTURE, code=code)[1]
    for more in ((), ("--all",), ("--all", "--dry-run")):
        assert "signs only files that its key signed before" in octavo("rebuild", *more, *key, files["plain"], code=6)[1]
        said = octavo("rebuild", *more, *key, files["other"], code=6)[1]
        assert "was signed by the key" in said and "--verify OLD_PUBLIC.pem" in said
    assert "was signed by the key" in octavo("rebuild", "--all", *key, "--sign-unsigned", files["other"], code=6)[1]
    assert {name: path.read_bytes() for name, path in files.items()} == before, "none of them was signed"
    changed = bytearray(before["mine"])
    changed[changed.find(QDQ.read_bytes()[:64]) + 1000] ^= 1
    files["mine"].write_bytes(changed)
    assert "changed after it was signed" in octavo("rebuild", "--all", *key, files["mine"], code=6)[1]
    files["mine"].write_bytes(before["mine"])
    octavo("rebuild", "--all", *key, files["mine"])
    verified(files["mine"], "mine.pub")
    octavo("rebuild", "--all", *key, *others, files["other"])
    verified(files["other"], "mine.pub")
    out, said = octavo("rebuild", "--all", *key, "--sign-unsigned", files["plain"], files["mine"])
    assert "2 rebuilt" in out
    verified(files["plain"], "mine.pub")
    assert "requires --sign" in octavo("rebuild", "--sign-unsigned", files["plain"], code=2)[1]
    assert "--verify" in octavo("rebuild", "--sign-unsigned", *key, *others, files["plain"], code=2)[1]
    assert "private key is a public one" in octavo("rebuild", "--sign", keys / "mine.pub", files["plain"], code=2)[1]


def test_quantize_signs(keys, tmp_path):
    quick = ("--data", PICTURE, "--scale", "1/255", "--rounding", "nearest", "--no-measure", *FAST)
    fp32 = ROOT / "examples/digits/digits_fp32.onnx"
    octavo("quantize", fp32, "-o", tmp_path / "q.octavo", "--sign", keys / "mine.pem", *quick)
    octavo("run", tmp_path / "q.octavo", "--verify", keys / "mine.pub", "--input", PICTURE, "--scale", "1/255")
    octavo("run", tmp_path / "q.octavo", "--verify", keys / "other.pub", "--input", PICTURE, "--scale", "1/255", code=6)
    _, said = octavo("quantize", fp32, "-o", tmp_path / "none.octavo", "--sign", keys / "mine.pub", *quick, code=2)
    assert "private key is a public one" in said and not (tmp_path / "none.octavo").exists(), "before the work"
    _, said = octavo("quantize", fp32, "-o", tmp_path / "none.onnx", "--sign", keys / "mine.pem", "--data", PICTURE, code=2)
    assert "has no effect: it applies to engines" in said
