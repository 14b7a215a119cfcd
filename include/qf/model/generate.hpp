// Needs: link qf. A prompt in, tokens out, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "qf/model/decoder.hpp"
#include "qf/model/sampler.hpp"

namespace qf::model {

struct GenerateOptions {
  std::int64_t max_tokens = 128;
  SamplerOptions sampler{};
  std::vector<std::int32_t> stop_ids;  // any of them ends the text and isn't part of it
  std::int64_t prefill_chunk = 512;    // tokens of the prompt that are run at once
};

enum class StopReason : std::uint8_t {
  max_tokens,
  stop_id,
  callback,  // it returned false
  context,   // the model's context, or the cache, is full
};

struct GenerateResult {
  std::vector<std::int32_t> ids;  // without the prompt and without the stop id
  StopReason reason = StopReason::max_tokens;
  double prompt_seconds = 0, token_seconds = 0;  // wall time of the prompt, and of all tokens after the first
};

// Called with each token as it is chosen, stop ids excluded; false ends the text. May be empty. Must not
// throw.
using TokenCallback = std::function<bool(std::int32_t id)>;

// Continues `prompt` behind what `kv` holds. Afterwards kv holds the prompt and every token of the result but
// the last one (all of them when a stop id ended it). Errors: an empty prompt, a prompt that doesn't leave
// room for one token within the model's context or kv's capacity, ids out of range, options out of range, out
// of memory.
Result<GenerateResult> generate(Decoder& decoder, KvStore& kv, std::span<const std::int32_t> prompt,
                                const GenerateOptions& options = {}, const TokenCallback& on_token = {});

// The same with a cache of its own, as large as prompt and max_tokens need.
Result<GenerateResult> generate(Decoder& decoder, std::span<const std::int32_t> prompt,
                                const GenerateOptions& options = {}, const TokenCallback& on_token = {});

}  // namespace qf::model
