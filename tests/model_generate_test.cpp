#include <limits>
#include <map>

#include "qf/model/generate.hpp"
#include "tests/model_test.hpp"

using namespace model_test;
using qf::model::GenerateOptions;
using qf::model::Sampler;
using qf::model::SamplerOptions;
using qf::model::StopReason;

namespace {

Sampler sampler(const SamplerOptions& options) {
  auto made = Sampler::make(options);
  REQUIRE(made.ok());
  return std::move(*made);
}

std::map<std::int32_t, int> draws(const SamplerOptions& options, const std::vector<float>& logits,
                                  int count) {
  Sampler s = sampler(options);
  std::map<std::int32_t, int> seen;
  for (int i = 0; i < count; ++i) {
    auto id = s.sample(logits);
    REQUIRE(id.ok());
    ++seen[*id];
  }
  return seen;
}

const std::vector<float> kLogits = {std::log(.1f), std::log(.4f), std::log(.2f), std::log(.3f)};

}  // namespace

TEST_CASE("random numbers are PCG32's") {
  // The first outputs of the reference program pcg32-demo: seed 42, stream 54.
  qf::model::Pcg32 random(42, 54);
  for (std::uint32_t want : {0xa15c02b7u, 0x7b47f409u, 0xba1d3330u, 0x83d2f293u, 0xbfa4784bu, 0xcbed606eu})
    CHECK(random.next() == want);
}

TEST_CASE("sampling") {
  CHECK(draws({}, kLogits, 3) == std::map<std::int32_t, int>{{1, 3}});
  CHECK(draws({}, {2, 5, 5, 1}, 1) == std::map<std::int32_t, int>{{1, 1}});  // the lowest id among equals
  CHECK(draws({.temperature = 1, .top_k = 1}, kLogits, 3) == std::map<std::int32_t, int>{{1, 3}});

  const int n = 20000;
  auto all = draws({.temperature = 1, .seed = 3}, kLogits, n);
  const double want[] = {.1, .4, .2, .3};
  for (int i = 0; i < 4; ++i) CHECK(std::abs(all[i] / double(n) - want[i]) < .015);
  auto hot = draws({.temperature = 2, .seed = 3}, kLogits, n);  // square roots, normalized
  CHECK(std::abs(hot[1] / double(n) -
                 std::sqrt(.4) / (std::sqrt(.1) + std::sqrt(.2) + std::sqrt(.3) + std::sqrt(.4))) < .015);
  auto two = draws({.temperature = 1, .top_k = 2, .seed = 5}, kLogits, n);
  CHECK(two.size() == 2);
  CHECK(std::abs(two[3] / double(n) - 3.0 / 7) < .015);
  auto p =
      draws({.temperature = 1, .top_p = .75, .seed = 5}, kLogits, n);  // .4 + .3 don't reach .75: three kept
  CHECK(p.size() == 3);
  CHECK(p.count(0) == 0);
  CHECK(draws({.temperature = 1, .top_p = .65, .seed = 5}, kLogits, n).size() == 2);
  CHECK(draws({.temperature = 1, .top_p = .01, .seed = 5}, kLogits, 50).size() == 1);
  // The same seed gives the same tokens.
  CHECK(draws({.temperature = 1, .seed = 9}, kLogits, 100) ==
        draws({.temperature = 1, .seed = 9}, kLogits, 100));

  std::vector<float> flat(1000, 0.0f);  // top-p over more candidates than are sorted at first
  CHECK(draws({.temperature = 1, .top_p = .5, .seed = 5}, flat, 5000).rbegin()->first == 499);
  flat[3] = -std::numeric_limits<float>::infinity();
  CHECK(draws({.temperature = 1, .top_k = 4, .seed = 5}, flat, 500).count(3) == 0);

  flat[10] = std::numeric_limits<float>::quiet_NaN();
  CHECK(sampler({}).sample(flat).status().text() == "the logit of token 10 is not a finite number");
  CHECK(sampler({}).sample({}).status().text() == "no token has a finite logit");
  CHECK(Sampler::make({.temperature = -1}).status().text() ==
        "temperature is out of range, expected 0 to 1000");
  CHECK(Sampler::make({.temperature = NAN}).status().text() ==
        "temperature is out of range, expected 0 to 1000");
  CHECK(Sampler::make({.top_k = -2}).status().text() == "top-k -2, expected 0 or more");
  CHECK(Sampler::make({.top_p = 0}).status().text() ==
        "top-p is out of range, expected above 0 and at most 1");
}

TEST_CASE("generating follows the logits") {
  auto decoder = load(golden("qwen3"));
  const std::vector<std::int32_t> prompt = {5, 9, 30, 3};
  auto result = qf::model::generate(*decoder, prompt, {.max_tokens = 12});
  REQUIRE(result.ok());
  CHECK(result->reason == StopReason::max_tokens);
  REQUIRE(result->ids.size() == 12);
  // Teacher forcing over the whole text must choose the same tokens.
  std::vector<std::int32_t> text = prompt;
  text.insert(text.end(), result->ids.begin(), result->ids.end());
  const std::vector<float> logits = run(*decoder, text, static_cast<std::int64_t>(text.size()));
  const auto vocab = static_cast<std::size_t>(decoder->config().vocab);
  for (std::size_t i = prompt.size() - 1; i + 1 < text.size(); ++i) {
    const float* row = logits.data() + i * vocab;
    CHECK(std::max_element(row, row + vocab) - row == text[i + 1]);
  }
  for (std::int64_t chunk : {1, 2, 3}) {
    auto chunked = qf::model::generate(*decoder, prompt, {.max_tokens = 12, .prefill_chunk = chunk});
    REQUIRE(chunked.ok());
    CHECK(chunked->ids == result->ids);
  }
  // A stop id ends the text and isn't part of it.
  const std::int32_t stop = result->ids[4];
  const auto first =
      static_cast<std::size_t>(std::find(result->ids.begin(), result->ids.end(), stop) - result->ids.begin());
  auto stopped = qf::model::generate(*decoder, prompt, {.max_tokens = 12, .stop_ids = {stop}});
  REQUIRE(stopped.ok());
  CHECK(stopped->reason == StopReason::stop_id);
  CHECK(stopped->ids == std::vector<std::int32_t>(result->ids.begin(),
                                                  result->ids.begin() + static_cast<std::ptrdiff_t>(first)));
  // So does the callback, after its token.
  int calls = 0;
  auto called = qf::model::generate(*decoder, prompt, {.max_tokens = 12}, [&](std::int32_t id) {
    CHECK(id == result->ids[static_cast<std::size_t>(calls)]);
    return ++calls < 3;
  });
  REQUIRE(called.ok());
  CHECK(called->reason == StopReason::callback);
  CHECK(called->ids.size() == 3);
  // The same seed gives the same text.
  const GenerateOptions random = {.max_tokens = 20, .sampler = {.temperature = 1.5, .top_p = .9, .seed = 11}};
  CHECK(qf::model::generate(*decoder, prompt, random)->ids ==
        qf::model::generate(*decoder, prompt, random)->ids);
}

TEST_CASE("generating in turns over one cache equals one text") {
  auto decoder = load(golden("mistral"));
  auto kv = decoder->make_kv(40);
  REQUIRE(kv.ok());
  const std::vector<std::int32_t> prompt = {4, 8, 15};
  auto one = qf::model::generate(*decoder, **kv, prompt, {.max_tokens = 5});
  REQUIRE(one.ok());
  CHECK((*kv)->length() == 3 + 4);  // the last token was never run
  const std::vector<std::int32_t> next = {one->ids.back(), 16, 23};
  auto two = qf::model::generate(*decoder, **kv, next, {.max_tokens = 5});
  REQUIRE(two.ok());
  std::vector<std::int32_t> text = prompt;
  text.insert(text.end(), one->ids.begin(), one->ids.end());
  text.insert(text.end(), next.begin() + 1, next.end());
  CHECK(qf::model::generate(*decoder, text, {.max_tokens = 5})->ids == two->ids);
}

TEST_CASE("generating respects the context") {
  auto decoder = load(golden("llama2"));
  REQUIRE(decoder->config().context == 128);
  std::vector<std::int32_t> prompt(126, 7);
  auto full = qf::model::generate(*decoder, prompt, {.max_tokens = 10});
  REQUIRE(full.ok());
  CHECK(full->reason == StopReason::context);
  CHECK(full->ids.size() == 3);  // two that are run in the last two places, and the one they predict
  prompt.resize(129, 7);
  CHECK(qf::model::generate(*decoder, prompt, {}).status().text() ==
        "a prompt of 129 tokens behind 0 held is longer than the 128 tokens that fit (the model's context is "
        "128)");
  CHECK(qf::model::generate(*decoder, {}, {}).status().text() ==
        "an empty prompt, expected at least one token");
  prompt = {1, 34};
  CHECK(qf::model::generate(*decoder, prompt, {}).status().text() == "token 1 has id 34, expected 0 to 33");
  prompt = {1};
  CHECK(qf::model::generate(*decoder, prompt, {.max_tokens = 0}).status().text() ==
        "max_tokens 0 and prefill_chunk 512, expected 1 or more");
}
