// The weights of a decoder as forward() uses them, and their loading with every check.
#pragma once

#include <string>
#include <vector>

#include "qf/core/buffer.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/kernel/dense.hpp"
#include "qf/kernel/matmul.hpp"
#include "qf/model/config.hpp"
#include "qf/model/decoder.hpp"
#include "src/model_folder.hpp"

namespace qf::model::detail {

// y = x w^T + bias, with w either in float or packed in few bits.
struct Linear {
  std::string name;
  kernel::DenseWeight dense;
  kernel::PackedWeight packed;
  bool is_packed = false;
  Array<float> bias;  // [n] or empty

  Status apply(MatrixView<const float> x, MatrixView<float> y, const kernel::MatmulOptions& options) const {
    if (!is_packed) return kernel::dense_matmul(x, dense, y, bias, options.parallel);
    return kernel::matmul(x, packed, y, bias, options);
  }
  std::uint64_t bytes() const {
    return (is_packed ? packed.buffer().size() : dense.bytes()) + bias.size() * sizeof(float);
  }
};

// Rows by token id.
struct Embedding {
  kernel::DenseWeight dense;
  QuantizedMatrix low_bit;  // used instead if it has rows
  bool is_low_bit() const { return low_bit.n() > 0; }
  void copy_row(std::int64_t i, float* out) const {
    if (is_low_bit())
      low_bit.dequantize_row(i, out);
    else
      dense.copy_row(i, out);
  }
  std::uint64_t bytes() const {
    const std::int64_t floats = low_bit.scales().size() + low_bit.zeros().size() + low_bit.codebook().size();
    return dense.bytes() + static_cast<std::uint64_t>(low_bit.codes().size()) +
           static_cast<std::uint64_t>(floats) * sizeof(float);
  }
};

struct Layer {
  Array<float> attention_norm, ffn_norm;  // [hidden]
  Array<float> q_norm, k_norm;            // [head_dim] or empty
  Linear q, k, v, qkv;                    // either the three or the fused one
  Linear o;
  Linear gate, up, gate_up;  // either the two or the fused one
  Linear down;
};

struct Weights {
  Embedding embedding;  // [vocab, hidden]
  std::vector<Layer> layers;
  Array<float> final_norm;
  Linear head;  // unused when tied to a float embedding
  bool has_head() const { return head.is_packed || head.dense.n() > 0; }
};

// Errors name file and tensor: missing, of another shape or type than the configuration asks for, holding NaN
// or infinity, or belonging to no part of the model.
Result<Weights> load_weights(const ModelFiles& files, const LoadOptions& options);

// The same checks of names, shapes and types without reading any tensor.
Status check_weights(const ModelFiles& files);
// Parts of the model, for whoever doesn't want all of it in memory.
Result<Layer> load_layer(const ModelFiles& files, const LoadOptions& options, std::int64_t index);
Result<Array<float>> load_final_norm(const ModelFiles& files, const LoadOptions& options);

// A low-bit matrix as f32.
Status expand(const QuantizedMatrix& w, kernel::DenseWeight& out);

}  // namespace qf::model::detail
