"""libqf.so for the comparisons: checkpoints, tokenizers and models through the C face, with numpy arrays. On top of the bindings of
examples/ctypes_qf.py; QF_LIBRARY is the path of libqf.so. Needs: numpy."""
import ctypes, importlib.util, os, pathlib, sys
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint64, c_void_p
import numpy as np

sys.dont_write_bytecode = True
_spec = importlib.util.spec_from_file_location("ctypes_qf", pathlib.Path(__file__).resolve().parents[2] / "examples/ctypes_qf.py")
c = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(c)

c.SIGNATURES.update({
    "qf_pool_create": [c_int32, POINTER(c_void_p)],
    "qf_pool_parallel": [c_void_p, POINTER(c.qf_parallel)],
    "qf_checkpoint_read_f32": [c_void_p, c_int64, c_uint64, POINTER(c_float), c_size_t],
    "qf_matrix_load": [c_void_p, c_char_p, POINTER(c.qf_scheme), POINTER(c_void_p)],
    "qf_tokenizer_load": [c_char_p, POINTER(c_void_p)],
    "qf_tokenizer_encode": [c_void_p, c_char_p, c_size_t, c_int32, POINTER(c_int32), c_size_t, POINTER(c_size_t)],
    "qf_model_load": [c_char_p, POINTER(c.qf_model_options), POINTER(c_void_p)],
    "qf_model_get_info": [c_void_p, POINTER(c.qf_model_info)],
    "qf_sequence_create": [c_void_p, c_int64, POINTER(c_void_p)],
    "qf_model_forward": [c_void_p, c_void_p, POINTER(c_int32), c_size_t, POINTER(c.qf_tensor)],
})
qf = c.Library()
for _name in ("qf_sequence_destroy", "qf_model_destroy", "qf_tokenizer_destroy"):
    getattr(qf.lib, _name).restype, getattr(qf.lib, _name).argtypes = None, [c_void_p]


class Checkpoint:
    """Opened for as long as the program runs."""

    def __init__(self, path):
        self.handle = c_void_p()
        qf.call("qf_checkpoint_open", os.fsencode(path), byref(self.handle))
        self.infos = {}
        for i in range(qf.lib.qf_checkpoint_count(self.handle)):
            info = c.qf_tensor_info(ctypes.sizeof(c.qf_tensor_info))
            qf.call("qf_checkpoint_get_info", self.handle, i, byref(info))
            self.infos[ctypes.string_at(info.name, info.name_size).decode()] = (i, info.type.decode(), tuple(info.shape[:info.rank]))

    def read_f32(self, name):
        index, _, shape = self.infos[name]
        out = np.empty(shape, np.float32)
        qf.call("qf_checkpoint_read_f32", self.handle, index, 0, out.ctypes.data_as(POINTER(c_float)), out.size)
        return out

    def low_bit_f32(self, module):
        """A module in compressed-tensors form, expanded by qf."""
        matrix, info = c_void_p(), c.qf_matrix_info(ctypes.sizeof(c.qf_matrix_info))
        qf.call("qf_matrix_load", self.handle, module.encode(), None, byref(matrix))
        qf.call("qf_matrix_get_info", matrix, byref(info))
        out = np.empty((info.n, info.k), np.float32)
        qf.call("qf_matrix_dequantize", matrix, byref(qf.matrix(out.ctypes.data, info.n, info.k)))
        qf.lib.qf_matrix_destroy(matrix)
        return out


class Tokenizer:
    def __init__(self, path):
        self.handle = c_void_p()
        qf.call("qf_tokenizer_load", os.fsencode(path), byref(self.handle))

    def encode(self, text):
        raw = text.encode()
        ids, count = (c_int32 * (len(raw) + 16))(), c_size_t()
        qf.call("qf_tokenizer_encode", self.handle, raw, len(raw), 0, ids, len(ids), byref(count))
        return ids[:count.value]


class Model:
    """Weights expanded to float; `sequence` starts anew with reset()."""

    def __init__(self, path, context, threads=0):
        self.pool, self.handle, self.sequence, self.context = c_void_p(), c_void_p(), c_void_p(), context
        qf.call("qf_pool_create", threads, byref(self.pool))
        self.parallel = c.qf_parallel(ctypes.sizeof(c.qf_parallel))
        qf.call("qf_pool_parallel", self.pool, byref(self.parallel))
        options = c.qf_model_options(ctypes.sizeof(c.qf_model_options), parallel=ctypes.pointer(self.parallel))  # compute: f32
        qf.call("qf_model_load", os.fsencode(path), byref(options), byref(self.handle))
        info = c.qf_model_info(ctypes.sizeof(c.qf_model_info))
        qf.call("qf_model_get_info", self.handle, byref(info))
        self.vocab = info.vocab
        self.reset()

    def reset(self):
        qf.lib.qf_sequence_destroy(self.sequence)
        self.sequence = c_void_p()
        qf.call("qf_sequence_create", self.handle, self.context, byref(self.sequence))

    def eval(self, ids):
        """Logits [len(ids), vocab] of these ids behind what the sequence holds."""
        out = np.empty((len(ids), self.vocab), np.float32)
        view = qf.matrix(out.ctypes.data, len(ids), self.vocab)
        qf.call("qf_model_forward", self.handle, self.sequence, (c_int32 * len(ids))(*ids), len(ids), byref(view))
        return out
