// The weights that qf-bench makes: a name says which.
#pragma once

#include <optional>
#include <string>

#include "qf/format/quantized_matrix.hpp"

namespace qf::bench {

enum class Book : std::uint8_t { none, nf4, e2m1, e4m3, random };

struct WeightKind {
  Scheme scheme;
  Book book = Book::none;
};

inline constexpr const char* kWeightNames =
    "w<bits>[g<group>][s|a|z]: s no zeros (default), a an integer zero a group, z a float one; "
    "c<bits>[g<group>] a codebook of the matrix, r<bits>[g<group>] one a row; nf4[g<group>], fp4[g<group>], "
    "mxfp4, nvfp4, fp8[g<group>]";

// nullopt: not such a name.
std::optional<WeightKind> parse_weights(const std::string& name);

// Normal weights, the same for the same kind and shape. Not good codes, but ones as frequent as those of real
// matrices.
QuantizedMatrix random_weights(const WeightKind& kind, std::int64_t n, std::int64_t k);

}  // namespace qf::bench
