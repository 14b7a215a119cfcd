// The weights of a decoder as forward() uses them, and their loading with every check.
#pragma once

#include <string>
#include <vector>

#include "qf/core/buffer.hpp"
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

  Status apply(MatrixView<const float> x, MatrixView<float> y, const LoadOptions& options) const {
    if (!is_packed) return kernel::dense_matmul(x, dense, y, bias, options.parallel);
    return kernel::matmul(x, packed, y, bias, {options.accuracy, nullptr, options.parallel});
  }
  std::uint64_t bytes() const {
    return (is_packed ? packed.buffer().size() : dense.bytes()) + bias.size() * sizeof(float);
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
  kernel::DenseWeight embedding;  // [vocab, hidden]
  std::vector<Layer> layers;
  Array<float> final_norm;
  Linear head;  // unused when tied
};

// Errors name file and tensor: missing, of another shape or type than the configuration asks for, holding NaN
// or infinity, or belonging to no part of the model.
Result<Weights> load_weights(const ModelFiles& files, const LoadOptions& options);

}  // namespace qf::model::detail
