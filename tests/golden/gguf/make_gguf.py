#!/usr/bin/env python3
"""Writes blocks.gguf: blocks of every type that qf decodes beside the values the reference gives them, and rows beside the
blocks the reference makes of them. Also one metadata value of every type.

  <type>.blocks   random and extreme bytes (scales finite)      <type>.f32     what `gguf` decodes
  encode.f32      rows of floats                                encode.<type>  what `gguf` encodes

usage: make_gguf.py OUT.gguf        needs: numpy, gguf (made with gguf 0.19.0, numpy 2.4.6)
"""
import sys
import numpy as np
from gguf import GGMLQuantizationType as T, GGUFWriter, GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "MXFP4": [], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_XS": [0], "F16": [0], "BF16": []}
rng = np.random.default_rng(20261201)


def blocks(kind):
    elements, size = GGML_QUANT_SIZES[T[kind]]
    count = 5 if elements == 256 else 12 if elements == 32 else 64
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    raw[0], raw[1], raw[2] = 0, 255, 0x80
    for at in HALVES[kind]:  # scales: finite, of all sizes, subnormal and negative ones, too
        half = (rng.standard_normal(count) * 10.0 ** rng.integers(-7, 3, count)).astype(np.float16)
        half[1], half[2] = 65504, -2 ** -24
        raw[:, at:at + 2] = half.view(np.uint8).reshape(count, 2)
    if kind == "BF16": raw[:, 1] &= 0xbf  # no NaN
    return raw


def rows():
    x = (rng.standard_normal((16, 64)) * 10.0 ** rng.integers(-6, 4, (16, 1))).astype(np.float32)
    x[0] = 0
    x[1, :] = np.arange(64) - 32             # ties in magnitude
    x[2, ::2] = 0
    x[3, :32] = 1
    x[4] = np.round(rng.standard_normal(64) * 8) / 8 + 0.0  # no -0: which zero is the minimum is numpy's affair
    x[5, 7] = -x[5].max() * 50               # an outlier
    x[6, :] = -0.0
    x[7, :] = np.linspace(-1.5, 1.5, 64)
    return np.clip(x, -60000, 60000)


w = GGUFWriter(sys.argv[1], "none")
w.add_uint8("t.u8", 200), w.add_int8("t.i8", -100), w.add_uint16("t.u16", 60000), w.add_int16("t.i16", -30000)
w.add_uint32("t.u32", 4000000000), w.add_int32("t.i32", -2000000000), w.add_float32("t.f32", 1.5), w.add_bool("t.bool", True)
w.add_string("t.string", "a string, ümlaut"), w.add_uint64("t.u64", 2 ** 64 - 1), w.add_int64("t.i64", -2 ** 62)
w.add_float64("t.f64", 1e-300), w.add_array("t.strings", ["", "one", "zwei"]), w.add_array("t.integers", [1, -2, 3])
w.add_array("t.reals", [0.5, -0.25]), w.add_array("t.bools", [True, False])
for kind in HALVES:
    raw = blocks(kind)
    elements = GGML_QUANT_SIZES[T[kind]][0]
    if elements == 1: raw = raw.reshape(1, -1)
    w.add_tensor(kind.lower() + ".blocks", raw, raw_dtype=T[kind])
    value = dequantize(raw, T[kind]).astype(np.float32)
    assert not np.isnan(value).any(), kind
    w.add_tensor(kind.lower() + ".f32", value)
x = rows()
w.add_tensor("encode.f32", x)
for kind in ("F16", "BF16", "Q4_0", "Q4_1", "Q8_0"):
    w.add_tensor("encode." + kind.lower(), quantize(x, T[kind]).view(np.uint8), raw_dtype=T[kind])
w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
