#include "tests/model_test.hpp"

using namespace model_test;

TEST_CASE("logits of every architecture equal transformers'") {
  for (const char* name : {"llama2", "llama3", "llama_bias", "smollm2", "mistral", "qwen2", "qwen3",
                           "phi3_short", "phi3_long"}) {
    CAPTURE(name);
    const Expected want = expected(golden(name));
    auto decoder = load(golden(name));
    const auto count = static_cast<std::int64_t>(want.ids.size());
    const std::vector<float> whole = run(*decoder, want.ids, count);
    CHECK(relative_error(whole, want.logits) < 1e-5);
    for (std::int64_t step : {1, 3, 16, 17}) {
      CAPTURE(step);
      // In float, sums don't depend on how tokens are split: the same bits.
      CHECK(run(*decoder, want.ids, step) == whole);
    }
  }
}

TEST_CASE("only the logits asked for are written") {
  const Expected want = expected(golden("smollm2"));
  auto decoder = load(golden("smollm2"));
  const std::int64_t vocab = decoder->config().vocab, count = static_cast<std::int64_t>(want.ids.size());
  const std::vector<float> whole = run(*decoder, want.ids, count);
  for (std::int64_t wanted : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5}, count}) {
    CAPTURE(wanted);
    auto kv = decoder->make_kv(count);
    REQUIRE(kv.ok());
    // Rows further apart than the vocabulary, to see that the gap stays untouched.
    std::vector<float> logits(static_cast<std::size_t>((wanted + 1) * (vocab + 3)), -7);
    qf::MatrixView<float> view(logits.data(), {wanted, vocab}, {vocab + 3, 1});
    REQUIRE(decoder->forward(want.ids, **kv, view).ok());
    CHECK((*kv)->length() == count);
    for (std::int64_t r = 0; r <= wanted; ++r)
      for (std::int64_t c = 0; c < vocab + 3; ++c) {
        const float got = logits[static_cast<std::size_t>(r * (vocab + 3) + c)];
        if (r == wanted || c >= vocab)
          REQUIRE(got == -7);
        else
          REQUIRE(got == whole[static_cast<std::size_t>((count - wanted + r) * vocab + c)]);
      }
  }
}
