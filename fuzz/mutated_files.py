"""Mutated files through the Python package and the command: errors only. mutated_files.py [--count N] [--seed S] [KIND...]

Each of N mutations of a KIND (jpeg, png, webp, table, cache, engine) must be read, or refused with an error of Octavo's: any other exception, exit
code 70, death of the process or a case of over 10 s is a finding, printed with what repeats it (--only I). The last line of a kind has its counts.
Requests to the server are mutated by tests/serving (`make test-serving`).
"""
import argparse
import contextlib
import io
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
QDQ, FP32 = (ROOT / "examples/digits" / f"digits_{form}.onnx" for form in ("qdq", "fp32"))
EXTREMES = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"-1", b"nan", b"1e999", b"\n")
KINDS = ("jpeg", "png", "webp", "table", "cache", "engine")
LIMIT = 10  # seconds a case


def mutate(data, rng):
    """One to eight changes: bytes, bits, cuts, doubled and moved pieces, extremes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at, n = rng.randrange(len(out) + 1), rng.randrange(1, 33)
        how = rng.randrange(7)
        if how == 0 and out:
            out[min(at, len(out) - 1)] = rng.randrange(256)
        elif how == 1 and out:
            out[min(at, len(out) - 1)] ^= 1 << rng.randrange(8)
        elif how == 2:
            del out[at:at + n]
        elif how == 3:
            out[at:at] = out[at:at + n]
        elif how == 4:
            extreme = rng.choice(EXTREMES)
            out[at:at + len(extreme)] = extreme
        elif how == 5:
            out = out[:rng.randrange(len(out) + 1)]
        else:
            other = rng.randrange(len(out) + 1)
            out[at:at + n], out[other:other + n] = out[other:other + n], out[at:at + n]
    return bytes(out)


def mended(data):
    """A PNG whose checksums are right again, so that what they guard is looked at."""
    out, at = bytearray(data[:8]), 8
    while at + 12 <= len(data):
        n = min(int.from_bytes(data[at:at + 4], "big"), len(data) - at - 12)
        body = data[at + 4:at + 8 + n]
        out += n.to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
        at += 12 + n
    return bytes(out)


def pictures(kind):
    """Encoded pictures with several forms: grey, colour, progressive, palette, with transparency, EXIF."""
    from PIL import Image
    base = Image.open(sorted((ROOT / "examples/digits/images").glob("*.png"))[0])
    found = []
    for mode, more in {"jpeg": [("L", {}), ("RGB", {"progressive": True}), ("CMYK", {}), ("RGB", {"exif": b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00"})],
                       "png": [("L", {}), ("RGB", {}), ("P", {}), ("RGBA", {}), ("I;16", {})], "webp": [("RGB", {}), ("RGBA", {"lossless": True})]}[kind]:
        picture = base.convert("L").resize((40, 30))
        picture = picture.convert("I").convert("I;16") if mode == "I;16" else picture.convert(mode)
        out = io.BytesIO()
        picture.save(out, kind.upper(), **more)
        found.append(out.getvalue())
    return found


def prepare(kind, work):
    """(originals, function of the mutated bytes: what became of them)."""
    import octavo
    if kind in ("jpeg", "png", "webp"):
        engine = octavo.build(QDQ, default_batch=1, threads=1, effort=0)

        def look(data):
            made = octavo.preprocess(data, engine)
            assert made.shape == (1, 1, 16, 16)
            return "read"
        return pictures(kind), look
    if kind == "engine":
        whole = octavo.build(QDQ, default_batch=1, threads=1, effort=0).tobytes()

        def load(data):
            import numpy
            engine = octavo.load(data, 1)
            engine.run([numpy.zeros(t["shape"], t["dtype"]) for t in engine.inputs])
            return "read"
        return [whole], load
    path = work / "file"
    if kind == "table":
        shared = ROOT / os.environ.get("OCTAVO_TEST_DATA", "../shared") / "caches"
        tables = [p.read_bytes()[:20000] for p in sorted(shared.glob("*.cache"))]
        tables += [b"TRT-8601-EntropyCalibration2\nimage: 3c010a14\nhead: 3e20b2c4\n", b'{"image": 1.0, "head": 7.5, "x": 1e-30}']

        def diagnose(data):
            path.write_bytes(data)
            octavo.doctor(FP32, calibration=path)
            return "read"
        return tables, diagnose
    octavo.build(QDQ, default_batch=1, threads=1, effort=1, timing_cache=path)

    def show(data):
        path.write_bytes(data)
        code = octavo._octavo._main(["cache", "show", str(path)])
        if code not in (0, 2, 5, 7):
            raise RuntimeError(f"octavo cache show: exit code {code}")
        return "read" if code == 0 else "refused"
    return [path.read_bytes()], show


def child(kind, seed, begin, end, journal):
    """Runs cases begin to end; the journal holds the case in work, then its outcome."""
    import octavo
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # what `cache show` prints
    os.dup2(null, 2)
    with tempfile.TemporaryDirectory() as work, open(journal, "w", encoding="utf-8", buffering=1) as file:
        originals, look = prepare(kind, pathlib.Path(work))
        file.write("ready\n")
        for i in range(begin, end):
            rng = random.Random(f"{kind} {seed} {i}")
            data = mutate(rng.choice(originals), rng)
            if kind == "png" and i % 2:
                data = mended(data)
            file.write(f"{i} ")
            began = time.monotonic()
            signal.alarm(6 * LIMIT)  # a case that hangs in C++ ends the process, which is a finding as well
            try:
                said = look(data)
            except octavo.InternalError as e:
                said = f"FOUND internal error: {e}"
            except octavo.Error:
                said = "refused"
            except BaseException as e:
                said = f"FOUND {type(e).__name__}: {e}"
            if time.monotonic() - began > LIMIT:
                said = f"FOUND {time.monotonic() - began:.0f} s"
            file.write(said.replace("\n", " ") + "\n")


def run(kind, seed, count, only):
    counts, found = {"read": 0, "refused": 0}, 0
    begin, end = (0, count) if only is None else (only, only + 1)
    with tempfile.TemporaryDirectory() as work:
        journal = pathlib.Path(work, "journal")
        while begin < end:
            done = subprocess.run([sys.executable, __file__, "--child", kind, str(seed), str(begin), str(end), str(journal)], check=False)
            lines = journal.read_text().splitlines() if journal.exists() else []
            if not lines or lines[0] != "ready":
                sys.exit(f"error: {kind}: the originals cannot be read (exit code {done.returncode})")
            for line in lines[1:]:
                number, _, said = line.partition(" ")
                begin = int(number) + 1
                if said in counts:
                    counts[said] += 1
                    continue
                found += 1
                print(f"{kind}: seed {seed} case {number}: {said or f'the process ended with {done.returncode}'}\n"
                      f"  again: fuzz/mutated_files.py {kind} --seed {seed} --only {number}")
            if begin < end and len(lines) == 1:
                sys.exit(f"error: {kind}: the process ended with {done.returncode} before a case")
    print(f"{kind}: seed {seed}, {counts['read'] + counts['refused'] + found} files: {counts['read']} read, {counts['refused']} refused, {found} findings", flush=True)
    return found


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    p.add_argument("--count", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", type=int)
    a = p.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        return 1 if sum(run(kind, a.seed, a.count, a.only) for kind in a.kinds or KINDS) else 0
    return 130


if __name__ == "__main__":
    sys.exit(main())
