#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "qf/core/buffer.hpp"
#include "qf/core/dtype.hpp"
#include "qf/core/json.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/result.hpp"

using namespace qf;

namespace {
float from_bits(std::uint32_t u) {
  return std::bit_cast<float>(u);
}

// Nearest code by trying them all: slow, and written without a look at the conversion it judges.
template <class Small>
std::uint8_t nearest(float x, int codes, int top) {
  int best = -1;
  double best_distance = std::numeric_limits<double>::infinity();
  for (int c = 0; c <= top; ++c) {
    Small s;
    s.bits = static_cast<std::uint8_t>(c);
    const double distance =
        std::abs(std::abs(static_cast<double>(x)) - static_cast<double>(static_cast<float>(s)));
    if (distance < best_distance || (distance == best_distance && c % 2 == 0))
      best = c, best_distance = distance;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? codes : 0));
}
}  // namespace

TEST_CASE("half types: every code survives a round trip") {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    f16 h;
    h.bits = static_cast<std::uint16_t>(i);
    bf16 b;
    b.bits = static_cast<std::uint16_t>(i);
    if (!std::isnan(static_cast<float>(h))) REQUIRE(f16(static_cast<float>(h)).bits == i);
    if (!std::isnan(static_cast<float>(b))) REQUIRE(bf16(static_cast<float>(b)).bits == i);
  }
  for (int i = 0; i < 256; ++i) {
    f8e4m3 a;
    a.bits = static_cast<std::uint8_t>(i);
    f8e5m2 b;
    b.bits = static_cast<std::uint8_t>(i);
    e8m0 s;
    s.bits = static_cast<std::uint8_t>(i);
    if (!std::isnan(static_cast<float>(a))) REQUIRE(f8e4m3(static_cast<float>(a)).bits == i);
    if (!std::isnan(static_cast<float>(b))) REQUIRE(f8e5m2(static_cast<float>(b)).bits == i);
    if (i < 255) REQUIRE(e8m0(static_cast<float>(s)).bits == i);
    if (i < 16) {
      f4e2m1 f;
      f.bits = static_cast<std::uint8_t>(i);
      REQUIRE(f4e2m1(static_cast<float>(f)).bits == i);
    }
  }
}

TEST_CASE("half types: rounding is to the nearest, ties to even, saturating where the format says") {
  std::uint32_t u = 12345;
  for (int i = 0; i < 20000; ++i) {
    u = u * 1664525u + 1013904223u;
    const float x = from_bits((u & 0x80000000u) | (0x3a000000u + (u >> 4) % 0x0b000000u));  // 2^-11 to 2^11
    REQUIRE(static_cast<int>(f4e2m1(x).bits) == nearest<f4e2m1>(x, 8, 7));
    REQUIRE(static_cast<int>(f8e4m3(x).bits) == nearest<f8e4m3>(x, 128, 0x7e));
  }
  REQUIRE(f16(65519.f).bits == 0x7bff);
  REQUIRE(f16(65520.f).bits == 0x7c00);
  REQUIRE(f16(5.9604645e-8f).bits == 1);
  REQUIRE(f16(2.9802322e-8f).bits == 0);  // half of the smallest: tie to even
  REQUIRE(f16(2.9802326e-8f).bits == 1);
  REQUIRE(std::isnan(static_cast<float>(f16(std::nanf("")))));
  REQUIRE(f8e4m3(1e9f).bits == 0x7e);
  REQUIRE(f8e5m2(1e9f).bits == 0x7c);
  REQUIRE(static_cast<float>(f8e4m3(448.f)) == 448.f);
}

TEST_CASE("dtype: names and sizes come from one table") {
  REQUIRE(dtype_from_name("BF16") == DType::bf16);
  REQUIRE(dtype_name(DType::f8e4m3) == "F8_E4M3");
  REQUIRE(!dtype_from_name("bf16"));
  REQUIRE(dtype_bits(DType::f4e2m1) == 4);
}

TEST_CASE("result: values, errors, places") {
  auto divide = [](int a, int b) -> Result<int> {
    if (b == 0) return Status(Errc::invalid_argument, "division by zero");
    return a / b;
  };
  auto twice = [&](int a, int b) -> Result<int> {
    QF_TRY_ASSIGN(int q, divide(a, b));
    return 2 * q;
  };
  REQUIRE(*twice(6, 3) == 4);
  REQUIRE(twice(1, 0).status().code() == Errc::invalid_argument);
  REQUIRE(twice(1, 0).status().at("line 3").text() == "line 3: division by zero");
  REQUIRE_THROWS_AS(twice(1, 0).value(), Error);
  Result<std::unique_ptr<int>> moved = std::make_unique<int>(3);
  Result<std::unique_ptr<int>> target = std::move(moved);
  REQUIRE(**target == 3);
  REQUIRE(printable(std::string_view("a\0\xff", 3)) == "'a\\x00\\xff'");
}

TEST_CASE("array: aligned, zeroed, and out of memory is a Status") {
  auto a = Array<float>::make(1000);
  REQUIRE(a.ok());
  REQUIRE(reinterpret_cast<std::uintptr_t>(a->data()) % kBufferAlignment == 0);
  REQUIRE((*a)[999] == 0);
  const Allocator failing{[](void*, std::size_t, std::size_t) -> void* { return nullptr; },
                          [](void*, void*, std::size_t) {}, nullptr};
  REQUIRE(Array<float>::make(1, failing).status().code() == Errc::out_of_memory);
  REQUIRE(Array<float>::make(std::numeric_limits<std::size_t>::max() / 2).status().code() ==
          Errc::out_of_memory);
  REQUIRE(Array<float>::make(0).ok());
}

TEST_CASE("json: what the parser lets through and we refuse") {
  REQUIRE(parse_json("{\"a\": [1, 2.5, \"x\"]}", "f").ok());
  auto text = [](std::string_view json) { return parse_json(json, "f.json").status().text(); };
  REQUIRE(text("{\"a\":1,\"a\":2}") == "f.json: the key 'a' stands twice in one object");
  REQUIRE(text(std::string(3000, '[')) == "f.json: JSON nested deeper than 64");
  REQUIRE(text("{\"a\":1} x").find("f.json: not valid JSON") == 0);
  REQUIRE(text("{\"a\":\"\xff\"}").find("f.json: not valid JSON") == 0);
  REQUIRE(text("").find("f.json: not valid JSON") == 0);
  REQUIRE(parse_json("[1,2,3]", "f", {.bytes = 3}).status().code() == Errc::bad_format);
}

TEST_CASE("parallel_for: every index once, for any number of threads") {
  for (int threads : {1, 2, 7}) {
    ThreadPool pool(threads);
    std::vector<int> hits(1000, 0);
    parallel_for(pool.parallel_for(), 1000, [&](std::int64_t i) { ++hits[static_cast<std::size_t>(i)]; });
    REQUIRE(hits == std::vector<int>(1000, 1));
  }
  int calls = 0;
  parallel_for({}, 3, [&](std::int64_t) { ++calls; });
  parallel_for({}, 0, [&](std::int64_t) { ++calls; });
  REQUIRE(calls == 3);
}
