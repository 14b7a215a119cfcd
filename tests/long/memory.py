#!/usr/bin/env python3
"""Peak memory of `qf quantize` doesn't grow with the model: memory.py QF FOLDER [--python PYTHON]

Makes Llama-shaped checkpoints of random BF16 weights in shards, with 16 and 24 layers (1.2 and 1.7 billion weights, up to 3.5 GB on
disk, deleted afterwards), and quantizes them to 4 bits. Each run must stay below 600 MB, and the larger model may take 5 % more than
the smaller. PYTHON, which has numpy, makes the weights. This process imports no numpy: the kernel counts the memory of the
process that starts a program as the program's own."""
import argparse, json, os, pathlib, shutil, struct, subprocess, sys

HIDDEN, FFN, HEADS, KV_HEADS, VOCAB, SHARD_BYTES = 2048, 8192, 32, 8, 128256, 1 << 30
MOST_BYTES, GROWTH = 600e6, 1.05


def shapes(layers):
    kv = HIDDEN // HEADS * KV_HEADS
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (HIDDEN,)
        yield p + "post_attention_layernorm.weight", (HIDDEN,)
        for name, shape in (("self_attn.q_proj", (HIDDEN, HIDDEN)), ("self_attn.k_proj", (kv, HIDDEN)), ("self_attn.v_proj", (kv, HIDDEN)),
                            ("self_attn.o_proj", (HIDDEN, HIDDEN)), ("mlp.gate_proj", (FFN, HIDDEN)), ("mlp.up_proj", (FFN, HIDDEN)),
                            ("mlp.down_proj", (HIDDEN, FFN))):
            yield p + name + ".weight", shape
    yield "model.norm.weight", (HIDDEN,)


def make(folder, layers):
    import numpy as np
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCAB,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
        "tie_word_embeddings": True, "torch_dtype": "bfloat16"}))
    shards, filled, total = [[]], 0, 0
    for name, shape in shapes(layers):
        size = 2 * int(np.prod(shape))
        if filled and filled + size > SHARD_BYTES: shards.append([]); filled = 0
        shards[-1].append((name, shape, size))
        filled += size
        total += size
    rng, where = np.random.default_rng(layers), {}
    for number, tensors in enumerate(shards, 1):
        file, header, at = f"model-{number:05}-of-{len(shards):05}.safetensors", {}, 0
        for name, shape, size in tensors:
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
            where[name] = file
            at += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for name, shape, size in tensors:
                left = size // 2
                while left:
                    n = min(left, 1 << 20)
                    values = (rng.standard_normal(n, np.float32) * np.float32(0.02)) + np.float32("norm" in name)
                    f.write((values.view(np.uint32) >> 16).astype("<u2").tobytes())
                    left -= n
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": where}))
    print(total // 2, len(shards))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("qf"); p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--python", default=sys.executable); p.add_argument("--make", type=int, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.make: return make(args.folder, args.make)
    peaks, lines = [], []
    for layers in (16, 24):
        model, out = args.folder / f"random-{layers}", args.folder / f"random-{layers}-w4"
        for old in (model, out, pathlib.Path(f"{out}.partial")): shutil.rmtree(old, ignore_errors=True)
        try:
            made = subprocess.run([args.python, __file__, "-", str(model), "--make", str(layers)], check=True, capture_output=True, text=True)
            weights, shards = map(int, made.stdout.split())
            child = subprocess.Popen([args.qf, "quantize", str(model), "--out", str(out), "--bits", "4", "--group", "64", "-q", "--json"],
                                     stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode: sys.exit(f"FAILED  memory: qf quantize of {layers} layers ended with {child.returncode}")
            peaks.append(usage.ru_maxrss * 1024)
            lines.append(f"{peaks[-1] / 1e6:.1f} MB for {layers} layers ({weights / 1e9:.2f} billion weights in {shards} shards)")
        finally:
            for old in (model, out, pathlib.Path(f"{out}.partial")): shutil.rmtree(old, ignore_errors=True)
    good = max(peaks) < MOST_BYTES and peaks[1] <= GROWTH * peaks[0]
    print(f"{'ok    ' if good else 'FAILED'}  memory: peak of qf quantize {', '.join(lines)}")
    return not good


if __name__ == "__main__":
    sys.exit(main())
