#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "qf/io/checkpoint.hpp"
#include "qf/io/compressed_tensors.hpp"
#include "qf/io/quantization_config.hpp"
#include "qf/quant/pipeline.hpp"
#include "qf/quant/rtn.hpp"
#include "tests/quant_files.hpp"

using namespace qf;
using namespace qf::quant;
using namespace quant_test;

namespace {

Recipe recipe_of(const std::string& rules) {
  auto recipe = Recipe::parse("{\"version\": 1, \"rules\": [" + rules + "]}", "r.json");
  INFO(recipe.status().text());
  REQUIRE(recipe.ok());
  return std::move(*recipe);
}

void run_threads(void*, std::int64_t count, void (*body)(void*, std::int64_t), void* context) {
  std::vector<std::thread> pool;
  for (std::int64_t t = 0; t < 3; ++t)
    pool.emplace_back([=] {
      for (std::int64_t i = count - 1 - t; i >= 0; i -= 3) body(context, i);
    });
  for (std::thread& t : pool) t.join();
}

}  // namespace

TEST_CASE("pipeline: a checkpoint becomes a compressed-tensors folder that holds what RTN says") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  const auto tensors = tiny_tensors(2);
  REQUIRE(make_checkpoint(in, tensors));
  auto report = quantize_checkpoint(in, out + "/", w4());
  INFO(report.status().text());
  REQUIRE(report.ok());
  REQUIRE_FALSE(exists(out + ".partial"));
  const auto files = contents(out);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files) names.push_back(name);
  REQUIRE(names == std::vector<std::string>{"config.json", "merges.txt", "model.safetensors",
                                            "qf_report.json", "tokenizer.json", "tokenizer_config.json"});
  REQUIRE(files.at("tokenizer.json") == "{\"model\": {}}");

  auto source = io::open_checkpoint(in);
  auto result = io::open_checkpoint(out);
  REQUIRE(result.ok());
  auto config = io::parse_quantization_config(files.at("config.json"), "config.json");
  REQUIRE(config.ok());
  REQUIRE(config->has_value());
  REQUIRE(nlohmann::json::parse(files.at("config.json")).at("hidden_size") == 64);
  std::size_t quantized = 0;
  for (const io::TensorInfo& info : (*source)->tensors()) {
    INFO(info.name);
    const bool linear = info.name.find("_proj.weight") != std::string::npos;
    if (!linear) {
      const io::TensorInfo* kept = (*result)->find(info.name);
      REQUIRE(kept);
      REQUIRE(kept->shape == info.shape);
      const auto a = (*source)->bytes(info), b = (*result)->bytes(*kept);
      REQUIRE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
      continue;
    }
    ++quantized;
    auto stored = io::read_quantized(**result, info.name.substr(0, info.name.size() - 7), **config);
    INFO(stored.status().text());
    REQUIRE(stored.ok());
    std::vector<float> w(info.elements);
    REQUIRE((*source)->read_f32(info, 0, w).ok());
    const MatrixView<const float> view(w.data(), {info.shape[0], info.shape[1]});
    auto expected = Rtn{}.quantize({.w = view, .scheme = {.bits = 4, .group = 32}, .name = info.name});
    REQUIRE(stored->scheme() == expected->scheme());
    for (std::int64_t r = 0; r < stored->n(); ++r)
      for (std::int64_t c = 0; c < stored->k(); ++c) REQUIRE(stored->value(r, c) == expected->value(r, c));
    auto error = measure_error(view, *stored);
    for (const TensorReport& tensor : report->tensors)
      if (tensor.plan.name == info.name) REQUIRE(tensor.error.error_squares == error->error_squares);
  }
  REQUIRE(quantized == 6);
  // The embedding isn't a linear, the tied head isn't quantized.
  REQUIRE(std::count((*config)->ignore.begin(), (*config)->ignore.end(), "lm_head") == 1);

  const auto json = nlohmann::json::parse(files.at("qf_report.json"));
  REQUIRE(json.at("tensors").size() == tensors.size());
  REQUIRE(json.at("totals").at("source_bytes") == report->source_bytes);
  for (const auto& tensor : json.at("tensors"))
    if (tensor.at("action") == "quantize") {
      REQUIRE(tensor.at("frobenius_error") <= tensor.at("frobenius_bound").get<double>() * (1 + kBoundSlack));
      REQUIRE(tensor.at("max_error_steps") <= 0.5 * (1 + kBoundSlack));
      REQUIRE(tensor.at("snr_db") > 18);
    }
}

TEST_CASE("pipeline: the plan says what the run does, and writes nothing") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  REQUIRE(make_checkpoint(in, tiny_tensors(3), 2));
  const Recipe recipe =
      recipe_of(R"({"match": "*.q_proj.weight", "method": "rtn", "bits": 3, "group": 16, "symmetric": true},
    {"match": "nothing.*", "keep": true}, {"match": "*embed*", "dtype": "f16"},
    {"match": "*.down_proj.weight", "method": "rtn", "bits": 8})");
  PipelineOptions options;
  options.max_shard_bytes = 20000;
  auto plan = plan_checkpoint(in, recipe, options);
  INFO(plan.status().text());
  REQUIRE(plan.ok());
  REQUIRE(contents(temp.path()).size() == contents(in).size() + 1);
  REQUIRE(plan->unused_rules == std::vector<std::size_t>{1});
  REQUIRE(plan->shards > 1);
  auto report = quantize_checkpoint(in, out, recipe, options);
  INFO(report.status().text());
  REQUIRE(report.ok());
  REQUIRE(report->shards == plan->shards);
  std::uint64_t bytes = 0;
  for (const auto& [name, text] : contents(out))
    if (name.find(".safetensors") != std::string::npos && name.find(".json") == std::string::npos) {
      REQUIRE(text.size() < 25000);
      bytes += text.size();
    }
  REQUIRE(bytes == plan->file_bytes);
  REQUIRE(plan->peak_memory_bytes > 0);
  for (const TensorPlan& tensor : plan->tensors)
    if (tensor.name == "model.embed_tokens.weight") {
      REQUIRE(tensor.action == Action::convert);
      REQUIRE(tensor.output_bytes == 50 * 64 * 2);
      REQUIRE(tensor.rule == 2);
    }
  // Two schemes: both groups name their modules.
  auto config = io::parse_quantization_config(slurp(out + "/config.json"), "config.json");
  INFO(config.status().text());
  REQUIRE(config.ok());
  REQUIRE((*config)->groups.size() == 2);
  auto result = io::open_checkpoint(out);
  INFO(result.status().text());
  REQUIRE(result.ok());
  REQUIRE(io::read_quantized(**result, "model.layers.2.self_attn.q_proj", **config)->scheme().bits == 3);
  REQUIRE(io::read_quantized(**result, "model.layers.2.mlp.down_proj", **config)->scheme().bits == 8);
}

TEST_CASE("pipeline: the same bytes for any threads, slabs and shards of the source") {
  const TempFolder temp;
  REQUIRE(make_checkpoint(temp / "in", tiny_tensors(2)));
  REQUIRE(make_checkpoint(temp / "in3", tiny_tensors(2), 3));
  const Recipe recipe =
      recipe_of(R"({"match": "*proj.weight", "method": "rtn", "bits": 5, "group": 24, "scale": "bf16"},
    {"match": "*", "dtype": "f32"})");
  REQUIRE(quantize_checkpoint(temp / "in", temp / "a", recipe).ok());
  const auto expected = contents(temp / "a");
  PipelineOptions options;
  options.parallel = {run_threads, nullptr, 3};
  REQUIRE(quantize_checkpoint(temp / "in", temp / "b", recipe, options).ok());
  REQUIRE(contents(temp / "b") == expected);
  options.slab_bytes = 1;
  REQUIRE(quantize_checkpoint(temp / "in", temp / "c", recipe, options).ok());
  REQUIRE(contents(temp / "c") == expected);
  REQUIRE(quantize_checkpoint(temp / "in3", temp / "d", recipe, options).ok());
  REQUIRE(slurp(temp / "d/model.safetensors") == expected.at("model.safetensors"));
}

TEST_CASE("pipeline: what can't be done is refused by name, before anything is written") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  REQUIRE(make_checkpoint(in, tiny_tensors(1)));
  const auto fails = [&](const Recipe& recipe, const std::string& text, const std::string& from, Errc code) {
    auto report = quantize_checkpoint(from, out, recipe);
    REQUIRE_FALSE(report.ok());
    REQUIRE(report.status().text() == text);
    REQUIRE(report.status().code() == code);
    REQUIRE_FALSE(exists(out));
    REQUIRE_FALSE(exists(out + ".partial"));
  };
  fails(recipe_of(R"({"match": "*norm*", "method": "rtn", "bits": 4})"),
        in + ": tensor 'model.layers.0.input_layernorm.weight' (rule 1): 1-dimensional, a matrix expected",
        in, Errc::invalid_argument);
  fails(recipe_of(R"({"match": "a", "keep": true}, {"match": "*q_proj*", "method": "kl", "bits": 4})"),
        "method 'kl' (rule 2) is not available in this version; available: rtn, awq, gptq, best", in,
        Errc::unsupported);
  fails(w4(), (temp / "none") + ": cannot be opened: No such file or directory", temp / "none",
        Errc::not_found);

  // Already quantized, by its config or by its tensors.
  REQUIRE(quantize_checkpoint(in, temp / "once", w4()).ok());
  fails(w4(),
        (temp / "once") +
            ": is already quantized (config.json has 'quantization_config', method 'compressed-tensors')",
        temp / "once", Errc::invalid_argument);
  put(temp / "once/config.json", kConfig);
  auto report = quantize_checkpoint(temp / "once", out, w4());
  REQUIRE(report.status().text().find(": is already quantized (tensor 'model.layers.0.") !=
          std::string::npos);

  const std::string integers = temp / "integers";
  REQUIRE(make_checkpoint(integers, {{"x.weight", DType::f32, {4, 4}}}));
  std::string file = slurp(integers + "/model.safetensors");
  file.replace(file.find("\"F32\""), 5, "\"I32\"");
  put(integers + "/model.safetensors", file);
  fails(recipe_of(R"({"match": "*", "method": "rtn", "bits": 4})"),
        integers + ": tensor 'x.weight' (rule 1): type 'I32', one of F32, F16, BF16, F64 expected", integers,
        Errc::invalid_argument);
  REQUIRE(quantize_checkpoint(integers, out, w4()).ok());  // kept as it is
  REQUIRE(slurp(out + "/model.safetensors").find("\"I32\"") != std::string::npos);

  REQUIRE(quantize_checkpoint(in, out, w4()).status().text() ==
          out + ": exists; choose another output or overwrite it");
  REQUIRE(quantize_checkpoint(in, temp / "no/such/out", w4()).status().text() ==
          (temp / "no/such") + ": no such folder to put the output in");
  REQUIRE(quantize_checkpoint(in, "/", w4()).status().code() == Errc::invalid_argument);
  REQUIRE(quantize_checkpoint(in, "", w4()).status().code() == Errc::invalid_argument);
  std::filesystem::create_directories(temp / "foreign.partial");
  put(temp / "foreign.partial/file", "x");
  REQUIRE(quantize_checkpoint(in, temp / "foreign", w4()).status().text() ==
          (temp / "foreign.partial") + ": holds no journal of an interrupted run; move it away");
  REQUIRE(slurp(temp / "foreign.partial/file") == "x");
}

TEST_CASE("pipeline: a weight that is not a number is named with its place") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  REQUIRE(make_checkpoint(in, {{"model.layers.0.mlp.up_proj.weight", DType::f32, {70, 64}}}));
  std::string file = slurp(in + "/model.safetensors");
  const float nan = std::nanf("");
  std::memcpy(file.data() + file.size() - (64 * 3 + 5) * 4, &nan, 4);
  put(in + "/model.safetensors", file);
  auto report = quantize_checkpoint(in, out, w4());
  REQUIRE(report.status().code() == Errc::bad_format);
  REQUIRE(
      report.status().text().find(
          "tensor 'model.layers.0.mlp.up_proj.weight': row 66, column 59: weight is NaN, finite expected") ==
      0);
  REQUIRE_FALSE(exists(out));
}

TEST_CASE("pipeline: overwriting replaces the old folder at the end, and only a model's folder") {
  const TempFolder temp;
  const std::string in = temp / "in", out = temp / "out";
  REQUIRE(make_checkpoint(in, tiny_tensors(1)));
  REQUIRE(quantize_checkpoint(in, temp / "expected", w4()).ok());
  std::filesystem::create_directories(out);
  put(out + "/notes.txt", "mine");
  PipelineOptions options;
  options.overwrite = true;
  REQUIRE(quantize_checkpoint(in, out, w4(), options).status().text() ==
          out + ": not the folder of a model (no config.json), so it isn't overwritten");
  REQUIRE(slurp(out + "/notes.txt") == "mine");
  put(out + "/config.json", "{}");
  auto report = quantize_checkpoint(in, out, w4(), options);
  INFO(report.status().text());
  REQUIRE(report.ok());
  REQUIRE(contents(out) == contents(temp / "expected"));
  REQUIRE_FALSE(exists(out + ".partial"));
  // The input is the only copy of the good weights.
  const auto before = contents(in);
  REQUIRE(quantize_checkpoint(in, in, w4(), options).status().text() ==
          in + ": holds the input, so it isn't overwritten");
  REQUIRE(contents(in) == before);
}

TEST_CASE("pipeline: the caller's own quantizer, and the rules for it") {
  struct Mine {
    std::string_view name() const { return "mine"; }
    Result<QuantizedMatrix> quantize(const QuantizerInput& in) const {
      QF_TRY_ASSIGN(auto q, QuantizedMatrix::make(in.scheme, wrong ? 1 : in.w.shape[0], in.w.shape[1]));
      for (std::int64_t r = 0; r < q.n(); ++r) q.scales()(r, 0) = 0.5f;
      return q;
    }
    bool wrong = false;
  };
  const TempFolder temp;
  const std::string in = temp / "in";
  REQUIRE(make_checkpoint(in, tiny_tensors(1)));
  const std::string_view own[] = {"mine"};
  const Recipe recipe = std::move(*default_recipe("mine", {.bits = 2}, own));
  Mine mine;
  const QuantizerRef refs[] = {mine};
  PipelineOptions options;
  options.quantizers = refs;
  auto report = quantize_checkpoint(in, temp / "out", recipe, options);
  INFO(report.status().text());
  REQUIRE(report.ok());
  REQUIRE(quantize_checkpoint(in, temp / "out2", recipe).status().text() ==
          "method 'mine' (rule 1) is not available in this version; available: rtn, awq, gptq, best");
  mine.wrong = true;
  REQUIRE(
      quantize_checkpoint(in, temp / "out2", recipe, options)
          .status()
          .text()
          .find("method 'mine' returned another shape, scheme or order of columns than it was asked for") !=
      std::string::npos);
}
