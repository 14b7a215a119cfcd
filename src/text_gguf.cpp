// A vocabulary out of GGUF metadata: the pipeline that tokenizer.json would state is chosen by its names.
#include <algorithm>
#include <cmath>
#include <new>

#include "src/text_tokenizer.hpp"

namespace qf::text {
namespace detail {
namespace {

enum TokenType : std::int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What the name in tokenizer.ggml.pre stands for.
struct Pre {
  std::string_view name;
  enum class Rule { gpt2, digits_then_gpt2, llama3, qwen2 } rule;
};
constexpr Pre kPres[] = {
    {"gpt-2", Pre::Rule::gpt2},
    {"gpt2", Pre::Rule::gpt2},
    {"phi-2", Pre::Rule::gpt2},
    {"default", Pre::Rule::gpt2},
    {"", Pre::Rule::gpt2},
    {"smollm", Pre::Rule::digits_then_gpt2},
    {"starcoder", Pre::Rule::digits_then_gpt2},
    {"refact", Pre::Rule::digits_then_gpt2},
    {"command-r", Pre::Rule::digits_then_gpt2},
    {"llama3", Pre::Rule::llama3},
    {"llama-v3", Pre::Rule::llama3},
    {"llama-bpe", Pre::Rule::llama3},
    {"qwen2", Pre::Rule::qwen2},
    {"deepseek-r1-qwen", Pre::Rule::qwen2},
};

class Builder {
 public:
  explicit Builder(const GgufVocabulary& in) : in_(in), count_(static_cast<std::int32_t>(in.tokens.size())) {}

  Result<TokenizerParts> run() {
    QF_TRY(check());
    if (in_.model == "gpt2") {
      QF_TRY(byte_level());
    } else if (in_.model == "llama") {
      QF_TRY(sentence_piece());
    } else {
      return Status(Errc::unsupported,
                    cat({"tokenizer.ggml.model ", printable(in_.model), " is not supported"}));
    }
    if (in_.add_bos && in_.bos) parts_.prefix.push_back(*in_.bos);
    if (in_.add_eos && in_.eos) parts_.suffix.push_back(*in_.eos);
    return std::move(parts_);
  }

 private:
  std::int32_t type(std::int32_t id) const { return in_.types.empty() ? kNormal : in_.types[id]; }

  Status check() const {
    if (in_.tokens.empty()) return Status(Errc::bad_format, "tokenizer.ggml.tokens: no tokens");
    if (in_.tokens.size() > 0x7ffffff0)
      return Status(Errc::bad_format, "tokenizer.ggml.tokens: more tokens than ids");
    const auto same_length = [&](std::string_view key, std::size_t found) {
      if (found == 0 || found == in_.tokens.size()) return Status();
      return Status(Errc::bad_format, cat({"tokenizer.ggml.", key, ": ", num(found), " entries for ",
                                           num(in_.tokens.size()), " tokens"}));
    };
    QF_TRY(same_length("token_type", in_.types.size()));
    QF_TRY(same_length("scores", in_.scores.size()));
    for (std::int32_t id = 0; id < count_; ++id) {
      if (type(id) < 0 || type(id) > kByte)
        return Status(Errc::bad_format, cat({"tokenizer.ggml.token_type[", num(id), "]: ", num(type(id)),
                                             " is not a token type"}));
      if (in_.tokens[id].size() != to_valid_utf8(in_.tokens[id]).size() ||
          to_valid_utf8(in_.tokens[id]) != in_.tokens[id])
        return Status(Errc::bad_format, cat({"tokenizer.ggml.tokens[", num(id),
                                             "]: ", printable(in_.tokens[id]), " is not UTF-8"}));
    }
    const auto known = [&](std::string_view key, std::optional<std::int32_t> id) {
      if (!id || (*id >= 0 && *id < count_)) return Status();
      return Status(Errc::bad_format,
                    cat({"tokenizer.ggml.", key, ": ", num(*id), " is outside of [0, ", num(count_), ")"}));
    };
    QF_TRY(known("bos_token_id", in_.bos));
    QF_TRY(known("eos_token_id", in_.eos));
    QF_TRY(known("unknown_token_id", in_.unk));
    return {};
  }

  // Control tokens are special; user-defined ones are found in the text like them.
  Status added_tokens() {
    std::unordered_map<std::string_view, std::int32_t> seen;
    for (std::int32_t id = 0; id < count_; ++id) {
      const std::int32_t kind = type(id);
      if ((kind != kControl && kind != kUserDefined && kind != kUnknown) || in_.tokens[id].empty()) continue;
      if (const auto [it, added] = seen.emplace(in_.tokens[id], id); !added)
        return Status(Errc::bad_format, cat({"tokenizer.ggml.tokens: ", num(it->second), " and ", num(id),
                                             " are both ", printable(in_.tokens[id])}));
      AddedToken token;
      token.id = id;
      token.content = in_.tokens[id];
      token.special = kind != kUserDefined;
      parts_.added.push_back(std::move(token));
    }
    return {};
  }

  // The texts of the tokens that `keep` accepts; the others are holes.
  template <class Keep>
  Result<Vocabulary> vocabulary(Keep keep) const {
    std::vector<bool> present(in_.tokens.size());
    for (std::int32_t id = 0; id < count_; ++id) present[id] = !in_.tokens[id].empty() && keep(type(id));
    auto made = Vocabulary::make(in_.tokens, std::move(present));
    if (!made.ok()) return made.status().at("tokenizer.ggml.tokens");
    return made;
  }

  Status byte_level() {
    const auto pre =
        std::find_if(std::begin(kPres), std::end(kPres), [&](const Pre& p) { return p.name == in_.pre; });
    if (pre == std::end(kPres))
      return Status(Errc::unsupported, cat({"tokenizer.ggml.pre ", printable(in_.pre), " is not supported"}));
    QF_TRY(added_tokens());
    QF_TRY_ASSIGN(Vocabulary known, vocabulary([](std::int32_t) { return true; }));
    std::vector<MergeRule> rules;
    rules.reserve(in_.merges.size());
    for (std::size_t i = 0; i < in_.merges.size(); ++i) {
      const std::string_view merge = in_.merges[i];
      const std::size_t space = merge.find(' ', 1);
      const auto bad = [&](std::string_view text) {
        return Status(Errc::bad_format, cat({"tokenizer.ggml.merges[", num(i), "]: ", text}));
      };
      if (space == merge.npos || merge.find(' ', space + 1) != merge.npos)
        return bad(cat({"two tokens with one space between expected, ", printable(merge), " found"}));
      const std::string result = cat({merge.substr(0, space), merge.substr(space + 1)});
      const MergeRule rule{known.find(merge.substr(0, space)), known.find(merge.substr(space + 1)),
                           known.find(result), static_cast<std::int32_t>(i)};
      if (rule.left == kNoToken || rule.right == kNoToken || rule.result == kNoToken)
        return bad(cat({printable(merge), " needs a token that is not in the vocabulary"}));
      rules.push_back(rule);
    }
    BpeOptions options;
    options.ignore_merges = pre->rule == Pre::Rule::llama3;
    parts_.model = BpeModel(std::move(known), std::move(rules), options);

    using Kind = PreTokenizer::Kind;
    if (pre->rule == Pre::Rule::qwen2) parts_.normalizers.push_back({Normalizer::Kind::form});
    if (pre->rule == Pre::Rule::digits_then_gpt2) {
      PreTokenizer digits{Kind::digits};
      digits.individual_digits = true;
      parts_.pre_tokenizers.push_back(std::move(digits));
    }
    PreTokenizer bytes{Kind::byte_level};
    if (pre->rule == Pre::Rule::llama3 || pre->rule == Pre::Rule::qwen2) {
      PreTokenizer words{Kind::split};
      QF_TRY_ASSIGN(words.pattern.regex,
                    Regex::compile(pre->rule == Pre::Rule::llama3 ? kLlama3Pattern : kQwen2Pattern));
      parts_.pre_tokenizers.push_back(std::move(words));
      bytes.use_regex = false;
    } else {
      QF_TRY_ASSIGN(bytes.pattern.regex, Regex::compile(kGpt2Pattern));
    }
    parts_.pre_tokenizers.push_back(std::move(bytes));
    parts_.decoders.push_back({Decoder::Kind::byte_level});
    return {};
  }

  // Any two neighbours whose texts together are a token may merge; the token's score is their rank.
  Status merge_rules(const Vocabulary& known, std::vector<MergeRule>& rules) const {
    std::vector<std::int32_t> by_score;
    for (std::int32_t id = 0; id < count_; ++id)
      if (known.contains(id) && type(id) == kNormal) by_score.push_back(id);
    std::stable_sort(by_score.begin(), by_score.end(),
                     [&](std::int32_t a, std::int32_t b) { return in_.scores[a] > in_.scores[b]; });
    std::int32_t rank = 0;
    for (std::size_t i = 0; i < by_score.size(); ++i) {
      const std::string_view text = known.text(by_score[i]);
      if (i > 0 && in_.scores[by_score[i]] != in_.scores[by_score[i - 1]]) ++rank;
      for (std::size_t cut = character_bytes(static_cast<unsigned char>(text[0])); cut < text.size();
           cut += character_bytes(static_cast<unsigned char>(text[cut]))) {
        const std::int32_t left = known.find(text.substr(0, cut)), right = known.find(text.substr(cut));
        if (left == kNoToken || right == kNoToken || type(left) != kNormal || type(right) != kNormal)
          continue;
        rules.push_back({left, right, by_score[i], rank});
      }
    }
    return {};
  }

  Status sentence_piece() {
    if (in_.scores.empty()) return Status(Errc::bad_format, "tokenizer.ggml.scores: missing");
    for (std::int32_t id = 0; id < count_; ++id) {
      if (std::isnan(in_.scores[id]))
        return Status(Errc::bad_format, cat({"tokenizer.ggml.scores[", num(id), "]: not a number"}));
      if (type(id) == kNormal && in_.tokens[id].size() > kLongestPiece)
        return Status(Errc::bad_format,
                      cat({"tokenizer.ggml.tokens[", num(id), "]: ", num(in_.tokens[id].size()),
                           " bytes, at most ", num(kLongestPiece), " expected"}));
      if (type(id) == kByte && byte_of_token(in_.tokens[id]) < 0)
        return Status(Errc::bad_format, cat({"tokenizer.ggml.tokens[", num(id), "]: a byte <0xNN> expected, ",
                                             printable(in_.tokens[id]), " found"}));
    }
    QF_TRY(added_tokens());
    // Control tokens are left out: text that happens to spell one can't become one by merging.
    QF_TRY_ASSIGN(Vocabulary known, vocabulary([](std::int32_t kind) { return kind != kControl; }));
    std::vector<MergeRule> rules;
    QF_TRY(merge_rules(known, rules));
    BpeOptions options;
    options.byte_fallback = options.fuse_unk = true;
    if (in_.unk) options.unk = *in_.unk;
    parts_.model = BpeModel(std::move(known), std::move(rules), options);

    const std::string_view block = "\xe2\x96\x81";  // U+2581, which stands for a space
    if (in_.add_space_prefix) {
      Normalizer prefix{Normalizer::Kind::prepend};
      prefix.content = block;
      parts_.normalizers.push_back(std::move(prefix));
    }
    Normalizer spaces{Normalizer::Kind::replace};
    spaces.pattern.literal = " ";
    spaces.content = block;
    parts_.normalizers.push_back(std::move(spaces));

    Decoder back{Decoder::Kind::replace};
    back.pattern.literal = block;
    back.content = " ";
    parts_.decoders.push_back(std::move(back));
    parts_.decoders.push_back({Decoder::Kind::byte_fallback});
    parts_.decoders.push_back({Decoder::Kind::fuse});
    if (in_.add_space_prefix) {
      Decoder strip{Decoder::Kind::strip};
      strip.content = " ";
      strip.start = 1;
      parts_.decoders.push_back(std::move(strip));
    }
    return {};
  }

  static constexpr std::size_t kLongestPiece = 4096;  // finding its merges takes the square of it
  const GgufVocabulary& in_;
  std::int32_t count_;
  TokenizerParts parts_;
};

}  // namespace
}  // namespace detail

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(GgufVocabulary vocabulary, std::string_view what) {
  try {
    auto parts = detail::Builder(vocabulary).run();
    if (!parts.ok()) return parts.status().at(what);
    return detail::BpeTokenizer::make(std::move(*parts), what);
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({what, ": no memory for the tokenizer"}));
  }
}

}  // namespace qf::text
