"""Builds of the tests read and write a timing cache of their own, never the user's; tests/support can be imported; Ctrl-C is heard."""
import os
import pathlib
import signal
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))

# A shell starts its jobs in the background with SIGINT ignored, and so would be what they start: tests of Ctrl-C send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache():
    with tempfile.TemporaryDirectory(prefix="octavo-test-cache-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        yield folder
