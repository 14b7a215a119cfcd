// Needs: link qf. QuantizedMatrix to and from the "pack-quantized" tensors of compressed-tensors, which is how qf
// itself stores low-bit models and what vLLM reads. For a module "m" with w [n, k] and G = groups(k):
//   m.weight_packed      I32 [n, ceil(k * bits / 32)]  codes of a row, dense (format/codes.hpp)
//   m.weight_scale       F16, BF16 or F32 [n, G]
//   m.weight_zero_point  I32 [ceil(n * bits / 32), G]  only with integer zeros; codes of a column, dense
//   m.weight_shape       I64 [2]                       n, k
//   m.weight_g_idx       I32 [k]                       only with act-order: the group of each column
// Codes and zeros are stored unsigned, as QuantizedMatrix has them. compressed-tensors up to 0.17 padded words
// instead: floor(32 / bits) codes each; both are read, dense is written.
// Source: compressed-tensors 0.20.1 and its older wheels.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "qf/format/quantized_matrix.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/io/quantization_config.hpp"
#include "qf/io/safetensors_writer.hpp"

namespace qf::io {

struct StoredTensor {
  TensorSpec spec;
  std::vector<std::byte> bytes;
};

// What a writer has to declare for a module, before there are codes. Errors: invalid_argument; unsupported for
// codebooks and floating zeros, which this form can't express.
Result<std::vector<TensorSpec>> quantized_specs(const std::string& module, const Scheme& scheme,
                                                std::int64_t n, std::int64_t k, bool act_order);

// The same tensors in the same order, with their bytes. Also refused: codes, zeros or scales that the matrix's
// scheme can't hold (invalid_argument, with row and group).
Result<std::vector<StoredTensor>> tensors_of(const QuantizedMatrix& matrix, const std::string& module);

// Whether the checkpoint holds the module in this form.
bool is_quantized(const Checkpoint& checkpoint, const std::string& module);

// Reads a module whose group is known; `version` is the config's. Where bytes of both orders would fit (few
// columns of 3, 5, 6 or 7 bits), the version decides, and without one the module is refused. Every shape is checked against
// the others and g_idx against the groups; scales must be finite, zero and negative ones are taken as they are;
// bits after the last code of a row are not looked at. A g_idx that orders nothing is dropped.
// Errors: not_found (a tensor is missing), bad_format, unsupported, out_of_memory.
Result<QuantizedMatrix> read_quantized(const Checkpoint& checkpoint, const std::string& module,
                                       const QuantizationGroup& group, const std::string& version,
                                       const Allocator& allocator = default_allocator());

// The same for a module of class Linear, whose group is found in the config; not_found when there is none.
Result<QuantizedMatrix> read_quantized(const Checkpoint& checkpoint, const std::string& module,
                                       const QuantizationConfig& config,
                                       const Allocator& allocator = default_allocator());

}  // namespace qf::io
