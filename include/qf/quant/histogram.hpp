// Needs: link qf. One cut for a whole matrix, from the histogram of its weights: by entropy, or by share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "qf/quant/quantizer.hpp"

namespace qf::quant {

enum class HistogramKind : std::uint8_t {
  entropy,  // the cut whose quantized histogram has the least Kullback-Leibler divergence from the whole one
            // (Migacz, "8-bit Inference with TensorRT", GTC 2017)
  percentile,  // the least cut that leaves at most a share of the weights outside
};

struct HistogramOptions {
  HistogramKind kind = HistogramKind::entropy;
  int bins = 2048;       // 16 to 65536
  double share = 0.001;  // percentile: of weights outside, in [0, 0.5]
};

// Round to nearest on grids that are cut at the same share of what their group's weights take: the histogram counts
// |w| / max|w| of each group (with floating zeros: of the distance from the mean), so that groups of any size and
// scale are one distribution. The levels that entropy counts are those of one side, 2^(bits - 1). 1 to 8 bits, any
// zero and group, no statistics. The same bytes for any ParallelFor. Errors as Rtn's, and Errc::invalid_argument:
// options out of range.
class HistogramRtn {
 public:
  static constexpr bool kNeedsWholeMatrix = true;

  explicit HistogramRtn(const HistogramOptions& options = {}) : options_(options) {}
  std::string_view name() const { return options_.kind == HistogramKind::entropy ? "kl" : "percentile"; }
  const HistogramOptions& options() const { return options_; }

  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const;

 private:
  HistogramOptions options_;
};
static_assert(Quantizer<HistogramRtn>);

// The number of bins, from `levels` to counts.size(), that entropy keeps. Counts of weights by magnitude, smallest
// first. All bins where the rest is empty, or where there are no counts.
std::int64_t entropy_cut(std::span<const std::int64_t> counts, int levels);

}  // namespace qf::quant
