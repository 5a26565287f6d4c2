"""Tests marked `long` are run by `make test-serving`, the others by `make test` too."""


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes many seconds; not part of `make test` (tests/CMakeLists.txt leaves it out by -m)")
