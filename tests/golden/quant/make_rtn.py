"""make_rtn.py OUT.json: expected round-to-nearest codes, scales and zeros, in exact rational arithmetic.
Python 3.11 and numpy 2.4 (random weights only). Written from docs/quantize.md, not from the library's code."""
import json
import struct
import sys
from fractions import Fraction

import numpy as np

def f32(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]

def bits32(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]

def values(kind):
    """All positive finite values of the scale type, ascending."""
    if kind == "F16":
        return [Fraction(float(np.array(i, dtype=np.uint16).view(np.float16))) for i in range(1, 0x7C00)]
    return [Fraction(f32(i << 16)) for i in range(0x80, 0x7F80)]  # normal bfloat16

TABLES = {k: values(k) for k in ("F16", "BF16")}

def up(kind, x):
    """The smallest value of the type that isn't below x."""
    t, lo, hi = TABLES[kind], 0, len(TABLES[kind]) - 1
    while lo < hi:
        mid = (lo + hi) // 2
        if t[mid] >= x:
            hi = mid
        else:
            lo = mid + 1
    return t[lo]

def half_even(x):
    return round(x)  # Python rounds a Fraction half to even

def group(w, bits, symmetric, kind):
    levels, lo, hi = 1 << bits, min(w), max(w)
    mid = levels // 2
    if lo == hi == 0:
        s, z = Fraction(0), mid if symmetric else 0
    elif lo == hi and abs(lo) in TABLES[kind] and not (symmetric and bits == 1 and lo > 0):
        s, z = abs(lo), mid if symmetric else (0 if lo > 0 else 1)
    elif symmetric:
        s, z = up(kind, 2 * max(abs(lo), abs(hi)) / (levels - 1)), mid
    else:
        lo, hi = min(lo, 0), max(hi, 0)
        s = up(kind, Fraction(hi - lo) / (levels - 1))
        z = min(levels - 1, half_even(-lo / s))
    codes = [z if s == 0 else min(levels - 1, max(0, half_even(x / s) + z)) for x in w]
    return codes, s, z

def main():
    rng = np.random.default_rng(1)
    cases = []
    for bits in range(1, 9):
        for symmetric in (False, True):
            for kind in ("F16", "BF16"):
                n, k, g = 2, 11, [0, 4, 5][bits % 3]
                w = (rng.standard_normal((n, k)) * [1e-6, 0.05, 40][bits % 3]).astype(np.float32)
                w[0, :4] = [0.375, 0, -2.5, 0][bits % 4]
                w = w.astype(np.float16).astype(np.float32) if bits % 2 else w
                size = g or k
                codes, scales, zeros = [], [], []
                for row in w:
                    for first in range(0, k, size):
                        c, s, z = group([Fraction(float(x)) for x in row[first : first + size]], bits, symmetric, kind)
                        codes += c
                        scales.append(bits32(float(s)))
                        zeros.append(z)
                cases.append(dict(bits=bits, group=g, symmetric=symmetric, scale=kind, n=n, k=k,
                                  weights=[bits32(float(x)) for x in w.ravel()], codes=codes, scales=scales, zeros=zeros))
    with open(sys.argv[1], "w") as out:
        out.write('{"cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")

main()
