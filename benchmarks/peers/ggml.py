"""llama.cpp's matrix product, by the shared libraries inside llama-cpp-python. --kind Q4_0 | Q4_K | Q8_0 | ..., --buffer repack | plain."""
import ctypes as c
import glob
import importlib.util
import os

import numpy as np
import peer

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20}


def libraries():
    folder = os.path.join(os.path.dirname(importlib.util.find_spec("llama_cpp").origin), "lib")
    loaded = []
    for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
        for path in glob.glob(os.path.join(folder, name)):
            loaded.append(c.CDLL(path, mode=c.RTLD_GLOBAL))
    return loaded


class Ggml:
    """Functions by name, whichever library holds them; all pointers are void*."""

    def __init__(self):
        self.loaded = libraries()

    def __call__(self, name, result, *kinds):
        for library in self.loaded:
            try:
                f = getattr(library, name)
            except AttributeError:
                continue
            f.restype, f.argtypes = result, kinds
            return f
        raise SystemExit(f"llama.cpp's libraries have no {name}")


class InitParams(c.Structure):
    _fields_ = [("mem_size", c.c_size_t), ("mem_buffer", c.c_void_p), ("no_alloc", c.c_bool)]


class TypeTraits(c.Structure):
    _fields_ = [("type_name", c.c_char_p), ("blck_size", c.c_int64), ("blck_size_interleave", c.c_int64), ("type_size", c.c_size_t),
                ("is_quantized", c.c_bool), ("to_float", c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_int64)),
                ("from_float_ref", c.c_void_p)]


def main():
    a = peer.arguments()
    n, k, kind = a["n"], a["k"], TYPES[a["kind"]]
    g, P, I64 = Ggml(), c.c_void_p, c.c_int64
    init = g("ggml_init", P, InitParams)
    new_2d = g("ggml_new_tensor_2d", P, P, c.c_int, I64, I64)
    alloc = g("ggml_backend_alloc_ctx_tensors_from_buft", P, P, P)
    set_tensor = g("ggml_backend_tensor_set", None, P, P, c.c_size_t, c.c_size_t)
    get_tensor = g("ggml_backend_tensor_get", None, P, P, c.c_size_t, c.c_size_t)
    row_size = g("ggml_row_size", c.c_size_t, c.c_int, I64)(kind, k)
    backend = g("ggml_backend_cpu_init", P)()
    g("ggml_backend_cpu_set_n_threads", None, P, c.c_int)(backend, a["threads"])
    plain = g("ggml_backend_cpu_buffer_type", P)()
    buffer_type = plain
    if a["buffer"] == "repack":
        device = g("ggml_backend_get_device", P, P)(backend)
        registry = g("ggml_backend_dev_backend_reg", P, P)(device)
        get = g("ggml_backend_reg_get_proc_address", P, P, c.c_char_p)(registry, b"ggml_backend_dev_get_extra_bufts")
        extra = c.CFUNCTYPE(c.POINTER(P), P)(get)(device)
        name = g("ggml_backend_buft_name", c.c_char_p, P)
        found, i = {}, 0
        while extra[i]:
            found[name(extra[i]).decode()] = extra[i]
            i += 1
        if "CPU_REPACK" not in found:
            raise SystemExit(f"llama.cpp has no repacked weights here, only {list(found)}")
        buffer_type = found["CPU_REPACK"]

    # The weights, quantized by ggml itself, and what they mean in f64.
    w = np.random.default_rng(7).standard_normal((peer.ROWS, k), dtype=np.float32)
    packed = np.zeros((peer.ROWS, row_size), np.uint8)
    quantize = g("ggml_quantize_chunk", c.c_size_t, c.c_int, P, P, I64, I64, I64, P)
    if quantize(kind, w.ctypes.data, packed.ctypes.data, 0, peer.ROWS, k, None) != packed.size:
        raise SystemExit("ggml_quantize_chunk wrote another size")
    traits = g("ggml_get_type_traits", c.POINTER(TypeTraits), c.c_int)(kind).contents
    if traits.type_name.decode().lower() != a["kind"].lower():
        raise SystemExit(f"type {kind} is {traits.type_name}")
    right = np.zeros((peer.ROWS, k), np.float32)
    traits.to_float(packed.ctypes.data, right.ctypes.data, peer.ROWS * k)
    if a["kind"] == "Q4_0":  # once by hand: 32 weights are an f16 scale and 16 bytes, low nibbles first
        blocks = packed.reshape(peer.ROWS, k // 32, 18)
        scale = blocks[..., :2].copy().view(np.float16).astype(np.float32)
        codes = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1).astype(np.float32) - 8
        assert np.array_equal((codes * scale).reshape(right.shape), right)
    all_rows = peer.repeat(packed, n)
    most = max(peer.copies(all_rows.nbytes, m, a["cache"]) for m in a["ms"])
    context = init(InitParams(1 << 20, None, True))
    tensors = [new_2d(context, kind, k, n) for _ in range(most)]
    if not alloc(context, buffer_type):
        raise SystemExit("no memory for the weights")
    # The place of `extra` in a tensor: only repacked weights have it set, and setting others would crash.
    if buffer_type != plain:
        if g("ggml_tensor_overhead", c.c_size_t)() != 368:
            raise SystemExit("this ggml has another tensor layout")
        if not c.c_void_p.from_address(tensors[0] + 320).value:
            raise SystemExit(f"llama.cpp doesn't repack {a['kind']} of this shape on this CPU")
    for t in tensors:
        set_tensor(t, all_rows.ctypes.data, 0, all_rows.nbytes)

    compute = g("ggml_backend_graph_compute", c.c_int, P, P)
    works, rms = {}, {}
    for m in a["ms"]:
        used = tensors[:peer.copies(all_rows.nbytes, m, a["cache"])]
        ctx = init(InitParams(1 << 22, None, True))
        x = new_2d(ctx, 0, k, m)
        products = [g("ggml_mul_mat", P, P, P, P)(ctx, t, x) for t in used]
        graph = g("ggml_new_graph", P, P)(ctx)
        for product in products:
            g("ggml_build_forward_expand", None, P, P)(graph, product)
        if not alloc(ctx, plain):
            raise SystemExit("no memory for activations")
        values = peer.activations(m, k)
        set_tensor(x, values.ctypes.data, 0, values.nbytes)
        if compute(backend, graph) != 0:
            raise SystemExit("ggml_backend_graph_compute failed")
        y = np.zeros((m, n), np.float32)
        get_tensor(products[-1], y.ctypes.data, 0, y.nbytes)
        rms[m] = peer.relative_rms(y, values, right.astype(np.float64))
        works[m] = (lambda graph=graph: compute(backend, graph), len(used))
    peer.serve({"relative_rms": rms, "bytes": all_rows.nbytes}, works)


main()
