#include <algorithm>
#include <unordered_map>

#include "model_gguf_pretokenizer.hpp"
#include "model_gguf_tokenizer.hpp"

namespace qf::model::detail {
namespace {

struct Merge {
  std::string_view left, right;
  float score;
};

// SentencePiece scores say in which order pieces come to be; tokenizer.json lists that order as pairs.
Json merges_from_scores(const text::GgufVocabulary& v) {
  std::unordered_map<std::string_view, float> pieces;
  for (std::size_t i = 0; i < v.tokens.size(); ++i)
    if (v.types[i] == 1 || v.types[i] == 4) pieces.emplace(v.tokens[i], v.scores[i]);
  std::vector<Merge> merges;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.types[i] != 1) continue;
    const std::string_view token = v.tokens[i];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      if ((static_cast<unsigned char>(token[cut]) & 0xc0) == 0x80) continue;  // inside a character
      const auto left = token.substr(0, cut), right = token.substr(cut);
      if (pieces.count(left) && pieces.count(right)) merges.push_back({left, right, v.scores[i]});
    }
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [](const Merge& a, const Merge& b) { return a.score > b.score; });
  Json list = Json::array();
  for (const Merge& m : merges) list.push_back(Json::array({std::string(m.left), std::string(m.right)}));
  return list;
}

Json added_tokens(const text::GgufVocabulary& v) {
  Json list = Json::array();
  for (std::size_t i = 0; i < v.tokens.size(); ++i)
    if (v.types[i] == 3 || v.types[i] == 4 || (v.types[i] == 2 && v.model == "llama"))
      list.push_back({{"id", i},
                      {"content", v.tokens[i]},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", v.types[i] != 4}});
  return list;
}

Json byte_level(bool own_pattern) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own_pattern}};
}

// What stands around a text: BOS before it, EOS after it.
Json post_processor(const text::GgufVocabulary& v) {
  Json single = Json::array(), pair = Json::array(), specials = Json::object();
  auto special = [&](std::optional<std::int32_t> id, bool wanted, int type, Json& list) {
    if (!id || !wanted) return;
    const std::string& token = v.tokens[static_cast<std::size_t>(*id)];
    list.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
    specials[token] = {{"id", token}, {"ids", Json::array({*id})}, {"tokens", Json::array({token})}};
  };
  auto text = [&](const char* name, int type, Json& list) {
    special(v.bos, v.add_bos, type, list);
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    special(v.eos, v.add_eos, type, list);
  };
  text("A", 0, single);
  text("A", 0, pair);
  text("B", 1, pair);
  if (specials.empty()) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}};
}

Json replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

constexpr const char* kSpace = "\xe2\x96\x81";  // U+2581, SentencePiece's space

Json spm_normalizer(bool prefix) {
  Json list = Json::array();
  if (prefix) list.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  list.push_back(replace(" ", kSpace));
  return {{"type", "Sequence"}, {"normalizers", list}};
}
Json spm_decoder(bool prefix) {
  Json list = Json::array({replace(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (prefix) list.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", list}};
}

Result<Json> build(const text::GgufVocabulary& v, std::string_view what) {
  const bool spm = v.model == "llama";
  Json vocab = Json::object();
  for (std::size_t i = 0; i < v.tokens.size(); ++i)
    if (!vocab.emplace(v.tokens[i], i).second)
      return Status(Errc::bad_format, cat({what, ": the token ", printable(v.tokens[i]), " stands twice"}));
  Json root = {{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", added_tokens(v)},
               {"normalizer", nullptr},
               {"pre_tokenizer", nullptr},
               {"post_processor", post_processor(v)}};
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", spm},
                {"byte_fallback", spm},
                {"ignore_merges", false},
                {"vocab", std::move(vocab)}};
  if (spm) {
    root["normalizer"] = spm_normalizer(v.add_space_prefix);
    root["decoder"] = spm_decoder(v.add_space_prefix);
    if (v.unk) model["unk_token"] = v.tokens[static_cast<std::size_t>(*v.unk)];
    model["merges"] = merges_from_scores(v);
  } else {
    const std::string_view name = v.pre == "default"  ? "gpt-2"
                                  : v.pre == "llama3" ? "llama-bpe"
                                                      : std::string_view(v.pre);
    const auto* known = std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers),
                                     [&](const PreTokenizer& p) { return p.gguf == name; });
    if (known == std::end(kPreTokenizers))
      return Status(Errc::unsupported,
                    cat({what, ": the pre-tokenizer ", printable(v.pre), " isn't supported, expected ",
                         "smollm, llama-bpe, qwen2 or gpt-2"}));
    if (known->nfc) root["normalizer"] = {{"type", "NFC"}};
    Json parts = Json::array();
    if (known->digits) parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
    if (!known->pattern.empty())
      parts.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", std::string(known->pattern)}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    parts.push_back(byte_level(known->pattern.empty()));
    root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", parts}};
    root["decoder"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
    model["ignore_merges"] = known->ignore_merges;
    Json merges = Json::array();
    for (const std::string& m : v.merges) {
      const std::size_t space = m.find(' ', 1);
      if (space == std::string::npos || space + 1 == m.size())
        return Status(Errc::bad_format, cat({what, ": the merge ", printable(m), " is no pair"}));
      merges.push_back(Json::array({m.substr(0, space), m.substr(space + 1)}));
    }
    model["merges"] = std::move(merges);
  }
  root["model"] = std::move(model);
  return root;
}

Result<std::string> dump(const Json& json, int indent, std::string_view what) {
  try {
    return json.dump(indent) + "\n";
  } catch (const Json::exception&) {  // what it refuses is text that isn't UTF-8
    return Status(Errc::bad_format, cat({what, ": a token or the chat template is not UTF-8"}));
  }
}

}  // namespace

Result<std::string> tokenizer_json(const text::GgufVocabulary& vocabulary, std::string_view what) {
  QF_TRY_ASSIGN(const Json root, build(vocabulary, what));
  return dump(root, -1, what);
}

Result<std::string> tokenizer_config_json(const StoredVocabulary& stored, std::int64_t context,
                                          std::string_view what) {
  const text::GgufVocabulary& v = stored.vocabulary;
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", context},
               {"clean_up_tokenization_spaces", false},
               {"add_bos_token", v.add_bos},
               {"add_eos_token", v.add_eos}};
  auto token = [&](const char* key, std::optional<std::int32_t> id) {
    if (id) json[key] = v.tokens[static_cast<std::size_t>(*id)];
  };
  token("bos_token", v.bos), token("eos_token", v.eos), token("unk_token", v.unk),
      token("pad_token", stored.pad);
  if (!stored.chat_template.empty()) json["chat_template"] = stored.chat_template;
  return dump(json, 2, what);
}

}  // namespace qf::model::detail
