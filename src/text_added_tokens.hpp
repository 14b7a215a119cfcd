// Added and special tokens: they are found in the text before anything else looks at it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "qf/text/tokenizer.hpp"
#include "src/text_pipeline.hpp"

namespace qf::text::detail {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  std::string text;  // what it is found by and decodes to: the content, normalized if it asks for that
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

// Finds the leftmost, of these the longest, in one pass.
class AddedTokenFinder {
 public:
  struct Segment {
    std::size_t begin, end;
    std::int32_t token;  // index of the added token; -1: text between
  };
  // `texts[i]` is what token i is found by; empty ones are never found.
  void build(const std::vector<AddedToken>& tokens, const std::vector<std::string>& texts);
  // Appends segments that cover `text`, none of them empty. Special tokens that touch a range of `plain`
  // (ascending, without overlap) stay text.
  void find(const std::vector<AddedToken>& tokens, std::string_view text, std::span<const TextRange> plain,
            std::vector<Segment>& segments) const;
  bool empty() const { return token_of_node_.size() <= 1; }

 private:
  struct Match {
    std::int32_t token;
    std::size_t bytes;
  };
  Match longest_at(std::string_view text, std::size_t at) const;
  std::int32_t step(std::int32_t node, unsigned char byte) const;

  std::unordered_map<std::uint64_t, std::int32_t> edges_;  // node * 256 + byte -> node
  std::vector<std::int32_t> token_of_node_;                // -1: none ends here
  bool starts_[256] = {};
};

}  // namespace qf::text::detail
