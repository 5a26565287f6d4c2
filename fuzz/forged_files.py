"""Engine files that a hostile writer made, through the Python package: forged_files.py [--count N] [--seed S] [--only I] [NETWORK...]

A section of a good file is changed (numbers to extremes, entries removed, repeated, exchanged or of other types, texts; bytes of sections that are no JSON), the checksums are made right, and the
file is loaded and run in a process of its own, at the shapes of its range and beyond them. It is refused with an error of Octavo's, or it runs: any other exception, death of the process, more
than 2 GiB or 10 s (ten times that with OCTAVO_SLOW, for sanitizers) are a finding, printed with what repeats it. Networks: of one shape, of several shapes, of a range, with counts that data
decide, with branches that data choose, with attention, and for a GPU (up to the driver). fuzz_engine and tests/engine/forged_test.cc change plans at random, too, and less of what stands beside them.
"""
import argparse
import ctypes
import json
import os
import pathlib
import random
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper

import octavo

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 10 * (10 if os.environ.get("OCTAVO_SLOW") else 1)
MEMORY = 2 << 30
FAR = [65536, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 32, -(1 << 31), 1 << 40, 1 << 47, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 4096]
XXH = ctypes.CDLL("libxxhash.so.0")
XXH.XXH3_64bits.restype = ctypes.c_uint64
XXH.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def checksum(data):
    return XXH.XXH3_64bits(bytes(data), len(data))


def sections(file):
    """[(name, id, bytes)] of src/engine/file.h."""
    count = struct.unpack_from("<I", file, 24)[0]
    out = []
    for i in range(count):
        name, number, _, at, size, _, _ = struct.unpack_from("<24sIIQQQQ", file, 64 + 64 * i)
        out.append((name.rstrip(b"\0").decode(), number, bytes(file[at:at + size])))
    return out


def packed(parts, version):
    """The file of these sections; `version`: bytes 8 to 24 of the header."""
    at, table, body = 64 + 64 * len(parts), b"", b""
    start = at
    for name, number, data in parts:
        here = (start + len(body) + 64 + 63) // 64 * 64
        body += bytes(here - start - len(body)) + data
        table += struct.pack("<24sIIQQQQ", name.encode(), number, 0, here, len(data), checksum(data), 0)
    end = (start + len(body) + 64 + 63) // 64 * 64
    body += bytes(end - start - len(body))
    head = b"OCTAVO\0\n" + version + struct.pack("<IIQQQ", len(parts), 0, end, checksum(table), 0)
    return head + struct.pack("<Q", checksum(head)) + table + body


def value(name, dims, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def model(nodes, inputs, outputs, **constants):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    return made.SerializeToString()


def counted():
    """Rows that data select, and what is computed of them."""
    w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    node = helper.make_node
    return model([node("Greater", ["x", "half"], ["is"]), node("ReduceMax", ["x"], ["top"], axes=[1], keepdims=0), node("Greater", ["top", "half"], ["keep"]), node("NonZero", ["keep"], ["at"]),
                  node("Transpose", ["at"], ["rows"]), node("GatherND", ["x", "rows"], ["taken"]), node("MatMul", ["taken", "w"], ["m"]), node("Relu", ["m"], ["y"])],
                 [value("x", [12, 8])], [value("y", None)], half=np.float32(0.5), w=w)


def gated():
    """A branch that data choose."""
    node = helper.make_node
    w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    then = helper.make_graph([node("MatMul", ["x", "w"], ["a"]), node("Softmax", ["a"], ["then_y"])], "t", [], [value("then_y", [12, 8])])
    other = helper.make_graph([node("Relu", ["x"], ["other_y"])], "e", [], [value("other_y", [12, 8])])
    return model([node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["is"]), node("If", ["is"], ["y"], then_branch=then, else_branch=other)],
                 [value("x", [12, 8])], [value("y", [12, 8])], zero=np.float32(0), w=w)


def attention():
    """Of an open length and batch."""
    node = helper.make_node
    w = np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16)
    return model([node("MatMul", ["x", "w"], ["q"]), node("Transpose", ["q"], ["k"], perm=[0, 2, 1]), node("MatMul", ["q", "k"], ["s"]), node("Softmax", ["s"], ["p"], axis=-1),
                  node("MatMul", ["p", "x"], ["y"])], [value("x", ["N", "L", 16])], [value("y", ["N", "L", 16])], w=w)


def networks(folder):
    """(name, options of the build, inputs of runs) of each."""
    def image(n):
        return {"image": np.full((n, 1, 16, 16), 0.3, np.float32)}

    def tokens(n, length):
        return {"x": np.linspace(-1, 1, n * length * 16, dtype=np.float32).reshape(n, length, 16)}

    def made(name, data):
        (folder / f"{name}.onnx").write_bytes(data)
        return folder / f"{name}.onnx"

    digits, floats = (ROOT / f"examples/digits/digits_{form}.onnx" for form in ("qdq", "fp32"))
    rows = [{"x": np.linspace(-1, 1, 96, dtype=np.float32).reshape(12, 8)}]
    images = ["--minShapes", "image:1x1x16x16", "--optShapes", "image:4x1x16x16", "--maxShapes", "image:8x1x16x16"]
    lengths = ["--minShapes", "x:1x1x16", "--optShapes", "x:2x8x16", "--maxShapes", "x:4x24x16"]
    h100, attends = ["--gpu", "h100"], made("attention", attention())
    yield "one", [digits, "--shapes", "image:1x1x16x16"], [image(1)]
    yield "float", [floats, "--shapes", "image:1x1x16x16"], [image(1)]
    yield "several", [digits, *images, "--shapes", "image:1x1x16x16", "--shapes", "image:8x1x16x16"], [image(n) for n in (1, 3, 8)]
    yield "range", [digits, *images], [image(n) for n in (1, 3, 8, 9)]
    yield "counted", [made("counted", counted())], rows
    yield "gated", [made("gated", gated())], rows
    yield "attention", [attends, *lengths], [tokens(*dims) for dims in ((1, 1), (3, 17), (4, 24), (5, 3))]
    yield "gpu", [digits, "--shapes", "image:1x1x16x16", *h100], [image(1)]
    yield "gpu-range", [attends, *lengths, *h100], [tokens(3, 17)]


def places(j, path=""):
    """Every entry below j, as (holder, key, path)."""
    for key in (range(len(j)) if isinstance(j, list) else list(j) if isinstance(j, dict) else ()):
        yield j, key, f"{path}/{key}"
        yield from places(j[key], f"{path}/{key}")


def forge_json(text, rng):
    """(the changed text, what was changed)"""
    j = json.loads(text)
    found = list(places(j))
    if not found:
        return text, "nothing"
    holder, key, path = rng.choice(found)
    was = holder[key]
    how = rng.randrange(10)
    if isinstance(was, str) and was[:1] in "{[" and how < 8:  # JSON inside of a text
        try:
            holder[key], inner = forge_json(was, rng)
            return json.dumps(j), f"{path}: {inner}"
        except ValueError:
            pass
    if how == 0:
        del holder[key]
        return json.dumps(j), f"{path} removed"
    if how == 1:
        other, at, from_ = rng.choice(found)
        holder[key] = json.loads(json.dumps(other[at]))
        return json.dumps(j), f"{path} is what {from_} was"
    if how == 2:
        holder[key] = rng.choice([None, True, -1, 0, "", "x", [], {}, [0], 1.5, 1e300])
    elif isinstance(was, bool):
        holder[key] = not was
    elif isinstance(was, int):
        near = [was + 1, was - 1, was * 2, was // 2, was + 64, -was, was * 3, 0, 1, 2, -1, 7, 64, 255, 1000]
        holder[key] = rng.choice(FAR) if rng.randrange(3) == 0 else rng.choice(near)
    elif isinstance(was, float):
        holder[key] = rng.choice([0.0, -1.0, 1e38, 1e-45, -was])
    elif isinstance(was, str):
        at = rng.randrange(len(was) + 1)
        holder[key] = rng.choice([was[:at] + rng.choice("0123456789-,:[]{}e. %") + was[at + 1:], was[:at] + was[at + 1 + rng.randrange(4):], was[:at] + str(rng.choice(FAR)) + was[at:]])
    elif isinstance(was, list) and was:
        a, b = rng.randrange(len(was)), rng.randrange(len(was))
        rng.choice([lambda: was.pop(a), lambda: was.append(was[a]), lambda: was.__setitem__(a, was[b]), lambda: was.reverse()])()
    else:
        holder[key] = rng.choice([None, 0, "x"])
    return json.dumps(j), f"{path}: {str(was)[:60]} -> {str(holder[key])[:60]}"


def forge_bytes(data, rng):
    out = bytearray(data)
    how = rng.randrange(5)
    if how == 0:
        del out[rng.randrange(len(out) + 1):]
    elif how == 1:
        out += bytes(1 + rng.randrange(64))
    else:
        for _ in range(1 + rng.randrange(8)):
            if len(out) >= 8:
                at = rng.randrange(len(out) - 7)
                out[at:at + 8] = struct.pack("<Q", rng.choice(FAR) % 2**64) if how == 2 else struct.pack("<q", rng.choice([-1, 0, 1, 2, 7, 255]))
    return bytes(out), f"{len(data)} bytes changed"


def forge(parts, rng):
    parts, said = list(parts), []
    for _ in range(rng.choice((1, 1, 2, 3))):
        names = [n for n, _, _ in parts]
        wanted = rng.choice(sorted({*names}))  # the many constants count as one
        if rng.randrange(40) == 0:
            i = rng.randrange(len(parts))
            said.append(f"section {names[i]} removed")
            del parts[i]
            continue
        i = rng.choice([k for k, n in enumerate(names) if n == wanted])
        name, number, data = parts[i]
        try:
            text, what = forge_json(data.decode(), rng) if data[:1] in (b"{", b"[") else (None, "")
        except (ValueError, UnicodeDecodeError):
            text = None
        if text is None:
            data, what = forge_bytes(data, rng) if data else (b"x", "no longer empty")
        else:
            data = text.encode()
        parts[i] = (name, number, data)
        said.append(f"{name} {number}: {what}")
    return parts, "; ".join(said)


def try_file(data, feeds, device):
    """In a child: what became of the file."""
    try:
        engine = octavo.load(data)
    except octavo.Error as e:
        return "absent GPU" if device and "opening the GPU" in str(e) else "refused" if str(e) else "an error without a text"
    ran = 0
    for feed in feeds:
        try:
            engine.run(feed)
            ran += 1
        except octavo.Error as e:
            if not str(e):
                return "an error without a text"
    return "ran" if ran else "loaded"


def outcome(data, feeds, device):
    """(what became of it, whether that is a finding). The child's limits begin at what the parent has."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        if not os.environ.get("OCTAVO_SLOW"):
            used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("ignore")
        try:
            said = try_file(data, feeds, device)
        except BaseException as e:
            said = f"{type(e).__name__}: {e}"
        os.write(write, said.encode()[:4000])
        os._exit(0)
    os.close(write)
    ready = select.select([read], [], [], LIMIT)[0]
    said = os.read(read, 4096).decode(errors="replace") if ready else ""
    os.close(read)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not ready:
        return f"longer than {LIMIT} s", True
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name, True
    return said or f"exit code {os.WEXITSTATUS(status)}", said not in ("refused", "ran", "loaded", "absent GPU")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("networks", nargs="*")
    p.add_argument("--count", type=int, default=1000, help="files of each network")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", type=int)
    a = p.parse_args()
    findings = 0
    folder = pathlib.Path(tempfile.mkdtemp())
    for name, build, feeds in networks(folder):
        if a.networks and name not in a.networks:
            continue
        path = folder / "good.octavo"
        done = subprocess.run([sys.executable, "-m", "octavo", "build", *build, "-o", path, "--effort", "0", "--threads", "2", "--no-model"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{name}: the build failed: {done.stderr}")
        good = path.read_bytes()
        parts, version = sections(good), good[8:24]
        assert packed(parts, version) == good, f"{name}: this script does not write what src/engine/file.h says"
        device = name.startswith("gpu")
        counts, began = {}, time.monotonic()
        said = outcome(good, feeds, device)
        assert said[0] in (("absent GPU", "ran") if device else ("ran",)), said
        for i in [a.only] if a.only is not None else range(a.count):
            changed, what = forge(parts, random.Random(f"{name} {a.seed} {i}"))
            said, wrong = outcome(packed(changed, version), feeds, device)
            counts[said if not wrong else "findings"] = counts.get(said if not wrong else "findings", 0) + 1
            if wrong:
                findings += 1
                print(f"{name} --seed {a.seed} --only {i}: {said[:300]}\n    {what}", flush=True)
        print(f"{name}: {sum(counts.values())} files in {time.monotonic() - began:.0f} s: {', '.join(f'{n} {k}' for k, n in sorted(counts.items()))}", flush=True)
    shutil.rmtree(folder)
    print(f"{findings} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
