#!/usr/bin/env python3
"""Writes small valid files for the fuzz target: usage: make_seeds.py FOLDER      needs: numpy, gguf (made with gguf 0.19.0)"""
import sys
import numpy as np
from gguf import GGMLQuantizationType as T, GGUFWriter, GGML_QUANT_SIZES


def model(path, arch, kind):
    w = GGUFWriter(path, arch)
    w.add_block_count(1), w.add_context_length(64), w.add_embedding_length(32), w.add_feed_forward_length(32)
    w.add_head_count(2), w.add_head_count_kv(1), w.add_key_length(4), w.add_value_length(4), w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model(kind), w.add_tokenizer_pre("smollm"), w.add_token_list(["<s>", "a", "b", "ab"])
    w.add_token_types([3, 1, 1, 1]), w.add_bos_token_id(0), w.add_eos_token_id(0)
    w.add_token_merges(["a b"]) if kind == "gpt2" else w.add_token_scores([0.0, 0.0, 0.0, -1.0])
    for name, shape in {"token_embd": (4, 32), "blk.0.attn_q": (8, 32), "blk.0.attn_k": (4, 32), "output_norm": (32,)}.items():
        w.add_tensor(name + ".weight", np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def blocks(path):
    w = GGUFWriter(path, "none")
    for t in (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_NL, T.IQ4_XS, T.MXFP4, T.IQ2_XXS):
        w.add_tensor(t.name, np.full((1, GGML_QUANT_SIZES[t][1]), 0x35, np.uint8), raw_dtype=t)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


model(sys.argv[1] + "/llama_bpe", "llama", "gpt2"), model(sys.argv[1] + "/qwen2_spm", "qwen2", "llama"), blocks(sys.argv[1] + "/blocks")
