// Needs: link qf. What a decoder language model looks like, read from Hugging Face's config.json or GGUF
// metadata.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/result.hpp"

namespace qf::model {

enum class Architecture : std::uint8_t { llama, mistral, qwen2, qwen3, phi3 };

enum class RopeScaling : std::uint8_t { none, linear, llama3, longrope };

struct RopeConfig {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;  // linear, llama3
  std::int64_t original_context = 0;                             // llama3, longrope
  std::vector<double> short_factor, long_factor;                 // longrope, [rotary dims / 2]
  double attention_factor = 0;  // longrope; 0: derived from the context lengths
  double partial = 1;           // share of head_dim that rotates
};

struct ModelConfig {
  Architecture architecture = Architecture::llama;
  std::int64_t hidden = 0, ffn = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, context = 0;
  double norm_eps = 1e-5;
  bool tied_head = false, qkv_bias = false, o_bias = false, mlp_bias = false, qk_norm = false;
  bool fused_qkv = false, fused_gate_up = false;  // Phi-3 stores these as one tensor
  std::int64_t sliding_window = 0;                // 0: none. Token i sees (i - window, i]
  std::vector<std::uint8_t> layer_uses_window;    // [layers] or empty: all layers alike
  RopeConfig rope;
  std::int32_t bos = -1;
  std::vector<std::int32_t> eos;  // any of them ends a text
};

// `what` names the file in errors. An unknown architecture, or a key whose value would change the numbers and
// isn't supported, is Errc::unsupported and named; missing or absurd sizes are Errc::bad_format.
Result<ModelConfig> parse_config(std::string_view config_json, std::string_view what);

}  // namespace qf::model
