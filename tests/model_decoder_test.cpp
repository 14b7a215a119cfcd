#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "qf/core/json.hpp"
#include "qf/io/safetensors_writer.hpp"
#include "qf/model/kv_flat.hpp"
#include "tests/model_test.hpp"

using namespace model_test;
using qf::Errc;
using qf::model::Decoder;
using qf::model::KvF32;

namespace {

namespace fs = std::filesystem;

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  qf::DType dtype = qf::DType::f32;
};
using Tensors = std::map<std::string, Tensor>;

// A copy of a golden model with some tensors and keys changed; removed when it goes out of scope.
class Changed {
 public:
  Changed(const std::string& name, const std::function<void(Tensors&, qf::Json&)>& change) {
    static int count = 0;
    folder_ = (fs::temp_directory_path() /
               ("qf-model-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++)))
                  .string();
    fs::create_directories(folder_);
    auto file = qf::io::open_checkpoint(golden(name));
    REQUIRE(file.ok());
    Tensors tensors;
    for (const qf::io::TensorInfo& info : (*file)->tensors()) {
      Tensor t{info.shape, std::vector<float>(info.elements)};
      REQUIRE((*file)->read_f32(info, 0, t.values).ok());
      tensors[info.name] = std::move(t);
    }
    std::ifstream in(golden(name) + "/config.json");
    qf::Json config = qf::Json::parse(in);
    change(tensors, config);
    std::ofstream(folder_ + "/config.json") << config.dump();
    std::vector<qf::io::TensorSpec> specs;
    for (const auto& [key, t] : tensors) specs.push_back({key, t.dtype, t.shape});
    auto writer = qf::io::SafetensorsWriter::create(folder_ + "/model.safetensors", specs);
    REQUIRE(writer.ok());
    for (const auto& [key, t] : tensors) {
      if (t.dtype == qf::DType::f32) {
        REQUIRE(writer->write_f32(key, t.values).ok());
      } else {  // integers: zeros will do
        const std::vector<std::byte> zeros(t.values.size() *
                                           static_cast<std::size_t>(qf::dtype_bits(t.dtype)) / 8);
        REQUIRE(writer->write(key, zeros).ok());
      }
    }
    REQUIRE(writer->commit().ok());
  }
  ~Changed() { fs::remove_all(folder_); }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

// The error of loading, without the folder's name.
std::string load_error(const std::string& name, const std::function<void(Tensors&, qf::Json&)>& change) {
  const Changed changed(name, change);
  auto decoder = Decoder::load(changed.folder());
  REQUIRE_FALSE(decoder.ok());
  std::string text = decoder.status().text();
  REQUIRE(text.starts_with(changed.folder()));
  return text.substr(changed.folder().size());
}

}  // namespace

TEST_CASE("a checkpoint that doesn't fit its configuration is refused by tensor") {
  const auto file = [](const std::string& text) { return Catch::EndsWith(": " + text); };
  CHECK_THAT(
      load_error("llama2", [](Tensors& t, qf::Json&) { t.erase("model.layers.1.mlp.up_proj.weight"); }),
      file("tensor 'model.layers.1.mlp.up_proj.weight' is missing, expected [20, 24]"));
  CHECK_THAT(load_error("llama2", [](Tensors& t, qf::Json&) { t.erase("lm_head.weight"); }),
             file("tensor 'lm_head.weight' is missing, expected [34, 24]"));
  CHECK_THAT(
      load_error("qwen2", [](Tensors& t, qf::Json&) { t.erase("model.layers.0.self_attn.k_proj.bias"); }),
      file("tensor 'model.layers.0.self_attn.k_proj.bias' is missing, expected [16]"));
  CHECK_THAT(load_error("llama2",
                        [](Tensors& t, qf::Json&) {
                          t["model.norm.weight"] = {{25}, std::vector<float>(25)};
                        }),
             file("tensor 'model.norm.weight' has shape [25], expected [24] from the configuration"));
  CHECK_THAT(load_error("llama2",
                        [](Tensors& t, qf::Json&) {
                          std::swap(t["model.layers.0.mlp.up_proj.weight"].shape[0],
                                    t["model.layers.0.mlp.up_proj.weight"].shape[1]);
                        }),
             file("tensor 'model.layers.0.mlp.up_proj.weight' has shape [24, 20], expected [20, 24] from the "
                  "configuration"));
  CHECK_THAT(
      load_error("llama2", [](Tensors&, qf::Json& c) { c["vocab_size"] = 35; }),
      file(
          "tensor 'model.embed_tokens.weight' has shape [34, 24], expected [35, 24] from the configuration"));
  CHECK_THAT(load_error("llama2",
                        [](Tensors& t, qf::Json&) {
                          t["model.layers.0.self_attn.q_proj.bias"] = {{24}, std::vector<float>(24)};
                        }),
             file("tensor 'model.layers.0.self_attn.q_proj.bias' belongs to no part of the model that the "
                  "configuration describes"));
  CHECK_THAT(
      load_error("llama2",
                 [](Tensors& t, qf::Json&) { t["model.layers.0.mlp.down_proj.weight"].values[7] = NAN; }),
      file("tensor 'model.layers.0.mlp.down_proj.weight' holds NaN or infinity"));
  CHECK_THAT(load_error("llama2", [](Tensors& t, qf::Json&) { t["model.norm.weight"].values[7] = INFINITY; }),
             file("tensor 'model.norm.weight' holds NaN or infinity"));
  CHECK_THAT(load_error("llama2", [](Tensors& t, qf::Json&) { t["lm_head.weight"].dtype = qf::DType::i8; }),
             file("tensor 'lm_head.weight' has type 'I8', expected F32, F16, BF16 or F64"));
  CHECK_THAT(load_error("smollm2",
                        [](Tensors& t, qf::Json&) {
                          t["lm_head.weight"] = t["model.embed_tokens.weight"];
                          t["lm_head.weight"].values[36 * 5 + 1] += 1;
                        }),
             file("tensor 'lm_head.weight' differs from 'model.embed_tokens.weight' in row 5, but "
                  "'tie_word_embeddings' says they are one"));
  CHECK_THAT(load_error("llama2", [](Tensors&, qf::Json& c) { c.erase("hidden_size"); }),
             Catch::Equals("/config.json: 'hidden_size' is missing"));
}

TEST_CASE("tensors that old checkpoints carry along are fine") {
  const Expected want = expected(golden("smollm2"));
  const Changed changed("smollm2", [](Tensors& t, qf::Json&) {
    t["lm_head.weight"] = t["model.embed_tokens.weight"];
    t["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{6}, std::vector<float>(6, 1.0f)};
  });
  auto decoder = load(changed.folder());
  CHECK(relative_error(run(*decoder, want.ids, 100), want.logits) < 1e-5);
}

TEST_CASE("what isn't a model says so") {
  CHECK(Decoder::load("/nonexistent/model").status().text() == "/nonexistent/model: no such file or folder");
  CHECK(Decoder::load("/nonexistent/model").status().code() == Errc::not_found);
  const std::string folder = golden("");
  CHECK(Decoder::load(folder).status().text() == folder + "/config.json: No such file or directory");
  const std::string file = golden("llama2/config.json");
  CHECK(Decoder::load(file).status().text() == file +
                                                   ": a single file that isn't GGUF, expected a GGUF file or "
                                                   "a folder with config.json and safetensors");
}

TEST_CASE("wrong calls leave the cache as it was") {
  auto decoder = load(golden("llama2"));
  auto kv = decoder->make_kv(8);
  REQUIRE(kv.ok());
  std::vector<float> logits(34 * 16);
  const auto call = [&](std::vector<std::int32_t> ids, std::int64_t rows, std::int64_t columns) {
    return decoder->forward(ids, **kv, {logits.data(), {rows, columns}}).text();
  };
  CHECK(call({1, 2, 3}, 1, 34) == "");
  CHECK(call({1, -1}, 0, 34) == "token 1 has id -1, expected 0 to 33");
  CHECK(call({34}, 0, 34) == "token 0 has id 34, expected 0 to 33");
  CHECK(call({1, 2}, 3, 34) == "logits of shape [3, 34] for 2 tokens and a vocabulary of 34");
  CHECK(call({1, 2}, 1, 33) == "logits of shape [1, 33] for 2 tokens and a vocabulary of 34");
  CHECK(call({1, 2, 3, 4, 5, 6}, 0, 34) == "the cache is full: 3 of 8 tokens held, 6 more don't fit");
  CHECK((*kv)->length() == 3);
  CHECK(call({1, 2, 3, 4, 5}, 5, 34) == "");
  CHECK(call({1}, 0, 34) == "the cache is full: 8 of 8 tokens held, 1 more don't fit");
  CHECK(call({}, 0, 34) == "");
  CHECK((*kv)->truncate(9).text() == "a cache of 8 tokens can't be cut to 9");
  CHECK((*kv)->truncate(-1).text() == "a cache of 8 tokens can't be cut to -1");
}

TEST_CASE("cutting a cache and going on equals never having been there") {
  for (const char* name : {"llama3", "mistral", "qwen2", "phi3_long"}) {
    CAPTURE(name);
    auto decoder = load(golden(name));
    const Expected want = expected(golden(name));
    const auto count = static_cast<std::int64_t>(want.ids.size());
    auto kv = decoder->make_kv(count);
    REQUIRE(kv.ok());
    run(*decoder, want.ids, count, **kv);
    const std::int64_t keep = count / 3;
    REQUIRE((*kv)->truncate(keep).ok());
    const std::span<const std::int32_t> rest(want.ids.begin() + keep, want.ids.end());
    const std::vector<float> again = run(*decoder, rest, 5, **kv);
    const std::vector<float> whole = run(*decoder, want.ids, count);
    CHECK(std::equal(again.begin(), again.end(), whole.begin() + keep * decoder->config().vocab));
  }
}

TEST_CASE("the same bits on any number of threads") {
  for (const char* name : {"llama3", "mistral", "phi3_long"}) {
    CAPTURE(name);
    const Expected want = expected(golden(name));
    const std::vector<float> one = run(*load(golden(name)), want.ids, 100);
    for (int threads : {2, 7}) {
      CAPTURE(threads);
      qf::ThreadPool pool(threads);
      auto decoder = load(golden(name), {.parallel = pool.parallel_for()});
      CHECK(run(*decoder, want.ids, 100) == one);
      CHECK(run(*decoder, want.ids, 1) == one);
    }
  }
}

TEST_CASE("loading can be cancelled") {
  qf::model::LoadOptions options;
  int left = 5;
  options.progress = {[](void* user, const qf::ProgressEvent& event) {
                        CHECK(event.stage == "load");
                        return --*static_cast<int*>(user) > 0;
                      },
                      &left};
  CHECK(Decoder::load(golden("llama2"), options).status().code() == Errc::cancelled);
}

TEST_CASE("memory of weights and caches") {
  auto decoder = load(golden("smollm2"));
  CHECK(decoder->weight_bytes() >= 12636 * 2);  // bf16 stays bf16; rows are padded to 16
  CHECK(decoder->weight_bytes() < 2 * 12636 * 2);
  CHECK(KvF32::make(0, 1, 1, 1).status().text() == "a cache of 0 layers, 1 heads of 1 and 1 tokens");
  CHECK(KvF32::make(1 << 20, 1 << 20, 1 << 20, 1 << 20).status().code() == Errc::invalid_argument);
  static constexpr qf::Allocator kNone{[](void*, std::size_t, std::size_t) -> void* { return nullptr; },
                                       [](void*, void*, std::size_t) {}, nullptr};
  CHECK(KvF32::make(2, 1, 8, 16, kNone).status().code() == Errc::out_of_memory);
  CHECK(decoder->make_kv(-1).status().code() == Errc::invalid_argument);
}

TEST_CASE("the cache keeps heads apart") {
  auto kv = KvF32::make(2, 2, 3, 4);
  REQUIRE(kv.ok());
  float keys[2 * 2 * 3], values[2 * 2 * 3];
  for (int i = 0; i < 12; ++i) keys[i] = static_cast<float>(i), values[i] = static_cast<float>(100 + i);
  REQUIRE((*kv)->append(1, 2, keys, values).ok());
  (*kv)->commit(2);
  std::int64_t stride = 0;
  const auto* head = static_cast<const float*>((*kv)->keys(1, 1, &stride));
  CHECK(head[0] == 3);
  CHECK(head[stride + 2] == 11);
  CHECK(static_cast<const float*>((*kv)->values(1, 0, &stride))[stride] == 106);
  CHECK((*kv)->append(2, 1, keys, values).text() == "layer 2 of a cache with 2");
  CHECK((*kv)->append(0, 3, keys, values).text() ==
        "the cache is full: 2 of 4 tokens held, 3 more don't fit");
}

TEST_CASE("a cache of f16 rounds keys and values") {
  auto kv = qf::model::KvF16::make(1, 1, 21, 2);
  REQUIRE(kv.ok());
  float keys[21], values[21];
  for (int i = 0; i < 21; ++i) keys[i] = 1.0f / static_cast<float>(i + 3), values[i] = -keys[i];
  keys[20] = 1e6f;
  REQUIRE((*kv)->append(0, 1, keys, values).ok());
  (*kv)->commit(1);
  CHECK((*kv)->dtype() == qf::DType::f16);
  std::int64_t stride = 0;
  const auto *k = static_cast<const qf::f16*>((*kv)->keys(0, 0, &stride)),
             *v = static_cast<const qf::f16*>((*kv)->values(0, 0, &stride));
  for (int i = 0; i < 21; ++i) {
    CHECK(k[i].bits == qf::f16(keys[i]).bits);
    CHECK(v[i].bits == qf::f16(values[i]).bits);
  }
}

TEST_CASE("a decoder takes caches of f32 and f16") {
  qf::model::LoadOptions fast;
  fast.accuracy = qf::kernel::Accuracy::fast;
  const auto exact = load(golden("llama2")), other = load(golden("llama2"), fast);
  const Expected want = expected(golden("llama2"));
  CHECK((*exact->make_kv(4))->dtype() == qf::DType::f32);
  CHECK((*other->make_kv(4))->dtype() == qf::DType::f16);
  const std::vector<float> a = run(*exact, want.ids, 100), b = run(*other, want.ids, 100);
  CHECK(a != b);
  CHECK(relative_error(b, a) < 2e-3);
}
