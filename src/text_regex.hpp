// Regular expressions of tokenizer.json: written for Oniguruma (Ruby syntax), run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/result.hpp"

namespace qf::text::detail {

// A stretch of a subject, [begin, end) in bytes; together the spans of a search cover the subject in order.
struct Span {
  std::size_t begin, end;
  bool match;
};

// The same expression in PCRE2's syntax. What means something else there, or isn't known, is refused by name.
Result<std::string> to_pcre2_syntax(std::string_view oniguruma);

// Immutable; const use from many threads.
class Regex {
 public:
  static Result<std::shared_ptr<const Regex>> compile(std::string_view oniguruma);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

 private:
  friend class Matcher;
  Regex() = default;
  void* code_ = nullptr;
};

// What a search needs besides the expression; one a thread.
class Matcher {
 public:
  explicit Matcher(const Regex& regex);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  // Appends matches and what lies between them. Precondition: valid UTF-8. Errors: the expression backtracks
  // beyond a limit proportional to the subject; no memory.
  Status split(std::string_view subject, std::vector<Span>& spans);

 private:
  const Regex& regex_;
  void *data_ = nullptr, *context_ = nullptr;
};

}  // namespace qf::text::detail
