"""Every command that a page of docs/ shows runs as it stands there, page by page, in a folder that holds the files it names.

The commands are the lines of code blocks that begin with `octavo` (or `$ octavo`, `python -m octavo`), or with `openssl`. Pages whose commands another test runs are
in ELSEWHERE with that test; a command that cannot stand alone is in CHANGED, with what runs in its place.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")).resolve() / "bin/octavo"
ELSEWHERE = {"from-pytorch.md": "tests/exports/test_doc.py", "explain.md": "tests/cli/test_explain.py", "from-trtexec.md": "tests/cli/test_trtexec.py",
             "serving.md": "tests/serving/test_serve.py", "view.md": "tests/cli/test_view.py"}
RANGE = "--minShapes image:1x1x16x16 --optShapes image:4x1x16x16 --maxShapes image:8x1x16x16"
CHANGED = {
    "octavo advise model.onnx --threads 1 --timing-cache times.txt [--errors 3] [--ranges ranges.json] [--apply faster.onnx]":
        "octavo advise model.onnx --threads 1 --timing-cache times.txt --errors 3 --apply faster.onnx",
    "octavo quantize model.onnx --data photos/ --preset torch -o model.q.onnx": "octavo quantize float.onnx --data photos/ --scale 1/255 -o model.q.onnx",
    "octavo quantize model.onnx --data photos/ --preset torch --min-sqnr 30 --allow int8,bfloat16,float32 -o model.q.onnx":
        "octavo quantize float.onnx --data photos/ --scale 1/255 --min-sqnr 40 --allow int8,bfloat16,float32 -o model.q.onnx",
    "octavo eval model.onnx model.q.onnx --data other_photos/ --preset torch --labels labels.csv":
        "octavo eval float.onnx model.q.onnx --data other_photos/ --scale 1/255 --labels labels.csv",
    "octavo doctor model.q.onnx --data photos/ --preset torch --picture error.svg":
        "octavo doctor model.onnx --data photos/ --scale 1/255 --picture error.svg",
    "octavo doctor model.onnx --calibration ranges.cache --data photos/ --preset torch":
        "octavo doctor float.onnx --calibration ranges.cache --data photos/ --scale 1/255",
    "octavo build model.onnx -o model.octavo --calibration ranges.cache": "octavo build float.onnx -o model.octavo --calibration ranges.cache",
    "octavo build model.onnx -o model.octavo --calibration ranges.cache --allow int8,float32,bfloat16 --max-error 0.02":
        "octavo build float.onnx -o model.octavo --calibration ranges.cache --allow int8,float32,bfloat16 --max-error 0.02",
    "octavo check model.onnx --against onnxruntime": "octavo check float.onnx --against onnxruntime",  # its 8-bit sums saturate without VNNI
    "octavo build encoder.onnx --minShapes ids:1x1,mask:1x1 --optShapes ids:4x128,mask:4x128 --maxShapes ids:8x512,mask:8x512 -o encoder.octavo":
        f"octavo build model.onnx {RANGE} -o encoder.octavo --effort 0",
    "octavo build encoder.onnx --minShapes ids:1x1,mask:1x1 --optShapes ids:4x128,mask:4x128 --maxShapes ids:8x512,mask:8x512 "
    "--shapes ids:1x64,mask:1x64 --shapes ids:8x512,mask:8x512 -o encoder.octavo":
        f"octavo build model.onnx {RANGE} --shapes image:1x1x16x16 --shapes image:8x1x16x16 -o encoder.octavo --effort 0",
    "octavo bench encoder.octavo --shapes ids:3x77,mask:3x77": "octavo bench encoder.octavo --shapes image:3x1x16x16 --seconds 0.1",
    "octavo bench model.onnx --device cuda --effort 1 --batch 128 --noDataTransfers": "octavo bench model.onnx --effort 1 --batch 2 --seconds 0.1",
    "octavo build model.onnx -o model.octavo --bind image=uint8:hwc,probabilities=float16": "octavo build model.onnx -o model.octavo --bind image=uint8:hwc,head=float16",
}


def commands():
    """(page, [commands in order])."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
        code = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S) + re.findall(r"^(?:    .*\n)+", text, re.M)
        found = []
        for block in code:
            for line in block.splitlines():
                line = re.sub(r"^\s*(\$ )?", "", line).split("   #")[0].rstrip()
                if re.match(r"(python -m )?octavo( -|\s[a-z])", line) or line.startswith(("KEY=$(octavo", "openssl ")):
                    found.append(line)
        if found and page.name not in ELSEWHERE:
            yield page.name, found


PAGES = list(commands())


@pytest.fixture
def folder(tmp_path):
    """The digits networks and pictures under the names that the pages use; two calibration tables of theirs."""
    digits = ROOT / "examples/digits"
    shutil.copy(digits / "digits_qdq.onnx", tmp_path / "model.onnx")
    shutil.copy(digits / "digits_qdq.onnx", tmp_path)
    shutil.copy(digits / "digits_fp32.onnx", tmp_path / "float.onnx")
    shutil.copytree(digits / "images", tmp_path / "photos")
    shutil.copytree(digits / "images", tmp_path / "other_photos")
    rows = [f"{p.name},{int(p.stem.split('_')[0])}" for p in sorted((digits / "images").glob("*.png"))]
    (tmp_path / "labels.csv").write_text("\n".join(["file,class_index", *rows]) + "\n")
    for name in ("ranges.cache", "entropy.cache", "minmax.cache"):
        done = subprocess.run([OCTAVO, "convert", "model.onnx", "--to-table", name, "--approximate"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.skipif(not OCTAVO.exists(), reason="the command is not built")
@pytest.mark.parametrize("page, found", PAGES, ids=[page for page, _ in PAGES])
def test_commands_of(page, found, folder):
    script = ["set -eo pipefail", f'octavo() {{ "{OCTAVO}" "$@"; }}']
    script += [CHANGED.get(command, command) for command in found]
    done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=folder, capture_output=True, text=True, timeout=600, check=False,
                          env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "OCTAVO_PYTHON": sys.executable})
    assert done.returncode == 0, "\n".join(script) + "\n" + done.stdout[-2000:] + done.stderr[-2000:]
    for path in folder.rglob("*.json"):
        json.loads(path.read_text())


def test_no_page_is_forgotten():
    pages = {page for page, _ in PAGES} | set(ELSEWHERE)
    assert len(PAGES) >= 8 and all((ROOT / test).exists() for page, test in ELSEWHERE.items() if (ROOT / "docs" / page).exists())
    shown = {p.name for p in (ROOT / "docs").glob("*.md") if re.search(r"^(    |\$ )?octavo (build|run|bench|check)", p.read_text(encoding="utf-8"), re.M)}
    assert shown <= pages, shown - pages


def test_every_changed_command_is_still_there():
    there = {command for _, found in PAGES for command in found}
    assert set(CHANGED) <= there, set(CHANGED) - there
