// What llama.cpp's names of pre-tokenizers stand for in tokenizer.json.
#pragma once

#include <string_view>

namespace qf::model::detail {

struct PreTokenizer {
  std::string_view gguf;     // tokenizer.ggml.pre
  std::string_view pattern;  // of the "Split" before "ByteLevel"; empty: ByteLevel's own
  bool digits;               // "Digits" before "ByteLevel"
  bool nfc;                  // normalizer
  bool ignore_merges;        // of the BPE model
};

inline constexpr PreTokenizer kPreTokenizers[] = {
    {"smollm", "", true, false, false},
    {"llama-bpe",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     false, false, true},
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     false, true, false},
    {"gpt-2", "", false, false, false},
};

}  // namespace qf::model::detail
