#include "benchmarks/weights.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <random>
#include <string_view>

#include "qf/core/half.hpp"

namespace qf::bench {
namespace {

// The 4-bit NormalFloat of QLoRA (Dettmers et al. 2023, appendix E).
constexpr float kNf4[16] = {
    -1.0f,       -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
    0.07958030f, 0.16093020f,  0.24611230f,  0.33791524f,  0.44070983f,  0.56261700f,  0.72295684f,  1.0f};

// Entry i of a codebook of `levels`.
float entry(Book book, int i, int levels, std::mt19937& rng) {
  switch (book) {
    case Book::nf4:
      return kNf4[i];
    case Book::e2m1: {
      f4e2m1 x;
      x.bits = static_cast<std::uint8_t>(i);
      return x;
    }
    case Book::e4m3: {
      f8e4m3 x;  // the two codes of NaN never occur
      x.bits = static_cast<std::uint8_t>(i);
      return (i & 0x7f) == 0x7f ? 0.0f : static_cast<float>(x) / 448.0f;
    }
    default: {
      const float jitter = static_cast<float>(rng() >> 8) / 16777216.0f;
      return (static_cast<float>(i) + 0.8f * jitter) * 2.0f / static_cast<float>(levels) - 1.0f;
    }
  }
}

}  // namespace

std::optional<WeightKind> parse_weights(const std::string& name) {
  WeightKind kind;
  Scheme& s = kind.scheme;
  s.zero = ZeroKind::symmetric;
  std::string_view rest = name;
  const auto starts = [&](std::string_view word) {
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  };
  const auto number = [&](auto& value) {
    const auto [next, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc()) return false;
    rest.remove_prefix(static_cast<std::size_t>(next - rest.data()));
    return true;
  };
  const auto book = [&](Book which, int bits, std::int64_t group) {
    kind.book = which;
    s.codebook = CodebookKind::per_matrix;
    s.bits = bits;
    s.group = group;
  };
  if (starts("nf4")) {
    book(Book::nf4, 4, 64);
  } else if (starts("fp4")) {
    book(Book::e2m1, 4, 32);
  } else if (starts("fp8")) {
    book(Book::e4m3, 8, 128);
  } else if (name == "mxfp4") {
    book(Book::e2m1, 4, 32);
    s.scale = DType::bf16;  // holds every power of two
    return kind;
  } else if (name == "nvfp4") {
    book(Book::e2m1, 4, 16);
    return kind;
  } else if (starts("c") || starts("r")) {
    book(Book::random, 4, 0);
    if (name[0] == 'r') s.codebook = CodebookKind::per_row;
    if (!number(s.bits)) return std::nullopt;
  } else if (!starts("w") || !number(s.bits)) {
    return std::nullopt;
  }
  if (starts("g") && !number(s.group)) return std::nullopt;
  if (kind.book == Book::none) {
    if (starts("a"))
      s.zero = ZeroKind::integer;
    else if (starts("z"))
      s.zero = ZeroKind::floating;
    else
      starts("s");
  }
  if (!rest.empty() || !check(s).ok()) return std::nullopt;
  return kind;
}

QuantizedMatrix random_weights(const WeightKind& kind, std::int64_t n, std::int64_t k) {
  const Scheme& s = kind.scheme;
  QuantizedMatrix w = QuantizedMatrix::make(s, n, k).value();
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  for (std::int64_t r = 0; r < w.codebook().shape[0]; ++r)
    for (int i = 0; i < s.levels(); ++i) w.codebook()(r, i) = entry(kind.book, i, s.levels(), rng);
  std::array<std::uint8_t, 4096> codes{};  // normal codes, whose order differs from row to row
  const float middle = s.symmetric_zero();
  for (std::uint8_t& code : codes) {
    code = static_cast<std::uint8_t>(std::clamp(std::nearbyint(middle + normal(rng) * middle / 3), 0.0f,
                                                static_cast<float>(s.levels() - 1)));
    if (kind.book == Book::e4m3 && (code & 0x7f) == 0x7f) --code;
  }
  for (std::int64_t r = 0; r < n; ++r) {
    std::uint32_t at = rng();
    for (std::int64_t c = 0; c < k; ++c) w.codes().row(r)[c] = codes[(at += 2654435761u) >> 20];
    for (std::int64_t g = 0; g < w.groups(); ++g) {
      const float part = static_cast<float>(rng() >> 8) / 16777216.0f;
      w.scales()(r, g) = s.scale == DType::bf16 && kind.book == Book::e2m1
                             ? std::ldexp(1.0f, -static_cast<int>(4 + 3 * part))
                             : round_to(s.scale, 0.01f + 0.01f * part);
      if (w.zeros().data) {
        const float zero = middle + normal(rng);
        w.zeros()(r, g) = s.zero == ZeroKind::integer
                              ? std::clamp(std::nearbyint(zero), 0.0f, static_cast<float>(s.levels() - 1))
                              : round_to(s.scale, zero);
      }
    }
  }
  return w;
}

}  // namespace qf::bench
