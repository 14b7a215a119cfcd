// Needs: link qf. How wrong a model is on a text: perplexity, and the distance to a reference model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qf/core/parallel.hpp"
#include "qf/core/progress.hpp"
#include "qf/model/decoder.hpp"

namespace qf::verify {

struct TextOptions {
  std::int64_t context = 1024;  // tokens a window; windows follow one another without overlap
  std::int64_t windows = 0;     // 0: as many as the text fills
  ParallelFor parallel{};       // for the sums over the vocabulary; the decoders bring their own
  Progress progress{};          // stage "evaluate", unit "tokens": predictions judged
};

struct TextResult {
  double ppl = 0;            // exp(mean negative log-likelihood) over windows * (context - 1) predictions
  double reference_ppl = 0;  // the reference's own; 0 without one
  double kl = 0;             // mean of KL(reference || model) in nats; 0 without a reference
  double top1 = 1;           // share of positions where both have the same most likely token
  std::int64_t tokens = 0;   // predictions
  std::vector<double> window_ppl;  // one a window
};

// Every window starts from an empty cache; its first token predicts, its last is only predicted. Logits are
// f32 as the decoders give them, everything after that is double. Both models read a window side by side, in
// chunks of rows, so that memory holds 2 * 128 * vocab logits and not a whole window's. `ids`: the whole
// text, tokenized once. Errors: context below 2, a text with fewer windows than asked for, vocabularies that
// differ, ids outside the vocabulary, logits that aren't finite, out of memory, cancelled.
Result<TextResult> evaluate_text(model::Decoder& model, model::Decoder* reference,
                                 std::span<const std::int32_t> ids, const TextOptions& options = {});

}  // namespace qf::verify
