// Float matrices, and the small operations of a decoder on rows.
#include <algorithm>
#include <vector>

#include "capi/bridge.hpp"
#include "qf/kernel/dense.hpp"
#include "qf/kernel/small_ops.hpp"

struct qf_dense {
  qf::kernel::DenseWeight value;
};

using namespace qf;
using namespace qf::capi;

namespace {

// f32 rows of a matrix of any float type.
template <class T>
void widen_rows(const qf_tensor& from, std::int64_t first, std::int64_t rows, float* to) {
  const auto view = view_as<const T>(from);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < view.shape[1]; ++c) *to++ = static_cast<float>(view.row(first + r)[c]);
}

template <class A, class B>
Status same_shape(const MatrixView<A>& a, std::string_view a_name, const MatrixView<B>& b,
                  std::string_view b_name) {
  if (a.shape == b.shape) return {};
  return bad(cat({a_name, " has shape ", shape_text(a.shape), ", ", b_name, " ", shape_text(b.shape),
                  ", expected the same"}));
}

// f(row of a, row of b) for two matrices of one shape, of which `a` is written.
template <class F>
Status on_rows(qf_tensor* a, std::string_view a_name, const qf_tensor* b, std::string_view b_name, F f) {
  QF_TRY_ASSIGN(const auto to, matrix_view<float>(a, a_name));
  QF_TRY_ASSIGN(const auto from, matrix_view<const float>(b, b_name));
  QF_TRY(same_shape(to, a_name, from, b_name));
  for (std::int64_t r = 0; r < to.shape[0]; ++r) f(to.row(r), from.row(r), to.shape[1]);
  return {};
}

}  // namespace

qf_status qf_dense_create(const qf_tensor* w, int32_t dtype, qf_dense** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY(check_matrix(w, "w"));
    QF_TRY(check_float(w->dtype, "w"));
    QF_TRY(check_float(dtype, "the matrix to make"));
    const std::int64_t n = w->shape[0], k = w->shape[1];
    QF_TRY_ASSIGN(auto dense, kernel::DenseWeight::make(n, k, static_cast<DType>(dtype)));
    if (w->dtype == QF_F32) {
      if (k > 0) dense.fill(0, view_as<const float>(*w));
      return give(std::move(dense), out);
    }
    constexpr std::int64_t kRows = 16;  // of a panel
    QF_TRY_ASSIGN(auto wide, Array<float>::make(static_cast<std::size_t>(std::min(n, kRows) * k)));
    for (std::int64_t first = 0; k > 0 && first < n; first += kRows) {
      const std::int64_t rows = std::min(kRows, n - first);
      w->dtype == QF_F16 ? widen_rows<f16>(*w, first, rows, wide.data())
                         : widen_rows<bf16>(*w, first, rows, wide.data());
      dense.fill(first, {wide.data(), {rows, k}});
    }
    return give(std::move(dense), out);
  });
}
void qf_dense_destroy(qf_dense* dense) {
  delete dense;
}
int64_t qf_dense_n(const qf_dense* dense) {
  return dense ? dense->value.n() : 0;
}
int64_t qf_dense_k(const qf_dense* dense) {
  return dense ? dense->value.k() : 0;
}
int32_t qf_dense_dtype(const qf_dense* dense) {
  return dense ? static_cast<int32_t>(dense->value.type()) : QF_F32;
}

qf_status qf_dense_matmul(const qf_tensor* x, const qf_dense* w, qf_tensor* y,
                          const qf_matmul_options* options, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(w, "w"));
    QF_TRY_ASSIGN(const auto in, matrix_view<const float>(x, "x"));
    QF_TRY_ASSIGN(const auto out, matrix_view<float>(y, "y"));
    qf_matmul_options c = QF_MATMUL_OPTIONS_INIT;
    QF_TRY(read_struct(options, "options", &c));
    if (c.kernel)
      return bad("options.kernel is set, expected NULL: float matrices have no choice of kernels");
    if (c.x_scales) return bad("options.x_scales is set, expected NULL: x is f32");
    HostParallel parallel;
    QF_TRY(parallel.read(c.parallel));
    const std::span<const float> bias(c.bias, c.bias ? static_cast<std::size_t>(w->value.n()) : 0);
    return kernel::dense_matmul(in, w->value, out, bias, parallel.get());
  });
}

qf_status qf_rms_norm(const qf_tensor* x, const float* weight, double eps, qf_tensor* out, qf_error* error) {
  return guard(error, [&]() -> Status {
    if (!(eps >= 0)) return bad("eps is negative or NaN, expected 0 or more");
    if (x && x->shape[1] > 0) QF_TRY(need(weight, "weight"));
    return on_rows(out, "out", x, "x", [&](float* to, const float* from, std::int64_t n) {
      if (n > 0) kernel::rms_norm(from, weight, n, eps, to);
    });
  });
}

qf_status qf_rope(qf_tensor* x, int64_t head_dim, const qf_tensor* cosine, const qf_tensor* sine,
                  qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY_ASSIGN(const auto heads, matrix_view<float>(x, "x"));
    QF_TRY_ASSIGN(const auto c, matrix_view<const float>(cosine, "cosine"));
    QF_TRY_ASSIGN(const auto s, matrix_view<const float>(sine, "sine"));
    const std::int64_t rows = heads.shape[0], width = heads.shape[1], pairs = c.shape[1];
    QF_TRY(same_shape(c, "cosine", s, "sine"));
    if (head_dim < 1 || width % head_dim)
      return bad(
          cat({"head_dim is ", num(head_dim), ", expected a divisor of the ", num(width), " columns of x"}));
    if (c.shape[0] != rows || pairs > head_dim / 2)
      return bad(cat({"cosine has shape ", shape_text(c.shape), ", expected [", num(rows), ", at most ",
                      num(head_dim / 2), "]"}));
    for (std::int64_t r = 0; pairs > 0 && r < rows; ++r)
      for (std::int64_t first = 0; first < width; first += head_dim)
        kernel::rope(heads.row(r) + first, c.row(r), s.row(r), pairs);
    return {};
  });
}

qf_status qf_softmax(qf_tensor* x, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY_ASSIGN(const auto rows, matrix_view<float>(x, "x"));
    for (std::int64_t r = 0; rows.shape[1] > 0 && r < rows.shape[0]; ++r)
      kernel::softmax(rows.row(r), rows.shape[1]);
    return {};
  });
}

qf_status qf_silu_mul(qf_tensor* gate, const qf_tensor* up, qf_error* error) {
  return guard(error, [&] { return on_rows(gate, "gate", up, "up", kernel::silu_mul); });
}

qf_status qf_add(qf_tensor* to, const qf_tensor* from, qf_error* error) {
  return guard(error, [&] { return on_rows(to, "to", from, "from", kernel::add); });
}

qf_status qf_cast(const qf_tensor* from, qf_tensor* to, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(check_matrix(from, "from"));
    QF_TRY(check_matrix(to, "to"));
    QF_TRY(check_float(from->dtype, "from"));
    QF_TRY(check_float(to->dtype, "to"));
    if (from->shape[0] != to->shape[0] || from->shape[1] != to->shape[1])
      return bad(cat({"from has shape ", shape_text({from->shape, 2}), ", to ", shape_text({to->shape, 2}),
                      ", expected the same"}));
    if ((from->dtype == QF_F32) == (to->dtype == QF_F32))
      return bad(cat({"from has dtype ", num(from->dtype), ", to ", num(to->dtype),
                      ", expected F32 (0) and one of F16 and BF16 (1, 2)"}));
    const std::int64_t rows = to->shape[0], columns = to->shape[1];
    for (std::int64_t r = 0; r < rows; ++r) {
      if (to->dtype == QF_F16) {
        kernel::to_f16(view_as<const float>(*from).row(r), columns, view_as<f16>(*to).row(r));
      } else if (to->dtype == QF_BF16) {
        const float* row = view_as<const float>(*from).row(r);
        std::transform(row, row + columns, view_as<bf16>(*to).row(r), [](float v) { return bf16(v); });
      } else {
        from->dtype == QF_F16 ? widen_rows<f16>(*from, r, 1, view_as<float>(*to).row(r))
                              : widen_rows<bf16>(*from, r, 1, view_as<float>(*to).row(r));
      }
    }
    return {};
  });
}
