#include "src/cli/sampler.hpp"

#include <algorithm>
#include <cmath>

namespace qf::cli {

// SplitMix64 (Steele, Lea, Flood 2014); 53 bits of it make the number.
double Sampler::uniform() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

std::int32_t Sampler::pick(std::span<const float> logits) {
  if (options_.temperature <= 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates_.push_back({logits[i], static_cast<std::int32_t>(i), 0});
  // Ties go to the smaller id, so that the order is the same everywhere.
  auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), likelier);
    candidates_.resize(static_cast<std::size_t>(options_.top_k));
  }
  std::sort(candidates_.begin(), candidates_.end(), likelier);

  double sum = 0;
  for (Candidate& c : candidates_) {
    c.probability =
        std::exp((static_cast<double>(c.logit) - candidates_.front().logit) / options_.temperature);
    sum += c.probability;
  }
  double kept = 0;
  std::size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < options_.top_p * sum))
    kept += candidates_[count++].probability;

  double left = uniform() * kept;
  for (std::size_t i = 0; i < count; ++i) {
    left -= candidates_[i].probability;
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[count - 1].id;
}

}  // namespace qf::cli
