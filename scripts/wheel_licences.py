"""Puts the licences of the libraries that auditwheel copied into a wheel beside them: wheel_licences.py WHEEL FOLDER [ROOT]

Each library's Debian package has them in /usr/share/doc/PACKAGE/copyright, of the system in ROOT where it is given (a wheel for another processor).
The wheel with them goes to FOLDER. Fails when a library's package or
its licence is not found: a wheel without them must not be given away.
"""
import pathlib
import re
import subprocess
import sys
import tempfile


# Headers that are compiled into the extension.
HEADERS = ("libcli11-dev", "nlohmann-json3-dev", "libexpected-dev", "libxxhash-dev")
HEADERS_HERE = ("libxbyak-dev",)  # of x86-64 alone


def package_of(library):
    """The Debian package of libNAME-HASH.so.N, as auditwheel named it; the file may be there under a longer version."""
    name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", library)
    for pattern in (f"*/x86_64-linux-gnu/{name}", f"*/x86_64-linux-gnu/{name}*"):
        found = subprocess.run(["dpkg-query", "-S", pattern], capture_output=True, text=True, check=False).stdout.split(":")[0]
        if found:
            return found
    sys.exit(f"error: wheel_licences: no package here has {name}")


def main():
    wheel, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    root = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else "/")
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "-m", "wheel", "unpack", "-d", work, wheel], check=True)
        (folder,) = pathlib.Path(work).iterdir()
        (info,) = folder.glob("*.dist-info")
        packages = sorted({package_of(p.name) for p in folder.glob("*.libs/*.so*")} | set(HEADERS) | set(HEADERS_HERE if len(sys.argv) == 3 else ()))
        for package in packages:
            text = root / "usr/share/doc" / package / "copyright"
            if not text.exists():
                sys.exit(f"error: wheel_licences: {text} is missing")
            (info / "licenses").mkdir(exist_ok=True)
            (info / "licenses" / f"{package}.txt").write_bytes(text.read_bytes())
        print("licences of", ", ".join(packages))
        subprocess.run([sys.executable, "-m", "wheel", "pack", "-d", out, folder], check=True)


main()
