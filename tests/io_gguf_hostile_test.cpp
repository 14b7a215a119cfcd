#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "qf/io/gguf.hpp"
#include "tests/gguf_bytes.hpp"

using namespace qf;
using qf::test::GgufBytes;

namespace {

struct Hostile {
  const char* name;
  std::function<void(GgufBytes&)> build;
  const char* error;
};

std::string raw_string(std::uint64_t announced, std::string_view text) {
  std::string raw;
  GgufBytes::put(raw, announced);
  raw += text;
  return raw;
}
std::string raw_array(std::uint32_t element, std::uint64_t count, std::string_view text = "") {
  std::string raw;
  GgufBytes::put(raw, element);
  GgufBytes::put(raw, count);
  raw += text;
  return raw;
}
using std::string_view;
constexpr auto kLong = [](std::size_t n) { return std::string(n, 'n'); };

const Hostile kHostile[] = {
    {"no magic", [](auto& g) { g.magic = "GGML"; }, "m: not a GGUF file: it begins with 'GGML'"},
    {"version 1", [](auto& g) { g.version = 1; }, "m: GGUF version 1, expected 2 or 3"},
    {"version 4", [](auto& g) { g.version = 4; }, "m: GGUF version 4, expected 2 or 3"},
    {"version 0", [](auto& g) { g.version = 0; }, "m: GGUF version 0, expected 2 or 3"},
    {"big-endian", [](auto& g) { g.version = 0x03000000; },
     "m: a big-endian GGUF file, which isn't supported"},
    {"-1 tensors", [](auto& g) { g.more_tensors = -1; },
     "m: -1 tensors announced, a file of 32 bytes holds at most 0"},
    {"2^40 tensors", [](auto& g) { g.more_tensors = std::int64_t{1} << 40; },
     "m: 1099511627776 tensors announced, a file of 32 bytes holds at most 0"},
    {"-1 keys", [](auto& g) { g.more_keys = -1; },
     "m: -1 keys announced, a file of 32 bytes holds at most 0"},
    {"2^62 keys", [](auto& g) { g.more_keys = std::int64_t{1} << 62; },
     "m: 4611686018427387904 keys announced, a file of 32 bytes holds at most 0"},
    {"a key too many", [](auto& g) { g.u32("a", 1), g.more_keys = 1; }, "m: key 1: the name is empty"},
    {"empty key", [](auto& g) { g.u32("", 1); }, "m: key 0: the name is empty"},
    {"key of 70000 bytes", [](auto& g) { g.u32(kLong(70000), 1); },
     "m: key 0: a name of 70000 bytes, expected at most 65535"},
    {"key that isn't UTF-8", [](auto& g) { g.u32("a\xff", 1); }, "m: key 0: the name 'a\\xff' is not UTF-8"},
    {"key with a surrogate", [](auto& g) { g.u32("\xed\xa0\x80", 1); },
     "m: key 0: the name '\\xed\\xa0\\x80' is not UTF-8"},
    {"key twice", [](auto& g) { g.u32("a", 1), g.u32("b", 1), g.u32("a", 2); },
     "m: the key 'a' stands twice"},
    {"value type 13", [](auto& g) { g.key("a", 13, 1); }, "m: key 'a': value type 13, expected 0 to 12"},
    {"value type -1", [](auto& g) { g.key("a", 0xffffffffu, 1); },
     "m: key 'a': value type 4294967295, expected 0 to 12"},
    {"bool of 2", [](auto& g) { g.key("a", 7, std::uint8_t{2}); },
     "m: key 'a': a boolean of 2, expected 0 or 1"},
    {"array with a bool of 255", [](auto& g) { g.key("a", 9, string_view(raw_array(7, 2, "\x01\xff"))); },
     "m: key 'a': a boolean of 255, expected 0 or 1"},
    {"string of 2^63 bytes",
     [](auto& g) { g.key("a", 8, string_view(raw_string(std::uint64_t{1} << 63, "x"))); },
     "m: key 'a': a string of 9223372036854775808 bytes, 19 left in the file"},
    {"array of 2^62 strings",
     [](auto& g) { g.key("a", 9, string_view(raw_array(8, std::uint64_t{1} << 62))); },
     "m: key 'a': an array of 4611686018427387904 elements of type string, 15 bytes left in the file"},
    {"array of 2^61 numbers of 8 bytes",
     [](auto& g) { g.key("a", 9, string_view(raw_array(10, std::uint64_t{1} << 61))); },
     "m: key 'a': an array of 2305843009213693952 elements of type u64, 15 bytes left in the file"},
    {"array whose last string is cut",
     [](auto& g) { g.key("a", 9, string_view(raw_array(8, 1, raw_string(99, "xy")))); },
     "m: key 'a': a string of 99 bytes, 7 left in the file"},
    {"array of arrays", [](auto& g) { g.key("a", 9, string_view(raw_array(9, 1, raw_array(4, 0)))); },
     "m: key 'a': an array of arrays, which isn't supported"},
    {"alignment 0", [](auto& g) { g.u32("general.alignment", 0); },
     "m: key 'general.alignment': 0, expected a power of two up to 1048576"},
    {"alignment 24", [](auto& g) { g.u32("general.alignment", 24); },
     "m: key 'general.alignment': 24, expected a power of two up to 1048576"},
    {"alignment 2^31", [](auto& g) { g.u32("general.alignment", 0x80000000u); },
     "m: key 'general.alignment': 2147483648, expected a power of two up to 1048576"},
    {"alignment as u64", [](auto& g) { g.key("general.alignment", 10, std::uint64_t{32}); },
     "m: key 'general.alignment': a value of type u64, expected u32"},
    {"empty tensor name", [](auto& g) { g.floats("", {1}, {1}); }, "m: tensor 0: the name is empty"},
    {"tensor name of 65 bytes", [](auto& g) { g.floats(kLong(65), {1}, {1}); },
     "m: tensor 0: a name of 65 bytes, expected at most 64"},
    {"tensor name with NUL", [](auto& g) { g.floats(string_view("a\0b", 3), {1}, {1}); },
     "m: tensor 0: the name 'a\\x00b' is not UTF-8 text"},
    {"tensor twice", [](auto& g) { g.floats("a", {1}, {1}), g.floats("a", {1}, {1}); },
     "m: the tensor 'a' stands twice"},
    {"5 dimensions",
     [](auto& g) {
       g.floats("a", {1, 1, 1, 1, 1}, {1});
     },
     "m: tensor 'a': 5 dimensions, expected at most 4"},
    {"negative dimension",
     [](auto& g) {
       g.floats("a", {4, -1}, {1});
     },
     "m: tensor 'a': dimension 1 is -1"},
    {"product beyond 2^63",
     [](auto& g) {
       g.floats("a", {std::int64_t{1} << 32, std::int64_t{1} << 32}, {1});
     },
     "m: tensor 'a': the product of its dimensions is beyond 2^63"},
    {"product beyond 2^63 behind a zero",
     [](auto& g) {
       g.floats("a", {0, std::int64_t{1} << 62, std::int64_t{1} << 62}, {1});
     },
     "m: tensor 'a': the product of its dimensions is beyond 2^63"},
    {"bytes beyond 2^64", [](auto& g) { g.info("a", {std::int64_t{1} << 62}, 28, 0); },
     "m: tensor 'a': its size in bytes is beyond 2^64"},
    {"type 43", [](auto& g) { g.info("a", {32}, 43, 0); }, "m: tensor 'a': type 43 is not known"},
    {"type -1", [](auto& g) { g.info("a", {32}, -1, 0); }, "m: tensor 'a': type -1 is not known"},
    {"removed type 4", [](auto& g) { g.info("a", {32}, 4, 0); },
     "m: tensor 'a': type 4 (Q4_2) was removed from the format; the file must be made anew from its source"},
    {"removed type 36", [](auto& g) { g.info("a", {32}, 36, 0); },
     "m: tensor 'a': type 36 (IQ4_NL_4_4) was removed from the format; the file must be made anew from its "
     "source"},
    {"type 42", [](auto& g) { g.info("a", {32}, 42, 0); }, "m: tensor 'a': type 42 (Q2_0) is not supported"},
    {"Q4_0 with 33 columns", [](auto& g) { g.info("a", {33}, 2, 0); },
     "m: tensor 'a': rows of 33 elements, expected a multiple of 32 for Q4_0"},
    {"offset off the alignment", [](auto& g) { g.info("a", {1}, 0, 4), g.data(64); },
     "m: tensor 'a': offset 4, expected a multiple of 32"},
    {"gap", [](auto& g) { g.floats("a", {1}, {1}), g.info("b", {1}, 0, 64), g.data(96); },
     "m: tensor 'b': offset 64 leaves a gap, expected 32"},
    {"overlap", [](auto& g) { g.floats("a", {1}, {1}), g.info("b", {1}, 0, 0), g.data(96); },
     "m: tensor 'b': offset 0 overlaps what comes before it, expected 32"},
    {"beyond the end", [](auto& g) { g.info("a", {100}, 0, 0), g.data(399); },
     "m: tensor 'a': 400 bytes at 0 of the data, which end beyond the file of 463 bytes (a truncated "
     "download?)"},
    {"header only", [](auto& g) { g.info("a", {1 << 20}, 0, 0); },
     "m: tensor 'a': 4194304 bytes at 0 of the data, which end beyond the file of 64 bytes (a truncated "
     "download?)"},
    {"offset 2^64 - 32", [](auto& g) { g.info("a", {0}, 0, ~std::uint64_t{31}); },
     "m: tensor 'a': offset 18446744073709551584 leaves a gap, expected 0"},
};

}  // namespace

TEST_CASE("gguf: hostile files are refused with the reason") {
  for (const Hostile& h : kHostile) {
    GgufBytes g;
    h.build(g);
    const auto bytes = g.bytes();
    auto parsed = io::parse_gguf(bytes, "m");
    INFO(h.name);
    REQUIRE(!parsed.ok());
    REQUIRE(parsed.status().text() == h.error);
  }
}

TEST_CASE("gguf: every truncation of a good file is refused or reads what it holds") {
  GgufBytes g;
  g.text("general.architecture", "llama");
  g.texts("tokens", {"a", "bc", ""});
  g.numbers<float>("scores", 6, {1, 2, 3});
  g.floats("a", {3, 2}, {1, 2, 3, 4, 5, 6});
  g.floats("b", {1}, {7});
  const auto bytes = g.bytes();
  REQUIRE(io::parse_gguf(bytes, "m").status().text() == "");
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    auto part = io::parse_gguf(std::span(bytes).first(n), "m");
    // Padding after the last tensor may be missing.
    REQUIRE(part.ok() == (n >= bytes.size() - 28));
    if (!part.ok()) REQUIRE(part.status().code() == Errc::bad_format);
  }
}

TEST_CASE("gguf: every flipped bit of a good file is an error or a file that can be read") {
  GgufBytes g;
  g.text("general.architecture", "llama");
  g.texts("tokens", {"a", "bc", ""});
  g.key("flag", 7, std::uint8_t{1});
  g.floats("a", {3, 2}, {1, 2, 3, 4, 5, 6});
  g.tensor("b", {32}, 8, std::vector<std::byte>(34, std::byte{5}));
  auto bytes = g.bytes();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    if (auto parsed = io::parse_gguf(bytes, "m"); parsed.ok()) {
      std::vector<float> out;
      for (const io::TensorInfo& info : (*parsed)->tensors()) {
        out.resize(info.elements);
        (void)(*parsed)->read_f32(info, 0, out);
      }
    } else {
      REQUIRE(parsed.status().text().starts_with("m: "));
    }
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST_CASE("gguf: version 2, other alignments, empty and zero-sized tensors are read") {
  GgufBytes g;
  g.version = 2;
  g.alignment = 64;
  g.u32("general.alignment", 64);
  g.floats("none", {0, 5}, {});
  g.floats("scalar", {}, {3});
  g.floats("last", {2}, {1, 2});
  const auto bytes = g.bytes();
  auto parsed = io::parse_gguf(bytes, "m");
  REQUIRE(parsed.status().text() == "");
  REQUIRE((*parsed)->alignment() == 64);
  REQUIRE((*parsed)->tensors()[0].shape == std::vector<std::int64_t>{5, 0});
  float out[2];
  REQUIRE((*parsed)->read_f32((*parsed)->tensors()[2], 0, out).ok());
  REQUIRE(out[1] == 2);
}
