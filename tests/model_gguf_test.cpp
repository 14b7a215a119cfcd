#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "qf/core/json.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/model/gguf_export.hpp"
#include "qf/model/gguf_import.hpp"
#include "tests/gguf_bytes.hpp"

using namespace qf;
using qf::test::GgufBytes;

namespace {

std::string temporary(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("qf_model_gguf_" + std::to_string(getpid()) + "_" + name))
      .string();
}

// Two heads of 4 dimensions, one of keys and values, 32 hidden dimensions (as the matrices of blocks need).
struct Tiny {
  std::string arch = "llama";
  bool head = false, bias = false;
  std::uint32_t hidden = 32, heads = 2, kv_heads = 1, head_dim = 4, ffn = 32, vocab = 8;
  GgufBytes g;

  void floats(const std::string& name, std::vector<std::int64_t> ne) {
    std::size_t n = 1;
    for (std::int64_t d : ne) n *= static_cast<std::size_t>(d);
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(static_cast<float>(i + name.size())) * 0.5f;
    g.floats(name, ne, x);
  }
  void keys() {
    g.text("general.architecture", arch);
    const std::pair<const char*, std::uint32_t> sizes[] = {{".block_count", 1},
                                                           {".context_length", 64},
                                                           {".embedding_length", hidden},
                                                           {".feed_forward_length", ffn},
                                                           {".attention.head_count", heads},
                                                           {".attention.head_count_kv", kv_heads},
                                                           {".attention.key_length", head_dim},
                                                           {".attention.value_length", head_dim}};
    for (const auto& [key, value] : sizes) g.u32(arch + key, value);
    g.f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
    g.f32(arch + ".rope.freq_base", 500000.f);
  }
  void tokenizer() {
    g.text("tokenizer.ggml.model", "gpt2");
    g.text("tokenizer.ggml.pre", "smollm");
    g.texts("tokenizer.ggml.tokens", {"<|im_start|>", "<|im_end|>", "a", "b", "c", "ab", "abc", "d"});
    g.numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {3, 3, 1, 1, 1, 1, 1, 1});
    g.texts("tokenizer.ggml.merges", {"a b", "ab c"});
    g.u32("tokenizer.ggml.bos_token_id", 0);
    g.u32("tokenizer.ggml.eos_token_id", 1);
    g.text("tokenizer.chat_template", "{{ x }}");
  }
  void tensors() {
    const std::int64_t h = hidden, q = heads * head_dim, kv = kv_heads * head_dim, f = ffn;
    floats("token_embd.weight", {h, vocab});
    floats("blk.0.attn_norm.weight", {h});
    floats("blk.0.attn_q.weight", {h, q});
    floats("blk.0.attn_k.weight", {h, kv});
    floats("blk.0.attn_v.weight", {h, kv});
    if (bias) floats("blk.0.attn_q.bias", {q});
    floats("blk.0.attn_output.weight", {q, h});
    floats("blk.0.ffn_norm.weight", {h});
    floats("blk.0.ffn_gate.weight", {h, f});
    floats("blk.0.ffn_up.weight", {h, f});
    floats("blk.0.ffn_down.weight", {f, h});
    floats("output_norm.weight", {h});
    if (head) floats("output.weight", {h, vocab});
  }
  std::string write(const std::string& name) {
    keys(), tokenizer(), tensors();
    const std::string path = temporary(name);
    REQUIRE(io::write_file(path, g.text()).ok());
    return path;
  }
};

std::string config_error(GgufBytes& g) {
  const auto bytes = g.bytes();
  auto file = io::parse_gguf(bytes, "m");
  REQUIRE(file.status().text() == "");
  return model::config_from_gguf(**file).status().text();
}

std::vector<float> read(const io::Checkpoint& c, std::string_view name) {
  const io::TensorInfo* info = c.find(name);
  INFO(name);
  REQUIRE(info);
  std::vector<float> out(info->elements);
  REQUIRE(c.read_f32(*info, 0, out).text() == "");
  return out;
}

void same_tensors(const io::Checkpoint& a, const io::Checkpoint& b) {
  REQUIRE(a.tensors().size() == b.tensors().size());
  for (const io::TensorInfo& info : a.tensors()) {
    INFO(info.name);
    REQUIRE(read(a, info.name) == read(b, info.name));
    REQUIRE(b.find(info.name)->shape == info.shape);
  }
}

}  // namespace

TEST_CASE("gguf model: the configuration") {
  Tiny t;
  t.bias = true;
  auto file = io::open_gguf(t.write("config.gguf"));
  REQUIRE(file.ok());
  auto c = model::config_from_gguf(**file);
  REQUIRE(c.status().text() == "");
  REQUIRE(c->architecture == model::Architecture::llama);
  REQUIRE((c->hidden == 32 && c->heads == 2 && c->kv_heads == 1 && c->head_dim == 4 && c->vocab == 8));
  REQUIRE((c->context == 64 && c->layers == 1 && c->ffn == 32));
  REQUIRE((c->tied_head && c->qkv_bias && !c->o_bias && !c->qk_norm));
  REQUIRE(c->norm_eps == 1e-5);
  REQUIRE(c->rope.theta == 500000);
  REQUIRE(c->rope.scaling == model::RopeScaling::none);
  REQUIRE(c->bos == 0);
  REQUIRE(c->eos == std::vector<std::int32_t>{1});
  auto v = model::vocabulary_from_gguf(**file);
  REQUIRE(v.status().text() == "");
  REQUIRE((v->pre == "smollm" && v->tokens.size() == 8 && v->merges.size() == 2 && !v->add_bos &&
           !v->add_space_prefix));
  REQUIRE(*model::chat_template_from_gguf(**file) == "{{ x }}");
}

TEST_CASE("gguf model: Llama 3's factors are recognised, others are taken as they are") {
  auto config = [](const std::vector<float>& factors) {
    Tiny t;
    t.head_dim = 128, t.heads = 1, t.kv_heads = 1;
    t.keys(), t.tensors();
    t.g.floats("rope_freqs.weight", {static_cast<std::int64_t>(factors.size())}, factors);
    const auto bytes = t.g.bytes();
    auto file = io::parse_gguf(bytes, "m");
    REQUIRE(file.status().text() == "");
    auto c = model::config_from_gguf(**file);
    REQUIRE(c.status().text() == "");
    return std::move(*c);
  };
  std::vector<float> factors;  // the rule with factor 8, low 1, high 4, context 8192
  for (int i = 0; i < 64; ++i) {
    const double wave = 2 * 3.14159265358979 * std::pow(500000.0, i / 64.0), s = (8192 / wave - 1) / 3;
    factors.push_back(static_cast<float>(wave < 2048 ? 1 : wave > 8192 ? 8 : 1 / ((1 - s) / 8 + s)));
  }
  auto c = config(factors);
  REQUIRE(c.rope.scaling == model::RopeScaling::llama3);
  REQUIRE((c.rope.factor == 8 && c.rope.original_context == 8192 && c.rope.low_freq_factor == 1));
  factors[40] = 3;
  c = config(factors);
  REQUIRE(c.rope.scaling == model::RopeScaling::longrope);
  REQUIRE((c.rope.long_factor[40] == 3 && c.rope.short_factor == c.rope.long_factor &&
           c.rope.attention_factor == 1));
}

TEST_CASE("gguf model: what isn't supported is named") {
  auto with = [](auto change, bool tensors = true) {
    Tiny t;
    t.keys();
    change(t.g);
    if (tensors) t.tensors();
    return config_error(t.g);
  };
  auto nothing = [](GgufBytes&) {};
  REQUIRE(with(nothing) == "");
  REQUIRE(with(nothing, false) == "m: no tensor 'token_embd.weight'");
  REQUIRE(with([](auto& g) { g.u32("llama.expert_count", 8); }) ==
          "m: key 'llama.expert_count': a mixture of experts, which isn't supported");
  REQUIRE(with([](auto& g) { g.text("llama.rope.scaling.type", "yarn"); }) ==
          "m: key 'llama.rope.scaling.type': 'yarn', which isn't supported");
  REQUIRE(with([](auto& g) { g.u32("llama.rope.dimension_count", 6); }) ==
          "m: 6 rotating dimensions, expected an even number up to 4");
  GgufBytes none;
  REQUIRE(config_error(none) == "m: no key 'general.architecture'");
  GgufBytes other;
  other.text("general.architecture", "mamba");
  REQUIRE(config_error(other) ==
          "m: architecture 'mamba' isn't supported, expected llama, qwen2, qwen3 or phi3");
  GgufBytes zero;
  zero.text("general.architecture", "llama");
  zero.u32("llama.embedding_length", 0);
  REQUIRE(config_error(zero) == "m: key 'llama.embedding_length' is 0, expected 1 to 1073741824");
}

TEST_CASE("gguf model: rows of q and k are put apart again, those of other architectures stay") {
  for (const char* arch : {"llama", "qwen2"}) {
    Tiny t;
    t.arch = arch, t.bias = true, t.head = true;
    const std::string path = t.write(std::string(arch) + ".gguf");
    auto stored = io::open_gguf(path);
    auto hf = model::open_gguf_as_hf(path);
    REQUIRE(hf.status().text() == "");
    REQUIRE((*hf)->find("lm_head.weight"));
    const auto q = read(**stored, "blk.0.attn_q.weight"),
               as_hf = read(**hf, "model.layers.0.self_attn.q_proj.weight");
    const bool llama = t.arch == "llama";
    const int from[8] = {0, 2, 1, 3, 4, 6, 5, 7};  // pairs a0 b0 a1 b1 -> halves a0 a1 b0 b1, head by head
    for (std::size_t r = 0; r < 8; ++r) {
      const std::size_t there = llama ? static_cast<std::size_t>(from[r]) : r;
      REQUIRE(std::equal(as_hf.begin() + static_cast<std::ptrdiff_t>(r * 32),
                         as_hf.begin() + static_cast<std::ptrdiff_t>(r * 32 + 32),
                         q.begin() + static_cast<std::ptrdiff_t>(there * 32)));
    }
    const auto bias = read(**stored, "blk.0.attn_q.bias"),
               hf_bias = read(**hf, "model.layers.0.self_attn.q_proj.bias");
    REQUIRE(hf_bias[1] == bias[llama ? 2 : 1]);
    // A range that begins and ends inside rows.
    const io::TensorInfo& info = *(*hf)->find("model.layers.0.self_attn.q_proj.weight");
    std::vector<float> part(100);
    REQUIRE((*hf)->read_f32(info, 17, part).ok());
    REQUIRE(std::equal(part.begin(), part.end(), as_hf.begin() + 17));
    REQUIRE((*hf)->bytes(info).empty() == llama);
    REQUIRE(!(*hf)->read_f32(info, 256 - 50, part).ok());
    REQUIRE((*hf)->bytes(*(*hf)->find("model.layers.0.self_attn.v_proj.weight")).size() == 4 * 32 * 4);
    std::filesystem::remove(path);
  }
}

TEST_CASE("gguf model: a tensor that no model has is named") {
  Tiny t;
  t.keys(), t.tensors();
  t.g.floats("blk.0.ffn_gate_inp.weight", {1}, {1});
  const auto bytes = t.g.bytes();
  auto file = io::parse_gguf(bytes, "m");
  REQUIRE(file.ok());
  REQUIRE(model::gguf_as_hf(std::move(*file)).status().text() ==
          "m: tensor 'blk.0.ffn_gate_inp.weight' isn't part of a model of this architecture");
}

TEST_CASE("gguf model: to a folder, to GGUF again, to a folder: nothing changes") {
  for (const char* arch : {"llama", "qwen2"}) {
    Tiny t;
    t.arch = arch, t.head = true, t.bias = t.arch == "qwen2";
    const std::string path = t.write("round.gguf"), folder = temporary("folder"),
                      again = temporary("again.gguf"), second = temporary("folder2");
    REQUIRE(model::import_gguf(path, folder, {.dtype = DType::f32}).text() == "");
    auto report = model::export_gguf(folder, again, {.type = gguf::Type::f32});
    REQUIRE(report.status().text() == "");
    REQUIRE(report->fallbacks.empty());
    same_tensors(**io::open_checkpoint(folder), **model::open_gguf_as_hf(path));
    same_tensors(**io::open_checkpoint(path), **io::open_checkpoint(again));
    REQUIRE(model::import_gguf(again, second, {.dtype = DType::f32}).text() == "");
    for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json",
                             "generation_config.json"}) {
      INFO(name);
      REQUIRE(*io::read_file(folder + "/" + name, 1 << 20) == *io::read_file(second + "/" + name, 1 << 20));
    }
    auto a = io::open_gguf(path), b = io::open_gguf(again);
    auto va = model::vocabulary_from_gguf(**a), vb = model::vocabulary_from_gguf(**b);
    REQUIRE((va->tokens == vb->tokens && va->types == vb->types && va->merges == vb->merges &&
             va->bos == vb->bos));
    REQUIRE((va->pre == vb->pre && va->eos == vb->eos && va->add_bos == vb->add_bos));
    REQUIRE(*model::chat_template_from_gguf(**b) == "{{ x }}");
    for (const auto& p : {path, again}) std::filesystem::remove(p);
    for (const auto& p : {folder, second}) std::filesystem::remove_all(p);
  }
}

TEST_CASE("gguf model: a new folder appears whole or not at all") {
  Tiny t;
  const std::string path = t.write("whole.gguf"), folder = temporary("whole"),
                    work = folder + ".partial-import";
  int calls = 0;
  model::GgufImportOptions options{.dtype = DType::f32};
  options.progress = {[](void* user, const ProgressEvent&) { return ++*static_cast<int*>(user) < 3; },
                      &calls};
  REQUIRE(model::import_gguf(path, folder + "/", options).code() == Errc::cancelled);
  REQUIRE(calls == 3);
  REQUIRE_FALSE(std::filesystem::exists(folder));
  REQUIRE_FALSE(std::filesystem::exists(work));

  // What a kill left is written over.
  std::filesystem::create_directories(work);
  REQUIRE(io::write_file(work + "/config.json", "{").ok());
  REQUIRE(model::import_gguf(path, folder + "/", {.dtype = DType::f32}).text() == "");
  REQUIRE_FALSE(std::filesystem::exists(work));
  REQUIRE(std::distance(std::filesystem::directory_iterator(folder), {}) == 5);
  same_tensors(**io::open_checkpoint(folder), **model::open_gguf_as_hf(path));

  // A folder that is there, and what else it holds, stays.
  REQUIRE(io::write_file(folder + "/README", "mine").ok());
  calls = 0;
  REQUIRE(model::import_gguf(path, folder, options).code() == Errc::cancelled);
  REQUIRE(model::import_gguf(path, folder, {}).text() == "");
  REQUIRE(std::distance(std::filesystem::directory_iterator(folder), {}) == 6);
  std::filesystem::remove(path);
  std::filesystem::remove_all(folder);
}

TEST_CASE("gguf model: blocks for matrices, floats for norms, the same bytes on any threads") {
  Tiny t;
  t.ffn = 40;  // rows of ffn_down aren't whole blocks
  const std::string path = t.write("blocks.gguf"), folder = temporary("blocks"), one = temporary("one.gguf"),
                    two = temporary("two.gguf");
  REQUIRE(model::import_gguf(path, folder, {}).text() == "");
  auto report = model::export_gguf(folder, one, {.type = gguf::Type::q4_0, .name = "tiny"});
  REQUIRE(report.status().text() == "");
  REQUIRE(report->fallbacks == std::vector<std::string>{"model.layers.0.mlp.down_proj.weight",
                                                        "model.layers.0.self_attn.o_proj.weight"});
  auto file = io::open_gguf(one);
  REQUIRE((*file)->find("token_embd.weight")->type == "Q8_0");
  REQUIRE((*file)->find("blk.0.attn_q.weight")->type == "Q4_0");
  REQUIRE((*file)->find("blk.0.ffn_down.weight")->type == "F16");
  REQUIRE((*file)->find("output_norm.weight")->type == "F32");
  REQUIRE(*(*file)->string("general.name") == "tiny");
  ThreadPool pool(3);
  REQUIRE(model::export_gguf(folder, two,
                             {.type = gguf::Type::q4_0, .name = "tiny", .parallel = pool.parallel_for()})
              .ok());
  REQUIRE(*io::read_file(one, 1 << 24) == *io::read_file(two, 1 << 24));
  for (const auto& p : {path, one, two}) std::filesystem::remove(p);
  std::filesystem::remove_all(folder);
}

TEST_CASE("gguf model: a folder that can't be exported says why and leaves nothing") {
  Tiny t;
  const std::string path = t.write("why.gguf"), folder = temporary("why"), out = temporary("why-out.gguf");
  REQUIRE(model::import_gguf(path, folder, {}).ok());
  auto text = [&](model::GgufExportOptions o = {}) {
    return model::export_gguf(folder, out, o).status().text();
  };
  REQUIRE(text({.type = gguf::Type::q4_k}) ==
          "writing type Q4_K, expected F32, F16, BF16, Q4_0, Q4_1 or Q8_0");
  const std::string good = *io::read_file(folder + "/tokenizer.json", 1 << 20);
  auto edit = [&](auto change) {
    auto j = *parse_json(good, "t");
    change(j);
    REQUIRE(io::write_file(folder + "/tokenizer.json", j.dump()).ok());
    return text();
  };
  REQUIRE(edit([](Json& j) { j["model"]["type"] = "Unigram"; }) ==
          folder + ": tokenizer.json: a model of type 'Unigram', expected BPE");
  REQUIRE(edit([](Json& j) { j["model"]["vocab"]["d"] = 99; }) ==
          folder + ": tokenizer.json: token 'd' has the id 99, the model has 8");
  REQUIRE(edit([](Json& j) {
            j["pre_tokenizer"]["pretokenizers"].erase(0);
            j["normalizer"] = {{"type", "NFC"}};
          }) ==
          folder + ": tokenizer.json: a pre-tokenizer that GGUF has no name for: ByteLevel, NFC, pattern ''");
  REQUIRE(edit([](Json& j) { j["model"]["merges"][0] = 5; }) ==
          folder + ": tokenizer.json: a merge that is no pair");
  REQUIRE(io::write_file(folder + "/tokenizer.json", good).ok());
  const std::string config = *io::read_file(folder + "/config.json", 1 << 20);
  auto reconfigure = [&](const char* key, int value) {
    auto j = *parse_json(config, "c");
    j[key] = value;
    REQUIRE(io::write_file(folder + "/config.json", j.dump()).ok());
    return text();
  };
  REQUIRE(reconfigure("num_hidden_layers", 2) ==
          folder + ": tensor 'model.layers.1.input_layernorm.weight' is missing, expected [32]");
  REQUIRE(reconfigure("intermediate_size", 64) ==
          folder +
              ": tensor 'model.layers.0.mlp.gate_proj.weight' has shape [32, 32], expected [64, 32] from the "
              "configuration");
  REQUIRE(io::write_file(folder + "/config.json", config).ok());
  const std::string weights = folder + "/model.safetensors";
  std::string bytes = *io::read_file(weights, 1 << 20);
  bytes.replace(bytes.find("\"BF16\""), 6, "\"I16\" ");
  REQUIRE(io::write_file(weights, bytes).ok());
  REQUIRE(text().find("has type 'I16', expected F32, F16, BF16 or F64") != std::string::npos);
  REQUIRE(!std::filesystem::exists(out));
  std::filesystem::remove(path);
  std::filesystem::remove_all(folder);
}

TEST_CASE("gguf model: SentencePiece scores and merges give one another") {
  Tiny t;
  t.keys(), t.tensors();
  t.g.text("tokenizer.ggml.model", "llama");
  t.g.texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x0A>", "a", "b", "ab", "aba"});
  t.g.numbers<float>("tokenizer.ggml.scores", 6, {0, 0, 0, 0, 0, 0, -1, -2});
  t.g.numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {2, 3, 3, 6, 1, 1, 1, 1});
  t.g.u32("tokenizer.ggml.bos_token_id", 1), t.g.u32("tokenizer.ggml.eos_token_id", 2);
  t.g.u32("tokenizer.ggml.unknown_token_id", 0);
  const std::string path = temporary("spm.gguf"), folder = temporary("spm"), again = temporary("spm2.gguf");
  REQUIRE(io::write_file(path, t.g.text()).ok());
  REQUIRE(model::import_gguf(path, folder, {}).text() == "");
  auto json = parse_json(*io::read_file(folder + "/tokenizer.json", 1 << 20), "t");
  REQUIRE((*json)["model"]["merges"].dump() == R"([["a","b"],["ab","a"]])");
  REQUIRE((*json)["post_processor"]["single"].dump() ==
          R"([{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}])");
  REQUIRE(model::export_gguf(folder, again, {.type = gguf::Type::f32}).status().text() == "");
  auto file = io::open_gguf(again);
  auto v = model::vocabulary_from_gguf(**file);
  REQUIRE(v.status().text() == "");
  REQUIRE(v->model == "llama");
  REQUIRE(v->scores == std::vector<float>{0, 0, 0, 0, 0, 0, -1, -2});
  REQUIRE(v->types == std::vector<std::int32_t>{2, 3, 3, 6, 1, 1, 1, 1});
  REQUIRE((v->add_bos && !v->add_eos && v->add_space_prefix && v->unk == 0));
  for (const auto& p : {path, again}) std::filesystem::remove(p);
  std::filesystem::remove_all(folder);
}
