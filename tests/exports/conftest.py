"""What all tests of exported files share."""
import pathlib
import sys
import warnings

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
warnings.filterwarnings("ignore", category=DeprecationWarning)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A scratch folder, also the current one: exporters leave files beside them."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
