#include "qf/model/generate.hpp"

#include <algorithm>
#include <chrono>
#include <new>

namespace qf::model {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status check_prompt(std::size_t prompt, std::int64_t held, std::int64_t room, std::int64_t context,
                    const GenerateOptions& options) {
  if (prompt == 0) return Status(Errc::invalid_argument, "an empty prompt, expected at least one token");
  if (options.max_tokens < 1 || options.prefill_chunk < 1)
    return Status(Errc::invalid_argument, cat({"max_tokens ", num(options.max_tokens), " and prefill_chunk ",
                                               num(options.prefill_chunk), ", expected 1 or more"}));
  if (static_cast<std::int64_t>(prompt) > room)
    return Status(Errc::invalid_argument,
                  cat({"a prompt of ", num(prompt), " tokens behind ", num(held), " held is longer than the ",
                       num(held + room), " tokens that fit (the model's context is ", num(context), ")"}));
  return {};
}

Result<GenerateResult> run(Decoder& decoder, KvStore& kv, std::span<const std::int32_t> prompt,
                           const GenerateOptions& options, const TokenCallback& on_token) {
  const ModelConfig& config = decoder.config();
  const std::int64_t limit = std::min(kv.capacity(), config.context);
  QF_TRY(check_prompt(prompt.size(), kv.length(), limit - kv.length(), config.context, options));
  QF_TRY_ASSIGN(Sampler sampler, Sampler::make(options.sampler));
  std::vector<float> logits(static_cast<std::size_t>(config.vocab));
  const MatrixView<float> view(logits.data(), {1, config.vocab}), none(nullptr, {0, config.vocab});
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t held = kv.length();
  const auto chunk = static_cast<std::size_t>(options.prefill_chunk);
  for (std::size_t done = 0; done < prompt.size(); done += chunk) {
    const std::size_t n = std::min(chunk, prompt.size() - done);
    Status status = decoder.forward(prompt.subspan(done, n), kv, done + n == prompt.size() ? view : none);
    if (!status.ok()) {
      QF_TRY(kv.truncate(held));
      return status;
    }
  }
  GenerateResult result;
  result.prompt_seconds = seconds_since(start);
  const auto first_token = std::chrono::steady_clock::now();
  while (true) {
    QF_TRY_ASSIGN(const std::int32_t id, sampler.sample(logits));
    if (std::ranges::find(options.stop_ids, id) != options.stop_ids.end()) {
      result.reason = StopReason::stop_id;
      break;
    }
    result.ids.push_back(id);
    if (on_token && !on_token(id)) {
      result.reason = StopReason::callback;
      break;
    }
    if (static_cast<std::int64_t>(result.ids.size()) >= options.max_tokens) break;
    if (kv.length() >= limit) {
      result.reason = StopReason::context;
      break;
    }
    QF_TRY(decoder.forward({&id, 1}, kv, view));
  }
  result.token_seconds = seconds_since(first_token);
  return result;
}

}  // namespace

Result<GenerateResult> generate(Decoder& decoder, KvStore& kv, std::span<const std::int32_t> prompt,
                                const GenerateOptions& options, const TokenCallback& on_token) {
  try {
    return run(decoder, kv, prompt, options, on_token);
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, "no memory to generate");
  }
}

Result<GenerateResult> generate(Decoder& decoder, std::span<const std::int32_t> prompt,
                                const GenerateOptions& options, const TokenCallback& on_token) {
  const std::int64_t context = decoder.config().context;
  QF_TRY(check_prompt(prompt.size(), 0, context, context, options));
  // The last token is never run, so it needs no place.
  const std::int64_t room = context - static_cast<std::int64_t>(prompt.size());
  QF_TRY_ASSIGN(auto kv, decoder.make_kv(static_cast<std::int64_t>(prompt.size()) +
                                         std::min(room, options.max_tokens - 1)));
  return generate(decoder, *kv, prompt, options, on_token);
}

}  // namespace qf::model
