"""One folder that another machine can measure from, without network: the octavo command with its libraries, the programs of bench/,
the float models. Nothing in it depends on the processor: engines are built and measured there, models with seeded weights and
placements are made there, from ranges measured here.

The other machine needs: Linux on the same processor family (x86-64 or AArch64), Python 3.10 or later with numpy and onnx (run_there.sh installs
the wheels of --wheels where onnx is missing). Start it there with `sh DIR/run_there.sh OUT MINUTES`; again with the parity.json and times.tar.gz
of OUT put into DIR: it measures what is missing, with the same timing caches.
"""
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess

import networks
import counterparts

LIMIT = 55 << 20
SCRIPTS = ("parity.py", "place.py", "parity_table.py", "networks.py", "bundle.py", "counterparts.py", "planner.py", "figures.py", "peer.py")


SCRIPT = """#!/bin/sh
# Measures on this machine: run_there.sh OUT MINUTES [options of parity.py]; begins nothing after MINUTES, ends 75 s later. OUT gets
# parity.json with every result, times.tar.gz and parity.log. Models and engines stay in /tmp/octavo-parity, for the next call.
here=$(cd "$(dirname "$0")" && pwd); work=/tmp/octavo-parity; out=$1; minutes=$2; shift 2; mkdir -p "$out" "$work"
python3 -c 'import onnx, numpy' 2>/dev/null || { python3 -m pip install -q --no-index --no-deps --target "$work/site" "$here"/wheels/*.whl; export PYTHONPATH="$work/site"; }
if [ -f "$here/times.tar.gz" ] && [ ! -d "$work/times" ]; then tar -C "$work" -xf "$here/times.tar.gz"; fi
if [ -f "$here/parity.json" ] && [ ! -f "$out/parity.json" ]; then cp "$here/parity.json" "$out/"; fi
PYTHONUNBUFFERED=1 timeout -k 5 $((minutes * 60 + 75)) python3 "$here/bench/parity.py" --run "$here" --models "$work" --json "$out/parity.json" \\
  --minutes "$minutes" --seconds 0.1 "$@" >"$out/parity.log" 2>&1; code=$?
tar -C "$work" -czf "$out/times.tar.gz" times; tail -n 40 "$out/parity.log"; exit $code
"""


def libraries(program):
    """The shared libraries of a program, the loader too."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return sorted({pathlib.Path(p) for p in re.findall(r"(/\S+) \(0x", listing)})


def pack(source, target, kept):
    """A file, xz-compressed: target gets the ending .xz. What was packed once is in the folder `kept`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    content = source.read_bytes()
    packed = kept / f"{hashlib.sha256(content).hexdigest()}.xz"
    if not packed.exists():
        kept.mkdir(exist_ok=True)
        packed.with_suffix(".part").write_bytes(lzma.compress(content, preset=6))
        packed.with_suffix(".part").replace(packed)
    shutil.copy(packed, target.with_name(target.name + ".xz"))


def prepare(args, folder):
    """Fills `folder`; returns its size in bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bench").mkdir(parents=True)
    for name in SCRIPTS:
        shutil.copy(counterparts.ROOT / "bench" / name, folder / "bench")
    pack(pathlib.Path(args.octavo), folder / "bin/octavo", args.models / "packed")
    for library in libraries(args.octavo):
        pack(library.resolve(), folder / "bin" / library.name, args.models / "packed")
    for name in ("zoo.py", "placements.py"):
        (folder / "shared/bench").mkdir(parents=True, exist_ok=True)
        shutil.copy(counterparts.DATA / "bench" / name, folder / "shared/bench")
    for net in args.nets:
        networks.explicit_model(args, net, "inputs")  # measures the ranges
        (folder / "models").mkdir(exist_ok=True)
        shutil.copy(networks.ranges_file(args, net), folder / "models")
        if net in networks.REAL:
            model = networks.float_model(args, net)
            pack(model, folder / "models" / model.name, args.models / "packed")
    if args.wheels:
        shutil.copytree(args.wheels, folder / "wheels", ignore=lambda _, names: [n for n in names if not n.endswith(".whl")])
    (folder / "run_there.sh").write_text(SCRIPT, encoding="utf-8")
    for path in folder.rglob("*"):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    if size > LIMIT:
        raise ValueError(f"{folder}: {size / 2**20:.1f} MiB; {LIMIT / 2**20:.0f} MiB may travel: leave networks out with --nets")
    return size


def unpack(folder, work):
    """The models of a prepared folder, and its octavo command, in `work`: a script that runs it with its own libraries."""
    home = work / "bin"
    home.mkdir(parents=True, exist_ok=True)
    for path in sorted((folder / "bin").iterdir()):
        target = home / path.stem  # always: the folder may hold an older command
        target.write_bytes(lzma.decompress(path.read_bytes()))
        target.chmod(0o755)
    for path in (folder / "models").iterdir():
        target = work / path.name.removesuffix(".xz")
        if not target.exists():
            target.write_bytes(lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes())
    loader = next(p for p in home.iterdir() if p.name.startswith("ld-linux"))
    command = home / "run-octavo"
    command.write_text(f'#!/bin/sh\nexec "{loader}" --library-path "{home}" "{home / "octavo"}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return command


def digest(path):
    """A few digits that tell two octavo commands apart, and the instructions that OCTAVO_CPU caps it at: engines and times of one are not the other's."""
    path = pathlib.Path(path)
    binary = path.with_name("octavo") if path.name == "run-octavo" else path
    return hashlib.sha256(binary.read_bytes()).hexdigest()[:8] + os.environ.get("OCTAVO_CPU", "")
