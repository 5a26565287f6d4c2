"""The wheel for 64-bit Arm: scripts/wheel_aarch64.sh builds it and tries it under qemu. Half an hour of a core: with OCTAVO_LONG only."""
import os
import pathlib
import shutil
import subprocess
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_wheel_for_arm_gives_the_bits_of_this_machine(tmp_path):
    if not os.environ.get("OCTAVO_LONG"):
        pytest.skip("half an hour of compiling; with OCTAVO_LONG only")
    for tool in ("aarch64-linux-gnu-g++", "qemu-aarch64", "debootstrap"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}")
    if not (ROOT / "build/release/bin/octavo").exists():
        pytest.skip("no build/release/bin/octavo to compare with")
    done = subprocess.run([ROOT / "scripts/wheel_aarch64.sh", tmp_path], capture_output=True, text=True, check=False, timeout=7200, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 bit-equal" in done.stdout and " 0 differ" in done.stdout, done.stdout
    assert "outputs equal those of x86_64" in done.stdout, done.stdout
    (wheel,) = tmp_path.glob("octavo-*_aarch64.whl")
    assert wheel.stat().st_size < 40 << 20
    names = zipfile.ZipFile(wheel).namelist()
    assert "octavo/_octavo.abi3.so" in names and "octavo/serve/_http2.abi3.so" in names
    assert any("libprotobuf-lite" in n for n in names if "/licenses/" in n), names
