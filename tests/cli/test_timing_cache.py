"""The timing cache through the command: the how-to of the documentation as it is written, builds at the same time, comments, and times by key alone."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ, FP32 = ROOT / "examples/digits/digits_qdq.onnx", ROOT / "examples/digits/digits_fp32.onnx"


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code > 1 else done.stdout


def entries(path):
    return [line for line in path.read_text().splitlines() if " | " in line]


def commands_of(document, heading):
    text = (ROOT / document).read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [line[4:] for line in text.splitlines() if line.startswith("    ")]


def test_how_to_force_a_tactic(tmp_path):
    """docs/timing-cache.md, command by command in one shell."""
    shutil.copy(QDQ, tmp_path / "model.onnx")
    lines = [line for line in commands_of("docs/timing-cache.md", "How to: force a tactic for one layer") if not line.startswith("#")]
    assert [line.split()[:2] for line in lines if "=" not in line.split()[0]] == [
        ["octavo", c] for c in ("build", "profile", "explain", "cache", "build", "explain", "profile", "cache")]
    script = "set -e\n" + "".join(f"echo '>>> {n}'\n{line}\n" for n, line in enumerate(lines))
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "PATH": f"{OCTAVO.parent}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    parts = re.split(r"^>>> \d+\n", done.stdout, flags=re.M)[1:]
    assert "timing: " in done.stderr, "--verbose prints the keys"
    first, second = parts[2], parts[6]  # explain before and after
    key = re.search(r"^  key +(.*)$", first, re.M).group(1)
    assert f" | {key}\n" in done.stderr and key in (tmp_path / "times.txt").read_text()
    assert "cpu.conv.u8s8.block.portable (portable code)" not in first
    assert "cpu.conv.u8s8.block.portable (portable code)" in second
    assert re.search(r"alternative +cpu.conv.u8s8.block.portable: .*pinned in the timing cache", second), second
    def median(table):
        return float(next(line for line in table.splitlines() if re.search(r"  (res1|res1 .*) \(cpu", line)).split()[1])
    assert median(parts[7]) > 2 * median(parts[1]), "a kernel without vectors is measurably slower"
    assert " pin " not in (tmp_path / "times.txt").read_text()


def test_builds_at_the_same_time_lose_nothing(tmp_path):
    """Four processes, two models, two thread counts, one file: every time that one of them took is there afterwards."""
    times = tmp_path / "times.txt"
    jobs = [(QDQ, 1), (FP32, 1), (QDQ, 2), (FP32, 2)]
    running = [subprocess.Popen([OCTAVO, "build", model, "-o", tmp_path / f"{k}.octavo", "--threads", str(threads), "--timing-cache", times, "--verbose"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for k, (model, threads) in enumerate(jobs)]
    taken = set()
    for job, (_, threads) in zip(running, jobs):
        out, err = job.communicate(timeout=300)
        assert job.returncode == 0, out + err
        own = {(f"t{threads}", *match) for match in re.findall(r"^timing: +[\d.]+ us measured +(\S+) \| (.*)$", err, re.M)}
        assert len(own) > 10
        taken |= own
    kept = {(line.split()[1], line.split(" | ")[0].split()[-1], line.split(" | ")[1]) for line in entries(times)}
    assert taken <= kept, taken - kept
    assert all(tactic.startswith("plan.") for _, tactic, _ in kept - taken), "and nothing that nobody took"
    assert sorted(p.name for p in tmp_path.iterdir() if "times" in p.name) == ["times.txt"], "no lock, no temporary is left"


def test_every_command_keeps_comments(tmp_path):
    times, other = tmp_path / "times.txt", tmp_path / "other.txt"
    octavo("build", QDQ, "-o", tmp_path / "m.octavo", "--threads", 1, "--timing-cache", times)
    octavo("build", FP32, "-o", tmp_path / "f.octavo", "--threads", 1, "--timing-cache", other)
    layer = next(r for r in json.loads(octavo("explain", tmp_path / "m.octavo", "--json"))["regions"] if r["tactic"].startswith("cpu.conv."))
    lines = times.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if line.endswith(" | " + layer["key"]) and layer["tactic"] in line)
    lines[at:at] = ["# measured on an idle machine", "# and again"]
    times.write_text("\n".join([lines[0], "# the project's times", *lines[1:], "# the end", ""]))

    def check():
        text = times.read_text().splitlines()
        below = text.index("# measured on an idle machine")
        assert text[1] == "# the project's times" and text[-1] == "# the end"
        assert text[below + 1] == "# and again" and text[below + 2].endswith(" | " + layer["key"]) and layer["tactic"] in text[below + 2]

    check()
    octavo("cache", "pin", times, "--key", layer["key"], "--tactic", "cpu.conv.u8s8.block.portable")
    check()
    octavo("build", QDQ, "-o", tmp_path / "pinned.octavo", "--threads", 1, "--timing-cache", times)
    check()
    octavo("cache", "unpin", times, "--key", layer["key"])
    check()
    octavo("cache", "merge", times, other)
    check()
    assert "0 of " in octavo("cache", "diff", times, times)
    octavo("cache", "prune", times, "--keep-keys-of", tmp_path / "m.octavo", "--other-versions", "--other-devices")
    check()
    assert {line.split(" | ")[1] for line in entries(times)} <= {r["key"] for r in json.loads(octavo("explain", tmp_path / "m.octavo", "--json"))["regions"]}


def test_show_is_a_table(tmp_path):
    times = tmp_path / "times.txt"
    octavo("build", QDQ, "-o", tmp_path / "m.octavo", "--threads", 1, "--timing-cache", times)
    octavo("cache", "pin", times, "--match", "w s8[10,32,1,1]", "--tactic", "cpu.conv.u8s8.block.portable")
    lines = octavo("cache", "show", times).splitlines()
    assert lines[0].startswith("device 1: ") and lines[0].endswith(" (this machine)")
    assert lines[-1] == f"{len(entries(times))} of {len(entries(times))} times"
    title = lines.index(next(line for line in lines if "w s8[10,32,1,1]" in line))
    assert lines[title + 1].split() == ["time", "of", "best", "pin", "device", "threads", "tactic"]
    rows = [line.split() for line in lines[title + 2:] if line][: lines[title + 2:].index("")]
    times_us = [float(r[0]) for r in rows if r[0] != "?"]
    assert times_us == sorted(times_us) and rows[0][2:4] == ["1.00", "x"]
    pinned = next(r for r in rows if "pin" in r)
    assert pinned[-1] == "cpu.conv.u8s8.block.portable" and pinned[-3:-1] == ["1", "1"]
    only = octavo("cache", "show", times, "--match", "w s8[10,32,1,1]")
    assert only.count("w s8[") == 1 and f" of {len(entries(times))} times" in only


def test_bench_needs_only_the_key(tmp_path):
    """Every key of two models can be timed without them, and offers the tactics that the model's own region has."""
    tried = 0
    for model in (QDQ, FP32):
        octavo("build", model, "-o", tmp_path / "m.octavo", "--threads", 1, "--effort", 0)
        for region in json.loads(octavo("explain", tmp_path / "m.octavo", "--json"))["regions"]:
            alone = octavo("bench", "--region-key", region["key"], "--threads", 1, "--seconds", 0.01)
            # Whether a curve replaces an activation, and with it the instructions of VBMI, depends on constants, which a key does not hold.
            # So does the estimate that chooses the parts of a staged tactic.
            plain = lambda text: re.sub(r",?vbmi=1", "", text).replace("{}", "").replace("{,", "{")
            assert region["key"] in alone and plain(region["tactic"]).split("(")[0] in plain(alone), alone
            tried += 1
        own = octavo("bench", tmp_path / "m.octavo", "--region-key", region["key"], "--seconds", 0.01)
        names = lambda text: re.findall(r"^ +[0-9.]+ us(?: \?)?  (\S+)", text, re.M)  # "?": other processes had the processor
        assert names(own) == names(alone) != [] and "(in the plan)" in own
    assert tried > 15


@pytest.mark.parametrize(
    "key, text",
    [
        ("conv u8[1,3,8,8]", "is not OPERATOR TENSORS : PROGRAM"),
        ("conv u8[1,8,4,4]nhwc w s8[4,8,1,1] : acc_i i2f #5f1c > f32[1,4,4,4]nhwc", '"#5f1c" is no operation of a program'),
        ("conv u8[1,9,4,4]nhwc w s8[4,8,1,1] : acc_i i2f > f32[1,4,4,4]nhwc", "conv"),
        ("pointwise : load_f, f32[65536,65536] > f32[65536,65536]", "more than 8 GiB"),
    ],
)
def test_bench_refuses_keys_by_name(key, text):
    error = octavo("bench", "--region-key", key, "--seconds", 0.01, code=2)
    assert error.startswith("error: --region-key: region key: ") and text in error
    assert "give the model as well" in error


def test_a_pin_names_a_tactic_of_its_key(tmp_path):
    times = tmp_path / "times.txt"
    octavo("build", QDQ, "-o", tmp_path / "m.octavo", "--threads", 1, "--effort", 1, "--timing-cache", times)
    key = next(line.split(" | ")[1] for line in entries(times) if "cpu.conv.u8s8" in line)
    said = octavo("cache", "pin", times, "--key", key, "--tactic", "cpu.conv.u8s8.blok.avx2", code=2)
    assert "cannot run this region: it is for other regions; these can: " in said and "cpu.conv.u8s8.block.portable" in said
    assert "is not a tactic" in octavo("cache", "pin", times, "--key", key, "--tactic", "foo", code=2)
    assert " pin " not in times.read_text(), "a refused pin changes nothing"
    octavo("cache", "pin", times, "--key", key, "--tactic", "cpu.conv.u8s8.block.portable")
    assert " pin cpu.conv.u8s8.block.portable | " in times.read_text()


def test_builds_without_options_agree(tmp_path):
    """The user's cache: ten builds, some while the processor is busy, one plan and one file."""
    home = tmp_path / "cache"
    env = {**os.environ, "XDG_CACHE_HOME": str(home)}

    def build(k, *more):
        subprocess.run([OCTAVO, "build", QDQ, "-o", tmp_path / f"{k}.octavo", *more], check=True, capture_output=True, timeout=300, env=env)
        return (tmp_path / f"{k}.octavo").read_bytes()

    first = build(0)
    assert (home / "octavo/timing.txt").read_text().startswith("# octavo timing cache 2\n")
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        assert all(build(k) == first for k in range(1, 6))
    finally:
        for p in busy:
            p.kill()
            p.wait()
    assert all(build(k) == first for k in range(6, 10))
    before = (home / "octavo/timing.txt").read_text()
    build(10, "--timing-cache", "none")
    assert (home / "octavo/timing.txt").read_text() == before, "none leaves the user's alone"
