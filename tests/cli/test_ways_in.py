"""Every check of scripts/ways_in.py on the command that was built. (Its Python checks need the package: where none is built they are not
tried.)"""
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
sys.path.insert(0, str(ROOT / "scripts"))
from ways_in import CHECKS, Ways  # noqa: E402


@pytest.mark.parametrize("name", CHECKS)
def test_way_in(name, tmp_path):
    try:
        assert CHECKS[name](Ways(OCTAVO, tmp_path))
    except LookupError:
        pytest.skip("the Python package is not built")
