#!/usr/bin/env python3
"""Python on qf's C face with the standard library alone, without a build step: ctypes_qf.py [CHECKPOINT]

Quantizes a matrix, multiplies with it, and lists a checkpoint's tensors. libqf.so is found by QF_LIBRARY or by the
system's search path. The struct classes mirror qf.h and may be taken as they are.
"""
import ctypes, math, os, sys
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

QF_OK, QF_F32, QF_CPU, QF_ZERO_INTEGER, QF_F16 = 0, 0, 1, 1, 1


class qf_error(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("code", c_int32), ("message", c_char * 1016)]

class qf_tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("rank", c_int32), ("shape", c_int64 * 4), ("stride", c_int64 * 4),
                ("device_type", c_int32), ("device_id", c_int32)]

qf_body = ctypes.CFUNCTYPE(None, c_void_p, c_int64)
qf_run = ctypes.CFUNCTYPE(None, c_int64, qf_body, c_void_p, c_void_p)

class qf_parallel(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("threads", c_int32), ("run", qf_run), ("user", c_void_p)]

class qf_progress_event(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("stage", c_char_p), ("item", c_char_p), ("unit", c_char_p),
                ("done", c_uint64), ("total", c_uint64)]

class qf_kernel_info(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("bits", c_int32), ("name", c_char_p), ("is_gemm", c_int32), ("accuracy", c_int32),
                ("layout", c_int32), ("runs_here", c_int32), ("m_min", c_int64), ("m_max", c_int64), ("n_step", c_int64),
                ("codes", c_uint32), ("reserved", c_uint32)]

class qf_scheme(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("bits", c_int32), ("group", c_int64), ("zero", c_int32), ("scale_dtype", c_int32)]

class qf_matrix_info(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("bits", c_int32), ("zero", c_int32), ("scale_dtype", c_int32), ("n", c_int64),
                ("k", c_int64), ("group", c_int64), ("groups", c_int64)]

class qf_quantize_options(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("method", c_char_p), ("name", c_char_p),
                ("parallel", POINTER(qf_parallel))]

class qf_pack_options(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("layout", c_int32), ("parallel", POINTER(qf_parallel))]

class qf_matmul_options(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("accuracy", c_int32), ("kernel", c_char_p), ("bias", POINTER(c_float)),
                ("parallel", POINTER(qf_parallel)), ("x_scales", POINTER(qf_tensor)), ("x_group", c_int64)]

class qf_product(ctypes.Structure):
    _fields_ = [("x", POINTER(qf_tensor)), ("w", c_void_p), ("y", POINTER(qf_tensor)), ("bias", POINTER(c_float))]

class qf_attention_options(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("scale", c_float), ("window", c_int64), ("parallel", POINTER(qf_parallel)),
                ("scratch", c_void_p)]

class qf_kv_pages(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("dtype", c_int32), ("kv_heads", c_int64), ("head_dim", c_int64), ("tokens", c_int64),
                ("page_tokens", c_int64), ("key_pages", POINTER(POINTER(c_void_p))), ("value_pages", POINTER(POINTER(c_void_p))),
                ("key_stride", POINTER(c_int64)), ("value_stride", POINTER(c_int64))]

class qf_tensor_info(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("rank", c_int32), ("name", c_char_p), ("name_size", c_size_t), ("type", c_char_p),
                ("shape", POINTER(c_int64)), ("bytes", c_uint64), ("elements", c_uint64)]

qf_progress = ctypes.CFUNCTYPE(c_int32, POINTER(qf_progress_event), c_void_p)
qf_on_token = ctypes.CFUNCTYPE(c_int32, c_int32, POINTER(c_char), c_size_t, c_void_p)

class qf_convert_options(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("overwrite", c_int32), ("recipe", c_char_p), ("method", c_char_p),
                ("scheme", POINTER(qf_scheme)), ("parallel", POINTER(qf_parallel)), ("progress", qf_progress),
                ("progress_user", c_void_p)]

class qf_chat_message(ctypes.Structure):
    _fields_ = [("role", c_char_p), ("content", c_char_p)]

class qf_model_options(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("compute", c_int32), ("accuracy", c_int32), ("reserved", c_uint32),
                ("parallel", POINTER(qf_parallel)), ("progress", qf_progress), ("progress_user", c_void_p)]

class qf_model_info(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("layers", c_int64), ("hidden", c_int64), ("heads", c_int64),
                ("kv_heads", c_int64), ("head_dim", c_int64), ("vocab", c_int64), ("context", c_int64), ("weight_bytes", c_uint64)]

class qf_generate_options(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("top_k", c_int32), ("max_tokens", c_int64), ("temperature", ctypes.c_double),
                ("top_p", ctypes.c_double), ("seed", c_uint64), ("on_token", qf_on_token), ("user", c_void_p)]


ERROR = POINTER(qf_error)
SIGNATURES = {  # status-returning functions: their arguments but for the error at the end
    "qf_quantize": [POINTER(qf_tensor), POINTER(qf_scheme), POINTER(qf_quantize_options), POINTER(c_void_p)],
    "qf_matrix_get_info": [c_void_p, POINTER(qf_matrix_info)],
    "qf_matrix_dequantize": [c_void_p, POINTER(qf_tensor)],
    "qf_weight_pack": [c_void_p, POINTER(qf_pack_options), POINTER(c_void_p)],
    "qf_matmul": [POINTER(qf_tensor), c_void_p, POINTER(qf_tensor), POINTER(qf_matmul_options)],
    "qf_checkpoint_open": [c_char_p, POINTER(c_void_p)],
    "qf_checkpoint_get_info": [c_void_p, c_int64, POINTER(qf_tensor_info)],
}


class QfError(Exception):
    pass


class Library:
    """Functions of libqf: those that can fail raise QfError instead of returning a status."""

    def __init__(self, path=None):
        self.lib = ctypes.CDLL(path or os.environ.get("QF_LIBRARY") or "libqf.so.0")
        for name, arguments in SIGNATURES.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = c_int32, arguments + [ERROR]
        for name, result, arguments in [("qf_version", c_char_p, []), ("qf_matrix_destroy", None, [c_void_p]),
                                        ("qf_weight_destroy", None, [c_void_p]), ("qf_checkpoint_destroy", None, [c_void_p]),
                                        ("qf_checkpoint_count", c_int64, [c_void_p]),
                                        ("qf_checkpoint_format", c_char_p, [c_void_p]),
                                        ("qf_tensor_matrix", None, [POINTER(qf_tensor), c_void_p, c_int32, c_int64, c_int64])]:
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments

    def call(self, name, *arguments):
        error = qf_error(ctypes.sizeof(qf_error))
        if getattr(self.lib, name)(*arguments, byref(error)) != QF_OK:
            raise QfError(error.message.decode(errors="replace"))

    def matrix(self, values, rows, columns):
        view = qf_tensor()
        self.lib.qf_tensor_matrix(byref(view), ctypes.cast(values, c_void_p), QF_F32, rows, columns)
        return view


def multiply(qf, n=48, k=160):
    """y = x * w^T with w at 4 bits; returns the relative difference to the expanded weights."""
    w, x = (c_float * (n * k))(), (c_float * k)()
    for i in range(n * k): w[i] = math.sin(0.7 * i)
    for i in range(k): x[i] = math.cos(1.3 * i)
    y, expanded = (c_float * n)(), (c_float * (n * k))()
    scheme = qf_scheme(ctypes.sizeof(qf_scheme), 4, 64, QF_ZERO_INTEGER, QF_F16)
    matrix, weight = c_void_p(), c_void_p()
    try:
        qf.call("qf_quantize", byref(qf.matrix(w, n, k)), byref(scheme), None, byref(matrix))
        qf.call("qf_matrix_dequantize", matrix, byref(qf.matrix(expanded, n, k)))
        qf.call("qf_weight_pack", matrix, None, byref(weight))
        qf.call("qf_matmul", byref(qf.matrix(x, 1, k)), weight, byref(qf.matrix(y, 1, n)), None)
    finally:
        qf.lib.qf_weight_destroy(weight)
        qf.lib.qf_matrix_destroy(matrix)
    want = [sum(x[c] * expanded[r * k + c] for c in range(k)) for r in range(n)]
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(want, y)) / sum(a * a for a in want))


def tensors(qf, path):
    checkpoint, info = c_void_p(), qf_tensor_info(ctypes.sizeof(qf_tensor_info))
    qf.call("qf_checkpoint_open", os.fsencode(path), byref(checkpoint))
    try:
        for i in range(qf.lib.qf_checkpoint_count(checkpoint)):
            qf.call("qf_checkpoint_get_info", checkpoint, i, byref(info))
            yield ctypes.string_at(info.name, info.name_size).decode(), info.type.decode(), info.shape[:info.rank]
    finally:
        qf.lib.qf_checkpoint_destroy(checkpoint)


def main():
    qf = Library()
    difference = multiply(qf)
    print(f"qf {qf.lib.qf_version().decode()}: relative difference {difference:.1e}")
    try:
        list(tensors(qf, "no/such/model"))
        sys.exit("a checkpoint that doesn't exist was opened")
    except QfError as error:
        print(f"as it should, this fails: {error}")
    for path in sys.argv[1:]:
        for name, kind, shape in tensors(qf, path): print(name, kind, shape)
    return difference > 1e-6


if __name__ == "__main__":
    sys.exit(main())
