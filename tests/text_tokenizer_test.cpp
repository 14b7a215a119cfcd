// Small hand-made vocabularies: the interface's promises and its errors.
#include "qf/text/tokenizer.hpp"

#include <catch2/catch.hpp>

namespace {

using qf::text::Tokenizer;

// Byte-level: "a", "b", "Ġ" and what they merge to, with one special token.
constexpr const char* kTiny = R"({
  "added_tokens": [{"id": 6, "content": "<|end|>", "special": true, "normalized": false}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "Ã": 5}, "merges": ["a b", ["Ġ", "ab"]]}})";

}  // namespace

TEST_CASE("a tiny byte-level tokenizer encodes and decodes") {
  auto tokenizer = Tokenizer::from_json(kTiny, "t.json");
  REQUIRE(tokenizer.status().text() == "");
  const Tokenizer& t = **tokenizer;
  CHECK(t.size() == 7);
  CHECK(*t.encode("ab ab<|end|>a") == std::vector<std::int32_t>{3, 4, 6, 0});
  CHECK(*t.decode(std::vector<std::int32_t>{3, 4, 6, 0}) == "ab ab<|end|>a");
  CHECK(*t.decode(std::vector<std::int32_t>{3, 4, 6, 0}, true) == "ab aba");
  CHECK(*t.token_bytes(4) == " ab");
  CHECK(*t.token_bytes(5) == "\xc3");
  CHECK(t.id("<|end|>") == 6);
  CHECK(t.id("nothing") == std::nullopt);
  CHECK(t.is_special(6));
  CHECK_FALSE(t.is_special(3));
  CHECK(t.decode(std::vector<std::int32_t>{7}).status().text() == "token id 7 is outside of [0, 7)");
  CHECK(t.decode(std::vector<std::int32_t>{-1}).status().text() == "token id -1 is outside of [0, 7)");
}
