"""Builds of the tests read and write a timing cache of their own, never the user's; tests/support can be imported."""
import os
import pathlib
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))


@pytest.fixture(scope="session", autouse=True)
def own_cache():
    with tempfile.TemporaryDirectory(prefix="octavo-test-cache-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        yield folder
