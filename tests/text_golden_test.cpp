// Tokenizers of every family on hostile texts, against what Hugging Face's `tokenizers` gives
// (tests/golden/text/make_text_goldens.py).
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "qf/text/tokenizer.hpp"

namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

std::string file(const std::string& name) {
  std::ifstream in(std::string(QF_GOLDEN) + "/text/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string streamed(const qf::text::Tokenizer& tokenizer, const Ids& ids) {
  qf::text::StreamDecoder stream(tokenizer, false);
  std::string text;
  for (const std::int32_t id : ids) text += *stream.push(id);
  return text + stream.finish();
}

// A byte-level or plain vocabulary as GGUF would hold it, from the same tokenizer.json.
qf::text::GgufVocabulary gguf_of(const json& source, bool sentence_piece) {
  qf::text::GgufVocabulary v;
  const auto& vocab = source["model"]["vocab"];
  std::size_t size = vocab.size();
  for (const auto& token : source["added_tokens"])
    size = std::max<std::size_t>(size, token["id"].get<int>() + 1);
  v.tokens.resize(size);
  v.types.assign(size, 1);
  for (const auto& [text, id] : vocab.items()) v.tokens[id.get<int>()] = text;
  for (const auto& token : source["added_tokens"]) {
    v.tokens[token["id"].get<int>()] = token["content"].get<std::string>();
    v.types[token["id"].get<int>()] = token["special"].get<bool>() ? 3 : 4;
  }
  v.model = sentence_piece ? "llama" : "gpt2";
  if (!sentence_piece) {
    for (const auto& merge : source["model"]["merges"])
      v.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                           : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    return v;
  }
  for (std::size_t id = 0; id < size; ++id) {
    v.scores.push_back(-static_cast<float>(id));
    if (v.tokens[id].size() == 6 && v.tokens[id].rfind("<0x", 0) == 0) v.types[id] = 6;
  }
  v.types[0] = 2;
  v.unk = 0;
  v.bos = 1;
  v.add_bos = true;
  return v;
}

}  // namespace

TEST_CASE("every family gives the reference's ids and texts") {
  const json cases = json::parse(file("cases.json"));
  std::vector<std::string> texts;
  for (const auto& hex : cases["texts"]) texts.push_back(unhex(hex));
  REQUIRE(cases["families"].size() == 7);
  for (const auto& [family, expected] : cases["families"].items()) {
    auto made = qf::text::Tokenizer::from_json(file(family + ".json"), family);
    REQUIRE(made.status().text() == "");
    const qf::text::Tokenizer& tokenizer = **made;
    REQUIRE(expected["rows"].size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const json& row = expected["rows"][i];
      INFO(family << ": text " << i << ": " << qf::printable(texts[i]));
      const Ids ids = row["ids"].get<Ids>();
      CHECK(*tokenizer.encode(texts[i]) == ids);
      CHECK(*tokenizer.encode(texts[i], {true, true}) == row.value("special", ids));
      CHECK(*tokenizer.encode(texts[i], {false, false}) == row.value("plain", ids));
      const std::string decoded = *tokenizer.decode(ids);
      if (row.contains("decoded")) CHECK(decoded == row["decoded"].get<std::string>());
      CHECK(*tokenizer.decode(ids, true) == row.value("skipped", decoded));
      CHECK(streamed(tokenizer, ids) == decoded);
    }
    for (const json& odd : expected["odd"])
      CHECK(*tokenizer.decode(odd["ids"].get<Ids>()) == odd["decoded"].get<std::string>());
  }
}

TEST_CASE("a GGUF vocabulary gives the ids of the tokenizer.json it came from") {
  const json cases = json::parse(file("cases.json"));
  const std::pair<const char*, const char*> families[] = {
      {"smollm", "smollm"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"llama2", ""}};
  for (const auto& [family, pre] : families) {
    const bool sentence_piece = family == std::string("llama2");
    auto vocabulary = gguf_of(json::parse(file(std::string(family) + ".json")), sentence_piece);
    vocabulary.pre = pre;
    if (family == std::string("llama3")) {
      vocabulary.add_bos = true;
      vocabulary.bos = cases["families"]["llama3"]["rows"][1]["special"][0].get<int>();
    }
    auto made = qf::text::Tokenizer::from_gguf(std::move(vocabulary), "m.gguf");
    REQUIRE(made.status().text() == "");
    for (std::size_t i = 0; i < cases["texts"].size(); ++i) {
      const std::string text = unhex(cases["texts"][i]);
      const json& row = cases["families"][family]["rows"][i];
      INFO(family << ": text " << i << ": " << qf::printable(text));
      const Ids ids = row["ids"].get<Ids>();
      // "<unk>" is text to a SentencePiece vocabulary's merges in one form and a token in the other.
      CHECK(*(*made)->encode(text) == ids);
      CHECK(*(*made)->encode(text, {true, true}) == row.value("special", ids));
      if (row.contains("decoded")) CHECK(*(*made)->decode(ids) == row["decoded"].get<std::string>());
    }
  }
}
