"""Without ray both files here are skipped whole, and pytest's "no test was collected" (5) is no failure: the skips are counted by their reason."""
import importlib.util

import pytest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    if exitstatus == 5 and (importlib.util.find_spec("ray") is None or importlib.util.find_spec("ray.data") is None):
        session.exitstatus = 0
