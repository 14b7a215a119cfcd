#include "src/text_tokenizer.hpp"

#include <algorithm>
#include <new>

namespace qf::text {
namespace detail {
namespace {

constexpr std::size_t kLongestText = 0x7fffffff;  // positions in a word are 32 bits
constexpr std::size_t kLongestAddedToken = 1024;  // bounds the time to find them: text times this

Status check_plain(std::size_t text_bytes, std::span<const TextRange> plain) {
  std::size_t end = 0;
  for (const TextRange& range : plain) {
    if (range.begin < end || range.end < range.begin || range.end > text_bytes)
      return Status(Errc::invalid_argument,
                    cat({"plain range [", num(range.begin), ", ", num(range.end), "): ascending ranges in [",
                         num(end), ", ", num(text_bytes), "] expected"}));
    end = range.end;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::make(TokenizerParts parts, std::string_view what) {
  auto tokenizer = std::make_unique<BpeTokenizer>();
  tokenizer->parts_ = std::move(parts);
  auto& added = tokenizer->parts_.added;
  tokenizer->size_ = tokenizer->parts_.model.vocabulary().size();
  std::vector<std::string> raw(added.size()), normalized(added.size());
  for (std::size_t i = 0; i < added.size(); ++i) {
    AddedToken& token = added[i];
    if (token.content.size() > kLongestAddedToken)
      return Status(Errc::bad_format,
                    cat({what, ": added token ", num(token.id), ": ", num(token.content.size()),
                         " bytes, at most ", num(kLongestAddedToken), " expected"}));
    tokenizer->size_ = std::max(tokenizer->size_, token.id + 1);
    tokenizer->added_by_id_[token.id] = static_cast<std::int32_t>(i);
    tokenizer->added_by_content_[token.content] = static_cast<std::int32_t>(i);
    token.text = token.content;
    if (token.normalized)
      if (const Status status = detail::normalize(tokenizer->parts_.normalizers, token.text); !status.ok())
        return status.at(what);
    (token.normalized ? normalized : raw)[i] = token.text;
  }
  tokenizer->raw_finder_.build(added, raw);
  tokenizer->normalized_finder_.build(added, normalized);
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

// Where the plain ranges of a segment, which begins at `offset` of the text, are once it is normalized. What stands
// before a range is normalized alike alone, and so is what stands behind it, so the common prefix and suffix
// bound the range; where they don't reach up to it, more is plain than need be.
Result<std::vector<TextRange>> BpeTokenizer::normalized_plain(std::string_view segment, std::size_t offset,
                                                              const std::string& normalized,
                                                              std::span<const TextRange> plain) const {
  std::vector<TextRange> ranges;
  if (normalized_finder_.empty()) return ranges;
  for (const TextRange& range : plain) {
    if (range.end <= offset || range.begin >= offset + segment.size()) continue;
    const std::size_t begin = std::max(range.begin, offset) - offset;
    std::string before(segment.substr(0, begin)), behind;
    if (range.end < offset + segment.size()) behind = segment.substr(range.end - offset);
    QF_TRY(detail::normalize(parts_.normalizers, before));
    QF_TRY(detail::normalize(parts_.normalizers, behind));
    if (begin == 0) before.clear();
    if (range.end >= offset + segment.size()) behind.clear();
    const auto same_before =
        std::mismatch(before.begin(), before.end(), normalized.begin(), normalized.end()).first -
        before.begin();
    const auto same_behind =
        std::mismatch(behind.rbegin(), behind.rend(), normalized.rbegin(), normalized.rend()).first -
        behind.rbegin();
    TextRange found{static_cast<std::size_t>(same_before),
                    normalized.size() - static_cast<std::size_t>(same_behind)};
    if (!ranges.empty()) found.begin = std::max(found.begin, ranges.back().end);
    if (found.begin < found.end) ranges.push_back(found);
  }
  return ranges;
}

Status BpeTokenizer::encode_text(std::string_view text, std::span<const TextRange> plain,
                                 std::vector<std::int32_t>& ids) const {
  using Segment = AddedTokenFinder::Segment;
  WordCache cache;
  std::vector<Segment> outer, inner;
  raw_finder_.find(parts_.added, text, plain, outer);
  for (const Segment& segment : outer) {
    if (segment.token >= 0) {
      ids.push_back(parts_.added[segment.token].id);
      continue;
    }
    const std::string_view original = text.substr(segment.begin, segment.end - segment.begin);
    std::string normalized(original);
    QF_TRY(detail::normalize(parts_.normalizers, normalized));
    QF_TRY_ASSIGN(const auto inner_plain, normalized_plain(original, segment.begin, normalized, plain));
    inner.clear();
    normalized_finder_.find(parts_.added, normalized, inner_plain, inner);
    for (const Segment& part : inner) {
      if (part.token >= 0) {
        ids.push_back(parts_.added[part.token].id);
        continue;
      }
      Pieces pieces;
      pieces.text = normalized.substr(part.begin, part.end - part.begin);
      pieces.ranges.push_back({0, pieces.text.size()});
      pieces.at_start = segment.begin == 0 && part.begin == 0;
      QF_TRY(pre_tokenize(parts_.pre_tokenizers, pieces));
      for (const auto& range : pieces.ranges)
        parts_.model.encode(std::string_view(pieces.text).substr(range.begin, range.end - range.begin), cache,
                            ids);
    }
  }
  return {};
}

Result<std::vector<std::int32_t>> BpeTokenizer::encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (text.size() > kLongestText / 4)
    return Status(Errc::invalid_argument, cat({"a text of ", num(text.size()), " bytes, at most ",
                                               num(kLongestText / 4), " can be tokenized at once"}));
  try {
    std::vector<std::int32_t> ids;
    if (options.add_special) ids = parts_.prefix;
    QF_TRY(check_plain(text.size(), options.plain));
    const std::string valid = to_valid_utf8(text);
    if (!options.plain.empty() && valid != text)
      return Status(Errc::invalid_argument, "a text with plain ranges: UTF-8 expected, broken bytes found");
    const TextRange all{0, valid.size()};
    QF_TRY(encode_text(valid, options.parse_special ? options.plain : std::span(&all, 1), ids));
    if (options.add_special) ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
    return ids;
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({"no memory to tokenize ", num(text.size()), " bytes"}));
  }
}

Result<std::string> BpeTokenizer::text_of(std::int32_t id) const {
  if (id < 0 || id >= size_)
    return Status(Errc::invalid_argument,
                  cat({"token id ", num(id), " is outside of [0, ", num(size_), ")"}));
  if (const auto it = added_by_id_.find(id); it != added_by_id_.end()) return parts_.added[it->second].text;
  const Vocabulary& vocabulary = parts_.model.vocabulary();
  return vocabulary.contains(id) ? vocabulary.text(id) : std::string();  // a hole stands for nothing
}

Result<std::string> BpeTokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  try {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const std::int32_t id : ids) {
      QF_TRY_ASSIGN(std::string text, text_of(id));
      if (skip_special && is_special(id)) continue;
      if (!text.empty()) tokens.push_back(std::move(text));
    }
    return detail::decode(parts_.decoders, std::move(tokens));
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({"no memory to decode ", num(ids.size()), " tokens"}));
  }
}

Result<std::string> BpeTokenizer::stream_bytes(std::int32_t id, bool first) const {
  QF_TRY_ASSIGN(std::string text, text_of(id));
  return decode_token(parts_.decoders, std::move(text), first);
}

Result<std::string> BpeTokenizer::token_bytes(std::int32_t id) const {
  return stream_bytes(id, false);
}

std::optional<std::int32_t> BpeTokenizer::id(std::string_view token) const {
  if (const auto it = added_by_content_.find(token); it != added_by_content_.end())
    return parts_.added[it->second].id;
  const std::int32_t found = parts_.model.vocabulary().find(token);
  if (found == kNoToken) return std::nullopt;
  return found;
}

bool BpeTokenizer::is_special(std::int32_t id) const {
  const auto it = added_by_id_.find(id);
  return it != added_by_id_.end() && parts_.added[it->second].special;
}

}  // namespace detail

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

Result<std::string> StreamDecoder::push(std::int32_t id) {
  if (id < 0 || id >= tokenizer_->size())
    return Status(Errc::invalid_argument,
                  cat({"token id ", num(id), " is outside of [0, ", num(tokenizer_->size()), ")"}));
  if (skip_special_ && tokenizer_->is_special(id)) return std::string();
  QF_TRY_ASSIGN(const std::string bytes, tokenizer_->stream_bytes(id, first_));
  first_ = false;
  pending_ += bytes;
  const std::size_t whole = pending_.size() - detail::unfinished_tail_bytes(pending_);
  std::string text = detail::to_valid_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = detail::to_valid_utf8(pending_);
  pending_.clear();
  first_ = true;
  return text;
}

}  // namespace qf::text
