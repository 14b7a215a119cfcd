// Needs: link qf. Float matrices on the CPU: packing, products and attention, the reference that low-bit
// results are measured against. Sums run over k in ascending order in f32 (fused where the CPU fuses), so
// every result is the same bits for any number of rows in a call and any number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "qf/core/buffer.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"

namespace qf::kernel {

// w [n, k] as f32, 4 bytes an element (n rounded up to 16), in panels of 16 outputs. Move-only; const use
// from many threads, fill() from many threads for different rows.
class DenseWeight {
 public:
  DenseWeight() = default;
  // All zeros. Errors: negative sizes, out of memory.
  static Result<DenseWeight> make(std::int64_t n, std::int64_t k);
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  std::uint64_t bytes() const { return panels_.size() * sizeof(float); }

  // Sets rows [first, first + rows.shape[0]). `first` is a multiple of 16, rows.shape[1] == k.
  void fill(std::int64_t first, MatrixView<const float> rows);
  // Copies row i to out [k].
  void copy_row(std::int64_t i, float* out) const;
  const float* panel(std::int64_t index) const { return panels_.data() + index * k_ * 16; }

 private:
  std::int64_t n_ = 0, k_ = 0;
  Array<float> panels_;  // [ceil(n / 16)][k][16]
};

// y [m, n] = x [m, k] * w^T + bias. `bias` is empty or [n]. y may not overlap x; last dimensions contiguous.
// Errors: shapes that disagree.
Status dense_matmul(MatrixView<const float> x, const DenseWeight& w, MatrixView<float> y,
                    std::span<const float> bias = {}, const ParallelFor& parallel = {});

struct AttentionArgs {
  std::int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t position = 0;  // of the first token; keys and values hold position + tokens rows
  std::int64_t window = 0;    // 0: all before; else token i sees (i - window, i]
  float scale = 1;            // of the scores, 1 / sqrt(head_dim)
  MatrixView<const float> q;  // [tokens, heads * head_dim]
  // [kv_heads] pointers to [position + tokens, head_dim], rows kv_stride elements apart.
  std::span<const float*const> keys, values;
  std::span<const std::int64_t> key_stride, value_stride;
  MatrixView<float> out;  // [tokens, heads * head_dim]
};

// Scratch memory that attention() keeps between calls; grows as needed.
class AttentionScratch {
 public:
  // Errors: out of memory.
  Status reserve(std::size_t count) {
    if (buffer_.size() >= count) return {};
    buffer_ = {};
    QF_TRY_ASSIGN(buffer_, Array<float>::make(count + count / 4));
    return {};
  }
  float* data() { return buffer_.data(); }

 private:
  Array<float> buffer_;
};

// Causal softmax attention, heads / kv_heads query heads to a KV head. Errors: out of memory.
Status attention(const AttentionArgs& args, AttentionScratch& scratch, const ParallelFor& parallel = {});

// gate [n] = silu(gate) * up.
void silu_mul(float* gate, const float* up, std::int64_t n);

}  // namespace qf::kernel
