"""random_llama.py FROM TO: a model folder with random BF16 weights, 1.07 billion of them, in the shape of the 1.1 B Llama (22 layers, 2048
wide, 32 heads on 4, 5632 in the middle), and the tokenizer of the folder FROM. How fast a model runs doesn't depend on what it says."""
import json
import pathlib
import shutil
import sys

import numpy as np

HIDDEN, LAYERS, HEADS, KV, MIDDLE = 2048, 22, 32, 4, 5632


def main(source, target):
    source, target = pathlib.Path(source), pathlib.Path(target)
    target.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    config.update(hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV, intermediate_size=MIDDLE,
                  head_dim=HIDDEN // HEADS, tie_word_embeddings=True, torch_dtype="bfloat16")
    (target / "config.json").write_text(json.dumps(config, indent=1))
    for file in source.glob("*.json"):
        if file.name.startswith(("tokenizer", "special", "generation")):
            shutil.copy(file, target)
    kv = HIDDEN // HEADS * KV
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        name = f"model.layers.{i}."
        shapes |= {name + "input_layernorm.weight": (HIDDEN,), name + "post_attention_layernorm.weight": (HIDDEN,)}
        for part, shape in {"q": (HIDDEN, HIDDEN), "k": (kv, HIDDEN), "v": (kv, HIDDEN), "o": (HIDDEN, HIDDEN)}.items():
            shapes[f"{name}self_attn.{part}_proj.weight"] = shape
        for part, shape in {"gate": (MIDDLE, HIDDEN), "up": (MIDDLE, HIDDEN), "down": (HIDDEN, MIDDLE)}.items():
            shapes[f"{name}mlp.{part}_proj.weight"] = shape
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    pool = (rng.standard_normal(1 << 22, dtype=np.float32) * 0.02).view(np.uint32)
    pool = (pool >> 16).astype(np.uint16)
    with open(target / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            if len(shape) == 1:
                out.write(np.full(shape, 0x3F80, np.uint16).tobytes())
                continue
            left = int(np.prod(shape))
            while left:
                part = np.roll(pool, int(rng.integers(len(pool))))[:left]
                out.write(part.tobytes())
                left -= len(part)


main(*sys.argv[1:])
