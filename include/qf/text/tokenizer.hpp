// Needs: link qf. Text to token ids and back: byte-level BPE (GPT-2, SmolLM, Llama-3, Qwen2) and
// SentencePiece-style BPE (Llama-2, Phi-3), as Hugging Face's `tokenizers` computes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/result.hpp"

namespace qf::text {

// A vocabulary as GGUF metadata stores it (keys tokenizer.ggml.*), handed over by whoever read the file.
struct GgufVocabulary {
  std::string model;  // "gpt2" or "llama"
  std::string pre;    // "smollm", "llama-bpe", "qwen2", "default", ...
  std::vector<std::string> tokens;
  std::vector<float> scores;        // "llama" only
  std::vector<std::int32_t> types;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;  // "gpt2" only
  std::optional<std::int32_t> bos, eos, unk;
  bool add_bos = false, add_eos = false, add_space_prefix = true;
};

struct TextRange {
  std::size_t begin = 0, end = 0;  // bytes [begin, end)
};

struct EncodeOptions {
  bool add_special = false;   // what the tokenizer's post-processor adds (BOS, EOS)
  bool parse_special = true;  // added and special tokens written in the text become their ids, as in Hugging
                              // Face; false: they are plain text, which is what untrusted text needs
  // Parts of the text in which special tokens stay plain text, whatever `parse_special` says; ascending, without
  // overlap, inside the text, which must be UTF-8 then. A token that only begins or ends in one counts as inside.
  std::span<const TextRange> plain = {};
};

// Immutable after loading; const use from many threads.
class Tokenizer {
 public:
  // The contents of a tokenizer.json; `what` names it in errors. Parts that aren't supported are refused by
  // name.
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view tokenizer_json, std::string_view what);
  static Result<std::unique_ptr<Tokenizer>> from_gguf(GgufVocabulary vocabulary, std::string_view what);
  virtual ~Tokenizer() = default;

  // `text` may hold any bytes. Bytes that aren't UTF-8 are treated as U+FFFD, as Hugging Face's callers do.
  virtual Result<std::vector<std::int32_t>> encode(std::string_view text,
                                                   const EncodeOptions& options = {}) const = 0;
  // `skip_special` leaves out special tokens. Ids out of range are an error.
  virtual Result<std::string> decode(std::span<const std::int32_t> ids, bool skip_special = false) const = 0;
  // The bytes that one token stands for, which needn't be valid UTF-8 by themselves.
  virtual Result<std::string> token_bytes(std::int32_t id) const = 0;
  // The same, where `first` says that the token begins a text: some tokenizers drop a leading space there.
  virtual Result<std::string> stream_bytes(std::int32_t id, bool first) const = 0;

  virtual std::int64_t size() const = 0;  // ids are [0, size())
  virtual std::optional<std::int32_t> id(
      std::string_view token) const = 0;  // of a token as the vocabulary spells it
  virtual bool is_special(std::int32_t id) const = 0;
};

// Decodes a stream of tokens; what it returns is always whole UTF-8 characters.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  // The text that became certain with this token; may be empty.
  Result<std::string> push(std::int32_t id);
  // What is left at the end; broken bytes become U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_, first_ = true;
  std::string pending_;
};

}  // namespace qf::text
