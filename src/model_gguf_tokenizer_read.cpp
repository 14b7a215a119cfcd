#include <algorithm>
#include <unordered_map>

#include "model_gguf_pretokenizer.hpp"
#include "model_gguf_tokenizer.hpp"

namespace qf::model::detail {
namespace {

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}
std::string text_of(const Json& object, std::string_view key) {
  const Json* value = member(object, key);
  return value && value->is_string() ? value->get<std::string>() : std::string();
}
bool flag(const Json& object, std::string_view key, bool otherwise = false) {
  const Json* value = member(object, key);
  return value && value->is_boolean() ? value->get<bool>() : otherwise;
}

// The parts of a "Sequence", or the one part itself.
std::vector<const Json*> parts_of(const Json* node, std::string_view list) {
  std::vector<const Json*> parts;
  if (!node) return parts;
  const Json* inner = text_of(*node, "type") == "Sequence" ? member(*node, list) : nullptr;
  if (!inner || !inner->is_array()) return {node};
  for (const Json& part : *inner) parts.push_back(&part);
  return parts;
}

class VocabularyReader {
 public:
  VocabularyReader(const Json& tokenizer, const Json& config, std::int64_t vocab, std::string_view what)
      : tokenizer_(tokenizer), config_(config), vocab_(vocab), what_(what) {}

  Result<StoredVocabulary> read() {
    model_ = member(tokenizer_, "model");
    if (!model_) return bad("no \"model\"");
    if (text_of(*model_, "type") != "BPE" && !(text_of(*model_, "type").empty() && member(*model_, "merges")))
      return refuse(cat({"a model of type ", printable(text_of(*model_, "type")), ", expected BPE"}));
    const bool spm = flag(*model_, "byte_fallback");
    v_.model = spm ? "llama" : "gpt2";
    QF_TRY(read_tokens());
    QF_TRY(read_merges());
    if (spm) {
      QF_TRY(read_spm());
    } else {
      QF_TRY(read_pretokenizer());
    }
    QF_TRY(read_special());
    return std::move(out_);
  }

 private:
  Status bad(std::string text) const {
    return Status(Errc::bad_format, cat({what_, ": tokenizer.json: ", text}));
  }
  Status refuse(std::string text) const {
    return Status(Errc::unsupported, cat({what_, ": tokenizer.json: ", text}));
  }

  Status place(const std::string& token, const Json& id, std::int32_t type) {
    if (!id.is_number_integer()) return bad(cat({"the id of ", printable(token), " is no integer"}));
    const auto value = id.get<std::int64_t>();
    if (value < 0 || value >= vocab_)
      return bad(
          cat({"token ", printable(token), " has the id ", num(value), ", the model has ", num(vocab_)}));
    auto& slot = v_.tokens[static_cast<std::size_t>(value)];
    if (!slot.empty() && slot != token)
      return bad(cat({"the id ", num(value), " stands for ", printable(slot), " and ", printable(token)}));
    slot = token;
    v_.types[static_cast<std::size_t>(value)] = type;
    return {};
  }

  Status read_tokens() {
    const Json* vocab = member(*model_, "vocab");
    if (!vocab || !vocab->is_object()) return bad("no \"vocab\" in its model");
    v_.tokens.assign(static_cast<std::size_t>(vocab_), {});
    v_.types.assign(static_cast<std::size_t>(vocab_), 5);
    const std::string unknown = text_of(*model_, "unk_token");
    for (const auto& [token, id] : vocab->items()) {
      const bool byte =
          v_.model == "llama" && token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
      QF_TRY(place(token, id, token == unknown ? 2 : byte ? 6 : 1));
    }
    if (const Json* added = member(tokenizer_, "added_tokens"); added && added->is_array())
      for (const Json& token : *added) {
        const Json* id = member(token, "id");
        if (!id) return bad("an added token has no id");
        const std::string content = text_of(token, "content");
        const bool is_unknown = v_.model == "llama" && content == unknown;
        QF_TRY(place(content, *id, is_unknown ? 2 : flag(token, "special") ? 3 : 4));
      }
    for (std::size_t i = 0; i < v_.tokens.size(); ++i) {
      if (v_.tokens[i].empty()) v_.tokens[i] = "[PAD" + num(i) + "]";
      ids_.emplace(v_.tokens[i], static_cast<std::int32_t>(i));
    }
    return {};
  }

  Status read_merges() {
    const Json* merges = member(*model_, "merges");
    if (!merges || !merges->is_array()) return bad("no \"merges\" in its model");
    v_.merges.reserve(merges->size());
    for (const Json& m : *merges) {
      if (m.is_string()) {
        v_.merges.push_back(m.get<std::string>());
      } else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
        v_.merges.push_back(m[0].get<std::string>() + " " + m[1].get<std::string>());
      } else {
        return bad("a merge that is no pair");
      }
      if (std::count(v_.merges.back().begin(), v_.merges.back().end(), ' ') != 1)
        return refuse(cat({"the merge ", printable(v_.merges.back()), " holds a space"}));
    }
    return {};
  }

  Status read_pretokenizer() {
    std::string pattern;
    bool digits = false, byte_level = false;
    for (const Json* part : parts_of(member(tokenizer_, "pre_tokenizer"), "pretokenizers")) {
      const std::string type = text_of(*part, "type");
      if (type == "Digits" && flag(*part, "individual_digits")) {
        digits = true;
      } else if (type == "Split" && pattern.empty() && member(*part, "pattern")) {
        pattern = text_of(*member(*part, "pattern"), "Regex");
        if (pattern.empty()) return refuse("a Split without a regular expression");
      } else if (type == "ByteLevel") {
        byte_level = true;
        if (flag(*part, "add_prefix_space")) return refuse("ByteLevel with add_prefix_space");
      } else {
        return refuse(cat({"the pre-tokenizer ", printable(type), " isn't supported"}));
      }
    }
    bool nfc = false;
    for (const Json* part : parts_of(member(tokenizer_, "normalizer"), "normalizers")) {
      if (text_of(*part, "type") != "NFC")
        return refuse(cat({"the normalizer ", printable(text_of(*part, "type")), " isn't supported"}));
      nfc = true;
    }
    if (byte_level)
      for (const PreTokenizer& p : kPreTokenizers)
        if (p.pattern == pattern && p.digits == digits && p.nfc == nfc) {
          v_.pre = p.gguf;
          v_.add_space_prefix = false;
          return {};
        }
    return refuse(
        cat({"a pre-tokenizer that GGUF has no name for: ", byte_level ? "ByteLevel" : "no ByteLevel",
             digits ? ", Digits" : "", nfc ? ", NFC" : "", ", pattern ", printable(pattern, 300)}));
  }

  // llama.cpp merges by the score of the outcome; a merge's rank is such a score.
  Status read_spm() {
    v_.pre = "default";
    v_.add_space_prefix = false;
    for (const Json* part : parts_of(member(tokenizer_, "normalizer"), "normalizers")) {
      const std::string type = text_of(*part, "type");
      if (type == "Prepend") {
        v_.add_space_prefix = true;
      } else if (type != "Replace") {
        return refuse(cat({"the normalizer ", printable(type), " isn't supported"}));
      }
    }
    for (const Json* part : parts_of(member(tokenizer_, "pre_tokenizer"), "pretokenizers")) {
      const std::string type = text_of(*part, "type");
      if (type != "Metaspace")
        return refuse(cat({"the pre-tokenizer ", printable(type), " isn't supported"}));
      const std::string scheme = text_of(*part, "prepend_scheme");
      v_.add_space_prefix = scheme.empty() ? flag(*part, "add_prefix_space", true) : scheme != "never";
    }
    v_.scores.assign(v_.tokens.size(), 0);
    std::vector<bool> seen(v_.tokens.size());
    float rank = 0;
    for (const std::string& merge : v_.merges) {
      std::string product = merge;
      product.erase(product.find(' '), 1);
      const auto at = ids_.find(product);
      if (at == ids_.end()) return bad(cat({"the merge ", printable(merge), " gives no token"}));
      const auto id = static_cast<std::size_t>(at->second);
      if (!seen[id]) v_.scores[id] = -(rank += 1);
      seen[id] = true;
    }
    v_.merges.clear();
    return {};
  }

  std::optional<std::int32_t> id_of(std::string_view key) const {
    const Json* value = member(config_, key);
    if (!value) return std::nullopt;
    const auto at = ids_.find(value->is_string() ? value->get<std::string>() : text_of(*value, "content"));
    if (at == ids_.end()) return std::nullopt;
    return at->second;
  }

  Status read_special() {
    v_.bos = id_of("bos_token"), v_.eos = id_of("eos_token"), v_.unk = id_of("unk_token");
    out_.pad = id_of("pad_token");
    v_.add_bos = v_.add_eos = false;
    for (const Json* part : parts_of(member(tokenizer_, "post_processor"), "processors")) {
      const Json* single = member(*part, "single");
      if (text_of(*part, "type") != "TemplateProcessing" || !single || !single->is_array() || single->empty())
        continue;
      auto is = [&](const Json& piece, std::optional<std::int32_t> id) {
        const Json* token = member(piece, "SpecialToken");
        return token && id && text_of(*token, "id") == v_.tokens[static_cast<std::size_t>(*id)];
      };
      v_.add_bos = is(single->front(), v_.bos), v_.add_eos = is(single->back(), v_.eos);
    }
    v_.add_bos = flag(config_, "add_bos_token", v_.add_bos);
    v_.add_eos = flag(config_, "add_eos_token", v_.add_eos);
    out_.chat_template = text_of(config_, "chat_template");
    return {};
  }

  const Json &tokenizer_, &config_;
  std::int64_t vocab_;
  std::string_view what_;
  const Json* model_ = nullptr;
  StoredVocabulary out_;
  text::GgufVocabulary& v_ = out_.vocabulary;
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace

Result<StoredVocabulary> vocabulary_from_json(const Json& tokenizer, const Json& config, std::int64_t vocab,
                                              std::string_view what) {
  return VocabularyReader(tokenizer, config, vocab, what).read();
}

void put_vocabulary(const StoredVocabulary& stored, io::GgufMetadata& m) {
  const text::GgufVocabulary& v = stored.vocabulary;
  m.text("tokenizer.ggml.model", v.model);
  m.text("tokenizer.ggml.pre", v.pre);
  m.texts("tokenizer.ggml.tokens", v.tokens);
  if (!v.scores.empty()) m.f32s("tokenizer.ggml.scores", v.scores);
  m.i32s("tokenizer.ggml.token_type", v.types);
  if (v.model == "gpt2") m.texts("tokenizer.ggml.merges", v.merges);
  auto id = [&](std::string_view key, std::optional<std::int32_t> value) {
    if (value) m.u32(key, static_cast<std::uint32_t>(*value));
  };
  id("tokenizer.ggml.bos_token_id", v.bos);
  id("tokenizer.ggml.eos_token_id", v.eos);
  id("tokenizer.ggml.unknown_token_id", v.unk);
  id("tokenizer.ggml.padding_token_id", stored.pad);
  m.boolean("tokenizer.ggml.add_bos_token", v.add_bos);
  m.boolean("tokenizer.ggml.add_eos_token", v.add_eos);
  m.boolean("tokenizer.ggml.add_space_prefix", v.add_space_prefix);
  if (!stored.chat_template.empty()) m.text("tokenizer.chat_template", stored.chat_template);
}

}  // namespace qf::model::detail
