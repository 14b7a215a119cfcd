#include "qf/model/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

namespace qf::model {

Result<Sampler> Sampler::make(const SamplerOptions& options) {
  if (!(options.temperature >= 0 && options.temperature <= 1e3))
    return Status(Errc::invalid_argument, "temperature is out of range, expected 0 to 1000");
  if (options.top_k < 0)
    return Status(Errc::invalid_argument, cat({"top-k ", num(options.top_k), ", expected 0 or more"}));
  if (!(options.top_p > 0 && options.top_p <= 1))
    return Status(Errc::invalid_argument, "top-p is out of range, expected above 0 and at most 1");
  return Sampler(options);
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits) {
  float largest = -std::numeric_limits<float>::infinity();
  std::int64_t best = -1;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity())
      return Status(Errc::invalid_argument, cat({"the logit of token ", num(i), " is not a finite number"}));
    if (logits[i] > largest) largest = logits[i], best = static_cast<std::int64_t>(i);
  }
  if (best < 0) return Status(Errc::invalid_argument, "no token has a finite logit");
  if (options_.temperature == 0 || options_.top_k == 1) return static_cast<std::int32_t>(best);
  try {
    return draw(logits, largest);
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, "no memory to sample a token");
  }
}

Result<std::int32_t> Sampler::draw(std::span<const float> logits, float largest) {
  // A total order, so that the outcome doesn't depend on the library's sorting.
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((static_cast<double>(logits[i]) - largest) / options_.temperature);
    if (weight > 0) candidates_.push_back({logits[i], static_cast<std::int32_t>(i), weight});
  }
  if (options_.top_k && static_cast<std::size_t>(options_.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), before);
    candidates_.resize(static_cast<std::size_t>(options_.top_k));
  }
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  std::size_t kept = candidates_.size();
  if (options_.top_p < 1) {
    // Sort only as many as it takes: twice as many at each try.
    std::size_t sorted = 0;
    double mass = 0;
    kept = 0;
    for (std::size_t want = 64; kept < candidates_.size() && mass < options_.top_p * total; ++kept) {
      if (kept == sorted) {
        sorted = std::min(candidates_.size(), sorted + want);
        std::partial_sort(candidates_.begin() + static_cast<std::ptrdiff_t>(kept),
                          candidates_.begin() + static_cast<std::ptrdiff_t>(sorted), candidates_.end(),
                          before);
        want *= 2;
      }
      mass += candidates_[kept].weight;
    }
    total = mass;
  } else if (options_.top_k) {
    std::sort(candidates_.begin(), candidates_.end(), before);
    total = 0;
    for (const Candidate& c : candidates_) total += c.weight;
  }
  double left = random_.uniform() * total;
  for (std::size_t i = 0; i < kept; ++i) {
    left -= candidates_[i].weight;
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[kept - 1].id;  // rounding left a crumb
}

}  // namespace qf::model
