// The tokenizer that both loaders build.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qf/text/tokenizer.hpp"
#include "src/text_added_tokens.hpp"
#include "src/text_bpe.hpp"
#include "src/text_pipeline.hpp"

namespace qf::text::detail {

// Everything a loader found out; BpeTokenizer::make checks it as a whole.
struct TokenizerParts {
  BpeModel model;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::vector<Decoder> decoders;
  std::vector<AddedToken> added;
  std::vector<std::int32_t> prefix, suffix;  // what the post-processor puts around a text
};

class BpeTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> make(TokenizerParts parts, std::string_view what);

  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           const EncodeOptions& options) const override;
  Result<std::string> decode(std::span<const std::int32_t> ids, bool skip_special) const override;
  Result<std::string> token_bytes(std::int32_t id) const override;
  Result<std::string> stream_bytes(std::int32_t id, bool first) const override;
  std::int64_t size() const override { return size_; }
  std::optional<std::int32_t> id(std::string_view token) const override;
  bool is_special(std::int32_t id) const override;

 private:
  Status encode_text(std::string_view text, std::span<const TextRange> plain,
                     std::vector<std::int32_t>& ids) const;
  Result<std::vector<TextRange>> normalized_plain(std::string_view segment, std::size_t offset,
                                                  const std::string& normalized,
                                                  std::span<const TextRange> plain) const;
  Result<std::string> text_of(std::int32_t id) const;

  TokenizerParts parts_;
  std::int32_t size_ = 0;
  AddedTokenFinder raw_finder_, normalized_finder_;
  std::unordered_map<std::int32_t, std::int32_t> added_by_id_;           // id -> index in parts_.added
  std::unordered_map<std::string_view, std::int32_t> added_by_content_;  // content -> index
};

}  // namespace qf::text::detail
