// What happens inside a layer of a decoder, on rows of f32: one place for whoever runs whole models and whoever runs
// a single layer. Attention's keys and values are the caller's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "qf/core/buffer.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"
#include "qf/kernel/attention.hpp"
#include "qf/kernel/matmul.hpp"
#include "qf/model/config.hpp"
#include "src/model_rope.hpp"
#include "src/model_weights.hpp"

namespace qf::model::detail {

// Owns every buffer that a layer needs for up to reserve()'s rows, kept between calls. `config` outlives it.
class LayerMath {
 public:
  LayerMath(const ModelConfig& config, const kernel::MatmulOptions& matmul)
      : config_(config),
        matmul_(matmul),
        short_rope_(rope_frequencies(config, false)),
        long_rope_(rope_frequencies(config, true)) {}

  std::int64_t q_dim() const { return config_.heads * config_.head_dim; }
  std::int64_t kv_dim() const { return config_.kv_heads * config_.head_dim; }
  const kernel::MatmulOptions& matmul() const { return matmul_; }

  Status reserve(std::int64_t rows);

  // f(row) for every row of a block, several rows a task.
  template <class F>
  void for_rows(std::int64_t rows, F&& f) const {
    constexpr std::int64_t kStep = 16;
    parallel_for(matmul_.parallel, (rows + kStep - 1) / kStep, [&](std::int64_t task) {
      for (std::int64_t r = task * kStep; r < std::min(rows, (task + 1) * kStep); ++r) f(r);
    });
  }

  // What a layer has added (nullptr: nothing) joins the hidden state [rows, hidden], which is then normalized. One
  // pass over memory and one meeting of the threads.
  void add_and_norm(const Array<float>& weight, std::int64_t rows, float* hidden, const float* added,
                    float* normed) const;
  void norm(const Array<float>& weight, std::int64_t rows, const float* x, float* normed) const;
  void add(std::int64_t rows, float* hidden, const float* added) const;
  // Sines and cosines of positions [position, position + rows), for project_qkv() until the next call.
  // `long_context` as of rope_frequencies().
  void make_angles(std::int64_t position, std::int64_t rows, bool long_context);
  // x [rows, hidden], normalized, to queries, keys and values, rotated.
  Status project_qkv(const Layer& l, MatrixView<const float> x);
  const float* keys() const { return k_.data(); }    // [rows, kv_dim()]
  const float* values() const { return v_.data(); }  // [rows, kv_dim()]
  // Attention of the queries to keys that `args` names (kv_type, pages, strides) into args.out.
  Status attend(std::int64_t layer, std::int64_t rows, std::int64_t position, kernel::AttentionArgs args);
  // x [rows, hidden], normalized, to the input of down [rows, ffn], valid until the next call.
  Result<MatrixView<const float>> activate(const Layer& l, MatrixView<const float> x);

 private:
  void prepare_heads(float* x, std::int64_t heads, const Array<float>& norm, std::int64_t row) const;

  const ModelConfig& config_;
  kernel::MatmulOptions matmul_;
  RopeFrequencies short_rope_, long_rope_;
  std::int64_t rows_ = 0;
  Array<float> q_, k_, v_, qkv_, gate_up_, cosine_, sine_;
  kernel::AttentionScratch attention_;
};

}  // namespace qf::model::detail
