// Needs: link qf. Float matrices on the CPU: the reference that low-bit results are measured against, and what
// stays in float in a low-bit model. Sums run over k in f32 in chains of 128 columns (fused where the CPU
// fuses), which are added in order: every result is the same bits for any number of rows in a call and any
// number of threads. Relative RMS error against f64 at most 3e-7 for any k.
#pragma once

#include <cstdint>
#include <span>

#include "qf/core/buffer.hpp"
#include "qf/core/dtype.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"
#include "qf/kernel/small_ops.hpp"

namespace qf::kernel {

// w [n, k] as f32, f16 or bf16 (n rounded up to 16), in panels of 16 outputs; 2-byte elements become f32 in
// registers, so that a product with one row of x reads half the memory. Move-only; const use from many threads,
// fill() from many threads for different rows.
class DenseWeight {
 public:
  DenseWeight() = default;
  // All zeros. Errors: negative sizes, another type, out of memory.
  static Result<DenseWeight> make(std::int64_t n, std::int64_t k, DType type = DType::f32);
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  DType type() const { return type_; }
  std::uint64_t bytes() const { return panels_.size(); }

  // Sets rows [first, first + rows.shape[0]), rounded to the weight's type. `first` is a multiple of 16,
  // rows.shape[1] == k.
  void fill(std::int64_t first, MatrixView<const float> rows);
  // Copies row i to out [k].
  void copy_row(std::int64_t i, float* out) const;
  // Elements [k][16] of outputs [16 index, 16 index + 16).
  const std::byte* panel(std::int64_t index) const { return panels_.data() + index * panel_bytes(); }
  std::int64_t panel_bytes() const { return k_ * 16 * (dtype_bits(type_) / 8); }

 private:
  std::int64_t n_ = 0, k_ = 0;
  DType type_ = DType::f32;
  Array<std::byte> panels_;  // [ceil(n / 16)][k][16]
};

// y [m, n] = x [m, k] * w^T + bias. `bias` is empty or [n]. y may not overlap x; last dimensions contiguous.
// Errors: shapes that disagree.
Status dense_matmul(MatrixView<const float> x, const DenseWeight& w, MatrixView<float> y,
                    std::span<const float> bias = {}, const ParallelFor& parallel = {});

}  // namespace qf::kernel
