"""Makes a small decoder (Llama's architecture, random weights, a byte tokenizer) as a Hugging Face folder, with the
standard library alone: enough for every command to run on."""
import json
import pathlib
import random
import struct

CHAT = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_characters():
    """GPT-2's printable stand-ins for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters, extra = {}, 0
    for b in range(256):
        if b in plain:
            characters[b] = chr(b)
        else:
            characters[b] = chr(256 + extra)
            extra += 1
    return characters


def bf16(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def write_model(folder, layers=2, hidden=64, ffn=128, heads=2, kv_heads=1):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    head_dim, vocab = hidden // heads, 259
    rng = random.Random(1)
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for i in range(layers):
        p = f"model.layers.{i}."
        shapes.update({p + "input_layernorm.weight": [hidden], p + "post_attention_layernorm.weight": [hidden],
                       p + "self_attn.q_proj.weight": [heads * head_dim, hidden],
                       p + "self_attn.k_proj.weight": [kv_heads * head_dim, hidden],
                       p + "self_attn.v_proj.weight": [kv_heads * head_dim, hidden],
                       p + "self_attn.o_proj.weight": [hidden, heads * head_dim],
                       p + "mlp.gate_proj.weight": [ffn, hidden], p + "mlp.up_proj.weight": [ffn, hidden],
                       p + "mlp.down_proj.weight": [hidden, ffn]})
    header, data = {}, bytearray()
    block = [bf16(rng.gauss(0, 0.1)) for _ in range(4099)]  # a prime length, so that no two rows are alike
    position = 0
    for name in sorted(shapes):
        count = 1
        for d in shapes[name]:
            count *= d
        begin = len(data)
        if len(shapes[name]) == 1:
            data += struct.pack(f"<{count}H", *[bf16(1.0)] * count)
        else:
            data += struct.pack(f"<{count}H", *[block[(position + i) % len(block)] for i in range(count)])
            position += count
        header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
        "vocab_size": vocab, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": 257, "eos_token_id": 258, "torch_dtype": "bfloat16"}))
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    added = [{"id": 256 + i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, s in enumerate(special)]
    vocabulary = {c: b for b, c in byte_characters().items()} | {s: 256 + i for i, s in enumerate(special)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "GPT2Tokenizer", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": CHAT}))
