// Packed buffers from files and the arguments of matmul: what is refused, and with which words; memory for weights.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>

#include "qf/kernel/matmul.hpp"
#include "tests/kernel_tools.hpp"

using namespace qf;
using namespace qf::kernel;
using namespace qf::kernel::test;

namespace {

Array<std::byte> copy_of(std::span<const std::byte> from) {
  Array<std::byte> copy = Array<std::byte>::make(from.size()).value();
  std::memcpy(copy.data(), from.data(), from.size());
  return copy;
}

template <class T>
Array<std::byte> with(const PackedWeight& w, std::size_t offset, T value) {
  Array<std::byte> copy = copy_of(w.buffer());
  std::memcpy(copy.data() + offset, &value, sizeof value);
  return copy;
}

std::string refused(Array<std::byte> buffer) {
  auto made = PackedWeight::from_buffer(std::move(buffer), "w.bin");
  if (made.ok()) return "accepted";
  CHECK(made.status().code() == Errc::bad_format);
  return made.status().text();
}

}  // namespace

TEST_CASE("a packed buffer from a file is believed only when every field fits") {
  Rng rng(7);
  const QuantizedMatrix w =
      random_matrix(rng, {4, 32, ZeroKind::integer, DType::f16, CodebookKind::none}, 33, 70);
  auto made = prepack(w);
  REQUIRE(made.ok());
  const PackedWeight& p = *made;
  CHECK(refused(copy_of(p.buffer())) == "accepted");
  CHECK(refused({}) == "w.bin: size 0, expected 64 or more bytes");
  CHECK(refused(copy_of(p.buffer().first(63))) == "w.bin: size 63, expected 64 or more bytes");
  CHECK(refused(copy_of(p.buffer().first(64))) == "w.bin: size 64, expected 2368 bytes");
  CHECK(refused(with(p, offsetof(PackedHeader, magic), 1)) == "w.bin: magic 1, expected 1464878673");
  CHECK(refused(with(p, offsetof(PackedHeader, version), std::int16_t{2})) == "w.bin: version 2, expected 1");
  CHECK(refused(with(p, offsetof(PackedHeader, layout), std::int16_t{2})) ==
        "w.bin: layout 2, expected 0 or 1");
  CHECK(refused(with(p, offsetof(PackedHeader, layout), std::int16_t{0})).find("w.bin: params_offset 0") ==
        0);
  CHECK(refused(with(p, offsetof(PackedHeader, bits), std::uint8_t{9})) == "w.bin: bits 9, expected 1 to 8");
  CHECK(refused(with(p, offsetof(PackedHeader, bits), std::uint8_t{0})) == "w.bin: bits 0, expected 1 to 8");
  CHECK(refused(with(p, offsetof(PackedHeader, bits), std::uint8_t{8})).find("w.bin: size_bytes") == 0);
  CHECK(refused(with(p, offsetof(PackedHeader, zero), std::uint8_t{3})) ==
        "w.bin: zero kind 3, expected 0 to 2");
  CHECK(refused(with(p, offsetof(PackedHeader, scale), std::uint8_t{200})) ==
        "w.bin: scales of type ?, expected F16, BF16 or F32");
  CHECK(refused(with(p, offsetof(PackedHeader, codebook), std::uint8_t{3})) ==
        "w.bin: codebook kind 3, expected 0 to 2");
  CHECK(refused(with(p, offsetof(PackedHeader, codebook), std::uint8_t{1})).find("w.bin: params_offset 0") ==
        0);
  CHECK(refused(with(p, offsetof(PackedHeader, has_group_of), std::uint8_t{2})) ==
        "w.bin: has_group_of 2, expected 0 or 1");
  CHECK(refused(with(p, offsetof(PackedHeader, reserved), std::uint8_t{1})) ==
        "w.bin: reserved byte 1, expected 0");
  CHECK(refused(with(p, offsetof(PackedHeader, group), std::int64_t{-1})) ==
        "w.bin: group -1, expected 1 or more, or 0 for the whole row");
  CHECK(refused(with(p, offsetof(PackedHeader, n), std::int64_t{-1})) == "w.bin: a packed weight of -1 x 70");
  for (std::int64_t huge : {INT64_MAX, INT64_MAX / 70, std::int64_t{1} << 47, std::int64_t{1} << 40}) {
    CHECK(refused(with(p, offsetof(PackedHeader, n), huge)).find("w.bin: ") == 0);
    CHECK(refused(with(p, offsetof(PackedHeader, k), huge)).find("w.bin: ") == 0);
    CHECK(refused(with(p, offsetof(PackedHeader, codes_offset), huge)).find("w.bin: codes_offset") == 0);
    CHECK(refused(with(p, offsetof(PackedHeader, params_offset), huge)).find("w.bin: params_offset") == 0);
    CHECK(refused(with(p, offsetof(PackedHeader, size_bytes), huge)).find("w.bin: size_bytes") == 0);
  }
  CHECK(refused(with(p, offsetof(PackedHeader, n), std::int64_t{49})).find("w.bin: size_bytes") == 0);

  // The canonical kernel follows codes into the codebook and columns to groups.
  QuantizedMatrix book =
      random_matrix(rng, {3, 8, ZeroKind::symmetric, DType::f32, CodebookKind::per_row}, 5, 16);
  REQUIRE(book.set_group_of(std::vector<std::int32_t>(16, 1)).ok());  // not what rows16 holds
  auto canonical = prepack(book);
  REQUIRE(canonical.ok());
  CHECK(canonical->layout() == Layout::canonical);
  CHECK(refused(copy_of(canonical->buffer())) == "accepted");
  CHECK(refused(with(*canonical, 64 + 16 + 3, std::uint8_t{8})) ==
        "w.bin: code 8 at row 1, column 3, expected below 8");
  PackedHeader h;
  std::memcpy(&h, canonical->buffer().data(), sizeof h);
  const auto indices = static_cast<std::size_t>(h.params_offset) + 4 * (5 * 2 + 5 * 8);
  CHECK(refused(with(*canonical, indices + 4 * 7, std::int32_t{2})) ==
        "w.bin: group index 2 of column 7, expected 0 to 1");
  CHECK(refused(with(*canonical, indices, std::int32_t{-1})) ==
        "w.bin: group index -1 of column 0, expected 0 to 1");
}

TEST_CASE("any single changed byte of a header is refused or gives a weight that is safe to use") {
  Rng rng(8);
  const QuantizedMatrix w =
      random_matrix(rng, {4, 32, ZeroKind::integer, DType::f16, CodebookKind::none}, 17, 40);
  auto p = prepack(w);
  REQUIRE(p.ok());
  for (std::size_t at = 0; at < sizeof(PackedHeader); ++at)
    for (int value = 0; value < 256; value += at < 20 ? 1 : 17) {
      auto made = PackedWeight::from_buffer(with(*p, at, static_cast<std::uint8_t>(value)), "w.bin");
      if (!made.ok() || made->k() > 4096 || made->n() > 4096) continue;
      std::vector<float> x(static_cast<std::size_t>(made->k())), y(static_cast<std::size_t>(made->n()));
      CHECK(matmul({x.data(), {1, made->k()}}, *made, {y.data(), {1, made->n()}}).ok());
    }
}

TEST_CASE("matmul names what is wrong with its arguments") {
  Rng rng(9);
  const QuantizedMatrix w =
      random_matrix(rng, {4, 32, ZeroKind::symmetric, DType::f16, CodebookKind::none}, 20, 64);
  auto packed = prepack(w);
  REQUIRE(packed.ok());
  std::vector<float> x(3 * 64), y(3 * 20), bias(20);
  const auto text = [&](MatrixView<const float> xs, MatrixView<float> ys, std::span<const float> b = {},
                        const MatmulOptions& options = {}) {
    return matmul(xs, *packed, ys, b, options).text();
  };
  const float* x0 = x.data();
  CHECK(text({x0, {3, 64}}, {y.data(), {3, 20}}, bias) == "");
  CHECK(text({x0, {3, 63}}, {y.data(), {3, 20}}) ==
        "matmul: x [3, 63], w [20, 64], y [3, 20]; expected x [m, k], w [n, k], y [m, n]");
  CHECK(text({x0, {3, 64}}, {y.data(), {2, 20}}) != "");
  CHECK(text({x0, {3, 64}}, {y.data(), {3, 20}}, std::span<const float>(bias).first(19)) ==
        "matmul: bias of 19, expected 20 or none");
  CHECK(text({nullptr, {3, 64}}, {y.data(), {3, 20}}) == "matmul: x has no data");
  CHECK(text({x0, {3, 64}, {64, 2}}, {y.data(), {3, 20}}) ==
        "matmul: strides of x [64, 2], expected [64 or more, 1]");
  CHECK(text({x0, {3, 64}}, {y.data(), {3, 20}, {19, 1}}) ==
        "matmul: strides of y [19, 1], expected [20 or more, 1]");
  MatmulOptions options;
  options.kernel = find_kernel("gemm_f32_canonical");
  REQUIRE(options.kernel);
  CHECK(
      text({x0, {3, 64}}, {y.data(), {3, 20}}, {}, options) ==
      "kernel gemm_f32_canonical doesn't fit: it reads canonical of any bits, and the weight is rows16 of 4");
  options.kernel = find_kernel("gemv_f32_scalar");
  REQUIRE(options.kernel);
  CHECK(text({x0, {3, 64}}, {y.data(), {3, 20}}, {}, options) ==
        "kernel gemv_f32_scalar doesn't fit: 3 rows of x, it takes 1 to 1");
  CHECK(find_kernel("gemv") == nullptr);
  auto indexed =
      prepack(random_matrix(rng, {4, 32, ZeroKind::symmetric, DType::f16, CodebookKind::per_row}, 20, 64));
  REQUIRE(indexed.ok());
  options.kernel = find_kernel("gemv_i24_scalar");
  REQUIRE(options.kernel);
  CHECK(choose_kernel(*indexed, 1, options).status().text() ==
        "kernel gemv_i24_scalar doesn't fit: it doesn't read the weight's kind of codebook");

  static const Allocator kNone{[](void*, std::size_t, std::size_t) -> void* { return nullptr; },
                               [](void*, void*, std::size_t) {}, nullptr};
  MatmulOptions starved;
  starved.allocator = &kNone;
  CHECK(matmul({x0, {3, 64}}, *packed, {y.data(), {3, 20}}, {}, starved).code() == Errc::out_of_memory);
  PackOptions pack;
  pack.allocator = &kNone;
  CHECK(prepack(w, pack).status().code() == Errc::out_of_memory);
}

TEST_CASE("empty shapes are fine") {
  Rng rng(10);
  const Scheme s{4, 32, ZeroKind::integer, DType::f16, CodebookKind::none};
  std::vector<float> bias{1, 2, 3}, y(6, 9.0f);
  auto no_k = prepack(random_matrix(rng, s, 3, 0));
  REQUIRE(no_k.ok());
  CHECK(matmul({bias.data(), {2, 0}}, *no_k, {y.data(), {2, 3}}, bias).ok());
  CHECK(y == std::vector<float>{1, 2, 3, 1, 2, 3});
  auto no_n = prepack(random_matrix(rng, s, 0, 8));
  REQUIRE(no_n.ok());
  CHECK(matmul({y.data(), {0, 8}}, *no_n, {y.data(), {0, 0}}).ok());
  const PackedWeight none;
  CHECK(none.n() == 0);
}

TEST_CASE("memory of weights: apart, aligned and given back, from many threads") {
  const Allocator& from = weight_allocator();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 rng(static_cast<unsigned>(t));
      std::vector<std::pair<unsigned char*, std::size_t>> blocks;
      const auto release = [&](std::size_t i) {
        for (std::size_t b : {std::size_t{0}, blocks[i].second - 1})
          if (blocks[i].first[b] != static_cast<unsigned char>(t + 1)) ++wrong;
        from.release(from.user, blocks[i].first, blocks[i].second);
        blocks[i] = blocks.back();
        blocks.pop_back();
      };
      for (int i = 0; i < 400; ++i) {
        const std::size_t bytes = i % 50 == 0 ? std::size_t{3} << 20 : 1 + rng() % 300000;
        auto* block = static_cast<unsigned char*>(from.allocate(from.user, bytes, kBufferAlignment));
        if (!block || reinterpret_cast<std::uintptr_t>(block) % kBufferAlignment) {
          ++wrong;
          continue;
        }
        block[0] = block[bytes - 1] = static_cast<unsigned char>(t + 1);
        blocks.emplace_back(block, bytes);
        if (blocks.size() > 30) release(rng() % blocks.size());
      }
      while (!blocks.empty()) release(blocks.size() - 1);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
