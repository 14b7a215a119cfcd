#include <catch2/catch.hpp>
#include <random>

#include "io_files.hpp"
#include "qf/core/json.hpp"
#include "qf/io/compressed_tensors.hpp"
#include "qf/io/hash.hpp"

using namespace qf;
using namespace io_test;

namespace {

const std::string kGolden = std::string(QF_GOLDEN) + "/io/";

template <class T>
std::string error_of(const Result<T>& result) {
  return result.ok() ? "ok" : result.status().text();
}

// Random codes, zeros and scales of a scheme; `act_order` deals columns to groups at random.
QuantizedMatrix random_matrix(const Scheme& scheme, std::int64_t n, std::int64_t k, bool act_order) {
  std::mt19937 rng(static_cast<unsigned>(scheme.bits * 1000 + n * 10 + k));
  QuantizedMatrix m = std::move(*QuantizedMatrix::make(scheme, n, k));
  for (std::int64_t r = 0; r < n; ++r) {
    for (std::int64_t c = 0; c < k; ++c)
      m.codes()(r, c) = static_cast<std::uint8_t>(rng() % static_cast<unsigned>(scheme.levels()));
    for (std::int64_t g = 0; g < m.groups(); ++g) {
      m.scales()(r, g) = round_to(scheme.scale, static_cast<float>(rng() % 1000) / 999.0f - 0.2f);
      if (scheme.zero == ZeroKind::integer)
        m.zeros()(r, g) = static_cast<float>(rng() % static_cast<unsigned>(scheme.levels()));
    }
  }
  if (act_order) {
    std::vector<std::int32_t> groups(static_cast<std::size_t>(k));
    for (auto& g : groups) g = static_cast<std::int32_t>(rng() % static_cast<unsigned>(m.groups()));
    REQUIRE(m.set_group_of(groups).ok());
  }
  return m;
}

std::string file_of(const std::vector<io::StoredTensor>& tensors) {
  TempFolder folder;
  std::vector<io::TensorSpec> specs;
  for (const auto& t : tensors) specs.push_back(t.spec);
  auto writer = io::SafetensorsWriter::create(folder / "f", specs);
  REQUIRE(error_of(writer) == "ok");
  for (const auto& t : tensors) REQUIRE(writer->write(t.spec.name, t.bytes).ok());
  REQUIRE(writer->commit().ok());
  return slurp(folder / "f");
}

bool same(const QuantizedMatrix& a, const QuantizedMatrix& b) {
  if (!(a.scheme() == b.scheme()) || a.n() != b.n() || a.k() != b.k()) return false;
  for (std::int64_t r = 0; r < a.n(); ++r) {
    for (std::int64_t c = 0; c < a.k(); ++c)
      if (a.codes()(r, c) != b.codes()(r, c) || a.group_index(c) != b.group_index(c)) return false;
    for (std::int64_t g = 0; g < a.groups(); ++g)
      if (a.scales()(r, g) != b.scales()(r, g) || a.zero(r, g) != b.zero(r, g)) return false;
  }
  return true;
}

io::QuantizationGroup group_of(const Scheme& scheme, bool act_order = false) {
  io::QuantizationGroup group;
  group.targets = {"Linear"};
  group.scheme = scheme;
  group.scheme.scale = DType::f32;  // the reader takes the tensor's type
  group.act_order = act_order;
  return group;
}

}  // namespace

TEST_CASE("compressed-tensors: what goes in comes out, for all widths, groups and zeros") {
  for (int bits = 1; bits <= 8; ++bits)
    for (std::int64_t group : {0, 1, 16, 64})
      for (ZeroKind zero : {ZeroKind::symmetric, ZeroKind::integer})
        for (const auto& [n, k] : {std::pair{1, 1}, {3, 31}, {33, 70}, {8, 64}})
          for (bool act_order : {false, true}) {
            INFO(bits << " bits, group " << group << ", " << n << " x " << k);
            const DType scale =
                std::array{DType::f16, DType::bf16, DType::f32}[static_cast<unsigned>(bits) % 3];
            const Scheme scheme{bits, group, zero, scale, CodebookKind::none};
            const QuantizedMatrix m = random_matrix(scheme, n, k, act_order);
            const auto tensors = io::tensors_of(m, "m");
            REQUIRE(error_of(tensors) == "ok");
            const auto specs = io::quantized_specs("m", scheme, n, k, act_order);
            REQUIRE(specs->size() == tensors->size());
            const std::string bytes = file_of(*tensors);
            const auto file = io::parse_safetensors(bytes_of(bytes), "f");
            const auto back = io::read_quantized(**file, "m", group_of(scheme, act_order), "0.18.0");
            REQUIRE(error_of(back) == "ok");
            REQUIRE(same(m, *back));
          }
}

TEST_CASE("compressed-tensors: files of the package are read to the codes that went into them") {
  for (const std::string name : {"compressed_tensors", "compressed_tensors_padded"}) {
    const std::string text = slurp(kGolden + name + ".json");
    const auto parsed = io::parse_quantization_config(text, "config.json");
    REQUIRE(error_of(parsed) == "ok");
    REQUIRE(parsed->has_value());
    const io::QuantizationConfig& config = **parsed;
    const auto opened = io::open_safetensors(kGolden + name + ".safetensors");
    REQUIRE(error_of(opened) == "ok");
    const io::Safetensors& file = **opened;
    std::size_t modules = 0;
    for (const io::QuantizationGroup& group : config.groups) {
      const std::string& module = group.targets.front();
      INFO(name << " " << module);
      REQUIRE(io::is_quantized(file, module));
      const auto read = io::read_quantized(file, module, config);
      REQUIRE(error_of(read) == "ok");
      const QuantizedMatrix& m = *read;
      const auto all = [&](const char* suffix) {
        const io::TensorInfo* info = file.find(module + suffix);
        std::vector<float> v(info->elements);
        REQUIRE(file.read_f32(*info, 0, v).ok());
        return v;
      };
      const auto codes = all(".codes"), zeros = all(".zeros"), scales = all(".weight_scale");
      std::vector<float> order;
      if (file.find(module + ".weight_g_idx")) order = all(".weight_g_idx");
      for (std::int64_t r = 0; r < m.n(); ++r)
        for (std::int64_t c = 0; c < m.k(); ++c) {
          const std::int64_t size = group.scheme.group ? group.scheme.group : m.k();
          const auto g =
              order.empty() ? c / size : static_cast<std::int64_t>(order[static_cast<std::size_t>(c)]);
          const auto at = static_cast<std::size_t>(r * m.groups() + g);
          const float code = codes[static_cast<std::size_t>(r * m.k() + c)];
          if (m.value(r, c) != (code - zeros[at]) * scales[at]) FAIL("row " << r << ", column " << c);
        }
      ++modules;
      if (name != "compressed_tensors") continue;
      // And back to the package's own bytes.
      const auto tensors = io::tensors_of(m, module);
      REQUIRE(error_of(tensors) == "ok");
      for (const io::StoredTensor& t : *tensors) {
        const io::TensorInfo* info = file.find(t.spec.name);
        REQUIRE(info);
        CHECK(info->shape == t.spec.shape);
        const auto bytes = file.bytes(*info);
        CHECK(std::equal(bytes.begin(), bytes.end(), t.bytes.begin(), t.bytes.end()));
      }
    }
    CHECK(modules == (name == "compressed_tensors" ? 25u : 12u));
  }
}

TEST_CASE("compressed-tensors: codes whose order no shape tells need the version") {
  const auto opened = io::open_safetensors(kGolden + "compressed_tensors_padded.safetensors");
  auto config =
      **io::parse_quantization_config(slurp(kGolden + "compressed_tensors_padded.json"), "config.json");
  CHECK(error_of(io::read_quantized(**opened, "w6g16s", config)) == "ok");
  config.version = "";
  CHECK(error_of(io::read_quantized(**opened, "w6g16s", config)) ==
        kGolden +
            "compressed_tensors_padded.safetensors: tensor 'w6g16s.weight_packed': the order of its 6-bit "
            "codes "
            "can't be told from its shape, and the config names no version ('')");
  CHECK(error_of(io::read_quantized(**opened, "w5g16s", config)) == "ok");  // its shape tells
  CHECK(error_of(io::read_quantized(**opened, "none", config)).find("no group of the config fits it") !=
        std::string::npos);
}

TEST_CASE("compressed-tensors: modules that don't add up are refused") {
  const Scheme scheme{4, 16, ZeroKind::integer, DType::f16, CodebookKind::none};
  const auto good = *io::tensors_of(random_matrix(scheme, 5, 40, true), "m");
  const auto error = [&](auto change) {
    auto tensors = good;
    change(tensors);
    const std::string bytes = file_of(tensors);
    const auto file = io::parse_safetensors(bytes_of(bytes), "f");
    return error_of(io::read_quantized(**file, "m", group_of(scheme, true), "0.18.0"));
  };
  using Tensors = std::vector<io::StoredTensor>;
  const auto put32 = [](io::StoredTensor& t, std::size_t at, std::int32_t v) {
    std::memcpy(&t.bytes[at * 4], &v, 4);
  };
  const auto put64 = [](io::StoredTensor& t, std::size_t at, std::int64_t v) {
    std::memcpy(&t.bytes[at * 8], &v, 8);
  };
  enum { packed, scale, shape, zero, order };
  CHECK(error([](Tensors&) {}) == "ok");
  CHECK(error([](Tensors& t) { t.erase(t.begin() + packed); }) == "f: tensor 'm.weight_packed': not there");
  CHECK(error([](Tensors& t) { t.erase(t.begin() + scale); }) == "f: tensor 'm.weight_scale': not there");
  CHECK(error([](Tensors& t) { t.erase(t.begin() + shape); }) == "f: tensor 'm.weight_shape': not there");
  CHECK(error([](Tensors& t) { t.erase(t.begin() + zero); }) == "f: tensor 'm.weight_zero_point': not there");
  CHECK(error([](Tensors& t) { t.erase(t.begin() + order); }) == "f: tensor 'm.weight_g_idx': not there");
  CHECK(error([&](Tensors& t) { put64(t[shape], 0, 6); }) ==
        "f: tensor 'm.weight_packed': expected I32 with 6 rows, as weight_shape says");
  CHECK(error([&](Tensors& t) { put64(t[shape], 1, 41); }) ==
        "f: tensor 'm.weight_packed': 5 words a row, expected 6 for 5 x 41 with 4 bits");
  CHECK(error([&](Tensors& t) { put64(t[shape], 1, 33); }) ==
        "f: tensor 'm.weight_g_idx': expected I32 [33]");
  CHECK(error([&](Tensors& t) { put64(t[shape], 1, -40); }) ==
        "f: tensor 'm.weight_shape': a matrix of 5 x -40");
  CHECK(error([&](Tensors& t) { put64(t[shape], 1, INT64_MAX); }) ==
        "f: tensor 'm.weight_shape': a matrix of 5 x 9223372036854775807");
  CHECK(error([&](Tensors& t) {
          t[shape].spec.shape = {1, 2};
        }) == "f: tensor 'm.weight_shape': expected I64 [2]");
  CHECK(error([&](Tensors& t) { t[packed].spec.dtype = DType::u32; }) ==
        "f: tensor 'm.weight_packed': expected I32 with 5 rows, as weight_shape says");
  CHECK(error([&](Tensors& t) {
          t[scale].spec.shape = {3, 5};
        }) ==
        "f: tensor 'm.weight_scale': 15 scales, expected [5, 3] for 5 x 40 with 4 bits in groups of 16");
  CHECK(error([&](Tensors& t) { t[scale].spec.dtype = DType::i16; }) ==
        "f: tensor 'm.weight_scale': type 'I16', expected F16, BF16 or F32");
  CHECK(error([&](Tensors& t) { put32(t[scale], 3, 0x7c003c00); }) ==
        "f: tensor 'm.weight_scale': row 2, group 1 is not a finite number");
  CHECK(error([&](Tensors& t) {
          t[zero].spec.shape = {3, 1};
        }) == "f: tensor 'm.weight_zero_point': expected I32 [1, 3] for 5 x 40 with 4 bits");
  CHECK(error([&](Tensors& t) { put32(t[order], 7, 3); }) ==
        "f: tensor 'm.weight_g_idx': group index 3, expected 0 to 2");
  CHECK(error([&](Tensors& t) { put32(t[order], 7, -1); }) ==
        "f: tensor 'm.weight_g_idx': group index -1, expected 0 to 2");
  // Bits after the last code of a column of zeros are not looked at, and no order at all may be written as -1.
  CHECK(error([&](Tensors& t) { put32(t[zero], 0, -1); }) == "ok");
  CHECK(error([&](Tensors& t) {
          for (std::size_t c = 0; c < 40; ++c) put32(t[order], c, -1);
        }) == "ok");
  const std::string bytes = file_of(good);
  const auto file = io::parse_safetensors(bytes_of(bytes), "f");
  io::QuantizationGroup symmetric = group_of(scheme);
  symmetric.scheme.zero = ZeroKind::symmetric;
  CHECK(error_of(io::read_quantized(**file, "m", symmetric, "0.18.0")) ==
        "f: tensor 'm.weight_zero_point': there, but the config says symmetric");
}

TEST_CASE("compressed-tensors: matrices that this form can't hold") {
  const auto error = [](Scheme scheme, auto change) {
    QuantizedMatrix m = std::move(*QuantizedMatrix::make(scheme, 2, 8));
    change(m);
    return error_of(io::tensors_of(m, "m"));
  };
  const auto nothing = [](QuantizedMatrix&) {};
  Scheme s{3, 4, ZeroKind::integer, DType::f16, CodebookKind::none};
  CHECK(error(s, nothing) == "ok");
  CHECK(error(s, [](QuantizedMatrix& m) { m.codes()(1, 2) = 8; }) ==
        "m: row 1: the code of column 2 doesn't fit the scheme");
  CHECK(error(s, [](QuantizedMatrix& m) { m.zeros()(1, 1) = 0.5f; }) ==
        "m: row 1: the zero of group 1 doesn't fit the scheme");
  CHECK(error(s, [](QuantizedMatrix& m) { m.zeros()(0, 1) = 8; }) ==
        "m: row 0: the zero of group 1 doesn't fit the scheme");
  CHECK(error(s, [](QuantizedMatrix& m) { m.scales()(0, 1) = 0.1f; }) ==
        "m: row 0: the scale of group 1 doesn't fit the scheme");
  s.zero = ZeroKind::floating;
  CHECK(error(s, nothing) == "m: floating zeros can't be stored as compressed-tensors");
  s.codebook = CodebookKind::per_row;
  CHECK(error(s, nothing) == "m: codebooks can't be stored as compressed-tensors");
}

TEST_CASE("quantization config: what is written is read, and other keys stay in order") {
  io::QuantizationConfig config;
  config.groups.resize(2);
  config.groups[0].targets = {"Linear"};
  config.groups[0].scheme = {4, 64, ZeroKind::integer, DType::f16, CodebookKind::none};
  config.groups[1].name = "group_1";
  config.groups[1].targets = {"re:.*down_proj$", "model.layers.0.mlp.up_proj"};
  config.groups[1].scheme = {8, 0, ZeroKind::symmetric, DType::f16, CodebookKind::none};
  config.groups[1].act_order = true;
  config.ignore = {"lm_head", "re:.*router"};
  const auto text = io::with_quantization_config(R"({"z": 1, "a": [1.5], "quantization_config": 3})",
                                                 "config.json", config);
  REQUIRE(error_of(text) == "ok");
  CHECK(text->find("\"z\"") < text->find("\"a\""));
  const auto back = io::parse_quantization_config(*text, "config.json");
  REQUIRE(error_of(back) == "ok");
  REQUIRE((*back)->groups.size() == 2);
  CHECK((*back)->version == "0.18.0");
  CHECK((*back)->ignore == config.ignore);
  for (std::size_t i : {0, 1}) {
    CHECK((*back)->groups[i].name == config.groups[i].name);
    CHECK((*back)->groups[i].targets == config.groups[i].targets);
    CHECK((*back)->groups[i].scheme == config.groups[i].scheme);
    CHECK((*back)->groups[i].act_order == config.groups[i].act_order);
  }
  const auto found = [&](const char* module) {
    const auto group = io::find_group(**back, module);
    REQUIRE(error_of(group) == "ok");
    return *group ? (*group)->name : "";
  };
  CHECK(found("model.layers.3.mlp.down_proj") == "group_1");
  CHECK(found("model.layers.3.mlp.down_proj2") == "group_0");
  CHECK(found("model.layers.0.mlp.up_proj") == "group_1");
  CHECK(found("model.layers.1.mlp.up_proj") == "group_0");
  CHECK(found("lm_head") == "");
  CHECK(found("model.router.x") == "");
  CHECK((*io::find_group(**back, "model.layers.1.mlp.up_proj", "Embedding")) == nullptr);
  CHECK(io::parse_quantization_config("{}", "c")->has_value() == false);
}

TEST_CASE("quantization config: what can't be read is refused by name") {
  const auto config = [](std::string_view weights, std::string_view rest = "", std::string_view group = "") {
    return cat({R"({"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",)",
                R"("config_groups":{"g":{"targets":["Linear"],)", group, R"("weights":)", weights, "}}", rest,
                "}}"});
  };
  const auto error = [](const std::string& text) {
    return error_of(io::parse_quantization_config(text, "c"));
  };
  const std::string ok = R"({"num_bits":4,"strategy":"group","group_size":32})";
  const std::string in_group = "c: quantization_config config_groups 'g'";
  CHECK(error(config(ok)) == "ok");
  CHECK(error(config(ok, R"(,"sparsity_config":{"format":"dense"},"transform_config":{})")) == "ok");
  CHECK(error(config(ok, R"(,"transform_config":{"config_groups":{"R1":{}}})")) ==
        "c: quantization_config: 'transform_config'");
  CHECK(error(config(ok, R"(,"sparsity_config":{"format":"sparse-24-bitmask"})")) ==
        "c: quantization_config: 'sparsity_config'");
  CHECK(error(R"({"quantization_config":{"quant_method":"gptq","bits":4}})") ==
        "c: quantization_config: quant_method 'gptq', only 'compressed-tensors' is read");
  CHECK(error(R"({"quantization_config":{}})") ==
        "c: quantization_config: 'config_groups' is missing, empty or not an object");
  CHECK(error(R"({"quantization_config":[]})") == "c: quantization_config: not an object");
  CHECK(error(config(ok, "", R"("format":"nvfp4-pack-quantized",)")) ==
        in_group + ": format 'nvfp4-pack-quantized', only 'pack-quantized' is read");
  CHECK(error(config(ok, "", R"("input_activations":{"num_bits":8},)")) ==
        in_group + ": 'input_activations' are quantized, only weights may be");
  CHECK(error(config("null")) == in_group + ": 'weights' is missing");
  CHECK(error(config("[]")) == in_group + " weights: not an object");
  CHECK(error(config(R"({"num_bits":4,"type":"float"})")) ==
        in_group + " weights: type 'float', only 'int' is read");
  CHECK(error(config(R"({"num_bits":16})")) == in_group + " weights: num_bits 16, expected 1 to 8");
  CHECK(error(config(R"({"num_bits":"4"})")) == in_group + " weights: 'num_bits' is not an integer");
  CHECK(error(config(R"({"num_bits":4,"strategy":"block"})")) ==
        in_group + " weights: strategy 'block', only group, channel and tensor are read");
  CHECK(error(config(R"({"num_bits":4,"strategy":"group"})")) ==
        in_group + " weights: strategy 'group' with a group_size of 0");
  CHECK(error(config(R"({"num_bits":4,"strategy":"channel","group_size":8})")) ==
        in_group + " weights: strategy 'channel' with a group_size of 8");
  CHECK(error(config(R"({"num_bits":4,"dynamic":true})")) == in_group + " weights: dynamic weights");
  CHECK(error(config(R"({"num_bits":4,"symmetric":1})")) ==
        in_group + " weights: 'symmetric' is not true or false");
  CHECK(error(config(R"({"num_bits":4,"actorder":"sideways"})")) ==
        in_group + R"( weights: actorder '"sideways"' is not known)");
  CHECK(error("{") != "ok");
  io::QuantizationConfig hostile;
  hostile.groups.resize(1);
  hostile.groups[0].targets = {"re:(a+)+$"};
  CHECK(error_of(io::find_group(hostile, std::string(64, 'a') + "b")) ==
        "the target 're:(a+)+$': takes too long to match");
  hostile.groups[0].targets = {"re:("};
  CHECK(error_of(io::find_group(hostile, "a")) == "the target 're:(': not a regular expression (byte 1)");
}

TEST_CASE("compressed-tensors: one scale for the whole matrix") {
  auto config = **io::parse_quantization_config(
      R"({"quantization_config":{"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":8,"symmetric":false}}}}})",
      "c");
  CHECK(config.groups[0].one_scale);
  const std::string bytes = safetensors(
      R"({"m.weight_packed":{"dtype":"I32","shape":[2,1],"data_offsets":[0,8]},"m.weight_scale":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
      R"("m.weight_shape":{"dtype":"I64","shape":[2],"data_offsets":[12,28]},"m.weight_zero_point":{"dtype":"I8","shape":[1],"data_offsets":[28,29]}})",
      std::string_view("\x80\x81\x82\x83\x01\x02\x03\x04\0\0\0\x3f\2\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\xfe", 29));
  const auto file = io::parse_safetensors(bytes_of(bytes), "f");
  REQUIRE(error_of(file) == "ok");
  const auto m = io::read_quantized(**file, "m", config);
  REQUIRE(error_of(m) == "ok");
  CHECK(m->value(0, 0) == 1.0f);  // (0 - -2) * 0.5
  CHECK(m->value(1, 3) == (4.0f - 126.0f) * 0.5f);
}

TEST_CASE("hash: equal to XXH3 of the command xxhsum, however the bytes are cut") {
  std::string bytes(5000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
  CHECK(io::hash64(bytes_of("")) == 0x2d06800538d394c2u);
  CHECK(io::hash128(bytes_of("")).hex() == "99aa06d3014798d86001c324468d497f");
  CHECK(io::hash64(bytes_of("abc")) == 0x78af5f94892f3950u);
  CHECK(io::hash128(bytes_of("abc")).hex() == "06b05ab6733a618578af5f94892f3950");
  for (std::size_t step : {1, 3, 64, 240, 1024, 5000}) {
    io::Hasher hasher;
    for (std::size_t at = 0; at < bytes.size(); at += step)
      hasher.update(bytes_of(std::string_view(bytes).substr(at, step)));
    CHECK(hasher.digest64() == io::hash64(bytes_of(bytes)));
    CHECK(hasher.digest128() == io::hash128(bytes_of(bytes)));
  }
  bytes[4999] ^= 1;
  io::Hasher changed;
  changed.update(bytes_of(bytes));
  bytes[4999] ^= 1;
  CHECK(!(changed.digest128() == io::hash128(bytes_of(bytes))));
}
