"""Numbers that callers give, checked where they come in: an error names the argument, its value and what it takes. "nan" fits no range."""
import operator
from typing import Any

from ._errors import UsageError

MOST_THREADS = 1024  # as for --threads


def whole(name: str, value: Any, least: int, most: int, otherwise: str = "") -> int:
    """`value` as an integer; of a type that is one (no float, no text). `otherwise`: what else may be given (", or None")."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise UsageError(f"{name}={value!r}: give a whole number from {least} to {most}{otherwise}")
    return number


def real(name: str, value: Any, least: float, most: float, otherwise: str = "") -> float:
    """`value` as a float in this range."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not least <= number <= most:
        raise UsageError(f"{name}={value!r}: give a number from {least:g} to {most:g}{otherwise}")
    return number


def thread_count(threads: Any, what: str = "") -> int:
    """For the compiled module: 0 is its default. `what`: the function, for messages ("quantize: ")."""
    return 0 if threads is None else whole(f"{what}threads", threads, 1, MOST_THREADS, ", or None for every core")
