// The steps around the model, named and meant as in tokenizer.json: normalizers, pre-tokenizers, decoders.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/result.hpp"
#include "src/text_regex.hpp"
#include "src/text_unicode.hpp"

namespace qf::text::detail {

// What a step looks for: a text as it stands, or a regular expression.
struct Pattern {
  std::string literal;                 // used without a regex; not empty
  std::shared_ptr<const Regex> regex;  // may be null
  // Appends spans that cover `subject`.
  Status split(std::string_view subject, std::vector<Span>& spans) const;
  Status replace(std::string& text, std::string_view content) const;
};

struct Normalizer {
  enum class Kind { form, lowercase, strip, strip_accents, prepend, replace, byte_level } kind;
  NormalForm form = NormalForm::nfc;
  bool left = true, right = true;  // strip
  std::string content;             // prepend, replace
  Pattern pattern;                 // replace
};
Status normalize(const std::vector<Normalizer>& steps, std::string& text);

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct PreTokenizer {
  enum class Kind { byte_level, split, digits, metaspace, whitespace, whitespace_split, punctuation } kind;
  bool add_prefix_space = false, use_regex = true;   // byte_level
  Pattern pattern;                                   // split; byte_level with use_regex
  SplitBehavior behavior = SplitBehavior::isolated;  // split, punctuation
  bool invert = false;                               // split
  bool individual_digits = false;                    // digits
  std::string replacement;                           // metaspace: the character that stands for a space
  enum class Prepend { always, first, never } prepend = Prepend::always;  // metaspace
  bool split = true;                                                      // metaspace
};

// A text in pieces, which are never empty. A step cuts pieces further or rewrites the text.
struct Pieces {
  struct Range {
    std::size_t begin, end;
  };
  std::string text;
  std::vector<Range> ranges;
  bool at_start = false;  // the text begins where the whole input begins
};
Status pre_tokenize(const std::vector<PreTokenizer>& steps, Pieces& pieces);

struct Decoder {
  enum class Kind { byte_level, byte_fallback, fuse, replace, strip, metaspace } kind;
  Pattern pattern;                  // replace
  std::string content;              // replace, strip (one character)
  std::size_t start = 0, stop = 0;  // strip: at most so many characters
  std::string replacement;          // metaspace
  bool drop_first = true;           // metaspace
};
// The text of a sequence of tokens.
Result<std::string> decode(const std::vector<Decoder>& steps, std::vector<std::string> tokens);
// The bytes of one token among others; `first`: at the beginning of a text.
Result<std::string> decode_token(const std::vector<Decoder>& steps, std::string token, bool first);

// The byte that "<0xNN>" names, or -1.
int byte_of_token(std::string_view token);
// The pre-tokenizing expression of GPT-2, which ByteLevel applies.
extern const std::string_view kGpt2Pattern;

}  // namespace qf::text::detail
