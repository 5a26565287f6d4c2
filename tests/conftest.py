"""Builds of the tests read and write a timing cache of their own, never the user's."""
import os
import tempfile

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache():
    with tempfile.TemporaryDirectory(prefix="octavo-test-cache-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        yield folder
