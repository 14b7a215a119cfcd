// How far a quantized matrix lies from its weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "qf/core/buffer.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"
#include "qf/format/quantized_matrix.hpp"

namespace qf::quant {

// Sums over elements, so that parts of a matrix add up. A matrix of zeros that came out exact has error 0 and
// infinite SNR.
struct MatrixError {
  std::int64_t elements = 0;
  double error_squares = 0;   // sum of (w - value)^2
  double weight_squares = 0;  // sum of w^2
  double max_abs_error = 0, max_abs_weight = 0;
  double max_scale = 0;  // the largest step between neighbouring codes; meaningless with a codebook
  double max_steps = 0;  // the largest |w - value| / scale

  void add(const MatrixError& other) {
    elements += other.elements;
    error_squares += other.error_squares;
    weight_squares += other.weight_squares;
    max_abs_error = std::max(max_abs_error, other.max_abs_error);
    max_abs_weight = std::max(max_abs_weight, other.max_abs_weight);
    max_scale = std::max(max_scale, other.max_scale);
    max_steps = std::max(max_steps, other.max_steps);
  }
  // ||W - Q||_F
  double frobenius() const { return std::sqrt(error_squares); }
  // ||W - Q||_F / ||W||_F
  double relative() const {
    if (error_squares == 0) return 0;
    return weight_squares == 0 ? std::numeric_limits<double>::infinity()
                               : std::sqrt(error_squares / weight_squares);
  }
  double snr_db() const {
    return error_squares == 0 ? std::numeric_limits<double>::infinity()
                              : 10 * std::log10(weight_squares / error_squares);
  }
  // step/2 * sqrt(n k), which rounding to nearest never exceeds; methods that trade one weight's error for
  // another's may.
  double bound() const { return max_scale / 2 * std::sqrt(static_cast<double>(elements)); }
};

// The share by which float arithmetic may pass the bound of half a step: values are float products.
inline constexpr double kBoundSlack = 1e-4;

// Errors of each row of q against w, of the same shape. The same result for any ParallelFor.
inline Result<Array<MatrixError>> measure_rows(MatrixView<const float> w, const QuantizedMatrix& q,
                                               const ParallelFor& parallel = {}) {
  const std::int64_t n = q.n(), k = q.k();
  if (w.shape[0] != n || w.shape[1] != k)
    return Status(Errc::invalid_argument, cat({"weights of ", num(w.shape[0]), " x ", num(w.shape[1]),
                                               " against codes of ", num(n), " x ", num(k)}));
  QF_TRY_ASSIGN(Array<MatrixError> rows, Array<MatrixError>::make(static_cast<std::size_t>(n)));
  parallel_for(parallel, n, [&](std::int64_t r) {
    MatrixError& row = rows[static_cast<std::size_t>(r)];
    const auto codes = q.codes();
    const auto scales = q.scales();
    const bool plain = q.group_of().empty() && q.codebook().data == nullptr;
    const std::int64_t segment = plain ? q.group_size() : 1;
    for (std::int64_t first = 0; first < k; first += segment) {
      const std::int64_t end = std::min(k, first + segment), g = q.group_index(first);
      const float scale = scales(r, g), zero = plain ? q.zero(r, g) : 0;
      double largest = 0;
      for (std::int64_t c = first; c < end; ++c) {
        const float value = plain ? (static_cast<float>(codes.row(r)[c]) - zero) * scale : q.value(r, c);
        const double weight = static_cast<double>(w.row(r)[c * w.stride[1]]);
        const double error = std::fabs(weight - static_cast<double>(value));
        row.error_squares += error * error;
        row.weight_squares += weight * weight;
        largest = std::max(largest, error);
        row.max_abs_weight = std::max(row.max_abs_weight, std::fabs(weight));
      }
      row.max_abs_error = std::max(row.max_abs_error, largest);
      row.max_scale = std::max(row.max_scale, std::fabs(static_cast<double>(scale)));
      if (scale != 0)
        row.max_steps = std::max(row.max_steps, largest / std::fabs(static_cast<double>(scale)));
    }
    row.elements = k;
  });
  return rows;
}

// Of the whole matrix: rows are added from the first to the last, so that the sums don't depend on threads.
inline Result<MatrixError> measure_error(MatrixView<const float> w, const QuantizedMatrix& q,
                                         const ParallelFor& parallel = {}) {
  QF_TRY_ASSIGN(const Array<MatrixError> rows, measure_rows(w, q, parallel));
  MatrixError total;
  for (const MatrixError& row : rows) total.add(row);
  return total;
}

}  // namespace qf::quant
