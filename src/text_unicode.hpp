// Code points: reading and writing UTF-8, properties, normal forms (from libutf8proc's tables).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qf::text::detail {

// `raw` as valid UTF-8: every maximal broken part becomes one U+FFFD (Unicode 15, section 3.9, "substitution
// of maximal subparts"), which is what Python's bytes.decode("utf-8", "replace") does.
std::string to_valid_utf8(std::string_view raw);
// How many bytes at the end of `raw` begin a character that more bytes could complete (0 to 3).
std::size_t unfinished_tail_bytes(std::string_view raw);

// The code point at `text[at]`, moving `at` behind it. Precondition: valid UTF-8, at < size.
char32_t next_code_point(std::string_view text, std::size_t& at);
// The length in bytes of the character that starts with this byte, in valid UTF-8.
inline std::size_t character_bytes(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}
void append_utf8(std::string& text, char32_t code_point);

bool is_white_space(char32_t c);  // property White_Space
bool is_number(char32_t c);       // categories Nd, Nl, No
bool is_punctuation(char32_t c);  // categories P*, and all that ASCII counts as punctuation
bool is_mark(char32_t c);         // categories M*
bool is_word(char32_t c);         // Alphabetic, M*, Nd, Pc, Join_Control (UTS 18, annex C)

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// Precondition: valid UTF-8. Linear but for sorting runs of combining marks.
std::string normalize(std::string_view text, NormalForm form);
std::string lower_case(std::string_view text);  // each character by itself, without context rules

// The printable character by which byte-level BPE writes each byte (GPT-2's table), and its reverse.
char32_t byte_level_character(unsigned char byte);
int byte_of_byte_level_character(char32_t c);  // -1: not one of the 256

}  // namespace qf::text::detail
