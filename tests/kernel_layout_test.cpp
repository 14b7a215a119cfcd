// The bytes of packed weights: the same for any number of threads, and those that docs/kernels.md describes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "qf/core/half.hpp"
#include "qf/kernel/matmul.hpp"
#include "tests/kernel_tools.hpp"

using namespace qf;
using namespace qf::kernel;
using namespace qf::kernel::test;

TEST_CASE("prepacking gives the same bytes for any number of threads") {
  Rng rng(5);
  for (Layout layout : {Layout::rows16, Layout::canonical}) {
    const QuantizedMatrix w =
        random_matrix(rng, {3, 20, ZeroKind::floating, DType::bf16, CodebookKind::none}, 130, 77);
    PackOptions options;
    options.layout = layout;
    auto one = prepack(w, options);
    int threads = 7;
    options.parallel = threads_of(threads);
    auto seven = prepack(w, options);
    REQUIRE(one.ok());
    REQUIRE(seven.ok());
    CHECK(one->buffer().size() == seven->buffer().size());
    CHECK(std::memcmp(one->buffer().data(), seven->buffer().data(), one->buffer().size()) == 0);
    CHECK(one->layout() == layout);
  }
}

// docs/kernels.md, read independently: where a code and its parameters lie in rows16.
namespace {

// The code of row r, column c of a group whose units begin at `p`.
int described_code(const std::byte* p, int width, std::int64_t r, std::int64_t c) {
  const auto byte = [&](std::int64_t line) { return std::to_integer<int>(p[64 * line + 4 * r + c % 4]); };
  const std::int64_t step = c / 4;
  switch (width) {
    case 2:
      return byte(step / 4) >> 2 * (step % 4) & 3;
    case 3: {
      const std::int64_t unit = 3 * (step / 8);
      return (byte(unit + step % 8 / 4) >> 2 * (step % 4) & 3) | (byte(unit + 2) >> step % 8 & 1) << 2;
    }
    case 4:
      return byte(step / 2) >> 4 * (step % 2) & 15;
    case 5: {
      const std::int64_t unit = 5 * (step / 8);
      return (byte(unit + step % 8 / 2) >> 4 * (step % 2) & 15) | (byte(unit + 4) >> step % 8 & 1) << 4;
    }
    case 6: {
      const std::int64_t unit = 3 * (step / 4);
      return (byte(unit + step % 4 / 2) >> 4 * (step % 2) & 15) | (byte(unit + 2) >> 2 * (step % 4) & 3) << 4;
    }
    default:
      return byte(step);
  }
}

}  // namespace

TEST_CASE("rows16 has the bytes that its description says") {
  struct Stored {
    int bits, width;
    std::int64_t group;
  };
  static constexpr Stored kCases[] = {{1, 2, 32}, {2, 2, 32}, {2, 2, 16}, {2, 4, 24}, {2, 4, 8},  {2, 8, 12},
                                      {3, 3, 32}, {3, 3, 0},  {3, 4, 24}, {3, 4, 16}, {4, 4, 32}, {4, 4, 24},
                                      {4, 8, 12}, {4, 8, 7},  {4, 4, 0},  {5, 5, 32}, {5, 6, 16}, {5, 8, 24},
                                      {5, 5, 0},  {6, 6, 48}, {6, 6, 0},  {6, 8, 8},  {7, 8, 32}, {8, 8, 24}};
  static constexpr std::int64_t kLines[] = {0, 0, 1, 3, 1, 5, 3, 0, 1},
                                kColumns[] = {0, 0, 16, 32, 8, 32, 16, 0, 4};
  Rng rng(6);
  for (const auto& [bits, width, group] : kCases)
    for (ZeroKind zero : {ZeroKind::symmetric, ZeroKind::integer}) {
      const std::int64_t n = 20, k = 106;
      INFO(bits << " bits, groups of " << group);
      const QuantizedMatrix w = random_matrix(rng, {bits, group, zero, DType::f16, CodebookKind::none}, n, k);
      auto packed = prepack(w);
      REQUIRE(packed.ok());
      REQUIRE(packed->stored_bits() == width);
      const std::byte* p = packed->buffer().data() + 64;
      const std::int64_t g_size = group ? group : k;
      for (std::int64_t block = 0; block < 2; ++block)
        for (std::int64_t first = 0, g = 0; first < k; ++g) {
          // A head of 16 + 16 halves, for two groups of scales, or for scales and zeros of one.
          const std::byte* head = p;
          p += 64;
          for (int in_chunk = 0; in_chunk < (zero == ZeroKind::symmetric ? 2 : 1) && first < k; ++in_chunk) {
            if (in_chunk) ++g;
            const std::int64_t columns = std::min(g_size, k - first);
            const std::int64_t units = (columns + kColumns[width] - 1) / kColumns[width];
            for (std::int64_t r = 0; r < 16; ++r) {
              const bool real = block * 16 + r < n;
              f16 half;
              std::memcpy(&half, head + 32 * in_chunk + 2 * r, 2);
              REQUIRE(static_cast<float>(half) == (real ? w.scales()(block * 16 + r, g) : 0.0f));
              for (std::int64_t c = 0; c < units * kColumns[width]; ++c)
                REQUIRE(described_code(p, width, r, c) ==
                        (real && c < columns ? w.codes()(block * 16 + r, first + c) : 0));
            }
            first += columns;
            p += 64 * kLines[width] * units;
          }
        }
      CHECK(p == packed->buffer().data() + packed->buffer().size());
    }
}
