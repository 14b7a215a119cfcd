// Needs: link qf. Second moments of activations: sums over rows of products of columns. Sums run in f32 over stretches
// of 1024 rows, in chains of 128 as in dense.hpp, and stretches are added in f64: the same bits for any number of
// threads, and the error doesn't grow with the number of rows.
#pragma once

#include <cstdint>

#include "qf/core/buffer.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"

namespace qf::kernel {

struct GramArgs {
  MatrixView<const float> x;      // [rows, k]
  MatrixView<const float> other;  // [rows, k], or empty (data nullptr) without `cross`
  // [k, k] += x^T x. Complete on and below the diagonal; what lies above is not to be read. Empty: not wanted.
  MatrixView<double> gram;
  MatrixView<double> cross;  // [k, k] += (other - x)^T x, or empty
};

// Memory that add_gram() keeps between calls.
struct GramScratch {
  Array<float> panels, rows, difference;
};

// Errors: shapes that disagree, out of memory. Last dimensions are contiguous, and nothing overlaps.
Status add_gram(const GramArgs& args, GramScratch& scratch, const ParallelFor& parallel = {});

}  // namespace qf::kernel
