"""Arithmetic that gives the same bits on every machine, whatever BLAS and instruction set numpy uses.

A float64 sum is exact, hence independent of its order, when every term is a multiple of one power of two and the total stays below
2^53 of them. So operands are rounded to few enough bits below their largest magnitude before they are multiplied or summed.
"""
import numpy as np


def to_bits(a, bits):
    """Rounds a to multiples of 2^-bits of the power of two above its largest magnitude."""
    top = float(np.max(np.abs(a), initial=0.0))
    if top == 0.0:
        return a
    unit = 2.0 ** (int(np.frexp(top)[1]) - bits)
    return np.rint(a / unit) * unit


def matmul(a, b):
    """a @ b with both rounded to 19 bits: 2 * 19 bits of product and at most 2^15 terms."""
    assert a.shape[-1] <= 1 << 15
    return to_bits(a, 19) @ to_bits(b, 19)


def total(a, axis):
    """Sum over `axis` (an int or a tuple)."""
    terms = a.size // max(1, np.sum(a, axis).size)
    return np.sum(to_bits(a, 52 - int(terms).bit_length()), axis)


def exp(x):
    """e^x within 1e-11 by elementary operations, x clipped to +-60: libraries' own differ in the last bit from one processor to another."""
    x = np.clip(x, -60.0, 60.0)
    n = np.rint(x * 1.4426950408889634)
    r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10
    p = np.full_like(r, 1.0 / 479001600.0)
    for k in (39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0):
        p = p * r + 1.0 / k
    return np.ldexp(p, n.astype(np.int64))


def sigmoid(x):
    return 1.0 / (1.0 + exp(-x))
