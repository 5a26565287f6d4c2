"""Pictures as people have them: cut off, damaged, turned by their camera, grey, CMYK, of 16 bits, of other formats."""
import io
import os
import pathlib
import random
import struct
import subprocess
import zlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
H, W = 24, 40


def run(*args, code=0):
    done = subprocess.run([OCTAVO, "run", *map(str, args), "--threads", "1", "--effort", "0"], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code else done.stdout


def identity(folder, height, width):
    """A model that gives its input back, so that the picture can be seen as it was read."""
    path = folder / f"identity_{height}x{width}.onnx"
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, height, width]) for n in "xy"]
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")  # pixels are not negative
    onnx.save(helper.make_model(helper.make_graph([node], "identity", values[:1], values[1:]), opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pictures")


def pixels(folder, file, height=H, width=W):
    out = folder / "out.npz"
    run(identity(folder, height, width), "--input", file, "--output", out)
    return np.load(out)["y"][0].transpose(1, 2, 0)


def photo(height=H, width=W):
    y, x = np.mgrid[:height, :width]
    return np.stack([5 * x, 9 * y, 255 - 3 * x - 3 * y], -1).clip(0, 255).astype(np.uint8)


def save(path, array, **options):
    Image.fromarray(array).save(path, **options)
    return path


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 2}], ids=["baseline", "progressive", "subsampled"])
@pytest.mark.parametrize("part", [0.03, 0.1, 0.3, 0.8, 0.99])
def test_a_cut_off_jpeg_is_refused(folder, options, part):
    data = io.BytesIO()
    noise = np.random.default_rng(1).integers(0, 255, (240, 320, 3)).astype(np.uint8)
    Image.fromarray(noise).save(data, "JPEG", quality=95, **options)
    whole = data.getvalue()
    cut = folder / "cut.jpg"
    cut.write_bytes(whole[:int(part * len(whole))])
    said = run(identity(folder, 240, 320), "--input", cut, code=5)
    assert str(cut) in said and "ends early" in said
    cut.write_bytes(whole[:-2])  # the end marker alone is missing
    assert "ends early" in run(identity(folder, 240, 320), "--input", cut, code=5)
    cut.write_bytes(whole)
    assert pixels(folder, cut, 240, 320).shape == (240, 320, 3)


def test_damaged_entropy_data_is_refused(folder):
    data = io.BytesIO()
    Image.fromarray(photo(120, 160)).save(data, "JPEG", quality=90)
    good = bytearray(data.getvalue())
    start = good.index(b"\xff\xda") + 14
    good[start + 200:start + 202] = b"\xff\xd9"  # an end marker in the middle of the scan
    path = folder / "damaged.jpg"
    path.write_bytes(good)
    assert "decoding" in run(identity(folder, 120, 160), "--input", path, code=5)


def test_bytes_behind_the_end_of_a_jpeg_do_not_matter(folder):
    """Cameras and motion pictures append to the file; PIL reads them as well."""
    path = save(folder / "tail.jpg", photo(), quality=95)
    want = pixels(folder, path)
    path.write_bytes(path.read_bytes() + b"\0" * 1000)
    np.testing.assert_array_equal(pixels(folder, path), want)


@pytest.mark.parametrize("kind", ["jpg", "png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(folder, kind, orientation):
    """As Pillow's exif_transpose turns it."""
    from PIL import ImageOps
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = folder / f"turned{orientation}.{kind}"
    Image.fromarray(photo()).save(path, exif=exif, **({"quality": 95, "subsampling": 0} if kind == "jpg" else {}))
    want = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    assert want.shape[:2] == ((W, H) if orientation >= 5 else (H, W))
    got = pixels(folder, path, *want.shape[:2])
    assert np.abs(got - want.astype(np.float32)).max() <= (3 if kind == "jpg" else 0)  # decoders differ by a rounding


def test_damaged_exif_is_upright(folder):
    for exif in (b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"):
        data = io.BytesIO()
        Image.fromarray(photo()).save(data, "JPEG", quality=95, exif=exif)
        path = folder / "exif.jpg"
        path.write_bytes(data.getvalue())
        assert pixels(folder, path).shape == (H, W, 3)


def test_grey_and_palette(folder):
    grey = photo()[..., 0]
    for path in (save(folder / "grey.png", grey), save(folder / "grey.jpg", grey, quality=100)):
        got = pixels(folder, path)
        assert (got[..., 0] == got[..., 1]).all() and (got[..., 0] == got[..., 2]).all()
        assert np.abs(got[..., 0] - grey).max() <= 2
    palette = folder / "palette.png"
    Image.fromarray(photo()).quantize(16).save(palette)
    np.testing.assert_array_equal(pixels(folder, palette), np.asarray(Image.open(palette).convert("RGB")))


def png16(path, array):
    """A 16-bit PNG: Pillow writes grey ones only."""
    height, width = array.shape[:2]
    color = 2 if array.ndim == 3 else 0
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return path


def test_16_bits_become_the_upper_8(folder):
    """Not brighter: the values are no linear light unless the file says so."""
    for array in (photo(), photo()[..., 1]):
        got = pixels(folder, png16(folder / "deep.png", array.astype(np.uint16) * 257))
        want = array if array.ndim == 3 else np.repeat(array[..., None], 3, -1)
        np.testing.assert_array_equal(got, want)


def test_what_is_not_decoded_is_refused_by_name(folder):
    cmyk = folder / "cmyk.jpg"
    Image.fromarray(photo()).convert("CMYK").save(cmyk)
    assert "CMYK" in run(identity(folder, H, W), "--input", cmyk, code=5)
    for suffix, name in ((".gif", "GIF"), (".bmp", "BMP"), (".tiff", "TIFF"), (".webp", "WebP")):
        path = save(folder / f"other{suffix}", photo())
        said = run(identity(folder, H, W), "--input", path, code=5)
        assert f"a {name} picture; convert it to JPEG or PNG first" in said


def test_damaged_files_are_errors_or_pictures(folder):
    """Never a crash: bytes changed at random in headers and data."""
    seed = 7
    rng = random.Random(seed)
    for name in ("a.jpg", "a.png"):
        good = save(folder / name, photo()).read_bytes()
        for k in range(25):
            bad = bytearray(good)
            for _ in range(4):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
            path = folder / ("bad" + name)
            path.write_bytes(bad)
            done = subprocess.run([OCTAVO, "run", identity(folder, H, W), "--input", path, "--threads", "1", "--effort", "0"],
                                  capture_output=True, check=False, timeout=60)
            assert done.returncode in (0, 2, 5), f"seed {seed}, file {k}: {done.returncode} {done.stderr}"
