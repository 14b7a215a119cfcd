#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "qf/core/json.hpp"
#include "qf/model/config.hpp"

using qf::Errc;
using qf::Json;
using qf::model::Architecture;
using qf::model::ModelConfig;
using qf::model::parse_config;
using qf::model::RopeScaling;

namespace {

Json base(const std::string& architecture = "LlamaForCausalLM") {
  return {{"architectures", {architecture}},
          {"vocab_size", 320},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 256}};
}

ModelConfig good(const Json& json) {
  auto config = parse_config(json.dump(), "config.json");
  INFO(config.status().text());
  REQUIRE(config.ok());
  return std::move(*config);
}

// The whole text of the error, since it is what a person gets to see.
void check_bad(const Json& json, Errc code, const std::string& text) {
  auto config = parse_config(json.dump(), "config.json");
  REQUIRE_FALSE(config.ok());
  CHECK(config.status().text() == text);
  CHECK(config.status().code() == code);
}

Json with(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

}  // namespace

TEST_CASE("sizes and defaults") {
  const ModelConfig c = good(with(base(), {{"eos_token_id", {2, 7}}, {"bos_token_id", 1}}));
  CHECK(c.architecture == Architecture::llama);
  CHECK(c.head_dim == 16);
  CHECK(c.norm_eps == 1e-6);
  CHECK(c.rope.theta == 10000);
  CHECK(c.rope.scaling == RopeScaling::none);
  CHECK(c.bos == 1);
  CHECK(c.eos == std::vector<std::int32_t>{2, 7});
  CHECK_FALSE(c.tied_head);
  CHECK(c.sliding_window == 0);
  Json llama2 = base();
  llama2.erase("num_key_value_heads");
  CHECK(good(llama2).kv_heads == 4);
  CHECK(good(with(base("Qwen3ForCausalLM"), Json::object())).head_dim == 128);
  CHECK(good(with(base("Qwen2ForCausalLM"), Json::object())).qkv_bias);
  CHECK(good(with(base("Phi3ForCausalLM"), Json::object())).fused_qkv);
  // Without "architectures", the type says it.
  Json typed = with(base(), {{"model_type", "mistral"}});
  typed.erase("architectures");
  CHECK(good(typed).architecture == Architecture::mistral);
}

TEST_CASE("windows") {
  CHECK(good(base("MistralForCausalLM")).sliding_window == 4096);
  CHECK(good(with(base("MistralForCausalLM"), {{"sliding_window", nullptr}})).sliding_window == 0);
  CHECK(good(with(base("MistralForCausalLM"), {{"sliding_window", 32}})).sliding_window == 32);
  // Qwen writes a window that it doesn't use.
  const Json qwen = with(base("Qwen2ForCausalLM"), {{"sliding_window", 32}, {"max_window_layers", 2}});
  CHECK(good(with(qwen, {{"use_sliding_window", false}})).sliding_window == 0);
  const ModelConfig used = good(with(qwen, {{"use_sliding_window", true}}));
  CHECK(used.sliding_window == 32);
  CHECK(used.layer_uses_window == std::vector<std::uint8_t>{0, 0, 1});
  const Json types = {"sliding_attention", "full_attention", "full_attention"};
  CHECK(good(with(qwen, {{"use_sliding_window", true}, {"layer_types", types}})).layer_uses_window ==
        std::vector<std::uint8_t>{1, 0, 0});
}

TEST_CASE("both spellings of rope") {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8},
                        {"low_freq_factor", 1},
                        {"high_freq_factor", 4},
                        {"original_max_position_embeddings", 64}};
  const ModelConfig old = good(with(base(), {{"rope_theta", 5e5}, {"rope_scaling", scaling}}));
  const ModelConfig newer = good(with(base(), {{"rope_parameters", with(scaling, {{"rope_theta", 5e5}})}}));
  for (const ModelConfig* c : {&old, &newer}) {
    CHECK(c->rope.scaling == RopeScaling::llama3);
    CHECK(c->rope.theta == 5e5);
    CHECK(c->rope.factor == 8);
    CHECK(c->rope.original_context == 64);
  }
  CHECK(good(with(base(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}})).rope.factor == 2);

  Json longrope = {{"type", "su"}, {"short_factor", Json::array()}, {"long_factor", Json::array()}};
  for (int i = 0; i < 8; ++i) longrope["short_factor"].push_back(1), longrope["long_factor"].push_back(2 + i);
  const ModelConfig phi = good(
      with(base("Phi3ForCausalLM"), {{"rope_scaling", longrope}, {"original_max_position_embeddings", 64}}));
  CHECK(phi.rope.scaling == RopeScaling::longrope);
  CHECK(phi.rope.original_context == 64);
  CHECK(phi.rope.long_factor[7] == 9);
  CHECK(phi.rope.attention_factor == Approx(std::sqrt(1 + std::log(4.0) / std::log(64.0))));
}

TEST_CASE("what would change the numbers is refused by name") {
  const auto refused = [](const Json& json, const std::string& text) {
    check_bad(json, Errc::unsupported, "config.json: " + text);
  };
  refused(base("GemmaForCausalLM"),
          "architecture 'GemmaForCausalLM' isn't supported; supported are LlamaForCausalLM, "
          "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Phi3ForCausalLM");
  refused(with(base(), {{"hidden_act", "gelu"}}), "'hidden_act' is 'gelu', only 'silu' is supported");
  refused(with(base(), {{"rope_interleaved", true}}), "'rope_interleaved' isn't supported");
  refused(with(base(), {{"num_local_experts", 8}}),
          "key 'num_local_experts' with value '8' isn't supported: it may change the model's numbers");
  refused(with(base(), {{"logit_scale", 0.0625}}),
          "key 'logit_scale' with value '0.0625' isn't supported: it may change the model's numbers");
  refused(with(base(), {{"no_rope_layers", {1, 1, 0}}}),
          "key 'no_rope_layers' with value '[1,1,0]' isn't supported: it may change the model's numbers");
  refused(with(base(), {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}}),
          "rope_scaling: 'rope_type' 'yarn' isn't supported; supported are 'default', 'linear', 'llama3' and "
          "'longrope'");
  refused(with(base(), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 4}}}}),
          "rope_scaling: 'type' 'dynamic' isn't supported; supported are 'default', 'linear', 'llama3' and "
          "'longrope'");
  refused(with(base(), {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 4}, {"mscale", 2}}}}),
          "rope_parameters: 'mscale' isn't supported with type 'linear'");
  refused(with(base(), {{"rope_parameters", {{"full_attention", {{"rope_theta", 10000}}}}}}),
          "rope_parameters: 'full_attention' is an object: different RoPE by layer isn't supported");
  refused(with(base(), {{"partial_rotary_factor", 0.5}}),
          "'partial_rotary_factor' other than 1 is supported for Phi-3 only");
  refused(with(base(), {{"sliding_window", 64}}), "'sliding_window' has no meaning for Llama");
  refused(with(base("MistralForCausalLM"), {{"attention_bias", true}}),
          "'attention_bias' isn't supported for this architecture");
  refused(with(base("Qwen2ForCausalLM"), {{"mlp_bias", true}}), "'mlp_bias' is supported for Llama only");
  refused(with(base("Qwen2ForCausalLM"),
               {{"use_sliding_window", true}, {"layer_types", {"full_attention", "linear_attention", "x"}}}),
          "'layer_types' has '\"linear_attention\"' for layer 1, supported are full_attention and "
          "sliding_attention");
  // Keys that only describe are taken.
  good(with(base(), {{"transformers_version", "9"},
                     {"rope_interleaved", false},
                     {"is_llama_config", true},
                     {"pretraining_tp", 1},
                     {"_name_or_path", "x"},
                     {"logit_scale", nullptr}}));
}

TEST_CASE("missing and absurd values are named") {
  const auto bad = [](const Json& json, const std::string& text) {
    check_bad(json, Errc::bad_format, "config.json: " + text);
  };
  const auto without = [](const char* key) {
    Json json = base();
    json.erase(key);
    return json;
  };
  bad(Json::array(), "not a JSON object, expected a model's configuration");
  bad(without("architectures"), "'architectures' and 'model_type' are both missing");
  bad(without("hidden_size"), "'hidden_size' is missing");
  bad(without("max_position_embeddings"), "'max_position_embeddings' is missing");
  bad(with(base(), {{"hidden_size", -64}}), "'hidden_size' is '-64', expected an integer from 1 to 262144");
  bad(with(base(), {{"hidden_size", 64.5}}), "'hidden_size' is '64.5', expected an integer from 1 to 262144");
  bad(with(base(), {{"vocab_size", 18446744073709551615ull}}),
      "'vocab_size' is '18446744073709551615', expected an integer from 1 to 16777216");
  bad(with(base(), {{"num_hidden_layers", "3"}}),
      "'num_hidden_layers' is '\"3\"', expected an integer from 1 to 4096");
  bad(with(base(), {{"num_hidden_layers", 0}}),
      "'num_hidden_layers' is '0', expected an integer from 1 to 4096");
  bad(with(base(), {{"num_key_value_heads", 3}}),
      "'num_key_value_heads' is 3, which doesn't divide 4 attention heads");
  bad(with(base(), {{"num_attention_heads", 6}}),
      "'num_attention_heads' is 6, which doesn't divide 'hidden_size' 64, and there is no 'head_dim'");
  bad(with(base(), {{"head_dim", 15}}), "'head_dim' is 15, expected an even number");
  bad(with(base(), {{"rms_norm_eps", "1e-5"}}),
      "'rms_norm_eps' is '\"1e-5\"', expected a number from 0.0 to 1.0");
  bad(with(base(), {{"tie_word_embeddings", 1}}), "'tie_word_embeddings' is '1', expected true or false");
  bad(with(base(), {{"eos_token_id", 320}}), "'eos_token_id' is '320', expected an integer from -1 to 319");
  bad(with(base(), {{"model_type", "qwen2"}}),
      "'model_type' is 'qwen2', expected 'llama' with architecture 'LlamaForCausalLM'");
  bad(with(base(), {{"rope_scaling", {{"factor", 4}}}}), "rope_scaling: 'rope_type' is missing");
  bad(with(base(), {{"rope_scaling", {{"type", "linear"}}}}), "rope_scaling: 'factor' is missing");
  bad(with(base("Phi3ForCausalLM"),
           {{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}}}),
      "rope_scaling: 'short_factor' has 2 elements, expected 8 numbers, one for each rotating pair");
  bad(with(base("Phi3ForCausalLM"), {{"partial_rotary_factor", 0.2}}),
      "'partial_rotary_factor' makes 3 of 16 dimensions rotate, expected an even number, at least 2");
  bad(with(base("Qwen2ForCausalLM"),
           {{"layer_types", {"sliding_attention", "full_attention", "full_attention"}}}),
      "'layer_types' has layer 0 slide, but there is no window");
  auto broken = parse_config("{\"a\": 1, \"a\": 2}", "x/config.json");
  CHECK(broken.status().text() == "x/config.json: the key 'a' stands twice in one object");
}
