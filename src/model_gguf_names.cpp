#include "model_gguf_names.hpp"

#include "qf/core/result.hpp"

namespace qf::model::detail {
namespace {

struct Pair {
  std::string_view gguf, hf;
};
constexpr Pair kOutside[] = {
    {"token_embd.", "model.embed_tokens."}, {"output_norm.", "model.norm."}, {"output.", "lm_head."}};
constexpr Pair kInLayer[] = {
    {"attn_norm.", "input_layernorm."},    {"ffn_norm.", "post_attention_layernorm."},
    {"attn_q.", "self_attn.q_proj."},      {"attn_k.", "self_attn.k_proj."},
    {"attn_v.", "self_attn.v_proj."},      {"attn_qkv.", "self_attn.qkv_proj."},
    {"attn_output.", "self_attn.o_proj."}, {"attn_q_norm.", "self_attn.q_norm."},
    {"attn_k_norm.", "self_attn.k_norm."}, {"ffn_gate.", "mlp.gate_proj."},
    {"ffn_down.", "mlp.down_proj."},       {"ffn_up.", "mlp.up_proj."}};
constexpr Pair kFusedUp = {"ffn_up.", "mlp.gate_up_proj."};  // Phi-3: gate and up in one tensor

bool is_suffix(std::string_view s) {
  return s == "weight" || s == "bias";
}

// "<number>." off the front of s.
std::optional<std::string> take_layer(std::string_view& s) {
  std::size_t digits = 0;
  while (digits < s.size() && s[digits] >= '0' && s[digits] <= '9') ++digits;
  if (digits == 0 || digits > 6 || (digits > 1 && s[0] == '0') || digits == s.size() || s[digits] != '.')
    return std::nullopt;
  std::string number(s.substr(0, digits));
  s.remove_prefix(digits + 1);
  return number;
}

std::optional<std::string> rename(Architecture architecture, std::string_view name,
                                  std::string_view from_layer, std::string_view to_layer,
                                  std::string_view Pair::*from, std::string_view Pair::*to) {
  for (const Pair& p : kOutside)
    if (name.starts_with(p.*from) && is_suffix(name.substr((p.*from).size())))
      return cat({p.*to, name.substr((p.*from).size())});
  if (!name.starts_with(from_layer)) return std::nullopt;
  name.remove_prefix(from_layer.size());
  const auto layer = take_layer(name);
  if (!layer) return std::nullopt;
  for (const Pair& row : kInLayer) {
    const Pair& p = architecture == Architecture::phi3 && row.gguf == kFusedUp.gguf ? kFusedUp : row;
    if (name.starts_with(p.*from) && is_suffix(name.substr((p.*from).size())))
      return cat({to_layer, *layer, ".", p.*to, name.substr((p.*from).size())});
  }
  return std::nullopt;
}

}  // namespace

std::string_view gguf_architecture(Architecture architecture) {
  switch (architecture) {
    case Architecture::llama:
    case Architecture::mistral:
      return "llama";
    case Architecture::qwen2:
      return "qwen2";
    case Architecture::qwen3:
      return "qwen3";
    case Architecture::phi3:
      return "phi3";
  }
  return "?";
}

std::optional<std::string> hf_tensor_name(Architecture architecture, std::string_view gguf_name) {
  return rename(architecture, gguf_name, "blk.", "model.layers.", &Pair::gguf, &Pair::hf);
}
std::optional<std::string> gguf_tensor_name(Architecture architecture, std::string_view hf_name) {
  return rename(architecture, hf_name, "model.layers.", "blk.", &Pair::hf, &Pair::gguf);
}

std::int64_t interleaved_rows(const ModelConfig& config, std::string_view hf_name) {
  if (gguf_architecture(config.architecture) != "llama") return 0;
  for (std::string_view part : {".self_attn.q_proj.", ".self_attn.k_proj."})
    if (hf_name.find(part) != std::string_view::npos) return config.head_dim;
  return 0;
}

}  // namespace qf::model::detail
