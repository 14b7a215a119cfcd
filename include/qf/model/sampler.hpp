// Needs: link qf. Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qf/core/result.hpp"

namespace qf::model {

// PCG-XSH-RR 64/32 (O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for
// Random Number Generation", 2014): the same numbers on every platform.
class Pcg32 {
 public:
  explicit Pcg32(std::uint64_t seed = 0, std::uint64_t stream = 54) : increment_(stream << 1 | 1) {
    next();
    state_ += seed;
    next();
  }
  std::uint32_t next() {
    const std::uint64_t old = state_;
    state_ = old * 6364136223846793005u + increment_;
    const auto word = static_cast<std::uint32_t>((old >> 18 ^ old) >> 27);
    const auto turn = static_cast<unsigned>(old >> 59);
    return word >> turn | word << (-turn & 31);
  }
  // In [0, 1), a multiple of 2^-53.
  double uniform() {
    const std::uint64_t high = next() >> 5, low = next() >> 6;
    return static_cast<double>(high << 26 | low) * 0x1p-53;
  }

 private:
  std::uint64_t state_ = 0, increment_;
};

struct SamplerOptions {
  double temperature = 0;  // 0: always the most likely token (the lowest id among equals)
  std::int64_t top_k = 0;  // keep the k most likely; 0: all
  double top_p = 1;        // then keep the fewest most likely whose probabilities reach p
  std::uint64_t seed = 0;
};

// Thread rule: one thread at a time.
class Sampler {
 public:
  // Errors: an option out of range, named.
  static Result<Sampler> make(const SamplerOptions& options);
  // Errors: no logits, logits that are NaN or +infinity (-infinity excludes a token), out of memory.
  Result<std::int32_t> sample(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    double weight;
  };
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
  Result<std::int32_t> draw(std::span<const float> logits, float largest);
  SamplerOptions options_;
  Pcg32 random_;
  std::vector<Candidate> candidates_;
};

}  // namespace qf::model
