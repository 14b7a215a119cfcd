// Rotary position embedding: the two halves of a head's rotating dimensions form pairs (x[i], x[i + r/2]),
// as Hugging Face's checkpoints store them. Su et al., "RoFormer" (2021); Llama-3 scaling as in Meta's
// reference code; LongRoPE: Ding et al. (2024).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "qf/model/config.hpp"

namespace qf::model::detail {

inline std::int64_t rotary_dims(const ModelConfig& c) {
  return static_cast<std::int64_t>(static_cast<double>(c.head_dim) * c.rope.partial);
}

struct RopeFrequencies {
  std::vector<double> per_token;  // [rotary dims / 2] radians
  double magnitude = 1;           // multiplies sine and cosine
};

// `long_context` chooses between LongRoPE's two sets of factors.
inline RopeFrequencies rope_frequencies(const ModelConfig& c, bool long_context) {
  const RopeConfig& rope = c.rope;
  const std::int64_t dims = rotary_dims(c);
  const auto original = static_cast<double>(rope.original_context);
  RopeFrequencies out;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    double f = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
    const auto index = static_cast<std::size_t>(i);
    switch (rope.scaling) {
      case RopeScaling::none:
        break;
      case RopeScaling::linear:
        f /= rope.factor;
        break;
      case RopeScaling::llama3: {
        const double turns = original * f / (2 * std::numbers::pi);  // over the original context
        if (turns < rope.low_freq_factor) {
          f /= rope.factor;
        } else if (turns <= rope.high_freq_factor) {
          const double smooth =
              (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
          f = (1 - smooth) * f / rope.factor + smooth * f;
        }
        break;
      }
      case RopeScaling::longrope:
        f /= long_context ? rope.long_factor[index] : rope.short_factor[index];
        break;
    }
    out.per_token.push_back(f);
  }
  if (rope.scaling == RopeScaling::longrope) {
    out.magnitude = rope.attention_factor;
    if (out.magnitude == 0) {
      const double ratio = static_cast<double>(c.context) / original;
      out.magnitude = ratio <= 1 ? 1 : std::sqrt(1 + std::log(ratio) / std::log(original));
    }
  }
  return out;
}

}  // namespace qf::model::detail
