// Needs: link qf. Prepacking, dispatch and the kernel table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "qf/core/buffer.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "qf/kernel/abi.hpp"

namespace qf::kernel {

// A weight ready to multiply with: one aligned buffer that begins with a 64-byte header (magic, version,
// scheme, layout, n, k, offsets). Move-only; const use from many threads.
class PackedWeight {
 public:
  PackedWeight() = default;
  std::int64_t n() const;
  std::int64_t k() const;
  const Scheme& scheme() const { return scheme_; }
  Layout layout() const;
  std::span<const std::byte> buffer() const { return buffer_; }

  // Checks a buffer that came from a file: magic, version, every offset, the size. `what` names it in errors.
  static Result<PackedWeight> from_buffer(Array<std::byte> buffer, std::string_view what);

 private:
  friend Result<PackedWeight> prepack(const QuantizedMatrix&, struct PackOptions);
  Scheme scheme_;
  Array<std::byte> buffer_;
};

struct PackOptions {
  Layout layout = Layout::rows16;  // falls back to canonical for schemes that rows16 doesn't hold
  ParallelFor parallel{};
};

// Errors: out of memory.
Result<PackedWeight> prepack(const QuantizedMatrix& w, PackOptions options = {});

struct MatmulOptions {
  Accuracy accuracy = Accuracy::exact;
  const Kernel* kernel =
      nullptr;  // forces one; an error if it doesn't fit. nullptr: the first row of the table that fits
  ParallelFor parallel{};
};

// y [m, n] = x [m, k] * w^T + bias. `bias` is empty or [n]. y may not overlap x. Any strides with the last
// dimension contiguous. Errors: shapes that disagree, a forced kernel that doesn't fit, out of memory
// (scratch).
Status matmul(MatrixView<const float> x, const PackedWeight& w, MatrixView<float> y,
              std::span<const float> bias = {}, const MatmulOptions& options = {});

// All rows of kernels/kernels.inc built into this library, in order of preference.
std::span<const Kernel* const> kernels();
const Kernel* find_kernel(std::string_view name);

// Instruction sets of this CPU, cut by the environment variable QF_MAX_ISA=none|avx2|avx512|neon|...
IsaMask cpu_isa();
std::string isa_name(IsaMask mask);  // "avx2+avx512"

// The kernel that matmul() would run: the forced one of QF_FORCE_KERNEL or `options`, else the first row that
// fits.
Result<const Kernel*> choose_kernel(const PackedWeight& w, std::int64_t m, const MatmulOptions& options = {});

}  // namespace qf::kernel
