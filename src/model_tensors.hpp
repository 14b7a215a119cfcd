// The weights that a model of a configuration is made of, by Hugging Face's names; without biases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qf/core/result.hpp"
#include "qf/model/config.hpp"

namespace qf::model::detail {

struct WeightShape {
  std::string name;
  std::int64_t rows = 0, columns = 0;  // rows 0: a tensor of one dimension
};

inline std::vector<WeightShape> weights_of(const ModelConfig& c) {
  std::vector<WeightShape> all{{"model.embed_tokens.weight", c.vocab, c.hidden},
                               {"model.norm.weight", 0, c.hidden}};
  if (!c.tied_head) all.push_back({"lm_head.weight", c.vocab, c.hidden});
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const auto add = [&](const char* name, std::int64_t rows, std::int64_t columns) {
      all.push_back({cat({"model.layers.", num(i), ".", name, ".weight"}), rows, columns});
    };
    add("input_layernorm", 0, c.hidden);
    add("post_attention_layernorm", 0, c.hidden);
    if (c.fused_qkv) {
      add("self_attn.qkv_proj", q + 2 * kv, c.hidden);
    } else {
      add("self_attn.q_proj", q, c.hidden);
      add("self_attn.k_proj", kv, c.hidden);
      add("self_attn.v_proj", kv, c.hidden);
    }
    if (c.qk_norm) {
      add("self_attn.q_norm", 0, c.head_dim);
      add("self_attn.k_norm", 0, c.head_dim);
    }
    add("self_attn.o_proj", c.hidden, q);
    if (c.fused_gate_up) {
      add("mlp.gate_up_proj", 2 * c.ffn, c.hidden);
    } else {
      add("mlp.gate_proj", c.ffn, c.hidden);
      add("mlp.up_proj", c.ffn, c.hidden);
    }
    add("mlp.down_proj", c.hidden, c.ffn);
  }
  return all;
}

}  // namespace qf::model::detail
