#!/usr/bin/env python3
"""Writes tokenizer.json beside it: a byte-level BPE of 34 tokens, as many as the tiny models of tests/golden/model have."""
import json, pathlib

tokens = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "Ġ", ".", ",", "he", "th"]
special = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
           for i in range(3)]
byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
(pathlib.Path(__file__).parent / "tokenizer.json").write_text(json.dumps({
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None, "pre_tokenizer": byte_level,
    "post_processor": None, "decoder": byte_level,
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": False, "byte_fallback": False, "vocab": {t: i for i, t in enumerate(tokens)},
              "merges": [["h", "e"], ["t", "h"]]}}, ensure_ascii=False))
