// Needs: link qf. Codebooks: each row gets the 2^bits values that suit its weights best.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "qf/core/buffer.hpp"
#include "qf/quant/quantizer.hpp"

namespace qf::quant {

struct KmeansOptions {
  bool exact = false;   // the least error of all, by dynamic programming; some ten times the time of Lloyd's
  int iterations = 50;  // most of Lloyd's, 0 to 1000; it ends when nothing changes
  bool weighted = false;  // squares count by the Hessian's diagonal (SqueezeLLM's sensitivity: Kim et al.,
                          // arXiv:2306.07629); statistics are needed then
};

// One-dimensional k-means of each row: CodebookKind::per_row, 1 to 8 bits, any group. A row of one group has a power
// of two as its scale, groups have their largest magnitude; entries are rounded to the scales' type and ascend.
// Lloyd's iterations (Lloyd 1982) start from the exact optimum of the row's weights in 4 * 2^bits buckets; `exact`
// is the dynamic programme of Wang and Song (Ckmeans.1d.dp, 2011) with divide and conquer, O(2^bits k log k) a row.
// A Hessian of zeros and a row whose diagonal is zero count as unweighted. The same bytes for any ParallelFor.
// Errors: NaN or infinite weights (bad_format), another codebook (unsupported), options out of range, missing or
// unfit statistics (invalid_argument), a scale that doesn't fit its type. They name tensor, row and column.
class Kmeans {
 public:
  explicit Kmeans(const KmeansOptions& options = {}) : options_(options) {}
  static constexpr std::string_view name() { return "kmeans"; }
  const KmeansOptions& options() const { return options_; }

  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const;

 private:
  KmeansOptions options_;
};
static_assert(Quantizer<Kmeans>);

// The clusters of `points` (ascending) with weights >= 0 that have the least sum of weight * (point - mean)^2:
// ends[q] is one past the last point of cluster q, for each of ends.size() clusters, ascending; clusters may be empty.
// Errors: out of memory.
Status kmeans_exact(std::span<const float> points, std::span<const float> weights,
                    std::span<std::int32_t> ends);

}  // namespace qf::quant
