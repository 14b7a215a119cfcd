#include <unistd.h>

#include <catch2/catch.hpp>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "qf/format/gguf_encode.hpp"
#include "qf/io/gguf.hpp"
#include "qf/io/gguf_writer.hpp"
#include "tests/gguf_bytes.hpp"

using namespace qf;
using qf::test::GgufBytes;

namespace {

std::string golden(const char* name) {
  return std::string(QF_GOLDEN "/gguf/") + name;
}

std::vector<float> read_all(const io::GgufFile& f, const std::string& name) {
  const io::TensorInfo* info = f.find(name);
  INFO(name);
  REQUIRE(info);
  std::vector<float> out(info->elements);
  REQUIRE(f.read_f32(*info, 0, out).text() == "");
  return out;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

const char* kDecoded[] = {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0",   "iq4_nl", "mxfp4", "q2_k",
                          "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs", "f16",    "bf16"};

}  // namespace

TEST_CASE("gguf: every block type decodes to the reference's bits") {
  auto file = io::open_gguf(golden("blocks.gguf"));
  REQUIRE(file.status().text() == "");
  for (const char* type : kDecoded) {
    const std::string name = std::string(type) + ".blocks";
    INFO(type);
    const auto values = read_all(**file, name), expected = read_all(**file, std::string(type) + ".f32");
    REQUIRE(same_bits(values, expected));
    // Ranges that cut blocks give the same elements.
    const io::TensorInfo& info = *(*file)->find(name);
    std::vector<float> part(values.size() - 1 - values.size() / 3);
    REQUIRE((*file)->read_f32(info, values.size() / 3, part).ok());
    REQUIRE(same_bits(part, std::span(values).subspan(values.size() / 3, part.size())));
  }
}

TEST_CASE("gguf: rows are encoded to the reference's bytes") {
  auto file = io::open_gguf(golden("blocks.gguf"));
  REQUIRE(file.ok());
  const auto rows = read_all(**file, "encode.f32");
  for (gguf::Type type : {gguf::Type::f32, gguf::Type::f16, gguf::Type::bf16, gguf::Type::q4_0,
                          gguf::Type::q4_1, gguf::Type::q8_0}) {
    std::string name = "encode.";
    for (char c : gguf::traits(type).name) name += static_cast<char>(std::tolower(c));
    const auto expected = (*file)->bytes(*(*file)->find(name));
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(gguf::row_bytes(type, static_cast<std::int64_t>(rows.size()))));
    REQUIRE(gguf::encode_row(type, rows, bytes.data()).ok());
    REQUIRE(bytes.size() == expected.size());
    std::size_t different = 0, first = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != expected[i] && different++ == 0) first = i;
    INFO(name << ": first different byte " << first);
    REQUIRE(different == 0);
  }
}

TEST_CASE("gguf: what can't be encoded is named") {
  std::vector<float> row(32, 1.f);
  std::vector<std::byte> out(128);
  auto text = [&](gguf::Type type) { return gguf::encode_row(type, row, out.data()).text(); };
  REQUIRE(text(gguf::Type::q4_k) == "writing type Q4_K, expected F32, F16, BF16, Q4_0, Q4_1 or Q8_0");
  row[3] = std::nanf("");
  REQUIRE(text(gguf::Type::q8_0) == "element 3 is NaN, which Q8_0 can't hold");
  REQUIRE(text(gguf::Type::f16) == "");
  row[3] = -std::numeric_limits<float>::infinity();
  REQUIRE(text(gguf::Type::q4_1) == "element 3 is infinite, which Q4_1 can't hold");
  row[3] = 1e7f;
  REQUIRE(text(gguf::Type::q4_0) == "elements 0 to 31: too large for a scale of type F16");
  REQUIRE(text(gguf::Type::f16) == "element 3 is beyond 65504, too large for F16");
  row.resize(33);
  REQUIRE(text(gguf::Type::q4_0) == "a row of 33 elements, expected a multiple of 32 for Q4_0");
  // A scale whose inverse isn't finite: the reference's codes are undefined, the value is zero either way.
  row.assign(32, 1e-40f);
  REQUIRE(text(gguf::Type::q4_0) == "");
  REQUIRE(text(gguf::Type::q8_0) == "");
}

TEST_CASE("gguf: the canonical form maps to Q4_0 and Q8_0 and back without a change") {
  for (int bits : {4, 8}) {
    auto w = QuantizedMatrix::make({.bits = bits, .group = 32, .zero = ZeroKind::symmetric}, 3, 96);
    REQUIRE(w.ok());
    std::uint32_t seed = 7;
    for (std::int64_t r = 0; r < 3; ++r) {
      for (std::int64_t c = 0; c < 96; ++c)
        w->codes()(r, c) = static_cast<std::uint8_t>((seed = seed * 1664525u + 1013904223u) >> (32 - bits));
      for (std::int64_t g = 0; g < 3; ++g) w->scales()(r, g) = f16(0.01f * static_cast<float>(1 + r * 3 + g));
    }
    w->codes()(0, 0) = 0;  // -8 and -128
    const auto type = gguf::exact_type(*w);
    REQUIRE(type == (bits == 4 ? gguf::Type::q4_0 : gguf::Type::q8_0));
    GgufBytes file;
    const auto row_bytes = static_cast<std::size_t>(gguf::row_bytes(*type, 96));
    std::vector<std::byte> blocks(3 * row_bytes);
    for (std::int64_t r = 0; r < 3; ++r)
      REQUIRE(
          gguf::encode_quantized_row(*w, r, *type, blocks.data() + static_cast<std::size_t>(r) * row_bytes)
              .ok());
    file.tensor("w", {96, 3}, static_cast<std::int32_t>(*type), blocks);
    const auto bytes = file.bytes();
    auto parsed = io::parse_gguf(bytes, "m");
    REQUIRE(parsed.status().text() == "");
    const auto values = read_all(**parsed, "w");
    std::vector<float> expected(96);
    auto back = QuantizedMatrix::make(w->scheme(), 3, 96);
    for (std::int64_t r = 0; r < 3; ++r) {
      w->dequantize_row(r, expected.data());
      REQUIRE(same_bits(std::span(values).subspan(static_cast<std::size_t>(r) * 96, 96), expected));
      REQUIRE(
          gguf::decode_quantized_row(*type, blocks.data() + static_cast<std::size_t>(r) * row_bytes, *back, r)
              .ok());
    }
    REQUIRE(std::memcmp(back->codes().data, w->codes().data, 3 * 96) == 0);
    REQUIRE(std::memcmp(back->scales().data, w->scales().data, 9 * sizeof(float)) == 0);
  }
}

TEST_CASE("gguf: asymmetric groups map to Q4_1 with the minimum rounded once") {
  auto w = QuantizedMatrix::make({.bits = 4, .group = 32, .zero = ZeroKind::integer}, 1, 64);
  for (std::int64_t c = 0; c < 64; ++c) w->codes()(0, c) = static_cast<std::uint8_t>(c % 16);
  for (std::int64_t g = 0; g < 2; ++g) w->scales()(0, g) = f16(0.0123f), w->zeros()(0, g) = 7;
  REQUIRE(!gguf::exact_type(*w));
  std::vector<std::byte> blocks(40);
  REQUIRE(gguf::encode_quantized_row(*w, 0, gguf::Type::q4_0, blocks.data()).text() ==
          "a matrix of scheme w4g32 asymmetric f16 doesn't map to Q4_0");
  float error = 0;
  REQUIRE(gguf::encode_quantized_row(*w, 0, gguf::Type::q4_1, blocks.data(), &error).ok());
  const float scale = f16(0.0123f), minimum = -7 * scale;
  REQUIRE(error == std::abs(static_cast<float>(f16(minimum)) - minimum));
  gguf::BlockQ4_1 block;
  std::memcpy(&block, blocks.data(), sizeof block);
  float values[32];
  gguf::decode(block, values);
  for (int e = 0; e < 32; ++e) REQUIRE(std::abs(values[e] - w->value(0, e)) <= error + 1e-7f);
}

TEST_CASE("gguf: open_checkpoint knows the file by its content") {
  auto opened = io::open_checkpoint(golden("blocks.gguf"));
  REQUIRE(opened.status().text() == "");
  REQUIRE((*opened)->format() == "gguf");
  REQUIRE((*opened)->find("q4_0.blocks"));
}

TEST_CASE("gguf: metadata of every type") {
  auto opened = io::open_gguf(golden("blocks.gguf"));
  REQUIRE(opened.ok());
  const io::GgufFile& f = **opened;
  REQUIRE(f.version() == 3);
  REQUIRE(*f.integer("t.u8") == 200);
  REQUIRE(*f.integer("t.i8") == -100);
  REQUIRE(*f.integer("t.u16") == 60000);
  REQUIRE(*f.integer("t.i16") == -30000);
  REQUIRE(*f.integer("t.u32") == 4000000000);
  REQUIRE(*f.integer("t.i32") == -2000000000);
  REQUIRE(*f.integer("t.i64") == -(std::int64_t{1} << 62));
  REQUIRE(*f.real("t.f32") == 1.5);
  REQUIRE(*f.real("t.f64") == 1e-300);
  REQUIRE(*f.real("t.i8") == -100);
  REQUIRE(*f.boolean("t.bool"));
  REQUIRE(*f.string("t.string") == "a string, \xc3\xbcmlaut");
  REQUIRE(*f.strings("t.strings") == std::vector<std::string>{"", "one", "zwei"});
  REQUIRE(*f.integers("t.integers") == std::vector<std::int64_t>{1, -2, 3});
  REQUIRE(*f.reals("t.reals") == std::vector<double>{0.5, -0.25});
  REQUIRE(std::get<io::GgufArray>(io::GgufFile::value(*f.entry("t.bools"))).count == 2);
  REQUIRE(std::get<std::uint64_t>(io::GgufFile::value(*f.entry("t.u64"))) ==
          std::numeric_limits<std::uint64_t>::max());
  REQUIRE(std::get<std::string_view>(io::GgufFile::value(*f.entry("general.architecture"))) == "none");
  const std::string at = golden("blocks.gguf") + ": ";
  REQUIRE(f.integer("t.u64").status().text() == at + "key 't.u64': a number beyond 2^63");
  REQUIRE(f.integer("t.none").status().text() == at + "no key 't.none'");
  REQUIRE(f.integer("t.none").status().code() == Errc::not_found);
  REQUIRE(f.integer("t.f32").status().text() == at + "key 't.f32': a value of type f32, expected an integer");
  REQUIRE(f.string("t.strings").status().text() ==
          at + "key 't.strings': an array of string, expected a string");
  REQUIRE(f.strings("t.reals").status().text() ==
          at + "key 't.reals': an array of f32, expected an array of strings");
  REQUIRE(*f.integer_or("t.none", 5) == 5);
  REQUIRE(f.integer_or("t.f32", 5).status().code() == Errc::bad_format);
}

TEST_CASE("gguf: shapes are row-major, ranges are checked, types that aren't decoded are named") {
  GgufBytes g;
  std::vector<std::byte> data(4 * 6);
  for (int i = 0; i < 6; ++i) {
    const float x = static_cast<float>(i);
    std::memcpy(data.data() + 4 * i, &x, 4);
  }
  g.tensor("a", {3, 2}, 0, data);
  g.tensor("b", {256}, 16, std::vector<std::byte>(66));
  const auto bytes = g.bytes();
  auto parsed = io::parse_gguf(bytes, "m.gguf");
  REQUIRE(parsed.status().text() == "");
  const io::GgufFile& f = **parsed;
  REQUIRE(f.tensors()[0].shape == std::vector<std::int64_t>{2, 3});
  REQUIRE(f.tensors()[1].type == "IQ2_XXS");
  std::vector<float> out(2);
  REQUIRE(f.read_f32(f.tensors()[0], 4, out).ok());
  REQUIRE(out == std::vector<float>{4, 5});
  REQUIRE(f.read_f32(f.tensors()[0], 5, out).text() ==
          "m.gguf: tensor 'a': elements 5 to 7 asked for, it has 6");
  REQUIRE(f.read_f32(f.tensors()[1], 0, out).text() == "m.gguf: tensor 'b': type IQ2_XXS can't be decoded");
  REQUIRE(!f.find("c"));
  REQUIRE(f.bytes(f.tensors()[1]).size() == 66);
}

namespace {
std::string temporary(const char* name) {
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder ? folder : "/tmp") + "/qf_gguf_" + std::to_string(getpid()) + "_" + name;
}
}  // namespace

TEST_CASE("gguf: what is written is read back, padded as llama.cpp requires") {
  const std::string path = temporary("written.gguf");
  io::GgufMetadata meta;
  meta.text("general.architecture", "none");
  meta.u32("a", 7), meta.i32("b", -7), meta.u64("c", 1u), meta.f32("d", 0.5f), meta.boolean("e", true);
  const std::vector<std::string> texts{"x", "", "zz"};
  const std::vector<std::int32_t> ints{1, -1};
  const std::vector<float> reals{1.5f};
  meta.texts("f", texts), meta.i32s("g", ints), meta.f32s("h", reals);
  const std::vector<io::GgufTensorSpec> specs{{"one", gguf::Type::f32, {3}},
                                              {"none", gguf::Type::f32, {0, 4}},
                                              {"two", gguf::Type::q8_0, {2, 64}},
                                              {"three", gguf::Type::f16, {5}}};
  std::vector<float> x(128);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 60;
  {
    auto w = io::GgufWriter::create(path, meta, specs);
    REQUIRE(w.status().text() == "");
    REQUIRE(w->write_f32("two", x).text() == path + ": tensor 'two' is written, expected 'one'");
    REQUIRE(w->write_f32("one", std::span(x).first(3)).ok());
    REQUIRE(w->write_f32("two", std::span(x).first(64)).ok());
    REQUIRE(w->write_f32("two", std::span(x).subspan(64)).ok());
    REQUIRE(w->commit().text() == path + ": tensor 'three': 10 bytes are missing");
    REQUIRE(w->write_f32("three", std::span(x).first(6)).text() ==
            path + ": tensor 'three': 12 more bytes, 10 expected");
    REQUIRE(w->write_f32("three", std::span(x).first(5)).ok());
    REQUIRE(w->commit().ok());
  }
  auto file = io::open_gguf(path);
  REQUIRE(file.status().text() == "");
  REQUIRE(*(*file)->integer("b") == -7);
  REQUIRE(*(*file)->strings("f") == texts);
  REQUIRE(*(*file)->reals("h") == std::vector<double>{1.5});
  REQUIRE(*(*file)->boolean("e"));
  REQUIRE((*file)->find("two")->shape == std::vector<std::int64_t>{2, 64});
  REQUIRE(read_all(**file, "three") == std::vector<float>(x.begin(), x.begin() + 5));
  // Copying the metadata gives the same metadata.
  io::GgufMetadata again;
  for (const io::GgufEntry& e : (*file)->entries()) again.copy(e);
  REQUIRE(again.bytes() == meta.bytes());
  std::remove(path.c_str());
}

TEST_CASE("gguf: a file that can't be declared is not begun") {
  const std::string path = temporary("refused.gguf");
  auto text = [&](const io::GgufMetadata& m, std::vector<io::GgufTensorSpec> specs) {
    return io::GgufWriter::create(path, m, specs).status().text();
  };
  io::GgufMetadata twice;
  twice.u32("a", 1), twice.u32("a", 1);
  REQUIRE(text(twice, {}) == path + ": the key 'a' is given twice");
  REQUIRE(text({}, {{"t", gguf::Type::f32, {1}}, {"t", gguf::Type::f32, {1}}}) ==
          path + ": the tensor 't' is given twice");
  REQUIRE(text({}, {{"t", gguf::Type::q4_0, {2, 33}}}) ==
          path +
              ": tensor 't': shape [2, 33] doesn't fit type Q4_0, which needs at most 4 dimensions and rows "
              "of a multiple of 32");
  REQUIRE(
      text({}, {{std::string(64, 'n'), gguf::Type::f32, {1}}}).find("a name of 64 bytes, expected 1 to 63") !=
      std::string::npos);
  REQUIRE(!io::open_gguf(path).ok());
}
