// Which channels to enlarge before rounding: the search of AWQ (Lin et al., arXiv:2306.00978). Weights of channels with
// large activations are multiplied by s and their inputs divided by it, so that they round with a smaller error.
#pragma once

#include <span>
#include <vector>

#include "qf/calib/statistics.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"
#include "qf/format/scheme.hpp"

namespace qf::quant::detail {

// A linear that reads the channels in question. w [n, k].
struct ScaledLinear {
  MatrixView<const float> w;
  Scheme scheme;
};

struct ScaleSearch {
  std::span<const ScaledLinear> linears;                // of the same input
  const calib::LinearStatistics* statistics = nullptr;  // hessian and mean_abs
  // [k]: channels of equal number share a scale; empty: each has its own.
  std::span<const std::int64_t> tied;
  int grid = 20;
};

// Scales [k]: mean_abs^r with the largest times the smallest 1, r = i / grid for the i that makes the error of the
// outputs, the sum over linears of tr(D H D^T) with D = Q(W s) / s - W, smallest; all 1 when nothing helps. Q rounds to
// nearest. The same bits for any ParallelFor. Errors: weights that have no grid, out of memory.
Result<Array<float>> search_scales(const ScaleSearch& search, const ParallelFor& parallel);

}  // namespace qf::quant::detail
