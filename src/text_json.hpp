// Reading tokenizer.json: fields with their places, and the steps around the model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qf/core/json.hpp"
#include "src/text_tokenizer.hpp"

namespace qf::text::detail {

// An object of the document with its place, for messages: "pre_tokenizer.pretokenizers[1]".
class Node {
 public:
  Node(const Json& json, std::string place) : json_(&json), place_(std::move(place)) {}
  const Json& json() const { return *json_; }
  const std::string& place() const { return place_; }

  // nullptr where the key is absent or null.
  const Json* find(const char* key) const;
  // With a default where the key may be absent.
  Result<bool> boolean(const char* key, bool otherwise) const;
  Result<std::string> text(const char* key) const;
  Result<std::string> text(const char* key, std::string otherwise) const;
  Result<std::size_t> count(const char* key) const;
  Result<Node> object(const char* key) const;
  Result<std::vector<Node>> objects(const char* key) const;  // of an array of objects
  Result<Pattern> pattern(const char* key) const;            // {"String": "x"} or {"Regex": "x"}

  Status wrong(const char* key, std::string_view expected, const Json* found) const;
  Status bad(std::string_view text) const { return Status(Errc::bad_format, cat({place_, text})); }
  Status unsupported(std::string_view part, std::string_view type) const;

 private:
  std::string place_of(const char* key) const;
  const Json* json_;
  std::string place_;
};

// Each appends the steps of one object, Sequences flattened. What isn't known is refused by name.
Status read_normalizers(const Node& node, std::vector<Normalizer>& steps);
Status read_pre_tokenizers(const Node& node, std::vector<PreTokenizer>& steps);
Status read_decoders(const Node& node, std::vector<Decoder>& steps);
// What is put around a text; ids must be below `size`.
Status read_post_processors(const Node& node, std::int64_t size, TokenizerParts& parts);

}  // namespace qf::text::detail
