#include "model_gguf_metadata.hpp"

#include <cmath>
#include <numbers>

#include "model_gguf_names.hpp"
#include "qf/core/json.hpp"

namespace qf::model::detail {
namespace {

std::uint32_t u32(std::int64_t value) {
  return static_cast<std::uint32_t>(value);
}

std::int64_t rotary_dims(const ModelConfig& c) {
  return std::llround(c.rope.partial * static_cast<double>(c.head_dim));
}

// Llama 3: long waves are stretched by `factor`, short ones kept, those between blended.
std::vector<float> llama3_factors(const ModelConfig& c) {
  const RopeConfig& r = c.rope;
  const std::int64_t dims = rotary_dims(c);
  const auto context = static_cast<double>(r.original_context);
  std::vector<float> factors;
  for (std::int64_t i = 0; i < dims; i += 2) {
    const double wavelength =
        2 * std::numbers::pi * std::pow(r.theta, static_cast<double>(i) / static_cast<double>(dims));
    const double smooth =
        (context / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
    factors.push_back(static_cast<float>(wavelength < context / r.high_freq_factor ? 1
                                         : wavelength > context / r.low_freq_factor
                                             ? r.factor
                                             : 1 / ((1 - smooth) / r.factor + smooth)));
  }
  return factors;
}

double longrope_attention(const ModelConfig& c) {
  if (c.rope.attention_factor > 0) return c.rope.attention_factor;
  const double scale = static_cast<double>(c.context) / static_cast<double>(c.rope.original_context);
  return scale <= 1 ? 1
                    : std::sqrt(1 + std::log(scale) / std::log(static_cast<double>(c.rope.original_context)));
}

}  // namespace

void put_config(const ModelConfig& c, io::GgufMetadata& m) {
  const std::string arch(gguf_architecture(c.architecture));
  auto key = [&](std::string_view name) { return cat({arch, ".", name}); };
  m.u32(key("block_count"), u32(c.layers));
  m.u32(key("context_length"), u32(c.context));
  m.u32(key("embedding_length"), u32(c.hidden));
  m.u32(key("feed_forward_length"), u32(c.ffn));
  m.u32(key("attention.head_count"), u32(c.heads));
  m.u32(key("attention.head_count_kv"), u32(c.kv_heads));
  m.u32(key("attention.key_length"), u32(c.head_dim));
  m.u32(key("attention.value_length"), u32(c.head_dim));
  m.f32(key("attention.layer_norm_rms_epsilon"), static_cast<float>(c.norm_eps));
  if (c.sliding_window || c.architecture == Architecture::phi3)
    m.u32(key("attention.sliding_window"), u32(c.sliding_window));
  m.f32(key("rope.freq_base"), static_cast<float>(c.rope.theta));
  m.u32(key("rope.dimension_count"), u32(rotary_dims(c)));
  m.u32(key("vocab_size"), u32(c.vocab));
  if (c.rope.scaling == RopeScaling::linear) {
    m.text(key("rope.scaling.type"), "linear");
    m.f32(key("rope.scaling.factor"), static_cast<float>(c.rope.factor));
  } else if (c.rope.scaling == RopeScaling::longrope) {
    m.u32(key("rope.scaling.original_context_length"), u32(c.rope.original_context));
    m.f32(key("rope.scaling.attn_factor"), static_cast<float>(longrope_attention(c)));
  }
}

std::vector<RopeTensor> rope_tensors(const ModelConfig& c) {
  if (c.rope.scaling == RopeScaling::llama3) return {{"rope_freqs.weight", llama3_factors(c)}};
  if (c.rope.scaling != RopeScaling::longrope) return {};
  auto narrow = [](const std::vector<double>& wide) { return std::vector<float>(wide.begin(), wide.end()); };
  return {{"rope_factors_long.weight", narrow(c.rope.long_factor)},
          {"rope_factors_short.weight", narrow(c.rope.short_factor)}};
}

Result<std::string> config_json(const ModelConfig& c, std::string_view torch_dtype, std::int32_t pad,
                                std::string_view what) {
  struct Names {
    const char *architecture, *type;
  };
  const Names names = c.architecture == Architecture::llama     ? Names{"LlamaForCausalLM", "llama"}
                      : c.architecture == Architecture::mistral ? Names{"MistralForCausalLM", "mistral"}
                      : c.architecture == Architecture::qwen2   ? Names{"Qwen2ForCausalLM", "qwen2"}
                      : c.architecture == Architecture::qwen3   ? Names{"Qwen3ForCausalLM", "qwen3"}
                                                                : Names{"Phi3ForCausalLM", "phi3"};
  nlohmann::ordered_json j = {{"architectures", {names.architecture}},
                              {"model_type", names.type},
                              {"hidden_size", c.hidden},
                              {"intermediate_size", c.ffn},
                              {"num_hidden_layers", c.layers},
                              {"num_attention_heads", c.heads},
                              {"num_key_value_heads", c.kv_heads},
                              {"head_dim", c.head_dim},
                              {"vocab_size", c.vocab},
                              {"max_position_embeddings", c.context},
                              {"rms_norm_eps", c.norm_eps},
                              {"rope_theta", c.rope.theta},
                              {"rope_scaling", nullptr},
                              {"hidden_act", "silu"},
                              {"tie_word_embeddings", c.tied_head},
                              {"torch_dtype", std::string(torch_dtype)}};
  if (c.architecture == Architecture::llama || c.architecture == Architecture::qwen3)
    j["attention_bias"] = c.qkv_bias;
  if (c.architecture == Architecture::llama) j["mlp_bias"] = c.mlp_bias;
  if (c.rope.partial != 1) j["partial_rotary_factor"] = c.rope.partial;
  if (c.sliding_window > 0) j["sliding_window"] = c.sliding_window;
  const RopeConfig& r = c.rope;
  if (r.scaling == RopeScaling::linear) j["rope_scaling"] = {{"rope_type", "linear"}, {"factor", r.factor}};
  if (r.scaling == RopeScaling::llama3)
    j["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", r.factor},
                         {"low_freq_factor", r.low_freq_factor},
                         {"high_freq_factor", r.high_freq_factor},
                         {"original_max_position_embeddings", r.original_context}};
  if (r.scaling == RopeScaling::longrope) {
    if (c.architecture != Architecture::phi3)
      return Status(
          Errc::unsupported,
          cat({what, ": the factors of rope_freqs.weight are those of no rule that config.json has"}));
    j["original_max_position_embeddings"] = r.original_context;
    j["rope_scaling"] = {
        {"type", "longrope"}, {"long_factor", r.long_factor}, {"short_factor", r.short_factor}};
  }
  if (c.bos >= 0) j["bos_token_id"] = c.bos;
  if (c.eos.size() == 1) j["eos_token_id"] = c.eos[0];
  if (c.eos.size() > 1) j["eos_token_id"] = c.eos;
  if (pad >= 0) j["pad_token_id"] = pad;
  return j.dump(2) + "\n";
}

}  // namespace qf::model::detail
