#include "qf/model/config.hpp"

#include <array>
#include <cmath>
#include <optional>

#include "qf/core/json.hpp"

namespace qf::model {
namespace {

struct Known {
  std::string_view architecture, model_type;
  Architecture id;
};
constexpr std::array<Known, 5> kKnown{{{"LlamaForCausalLM", "llama", Architecture::llama},
                                       {"MistralForCausalLM", "mistral", Architecture::mistral},
                                       {"Qwen2ForCausalLM", "qwen2", Architecture::qwen2},
                                       {"Qwen3ForCausalLM", "qwen3", Architecture::qwen3},
                                       {"Phi3ForCausalLM", "phi3", Architecture::phi3}}};

// Keys that don't change logits, or that are read below. What isn't listed must be null, false or a string.
constexpr std::string_view kHarmless[] = {
    "architectures", "attention_bias", "attention_dropout", "auto_map", "bos_token_id", "dtype", "embd_pdrop",
    "eos_token_id", "head_dim", "hidden_act", "hidden_dropout", "hidden_size", "initializer_range",
    "intermediate_size", "is_llama_config", "layer_types", "max_position_embeddings", "max_window_layers",
    "mlp_bias", "model_type", "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
    "original_max_position_embeddings", "pad_token_id", "partial_rotary_factor", "pretraining_tp",
    "quantization_config", "resid_pdrop", "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta",
    "sliding_window", "tie_word_embeddings", "torch_dtype", "use_cache", "use_sliding_window", "vocab_size",
    // what transformers 4 wrote for every model; all of it concerns generation or other kinds of models
    "bad_words_ids", "begin_suppress_tokens", "chunk_size_feed_forward", "decoder_start_token_id",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id",
    "id2label", "label2id", "length_penalty", "max_length", "max_new_tokens", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_scores", "prefix", "problem_type", "pruned_heads",
    "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate", "sep_token_id",
    "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder",
    "tokenizer_class", "top_k", "top_p", "torchscript", "transformers.js_config", "transformers_version",
    "typical_p", "unsloth_fixed", "unsloth_version", "use_bfloat16"};

bool harmless(std::string_view key) {
  if (key.starts_with("_")) return true;
  for (std::string_view known : kHarmless)
    if (key == known) return true;
  return false;
}

std::string show(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 48);
}

class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  Status bad(std::string_view key, std::string_view text) const {
    return Status(Errc::bad_format, cat({where_, ": ", printable(key), " ", text}));
  }
  Status refuse(std::string_view key, std::string_view text) const {
    return Status(Errc::unsupported, cat({where_, ": ", printable(key), " ", text}));
  }
  // nullptr when the key is absent or null.
  const Json* find(std::string_view key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  bool has(std::string_view key) const { return json_.contains(key); }

  Result<std::int64_t> integer(std::string_view key, std::int64_t least, std::int64_t most,
                               std::optional<std::int64_t> otherwise = std::nullopt) const {
    const Json* value = find(key);
    if (!value) {
      if (otherwise) return *otherwise;
      return bad(key, has(key) ? "is null, expected an integer" : "is missing");
    }
    return checked(key, *value, least, most);
  }
  Result<std::int64_t> checked(std::string_view key, const Json& value, std::int64_t least,
                               std::int64_t most) const {
    const bool fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                          : value.is_number_integer();
    if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
      return bad(key,
                 cat({"is ", show(value), ", expected an integer from ", num(least), " to ", num(most)}));
    return value.get<std::int64_t>();
  }
  Result<double> number(std::string_view key, double least, double most,
                        std::optional<double> otherwise = std::nullopt) const {
    const Json* value = find(key);
    if (!value) {
      if (otherwise) return *otherwise;
      return bad(key, "is missing");
    }
    return checked_number(key, *value, least, most);
  }
  Result<double> checked_number(std::string_view key, const Json& value, double least, double most) const {
    if (value.is_number()) {
      const double x = value.get<double>();
      if (x >= least && x <= most) return x;
    }
    return bad(key,
               cat({"is ", show(value), ", expected a number from ", shown(least), " to ", shown(most)}));
  }
  Result<bool> boolean(std::string_view key, bool otherwise) const {
    const Json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_boolean()) return bad(key, cat({"is ", show(*value), ", expected true or false"}));
    return value->get<bool>();
  }
  Result<std::string> string(std::string_view key, std::string_view otherwise) const {
    const Json* value = find(key);
    if (!value) return std::string(otherwise);
    if (!value->is_string()) return bad(key, cat({"is ", show(*value), ", expected a string"}));
    return value->get<std::string>();
  }
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }

 private:
  static std::string shown(double x) { return Json(x).dump(); }
  const Json& json_;
  std::string where_;
};

Result<Architecture> parse_architecture(const Reader& in) {
  QF_TRY_ASSIGN(std::string type, in.string("model_type", ""));
  std::string name;
  if (const Json* list = in.find("architectures")) {
    if (!list->is_array() || list->size() != 1 || !(*list)[0].is_string())
      return in.bad("architectures", cat({"is ", show(*list), ", expected a list of one name"}));
    name = (*list)[0].get<std::string>();
  }
  if (name.empty() && type.empty()) return in.bad("architectures", "and 'model_type' are both missing");
  for (const Known& known : kKnown) {
    if (name.empty() ? type != known.model_type : name != known.architecture) continue;
    if (!type.empty() && type != known.model_type)
      return in.bad("model_type", cat({"is ", printable(type), ", expected '", known.model_type,
                                       "' with architecture ", printable(name)}));
    return known.id;
  }
  std::string list;
  for (const Known& known : kKnown) list += (list.empty() ? "" : ", ") + std::string(known.architecture);
  return Status(Errc::unsupported, cat({in.where(), ": architecture ", printable(name.empty() ? type : name),
                                        " isn't supported; supported are ", list}));
}

Result<std::vector<double>> factors(const Reader& in, std::string_view key, std::int64_t count) {
  const Json* list = in.find(key);
  if (!list) return in.bad(key, "is missing");
  if (!list->is_array() || static_cast<std::int64_t>(list->size()) != count)
    return in.bad(key, cat({"has ", list->is_array() ? num(list->size()) + " elements" : "no list",
                            ", expected ", num(count), " numbers, one for each rotating pair"}));
  std::vector<double> out;
  for (const Json& value : *list) {
    QF_TRY_ASSIGN(double x, in.checked_number(key, value, 1e-3, 1e6));
    out.push_back(x);
  }
  return out;
}

Status parse_rope(const Reader& top, ModelConfig& c) {
  const Json *scaling = top.find("rope_scaling"), *parameters = top.find("rope_parameters");
  if (scaling && scaling->is_object() && scaling->empty()) scaling = nullptr;
  if (scaling && parameters && *scaling != *parameters)
    return top.bad("rope_scaling", "and 'rope_parameters' are both given and differ");
  const std::string key = parameters ? "rope_parameters" : "rope_scaling";
  const Json* given = parameters ? parameters : scaling;
  static const Json kEmpty = Json::object();
  if (given && !given->is_object()) return top.bad(key, cat({"is ", show(*given), ", expected an object"}));
  const Reader in(given ? *given : kEmpty, top.where() + ": " + key);
  for (const auto& [name, value] : in.json().items())
    if (value.is_object()) return in.refuse(name, "is an object: different RoPE by layer isn't supported");

  RopeConfig& rope = c.rope;
  QF_TRY_ASSIGN(const double outer_theta, top.number("rope_theta", 1, 1e12, 10000.0));
  QF_TRY_ASSIGN(rope.theta, in.number("rope_theta", 1, 1e12, outer_theta));
  QF_TRY_ASSIGN(const double outer_partial, top.number("partial_rotary_factor", 0, 1, 1.0));
  QF_TRY_ASSIGN(rope.partial, in.number("partial_rotary_factor", 0, 1, outer_partial));
  if (rope.partial != 1 && c.architecture != Architecture::phi3)
    return top.refuse("partial_rotary_factor", "other than 1 is supported for Phi-3 only");
  const auto rotary = static_cast<std::int64_t>(static_cast<double>(c.head_dim) * rope.partial);
  if (rotary < 2 || rotary % 2)
    return top.bad("partial_rotary_factor", cat({"makes ", num(rotary), " of ", num(c.head_dim),
                                                 " dimensions rotate, expected an even number, at least 2"}));

  QF_TRY_ASSIGN(std::string legacy, in.string("type", ""));
  QF_TRY_ASSIGN(std::string type, in.string("rope_type", legacy));
  if (!legacy.empty() && legacy != type)
    return in.bad("rope_type", cat({"is ", printable(type), " but 'type' is ", printable(legacy)}));
  if (type.empty()) {
    if (in.find("factor") || in.find("short_factor")) return in.bad("rope_type", "is missing");
    type = "default";
  }
  std::vector<std::string_view> allowed;
  if (type == "default") {
  } else if (type == "linear") {
    allowed = {"factor"};
    rope.scaling = RopeScaling::linear;
    QF_TRY_ASSIGN(rope.factor, in.number("factor", 1e-3, 1e6));
  } else if (type == "llama3") {
    allowed = {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
    rope.scaling = RopeScaling::llama3;
    QF_TRY_ASSIGN(rope.factor, in.number("factor", 1e-3, 1e6));
    QF_TRY_ASSIGN(rope.low_freq_factor, in.number("low_freq_factor", 1e-3, 1e6));
    QF_TRY_ASSIGN(rope.high_freq_factor, in.number("high_freq_factor", 1e-3, 1e6));
    if (rope.high_freq_factor <= rope.low_freq_factor)
      return in.bad("high_freq_factor", "is not above 'low_freq_factor'");
    QF_TRY_ASSIGN(rope.original_context,
                  in.integer("original_max_position_embeddings", 1, INT32_MAX, c.context));
  } else if (type == "longrope" || type == "su") {
    allowed = {"factor", "short_factor", "long_factor", "original_max_position_embeddings",
               "attention_factor"};
    rope.scaling = RopeScaling::longrope;
    QF_TRY_ASSIGN(rope.short_factor, factors(in, "short_factor", rotary / 2));
    QF_TRY_ASSIGN(rope.long_factor, factors(in, "long_factor", rotary / 2));
    QF_TRY_ASSIGN(const std::int64_t inner,
                  in.integer("original_max_position_embeddings", 2, INT32_MAX,
                             c.architecture == Architecture::phi3 ? 4096 : c.context));
    QF_TRY_ASSIGN(rope.original_context,
                  top.integer("original_max_position_embeddings", 2, INT32_MAX, inner));
    const double ratio = static_cast<double>(c.context) / static_cast<double>(rope.original_context);
    QF_TRY_ASSIGN(rope.factor, in.number("factor", 1e-3, 1e6, ratio));
    const double derived =
        rope.factor <= 1
            ? 1.0
            : std::sqrt(1 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_context)));
    QF_TRY_ASSIGN(rope.attention_factor, in.number("attention_factor", 1e-3, 1e3, derived));
  } else {
    return in.refuse(given && given->contains("rope_type") ? "rope_type" : "type",
                     cat({printable(type),
                          " isn't supported; supported are 'default', 'linear', 'llama3' "
                          "and 'longrope'"}));
  }
  for (const auto& [name, value] : in.json().items()) {
    bool known = value.is_null() || name == "rope_type" || name == "type" || name == "rope_theta" ||
                 name == "partial_rotary_factor";
    for (std::string_view ok : allowed) known = known || name == ok;
    if (!known) return in.refuse(name, cat({"isn't supported with type '", type, "'"}));
  }
  return {};
}

Status parse_window(const Reader& in, ModelConfig& c) {
  const bool qwen = c.architecture == Architecture::qwen2 || c.architecture == Architecture::qwen3;
  QF_TRY_ASSIGN(const bool use, in.boolean("use_sliding_window", false));
  QF_TRY_ASSIGN(const std::int64_t from, in.integer("max_window_layers", 0, INT32_MAX, qwen ? 28 : 0));
  // The width that applies when the key is absent; an explicit null means no window.
  const std::int64_t absent = in.has("sliding_window")                  ? 0
                              : c.architecture == Architecture::mistral ? 4096
                              : qwen && use                             ? 4096
                                                                        : 0;
  QF_TRY_ASSIGN(std::int64_t window, in.integer("sliding_window", 1, INT32_MAX, absent));
  if (window && c.architecture == Architecture::llama)
    return in.refuse("sliding_window", "has no meaning for Llama");
  if (!qwen && use) return in.refuse("use_sliding_window", "is supported for Qwen only");
  if (qwen && !use) window = 0;
  c.sliding_window = window;
  if (const Json* types = in.find("layer_types")) {
    if (!types->is_array() || static_cast<std::int64_t>(types->size()) != c.layers)
      return in.bad("layer_types", cat({"is not a list of ", num(c.layers), " names, one a layer"}));
    for (std::size_t i = 0; i < types->size(); ++i) {
      const Json& type = (*types)[i];
      if (type != "full_attention" && type != "sliding_attention")
        return in.refuse("layer_types", cat({"has ", show(type), " for layer ", num(i),
                                             ", supported are full_attention and sliding_attention"}));
      const bool slides = type == "sliding_attention";
      if (slides && !window)
        return in.bad("layer_types", cat({"has layer ", num(i), " slide, but there is no window"}));
      if (!qwen && slides != (window != 0))
        return in.refuse("layer_types", "that differ from 'sliding_window' are supported for Qwen only");
      c.layer_uses_window.push_back(slides);
    }
  } else if (window && qwen) {
    for (std::int64_t i = 0; i < c.layers; ++i) c.layer_uses_window.push_back(i >= from);
  }
  return {};
}

Status parse_ids(const Reader& in, ModelConfig& c) {
  QF_TRY_ASSIGN(const std::int64_t bos, in.integer("bos_token_id", -1, c.vocab - 1, -1));
  c.bos = static_cast<std::int32_t>(bos);
  const Json* eos = in.find("eos_token_id");
  if (!eos) return {};
  if (!eos->is_array()) {
    QF_TRY_ASSIGN(const std::int64_t id, in.checked("eos_token_id", *eos, -1, c.vocab - 1));
    if (id >= 0) c.eos.push_back(static_cast<std::int32_t>(id));
    return {};
  }
  for (const Json& one : *eos) {
    QF_TRY_ASSIGN(const std::int64_t id, in.checked("eos_token_id", one, 0, c.vocab - 1));
    c.eos.push_back(static_cast<std::int32_t>(id));
  }
  return {};
}

Status parse_sizes(const Reader& in, ModelConfig& c) {
  QF_TRY_ASSIGN(c.hidden, in.integer("hidden_size", 1, 1 << 18));
  QF_TRY_ASSIGN(c.ffn, in.integer("intermediate_size", 1, 1 << 20));
  QF_TRY_ASSIGN(c.layers, in.integer("num_hidden_layers", 1, 1 << 12));
  QF_TRY_ASSIGN(c.heads, in.integer("num_attention_heads", 1, 1 << 12));
  const bool old = c.architecture == Architecture::llama || c.architecture == Architecture::phi3;
  if (old && !in.find("num_key_value_heads")) {
    c.kv_heads = c.heads;
  } else {
    QF_TRY_ASSIGN(c.kv_heads, in.integer("num_key_value_heads", 1, c.heads));
  }
  if (c.heads % c.kv_heads)
    return in.bad("num_key_value_heads",
                  cat({"is ", num(c.kv_heads), ", which doesn't divide ", num(c.heads), " attention heads"}));
  QF_TRY_ASSIGN(c.head_dim, in.integer("head_dim", 2, 1 << 13, 0));
  if (c.head_dim == 0) {
    if (c.architecture == Architecture::qwen3) {
      c.head_dim = 128;
    } else if (c.hidden % c.heads) {
      return in.bad("num_attention_heads", cat({"is ", num(c.heads), ", which doesn't divide 'hidden_size' ",
                                                num(c.hidden), ", and there is no 'head_dim'"}));
    } else {
      c.head_dim = c.hidden / c.heads;
    }
  }
  if (c.head_dim % 2) return in.bad("head_dim", cat({"is ", num(c.head_dim), ", expected an even number"}));
  QF_TRY_ASSIGN(c.vocab, in.integer("vocab_size", 1, 1 << 24));
  QF_TRY_ASSIGN(c.context, in.integer("max_position_embeddings", 1, INT32_MAX));
  QF_TRY_ASSIGN(c.norm_eps,
                in.number("rms_norm_eps", 0, 1, c.architecture == Architecture::phi3 ? 1e-5 : 1e-6));
  return {};
}

Result<ModelConfig> parse_all(std::string_view config_json, std::string_view what) {
  QF_TRY_ASSIGN(const Json json, parse_json(config_json, what, {std::size_t{16} << 20, 32}));
  if (!json.is_object())
    return Status(Errc::bad_format, cat({what, ": not a JSON object, expected a model's configuration"}));
  const Reader in(json, std::string(what));
  ModelConfig c;
  QF_TRY_ASSIGN(c.architecture, parse_architecture(in));
  QF_TRY(parse_sizes(in, c));

  QF_TRY_ASSIGN(const std::string act, in.string("hidden_act", "silu"));
  if (act != "silu" && act != "swish")
    return in.refuse("hidden_act", cat({"is ", printable(act), ", only 'silu' is supported"}));
  for (std::string_view key :
       {"is_encoder_decoder", "is_decoder", "add_cross_attention", "rope_interleaved"}) {
    QF_TRY_ASSIGN(const bool on, in.boolean(key, false));
    if (on && key != "is_decoder") return in.refuse(key, "isn't supported");
  }
  for (const auto& [key, value] : json.items()) {
    const bool quiet = value.is_null() || value.is_string() || (value.is_boolean() && !value.get<bool>());
    if (!quiet && !harmless(key) && key != "is_decoder")
      return Status(Errc::unsupported, cat({what, ": key ", printable(key), " with value ", show(value),
                                            " isn't supported: it may change the model's numbers"}));
  }

  QF_TRY_ASSIGN(c.tied_head, in.boolean("tie_word_embeddings", false));
  QF_TRY_ASSIGN(const bool attention_bias, in.boolean("attention_bias", false));
  QF_TRY_ASSIGN(c.mlp_bias, in.boolean("mlp_bias", false));
  if (c.mlp_bias && c.architecture != Architecture::llama)
    return in.refuse("mlp_bias", "is supported for Llama only");
  switch (c.architecture) {
    case Architecture::llama:
    case Architecture::qwen3:
      c.qkv_bias = c.o_bias = attention_bias;
      c.qk_norm = c.architecture == Architecture::qwen3;
      break;
    case Architecture::qwen2:
      c.qkv_bias = true;  // whatever 'attention_bias' says: the architecture has no such switch
      break;
    case Architecture::mistral:
    case Architecture::phi3:
      if (attention_bias) return in.refuse("attention_bias", "isn't supported for this architecture");
      c.fused_qkv = c.fused_gate_up = c.architecture == Architecture::phi3;
      break;
  }
  QF_TRY(parse_rope(in, c));
  QF_TRY(parse_window(in, c));
  QF_TRY(parse_ids(in, c));
  return c;
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view config_json, std::string_view what) {
  try {
    return parse_all(config_json, what);
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({what, ": no memory to read it"}));
  }
}

}  // namespace qf::model
