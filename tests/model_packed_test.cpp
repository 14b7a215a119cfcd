#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "qf/io/compressed_tensors.hpp"
#include "qf/io/safetensors_writer.hpp"
#include "tests/model_test.hpp"

using namespace model_test;
using qf::QuantizedMatrix;
using qf::Scheme;
using qf::model::Compute;
using qf::model::Decoder;

namespace {

namespace fs = std::filesystem;

// Rounds to the nearest code of the group's range; how good that is doesn't matter here.
QuantizedMatrix quantize(const std::vector<float>& values, std::int64_t n, std::int64_t k,
                         const Scheme& scheme) {
  auto made = QuantizedMatrix::make(scheme, n, k);
  REQUIRE(made.ok());
  QuantizedMatrix q = std::move(*made);
  const bool symmetric = scheme.zero == qf::ZeroKind::symmetric;
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t g = 0; g < q.groups(); ++g) {
      const std::int64_t begin = g * q.group_size(), end = std::min(k, begin + q.group_size());
      float lo = 0, hi = 0;
      for (std::int64_t c = begin; c < end; ++c)
        lo = std::min(lo, values[static_cast<std::size_t>(r * k + c)]),
        hi = std::max(hi, values[static_cast<std::size_t>(r * k + c)]);
      if (symmetric) hi = std::max(hi, -lo), lo = -hi;
      const auto top = static_cast<float>(scheme.levels() - 1);
      const float scale = qf::round_to(scheme.scale, (hi - lo) / top);
      const float zero = symmetric ? scheme.symmetric_zero() : std::round(-lo / scale);
      q.scales()(r, g) = scale;
      if (!symmetric) q.zeros()(r, g) = zero;
      for (std::int64_t c = begin; c < end; ++c)
        q.codes()(r, c) = static_cast<std::uint8_t>(
            std::clamp(std::round(values[static_cast<std::size_t>(r * k + c)] / scale) + zero, 0.0f, top));
    }
  return q;
}

// A golden model with its decoder linears, and the embedding if asked, in few bits (packed/) and the same values as
// floats (float/).
class LowBit {
 public:
  LowBit(const std::string& name, const Scheme& scheme, bool embedding = false) {
    static int count = 0;
    path_ = (fs::temp_directory_path() /
             ("qf-packed-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++)))
                .string();
    for (const char* side : {"/packed", "/float"}) fs::create_directories(path_ + side);
    auto file = qf::io::open_checkpoint(golden(name));
    REQUIRE(file.ok());
    std::vector<qf::io::StoredTensor> packed;
    std::map<std::string, std::vector<float>> floats;
    std::vector<qf::io::TensorSpec> float_specs;
    for (const qf::io::TensorInfo& info : (*file)->tensors()) {
      std::vector<float> values(info.elements);
      REQUIRE((*file)->read_f32(info, 0, values).ok());
      const std::string module = info.name.substr(0, info.name.rfind('.'));
      if (info.name.ends_with("_proj.weight") || (embedding && module == "model.embed_tokens")) {
        const std::int64_t n = info.shape[0], k = info.shape[1];
        const QuantizedMatrix q = quantize(values, n, k, scheme);
        for (std::int64_t r = 0; r < n; ++r) q.dequantize_row(r, values.data() + r * k);
        auto tensors = qf::io::tensors_of(q, module);
        INFO(tensors.status().text());
        REQUIRE(tensors.ok());
        for (qf::io::StoredTensor& t : *tensors) packed.push_back(std::move(t));
      } else {
        qf::io::StoredTensor t{{info.name, qf::DType::f32, info.shape}, {}};
        const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
        t.bytes.assign(bytes, bytes + values.size() * sizeof(float));
        packed.push_back(std::move(t));
      }
      float_specs.push_back({info.name, qf::DType::f32, info.shape});
      floats[info.name] = std::move(values);
    }
    std::vector<qf::io::TensorSpec> specs;
    for (const auto& t : packed) specs.push_back(t.spec);
    auto writer = qf::io::SafetensorsWriter::create(path_ + "/packed/model.safetensors", specs);
    REQUIRE(writer.ok());
    for (const auto& t : packed) REQUIRE(writer->write(t.spec.name, t.bytes).ok());
    REQUIRE(writer->commit().ok());
    auto float_writer = qf::io::SafetensorsWriter::create(path_ + "/float/model.safetensors", float_specs);
    REQUIRE(float_writer.ok());
    for (const auto& [key, values] : floats) REQUIRE(float_writer->write_f32(key, values).ok());
    REQUIRE(float_writer->commit().ok());

    std::ifstream in(golden(name) + "/config.json");
    config_ = std::string(std::istreambuf_iterator<char>(in), {});
    std::ofstream(path_ + "/float/config.json") << config_;
    qf::io::QuantizationConfig quantization;
    qf::io::QuantizationGroup group;
    group.targets = {"Linear"};
    if (embedding) group.targets.push_back("model.embed_tokens");
    group.scheme = scheme;
    quantization.groups = {group};
    quantization.ignore = {"lm_head"};
    auto with = qf::io::with_quantization_config(config_, "config.json", quantization);
    INFO(with.status().text());
    REQUIRE(with.ok());
    std::ofstream(path_ + "/packed/config.json") << *with;
  }
  ~LowBit() { fs::remove_all(path_); }
  std::string packed() const { return path_ + "/packed"; }
  std::string floats() const { return path_ + "/float"; }
  void drop_quantization_config() const { std::ofstream(path_ + "/packed/config.json") << config_; }

 private:
  std::string path_, config_;
};

}  // namespace

TEST_CASE("low-bit weights give the logits of their float values") {
  for (const char* name : {"llama2", "qwen2", "qwen3", "phi3_short"})
    for (const Scheme& scheme :
         {Scheme{.bits = 4, .group = 8}, Scheme{.bits = 3, .group = 0, .zero = qf::ZeroKind::symmetric},
          Scheme{.bits = 8, .group = 16, .scale = qf::DType::f32}}) {
      CAPTURE(name, qf::scheme_name(scheme));
      const LowBit model(name, scheme);
      const Expected want = expected(golden(name));
      const std::vector<float> floats = run(*load(model.floats()), want.ids, 100);
      CHECK(run(*load(model.packed(), {.compute = Compute::f32}), want.ids, 100) == floats);  // the same bits
      auto packed = load(model.packed(), {.compute = Compute::packed});
      const std::vector<float> whole = run(*packed, want.ids, 100);
      CHECK(relative_error(whole, floats) < 1e-5);
      CHECK(relative_error(run(*packed, want.ids, 1), floats) < 1e-5);
      CHECK(relative_error(run(*packed, want.ids, 7), floats) < 1e-5);
      for (int threads : {2, 7}) {
        qf::ThreadPool pool(threads);
        CHECK(run(*load(model.packed(), {.parallel = pool.parallel_for()}), want.ids, 100) == whole);
      }
    }
}

TEST_CASE("a low-bit embedding is expanded, and serves a tied head too") {
  for (const char* name : {"llama2", "smollm2"}) {
    CAPTURE(name);
    const LowBit model(name, {.bits = 8, .group = 12}, true);
    const Expected want = expected(golden(name));
    const std::vector<float> floats = run(*load(model.floats()), want.ids, 100);
    CHECK(run(*load(model.packed(), {.compute = Compute::f32}), want.ids, 100) == floats);
    CHECK(relative_error(run(*load(model.packed()), want.ids, 100), floats) < 1e-5);
  }
}

TEST_CASE("low-bit weights without their configuration are refused") {
  const LowBit model("llama2", {.bits = 4, .group = 8});
  model.drop_quantization_config();
  CHECK_THAT(Decoder::load(model.packed()).status().text(),
             Catch::EndsWith(
                 ": module 'model.layers.0.self_attn.q_proj' is stored in few bits, but config.json has no "
                 "'quantization_config'"));
}
