// The whole of WikiText-2's test and validation texts through a real tokenizer: ids as Hugging Face's
// `tokenizers` 0.23.3 gives them.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "qf/text/tokenizer.hpp"

namespace {

std::string file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// FNV-1a, 64 bits, over the ids as little-endian 32-bit numbers.
std::uint64_t fnv(const std::vector<std::int32_t>& ids) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::int32_t id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ ((static_cast<std::uint32_t>(id) >> shift) & 0xff)) * 0x100000001b3u;
  return hash;
}

}  // namespace

TEST_CASE("WikiText-2 through SmolLM2's tokenizer gives the reference's ids") {
  const char* texts = std::getenv("QF_WIKITEXT");
  const char* reference = std::getenv("QF_REFERENCE");
  if (!texts || !reference) {
    std::puts(
        "SKIPPED text_wikitext_test: QF_WIKITEXT (folder of wikitext2-test.txt and wikitext2-valid.txt) and "
        "QF_REFERENCE (folder of SmolLM2-135M-Instruct's tokenizer.json) are not set");
    return;
  }
  auto tokenizer =
      qf::text::Tokenizer::from_json(file(std::string(reference) + "/tokenizer.json"), "tokenizer.json");
  REQUIRE(tokenizer.status().text() == "");
  CHECK((*tokenizer)->size() == 49152);
  struct Expected {
    const char* name;
    std::size_t ids;
    std::uint64_t hash;
  };
  for (const Expected& expected : {Expected{"wikitext2-test.txt", 312144, 0x90781a3639f7d41eu},
                                   Expected{"wikitext2-valid.txt", 273868, 0xa933574ad3c6ac13u}}) {
    INFO(expected.name);
    const std::string text = file(std::string(texts) + "/" + expected.name);
    auto ids = (*tokenizer)->encode(text);
    REQUIRE(ids.status().text() == "");
    CHECK(ids->size() == expected.ids);
    CHECK(fnv(*ids) == expected.hash);
    auto back = (*tokenizer)->decode(*ids);
    REQUIRE(back.status().text() == "");
    CHECK((*back == text));
    qf::text::StreamDecoder stream(**tokenizer);
    std::string streamed;
    for (const std::int32_t id : *ids) streamed += *stream.push(id);
    CHECK((streamed + stream.finish() == text));
  }
}
