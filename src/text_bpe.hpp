// The vocabulary and the merging of byte-pair encoding.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "qf/core/result.hpp"

namespace qf::text::detail {

inline constexpr std::int32_t kNoToken = -1;

// Token texts by id and back. Ids may have holes (no text, no id for it).
class Vocabulary {
 public:
  Vocabulary() = default;
  // `texts[id]`; `present[id]` is false for holes. Errors: the same text twice.
  static Result<Vocabulary> make(std::vector<std::string> texts, std::vector<bool> present);
  std::int32_t size() const { return static_cast<std::int32_t>(texts_.size()); }
  std::int32_t find(std::string_view text) const {
    const auto it = ids_.find(text);
    return it == ids_.end() ? kNoToken : it->second;
  }
  bool contains(std::int32_t id) const { return id >= 0 && id < size() && present_[id]; }
  const std::string& text(std::int32_t id) const { return texts_[id]; }

 private:
  std::vector<std::string> texts_;  // never changed after make(): ids_ points into it
  std::vector<bool> present_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

struct MergeRule {
  std::int32_t left, right, result;
  std::int32_t rank;  // lower merges first; equal ranks from left to right
};

struct BpeOptions {
  std::int32_t unk = kNoToken;  // for characters that have no token; none: they vanish
  bool fuse_unk = false;        // a run of unknown characters is one token
  bool byte_fallback = false;   // an unknown character becomes tokens <0xNN> of its bytes, if all exist
  bool ignore_merges = false;   // a word that is a token by itself is that token
};

// The ids of one call's words. Not shared between threads.
class WordCache;

class BpeModel {
 public:
  BpeModel() = default;
  // Of two rules for one pair the later one counts. Precondition: ids are inside the vocabulary.
  BpeModel(Vocabulary vocabulary, std::vector<MergeRule> rules, const BpeOptions& options);
  BpeModel(BpeModel&&) = default;
  BpeModel& operator=(BpeModel&&) = default;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Appends the ids of `word` (valid UTF-8, below 2^31 characters).
  void encode(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const;

 private:
  struct Symbol;
  struct Candidate;
  struct Rule {
    std::int32_t right, rank, result;
  };
  const Rule* rule(std::int32_t left, std::int32_t right) const;
  std::int32_t character_id(std::string_view character) const;
  void characters(std::string_view word, std::vector<Symbol>& symbols) const;
  void merge(std::string_view word, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  std::vector<std::int32_t> first_rule_;  // [vocabulary + 1]: rules_ of each left token, sorted by right
  std::vector<Rule> rules_;
  std::array<std::int32_t, 256> byte_tokens_{};
  BpeOptions options_;
};

class WordCache {
 private:
  friend class BpeModel;
  std::unordered_map<std::string, std::vector<std::int32_t>> words_;
};

}  // namespace qf::text::detail
