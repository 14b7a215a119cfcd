"""What the programs of peers have in common: the weights, the check against f64, and the protocol.

A program is started with a kind of weights, a shape, several M and a number of threads. It prints a JSON line about itself. For every
line on its stdin that holds an M it runs one round and prints {"seconds": of a call}; the programs of a comparison take turns so.
"""
import json
import sys
import time

import numpy as np

ROWS = 128  # distinct rows of weights; the others repeat them, which costs no program any time


def weights(n, k, group, bits, seed=7):
    """Codes [ROWS, k] with their zero at 2^(bits-1), and f16 scales [ROWS, k / group], of normal weights."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((ROWS, k), dtype=np.float32)
    top = 2 ** (bits - 1) - 1
    blocks = w.reshape(ROWS, k // group, group)
    scales = (np.abs(blocks).max(-1) / top).astype(np.float16)
    codes = np.clip(np.rint(blocks / scales[..., None].astype(np.float32)), -top - 1, top) + top + 1
    return codes.astype(np.uint8).reshape(ROWS, k), scales


def values(codes, scales, bits):
    rows, k = codes.shape
    blocks = codes.reshape(rows, scales.shape[1], -1).astype(np.float64) - 2 ** (bits - 1)
    return (blocks * scales[..., None].astype(np.float64)).reshape(rows, k)


def repeat(rows, n):
    """rows [ROWS, ...] repeated to [n, ...]."""
    return np.ascontiguousarray(np.concatenate([rows] * -(-n // len(rows)))[:n])


def activations(m, k):
    return np.random.default_rng(11).standard_normal((m, k), dtype=np.float32)


def copies(weight_bytes, m, last_cache):
    """Enough that weights are cold: for few rows more than 4 last caches, for many the time between rounds does it."""
    if m <= 16:
        return max(1, -(-4 * last_cache // weight_bytes))
    return 2 if m <= 64 else 1


def relative_rms(y, x, w):
    """Of y [m, n] against x w^T in f64, with w [ROWS, k]."""
    rows = min(len(x), 8)
    right = x[:rows].astype(np.float64) @ w.T
    columns = min(y.shape[1], len(w))
    off = y[:rows, :columns].astype(np.float64) - right[:, :columns]
    return float(np.sqrt((off**2).sum() / (right[:, :columns] ** 2).sum()))


def serve(about, works, least=0.03):
    """works: {M: (function of one pass, calls in a pass)}. A round is as many passes as take `least` seconds."""
    about["relative_rms"] = {str(m): rms for m, rms in about["relative_rms"].items()}
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        run, calls = works[int(line)]
        passes, start = 0, time.perf_counter()
        cpu = time.process_time()
        while True:
            run()
            passes += 1
            seconds = time.perf_counter() - start
            if seconds >= least:
                break
        cpu = time.process_time() - cpu
        print(json.dumps({"seconds": seconds / passes / calls, "cpu_seconds": cpu / passes / calls}), flush=True)


def arguments():
    """--key value pairs as strings, ms as a list of numbers."""
    a = dict(zip((key[2:] for key in sys.argv[1::2]), sys.argv[2::2]))
    for key in ("n", "k", "threads", "group", "cache"):
        a[key] = int(a.get(key, 0))
    a["ms"] = [int(m) for m in a["ms"].split(",")]
    return a
