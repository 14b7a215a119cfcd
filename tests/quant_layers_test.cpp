// Methods that look at activations, driven layer after layer: what they are told, in which order, and that neither
// threads nor interruptions show in the result.
#include <catch2/catch.hpp>

#include <bit>
#include <map>

#include "qf/calib/statistics.hpp"
#include "qf/io/compressed_tensors.hpp"
#include "qf/quant/pipeline.hpp"
#include "qf/quant/rtn.hpp"
#include "tests/naive_decoder.hpp"
#include "tests/quant_files.hpp"

using namespace qf;
using namespace qf::quant;
using namespace quant_test;

namespace {

const std::string kModels = QF_GOLDEN "/model/";
constexpr const char* kRecipe = R"({"version": 1, "rules": [
  {"match": ["*_proj.weight", "lm_head.weight"], "method": "rtn", "bits": 3, "group": 12}]})";

struct Seen {
  std::int64_t tokens = 0;
  std::vector<float> hessian, cross, mean_abs;
};

// Round to nearest that asks for statistics. With `listen`, one bit of them more or less changes the codes.
struct Listener {
  std::string own_name = "rtn";
  StatisticsNeeds needs{{.hessian = true, .cross = true, .channels = true}, true};
  bool listen = false;
  mutable std::map<std::string, Seen> seen;
  mutable std::vector<std::string> order;

  std::string_view name() const { return own_name; }
  static constexpr bool kNeedsWholeMatrix = true;
  StatisticsNeeds statistics() const { return needs; }
  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const {
    if (!in.statistics || in.statistics->k != in.w.shape[1])
      return Status(Errc::internal, "statistics of another linear");
    const calib::LinearStatistics& s = *in.statistics;
    order.emplace_back(in.name);
    seen[order.back()] = {s.tokens,
                          {s.hessian.begin(), s.hessian.end()},
                          {s.cross.begin(), s.cross.end()},
                          {s.mean_abs.begin(), s.mean_abs.end()}};
    std::vector<float> w(in.w.data, in.w.data + in.w.size());
    if (listen) {
      std::uint32_t sum = 1;
      for (const auto* array : {&s.hessian, &s.cross})
        for (float x : *array) sum = (sum ^ std::bit_cast<std::uint32_t>(x)) * 16777619u;
      for (float& x : w) x *= 1 + static_cast<float>((sum = sum * 1664525u + 1013904223u) >> 16) * 0x1p-18f;
    }
    QuantizerInput mine = in;
    mine.w = {w.data(), in.w.shape};
    return Rtn().quantize(mine);
  }
};

calib::Samples samples_of(std::int64_t count, std::int64_t length, std::int32_t vocab = 34) {
  std::vector<std::int32_t> text;
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i)
    text.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab)));
  return std::move(*calib::cut_samples(text, count, length));
}

Recipe recipe_of(const char* json) {
  auto recipe = Recipe::parse(json, "recipe");
  INFO(recipe.status().text());
  REQUIRE(recipe.ok());
  return std::move(*recipe);
}

PipelineReport quantize(const std::string& in, const std::string& out, const Listener& method,
                        const calib::Samples& samples, PipelineOptions options = {},
                        const char* recipe = kRecipe) {
  const QuantizerRef own(method);
  options.quantizers = {&own, 1};
  options.calibration = &samples;
  auto report = quantize_checkpoint(in, out, recipe_of(recipe), options);
  INFO(report.status().text());
  REQUIRE(report.ok());
  return std::move(*report);
}

// The largest difference, relative to the largest expected.
double difference(const std::vector<float>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double worst = 0, scale = 1e-30;
  for (std::size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
    scale = std::max(scale, std::fabs(want[i]));
  }
  return worst / scale;
}

PipelineOptions small_files() {
  PipelineOptions options;
  options.max_shard_bytes = 4000;
  return options;
}

// For a method of the test's own, in small files. Both have to outlive the options.
PipelineOptions told(const QuantizerRef& own, const calib::Samples& samples) {
  PipelineOptions options = small_files();
  options.quantizers = {&own, 1};
  options.calibration = &samples;
  return options;
}

}  // namespace

TEST_CASE(
    "layers: a method that doesn't use what it is told gives the bytes of one that isn't told anything") {
  for (const char* name : {"llama2", "llama_bias", "smollm2", "qwen2", "qwen3", "phi3_short"}) {
    INFO(name);
    const TempFolder temp;
    auto plain = quantize_checkpoint(kModels + name, temp / "plain", recipe_of(kRecipe), small_files());
    INFO(plain.status().text());
    REQUIRE(plain.ok());
    Listener method;
    const auto report = quantize(kModels + name, temp / "told", method, samples_of(5, 9), small_files());
    REQUIRE(contents(temp / "plain") == contents(temp / "told"));
    REQUIRE(report.resumed_tensors == 0);
    std::size_t quantized = 0;
    for (const auto& t : report.tensors) quantized += t.plan.action == Action::quantize;
    REQUIRE(quantized > 7);
    REQUIRE(method.order.size() == quantized);  // each once
    for (const auto& [tensor, s] : method.seen) REQUIRE(s.tokens == 45);
    REQUIRE(method.order.front().find("layers.0.self_attn.") != std::string::npos);
  }
}

TEST_CASE("layers: statistics are those of a decoder in f64, of both models") {
  const std::string in = kModels + "smollm2";
  const calib::Samples samples = samples_of(4, 21);
  const TempFolder temp;
  Listener method;
  quantize(in, temp / "out", method, samples);

  const auto source = naive::read(in), low = naive::read_quantized(temp / "out", in);
  const naive::Taps in_float = naive::run(source, samples), in_low = naive::run(low, samples);
  REQUIRE(in_float.size() == 14);
  for (const auto& [linear, x] : in_low) {
    INFO(linear);
    const Seen& seen = method.seen.at(linear + ".weight");
    const auto& f = in_float.at(linear);
    REQUIRE(difference(seen.hessian, naive::product(x, x)) < 2e-5);
    if (linear.find("layers.0.self_attn.q_proj") != std::string::npos) {
      REQUIRE(difference(seen.cross, naive::product(naive::minus(f, x), x)) == 0);
    } else {
      // Relative to the size of its factors: the difference of the models may cancel.
      const auto want = naive::product(naive::minus(f, x), x);
      REQUIRE(difference(seen.cross, want) < 1e-4);
    }
  }

  SECTION("not sequential: of the float model, whatever came before") {
    method = {};
    method.needs = {{.hessian = true, .channels = true}, false};
    quantize(in, temp / "other", method, samples);
    for (const auto& [linear, x] : in_float) {
      INFO(linear);
      const Seen& seen = method.seen.at(linear + ".weight");
      REQUIRE(difference(seen.hessian, naive::product(x, x)) < 2e-5);
      REQUIRE(seen.cross.empty());
      std::vector<double> mean_abs(static_cast<std::size_t>(x.columns));
      for (std::size_t i = 0; i < x.values.size(); ++i)
        mean_abs[i % mean_abs.size()] += std::fabs(x.values[i]) / static_cast<double>(x.rows());
      REQUIRE(difference(seen.mean_abs, mean_abs) < 2e-5);
    }
  }
  SECTION("linears that another method or nobody quantizes take part as they are") {
    method = {};
    method.own_name = "mine";
    const char* mixed = R"({"version": 1, "rules": [
      {"match": "*.k_proj.weight", "keep": true},
      {"match": ["*.down_proj.weight", "*.q_proj.weight"], "method": "rtn", "bits": 2, "group": 0},
      {"match": "*_proj.weight", "method": "mine", "bits": 3, "group": 12}]})";
    const QuantizerRef own(method);
    PipelineOptions options;
    options.quantizers = {&own, 1};
    options.calibration = &samples;
    const std::string_view names[] = {"mine"};
    auto recipe = Recipe::parse(mixed, "recipe", names);
    REQUIRE(recipe.ok());
    auto report = quantize_checkpoint(in, temp / "mixed", *recipe, options);
    INFO(report.status().text());
    REQUIRE(report.ok());
    REQUIRE(method.order.size() == 8);
    const naive::Taps taps = naive::run(naive::read_quantized(temp / "mixed", in), samples);
    for (const auto& [tensor, seen] : method.seen) {
      INFO(tensor);
      const auto& x = taps.at(tensor.substr(0, tensor.size() - 7));
      REQUIRE(difference(seen.hessian, naive::product(x, x)) < 2e-5);
    }
  }
}

TEST_CASE("layers: the head sees the final norm of the model that is quantized") {
  const std::string in = kModels + "llama2";
  const TempFolder temp;
  const calib::Samples samples = samples_of(3, 8);
  Listener method;
  quantize(in, temp / "out", method, samples);
  REQUIRE(method.order.back() == "lm_head.weight");
  const naive::Taps taps = naive::run(naive::read_quantized(temp / "out", in), samples);
  const auto& x = taps.at("lm_head");
  REQUIRE(difference(method.seen.at("lm_head.weight").hessian, naive::product(x, x)) < 2e-5);
}

TEST_CASE("layers: the same bytes for any number of threads and size of files") {
  const TempFolder temp;
  Listener method;
  method.listen = true;
  const calib::Samples samples = samples_of(6, 11);
  const std::string in = kModels + "qwen3";
  quantize(in, temp / "expected", method, samples);
  const auto expected = contents(temp / "expected");
  for (const int threads : {1, 2, 7}) {
    ThreadPool pool(threads);
    PipelineOptions options;
    options.parallel = pool.parallel_for();
    quantize(in, temp / ("t" + std::to_string(threads)), method, samples, options);
    REQUIRE(contents(temp / ("t" + std::to_string(threads))) == expected);
  }
  // And what it is told shows in the bytes, or the comparison would mean nothing.
  quantize(in, temp / "other", method, samples_of(6, 12));
  REQUIRE(contents(temp / "other") != expected);
}

TEST_CASE("layers: stopped at any event, the next run goes on to the same bytes") {
  struct Stopper {
    int left;
    static bool on_event(void* user, const ProgressEvent&) { return static_cast<Stopper*>(user)->left-- > 0; }
  };
  const TempFolder temp;
  const std::string in = kModels + "smollm2", out = temp / "out";
  Listener method;
  method.listen = true;
  const calib::Samples samples = samples_of(3, 7);
  quantize(in, temp / "expected", method, samples, small_files());
  const auto expected = contents(temp / "expected");
  const QuantizerRef own(method);
  std::size_t most = 0;
  int stops = 0;
  for (;; ++stops) {
    Stopper stopper{stops};
    PipelineOptions options = told(own, samples);
    options.progress = {&Stopper::on_event, &stopper};
    auto stopped = quantize_checkpoint(in, out, recipe_of(kRecipe), options);
    if (stopped.ok()) break;
    REQUIRE(stopped.status().code() == Errc::cancelled);
    method.order.clear();
    const auto report = quantize(in, out, method, samples, small_files());
    most = std::max(most, report.resumed_tensors);
    std::size_t quantized = 0;
    for (const auto& t : report.tensors) quantized += t.plan.action == Action::quantize;
    REQUIRE(method.order.size() >= quantized - std::min(quantized, report.resumed_tensors));
    REQUIRE(contents(out) == expected);
    std::filesystem::remove_all(out);
  }
  REQUIRE(stops > 40);
  REQUIRE(most > 15);

  SECTION("other samples start anew") {
    std::filesystem::remove_all(out);
    Stopper stopper{stops - 3};
    PipelineOptions options = told(own, samples);
    options.progress = {&Stopper::on_event, &stopper};
    REQUIRE(!quantize_checkpoint(in, out, recipe_of(kRecipe), options).ok());
    REQUIRE(quantize(in, out, method, samples_of(3, 8), small_files()).resumed_tensors == 0);
  }
}

TEST_CASE("layers: killed at random moments, the next run ends in the same bytes") {
  const TempFolder temp;
  const std::string in = kModels + "smollm2", out = temp / "out";
  Listener method;
  method.listen = true;
  const calib::Samples samples = samples_of(3, 7);
  quantize(in, temp / "expected", method, samples, small_files());
  const auto expected = contents(temp / "expected");
  const QuantizerRef own(method);
  kill_often({.seed = 3, .rounds = 30, .kills = 12, .microseconds = 20000}, out, expected,
             [&] { (void)quantize_checkpoint(in, out, recipe_of(kRecipe), told(own, samples)).ok(); });
  if (!exists(out)) quantize(in, out, method, samples, small_files());
  REQUIRE(contents(out) == expected);
}

TEST_CASE("layers: what can't be calibrated is refused by name") {
  const TempFolder temp;
  Listener method;
  const QuantizerRef own(method);
  const calib::Samples samples = samples_of(2, 5);
  PipelineOptions options;
  options.quantizers = {&own, 1};
  const auto refused = [&](const std::string& in, const char* recipe) {
    auto report = quantize_checkpoint(in, temp / "out", recipe_of(recipe), options);
    REQUIRE_FALSE(report.ok());
    REQUIRE_FALSE(exists(temp / "out"));
    return report.status().text();
  };
  const std::string in = kModels + "smollm2";
  REQUIRE(refused(in, kRecipe).find("method 'rtn' looks at activations and needs a calibration text") !=
          std::string::npos);
  options.calibration = &samples;
  REQUIRE(
      refused(in, R"({"version": 1, "rules": [
            {"match": "*embed_tokens.weight", "method": "rtn", "bits": 4}]})")
          .find("tensor 'model.embed_tokens.weight' (rule 1): method 'rtn' looks at activations, which are "
                "known of the linears of the decoder's layers and of a head of its own") !=
      std::string::npos);
  const calib::Samples strange = samples_of(2, 5, 90);
  options.calibration = &strange;
  REQUIRE(refused(in, kRecipe).find("the calibration text: token ") != std::string::npos);
  options.calibration = &samples;

  REQUIRE(make_checkpoint(temp / "vision", {{"blocks.0.proj.weight", DType::f32, {8, 8}}}, 1,
                          R"({"model_type": "vit"})"));
  REQUIRE(refused(temp / "vision", R"({"version": 1, "rules": [
            {"match": "*proj.weight", "method": "rtn", "bits": 4}]})")
              .find("config.json: ") != std::string::npos);
}

TEST_CASE("layers: activations that aren't numbers are found and named") {
  const TempFolder temp;
  const std::string in = temp / "in";
  std::filesystem::create_directories(in);
  put(in + "/config.json", slurp(kModels + "llama2/config.json"));
  auto source = io::open_checkpoint(kModels + "llama2");
  REQUIRE(source.ok());
  std::vector<io::TensorSpec> specs;
  for (const auto& info : (*source)->tensors()) specs.push_back({info.name, DType::f32, info.shape});
  auto writer = io::SafetensorsWriter::create(in + "/model.safetensors", specs);
  REQUIRE(writer.ok());
  for (const auto& info : (*source)->tensors()) {
    std::vector<float> values(info.elements);
    REQUIRE((*source)->read_f32(info, 0, values).ok());
    if (info.name == "model.layers.1.mlp.up_proj.weight")
      for (int i = 0; i < 24; ++i) values[static_cast<std::size_t>(3 * 24 + i)] *= 1e25f;
    REQUIRE(writer->write_f32(info.name, values).ok());
  }
  REQUIRE(writer->commit().ok());
  Listener method;
  method.needs.sequential = false;
  const QuantizerRef own(method);
  const calib::Samples samples = samples_of(2, 5);
  PipelineOptions options;
  options.quantizers = {&own, 1};
  options.calibration = &samples;
  const Status status = quantize_checkpoint(in, temp / "out", recipe_of(R"({"version": 1, "rules": [
        {"match": "*_proj.weight", "method": "rtn", "bits": 4, "scale": "f32"}]})"),
                                            options)
                            .status();
  REQUIRE(status.code() == Errc::bad_format);
  INFO(status.text());
  REQUIRE(status.text().starts_with(
      "layer 1, inputs of down: the input of token 0 is too large in channel 3; nothing was put under "));
}
