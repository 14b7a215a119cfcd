#!/usr/bin/env python3
"""Compares what qf reads and writes as GGUF with other people's tools, in three parts. Run by hand and by the long checks.

  tensors ORIGINAL.gguf FOLDER      FOLDER/model.safetensors (expanded by qf from ORIGINAL, in F32 or BF16) against `gguf`'s
                                    dequantize, bit for bit (BF16: rounded to nearest)      needs: numpy, gguf, safetensors, ml_dtypes
  ids ORIGINAL.gguf FOLDER TEXT     FOLDER/tokenizer.json in `tokenizers` against ORIGINAL's in llama.cpp    needs: tokenizers,
                                    llama-cpp-python
  llama ORIGINAL.gguf WRITTEN.gguf TEXT [--logits TOLERANCE]
                                    both files in llama.cpp: ids of TEXT, greedy continuations, largest difference of logits
                                    needs: numpy, llama-cpp-python
  read WRITTEN.gguf                 opens the file in `gguf` and lists types               needs: gguf

Last seen with gguf 0.19.0, safetensors 0.8.0, tokenizers 0.23, llama-cpp-python 0.3.36.
"""
import argparse, sys
import numpy as np

PARTS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
PROMPTS = ["The capital of France is", "Once upon a time, there was a", "def fibonacci(n):\n", "1, 2, 3, 4,",
           "<|im_start|>user\nWhat is a kettle?<|im_end|>\n<|im_start|>assistant\n"]
TRICKY = ["", " ", "  two", "\n\n\t x", "Grüße, 世界! 🎉", "a1b22c333 4444", "don't I'LL we've", "<|im_start|>x<|im_end|>", "e\u0301\u200d"]


def check(ok, text):
    print(("ok      " if ok else "FAILED  ") + text)
    if not ok: sys.exit(1)


def tensors(original, folder):
    import ml_dtypes
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from safetensors import safe_open
    reader = GGUFReader(original)
    meta = {k: f.contents() for k, f in reader.fields.items()}
    arch = meta["general.architecture"]
    heads = {"attn_q": meta[f"{arch}.attention.head_count"], "attn_k": meta[f"{arch}.attention.head_count_kv"]}
    seen = 0
    with safe_open(f"{folder}/model.safetensors", "np") as f:
        names = set(f.keys())
        for t in reader.tensors:
            want = dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(x) for x in t.shape][::-1])
            if t.name == "token_embd.weight": name = "model.embed_tokens.weight"
            elif t.name == "output_norm.weight": name = "model.norm.weight"
            elif t.name == "output.weight": name = "lm_head.weight"
            else:
                _, layer, part, _ = t.name.split(".")
                name = f"model.layers.{layer}.{PARTS[part]}.weight"
                if arch == "llama" and part in heads:  # rotary pairs side by side -> halves
                    n, k = want.shape
                    want = want.reshape(heads[part], n // heads[part] // 2, 2, k).transpose(0, 2, 1, 3).reshape(n, k)
            have = f.get_tensor(name)
            if have.dtype != np.float32: want = want.astype(ml_dtypes.bfloat16)
            if have.shape != want.shape or have.tobytes() != want.tobytes(): check(False, f"{name} differs")
            names.discard(name)
            seen += 1
    check(not names, f"{original.rsplit('/', 1)[-1]} in `gguf` and folder {folder.rsplit('/', 1)[-1]}: {seen} tensors bit-equal, {len(names)} without a counterpart")


def load(path, **more):
    from llama_cpp import Llama
    return Llama(path, n_ctx=1024, n_batch=512, n_threads=2, verbose=False, **more)


def texts_of(path):
    raw = open(path, encoding="utf-8").read()
    return TRICKY + PROMPTS + [raw[i:i + 2000] for i in range(0, min(len(raw), 40000), 2000)]


def ids(original, folder, text):
    from tokenizers import Tokenizer
    tok, llm = Tokenizer.from_file(f"{folder}/tokenizer.json"), load(original, vocab_only=True)
    count = 0
    for t in texts_of(text):
        a = tok.encode(t, add_special_tokens=False).ids
        b = llm.tokenize(t.encode(), add_bos=False, special=True)
        if a != b: check(False, f"ids of {t[:60]!r}: {a[:12]} against {b[:12]}")
        count += len(a)
    check(True, f"{count} ids equal")


def llama(original, written, text, tolerance):
    a, b = load(original, logits_all=True), load(written, logits_all=True)
    count = 0
    for t in texts_of(text):
        x, y = (m.tokenize(t.encode(), add_bos=False, special=True) for m in (a, b))
        if x != y: check(False, f"ids of {t[:60]!r} differ")
        count += len(x)
    check(True, f"{count} ids equal")
    same = [a(p, max_tokens=24, temperature=0)["choices"][0]["text"] == b(p, max_tokens=24, temperature=0)["choices"][0]["text"]
            for p in PROMPTS]
    worst, agree, total = 0.0, 0, 0
    for t in PROMPTS + [open(text, encoding="utf-8").read()[:500]]:
        tokens = a.tokenize(t.encode(), add_bos=False, special=True)
        out = []
        for m in (a, b):
            m.reset()
            m.eval(tokens)
            out.append(np.array(m.scores[:len(tokens)], copy=True))
        worst = max(worst, float(np.abs(out[0] - out[1]).max()))
        agree += int((out[0].argmax(-1) == out[1].argmax(-1)).sum())
        total += len(tokens)
    print(f"      greedy texts equal: {sum(same)} of {len(same)}; top-1 equal at {agree} of {total}; largest |logit difference| {worst:.6g}")
    if tolerance is not None: check(all(same) and worst <= tolerance, f"texts equal and logits within {tolerance:g}")


def read(written):
    from collections import Counter
    from gguf import GGUFReader
    r = GGUFReader(written)
    print("     ", dict(Counter(t.tensor_type.name for t in r.tensors)), len(r.fields), "fields")
    check(True, f"{len(r.tensors)} tensors in `gguf`")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=["tensors", "ids", "llama", "read"]); p.add_argument("paths", nargs="+")
    p.add_argument("--logits", type=float)
    args = p.parse_args()
    {"tensors": tensors, "ids": ids, "read": read,
     "llama": lambda *x: llama(*x, args.logits)}[args.part](*args.paths)
