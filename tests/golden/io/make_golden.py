"""Writes the golden files of this folder: make_golden.py FOLDER
Made with safetensors 0.8.0, torch 2.15.0, compressed-tensors 0.20.1, numpy 2; the same versions give the same bytes."""
import json
import pathlib
import sys

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from safetensors.torch import save_file

out = pathlib.Path(sys.argv[1])
rng = np.random.default_rng(7)

# Every element type that the package writes, and what torch reads from it.
every, values = {}, {}
for type in ("float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz "
             "int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool complex64 float4_e2m1fn_x2").split():
    dtype = getattr(torch, type)
    raw = torch.from_numpy(rng.integers(0, 256, 240, dtype=np.uint8))
    if type == "bool":
        raw = raw & 1
    every[type] = raw.view(dtype).reshape(2, -1)
    if type not in ("complex64", "float4_e2m1fn_x2"):
        values[type] = every[type].to(torch.float32)
every["empty"] = torch.zeros(0, 5, dtype=torch.bfloat16)
every["scalar"] = torch.tensor(3.5)
save_file(every, out / "every_type.safetensors", metadata={"format": "pt"})
save_file(values, out / "every_type_values.safetensors")


def padded(codes, bits):  # the order up to compressed-tensors 0.17: whole codes only in each word
    each = 32 // bits
    words = -(-codes.shape[1] // each)
    wide = np.zeros((codes.shape[0], words * each), np.uint32)
    wide[:, : codes.shape[1]] = codes
    shifts = np.arange(each, dtype=np.uint32) * bits
    return torch.from_numpy((wide.reshape(-1, words, each) << shifts).sum(-1, dtype=np.uint32).view(np.int32))


def module(name, tensors, bits, n, k, group, symmetric, scale, order=None, old=False):
    groups = 1 if group == 0 else -(-k // group)
    q = rng.integers(0, 2**bits, (n, k))
    z = np.full((n, groups), 2 ** (bits - 1)) if symmetric else rng.integers(0, 2**bits, (n, groups))
    s = torch.from_numpy(rng.uniform(0.01, 1, (n, groups)).astype(np.float32)).to(scale)
    of = np.arange(k) // (group or k)
    if order:
        of = rng.permutation(of)
        tensors[name + ".weight_g_idx"] = torch.from_numpy(of.astype(np.int32))
    signed = lambda codes: torch.from_numpy((codes - 2 ** (bits - 1)).astype(np.int8))
    if old:
        tensors[name + ".weight_packed"] = padded(q, bits)
    else:
        tensors[name + ".weight_packed"] = pack_to_int32(signed(q), bits)
    tensors[name + ".weight_scale"] = s
    tensors[name + ".weight_shape"] = torch.tensor([n, k])
    if not symmetric:
        packed = padded(z.T, bits).T.contiguous() if old else pack_to_int32(signed(z), bits, packed_dim=0).contiguous()
        tensors[name + ".weight_zero_point"] = packed
    tensors[name + ".codes"] = torch.from_numpy(q.astype(np.uint8))  # what a reader must find
    tensors[name + ".zeros"] = torch.from_numpy(z.astype(np.uint8))


def group(name, bits, group_size, symmetric, order=None):
    weights = dict(num_bits=bits, type="int", symmetric=symmetric, strategy="group" if group_size else "channel",
                   group_size=group_size or None, dynamic=False, observer="minmax", observer_kwargs={})
    if order:
        weights["actorder"] = "group"
    return dict(targets=[name], weights=weights, input_activations=None, output_activations=None)


def config(groups, version):
    return dict(model_type="llama", quantization_config=dict(
        quant_method="compressed-tensors", format="pack-quantized", version=version, quantization_status="compressed",
        ignore=["lm_head"], kv_cache_scheme=None, config_groups={f"group_{i}": g for i, g in enumerate(groups)}))


for file, version, old, cases in (
    ("compressed_tensors", "0.20.1", False, [(b, s, g) for b in range(1, 9) for s, g in ((True, 16), (False, 0), (False, 16))]),
    ("compressed_tensors_padded", "0.17.1", True, [(b, s, g) for b in (3, 5, 6, 7) for s, g in ((True, 16), (False, 0), (False, 16))]),
):
    tensors, groups = {}, []
    for i, (bits, symmetric, size) in enumerate(cases):
        scale = (torch.float16, torch.bfloat16, torch.float32)[i % 3]
        name = f"w{bits}g{size}{'s' if symmetric else 'a'}"
        module(name, tensors, bits, 13, 70, size, symmetric, scale, old=old)  # 70: 6 bits take 14 words in both orders
        groups.append(group(name, bits, size, symmetric))
    if not old:
        module("ordered", tensors, 4, 9, 50, 16, False, torch.float16, order=True)
        groups.append(group("ordered", 4, 16, False, order=True))
    save_file(tensors, out / f"{file}.safetensors")
    (out / f"{file}.json").write_text(json.dumps(config(groups, version)) + "\n")
