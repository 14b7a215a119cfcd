#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <vector>

#include "model_gguf_names.hpp"
#include "qf/model/gguf_import.hpp"

namespace qf::model {
namespace {

constexpr std::int64_t kMost = 1 << 30;

// The double that prints like the float: 9.99999974e-06f was 1e-5 before it was stored.
double as_written(double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, static_cast<float>(value)).ptr;
  double out = value;
  std::from_chars(digits, end, out);
  return out;
}

class ConfigReader {
 public:
  explicit ConfigReader(const io::GgufFile& file) : file_(file) {}

  Result<ModelConfig> read() {
    QF_TRY_ASSIGN(auto architecture, file_.string("general.architecture"));
    QF_TRY(read_architecture(architecture));
    prefix_ = std::string(architecture) + ".";
    QF_TRY_ASSIGN(const std::int64_t experts, file_.integer_or(prefix_ + "expert_count", 0));
    if (experts > 0) return refuse("expert_count", "a mixture of experts");
    QF_TRY_ASSIGN(c_.hidden, size("embedding_length"));
    QF_TRY_ASSIGN(c_.layers, size("block_count"));
    QF_TRY_ASSIGN(c_.ffn, size("feed_forward_length"));
    QF_TRY_ASSIGN(c_.context, size("context_length"));
    QF_TRY_ASSIGN(c_.heads, size("attention.head_count"));
    QF_TRY_ASSIGN(c_.kv_heads, size("attention.head_count_kv", c_.heads));
    QF_TRY_ASSIGN(c_.head_dim, size("attention.key_length", c_.hidden / c_.heads));
    QF_TRY_ASSIGN(const std::int64_t value_length, size("attention.value_length", c_.head_dim));
    if (value_length != c_.head_dim)
      return refuse("attention.value_length", "values of another length than keys");
    if (c_.heads % c_.kv_heads || c_.head_dim < 2 || c_.head_dim % 2)
      return bad(cat({num(c_.heads), " heads, ", num(c_.kv_heads), " of keys and values, of ",
                      num(c_.head_dim), " dimensions: the heads must be a multiple, the dimensions even"}));
    QF_TRY_ASSIGN(c_.norm_eps, file_.real(prefix_ + "attention.layer_norm_rms_epsilon"));
    c_.norm_eps = as_written(c_.norm_eps);
    QF_TRY_ASSIGN(c_.sliding_window, file_.integer_or(prefix_ + "attention.sliding_window", 0));
    if (c_.sliding_window < 0 || c_.sliding_window > kMost) return bad("absurd attention.sliding_window");
    QF_TRY(read_vocabulary_size());
    QF_TRY(read_tensors());
    QF_TRY(read_rope());
    QF_TRY(read_ends());
    return c_;
  }

 private:
  Status bad(std::string text) const { return Status(Errc::bad_format, cat({file_.path(), ": ", text})); }
  Status refuse(std::string_view key, std::string_view what) const {
    return Status(Errc::unsupported,
                  cat({file_.path(), ": key '", prefix_, key, "': ", what, ", which isn't supported"}));
  }

  Status read_architecture(std::string_view name) {
    for (Architecture a : {Architecture::llama, Architecture::qwen2, Architecture::qwen3, Architecture::phi3})
      if (name == detail::gguf_architecture(a)) return c_.architecture = a, Status();
    return Status(Errc::unsupported, cat({file_.path(), ": architecture ", printable(name),
                                          " isn't supported, expected llama, qwen2, qwen3 or phi3"}));
  }

  // An integer from 1 on; lists (a value a layer) are taken when all are the same.
  Result<std::int64_t> size(std::string_view key, std::int64_t otherwise = 0) const {
    const std::string name = prefix_ + std::string(key);
    const io::GgufEntry* entry = file_.entry(name);
    if (!entry && otherwise) return otherwise;
    std::int64_t value = 0;
    if (entry && entry->type == io::GgufType::array) {
      QF_TRY_ASSIGN(auto all, file_.integers(name));
      if (all.empty()) return bad(cat({"key ", printable(name), " is an empty list"}));
      for (std::int64_t v : all)
        if (v != all[0]) return refuse(key, "layers of different sizes");
      value = all[0];
    } else {
      QF_TRY_ASSIGN(value, file_.integer(name));
    }
    if (value < 1 || value > kMost)
      return bad(cat({"key ", printable(name), " is ", num(value), ", expected 1 to ", num(kMost)}));
    return value;
  }

  Status read_vocabulary_size() {
    const io::TensorInfo* embedding = file_.find("token_embd.weight");
    if (!embedding) return Status(Errc::not_found, cat({file_.path(), ": no tensor 'token_embd.weight'"}));
    if (embedding->shape.size() != 2 || embedding->shape[1] != c_.hidden || embedding->shape[0] < 1 ||
        embedding->shape[0] > kMost)
      return bad(cat({"tensor 'token_embd.weight' doesn't have rows of ", num(c_.hidden), " elements"}));
    c_.vocab = embedding->shape[0];
    return {};
  }

  Status read_tensors() {
    auto has = [&](std::string_view name) { return file_.find(name) != nullptr; };
    c_.tied_head = !has("output.weight");
    c_.qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
    c_.o_bias = has("blk.0.attn_output.bias");
    c_.mlp_bias = has("blk.0.ffn_up.bias");
    c_.qk_norm = has("blk.0.attn_q_norm.weight");
    c_.fused_qkv = has("blk.0.attn_qkv.weight");
    c_.fused_gate_up = c_.architecture == Architecture::phi3 && !has("blk.0.ffn_gate.weight");
    return {};
  }

  Result<std::vector<double>> factors(std::string_view tensor) const {
    const io::TensorInfo* info = file_.find(tensor);
    if (!info) return Status(Errc::not_found, cat({file_.path(), ": no tensor ", printable(tensor)}));
    const auto expected =
        static_cast<std::uint64_t>(std::llround(c_.rope.partial * static_cast<double>(c_.head_dim)) / 2);
    if (info->elements != expected)
      return bad(cat({"tensor ", printable(tensor), " has ", num(info->elements), " factors, expected ",
                      num(expected)}));
    std::vector<float> values(info->elements);
    QF_TRY(file_.read_f32(*info, 0, values));
    for (float v : values)
      if (!std::isfinite(v) || v <= 0)
        return bad(cat({"tensor ", printable(tensor), " holds a factor that isn't positive"}));
    std::vector<double> wide;
    for (float v : values) wide.push_back(as_written(v));
    return wide;
  }

  Status read_rope() {
    RopeConfig& r = c_.rope;
    QF_TRY_ASSIGN(r.theta, file_.real_or(prefix_ + "rope.freq_base", 10000));
    r.theta = as_written(r.theta);
    if (!(r.theta > 0) || !std::isfinite(r.theta)) return bad("rope.freq_base isn't positive");
    QF_TRY_ASSIGN(const std::int64_t dims, size("rope.dimension_count", c_.head_dim));
    if (dims > c_.head_dim || dims % 2)
      return bad(cat({num(dims), " rotating dimensions, expected an even number up to ", num(c_.head_dim)}));
    r.partial = static_cast<double>(dims) / static_cast<double>(c_.head_dim);
    QF_TRY_ASSIGN(r.original_context, file_.integer_or(prefix_ + "rope.scaling.original_context_length", 0));
    QF_TRY_ASSIGN(auto type, file_.string_or(prefix_ + "rope.scaling.type", "none"));
    if (type == "linear") {
      QF_TRY_ASSIGN(r.factor, file_.real_or(prefix_ + "rope.scaling.factor", 1));
      r.factor = as_written(r.factor);
      if (!(r.factor > 0)) return bad("rope.scaling.factor isn't positive");
      if (r.factor != 1) r.scaling = RopeScaling::linear;
    } else if (type != "none" && type != "longrope") {
      return refuse("rope.scaling.type", printable(type));
    }
    if (file_.find("rope_factors_long.weight")) {
      QF_TRY_ASSIGN(r.long_factor, factors("rope_factors_long.weight"));
      QF_TRY_ASSIGN(r.short_factor, factors("rope_factors_short.weight"));
      QF_TRY_ASSIGN(r.attention_factor, file_.real_or(prefix_ + "rope.scaling.attn_factor", 1));
      r.scaling = RopeScaling::longrope;
      if (r.original_context < 1)
        return bad("rope_factors_long.weight without rope.scaling.original_context_length");
    } else if (file_.find("rope_freqs.weight")) {
      QF_TRY_ASSIGN(r.long_factor, factors("rope_freqs.weight"));
      if (!recognise_llama3(r)) {
        r.short_factor = r.long_factor;
        r.scaling = RopeScaling::longrope;
        r.attention_factor = 1;
        r.original_context = c_.context;
      }
    }
    return {};
  }

  // Llama 3 stores the outcome of its rule, not the rule; this finds it again.
  bool recognise_llama3(RopeConfig& r) const {
    const double factor = *std::max_element(r.long_factor.begin(), r.long_factor.end());
    for (std::int64_t original : {r.original_context, std::int64_t{8192}}) {
      if (original < 1) continue;
      const double low = 1, high = 4, context = static_cast<double>(original);
      bool same = true;
      for (std::size_t i = 0; i < r.long_factor.size() && same; ++i) {
        const double dims = 2.0 * static_cast<double>(r.long_factor.size());
        const double wavelength =
            2 * std::numbers::pi * std::pow(r.theta, 2.0 * static_cast<double>(i) / dims);
        const double smooth = (context / wavelength - low) / (high - low);
        const double expected = wavelength < context / high  ? 1
                                : wavelength > context / low ? factor
                                                             : 1 / ((1 - smooth) / factor + smooth);
        same = std::abs(expected - r.long_factor[i]) <= 1e-4 * expected;
      }
      if (!same) continue;
      r.scaling = RopeScaling::llama3;
      r.factor = factor, r.low_freq_factor = low, r.high_freq_factor = high, r.original_context = original;
      r.long_factor.clear();
      return true;
    }
    return false;
  }

  Status read_ends() {
    if (!file_.has("tokenizer.ggml.tokens")) return {};
    QF_TRY_ASSIGN(const std::int64_t bos, file_.integer_or("tokenizer.ggml.bos_token_id", -1));
    if (bos >= c_.vocab)
      return bad(cat({"tokenizer.ggml.bos_token_id is ", num(bos), " of ", num(c_.vocab), " tokens"}));
    c_.bos = static_cast<std::int32_t>(std::max<std::int64_t>(bos, -1));
    auto add = [&](std::int64_t id) {
      const auto small = static_cast<std::int32_t>(id);
      if (id >= 0 && id < c_.vocab && std::find(c_.eos.begin(), c_.eos.end(), small) == c_.eos.end())
        c_.eos.push_back(small);
    };
    for (std::string_view key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      QF_TRY_ASSIGN(const std::int64_t id, file_.integer_or(key, -1));
      add(id);
    }
    // Files often name only one end; a chat model's turn ends with one of these.
    QF_TRY_ASSIGN(auto vocabulary, vocabulary_from_gguf(file_));
    for (std::size_t i = 0; i < vocabulary.tokens.size() && i < vocabulary.types.size(); ++i)
      if (vocabulary.types[i] == 3)
        for (std::string_view end : {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>"})
          if (vocabulary.tokens[i] == end) add(static_cast<std::int64_t>(i));
    return {};
  }

  const io::GgufFile& file_;
  ModelConfig c_;
  std::string prefix_;
};

}  // namespace

Result<ModelConfig> config_from_gguf(const io::GgufFile& file) {
  try {
    return ConfigReader(file).read();
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({file.path(), ": no memory for its configuration"}));
  }
}

Result<text::GgufVocabulary> vocabulary_from_gguf(const io::GgufFile& file) {
  auto bad = [&](std::string text) { return Status(Errc::bad_format, cat({file.path(), ": ", text})); };
  text::GgufVocabulary v;
  QF_TRY_ASSIGN(auto model, file.string("tokenizer.ggml.model"));
  if (model != "gpt2" && model != "llama")
    return Status(Errc::unsupported, cat({file.path(), ": a tokenizer of the kind ", printable(model),
                                          " isn't supported, expected gpt2 or llama"}));
  const bool spm = model == "llama";
  v.model = model;
  QF_TRY_ASSIGN(auto pre, file.string_or("tokenizer.ggml.pre", "default"));
  v.pre = pre;
  QF_TRY_ASSIGN(v.tokens, file.strings("tokenizer.ggml.tokens"));
  if (v.tokens.empty() || v.tokens.size() > static_cast<std::size_t>(kMost))
    return bad(cat({num(v.tokens.size()), " tokens, expected 1 to ", num(kMost)}));
  auto same_length = [&](std::string_view key, std::size_t length) -> Status {
    if (length == v.tokens.size()) return {};
    return bad(cat({"key '", key, "': ", num(length), " entries for ", num(v.tokens.size()), " tokens"}));
  };
  if (file.has("tokenizer.ggml.scores")) {
    QF_TRY_ASSIGN(auto scores, file.reals("tokenizer.ggml.scores"));
    QF_TRY(same_length("tokenizer.ggml.scores", scores.size()));
    if (spm) {
      for (double s : scores) v.scores.push_back(static_cast<float>(s));
    }
  } else if (spm) {
    return Status(Errc::not_found, cat({file.path(), ": no key 'tokenizer.ggml.scores'"}));
  }
  if (file.has("tokenizer.ggml.token_type")) {
    QF_TRY_ASSIGN(auto types, file.integers("tokenizer.ggml.token_type"));
    QF_TRY(same_length("tokenizer.ggml.token_type", types.size()));
    for (std::int64_t t : types) {
      if (t < 0 || t > 6)
        return bad(cat({"key 'tokenizer.ggml.token_type': a type of ", num(t), ", expected 1 to 6"}));
      v.types.push_back(static_cast<std::int32_t>(t == 0 ? 1 : t));
    }
  } else {
    v.types.assign(v.tokens.size(), 1);
  }
  if (!spm) {
    QF_TRY_ASSIGN(v.merges, file.strings("tokenizer.ggml.merges"));
  }
  auto id = [&](std::string_view key) -> Result<std::optional<std::int32_t>> {
    QF_TRY_ASSIGN(const std::int64_t value, file.integer_or(key, -1));
    if (value >= static_cast<std::int64_t>(v.tokens.size()))
      return bad(cat({"key '", key, "': ", num(value), " of ", num(v.tokens.size()), " tokens"}));
    return value < 0 ? std::optional<std::int32_t>() : static_cast<std::int32_t>(value);
  };
  QF_TRY_ASSIGN(v.bos, id("tokenizer.ggml.bos_token_id"));
  QF_TRY_ASSIGN(v.eos, id("tokenizer.ggml.eos_token_id"));
  QF_TRY_ASSIGN(v.unk, id("tokenizer.ggml.unknown_token_id"));
  // What llama.cpp assumes when a file says nothing.
  QF_TRY_ASSIGN(v.add_bos, file.boolean_or("tokenizer.ggml.add_bos_token",
                                           spm || v.pre == "llama-bpe" || v.pre == "llama3"));
  QF_TRY_ASSIGN(v.add_eos, file.boolean_or("tokenizer.ggml.add_eos_token", false));
  QF_TRY_ASSIGN(v.add_space_prefix, file.boolean_or("tokenizer.ggml.add_space_prefix", spm));
  return v;
}

Result<std::string> chat_template_from_gguf(const io::GgufFile& file) {
  QF_TRY_ASSIGN(auto source, file.string_or("tokenizer.chat_template", ""));
  return std::string(source);
}

}  // namespace qf::model
