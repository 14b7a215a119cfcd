// Needs: link qf. How wrong a model is on a text: perplexity, and the distance to a reference model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qf/core/progress.hpp"
#include "qf/model/decoder.hpp"

namespace qf::verify {

struct TextOptions {
  std::int64_t context = 1024;  // tokens a window; windows follow one another without overlap
  std::int64_t windows = 0;     // 0: as many as the text fills
  Progress progress{};
};

struct TextResult {
  double ppl = 0;           // exp(mean negative log-likelihood) over windows * (context - 1) predictions
  double kl = 0;            // mean of KL(reference || model) in nats; 0 without a reference
  double top1 = 1;          // share of positions where both have the same most likely token
  std::int64_t tokens = 0;  // predictions
  std::vector<double> window_ppl;  // one a window
};

// `ids`: the whole text, tokenized once. Errors: text shorter than one window, vocabularies that differ.
Result<TextResult> evaluate_text(model::Decoder& model, model::Decoder* reference,
                                 std::span<const std::int32_t> ids, const TextOptions& options = {});

}  // namespace qf::verify
