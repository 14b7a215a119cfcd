// Low-bit matrices.
#include <cmath>

#include "capi/bridge.hpp"

using namespace qf;
using namespace qf::capi;

static_assert(QF_ZERO_SYMMETRIC == static_cast<int>(ZeroKind::symmetric));
static_assert(QF_ZERO_INTEGER == static_cast<int>(ZeroKind::integer));
static_assert(QF_ZERO_FLOAT == static_cast<int>(ZeroKind::floating));

namespace qf::capi {

Result<Scheme> read_scheme(const qf_scheme* given) {
  qf_scheme c = QF_SCHEME_INIT;
  QF_TRY(read_struct(given, "scheme", &c));
  if (c.zero < QF_ZERO_SYMMETRIC || c.zero > QF_ZERO_FLOAT)
    return bad(cat({"scheme.zero is ", num(c.zero), ", expected 0 to 2"}));
  if (c.scale_dtype < QF_F32 || c.scale_dtype > QF_BF16)
    return bad(cat({"scheme.scale_dtype is ", num(c.scale_dtype), ", expected 0 to 2"}));
  const Scheme scheme{c.bits, c.group, static_cast<ZeroKind>(c.zero), static_cast<DType>(c.scale_dtype)};
  QF_TRY(check(scheme));
  return scheme;
}

}  // namespace qf::capi

void qf_scheme_init(qf_scheme* scheme, size_t size) {
  init_struct(qf_scheme QF_SCHEME_INIT, scheme, size);
}

qf_status qf_matrix_create(const qf_scheme* scheme, int64_t n, int64_t k, const uint8_t* codes,
                           const float* scales, const float* zeros, qf_matrix** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY_ASSIGN(const Scheme s, read_scheme(scheme));
    QF_TRY_ASSIGN(QuantizedMatrix m, QuantizedMatrix::make(s, n, k));
    const std::int64_t size = n * k, groups = n * m.groups();
    if (size) QF_TRY(need(codes, "codes"));
    if (size) QF_TRY(need(scales, "scales"));
    const bool has_zeros = s.zero != ZeroKind::symmetric;
    if (size && has_zeros) QF_TRY(need(zeros, "zeros"));
    if (!has_zeros && zeros) return bad("zeros are given, but the scheme is symmetric");
    for (std::int64_t i = 0; i < size; ++i) {
      if (codes[i] >= s.levels())
        return bad(cat({"code ", num(int{codes[i]}), " at row ", num(i / k), ", column ", num(i % k),
                        ", expected below ", num(s.levels())}));
      m.codes().data[i] = codes[i];
    }
    for (std::int64_t i = 0; i < groups; ++i) {
      if (!std::isfinite(scales[i]) || round_to(s.scale, scales[i]) != scales[i])
        return bad(cat({"scale ", num(i), " is not a finite ", dtype_name(s.scale)}));
      m.scales().data[i] = scales[i];
      if (!has_zeros) continue;
      const float zero = zeros[i];
      if (!std::isfinite(zero) ||
          (s.zero == ZeroKind::integer && (zero < 0 || zero >= s.levels() || zero != std::floor(zero))))
        return bad(cat(
            {"zero ", num(i), " is not ",
             s.zero == ZeroKind::integer ? cat({"an integer from 0 to ", num(s.levels() - 1)}) : "finite"}));
      m.zeros().data[i] = zero;
    }
    return give(std::move(m), out);
  });
}
void qf_matrix_destroy(qf_matrix* matrix) {
  delete matrix;
}
qf_status qf_matrix_get_info(const qf_matrix* matrix, qf_matrix_info* out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(matrix, "matrix"));
    const QuantizedMatrix& m = matrix->value;
    return write_struct(
        qf_matrix_info{0, m.scheme().bits, static_cast<int32_t>(m.scheme().zero),
                       static_cast<int32_t>(m.scheme().scale), m.n(), m.k(), m.group_size(), m.groups()},
        out, "out");
  });
}
const uint8_t* qf_matrix_codes(const qf_matrix* matrix) {
  return matrix ? matrix->value.codes().data : nullptr;
}
const float* qf_matrix_scales(const qf_matrix* matrix) {
  return matrix ? matrix->value.scales().data : nullptr;
}
const float* qf_matrix_zeros(const qf_matrix* matrix) {
  return matrix ? matrix->value.zeros().data : nullptr;
}
qf_status qf_matrix_dequantize(const qf_matrix* matrix, qf_tensor* out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(matrix, "matrix"));
    QF_TRY_ASSIGN(const auto view, matrix_view<float>(out, "out"));
    const QuantizedMatrix& m = matrix->value;
    if (view.shape[0] != m.n() || view.shape[1] != m.k())
      return bad(cat({"out has shape [", num(view.shape[0]), ", ", num(view.shape[1]), "], expected [",
                      num(m.n()), ", ", num(m.k()), "]"}));
    for (std::int64_t r = 0; r < m.n(); ++r) m.dequantize_row(r, view.row(r));
    return {};
  });
}
