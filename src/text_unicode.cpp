#include "src/text_unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

namespace qf::text::detail {
namespace {

// The number of bytes from `at` that form a character (whole = true) or a maximal broken part of one.
struct Part {
  std::size_t bytes;
  bool whole;
  bool cut;  // broken only because the text ends
};

Part part_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xc2 || lead > 0xf4) return {1, false, false};
  const std::size_t length = character_bytes(lead);
  // The second byte's range keeps out overlong forms, surrogates and what lies beyond U+10FFFF.
  unsigned char low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {i, false, true};
    if (byte(at + i) < low || byte(at + i) > high) return {i, false, false};
    low = 0x80;
    high = 0xbf;
  }
  return {length, true, false};
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

std::string to_valid_utf8(std::string_view raw) {
  std::string text;
  text.reserve(raw.size());
  for (std::size_t at = 0; at < raw.size();) {
    const Part part = part_at(raw, at);
    if (part.whole)
      text.append(raw, at, part.bytes);
    else
      text += "\xef\xbf\xbd";
    at += part.bytes;
  }
  return text;
}

std::size_t unfinished_tail_bytes(std::string_view raw) {
  for (std::size_t back = 1; back <= 3 && back <= raw.size(); ++back) {
    const unsigned char c = static_cast<unsigned char>(raw[raw.size() - back]);
    if (c < 0x80) return 0;
    if (c >= 0xc0) {
      const Part part = part_at(raw, raw.size() - back);
      return part.cut && part.bytes == back ? back : 0;
    }
  }
  return 0;
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(at);
  const std::size_t length = character_bytes(static_cast<unsigned char>(lead));
  char32_t c = length == 1 ? lead : length == 2 ? lead & 0x1f : length == 3 ? lead & 0x0f : lead & 0x07;
  for (std::size_t i = 1; i < length && at + i < text.size(); ++i) c = (c << 6) | (byte(at + i) & 0x3f);
  at = std::min(at + length, text.size());
  return c;
}

void append_utf8(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
    return;
  }
  if (c < 0x800) {
    text += static_cast<char>(0xc0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      text += static_cast<char>(0xe0 | (c >> 12));
    } else {
      text += static_cast<char>(0xf0 | (c >> 18));
      text += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    }
    text += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
  }
  text += static_cast<char>(0x80 | (c & 0x3f));
}

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_number(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x40) || (c >= 0x5b && c <= 0x60) ||
           (c >= 0x7b && c <= 0x7e);
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  if (c < 0x300) return false;
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  if (c == 0x200c || c == 0x200d) return true;
  if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
      (c >= 0x1f170 && c <= 0x1f189))
    return true;  // Other_Alphabetic symbols: circled and squared letters
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

std::string normalize(std::string_view text, NormalForm form) {
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  // No character below U+0300 (lead bytes below 0xcc) changes under NFC; no ASCII changes under any form.
  const unsigned char inert = form == NormalForm::nfc ? 0xcc : 0x80;
  if (std::all_of(text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) < inert; }))
    return std::string(text);

  unsigned options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    utf8proc_int32_t parts[32];  // the longest decomposition has 18
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(c, parts, 32, static_cast<utf8proc_option_t>(options), &boundary);
    if (count <= 0 || count > 32)
      points.push_back(c);
    else
      points.insert(points.end(), parts, parts + count);
  }
  // Ordered here: the library's own ordering takes quadratic time on long runs of marks.
  const auto order = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto run = points.begin(); run != points.end();) {
    if (*run < 0x300 || order(*run) == 0) {
      ++run;
      continue;
    }
    auto end = std::find_if(run, points.end(), [&](utf8proc_int32_t c) { return order(c) == 0; });
    std::stable_sort(run, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) { return order(a) < order(b); });
    run = end;
  }
  auto count = static_cast<utf8proc_ssize_t>(points.size());
  if (compose)
    count = utf8proc_normalize_utf32(points.data(), count,
                                     static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(result, static_cast<char32_t>(points[i]));
  return result;
}

std::string lower_case(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c == 0x130)
      result += "i\xcc\x87";  // the one character whose lower case is two
    else
      append_utf8(result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return result;
}

namespace {

struct ByteLevelTable {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 0x144> byte{};
  constexpr ByteLevelTable() {
    for (auto& b : byte) b = -1;
    char32_t next = 0x100;  // bytes that don't print take the code points from U+0100 on, in order
    for (int b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      character[b] = prints ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr ByteLevelTable kByteLevel;

}  // namespace

char32_t byte_level_character(unsigned char byte) {
  return kByteLevel.character[byte];
}
int byte_of_byte_level_character(char32_t c) {
  return c < kByteLevel.byte.size() ? kByteLevel.byte[c] : -1;
}

}  // namespace qf::text::detail
