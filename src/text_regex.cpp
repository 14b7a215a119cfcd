#include "src/text_regex.hpp"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "src/text_unicode.hpp"

namespace qf::text::detail {
namespace {

constexpr std::size_t kLongestPattern = 32768;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
// Oniguruma's \w: PCRE2's own leaves out marks. It counts the superscripts and fractions of Latin-1 as well.
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Copies what both dialects read alike and rewrites what they read differently.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        QF_TRY(escape(false));
      } else if (c == '[') {
        QF_TRY(bracket());
      } else if (c == '(') {
        QF_TRY(group());
      } else if (c == '{') {
        QF_TRY(interval());
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  Status refuse(std::string_view part) const {
    return Status(Errc::unsupported,
                  cat({printable(part), " at byte ", num(at_), " of the expression is not supported"}));
  }
  char peek(std::size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  Status escape(bool in_class) {
    if (at_ + 1 >= in_.size()) return refuse("\\");
    const char c = in_[at_ + 1];
    const auto emit = [&](std::string_view text) {
      out_ += text;
      at_ += 2;
      return Status();
    };
    switch (c) {
      case 's':
        return emit("\\p{White_Space}");  // PCRE2's \s has U+180E as well
      case 'S':
        return emit("\\P{White_Space}");
      case 'd':
        return emit("\\p{Nd}");
      case 'D':
        return emit("\\P{Nd}");
      case 'w':
        return emit(in_class ? std::string(kWord) : cat({"[", kWord, "]"}));
      case 'h':
        return emit(in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]");
      case 'W':
        if (in_class) return refuse("\\W in [...]");
        return emit(cat({"[^", kWord, "]"}));
      case 'H':
        if (in_class) return refuse("\\H in [...]");
        return emit("[^0-9A-Fa-f]");
      case 'v':
        return emit("\\x{b}");
      case 't':
      case 'n':
      case 'r':
      case 'f':
      case 'a':
      case 'e':
        return emit(in_.substr(at_, 2));
      case 'b':
      case 'B':
      case 'A':
      case 'z':
      case 'Z':
        if (in_class) return refuse(cat({in_.substr(at_, 2), " in [...]"}));
        return emit(in_.substr(at_, 2));
      case 'p':
      case 'P':
        return property();
      case 'x':
        return hexadecimal();
      case 'u': {
        for (std::size_t i = 2; i < 6; ++i)
          if (!is_hex(peek(i))) return refuse("\\u");
        out_ += cat({"\\x{", in_.substr(at_ + 2, 4), "}"});
        at_ += 6;
        return {};
      }
      default:
        if (is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80)
          return refuse(in_.substr(at_, 2));
        return emit(in_.substr(at_, 2));
    }
  }

  // General categories mean the same in both; a script's name alone takes in PCRE2 what shares the script.
  Status property() {
    const std::size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == in_.npos) return refuse(in_.substr(at_, 2));
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    const bool negated = !name.empty() && name[0] == '^';
    if (negated) name.remove_prefix(1);
    static constexpr std::string_view kLong[][2] = {{"Letter", "L"},      {"Mark", "M"},   {"Number", "N"},
                                                    {"Punctuation", "P"}, {"Symbol", "S"}, {"Separator", "Z"},
                                                    {"Other", "C"}};
    for (const auto& [long_name, short_name] : kLong)
      if (name == long_name) name = short_name;
    const bool category =
        (name.size() == 1 || name.size() == 2) && name.find_first_not_of("LMNPSZCdeflmoukstpci") == name.npos;
    const bool known = name == "Any" || name == "White_Space" || name == "Alphabetic";
    if (!category && !known && (name.empty() || !std::all_of(name.begin(), name.end(), [](char c) {
                                  return is_letter(c) || c == '_';
                                })))
      return refuse(in_.substr(at_, close + 1 - at_));
    out_ += cat({in_.substr(at_, 3), negated ? "^" : "", category || known ? "" : "sc:", name, "}"});
    at_ = close + 1;
    return {};
  }

  Status hexadecimal() {
    if (peek(2) == '{') {
      std::size_t end = at_ + 3;
      while (end < in_.size() && is_hex(in_[end])) ++end;
      if (end == at_ + 3 || end - at_ > 11 || end >= in_.size() || in_[end] != '}') return refuse("\\x{");
      out_ += in_.substr(at_, end + 1 - at_);
      at_ = end + 1;
      return {};
    }
    // From 0x80 on Oniguruma means a byte of a character, PCRE2 a code point.
    if (!is_hex(peek(2)) || !is_hex(peek(3)) || peek(2) > '7') return refuse(in_.substr(at_, 4));
    out_ += in_.substr(at_, 4);
    at_ += 4;
    return {};
  }

  Status bracket() {
    out_ += in_[at_++];
    if (peek(0) == '^') out_ += in_[at_++];
    if (peek(0) == ']') return refuse("[]");
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        QF_TRY(escape(true));
        continue;
      }
      if (c == '[') return refuse("[ in [...]");
      if (c == '&' && peek(1) == '&') return refuse("&& in [...]");
      out_ += c;
      ++at_;
      if (c == ']') return {};
    }
    return refuse("[ without ]");
  }

  Status group() {
    if (peek(1) == '*') return refuse("(*");
    if (peek(1) != '?') {
      out_ += in_[at_++];
      return {};
    }
    std::size_t end = at_ + 2;
    const char c = peek(2);
    if (c == ':' || c == '=' || c == '!' || c == '>') {
      ++end;
    } else if (c == '<' && (peek(3) == '=' || peek(3) == '!')) {
      end += 2;
    } else {
      while (end < in_.size() && (in_[end] == 'i' || in_[end] == '-')) ++end;
      // An option without ':' reaches over the alternatives that follow in one dialect only, but at the
      // start.
      const bool alone = end < in_.size() && in_[end] == ')' && at_ == 0;
      if (end == at_ + 2 || end >= in_.size() || (in_[end] != ':' && !alone))
        return refuse(in_.substr(at_, 3));
      ++end;
    }
    out_ += in_.substr(at_, end - at_);
    at_ = end;
    return {};
  }

  Status interval() {
    std::size_t end = at_ + 1;
    while (end < in_.size() && (is_digit(in_[end]) || in_[end] == ',')) ++end;
    if (end == at_ + 1 || end >= in_.size() || in_[end] != '}') {
      out_ += "\\{";  // not an interval: the character itself
      ++at_;
      return {};
    }
    // Possessive in PCRE2, a second repetition in Ruby's syntax.
    if (end + 1 < in_.size() && in_[end + 1] == '+') return refuse("{...}+");
    out_ += peek(1) == ',' ? "{0" : "{";
    out_ += in_.substr(at_ + 1, end - at_);
    at_ = end + 1;
    return {};
  }

  std::string_view in_;
  std::string out_;
  std::size_t at_ = 0;
};

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[200];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) return "PCRE2 error " + num(code);
  return reinterpret_cast<const char*>(text);
}

pcre2_code* code_of(void* code) {
  return static_cast<pcre2_code*>(code);
}

}  // namespace

Result<std::string> to_pcre2_syntax(std::string_view oniguruma) {
  return Translator(oniguruma).run();
}

Result<std::shared_ptr<const Regex>> Regex::compile(std::string_view oniguruma) {
  if (oniguruma.size() > kLongestPattern)
    return Status(Errc::bad_format, cat({"a regular expression of ", num(oniguruma.size()),
                                         " bytes, at most ", num(kLongestPattern), " expected"}));
  QF_TRY_ASSIGN(const std::string pattern, to_pcre2_syntax(oniguruma));
  auto* context = pcre2_compile_context_create(nullptr);
  if (!context) return Status(Errc::out_of_memory, "no memory for a regular expression");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  std::size_t offset = 0;
  // Ruby's ^ and $ always mean lines.
  auto* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                             &offset, context);
  pcre2_compile_context_free(context);
  if (!code)
    return Status(Errc::bad_format, cat({"the regular expression ", printable(oniguruma),
                                         " does not compile: ", pcre2_message(error)}));
  std::shared_ptr<Regex> regex(new Regex);
  regex->code_ = code;
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it can't, pcre2_match interprets
  return std::shared_ptr<const Regex>(std::move(regex));
}

Regex::~Regex() {
  pcre2_code_free(code_of(code_));
}

Matcher::Matcher(const Regex& regex)
    : regex_(regex),
      data_(pcre2_match_data_create_from_pattern(code_of(regex.code_), nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (context_) pcre2_set_heap_limit(static_cast<pcre2_match_context*>(context_), kHeapLimitKib);
}

Matcher::~Matcher() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(context_));
}

Status Matcher::split(std::string_view subject, std::vector<Span>& spans) {
  auto* data = static_cast<pcre2_match_data*>(data_);
  auto* context = static_cast<pcre2_match_context*>(context_);
  if (!data || !context) return Status(Errc::out_of_memory, "no memory for a search");
  // The limit holds for each place where a match may start; a run of n characters may take n steps honestly.
  pcre2_set_match_limit(
      context, static_cast<std::uint32_t>(std::min<std::size_t>(100'000 + 8 * subject.size(), 0x7fffffff)));
  const auto search = [&](std::size_t from, std::uint32_t options) {
    return pcre2_match(code_of(regex_.code_), reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(),
                       from, options | PCRE2_NO_UTF_CHECK, data, context);
  };
  constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t covered = 0, from = 0, last_end = kNone;
  while (from <= subject.size()) {
    int found = search(from, 0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = search(from, PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      return Status(found == PCRE2_ERROR_NOMEMORY ? Errc::out_of_memory : Errc::bad_format,
                    cat({"the pre-tokenizer's regular expression fails on a text of ", num(subject.size()),
                         " bytes: ", pcre2_message(found)}));
    const std::size_t begin = pcre2_get_ovector_pointer(data)[0], end = pcre2_get_ovector_pointer(data)[1];
    if (begin > end || end > subject.size())
      return Status(Errc::bad_format, "the pre-tokenizer's regular expression matches outside of its text");
    if (begin == end && end == last_end) {  // an empty match right behind a match doesn't count
      from += from < subject.size() ? character_bytes(static_cast<unsigned char>(subject[from])) : 1;
      continue;
    }
    if (covered < begin) spans.push_back({covered, begin, false});
    spans.push_back({begin, end, true});
    covered = from = last_end = end;
  }
  if (covered < subject.size()) spans.push_back({covered, subject.size(), false});
  return {};
}

}  // namespace qf::text::detail
