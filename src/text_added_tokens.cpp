#include "src/text_added_tokens.hpp"

#include <algorithm>

namespace qf::text::detail {

std::int32_t AddedTokenFinder::step(std::int32_t node, unsigned char byte) const {
  const auto it = edges_.find(static_cast<std::uint64_t>(node) * 256 + byte);
  return it == edges_.end() ? -1 : it->second;
}

void AddedTokenFinder::build(const std::vector<AddedToken>& tokens, const std::vector<std::string>& texts) {
  token_of_node_.assign(1, -1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (texts[i].empty()) continue;
    std::int32_t node = 0;
    for (char c : texts[i]) {
      const auto byte = static_cast<unsigned char>(c);
      const auto next = static_cast<std::int32_t>(token_of_node_.size());
      const auto [it, added] = edges_.try_emplace(static_cast<std::uint64_t>(node) * 256 + byte, next);
      if (added) token_of_node_.push_back(-1);
      node = it->second;
    }
    if (token_of_node_[node] < 0) token_of_node_[node] = static_cast<std::int32_t>(i);
    starts_[static_cast<unsigned char>(texts[i][0])] = true;
  }
}

AddedTokenFinder::Match AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  Match best{-1, 0};
  std::int32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    node = step(node, static_cast<unsigned char>(text[i]));
    if (node < 0) break;
    if (token_of_node_[node] >= 0) best = {token_of_node_[node], i + 1 - at};
  }
  return best;
}

namespace {

// The start of the character that ends at `end`.
std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

bool word_before(std::string_view text, std::size_t end) {
  if (end == 0) return false;
  std::size_t at = character_before(text, end);
  return is_word(next_code_point(text, at));
}

bool word_after(std::string_view text, std::size_t at) {
  return at < text.size() && is_word(next_code_point(text, at));
}

}  // namespace

void AddedTokenFinder::find(const std::vector<AddedToken>& tokens, std::string_view text,
                            std::span<const TextRange> plain, std::vector<Segment>& segments) const {
  std::size_t covered = 0, range = 0;  // the first plain range that doesn't end before `at`
  for (std::size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    Match match = longest_at(text, at);
    while (range < plain.size() && plain[range].end <= at) ++range;
    const bool touches = range < plain.size() && plain[range].begin < at + match.bytes;
    if (match.token >= 0 && touches && tokens[match.token].special) {
      if (at >= plain[range].begin) {
        // As where special tokens aren't parsed at all, the search goes on behind it, up to the end of the range.
        at = std::min(at + match.bytes, plain[range].end);
        continue;
      }
      match = longest_at(text.substr(0, plain[range].begin), at);
    }
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens[match.token];
    std::size_t begin = at, end = at + match.bytes;
    at = end;  // the next search goes on behind the token even if it doesn't count
    if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
    if (token.lstrip)
      while (begin > covered) {
        const std::size_t before = character_before(text, begin);
        std::size_t next = before;
        if (!is_white_space(next_code_point(text, next))) break;
        begin = before;
      }
    if (token.rstrip)
      while (end < text.size()) {
        std::size_t next = end;
        if (!is_white_space(next_code_point(text, next))) break;
        end = next;
      }
    begin = std::max(begin, std::min(covered, end));
    if (covered < begin) segments.push_back({covered, begin, -1});
    segments.push_back({begin, end, match.token});
    covered = std::max(covered, end);
  }
  if (covered < text.size()) segments.push_back({covered, text.size(), -1});
}

}  // namespace qf::text::detail
