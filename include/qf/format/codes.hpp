// Dense codes: the one place where bit order is written down.
// Code i of a stream of b-bit codes occupies bits [i*b, i*b + b) of a little-endian stream of 32-bit words,
// least significant bit first; a code that straddles two words spills its high bits into bit 0 of the next.
// 32 codes are exactly b words. GPTQ, AutoRound, MLX, compressed-tensors (>= 0.18) and ONNX MatMulNBits use
// this order.
#pragma once

#include <cstdint>

#include "qf/core/config.hpp"

namespace qf {

// Words that `count` codes of `bits` bits take.
constexpr std::int64_t code_words(std::int64_t count, int bits) {
  return (count * bits + 31) / 32;
}

constexpr std::uint32_t get_code(const std::uint32_t* words, std::int64_t i, int bits) {
  const std::int64_t bit = i * bits, word = bit >> 5;
  const int offset = static_cast<int>(bit & 31);
  std::uint64_t pair = words[word];
  if (offset + bits > 32) pair |= static_cast<std::uint64_t>(words[word + 1]) << 32;
  return static_cast<std::uint32_t>(pair >> offset) & ((1u << bits) - 1);
}

// Bits of `code` beyond `bits` are dropped, so that a code out of range can't harm its neighbours.
constexpr void set_code(std::uint32_t* words, std::int64_t i, int bits, std::uint32_t code) {
  const std::uint32_t mask = (1u << bits) - 1;
  const std::int64_t bit = i * bits, word = bit >> 5;
  const int offset = static_cast<int>(bit & 31);
  code &= mask;
  words[word] = (words[word] & ~(mask << offset)) | code << offset;
  if (offset + bits > 32) {
    const int done = 32 - offset;
    words[word + 1] = (words[word + 1] & ~(mask >> done)) | code >> done;
  }
}

// `words` has code_words(count, bits) elements; bits after the last code become 0.
constexpr void pack_codes(const std::uint8_t* codes, std::int64_t count, int bits, std::uint32_t* words) {
  for (std::int64_t w = 0; w < code_words(count, bits); ++w) words[w] = 0;
  for (std::int64_t i = 0; i < count; ++i) set_code(words, i, bits, codes[i]);
}
constexpr void unpack_codes(const std::uint32_t* words, std::int64_t count, int bits, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>(get_code(words, i, bits));
}

// The same with the width known at compile time.
template <int Bits>
struct Codes {
  static_assert(Bits >= 1 && Bits <= 8);
  static constexpr std::int64_t words(std::int64_t count) { return code_words(count, Bits); }
  static constexpr std::uint32_t get(const std::uint32_t* w, std::int64_t i) { return get_code(w, i, Bits); }
  static constexpr void set(std::uint32_t* w, std::int64_t i, std::uint32_t code) {
    set_code(w, i, Bits, code);
  }
  static constexpr void pack(const std::uint8_t* codes, std::int64_t n, std::uint32_t* w) {
    pack_codes(codes, n, Bits, w);
  }
  static constexpr void unpack(const std::uint32_t* w, std::int64_t n, std::uint8_t* codes) {
    unpack_codes(w, n, Bits, codes);
  }
};

}  // namespace qf
