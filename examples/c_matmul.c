/* Quantizes a matrix to 4 bits, packs it and multiplies: y = x * w^T. C99; link libqf. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "qf.h"

enum { N = 96, K = 320, M = 3 };

static int fail(const qf_error* error) {
  fprintf(stderr, "%s: %s\n", qf_status_name(error->code), error->message);
  return 1;
}

int main(void) {
  static float w[N * K], x[M * K], y[M * N], expanded[N * K];
  qf_tensor weights, in, out, floats;
  qf_scheme scheme = QF_SCHEME_INIT; /* 4 bits, groups of 64, integer zeros, f16 scales */
  qf_error error = QF_ERROR_INIT;
  qf_matrix* matrix = NULL;
  qf_weight* packed = NULL;
  double difference = 0, size = 0;
  int i, j, c, rc = 0;

  for (i = 0; i < N * K; ++i) w[i] = (float)sin(0.7 * i);
  for (i = 0; i < M * K; ++i) x[i] = (float)cos(1.3 * i);
  qf_tensor_matrix(&weights, w, QF_F32, N, K);
  qf_tensor_matrix(&in, x, QF_F32, M, K);
  qf_tensor_matrix(&out, y, QF_F32, M, N);
  qf_tensor_matrix(&floats, expanded, QF_F32, N, K);

  if (qf_quantize(&weights, &scheme, NULL, &matrix, &error) ||
      qf_weight_pack(matrix, NULL, &packed, &error) || qf_matmul(&in, packed, &out, NULL, &error) ||
      qf_matrix_dequantize(matrix, &floats, &error)) {
    rc = fail(&error);
  } else {
    for (i = 0; i < M; ++i)
      for (j = 0; j < N; ++j) {
        double sum = 0;
        for (c = 0; c < K; ++c) sum += (double)x[i * K + c] * expanded[j * K + c];
        difference += (sum - y[i * N + j]) * (sum - y[i * N + j]);
        size += sum * sum;
      }
    printf("qf %s: %d x %d times %d x %d, relative difference to the expanded weights %.1e\n", qf_version(),
           M, K, K, N, sqrt(difference / size));
    rc = difference / size > 1e-12;
  }
  qf_weight_destroy(packed);
  qf_matrix_destroy(matrix);
  return rc;
}
