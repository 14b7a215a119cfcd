#!/usr/bin/env python3
"""Makes the tiny models and logits of this folder: random checkpoints of every supported architecture, run by Hugging Face's
transformers. Written with torch 2.15.0, transformers 5.24.0, safetensors 0.8 (versions.txt has what was used last).

    make_model_goldens.py [OUT]          OUT defaults to this folder

For each model: NAME/config.json, NAME/model.safetensors and NAME/expected.safetensors with `ids` I32 [tokens] and `logits` F32
[tokens, vocab] (eager attention, weights exactly as stored, in float64 but where transformers itself computes in float32).
"""
import json, pathlib, sys

import safetensors, safetensors.torch, torch, transformers
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Phi3Config, Phi3ForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent
BASE = dict(vocab_size=34, hidden_size=32, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=None,
            tie_word_embeddings=False, attn_implementation="eager")
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


def longrope(pairs):
    return {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0 + .05 * i for i in range(pairs)],
            "long_factor": [1.5 + .4 * i for i in range(pairs)]}


# name: config class, model class, what differs from BASE, tokens, stored type, JSON keys rewritten as older files spell them
MODELS = {
    "llama2": (LlamaConfig, LlamaForCausalLM, dict(num_key_value_heads=4, hidden_size=24), 33, torch.float32, "old"),
    "llama3": (LlamaConfig, LlamaForCausalLM, dict(rope_parameters=LLAMA3, num_key_value_heads=1), 70, torch.bfloat16, "old"),
    "llama_bias": (LlamaConfig, LlamaForCausalLM, dict(attention_bias=True, mlp_bias=True, head_dim=20, rope_parameters={
        "rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}), 24, torch.bfloat16, "new"),
    "smollm2": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=True, num_attention_heads=3, num_key_value_heads=1,
                hidden_size=36, rope_parameters={"rope_type": "default", "rope_theta": 100000.0}), 40, torch.bfloat16, "old"),
    "mistral": (MistralConfig, MistralForCausalLM, dict(sliding_window=9, head_dim=16), 50, torch.bfloat16, "new"),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, dict(use_sliding_window=True, sliding_window=7, max_window_layers=1,
              num_hidden_layers=3, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}), 40, torch.bfloat16, "old"),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, dict(head_dim=24, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True), 40, torch.bfloat16, "new"),
    "phi3_short": (Phi3Config, Phi3ForCausalLM, dict(original_max_position_embeddings=32, max_position_embeddings=128,
                   rope_parameters=longrope(4)), 30, torch.bfloat16, "old"),
    "phi3_long": (Phi3Config, Phi3ForCausalLM, dict(original_max_position_embeddings=32, max_position_embeddings=128,
                  hidden_size=32, rope_parameters=dict(longrope(3), partial_rotary_factor=.75), sliding_window=30), 60,
                  torch.bfloat16, "su"),
}


def respell(config, how):
    """transformers 5 writes rope_parameters; the files that people have say rope_scaling and rope_theta."""
    if how == "new":
        return config
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    if rope.get("partial_rotary_factor") is not None:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config.pop("layer_types", None)
    if how == "su":
        rope["type"] = "su"
        del rope["rope_type"]
        rope.pop("original_max_position_embeddings", None)
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    config["torch_dtype"] = config.pop("dtype", "float32")
    return config


def main():
    for seed, (name, (config_class, model_class, changes, tokens, dtype, spelling)) in enumerate(MODELS.items()):
        torch.manual_seed(1000 + seed)
        config = config_class(**{**BASE, **changes})
        model = model_class(config)
        with torch.no_grad():
            for key, p in model.named_parameters():
                scale = 1.0 if p.dim() == 2 else .3
                p.copy_(torch.randn_like(p) * (scale / p.shape[-1] ** .5 if p.dim() == 2 else scale))
                if p.dim() == 1 and "norm" in key:
                    p.add_(1.0)
                p.copy_(p.to(dtype).to(p.dtype))
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        state = {k: v.to(dtype).contiguous().clone() for k, v in model.state_dict().items()
                 if not (k == "lm_head.weight" and config.tie_word_embeddings)}
        safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(respell(config.to_dict(), spelling), indent=1) + "\n")
        ids = torch.randint(3, config.vocab_size, (1, tokens))
        model = model.double().eval()
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0]
        (folder / "model.safetensors").chmod(0o644)
        safetensors.torch.save_file({"ids": ids[0].int(), "logits": logits.float().contiguous()}, folder / "expected.safetensors")
        (folder / "expected.safetensors").chmod(0o644)
        print(f"{name}: {sum(v.numel() for v in state.values())} parameters, logits up to {logits.abs().max():.3f}")
    (OUT / "versions.txt").write_text(f"torch {torch.__version__.split('+')[0]}\ntransformers {transformers.__version__}\n"
                                      f"safetensors {safetensors.__version__}\n")


main()
