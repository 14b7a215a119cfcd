// Float layers in plain C++, for any machine, multiplying and adding with two roundings. 4-wide vector
// extensions, which every baseline has (SSE2, NEON), carry what would otherwise be arrays.
#include <bit>
#include <cstring>

#include "kernels/cpu/dense_ops.hpp"

namespace qf::kernel::detail {
namespace {

struct V {
  using F [[gnu::vector_size(16)]] = float;
  static constexpr int kLanes = 4, kSums = 8, kBlock = 1;

  static F load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static F load(const f16* p) { return F{p[0], p[1], p[2], p[3]}; }
  static F load(const bf16* p) { return F{p[0], p[1], p[2], p[3]}; }
  template <class W>
  static F load_part(const W* p, int count) {
    W lanes[kLanes] = {};
    for (int i = 0; i < count; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  static void store(float* p, F v) { std::memcpy(p, &v, sizeof v); }
  static void store(f16* p, F v) {
    for (int i = 0; i < kLanes; ++i) p[i] = f16(v[i]);
  }
  static void store_part(float* p, int count, F v) {
    for (int i = 0; i < count; ++i) p[i] = v[i];
  }
  static F broadcast(float x) { return F{x, x, x, x}; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  template <class Op>
  static F each(F a, Op&& op) {
    return F{op(a[0]), op(a[1]), op(a[2]), op(a[3])};
  }
  static F max(F a, F b) {
    for (int i = 0; i < kLanes; ++i) a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
  }
  // |x| is below 2^22 here, so that adding 1.5 * 2^23 leaves no room for a fraction.
  static F round(F x) { return (x + broadcast(12582912.0f)) - broadcast(12582912.0f); }
  static F exp2i(F n) {
    return each(n, [](float v) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(v == v ? static_cast<int>(v) + 127 : 0) << 23);
    });
  }
  static F below(F x, float limit, F a, F b) {
    for (int i = 0; i < kLanes; ++i) a[i] = x[i] < limit ? a[i] : b[i];
    return a;
  }
  static F above(F x, float limit, F a, F b) {
    for (int i = 0; i < kLanes; ++i) a[i] = x[i] > limit ? a[i] : b[i];
    return a;
  }
  template <class W>
  static void transpose(const W* const* rows, std::int64_t at, float* out) {
    *out = rows[0][at];
  }
  static void prefetch(const void* p) { __builtin_prefetch(p); }
  static void prefetch_later(const void* p) { __builtin_prefetch(p, 0, 2); }
};

#include "kernels/cpu/dense.inc"

}  // namespace

constinit const DenseOps kDenseScalar = QF_DENSE_OPS("scalar");

}  // namespace qf::kernel::detail
