// Sequences of C calls with hostile structs and shapes: each returns a status, and objects stay usable after
// a refusal.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "capi/qf.h"

namespace {

struct Input {
  const std::uint8_t* data;
  std::size_t size;
  template <class T>
  T take() {
    T value{};
    const std::size_t n = size < sizeof(T) ? size : sizeof(T);
    std::memcpy(&value, data, n);
    data += n, size -= n;
    return value;
  }
};

void expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in{data, size};
  struct {
    qf_scheme scheme;
    unsigned char tail[16];
  } scheme{};
  scheme.scheme = in.take<qf_scheme>();
  if (scheme.scheme.struct_size > sizeof scheme) scheme.scheme.struct_size %= sizeof scheme + 1;
  if (in.take<std::uint8_t>() & 1) qf_scheme_init(&scheme.scheme, sizeof scheme);
  if (scheme.scheme.struct_size >= offsetof(qf_scheme, group)) scheme.scheme.bits = in.take<std::int8_t>();
  qf_tensor w;
  std::vector<float> values(in.take<std::uint8_t>());
  for (float& v : values) v = in.take<float>();
  const auto n = static_cast<std::int64_t>(in.take<std::uint8_t>() % 8);
  const std::int64_t k = n ? static_cast<std::int64_t>(values.size()) / n : in.take<std::int8_t>();
  qf_tensor_matrix(&w, values.data(), in.take<std::uint8_t>() % 4, n, k);
  if (in.take<std::uint8_t>() % 4 == 0) w.stride[1] = in.take<std::int8_t>();
  if (in.take<std::uint8_t>() % 8 == 0) w.rank = in.take<std::int8_t>();

  qf_error error = QF_ERROR_INIT;
  qf_matrix* matrix = nullptr;
  const qf_status status = qf_quantize(&w, &scheme.scheme, nullptr, &matrix, &error);
  expect((status == QF_OK) == (matrix != nullptr));
  expect(error.code == status);
  expect(status == QF_OK || error.message[0]);
  if (!matrix) return 0;

  qf_matrix_info info = {};
  info.struct_size = sizeof info;
  expect(qf_matrix_get_info(matrix, &info, &error) == QF_OK && info.n == n && info.k == k);
  std::vector<float> back(static_cast<std::size_t>(n * k) + 1);
  qf_tensor out;
  qf_tensor_matrix(&out, back.data(), QF_F32, n, k);
  expect(qf_matrix_dequantize(matrix, &out, &error) == QF_OK);
  qf_scheme same = QF_SCHEME_INIT;
  same.bits = info.bits, same.group = info.group, same.zero = info.zero, same.scale_dtype = info.scale_dtype;
  qf_matrix* copy = nullptr;
  expect(qf_matrix_create(&same, n, k, qf_matrix_codes(matrix), qf_matrix_scales(matrix),
                          qf_matrix_zeros(matrix), &copy, &error) == QF_OK);
  std::vector<float> again(back.size());
  qf_tensor_matrix(&out, again.data(), QF_F32, n, k);
  expect(qf_matrix_dequantize(copy, &out, &error) == QF_OK);
  expect(std::memcmp(back.data(), again.data(), back.size() * sizeof(float)) == 0);
  qf_matrix_destroy(copy);
  qf_matrix_destroy(matrix);
  return 0;
}
