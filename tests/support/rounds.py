"""How much a test runs, as tests/support/fuzz_setting.h says for C++."""
import os

LONG = bool(os.environ.get("OCTAVO_LONG"))
FULL = LONG or bool(os.environ.get("OCTAVO_FULL"))


def rounds(few, everything, many=None):
    """`few` in `make test`, `everything` in `make test-all` (OCTAVO_FULL), `many` in `make test-long` (OCTAVO_LONG; None: as `everything`)."""
    if LONG and many is not None:
        return many
    return everything if FULL else few
