// Needs: link qf. Causal softmax attention on the CPU over contiguous or paged keys and values, in the manner of
// Dao et al., "FlashAttention-2" (2023): scores are made for some queries against 256 keys at a time and never
// kept. Keys fall into stretches of 256 by their absolute position; each stretch has its own largest score and
// sum, and stretches are put together in order of position. What is computed for a token therefore depends on
// nothing but its own visible keys: the same bits for any number of threads, any split of tokens into calls and
// any size of pages. Relative RMS error against f64 at most 1e-6 (f32 keys and values).
#pragma once

#include <cstdint>
#include <span>

#include "qf/core/buffer.hpp"
#include "qf/core/dtype.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"

namespace qf::kernel {

struct AttentionArgs {
  std::int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t position = 0;  // of the first token; keys and values hold at least position + tokens tokens
  std::int64_t window = 0;    // 0: all before; else token i sees (i - window, i]
  float scale = 1;            // of the scores, 1 / sqrt(head_dim)
  MatrixView<const float> q;  // [tokens, heads * head_dim]; row stride as given, columns contiguous

  DType kv_type = DType::f32;    // of keys and values: f32, f16 or bf16; scores and sums are f32 always
  std::int64_t page_tokens = 0;  // tokens a page holds; 0: one page holds all
  // [kv_heads] arrays of pointers to the pages of a KV head, in order of position. A page holds page_tokens rows
  // of head_dim elements, key_stride[kv head] (value_stride) elements apart. Rows that no token sees aren't
  // touched, so a page of those alone may be null. Pages need the alignment of an element only.
  std::span<const void*const*const> key_pages, value_pages;
  std::span<const std::int64_t> key_stride, value_stride;

  MatrixView<float> out;  // [tokens, heads * head_dim]; may not overlap anything else
};

// Scratch memory that attention() keeps between calls; grows as needed, so that calls that are no larger than
// an earlier one don't allocate.
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

// heads / kv_heads query heads share a KV head, and are computed together so that it is read once. Work is split
// over KV heads, tokens, and, where these are few, stretches of keys. Errors: shapes that disagree, an
// unsupported type, out of memory.
Status attention(const AttentionArgs& args, AttentionScratch& scratch, const ParallelFor& parallel = {});

}  // namespace qf::kernel
