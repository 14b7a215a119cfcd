#include "src/text_bpe.hpp"

#include <algorithm>
#include <queue>

#include "src/text_unicode.hpp"

namespace qf::text::detail {
namespace {

constexpr std::size_t kLongestCachedWord = 256, kMostCachedWords = 1 << 16;

}  // namespace

Result<Vocabulary> Vocabulary::make(std::vector<std::string> texts, std::vector<bool> present) {
  Vocabulary vocabulary;
  vocabulary.texts_ = std::move(texts);
  vocabulary.present_ = std::move(present);
  vocabulary.ids_.reserve(vocabulary.texts_.size());
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.present_[id]) continue;
    const auto [it, added] = vocabulary.ids_.emplace(vocabulary.texts_[id], id);
    if (!added)
      return Status(Errc::bad_format, cat({"tokens ", num(it->second), " and ", num(id), " are both ",
                                           printable(vocabulary.texts_[id])}));
  }
  return vocabulary;
}

BpeModel::BpeModel(Vocabulary vocabulary, std::vector<MergeRule> rules, const BpeOptions& options)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  std::stable_sort(rules.begin(), rules.end(), [](const MergeRule& a, const MergeRule& b) {
    return a.left != b.left ? a.left < b.left : a.right < b.right;
  });
  first_rule_.assign(static_cast<std::size_t>(vocabulary_.size()) + 1, 0);
  rules_.reserve(rules.size());
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const MergeRule& r = rules[i];
    if (i + 1 < rules.size() && rules[i + 1].left == r.left && rules[i + 1].right == r.right) continue;
    rules_.push_back({r.right, r.rank, r.result});
    ++first_rule_[r.left + 1];
  }
  for (std::size_t i = 1; i < first_rule_.size(); ++i) first_rule_[i] += first_rule_[i - 1];
  static constexpr char kHex[] = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b)
    byte_tokens_[b] = vocabulary_.find(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">");
}

const BpeModel::Rule* BpeModel::rule(std::int32_t left, std::int32_t right) const {
  const auto begin = rules_.begin() + first_rule_[left], end = rules_.begin() + first_rule_[left + 1];
  const auto it =
      std::lower_bound(begin, end, right, [](const Rule& r, std::int32_t id) { return r.right < id; });
  return it != end && it->right == right ? &*it : nullptr;
}

struct BpeModel::Symbol {
  std::int32_t id, previous, next;  // positions in the list; -1: none
  bool gone = false;
};

struct BpeModel::Candidate {
  std::int32_t rank, position, result;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

void BpeModel::characters(std::string_view word, std::vector<Symbol>& symbols) const {
  const auto add = [&](std::int32_t id) {
    const auto position = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, position - 1, position + 1});
  };
  bool pending_unk = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t bytes =
        std::min(character_bytes(static_cast<unsigned char>(word[at])), word.size() - at);
    const std::string_view character = word.substr(at, bytes);
    at += bytes;
    if (const std::int32_t id = vocabulary_.find(character); id != kNoToken) {
      if (pending_unk) add(options_.unk);
      pending_unk = false;
      add(id);
      continue;
    }
    if (options_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char c) {
          return byte_tokens_[static_cast<unsigned char>(c)] != kNoToken;
        })) {
      for (char c : character) add(byte_tokens_[static_cast<unsigned char>(c)]);
      continue;
    }
    if (options_.unk == kNoToken) continue;
    if (pending_unk && !options_.fuse_unk) add(options_.unk);
    pending_unk = true;
  }
  if (pending_unk) add(options_.unk);
  if (!symbols.empty()) symbols.back().next = -1;
}

// Merges the pair of lowest rank, leftmost first, until none is left: n log n in the number of characters.
void BpeModel::merge(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  characters(word, symbols);
  std::vector<Candidate> candidates;
  candidates.reserve(symbols.size());
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
    if (const Rule* r = rule(symbols[i].id, symbols[i + 1].id))
      candidates.push_back({r->rank, static_cast<std::int32_t>(i), r->result});
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(candidates));
  const auto consider = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0) return;
    if (const Rule* r = rule(symbols[left].id, symbols[right].id)) queue.push({r->rank, left, r->result});
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.position];
    if (left.gone || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    // A neighbour may have been merged since; as in `tokenizers`, the same result is enough to go on.
    const Rule* now = rule(left.id, right.id);
    if (!now || now->result != top.result) continue;
    left.id = top.result;
    right.gone = true;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = top.position;
    consider(left.previous, top.position);
    consider(top.position, left.next);
  }
  for (const Symbol& symbol : symbols)
    if (!symbol.gone) ids.push_back(symbol.id);
}

void BpeModel::encode(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  if (options_.ignore_merges)
    if (const std::int32_t id = vocabulary_.find(word); id != kNoToken) {
      ids.push_back(id);
      return;
    }
  if (word.size() > kLongestCachedWord) return merge(word, ids);
  const auto [it, added] = cache.words_.try_emplace(std::string(word));
  if (added) merge(word, it->second);
  ids.insert(ids.end(), it->second.begin(), it->second.end());
  if (cache.words_.size() > kMostCachedWords) cache.words_.clear();
}

}  // namespace qf::text::detail
