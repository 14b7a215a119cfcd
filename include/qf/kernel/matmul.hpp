// Needs: link qf. Prepacking, dispatch and the kernel table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "qf/core/buffer.hpp"
#include "qf/core/half.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "qf/kernel/abi.hpp"

namespace qf::kernel {

// A weight ready to multiply with: one aligned buffer that begins with a 64-byte header (PackedHeader).
// Move-only; const use from many threads.
class PackedWeight {
 public:
  PackedWeight() = default;
  std::int64_t n() const { return header_.n; }
  std::int64_t k() const { return header_.k; }
  const Scheme& scheme() const { return scheme_; }
  Layout layout() const { return static_cast<Layout>(header_.layout); }
  // Bits of a stored code: 2, 3, 4, 5, 6 or 8 in rows16, 8 in canonical.
  int stored_bits() const { return layout() == Layout::rows16 ? Rows16::stored_bits(scheme_, k()) : 8; }
  // Of rows16.
  CodeMask code_meaning() const { return Rows16(scheme_, n(), k()).meaning(); }
  std::span<const std::byte> buffer() const { return bytes_; }
  // Place i of the codes is column column_order()[i] of x; empty: the columns as they are.
  std::span<const std::int32_t> column_order() const {
    if (layout() != Layout::rows16 || !header_.has_group_of) return {};
    const std::int64_t at = header_.params_offset + Rows16(scheme_, n(), k()).table_bytes();
    return {reinterpret_cast<const std::int32_t*>(bytes_.data() + at), static_cast<std::size_t>(k())};
  }

  // Checks a buffer that came from a file: magic, version, scheme, every offset, the size, and every index
  // that a kernel follows. `what` names it in errors. Errors: bad_format.
  static Result<PackedWeight> from_buffer(Array<std::byte> buffer, std::string_view what);
  // The same for bytes that the weight doesn't own, such as a part of a mapped file: they must outlive it, and begin
  // at a multiple of 64. Errors: those of from_buffer; invalid_argument (alignment).
  static Result<PackedWeight> from_bytes(std::span<const std::byte> bytes, std::string_view what);

 private:
  friend Result<PackedWeight> prepack(const QuantizedMatrix&, struct PackOptions);
  Scheme scheme_;
  PackedHeader header_{};
  Array<std::byte> owned_;
  std::span<const std::byte> bytes_;
};

// Memory in large pages where the system has them: reading weights from small ones costs up to a fifth of the speed,
// and first use of these takes longer than packing. Alignment is 64 bytes at most. From any thread.
const Allocator& weight_allocator();

struct PackOptions {
  Layout layout =
      Layout::rows16;  // falls back to canonical for what rows16 doesn't hold: groups of different sizes
  ParallelFor parallel{};
  const Allocator* allocator = &weight_allocator();  // must outlive the weight
};

// The same bytes for any `parallel`. Errors: out of memory.
Result<PackedWeight> prepack(const QuantizedMatrix& w, PackOptions options = {});

struct MatmulOptions {
  Accuracy accuracy = Accuracy::exact;
  const Kernel* kernel = nullptr;  // forces one; an error if it doesn't fit
  ParallelFor parallel{};
  const Allocator* allocator = &default_allocator();  // of scratch
};

// y [m, n] = x [m, k] * w^T + bias. `bias` is empty or [n]. y may not overlap x. Any row strides that don't
// make rows overlap, with the last dimension contiguous. The same bits for any `parallel`; a row of y may
// differ in its last bits between m = 1 and m > 1, which are different kernels. Errors: shapes that disagree,
// a forced kernel that doesn't fit, out of memory (scratch).
Status matmul(MatrixView<const float> x, const PackedWeight& w, MatrixView<float> y,
              std::span<const float> bias = {}, const MatmulOptions& options = {});

// The same with x in 2 bytes an element, made f32 in memory of `options.allocator` first. Errors: those of matmul().
Status matmul(MatrixView<const f16> x, const PackedWeight& w, MatrixView<float> y,
              std::span<const float> bias = {}, const MatmulOptions& options = {});
Status matmul(MatrixView<const bf16> x, const PackedWeight& w, MatrixView<float> y,
              std::span<const float> bias = {}, const MatmulOptions& options = {});

// Activations that are integers already (W4A8, W8A8): x(i, c) = q(i, c) * scales(i, c / group).
struct Int8Rows {
  MatrixView<const std::int8_t> q;  // [m, k], any row stride
  MatrixView<const float> scales;   // [m, ceil(k / group)], any row stride
  std::int64_t group = 0;           // columns that share a scale; 0: the whole row
};

// y [m, n] = x * w^T + bias with sums that are exact within min(256, weights' group) columns; the kernels of
// Accuracy::fast, whatever options.accuracy says. Each such stretch must lie in one group of x: its group is 0, a
// multiple of 256, or a multiple of a weights' group that is 256 or less. Errors: those of matmul(), groups
// that don't fit, weights in another layout than rows16.
Status matmul(const Int8Rows& x, const PackedWeight& w, MatrixView<float> y, std::span<const float> bias = {},
              const MatmulOptions& options = {});

// One product of a call: y [m, n] = x [m, k] * w^T + bias, as above.
struct Product {
  MatrixView<const float> x;
  const PackedWeight* w;
  MatrixView<float> y;
  std::span<const float> bias = {};
};

// Several products at once, such as q, k and v, or the experts of a layer: the threads meet once, and x is
// prepared once for weights that share it, their scheme and k. The same results as one call each. The y of
// no product may overlap another's y or any x. Errors: those of matmul(); nothing is computed then.
Status matmul(std::span<const Product> products, const MatmulOptions& options = {});

// y [m, n] = silu(x * gate^T) * (x * up^T), the first half of a gated feed-forward layer (Shazeer 2020), without
// storing the second product. The bits of matmul() twice and silu_mul(). Errors: those of matmul(), gate and
// up of different shapes.
Status matmul_swiglu(MatrixView<const float> x, const PackedWeight& gate, const PackedWeight& up,
                     MatrixView<float> y, const MatmulOptions& options = {});

// All rows of kernels/kernels.inc built into this library, in order of preference.
std::span<const Kernel* const> kernels();
const Kernel* find_kernel(std::string_view name);

// Instruction sets of this CPU that its operating system has enabled, cut by the environment variable
// QF_MAX_ISA=none|avx2|avx_vnni|avx512|avx512_vnni|neon|neon_dotprod|neon_i8mm|native (read at first use).
IsaMask cpu_isa();
std::string isa_name(IsaMask mask);  // "avx2+avx512"; "scalar" for 0

// Errors: QF_MAX_ISA or QF_FORCE_KERNEL holds a name that isn't known.
Status check_environment();

// The kernel that matmul() would run: options.kernel if given; else a kernel named in the environment
// variable QF_FORCE_KERNEL (names, separated by commas; read at first use) that fits; else the first row of
// the table that fits, where a kernel may be more accurate than asked for, never less. To fit is to
// have the weight's layout and width, to accept m rows and to need no more than cpu_isa(). Errors:
// options.kernel doesn't fit, an unknown name in an environment variable.
Result<const Kernel*> choose_kernel(const PackedWeight& w, std::int64_t m, const MatmulOptions& options = {});

}  // namespace qf::kernel
