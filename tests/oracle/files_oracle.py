#!/usr/bin/env python3
"""What qf writes, opened by other people's packages. Needs: numpy, QF_LIBRARY, and what each part names.

  safetensors FOLDER...           every tensor has the same numbers in `safetensors` and in qf           safetensors, ml_dtypes
  packed FOLDER...                folders of `qf quantize`: opened by `safetensors` and expanded in numpy from docs/files.md,
                                  bit-equal to qf                                                          safetensors, ml_dtypes
  gguf SOURCE.gguf FILE.gguf...   FILEs written by qf with the types F16, Q8_0 and so on from SOURCE's weights (F32): `gguf` expands
                                  them bit-equal to qf, and quantizes SOURCE's tensors to the same bytes   gguf

Last seen with safetensors 0.8.0, gguf 0.19.0, ml_dtypes 0.6.0.
"""
import json, sys
import numpy as np
from qf_library import Checkpoint


def same(a, b): return a.shape == b.shape and a.astype(np.float32).tobytes() == b.astype(np.float32).tobytes()


def report(name, bad, text):
    print(f"FAILED  {name}: {len(bad)} tensors differ, first {bad[0]}" if bad else f"ok      {name}: {text}")
    return not bad


def open_safetensors(folder):
    import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
    from safetensors import safe_open
    return safe_open(folder + "/model.safetensors", "np")


def safetensors(folder):
    ours, bad, kinds = Checkpoint(folder), [], set()
    with open_safetensors(folder) as f:
        if set(f.keys()) != set(ours.infos): bad.append("the list of names")
        else:
            for name in f.keys():
                kinds.add(ours.infos[name][1])
                if not same(f.get_tensor(name), ours.read_f32(name)): bad.append(name)
    return report(folder.rsplit("/", 1)[-1], bad, f"{len(ours.infos)} tensors ({', '.join(sorted(kinds))}) equal in `safetensors`")


def unpack(words, bits, count):
    """Code i of a row in bits [i b, i b + b) of its 32-bit words, lowest bit first: [rows, words] -> [rows, count]."""
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")[:, :count * bits]
    return (stream.reshape(len(words), count, bits) << np.arange(bits)).sum(-1).astype(np.int64)


def packed(folder):
    config = json.load(open(folder + "/config.json"))["quantization_config"]
    schemes = [g["weights"] for g in config["config_groups"].values()]
    if len(schemes) != 1: sys.exit(f"{folder}: {len(schemes)} groups of modules, 1 expected")
    bits, group = schemes[0]["num_bits"], schemes[0].get("group_size") or 0
    ours, bad, modules, kept = Checkpoint(folder), [], 0, 0
    with open_safetensors(folder) as f:
        names = set(f.keys())
        for name in sorted(names):
            if name.endswith((".weight_scale", ".weight_zero_point", ".weight_shape")): continue
            if not name.endswith(".weight_packed"):
                kept += 1
                if not same(f.get_tensor(name), ours.read_f32(name)): bad.append(name)
                continue
            module = name[:-len(".weight_packed")]
            n, k = map(int, f.get_tensor(module + ".weight_shape"))
            scale = f.get_tensor(module + ".weight_scale").astype(np.float32)
            codes = unpack(f.get_tensor(name), bits, k)
            zero = np.full(scale.shape, 2 ** (bits - 1))
            if module + ".weight_zero_point" in names:
                zero = unpack(np.ascontiguousarray(f.get_tensor(module + ".weight_zero_point").T), bits, n).T
            of = np.arange(k) // group if group > 0 else np.zeros(k, int)
            want = (codes - zero[:, of]).astype(np.float32) * scale[:, of]
            modules += 1
            if not same(want, ours.low_bit_f32(module)): bad.append(module)
    if not modules: bad.append("no packed module at all")
    return report(folder.rsplit("/", 1)[-1], bad, f"{modules} packed matrices of {bits} bits bit-equal to numpy, {kept} other tensors equal")


def gguf(source, path):
    from gguf import GGUFReader
    from gguf.quants import dequantize, quantize
    floats = {t.name: t for t in GGUFReader(source).tensors}
    ours, bad, kinds, requantized = Checkpoint(path), [], {}, 0
    reader = GGUFReader(path)
    if {t.name for t in reader.tensors} != set(floats) or set(floats) != set(ours.infos): bad.append("the list of names")
    for t in [] if bad else reader.tensors:
        shape = [int(x) for x in t.shape][::-1]
        kind = t.tensor_type.name
        kinds[kind] = kinds.get(kind, 0) + 1
        if not same(dequantize(t.data, t.tensor_type).reshape(shape), ours.read_f32(t.name)): bad.append(t.name)
        want = quantize(np.asarray(floats[t.name].data, np.float32).reshape(shape), t.tensor_type)
        if want.tobytes() != t.data.tobytes(): bad.append(t.name + " (bytes)")
        requantized += 1
    kinds = ", ".join(f"{n} {k}" for k, n in sorted(kinds.items()))
    return report(path.rsplit("/", 1)[-1], bad, f"{kinds}: bit-equal in `gguf`, and {requantized} tensors have the bytes that `gguf` quantizes to")


if __name__ == "__main__":
    part, paths = sys.argv[1], sys.argv[2:]
    if part == "gguf": results = [gguf(paths[0], p) for p in paths[1:]]
    else: results = [{"safetensors": safetensors, "packed": packed}[part](p) for p in paths]
    sys.exit(not all(results))
