// Needs: link qf. Collects what the inputs of a linear look like, block after block of rows.
#pragma once

#include <cstdint>

#include "qf/calib/statistics.hpp"
#include "qf/calib/wanted.hpp"
#include "qf/core/parallel.hpp"
#include "qf/kernel/gram.hpp"

namespace qf::calib {

// The result is the same for any number of threads, and for the same rows cut into calls at multiples of 1024. Memory:
// 8 k^2 bytes for each of hessian and cross while collecting.
class Accumulator {
 public:
  // Errors: k below 1, out of memory.
  static Result<Accumulator> make(std::int64_t k, Wanted wanted);

  // x [rows, k]: inputs of the linear. `in_float`: those of the float model at the same tokens, used for `cross` only
  // and empty otherwise. Errors: shapes; bad_format for a value that is NaN, infinite or beyond what a square can hold
  // in f32, with its row (counted from the first call's first) and channel.
  Status add(MatrixView<const float> x, MatrixView<const float> in_float, const ParallelFor& parallel = {});

  std::int64_t tokens() const { return tokens_; }

  // What was collected; the accumulator is empty afterwards. Errors: no rows seen, out of memory.
  Result<LinearStatistics> finish();

 private:
  Status check_finite(MatrixView<const float> x, MatrixView<const float> in_float) const;
  void add_channels(MatrixView<const float> x, const ParallelFor& parallel);

  std::int64_t k_ = 0, tokens_ = 0;
  Wanted wanted_;
  Array<double> gram_, cross_;   // [k, k] sums
  Array<double> sum_, sum_abs_;  // [k]
  Array<float> min_, max_;       // [k]
  kernel::GramScratch scratch_;
};

}  // namespace qf::calib
