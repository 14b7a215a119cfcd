#!/usr/bin/env python3
"""The same file in qf and in llama.cpp. Needs: numpy, llama-cpp-python (last seen with 0.3.36), and QF_LIBRARY.

  greedy MODEL.gguf         64 tokens behind each of five prompts, always the most likely one, end tokens included. Where the two
                            part, both sides' best two logits must lie within 1e-3 of each other, else it fails. A file in F32 only:
                            llama.cpp rounds activations for other types.
  logits TEXT MODEL.gguf=LOG_RATIO:TOP1...
                            up to 512 tokens of TEXT: perplexities must agree to |ln(ratio)| <= LOG_RATIO, and the best tokens of at
                            least TOP1 of all positions

Both sides get the same ids and no BOS. llama.cpp runs on one thread, with keys and values in F32 and without flash attention.
"""
import sys
import numpy as np
from llama_cpp import Llama
from qf_library import Model, Tokenizer

PROMPTS = ["The capital of France is", "Once upon a time, there was a", "def fibonacci(n):\n", "The three most important inventions are",
           "<|im_start|>user\nWhat is a kettle?<|im_end|>\n<|im_start|>assistant\n"]
TOKENS, TIE = 64, 1e-3
F32 = 0  # ggml's number of the type


class LlamaCpp:
    def __init__(self, path, context):
        self.llama = Llama(path, n_ctx=context, n_batch=context, n_threads=1, n_threads_batch=1, flash_attn=False, type_k=F32,
                           type_v=F32, logits_all=True, verbose=False)

    def encode(self, text): return self.llama.tokenize(text.encode(), add_bos=False, special=True)
    def reset(self): self.llama.reset()

    def eval(self, ids):
        self.llama.eval(ids)
        return np.array(self.llama.scores[self.llama.n_tokens - len(ids):self.llama.n_tokens], copy=True)


def best_two(row):
    two = np.argsort(-row, kind="stable")[:2]
    return two, float(row[two[0]] - row[two[1]])


def greedy(path):
    context = 256
    ours, other, tokenizer = Model(path, context), LlamaCpp(path, context), Tokenizer(path)
    equal, worst, bad, positions, narrowest = 0, 0.0, 0, 0, float("inf")
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        if ids != other.encode(prompt):
            print(f"FAILED  greedy: ids of {prompt!r}: {ids} against {other.encode(prompt)}")
            bad += 1
            continue
        ours.reset(), other.reset()
        step, parted = ids, False
        for position in range(TOKENS):
            a, b = ours.eval(step)[-1], other.eval(step)[-1]
            worst = max(worst, float(np.abs(a - b).max()))
            (pair_a, gap_a), (pair_b, gap_b) = best_two(a), best_two(b)
            narrowest = min(narrowest, gap_a)
            if pair_a[0] != pair_b[0]:
                tie = gap_a < TIE and gap_b < TIE and set(pair_a) == set(pair_b)
                print(f"{'        tie' if tie else 'FAILED  greedy'}: {prompt!r}, token {position}: qf {pair_a[0]} {a[pair_a[0]]:.6f} before "
                      f"{pair_a[1]} {a[pair_a[1]]:.6f} (by {gap_a:.2e}), llama.cpp {pair_b[0]} {b[pair_b[0]]:.6f} before "
                      f"{pair_b[1]} {b[pair_b[1]]:.6f} (by {gap_b:.2e})")
                bad += not tie
                parted = True
                break
            positions += 1
            step = [int(pair_a[0])]
        equal += not parted
    print(f"{'FAILED' if bad else 'ok    '}  greedy: {equal} of {len(PROMPTS)} continuations of {TOKENS} tokens equal, {positions} tokens in all; "
          f"largest |logit difference| {worst:.2e}, smallest lead of a best token {narrowest:.2e}")
    return bad == 0


def perplexity(logits, ids):
    rows = logits[:-1].astype(np.float64)
    top = rows.max(-1)
    return float(np.exp(np.mean(np.log(np.exp(rows - top[:, None]).sum(-1)) + top - rows[np.arange(len(rows)), ids[1:]])))


def logits(text, *models):
    good = True
    for argument in models:
        path, _, limits = argument.rpartition("=")
        most, least = map(float, limits.split(":"))
        raw = open(text, encoding="utf-8").read()[:8000]
        ids = Tokenizer(path).encode(raw)
        other = LlamaCpp(path, 512)
        same_ids = ids == other.encode(raw)
        ids = ids[:512]
        a, b = Model(path, 512).eval(ids), other.eval(ids)
        p, q = perplexity(a, ids), perplexity(b, ids)
        top1 = float((a.argmax(-1) == b.argmax(-1)).mean())
        fine = same_ids and abs(np.log(p / q)) <= most and top1 >= least
        good &= fine
        print(f"{'ok    ' if fine else 'FAILED'}  {path.rsplit('/', 1)[-1]} in llama.cpp: ids {'equal' if same_ids else 'DIFFER'}; perplexity of {len(ids)} "
              f"tokens {p:.5f}, llama.cpp {q:.5f}; top-1 equal at {100 * top1:.2f} %; largest |logit difference| {np.abs(a - b).max():.2e}")
    return good


if __name__ == "__main__":
    sys.exit(not {"greedy": greedy, "logits": logits}[sys.argv[1]](*sys.argv[2:]))
