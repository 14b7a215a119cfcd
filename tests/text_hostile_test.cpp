// Broken and hostile vocabularies: each is refused with a text that says what and where.
#include <catch2/catch.hpp>
#include <limits>

#include "qf/text/tokenizer.hpp"

namespace {

using qf::text::GgufVocabulary;
using qf::text::Tokenizer;

std::string error(const std::string& document) {
  const auto tokenizer = Tokenizer::from_json(document, "t.json");
  return tokenizer.ok() ? "accepted" : tokenizer.status().text();
}

// A document with these members beside a sound model.
std::string with(const std::string& members) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}, )" + members +
         "}";
}

std::string model(const std::string& members) {
  return R"({"model": {"type": "BPE", )" + members + "}}";
}

std::string error_of(GgufVocabulary vocabulary) {
  const auto tokenizer = Tokenizer::from_gguf(std::move(vocabulary), "m.gguf");
  return tokenizer.ok() ? "accepted" : tokenizer.status().text();
}

GgufVocabulary sentence_piece() {
  GgufVocabulary v;
  v.model = "llama";
  v.tokens = {"<unk>", "<s>", "</s>", "<0x41>", "\xe2\x96\x81", "a"};
  v.types = {2, 3, 3, 6, 1, 1};
  v.scores = {0, 0, 0, 0, -1, -2};
  v.unk = 0;
  return v;
}

}  // namespace

TEST_CASE("a broken tokenizer.json is refused with a reason") {
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "t.json: an object expected, array found"},
      {"{}", "t.json: model: an object expected, nothing found"},
      {R"({"model": {"type": "WordPiece"}})", "t.json: model: model type 'WordPiece' is not supported"},
      {model(R"("merges": [])"), "t.json: model.vocab: an object expected, nothing found"},
      {model(R"("vocab": {"a": -1}, "merges": [])"),
       "t.json: model.vocab['a']: id -1 is outside of [0, 4104), the range for 1 tokens"},
      {model(R"("vocab": {"a": 2147483647}, "merges": [])"),
       "t.json: model.vocab['a']: id 2147483647 is outside of [0, 4104), the range for 1 tokens"},
      {model(R"("vocab": {"a": 18446744073709551615}, "merges": [])"),
       "t.json: model.vocab['a']: id 18446744073709551615 is outside of [0, 4104), the range for 1 tokens"},
      {model(R"("vocab": {"a": 0.5}, "merges": [])"),
       "t.json: model.vocab['a']: an integer id expected, number found"},
      {model(R"("vocab": {"a": 0, "b": 0}, "merges": [])"),
       "t.json: model.vocab: 'a' and 'b' both have id 0"},
      {model(R"("vocab": {"a": 0, "b": 1}, "merges": ["a b"])"),
       "t.json: model.merges[0]: token 'ab' is not in the vocabulary"},
      {model(R"("vocab": {"a": 0, "ab": 1}, "merges": ["a b"])"),
       "t.json: model.merges[0]: token 'b' is not in the vocabulary"},
      {model(R"("vocab": {"a": 0}, "merges": ["a"])"),
       "t.json: model.merges[0]: two tokens with one space between expected, 'a' found"},
      {model(R"("vocab": {"a": 0}, "merges": [["a"]])"),
       "t.json: model.merges[0]: a string or two strings expected"},
      {model(R"("vocab": {"a": 0}, "merges": [], "unk_token": "x")"),
       "t.json: model.unk_token: 'x' is not in the vocabulary"},
      {model(R"("vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>")"),
       "t.json: model.end_of_word_suffix: '\"</w>\"' is not supported"},
      {model(R"("vocab": {"a": 0}, "merges": [], "byte_fallback": 1)"),
       "t.json: model.byte_fallback: a boolean expected, number found"},
      {with(R"("pre_tokenizer": {"type": "BertPreTokenizer"})"),
       "t.json: pre_tokenizer: pre_tokenizer type 'BertPreTokenizer' is not supported"},
      {with(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "X"}]})"),
       "t.json: pre_tokenizer.pretokenizers[1]: pre_tokenizer type 'X' is not supported"},
      {with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})"),
       "t.json: pre_tokenizer.pattern: the regular expression '(' does not compile: missing closing "
       "parenthesis"},
      {with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a{1,2}+"}, "behavior": "Isolated"})"),
       "t.json: pre_tokenizer.pattern: '{...}+' at byte 1 of the expression is not supported"},
      {with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(*UTF)a"}, "behavior": "Isolated"})"),
       "t.json: pre_tokenizer.pattern: '(*' at byte 0 of the expression is not supported"},
      {with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a&&b]"}, "behavior": "Isolated"})"),
       "t.json: pre_tokenizer.pattern: '&& in [...]' at byte 2 of the expression is not supported"},
      {with(R"("pre_tokenizer": {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"})"),
       "t.json: pre_tokenizer.pattern.String: must not be empty"},
      {with(R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "x"}, "behavior": "Eaten"})"),
       "t.json: pre_tokenizer.behavior: 'Eaten' is not a split behavior"},
      {with(R"("normalizer": {"type": "Precompiled"})"),
       "t.json: normalizer: normalizer type 'Precompiled' is not supported"},
      {with(R"("decoder": {"type": "WordPiece"})"),
       "t.json: decoder: decoder type 'WordPiece' is not supported"},
      {with(R"("post_processor": {"type": "BertProcessing"})"),
       "t.json: post_processor: post_processor type 'BertProcessing' is not supported"},
      {with(R"("post_processor": {"type": "TemplateProcessing", "special_tokens": {"x": {"ids": [9]}},
            "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}]})"),
       "t.json: post_processor.special_tokens: 'x' names an id that no token has"},
      {with(R"("added_tokens": [{"id": 1, "content": "x"}])"),
       "t.json: added_tokens[0]: id 1 belongs to 'b' in the vocabulary"},
      {with(R"("added_tokens": [{"id": 5, "content": "b"}])"),
       "t.json: added_tokens[0]: 'b' has id 5 here and 1 in the vocabulary"},
      {with(R"("added_tokens": [{"id": 3, "content": ""}])"),
       "t.json: added_tokens[0].content: must not be empty"},
      {with(R"("added_tokens": [{"id": 3, "content": "x"}, {"id": 3, "content": "y"}])"),
       "t.json: added_tokens[1]: id 3 stands twice among the added tokens"},
      {with(R"("added_tokens": [{"content": "x"}])"),
       "t.json: added_tokens[0].id: an integer id expected, nothing found"},
  };
  for (const auto& [document, expected] : cases) {
    INFO(document);
    CHECK(error(document) == expected);
  }
  CHECK(error(with("\"added_tokens\": [{\"id\": 3, \"content\": \"" + std::string(2000, 'x') + "\"}]")) ==
        "t.json: added token 3: 2000 bytes, at most 1024 expected");
}

TEST_CASE("a catastrophic expression ends as an error, not as a hang") {
  auto tokenizer = Tokenizer::from_json(
      with(
          R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?:a|a?)+c"}, "behavior": "Isolated"})"),
      "t.json");
  REQUIRE(tokenizer.status().text() == "");
  CHECK((*tokenizer)->encode("aab").ok());
  const auto ids = (*tokenizer)->encode(std::string(60, 'a') + "bc");
  REQUIRE_FALSE(ids.ok());
  CHECK(ids.status().text() ==
        "the pre-tokenizer's regular expression fails on a text of 62 bytes: match limit exceeded");
}

TEST_CASE("a word of a megabyte is merged in n log n") {
  auto tokenizer = Tokenizer::from_json(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "aa": 1, "aaaa": 2}, "merges": ["a a", "aa aa"]}})",
      "t.json");
  REQUIRE(tokenizer.ok());
  const auto ids = (*tokenizer)->encode(std::string(1 << 20, 'a'));
  REQUIRE(ids.ok());
  CHECK(*ids == std::vector<std::int32_t>(1 << 18, 2));
  // A run of combining marks in falling order: canonical ordering must not be quadratic either.
  auto nfc = Tokenizer::from_json(with(R"("normalizer": {"type": "NFC"})"), "t.json");
  REQUIRE(nfc.ok());
  std::string marks;
  for (int i = 0; i < (1 << 18); ++i) marks += i % 2 ? "\xcc\x96" : "\xcc\x80";
  CHECK((*nfc)->encode("a" + marks).ok());
}

TEST_CASE("a broken GGUF vocabulary is refused with a reason") {
  CHECK(error_of(sentence_piece()) == "accepted");
  GgufVocabulary v;
  v.model = "llama";
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.tokens: no tokens");
  for (const char* bad : {"<0x-1>", "<0x 1>", "<0x1>", "<0x100>", "0x41", "<0xG0>", "<0x+1>"}) {
    v = sentence_piece();
    v.tokens[3] = bad;
    CHECK(error_of(v) ==
          "m.gguf: tokenizer.ggml.tokens[3]: a byte <0xNN> expected, '" + std::string(bad) + "' found");
  }
  v = sentence_piece();
  v.types.pop_back();
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.token_type: 5 entries for 6 tokens");
  v = sentence_piece();
  v.scores.clear();
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.scores: missing");
  v = sentence_piece();
  v.scores[4] = std::numeric_limits<float>::quiet_NaN();
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.scores[4]: not a number");
  v = sentence_piece();
  v.types[1] = 7;
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.token_type[1]: 7 is not a token type");
  v = sentence_piece();
  v.bos = 6;
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.bos_token_id: 6 is outside of [0, 6)");
  v = sentence_piece();
  v.unk = -2;
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.unknown_token_id: -2 is outside of [0, 6)");
  v = sentence_piece();
  v.tokens[5] = "\xe2\x96\x81";
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.tokens: tokens 4 and 5 are both '\\xe2\\x96\\x81'");
  v = sentence_piece();
  v.tokens[5] = "\xff";
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.tokens[5]: '\\xff' is not UTF-8");
  v = sentence_piece();
  v.model = "bert";
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.model 'bert' is not supported");
  v.model = "gpt2";
  v.pre = "viking";
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.pre 'viking' is not supported");
  v.pre = "gpt-2";
  v.merges = {"a a"};
  CHECK(error_of(v) == "m.gguf: tokenizer.ggml.merges[0]: 'a a' needs a token that is not in the vocabulary");
}
