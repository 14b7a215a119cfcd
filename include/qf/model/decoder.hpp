// Needs: link qf. A decoder language model: tokens in, logits out.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "qf/core/parallel.hpp"
#include "qf/core/progress.hpp"
#include "qf/core/tensor.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/kernel/abi.hpp"
#include "qf/model/config.hpp"
#include "qf/model/kv.hpp"

namespace qf::model {

enum class Compute : std::uint8_t {
  f32,  // low-bit weights expanded to float, 4 bytes a weight: the reference. f16 and bf16 weights keep their type
  packed,  // low-bit weights stay packed and run on qf's kernels; float weights as with f32
};

struct LoadOptions {
  Compute compute = Compute::packed;
  kernel::Accuracy accuracy = kernel::Accuracy::exact;
  ParallelFor parallel{};  // used for loading and by forward(); must outlive the decoder
  Progress progress{};
};

// Weights and shapes; holds no state between calls but the KvStore that the caller passes.
// Thread rule: one forward() at a time per Decoder (it owns scratch memory).
class Decoder {
 public:
  // `path`: a Hugging Face folder (float weights, or low-bit ones as qf quantize writes them) or a GGUF file.
  // Errors name the file, the tensor and what was expected; an architecture or key that isn't supported is
  // refused.
  static Result<std::unique_ptr<Decoder>> load(const std::string& path, const LoadOptions& options = {});
  virtual ~Decoder() = default;

  virtual const ModelConfig& config() const = 0;
  // A contiguous cache for up to `capacity` tokens: f32, or with Accuracy::fast f16, which rounds keys and values
  // by 2^-11 at most and halves what each token reads. forward() takes either.
  virtual Result<std::unique_ptr<KvStore>> make_kv(std::int64_t capacity) const = 0;

  // Runs `tokens` at positions kv.length(), kv.length() + 1, ... and appends them to kv. Writes the logits of
  // the last logits.shape[0] of them: logits [wanted, vocab], wanted <= tokens.size(), 0 for none. Whole
  // prompt at once or token by token gives the same logits. Errors: token id out of range, kv too small, out
  // of memory; kv is unchanged then.
  virtual Status forward(std::span<const std::int32_t> tokens, KvStore& kv, MatrixView<float> logits) = 0;

  // Bytes that weights take in memory.
  virtual std::uint64_t weight_bytes() const = 0;
};

}  // namespace qf::model
