#!/usr/bin/env python3
"""Small tokenizers of each family and what `tokenizers` makes of hostile texts. Made with tokenizers 0.23.3.
usage: make_text_goldens.py CORPUS.txt OUTPUT_FOLDER     (CORPUS: any English text; its first 200 kB train the vocabularies)"""
import json, pathlib, sys
from tokenizers import AddedToken, Regex, Tokenizer, __version__, decoders, models, normalizers, pre_tokenizers, processors, trainers

corpus = pathlib.Path(sys.argv[1]).read_bytes()[:200_000].decode("utf-8", "ignore")
out = pathlib.Path(sys.argv[2])
extra = "naïve café Straße Ελλάδα Привет мир こんにちは 世界 你好 مرحبا שלום 😀😃 ½ ² e\u0301 123 4567 don't WE'LL I'm\n" * 40
lines = (corpus + "\n" + extra).split("\n")
lines = [line + "\n" for line in lines]
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level(pre, normalizer=None, special=(), added=(), ignore_merges=False, bos=None):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer: t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    if added: t.add_tokens(list(added))
    if bos:
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, t.token_to_id(bos))])])
    return t


def sentence_piece(special, metaspace, added=()):
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=700, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens))
    d = json.loads(t.to_str())
    # Only the three control tokens are added tokens, as in the real files.
    d["added_tokens"] = d["added_tokens"][:3]
    d["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    if metaspace:
        d["normalizer"] = None
        d["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    else:
        d["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
        d["pre_tokenizer"] = None
    d["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    t = Tokenizer.from_str(json.dumps(d))
    t.add_special_tokens([s for s in special if isinstance(s, AddedToken)])
    if added: t.add_tokens(list(added))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


P = pre_tokenizers
chatml = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
families = {
    "gpt2": byte_level(P.ByteLevel(add_prefix_space=False), special=["<|endoftext|>"], added=[AddedToken("lone", single_word=True, normalized=True), AddedToken("[L]", lstrip=True, normalized=False)]),
    "smollm": byte_level(P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)]), special=chatml),
    "llama3": byte_level(P.Sequence([P.Split(Regex(LLAMA3), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]), special=["<|begin_of_text|>", "<|eot_id|>"], ignore_merges=True, bos="<|begin_of_text|>"),
    "qwen2": byte_level(P.Sequence([P.Split(Regex(QWEN2), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]), normalizers.NFC(), special=chatml, added=[AddedToken("<tool_call>", normalized=False)]),
    "llama2": sentence_piece([], metaspace=False),
    "phi3": sentence_piece([AddedToken("<|user|>", rstrip=True, normalized=False, special=True), AddedToken("<|end|>", rstrip=True, normalized=False, special=True)], metaspace=False, added=[AddedToken("<pad me>", normalized=True)]),
    "metaspace": sentence_piece([], metaspace=True),
}
texts = [t if isinstance(t, bytes) else t.encode() for t in [
    "", " ", "  ", "a", "Hello, world!", " Hello  world ", "The quick brown fox isn't the FOX'S dog; I'LL we've they'd 'Tis 'ſ 'K",
    "tabs\tand\r\nCRLF\r\n\r\nlines\n\n\n  indented\n\tx", "trailing   ", "\n", "\r", " \n ", "   \n\n   x", "a\u00a0b\u2003c\u3000d\u180ee\u200bf\u2028g\u0085h\x0bi\x0cj\x1fk",
    "1 12 123 1234 12345 1,234.56 ½ ² ⅷ ٣٤٥ ९८७ ๑๒ 𝟘𝟙 一二三", "İstanbul ıI iİ ß ẞ ΣΑΣ ςσ", "e\u0301 é a\u0308\u0323 ạ̈ \u1e9b\u0323 \ufb01 Å \u212b \u1100\u1161\u11a8 각 \u0958 \u2adc",
    "\u0301\u0300\u0316\u0334 lead", "x" + "\u0301\u0316" * 50, "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ☺️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "日本語のテキスト、漢字かな交じり文。中文字符没有空格", "한국어 텍스트", "مرحبا بالعالم ١٢٣", "שָׁלוֹם עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก",
    "null\x00byte\x00\x00", "\ue000\uf8ff\U000f0000", "\u0378\uffff\U0010ffff\ufdd0", "\ufeffBOM", "\u202eRTL\u202c", "<|im_start|>system\nYou<|im_end|>", "a <|endoftext|> b<|endoftext|>", "<|im_start|", "<|im_<|im_end|>end|>",
    "<s>text</s> <unk><0x41><0x0A>", "<|user|>\n hi <|end|>\n\n<|user|> x", "<|begin_of_text|>hi<|eot_id|>", "lone alone lone's lonely lone", "x [L]  y  [L][L] z", "<tool_call>{}</tool_call>", "a <pad me> b<pad me>", "▁under▁ ▁ ▁▁", " ▁ x",
    "camelCaseHTTPServer snake_case_name kebab-case", "!!!???...,,,;;; --- === <<< >>>", "http://example.com/?q=1&x=%20#frag", "```python\ndef f(x):\n    return x**2  # hi\n```", "a" * 400, "ab " * 80, " " * 200 + "x", "\n" * 60, "=-" * 100, "é" * 150, "语" * 120,
    b"\xed\xa0\x80", b"lone \xed\xa0\x80\xed\xbf\xbf surrogates \xed\xa0\xbd\xed\xb8\x80", b"\xff\xfe\x80", b"\xc3", b"a\xe2\x82", b"a\xe2\x82 b", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\xf0\x9f", b"\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf", b"\xf4\x90\x80\x80\xf8\x88\x80\x80\x80", b"\xe9t\xe9 latin-1",
]]
cases = {"tokenizers": __version__, "texts": [t.hex() for t in texts], "families": {}}
for name, t in families.items():
    source = json.loads(t.to_str())
    (out / f"{name}.json").write_text(json.dumps(source, ensure_ascii=False, separators=(",", ":")) + "\n")
    t = Tokenizer.from_file(str(out / f"{name}.json"))
    rows = []
    for raw in texts:
        text = raw.decode("utf-8", "replace")
        t.encode_special_tokens = False
        ids = t.encode(text, add_special_tokens=False).ids
        row = {"ids": ids}
        with_special = t.encode(text).ids
        if with_special != ids: row["special"] = with_special
        t.encode_special_tokens = True
        plain = t.encode(text, add_special_tokens=False).ids
        if plain != ids: row["plain"] = plain
        if (decoded := t.decode(ids, skip_special_tokens=False)) != text: row["decoded"] = decoded
        if (skipped := t.decode(ids, skip_special_tokens=True)) != decoded: row["skipped"] = skipped
        rows.append(row)
    # Ids in an order that no text gives: byte tokens and half characters.
    size = t.get_vocab_size()
    odd = [[(i * 7919 + k * 104729) % size for i in range(24)] for k in range(12)]
    cases["families"][name] = {"rows": rows, "odd": [{"ids": ids, "decoded": t.decode(ids, skip_special_tokens=False)} for ids in odd]}
(out / "cases.json").write_text(json.dumps(cases, ensure_ascii=True, separators=(",", ":")) + "\n")
