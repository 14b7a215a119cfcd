// The judge against models whose answers are known in closed form.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <vector>

#include "qf/io/file_writer.hpp"
#include "qf/text/tokenizer.hpp"
#include "qf/verify/perplexity.hpp"

using namespace qf;

namespace {

// Remembers only how many tokens it holds: enough to see whether windows start empty and nothing is lost.
class CountingKv : public model::KvStore {
 public:
  explicit CountingKv(std::int64_t capacity) : capacity_(capacity) {}
  std::int64_t length() const override { return length_; }
  std::int64_t capacity() const override { return capacity_; }
  Status append(std::int64_t, std::int64_t, const float*, const float*) override { return {}; }
  void commit(std::int64_t tokens) override { length_ += tokens; }
  const void* keys(std::int64_t, std::int64_t, std::int64_t*) override { return nullptr; }
  const void* values(std::int64_t, std::int64_t, std::int64_t*) override { return nullptr; }
  Status truncate(std::int64_t length) override {
    length_ = length;
    return {};
  }

 private:
  std::int64_t capacity_, length_ = 0;
};

// Its logits depend on the token just read and its position, through a function of the test.
class FakeDecoder : public model::Decoder {
 public:
  using Logit = float (*)(std::int32_t token, std::int64_t position, std::int64_t candidate);
  FakeDecoder(std::int64_t vocab, Logit logit) : logit_(logit) { config_.vocab = vocab; }
  const model::ModelConfig& config() const override { return config_; }
  Result<std::unique_ptr<model::KvStore>> make_kv(std::int64_t capacity) const override {
    return std::unique_ptr<model::KvStore>(std::make_unique<CountingKv>(capacity));
  }
  Status forward(std::span<const std::int32_t> tokens, model::KvStore& kv,
                 MatrixView<float> logits) override {
    largest_ = std::max(largest_, logits.size());
    if (kv.length() + static_cast<std::int64_t>(tokens.size()) > kv.capacity())
      return Status(Errc::invalid_argument, "cache full");
    const auto skipped = static_cast<std::int64_t>(tokens.size()) - logits.shape[0];
    for (std::int64_t r = 0; r < logits.shape[0]; ++r)
      for (std::int64_t c = 0; c < config_.vocab; ++c)
        logits(r, c) = logit_(tokens[static_cast<std::size_t>(skipped + r)], kv.length() + skipped + r, c);
    kv.commit(static_cast<std::int64_t>(tokens.size()));
    return {};
  }
  std::uint64_t weight_bytes() const override { return 0; }
  std::int64_t largest() const { return largest_; }

 private:
  model::ModelConfig config_;
  Logit logit_;
  std::int64_t largest_ = 0;
};

// Gives the token after this one logit 2, all others 0, around an offset that softmax must not see.
float successor(std::int32_t token, std::int64_t, std::int64_t candidate) {
  return 500.0f + (candidate == (token + 1) % 8 ? 2.0f : 0.0f);
}
float uniform(std::int32_t, std::int64_t, std::int64_t) {
  return -3.0f;
}
// Sure of itself only at the first position of a window.
float first_only(std::int32_t token, std::int64_t position, std::int64_t candidate) {
  return position == 0 && candidate == (token + 1) % 8 ? 2.0f : 0.0f;
}
float broken(std::int32_t, std::int64_t position, std::int64_t) {
  return position == 130 ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
}

std::vector<std::int32_t> counting(std::size_t count) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>(i % 8);
  return ids;
}

}  // namespace

TEST_CASE("perplexity of models known in closed form") {
  const auto ids = counting(1000);
  FakeDecoder flat(8, uniform), sharp(8, successor);
  verify::TextOptions options;
  options.context = 300;  // more than two chunks, the last one short

  auto result = verify::evaluate_text(flat, nullptr, ids, options);
  REQUIRE(result.ok());
  CHECK(result->ppl == Approx(8).epsilon(1e-13));
  CHECK(result->tokens == 3 * 299);
  CHECK(result->window_ppl.size() == 3);
  CHECK(result->kl == 0);
  CHECK(result->top1 == 1);

  const double p = std::exp(2.0) / (std::exp(2.0) + 7), q = 1 / (std::exp(2.0) + 7);
  result = verify::evaluate_text(sharp, nullptr, ids, options);
  REQUIRE(result.ok());
  CHECK(result->ppl == Approx(1 / p).epsilon(1e-12));

  result = verify::evaluate_text(flat, &sharp, ids, options);
  REQUIRE(result.ok());
  CHECK(result->ppl == Approx(8).epsilon(1e-13));
  CHECK(result->reference_ppl == Approx(1 / p).epsilon(1e-12));
  CHECK(result->kl == Approx(p * std::log(8 * p) + 7 * q * std::log(8 * q)).epsilon(1e-12));

  // KL isn't symmetric: the other way round is another number.
  result = verify::evaluate_text(sharp, &flat, ids, options);
  REQUIRE(result.ok());
  CHECK(result->kl == Approx(-(std::log(8 * p) + 7 * std::log(8 * q)) / 8).epsilon(1e-12));

  result = verify::evaluate_text(sharp, &sharp, ids, options);
  REQUIRE(result.ok());
  CHECK(result->kl == 0);
  CHECK(result->top1 == 1);
}

TEST_CASE("top-1 counts equal argmaxima, the first of equals") {
  // uniform's argmax is token 0; successor's is 0 only after token 7: positions 7, 15, 23 of 24.
  const auto ids = counting(25);
  FakeDecoder flat(8, uniform), sharp(8, successor);
  verify::TextOptions options;
  options.context = 25;
  auto result = verify::evaluate_text(flat, &sharp, ids, options);
  REQUIRE(result.ok());
  CHECK(result->top1 == Approx(3.0 / 24).epsilon(1e-15));
}

TEST_CASE("windows don't see one another, and rows come in chunks") {
  const auto ids = counting(2 * 257 + 100);
  FakeDecoder decoder(8, first_only);
  verify::TextOptions options;
  options.context = 257;
  auto result = verify::evaluate_text(decoder, nullptr, ids, options);
  REQUIRE(result.ok());
  const double p = std::exp(2.0) / (std::exp(2.0) + 7);
  const double expected = std::exp((-std::log(p) + 255 * std::log(8.0)) / 256);
  REQUIRE(result->window_ppl.size() == 2);
  CHECK(result->window_ppl[0] == Approx(expected).epsilon(1e-12));
  CHECK(result->window_ppl[1] == Approx(expected).epsilon(1e-12));
  CHECK(decoder.largest() == 128 * 8);
}

TEST_CASE("threads don't change a bit") {
  const auto ids = counting(700);
  FakeDecoder flat(8, uniform), sharp(8, successor);
  verify::TextOptions options;
  options.context = 350;
  auto alone = verify::evaluate_text(flat, &sharp, ids, options);
  ThreadPool pool(3);
  options.parallel = pool.parallel_for();
  auto together = verify::evaluate_text(flat, &sharp, ids, options);
  REQUIRE((alone.ok() && together.ok()));
  CHECK(alone->ppl == together->ppl);
  CHECK(alone->kl == together->kl);
}

TEST_CASE("what evaluate_text refuses") {
  FakeDecoder flat(8, uniform), other(9, uniform), nan(8, broken);
  verify::TextOptions options;
  options.context = 300;
  const auto ids = counting(400);

  auto result = verify::evaluate_text(flat, &other, ids, options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().text() == "the model has 8 tokens, the reference 9: they can't be compared");

  result = verify::evaluate_text(flat, nullptr, std::span(ids).first(299), options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == Errc::invalid_argument);
  CHECK(result.status().text() == "the text has 299 tokens, 1 window of 300 need more");

  options.windows = 2;
  result = verify::evaluate_text(flat, nullptr, ids, options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().text() == "the text has 400 tokens, 2 windows of 300 need more");
  options.windows = 0;

  auto strange = ids;
  strange[5] = 8;
  result = verify::evaluate_text(flat, nullptr, strange, options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().text() ==
        "the text holds token 8, the model has 8 tokens: was it tokenized for another model?");

  result = verify::evaluate_text(nan, nullptr, ids, options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == Errc::bad_format);
  CHECK(result.status().text() == "window 0, position 130: logits that aren't finite numbers");

  options.context = 1;
  result = verify::evaluate_text(flat, nullptr, ids, options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().text() == "context 1, expected 2 or more");
}

TEST_CASE("cancelling stops within a chunk") {
  FakeDecoder flat(8, uniform);
  const auto ids = counting(900);
  verify::TextOptions options;
  options.context = 300;
  int calls = 0;
  options.progress = {[](void* user, const ProgressEvent& event) {
                        CHECK(event.stage == "evaluate");
                        CHECK(event.unit == "tokens");
                        CHECK(event.total == 3 * 299);
                        return ++*static_cast<int*>(user) < 3;
                      },
                      &calls};
  auto result = verify::evaluate_text(flat, nullptr, ids, options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == Errc::cancelled);
  CHECK(calls == 3);
}

TEST_CASE("the reference checkpoint's perplexity is what independent software found") {
  const char* folder = std::getenv("QF_REFERENCE_AS_IS");
  const char* wikitext = std::getenv("QF_WIKITEXT");
  if (!folder || !wikitext) {
    std::cout
        << "SKIPPED reference perplexity: QF_REFERENCE_AS_IS (a model folder) and QF_WIKITEXT (folder of "
           "wikitext2-test.txt) aren't set\n";
    return;
  }
  ThreadPool pool(0);
  const std::string model_path = folder;
  auto json = io::read_file(model_path + "/tokenizer.json", std::uint64_t{1} << 30);
  REQUIRE(json.ok());
  auto tokenizer = text::Tokenizer::from_json(*json, "tokenizer.json");
  REQUIRE(tokenizer.ok());
  auto text = io::read_file(std::string(wikitext) + "/wikitext2-test.txt", std::uint64_t{1} << 30);
  REQUIRE(text.ok());
  auto ids = (*tokenizer)->encode(*text, {.add_special = false, .parse_special = false});
  REQUIRE(ids.ok());
  CHECK(ids->size() == 312144);

  model::LoadOptions load;
  load.compute = model::Compute::f32;
  load.parallel = pool.parallel_for();
  auto decoder = model::Decoder::load(model_path, load);
  REQUIRE(decoder.ok());
  verify::TextOptions options;
  options.windows = 4;
  options.parallel = pool.parallel_for();
  auto result = verify::evaluate_text(**decoder, nullptr, *ids, options);
  REQUIRE(result.ok());
  CHECK(result->tokens == 4092);
  CHECK(result->ppl == Approx(21.1926).margin(0.002));
}
