// Picking the next token from logits. The same seed gives the same tokens on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qf::cli {

struct SamplerOptions {
  double temperature = 0;  // 0: always the most likely token
  std::int64_t top_k = 0;  // only the k most likely; 0: all
  double top_p = 1;        // only the most likely ones that together reach this probability
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options), state_(options.seed) {}
  std::int32_t pick(std::span<const float> logits);

 private:
  double uniform();  // in [0, 1)
  SamplerOptions options_;
  std::uint64_t state_;
  struct Candidate {
    float logit;
    std::int32_t id;
    double probability;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace qf::cli
