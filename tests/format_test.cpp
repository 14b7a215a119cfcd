#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "qf/format/codes.hpp"
#include "qf/format/quantized_matrix.hpp"

using namespace qf;

namespace {
// Reads code i bit by bit from the description of the format alone; judges Codes without sharing its
// arithmetic.
unsigned read_bit_by_bit(const std::vector<std::uint32_t>& words, std::size_t i, int bits) {
  unsigned code = 0;
  for (int b = 0; b < bits; ++b) {
    const std::size_t bit = i * static_cast<std::size_t>(bits) + static_cast<std::size_t>(b);
    if (words[bit / 32] >> (bit % 32) & 1u) code |= 1u << b;
  }
  return code;
}
}  // namespace

TEST_CASE("codes: equal to a bit-by-bit reading, for 1 to 8 bits and every length") {
  std::mt19937 rng(1);
  for (int bits = 1; bits <= 8; ++bits)
    for (std::size_t count : {0, 1, 2, 7, 31, 32, 33, 64, 100, 575, 576}) {
      std::vector<std::uint8_t> codes(count);
      for (auto& c : codes) c = static_cast<std::uint8_t>(rng() & ((1u << bits) - 1));
      const auto n = static_cast<std::int64_t>(count);
      std::vector<std::uint32_t> words(static_cast<std::size_t>(code_words(n, bits)), 0xdeadbeef);
      pack_codes(codes.data(), n, bits, words.data());
      std::vector<std::uint8_t> back(count);
      unpack_codes(words.data(), n, bits, back.data());
      REQUIRE(back == codes);
      for (std::size_t i = 0; i < count; ++i) REQUIRE(read_bit_by_bit(words, i, bits) == codes[i]);
      if (count % 32) REQUIRE(words.empty() == false);
      const std::size_t used = count * static_cast<std::size_t>(bits) % 32;
      if (used) REQUIRE(words.back() >> used == 0);
    }
}

TEST_CASE("codes: a code out of range doesn't reach its neighbours") {
  std::vector<std::uint32_t> words(3, 0);
  for (int i = 0; i < 32; ++i) set_code(words.data(), i, 3, 5);
  set_code(words.data(), 10, 3, 0xffffffffu);  // -1, as a zero point of 0 stored as z - 1 would be
  for (int i = 0; i < 32; ++i) REQUIRE(get_code(words.data(), i, 3) == (i == 10 ? 7u : 5u));
}

TEST_CASE("codes: golden words of the bit stream") {
  // 3-bit codes 0..7 repeated: the byte stream of 0o76543210 read from bit 0 on.
  std::vector<std::uint8_t> codes(32);
  for (std::size_t i = 0; i < 32; ++i) codes[i] = static_cast<std::uint8_t>(i % 8);
  std::uint32_t words[3];
  Codes<3>::pack(codes.data(), 32, words);
  REQUIRE(words[0] == 0x88fac688u);
  REQUIRE(words[1] == 0xc688fac6u);
  REQUIRE(words[2] == 0xfac688fau);
}

TEST_CASE("quantized matrix: shapes, ragged groups, permutation, codebook") {
  auto m = QuantizedMatrix::make({.bits = 4, .group = 4, .zero = ZeroKind::integer}, 2, 10);
  REQUIRE(m.ok());
  REQUIRE(m->groups() == 3);
  m->codes()(1, 9) = 9;
  m->scales()(1, 2) = 0.5f;
  m->zeros()(1, 2) = 3;
  REQUIRE(m->value(1, 9) == 3.0f);
  std::vector<std::int32_t> order(10, 0);
  order[9] = 1;
  REQUIRE(m->set_group_of(order).ok());
  m->scales()(1, 1) = 2;
  REQUIRE(m->value(1, 9) == 18.0f);
  order[0] = 3;
  REQUIRE(m->set_group_of(order).text() == "group index 3, expected 0 to 2");

  auto s = QuantizedMatrix::make({.bits = 3, .group = 0, .zero = ZeroKind::symmetric}, 1, 5);
  s->codes()(0, 0) = 7;
  s->scales()(0, 0) = 2;
  REQUIRE(s->value(0, 0) == 6.0f);
  REQUIRE(s->groups() == 1);
  REQUIRE(s->zeros().data == nullptr);

  auto c = QuantizedMatrix::make({.bits = 2, .codebook = CodebookKind::per_row}, 2, 3);
  c->codebook()(1, 3) = 1.5f;
  c->codes()(1, 2) = 3;
  c->scales()(1, 0) = 2;
  REQUIRE(c->value(1, 2) == 3.0f);
  REQUIRE(QuantizedMatrix::make({.bits = 4}, 0, 0).ok());
}

TEST_CASE("scheme: what is out of range is named") {
  REQUIRE(check(Scheme{.bits = 9}).text() == "bits 9, expected 1 to 8");
  REQUIRE(check(Scheme{.group = -1}).text() == "group -1, expected 1 or more, or 0 for the whole row");
  REQUIRE(check(Scheme{.scale = DType::i8}).text() == "scales of type I8, expected F16, BF16 or F32");
  REQUIRE(QuantizedMatrix::make({}, -1, 2).status().code() == Errc::invalid_argument);
  REQUIRE(QuantizedMatrix::make({}, std::int64_t{1} << 40, std::int64_t{1} << 40).status().code() ==
          Errc::invalid_argument);
  REQUIRE(scheme_name({.bits = 4, .group = 64}) == "w4g64 asymmetric f16");
  REQUIRE(Scheme{.bits = 4, .group = 64}.bits_per_weight(576) == Approx(4.3125));
  REQUIRE(Scheme{.bits = 4, .group = 128, .zero = ZeroKind::symmetric}.groups(576) == 5);
}
