// The calibrated methods that a recipe names, from a checkpoint to one that runs.
#include <catch2/catch.hpp>

#include "qf/quant/pipeline.hpp"
#include "tests/model_test.hpp"
#include "tests/naive_decoder.hpp"
#include "tests/quant_files.hpp"

using namespace qf;
using namespace qf::quant;
using namespace quant_test;

namespace {

const std::string kModels = QF_GOLDEN "/model/";

calib::Samples samples_of(std::int64_t count, std::int64_t length) {
  std::vector<std::int32_t> text;
  std::mt19937 random(11);
  for (int i = 0; i < 2000; ++i) text.push_back(static_cast<std::int32_t>(random() % 34));
  return std::move(*calib::cut_samples(text, count, length));
}

Recipe recipe_of(const std::string& method, int bits, const std::string& options = "{}") {
  auto recipe = Recipe::parse(R"({"version": 1, "rules": [{"match": "*_proj.weight", "method": ")" + method +
                                  R"(", "group": 12, "bits": )" + std::to_string(bits) + R"(, "options": )" +
                                  options + "}]}",
                              "recipe");
  INFO(recipe.status().text());
  REQUIRE(recipe.ok());
  return std::move(*recipe);
}

PipelineReport quantize(const std::string& in, const std::string& out, const Recipe& recipe,
                        const calib::Samples& samples, PipelineOptions options = {}) {
  options.calibration = &samples;
  options.overwrite = true;
  auto report = quantize_checkpoint(in, out, recipe, options);
  INFO(report.status().text());
  REQUIRE(report.ok());
  return std::move(*report);
}

std::vector<float> logits_of(const std::string& folder, const calib::Samples& samples) {
  auto decoder = model_test::load(folder, {.compute = model::Compute::f32});
  std::vector<float> all;
  for (std::int64_t i = 0; i < samples.count; ++i) {
    const auto mine = model_test::run(*decoder, samples.sequence(i), samples.length);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return all;
}

// Root mean square of the difference.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(std::isfinite(a[i]));
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

}  // namespace

TEST_CASE("methods: calibrated ones come closer to the float model than rounding, on every architecture") {
  const calib::Samples samples = samples_of(24, 40);
  for (const char* name : {"smollm2", "llama_bias", "qwen3", "phi3_short"}) {
    const std::string in = kModels + name;
    const TempFolder temp;
    const auto want = logits_of(in, samples);
    const auto error = [&](const std::string& method, const std::string& options = "{}") {
      quantize(in, temp / "out", recipe_of(method, 3, options), samples);
      return distance(logits_of(temp / "out", samples), want);
    };
    const double rtn = error("rtn"), gptq = error("gptq"), best = error("best"),
                 in_float = error("gptq", R"({"sequential": false})"), awq = error("awq");
    INFO(name << ": rtn " << rtn << ", gptq " << gptq << ", of the float model " << in_float << ", best "
              << best << ", awq " << awq);
    CHECK(gptq < 0.95 * rtn);
    CHECK(in_float < rtn);
    CHECK(best < 0.9 * rtn);
    CHECK(awq < rtn);
  }
}

TEST_CASE("methods: what AWQ rescales computes the same") {
  const calib::Samples samples = samples_of(3, 30);
  for (const char* name : {"llama2", "llama3", "llama_bias", "smollm2", "qwen2", "qwen3", "phi3_short"}) {
    INFO(name);
    const std::string in = kModels + name;
    const TempFolder temp;
    const auto want = logits_of(in, samples);
    double size = 0;
    for (float x : want) size += static_cast<double>(x) * x / static_cast<double>(want.size());
    quantize(in, temp / "awq", recipe_of("awq", 8), samples);
    REQUIRE(distance(logits_of(temp / "awq", samples), want) < 0.02 * std::sqrt(size));

    // And something was rescaled: norms, not by a common factor.
    const naive::Model before = naive::read(in), after = naive::read(temp / "awq");
    for (const char* norm : {"model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"}) {
      double least = INFINITY, most = 0;
      for (std::size_t i = 0; i < before.weights.at(norm).values.size(); ++i) {
        const double ratio = after.weights.at(norm).values[i] / before.weights.at(norm).values[i];
        least = std::min(least, ratio), most = std::max(most, ratio);
      }
      CHECK(least > 0);
      CHECK(most > 0);
    }
  }
}

TEST_CASE("methods: the same bytes for any number of threads") {
  const calib::Samples samples = samples_of(5, 21);
  const std::string in = kModels + "qwen3";
  const TempFolder temp;
  for (const char* method : {"gptq", "best", "awq"}) {
    INFO(method);
    quantize(in, temp / "one", recipe_of(method, 3), samples);
    const auto expected = contents(temp / "one");
    for (const int threads : {2, 7}) {
      ThreadPool pool(threads);
      PipelineOptions options;
      options.parallel = pool.parallel_for();
      quantize(in, temp / "more", recipe_of(method, 3), samples, options);
      REQUIRE(contents(temp / "more") == expected);
    }
  }
}

TEST_CASE("methods: AWQ stopped at any event goes on to the same bytes") {
  struct Stopper {
    int left;
    static bool on_event(void* user, const ProgressEvent&) { return static_cast<Stopper*>(user)->left-- > 0; }
  };
  const calib::Samples samples = samples_of(2, 9);
  const std::string in = kModels + "llama_bias";
  const TempFolder temp;
  const Recipe recipe = recipe_of("awq", 4, R"({"grid": 4})");
  quantize(in, temp / "expected", recipe, samples);
  const auto expected = contents(temp / "expected");
  for (int events = 0;; events += 3) {
    Stopper stopper{events};
    PipelineOptions options;
    options.calibration = &samples;
    options.progress = {&Stopper::on_event, &stopper};
    if (quantize_checkpoint(in, temp / "out", recipe, options).ok()) break;
    quantize(in, temp / "out", recipe, samples);
    REQUIRE(contents(temp / "out") == expected);
    std::filesystem::remove_all(temp / "out");
  }
}

TEST_CASE("methods: options that contradict each other, and methods without a text") {
  const TempFolder temp;
  const calib::Samples samples = samples_of(2, 9);
  PipelineOptions options;
  options.calibration = &samples;
  const std::string in = kModels + "smollm2";
  REQUIRE(quantize_checkpoint(in, temp / "out",
                              recipe_of("gptq", 4, R"({"sequential": false, "alpha": 0.5})"), options)
              .status()
              .code() == Errc::invalid_argument);
  for (const char* method : {"gptq", "best", "awq"}) {
    auto needed = needs_calibration(recipe_of(method, 4));
    REQUIRE(needed.ok());
    REQUIRE(*needed);
    const Status status = plan_checkpoint(in, recipe_of(method, 4)).status();
    REQUIRE(status.code() == Errc::invalid_argument);
    REQUIRE(status.text().find("needs a calibration text") != std::string::npos);
  }
  REQUIRE_FALSE(*needs_calibration(recipe_of("rtn", 4)));
  // The plan counts what calibration takes.
  auto plan = plan_checkpoint(in, recipe_of("best", 4), options),
       plain = plan_checkpoint(in, recipe_of("rtn", 4));
  REQUIRE(plan.ok());
  REQUIRE(plan->peak_memory_bytes > plain->peak_memory_bytes + 4 * 18 * 36 * 2);
}
