"""One folder that another machine can measure from, without network: the octavo command with its libraries, the programs of bench/,
the float models. Nothing in it depends on the processor: engines are built and measured there, models with seeded weights and
placements are made there.

The other machine needs: Linux on the same processor family (x86-64 or AArch64), taskset, Python 3.10 or later with numpy, onnx and onnxruntime.
"""
import hashlib
import lzma
import pathlib
import re
import shutil
import stat
import subprocess

import networks
import twins

LIMIT = 55 << 20
SCRIPTS = ("parity.py", "parity_table.py", "networks.py", "bundle.py", "twins.py")


def libraries(program):
    """The shared libraries of a program, the loader too."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return sorted({pathlib.Path(p) for p in re.findall(r"(/\S+) \(0x", listing)})


def pack(source, target):
    """A file, xz-compressed: target gets the ending .xz."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_name(target.name + ".xz").write_bytes(lzma.compress(source.read_bytes(), preset=6))


def prepare(args, folder):
    """Fills `folder`; returns its size in bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bench").mkdir(parents=True)
    for name in SCRIPTS:
        shutil.copy(twins.ROOT / "bench" / name, folder / "bench")
    pack(pathlib.Path(args.octavo), folder / "bin/octavo")
    for library in libraries(args.octavo):
        pack(library.resolve(), folder / "bin" / library.name)
    for name in ("zoo.py", "placements.py"):
        (folder / "shared/bench").mkdir(parents=True, exist_ok=True)
        shutil.copy(twins.DATA / "bench" / name, folder / "shared/bench")
    for net in args.nets:
        if net in networks.REAL:
            file, _ = networks.source(net)
            if file.suffix == ".xz":
                (folder / "shared/models").mkdir(parents=True, exist_ok=True)
                shutil.copy(file, folder / "shared/models")
            else:
                pack(file, folder / "shared/models" / file.name)
    for path in folder.rglob("*"):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    if size > LIMIT:
        raise ValueError(f"{folder}: {size / 2**20:.1f} MiB; {LIMIT / 2**20:.0f} MiB may travel: leave networks out with --nets")
    return size


def unpack(folder, work):
    """The octavo command of a prepared folder, in `work`: a script that runs it with its own libraries."""
    home = work / "bin"
    home.mkdir(parents=True, exist_ok=True)
    for path in sorted((folder / "bin").iterdir()):
        target = home / path.stem
        if not target.exists():
            target.write_bytes(lzma.decompress(path.read_bytes()))
            target.chmod(0o755)
    loader = next(p for p in home.iterdir() if p.name.startswith("ld-linux"))
    command = home / "run-octavo"
    command.write_text(f'#!/bin/sh\nexec "{loader}" --library-path "{home}" "{home / "octavo"}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return command


def digest(path):
    """A few digits that tell two octavo commands apart."""
    path = pathlib.Path(path)
    binary = path.with_name("octavo") if path.name == "run-octavo" else path
    return hashlib.sha256(binary.read_bytes()).hexdigest()[:8]
