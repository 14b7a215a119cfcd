#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "io_files.hpp"
#include "qf/core/half.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/io/convert.hpp"
#include "qf/io/safetensors.hpp"
#include "qf/io/safetensors_writer.hpp"

using namespace qf;
using namespace io_test;
using namespace std::string_literals;

namespace {

std::string error_of(std::string_view file, io::SafetensorsOptions options = {}) {
  const auto opened = io::parse_safetensors(bytes_of(file), "f", options);
  return opened.ok() ? "ok" : opened.status().text();
}

// One tensor 'a' of 4 bytes, with `change` in place of the part `from`.
std::string one(std::string_view from = {}, std::string_view change = {}) {
  std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  if (!from.empty()) header.replace(header.find(from), from.size(), change);
  return header;
}

}  // namespace

TEST_CASE("safetensors: tensors, metadata, bytes and order of a small file") {
  const std::string file = safetensors(
      R"({"__metadata__":{"format":"pt","a":"é"},"b":{"dtype":"I16","shape":[],"data_offsets":[8,10]},)"
      R"("z":{"dtype":"U8","shape":[0,7],"data_offsets":[8,8]},"a":{"data_offsets":[0,8],"shape":[2,2],"dtype":"BF16"}}  )",
      "\x80\x3f\x00\x40\x40\xc0\x80\x7f\x05\xff"s);
  const auto opened = io::parse_safetensors(bytes_of(file), "f");
  REQUIRE((opened.ok() ? "" : opened.status().text()) == "");
  const io::Safetensors& st = **opened;
  REQUIRE(st.format() == "safetensors");
  REQUIRE(st.metadata() == io::Metadata{{"a", "é"}, {"format", "pt"}});
  REQUIRE(st.tensors().size() == 3);
  CHECK(st.tensors()[0].name == "a");
  CHECK(st.tensors()[1].name == "z");
  CHECK(st.tensors()[2].name == "b");
  CHECK(st.find("c") == nullptr);
  CHECK(st.find("") == nullptr);
  const io::TensorInfo a = *st.find("a");  // a copy serves as well
  CHECK(a.shape == std::vector<std::int64_t>{2, 2});
  CHECK(a.type == "BF16");
  CHECK(a.bytes == 8);
  CHECK(a.elements == 4);
  float out[4];
  REQUIRE(st.read_f32(a, 0, out).ok());
  CHECK(out[0] == 1.0f);
  CHECK(out[1] == 2.0f);
  CHECK(out[2] == -3.0f);
  CHECK(out[3] == std::numeric_limits<float>::infinity());
  REQUIRE(st.read_f32(a, 1, std::span(out, 2)).ok());
  CHECK(out[1] == -3.0f);
  CHECK(st.read_f32(a, 1, out).text() == "f: tensor 'a': elements 1 to 5 asked for, the tensor has 4");
  CHECK(st.read_f32(a, ~0ull, std::span(out, 1)).code() == Errc::invalid_argument);
  const io::TensorInfo* b = st.find("b");
  CHECK(b->elements == 1);
  REQUIRE(st.read_f32(*b, 0, std::span(out, 1)).ok());
  CHECK(out[0] == -251.0f);
  CHECK(st.bytes(*st.find("z")).empty());
  CHECK(st.read_f32(*st.find("z"), 0, {}).ok());
  io::TensorInfo other = a;
  other.shape = {4};
  CHECK(st.bytes(other).empty());
  CHECK(st.read_f32(other, 0, out).text() == "f: tensor 'a': not of this file");
}

TEST_CASE("safetensors: hostile files are refused, each with its reason") {
  const std::string deep = std::string(2000, '[') + std::string(2000, ']');
  const std::string data(4, '\1');
  const std::string two =
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[%]}})";
  const auto second = [&](std::string_view offsets) {
    return std::string(two).replace(two.find('%'), 1, offsets);
  };
  struct Case {
    const char* what;
    std::string file, error;
  };
  const Case cases[] = {
      {"nothing", "", "f: the file has 0 bytes, at least 8 expected"},
      {"7 bytes", "1234567", "f: the file has 7 bytes, at least 8 expected"},
      {"header beyond the file", safetensors(one()).substr(0, 30),
       "f: a header of 54 bytes in a file of 30 bytes: a truncated download?"},
      {"header of 2^63", "\0\0\0\0\0\0\0\x80{}"s,
       "f: a header of 9223372036854775808 bytes, at most 100000000 expected"},
      {"header of 0", std::string(8, '\0'), "f: the header doesn't start with '{'"},
      {"leading space", safetensors(" " + one(), data), "f: the header doesn't start with '{'"},
      {"byte order mark", safetensors("\xef\xbb\xbf" + one(), data), "f: the header doesn't start with '{'"},
      {"newline after the header", safetensors(one() + "\n", data),
       "f: the header doesn't end with '}' and spaces"},
      {"an array as header", safetensors("[]"), "f: the header doesn't start with '{'"},
      {"broken JSON", safetensors(R"({"a":})"), "f: the header is not valid JSON at its byte 6"},
      {"two documents", safetensors("{}{}"), "f: the header is not valid JSON at its byte 3"},
      {"comment", safetensors("{/**/}"), "f: the header is not valid JSON at its byte 2"},
      {"bad UTF-8", safetensors(one("a", "\xff"), data), "f: the header is not valid JSON at its byte 3"},
      {"lone surrogate", safetensors(one("a", "\\ud800"), data),
       "f: the header is not valid JSON at its byte 9"},
      {"trailing byte", safetensors(one(), data + "x"), "f: 1 bytes after the last tensor"},
      {"data without tensors", safetensors("{}", "x"), "f: 1 bytes after the last tensor"},
      {"truncated data", safetensors(one(), "xy"),
       "f: tensor 'a': ends 2 bytes beyond the file's end (64 bytes): a truncated download?"},
      {"hole at the start", safetensors(one("[0,4]", "[1,5]"), data + "x"),
       "f: tensor 'a': a hole of 1 bytes before it"},
      {"hole", safetensors(second("3,5"), "12345"), "f: tensor 'b': a hole of 1 bytes before it"},
      {"overlap", safetensors(second("1,3"), "123"), "f: tensor 'b': overlaps 'a'"},
      {"the same bytes", safetensors(second("0,2"), "12"), "f: tensor 'b': overlaps 'a'"},
      {"offsets reversed", safetensors(one("[0,4]", "[4,0]"), data),
       "f: tensor 'a': data_offsets end at 0, before they begin at 4"},
      {"offsets of 2^64-1", safetensors(one("[0,4]", "[18446744073709551611,18446744073709551615]"), data),
       "f: tensor 'a': its offset overflows 64 bits"},
      {"offset of 2^64", safetensors(one("[0,4]", "[0,18446744073709551616]"), data),
       "f: tensor 'a': data_offsets holds 18446744073709551616, expected an integer of 0 or more"},
      {"three offsets", safetensors(one("[0,4]", "[0,4,8]"), data),
       "f: tensor 'a': data_offsets has more than 2 entries"},
      {"one offset", safetensors(one("[0,4]", "[0]"), data),
       "f: tensor 'a': data_offsets has 1 entries, expected 2"},
      {"shape overflow", safetensors(one("[1]", "[4294967296,4294967296]"), data),
       "f: tensor 'a': the shape's product overflows 64 bits"},
      {"shape overflow hidden by 0", safetensors(one("[1]", "[4294967296,4294967296,0]"), data),
       "f: tensor 'a': the shape's product overflows 64 bits"},
      {"bits overflow", safetensors(one("[1]", "[2305843009213693952]"), data),
       "f: tensor 'a': 2305843009213693952 elements of F32 overflow 64 bits"},
      {"a dimension of 2^63", safetensors(one("[1]", "[9223372036854775808]"), data),
       "f: tensor 'a': shape holds 9223372036854775808, too large"},
      {"shape -2", safetensors(one("[1]", "[-2]"), data),
       "f: tensor 'a': shape holds -2, expected an integer of 0 or more"},
      {"shape 2.0", safetensors(one("[1]", "[2.0]"), data),
       "f: tensor 'a': shape holds 2.0, expected an integer of 0 or more"},
      {"shape 1e0", safetensors(one("[1]", "[1e0]"), data),
       "f: tensor 'a': shape holds 1e0, expected an integer of 0 or more"},
      {"shape of strings", safetensors(one("[1]", "[\"1\"]"), data),
       "f: tensor 'a': shape holds a string, expected an integer of 0 or more"},
      {"shape null", safetensors(one("[1]", "null"), data),
       "f: tensor 'a': shape is null, expected an array"},
      {"nested shape", safetensors(one("[1]", "[[1]]"), data),
       "f: tensor 'a': shape holds an array, expected an integer of 0 or more"},
      {"33 dimensions",
       safetensors(one("[1]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), data),
       "f: tensor 'a': more than 32 dimensions"},
      {"shape against bytes", safetensors(one("[1]", "[2,3]"), data),
       "f: tensor 'a': 4 bytes stored, 24 expected from shape [2, 3] F32"},
      {"unknown dtype", safetensors(one("F32", "F33"), data), "f: tensor 'a': dtype 'F33' is not known"},
      {"dtype 5", safetensors(one("\"F32\"", "5"), data), "f: tensor 'a': dtype is 5, expected a string"},
      {"F4 of 3 elements", safetensors(one("\"F32\",\"shape\":[1]", "\"F4\",\"shape\":[3]"), data),
       "f: tensor 'a': 3 elements of F4 don't fill whole bytes"},
      {"no dtype", safetensors(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", data),
       "f: tensor 'a': the field 'dtype' is missing"},
      {"no shape", safetensors(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", data),
       "f: tensor 'a': the field 'shape' is missing"},
      {"no offsets", safetensors(R"({"a":{"dtype":"F32","shape":[1]}})", data),
       "f: tensor 'a': the field 'data_offsets' is missing"},
      {"unknown field", safetensors(one("\"shape\"", "\"x\":{},\"shape\""), data),
       "f: tensor 'a': the field 'x' is not known"},
      {"field twice", safetensors(one("\"shape\":", "\"shape\":[1],\"shape\":"), data),
       "f: tensor 'a': the field 'shape' stands twice"},
      {"tensor twice",
       safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                   R"("a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                   data),
       "f: tensor 'a': stands twice in the header"},
      {"the same name by an escape",
       safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                   R"("\u0061":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                   data),
       "f: tensor 'a': stands twice in the header"},
      {"empty name", safetensors(one("\"a\"", "\"\""), data), "f: a tensor has an empty name"},
      {"NUL in a name", safetensors(one("\"a\"", "\"a\\u0000b\""), data),
       "f: tensor 'a\\x00b': control bytes in the name"},
      {"a path as name", safetensors(one("\"a\"", "\"../../etc/x\""), data),
       "f: tensor '../../etc/x': the name is a path that leaves its folder"},
      {"a path as name 2", safetensors(one("\"a\"", "\"a\\\\..\\\\x\""), data),
       "f: tensor 'a\\..\\x': the name is a path that leaves its folder"},
      {"an absolute path", safetensors(one("\"a\"", "\"/etc/x\""), data),
       "f: tensor '/etc/x': the name is a path that leaves its folder"},
      {"metadata of numbers", safetensors(R"({"__metadata__":{"a":1}})"),
       "f: __metadata__ 'a' is 1, expected a string"},
      {"metadata of objects", safetensors(R"({"__metadata__":{"a":{}}})"),
       "f: __metadata__ 'a' is an object, expected a string"},
      {"metadata null", safetensors(R"({"__metadata__":null})"),
       "f: '__metadata__' is null, expected an object"},
      {"metadata twice", safetensors(R"({"__metadata__":{},"__metadata__":{}})"),
       "f: __metadata__ stands twice"},
      {"metadata key twice", safetensors(R"({"__metadata__":{"k":"1","k":"2"}})"),
       "f: __metadata__ 'k': stands twice"},
      {"a number as tensor", safetensors(R"({"a":1})"), "f: 'a' is 1, expected an object"},
      {"depth", safetensors("{\"a\":" + deep + "}"), "f: 'a' is an array, expected an object"},
      {"depth in a shape", safetensors(one("[1]", deep), data),
       "f: tensor 'a': shape holds an array, expected an integer of 0 or more"},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    CHECK(error_of(c.file) == c.error);
  }
  CHECK(std::size(cases) >= 50);
}

TEST_CASE("safetensors: what lenient lets through, and what not") {
  const io::SafetensorsOptions lenient{.lenient = true};
  const std::string data(4, '\1');
  CHECK(error_of(safetensors("  " + one(), data), lenient) == "ok");
  CHECK(error_of(safetensors(one() + "\n", data), lenient) == "ok");
  CHECK(error_of(safetensors(one("\"a\"", "\"\""), data), lenient) == "ok");
  CHECK(error_of(safetensors(one("\"a\"", "\"../a\""), data), lenient) == "ok");
  CHECK(error_of(safetensors(one("\"a\"", "\"a\\u0000\""), data), lenient) == "ok");
  CHECK(error_of(safetensors(one(), data + "x"), lenient) == "f: 1 bytes after the last tensor");
  const std::string file = safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},)"
                                       R"("a":{"dtype":"I8","shape":[1,2],"data_offsets":[0,2]}})",
                                       data);
  const auto opened = io::parse_safetensors(bytes_of(file), "f", lenient);
  REQUIRE(opened.ok());
  REQUIRE((*opened)->tensors().size() == 2);
  CHECK((*opened)->find("a")->type == "I8");
  CHECK((*opened)->find("b")->type == "U8");
}

TEST_CASE("safetensors: files of other kinds are named for what they are") {
  TempFolder folder;
  const auto error = [&](std::string_view bytes) {
    put(folder / "x", bytes);
    const auto opened = io::open_checkpoint(folder / "x");
    REQUIRE(!opened.ok());
    REQUIRE(opened.status().text().starts_with((folder / "x") + ": "));
    return opened.status().text().substr((folder / "x").size() + 2);
  };
  CHECK(error("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n") ==
        "a Git-LFS pointer, not the file itself; run 'git lfs pull' in its folder");
  CHECK(error("\n<!DOCTYPE html><html>").starts_with("an HTML page, not a model"));
  CHECK(error("<HTML><body>404").starts_with("an HTML page, not a model"));
  CHECK(error("PK\x03\x04 and so on").starts_with("a zip archive, as PyTorch writes pickles"));
  CHECK(error("\x80\x02}q\x01").starts_with("a Python pickle"));
  CHECK(error("tjgg....").starts_with("a GGML file from before GGUF"));
  CHECK(error("TRT-8401-EntropyCalibration2\n").starts_with("a TensorRT calibration cache"));
  CHECK(error("{\"weight_map\":{}}").starts_with("a JSON text"));
  CHECK(error("\x1f\x8b\x08\x00").starts_with("a compressed file"));
  CHECK(error("\x89HDF\r\n\x1a\n").starts_with("an HDF5 file"));
  CHECK(error(std::string(64, '\0')).starts_with("the file begins with zeros"));
  CHECK(
      error("what is this").starts_with("neither a safetensors nor a GGUF file (it begins with 'what is ')"));
  CHECK(error("") == "the file is empty");
  CHECK(io::open_checkpoint(folder / "none").status().text() ==
        (folder / "none") + ": cannot be opened: No such file or directory");
  CHECK(io::open_checkpoint("/dev/null").status().text() ==
        "/dev/null: a pipe, socket or device, expected a file");
  // A header whose length begins with the bytes of a pickle or a zip archive is still a header.
  for (std::size_t length : {std::size_t{0x0280}, std::size_t{0x8b1f}}) {
    std::string header = one();
    header.resize(length, ' ');
    put(folder / "y", safetensors(header, "1234"));
    CHECK(io::open_checkpoint(folder / "y").ok());
  }
}

TEST_CASE("convert: every real type, each code of the small ones") {
  const auto decode = [](DType type, std::string_view bytes, std::size_t count) {
    std::vector<float> out(count);
    const Status status = io::decode_f32(type, bytes_of(bytes), 0, out);
    REQUIRE(status.text() == "");
    return out;
  };
  std::string all16(131072, '\0');
  for (std::size_t i = 0; i < 65536; ++i) {
    all16[2 * i] = static_cast<char>(i & 255);
    all16[2 * i + 1] = static_cast<char>(i >> 8);
  }
  const auto halves = decode(DType::f16, all16, 65536), brains = decode(DType::bf16, all16, 65536);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    f16 h;
    h.bits = static_cast<std::uint16_t>(i);
    bf16 b;
    b.bits = h.bits;
    const auto same = [](float x, float y) {
      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    };
    if (!same(halves[i], h) || !same(brains[i], b)) FAIL("code " << i);
  }
  std::string all8(256, '\0');
  for (std::size_t i = 0; i < 256; ++i) all8[i] = static_cast<char>(i);
  const auto e4m3 = decode(DType::f8e4m3, all8, 256), e5m2 = decode(DType::f8e5m2, all8, 256),
             e8m0s = decode(DType::f8e8m0, all8, 256), fnuz4 = decode(DType::f8e4m3fnuz, all8, 256),
             fnuz5 = decode(DType::f8e5m2fnuz, all8, 256);
  CHECK(e4m3[0x7e] == 448.0f);
  CHECK(std::isnan(e4m3[0x7f]));
  CHECK(e4m3[0x81] == -std::ldexp(1.0f, -9));
  CHECK(e5m2[0x7b] == 57344.0f);
  CHECK(std::isinf(e5m2[0x7c]));
  CHECK(e8m0s[0] == std::ldexp(1.0f, -127));
  CHECK(e8m0s[254] == std::ldexp(1.0f, 127));
  CHECK(std::isnan(e8m0s[255]));
  CHECK(fnuz4[0x7f] == 240.0f);
  CHECK(fnuz4[0x01] == std::ldexp(1.0f, -10));
  CHECK(fnuz4[0x08] == std::ldexp(1.0f, -7));
  CHECK(std::isnan(fnuz4[0x80]));
  CHECK(fnuz5[0x7f] == 57344.0f);
  CHECK(fnuz5[0x01] == std::ldexp(1.0f, -17));
  CHECK(fnuz5[0x84] == -std::ldexp(1.0f, -15));
  CHECK(std::isnan(fnuz5[0x80]));
  CHECK(decode(DType::i8, all8, 256)[0x80] == -128.0f);
  CHECK(decode(DType::u8, all8, 256)[0x80] == 128.0f);
  CHECK(decode(DType::boolean, all8, 3) == std::vector<float>{0, 1, 1});
  CHECK(decode(DType::f4e2m1, "\x21\xf7", 4) == std::vector<float>{0.5f, 1.0f, 6.0f, -6.0f});
  CHECK(decode(DType::i16, "\xfe\xff", 1)[0] == -2.0f);
  CHECK(decode(DType::u16, "\xfe\xff", 1)[0] == 65534.0f);
  CHECK(decode(DType::i32, "\xfe\xff\xff\xff", 1)[0] == -2.0f);
  CHECK(decode(DType::u32, "\xff\xff\xff\xff", 1)[0] == 4294967296.0f);
  CHECK(decode(DType::i64, std::string(8, '\xff'), 1)[0] == -1.0f);
  CHECK(decode(DType::u64, std::string(8, '\xff'), 1)[0] == 18446744073709551616.0f);
  CHECK(decode(DType::f64, "\0\0\0\0\0\0\xf8\x3f"s, 1)[0] == 1.5f);
  CHECK(decode(DType::f32, "\0\0\xc0\x3f"s, 1)[0] == 1.5f);
  float out[4];
  CHECK(io::decode_f32(DType::f4e2m1, bytes_of("\x21\xf7"), 1, std::span(out, 2)).ok());
  CHECK(out[0] == 1.0f);
  CHECK(out[1] == 6.0f);
  CHECK(io::decode_f32(DType::c64, bytes_of(all8), 0, std::span(out, 1)).code() == Errc::unsupported);
  CHECK(io::decode_f32(DType::f6e2m3, bytes_of(all8), 0, std::span(out, 4)).code() == Errc::unsupported);
  CHECK(io::decode_f32(DType::f32, bytes_of(all8), 63, std::span(out, 2)).code() == Errc::invalid_argument);
}

TEST_CASE("safetensors: every type that the package writes is read to its values and written to its bytes") {
  const std::string golden = std::string(QF_GOLDEN) + "/io/";
  const auto opened = io::open_safetensors(golden + "every_type.safetensors");
  REQUIRE((opened.ok() ? "" : opened.status().text()) == "");
  const auto values = io::open_safetensors(golden + "every_type_values.safetensors");
  REQUIRE(values.ok());
  for (const io::TensorInfo& expected : (*values)->tensors()) {
    INFO(expected.name);
    const io::TensorInfo* info = (*opened)->find(expected.name);
    REQUIRE(info);
    REQUIRE(info->shape == expected.shape);
    std::vector<float> a(info->elements), b(info->elements);
    REQUIRE((*opened)->read_f32(*info, 0, a).ok());
    REQUIRE((*values)->read_f32(expected, 0, b).ok());
    for (std::size_t i = 0; i < a.size(); ++i) {
      INFO(i);
      REQUIRE((a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))));
    }
  }
  std::vector<io::TensorSpec> specs;
  for (const io::TensorInfo& info : (*opened)->tensors())
    specs.push_back({info.name, *dtype_from_name(info.type), info.shape});
  CHECK(specs.size() == 22);
  TempFolder folder;
  auto writer = io::SafetensorsWriter::create(folder / "f", specs, (*opened)->metadata());
  REQUIRE(writer.ok());
  for (const io::TensorInfo& info : (*opened)->tensors())
    REQUIRE(writer->write(info.name, (*opened)->bytes(info)).ok());
  REQUIRE(writer->commit().ok());
  CHECK(slurp(folder / "f") == slurp(golden + "every_type.safetensors"));
}
