// tokenizer.json and the vocabulary of GGUF metadata, each from the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "qf/core/json.hpp"
#include "qf/core/result.hpp"
#include "qf/io/gguf_writer.hpp"
#include "qf/text/tokenizer.hpp"

namespace qf::model::detail {

struct StoredVocabulary {
  text::GgufVocabulary vocabulary;
  std::optional<std::int32_t> pad;
  std::string chat_template;  // Jinja source, never run
};

// From the contents of tokenizer.json and tokenizer_config.json (an empty object when there is none). Ids up to
// `vocab` that no token has become unused tokens "[PADn]". `what` names the folder in errors. Refused by name:
// models other than BPE, pre-tokenizers and normalizers that llama.cpp has no name for here.
Result<StoredVocabulary> vocabulary_from_json(const Json& tokenizer, const Json& config, std::int64_t vocab,
                                              std::string_view what);

void put_vocabulary(const StoredVocabulary& stored, io::GgufMetadata& metadata);

// The contents of a tokenizer.json that gives the same ids. Errors: a pre-tokenizer that isn't known, tokens that
// aren't UTF-8 or stand twice.
Result<std::string> tokenizer_json(const text::GgufVocabulary& vocabulary, std::string_view what);
Result<std::string> tokenizer_config_json(const StoredVocabulary& stored, std::int64_t context,
                                          std::string_view what);

}  // namespace qf::model::detail
