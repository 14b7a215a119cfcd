// The oracle: layout canonical, any scheme, any CPU. Each weight is made as QuantizedMatrix::value makes it
// (f32), products and sums are f64. Written to be obviously right, not fast.
#include <cstring>

#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

namespace qf::kernel {
namespace {

struct Params {
  const float *scales, *zeros, *codebook;  // nullptr where there are none
  const std::int32_t* group_of;
};

Params params_of(const PackedHeader& h, const std::byte* weight) {
  const Scheme scheme = scheme_of(h);
  const bool book = scheme.codebook != CodebookKind::none;
  const std::int64_t each = h.n * scheme.groups(h.k);
  const auto* next = reinterpret_cast<const float*>(weight + h.params_offset);
  Params p{next, nullptr, nullptr, nullptr};
  next += each;
  if (scheme.zero != ZeroKind::symmetric && !book) p.zeros = next, next += each;
  if (book) p.codebook = next, next += (scheme.codebook == CodebookKind::per_row ? h.n : 1) * scheme.levels();
  if (h.has_group_of) p.group_of = reinterpret_cast<const std::int32_t*>(next);
  return p;
}

std::int64_t scratch_bytes(const MatmulArgs& a) noexcept {
  return a.k * static_cast<std::int64_t>(sizeof(float));
}

void run(const MatmulArgs& a) noexcept {
  PackedHeader h;
  std::memcpy(&h, a.weight, sizeof h);
  const Scheme scheme = scheme_of(h);
  const Params p = params_of(h, a.weight);
  const std::int64_t group = scheme.group_size(a.k), groups = scheme.groups(a.k);
  auto* row = static_cast<float*>(a.scratch);
  for (std::int64_t j = a.n_begin; j < a.n_end; ++j) {
    const auto* codes = reinterpret_cast<const std::uint8_t*>(a.weight + h.codes_offset) + j * a.k;
    const float* book =
        p.codebook ? p.codebook + (scheme.codebook == CodebookKind::per_row ? j * scheme.levels() : 0)
                   : nullptr;
    for (std::int64_t c = 0; c < a.k; ++c) {
      const std::int64_t g = j * groups + (p.group_of ? p.group_of[c] : c / group);
      const float zero = p.zeros ? p.zeros[g] : scheme.symmetric_zero();
      row[c] = (book ? book[codes[c]] : static_cast<float>(codes[c]) - zero) * p.scales[g];
    }
    for (std::int64_t i = 0; i < a.m; ++i) {
      const float* x = a.x + i * a.x_stride;
      double sum = 0;
      for (std::int64_t c = 0; c < a.k; ++c) sum += static_cast<double>(x[c]) * static_cast<double>(row[c]);
      if (a.bias) sum += static_cast<double>(a.bias[j]);
      a.y[i * a.y_stride + j] = static_cast<float>(sum);
    }
  }
}

}  // namespace

extern const KernelFunctions gemm_f32_canonical;
const KernelFunctions gemm_f32_canonical{run, scratch_bytes};

}  // namespace qf::kernel
