/* The C face from C99: every function of matrices, kernels and checkpoints, and what each refuses. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "capi_check.h"

enum { N = 640, K = 200, M = 5 };
static float w[N * K], x[M * K], y[M * N], z[M * N], values[N * K];
static qf_error error;

static void test_versions(void) {
  CHECK(strcmp(qf_version(), "0.1.0") == 0);
  CHECK(qf_version_number() == 100);
  CHECK(qf_abi_version() == QF_ABI_VERSION);
  CHECK(strcmp(qf_status_name(QF_OK), "ok") == 0);
  CHECK(strcmp(qf_status_name(QF_ERR_BAD_FORMAT), "bad format") == 0);
  CHECK(strcmp(qf_status_name(12345), "unknown error") == 0);
}

/* Structs of callers that are older or newer than the library. */
static void test_struct_sizes(void) {
  qf_scheme scheme = QF_SCHEME_INIT;
  struct {
    qf_scheme scheme;
    unsigned char tail[8];
  } newer;
  qf_tensor tensor;
  qf_matrix* matrix = NULL;
  qf_matrix_info info;
  struct {
    uint32_t struct_size;
    int32_t code;
    char message[8];
    char behind;
  } small = {16, 0, {0}, 'x'};

  qf_tensor_matrix(&tensor, w, QF_F32, N, K);
  scheme.struct_size = 0;
  REFUSED(qf_quantize(&tensor, &scheme, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT,
          "scheme.struct_size is 0");
  scheme.struct_size = 0x5555aaaa;
  REFUSED(qf_quantize(&tensor, &scheme, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "struct_size");
  CHECK(matrix == NULL);

  qf_scheme_init(&newer.scheme, sizeof newer);
  CHECK(newer.scheme.struct_size == sizeof newer && newer.scheme.bits == 4 && newer.tail[7] == 0);
  OK(qf_quantize(&tensor, &newer.scheme, NULL, &matrix, &error));
  qf_matrix_destroy(matrix);
  newer.tail[3] = 1;
  REFUSED(qf_quantize(&tensor, &newer.scheme, NULL, &matrix, &error), QF_ERR_UNSUPPORTED,
          "a field beyond the");

  scheme.struct_size = offsetof(qf_scheme, group); /* a caller that knows bits alone */
  scheme.bits = 3, scheme.group = -77, scheme.zero = 99;
  OK(qf_quantize(&tensor, &scheme, NULL, &matrix, &error));
  memset(&info, 0xee, sizeof info);
  info.struct_size = offsetof(qf_matrix_info, n);
  OK(qf_matrix_get_info(matrix, &info, &error));
  CHECK(info.bits == 3 && info.zero == QF_ZERO_INTEGER && info.struct_size == offsetof(qf_matrix_info, n));
  CHECK(info.k == (int64_t)0xeeeeeeeeeeeeeeeeULL); /* nothing is written beyond */
  info.struct_size = 0;
  REFUSED(qf_matrix_get_info(matrix, &info, &error), QF_ERR_INVALID_ARGUMENT, "struct_size is 0");
  qf_matrix_destroy(matrix);

  /* An error struct that holds less: cut short, and nothing behind it is touched. */
  CHECK(qf_quantize(NULL, NULL, NULL, &matrix, (qf_error*)&small) == QF_ERR_INVALID_ARGUMENT);
  CHECK(small.code == QF_ERR_INVALID_ARGUMENT && strcmp(small.message, "w is NU") == 0 &&
        small.behind == 'x');
  small.struct_size = 8, small.message[0] = 'q';
  CHECK(qf_quantize(NULL, NULL, NULL, &matrix, (qf_error*)&small) == QF_ERR_INVALID_ARGUMENT &&
        small.message[0] == 'q');
  small.struct_size = 0, small.code = 5;
  CHECK(qf_quantize(NULL, NULL, NULL, &matrix, (qf_error*)&small) == QF_ERR_INVALID_ARGUMENT &&
        small.code == 5);
  CHECK(qf_quantize(NULL, NULL, NULL, &matrix, NULL) == QF_ERR_INVALID_ARGUMENT);
}

static void test_nulls(void) {
  qf_matrix* matrix = NULL;
  qf_tensor tensor;
  qf_tensor_matrix(&tensor, NULL, QF_F32, N, K);
  qf_tensor_matrix(NULL, w, QF_F32, N, K);
  qf_matrix_destroy(NULL);
  qf_weight_destroy(NULL);
  qf_pool_destroy(NULL);
  qf_checkpoint_destroy(NULL);
  qf_error_init(NULL, 8);
  qf_scheme_init(NULL, 8);
  CHECK(qf_matrix_codes(NULL) == NULL && qf_matrix_scales(NULL) == NULL && qf_matrix_zeros(NULL) == NULL);
  CHECK(qf_weight_n(NULL) == 0 && qf_weight_k(NULL) == 0 && qf_checkpoint_count(NULL) == 0);
  CHECK(strcmp(qf_checkpoint_format(NULL), "") == 0);
  REFUSED(qf_quantize(&tensor, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "w.data is NULL");
  REFUSED(qf_quantize(NULL, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "w is NULL");
  REFUSED(qf_quantize(&tensor, NULL, NULL, NULL, &error), QF_ERR_INVALID_ARGUMENT, "out is NULL");
  REFUSED(qf_matrix_get_info(NULL, NULL, &error), QF_ERR_INVALID_ARGUMENT, "matrix is NULL");
  REFUSED(qf_matrix_dequantize(NULL, &tensor, &error), QF_ERR_INVALID_ARGUMENT, "matrix is NULL");
  REFUSED(qf_pool_create(1, NULL, &error), QF_ERR_INVALID_ARGUMENT, "out is NULL");
  REFUSED(qf_pool_parallel(NULL, NULL, &error), QF_ERR_INVALID_ARGUMENT, "pool is NULL");
  REFUSED(qf_checkpoint_open(NULL, NULL, &error), QF_ERR_INVALID_ARGUMENT, "out is NULL");
  REFUSED(qf_weight_pack(NULL, NULL, NULL, &error), QF_ERR_INVALID_ARGUMENT, "out is NULL");
  REFUSED(qf_matmul(&tensor, NULL, &tensor, NULL, &error), QF_ERR_INVALID_ARGUMENT, "w is NULL");
}

static void test_shapes(void) {
  qf_matrix* matrix = NULL;
  qf_tensor t;
  qf_tensor_matrix(&t, w, QF_F32, N, K);
  t.rank = 3;
  REFUSED(qf_quantize(&t, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "w has rank 3, expected 2");
  qf_tensor_matrix(&t, w, 7, N, K);
  REFUSED(qf_quantize(&t, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "dtype 7");
  qf_tensor_matrix(&t, w, QF_F32, -1, K);
  REFUSED(qf_quantize(&t, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "shape [-1, 200]");
  qf_tensor_matrix(&t, w, QF_F32, INT64_MAX, 3);
  REFUSED(qf_quantize(&t, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "shape [");
  qf_tensor_matrix(&t, w, QF_F32, N, K);
  t.stride[1] = 2;
  REFUSED(qf_quantize(&t, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "strides [200, 2]");
  qf_tensor_matrix(&t, w, QF_F32, N, K);
  t.stride[0] = K - 1;
  REFUSED(qf_quantize(&t, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "strides [199, 1]");
  t.stride[0] = INT64_MAX;
  REFUSED(qf_quantize(&t, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "strides [");
  qf_tensor_matrix(&t, w, QF_F32, N, K);
  t.device_type = 2;
  REFUSED(qf_quantize(&t, NULL, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "not on the CPU");
  qf_tensor_matrix(&t, NULL, QF_F32, 0, K); /* no rows: nothing to do, and no data needed */
  OK(qf_quantize(&t, NULL, NULL, &matrix, &error));
  qf_matrix_destroy(matrix);
}

static void test_quantize(void) {
  qf_scheme scheme = QF_SCHEME_INIT;
  qf_quantize_options options = QF_QUANTIZE_OPTIONS_INIT;
  qf_matrix *matrix = NULL, *copy = NULL;
  qf_matrix_info info = {0};
  qf_tensor t, out;
  uint16_t halves[2 * 8];
  int64_t i;
  int bits;

  qf_tensor_matrix(&t, w, QF_F32, N, K);
  for (bits = 1; bits <= 8; ++bits) {
    scheme.bits = bits;
    scheme.zero = bits % 3;
    scheme.scale_dtype = bits % 2 ? QF_F16 : QF_F32;
    OK(qf_quantize(&t, &scheme, NULL, &matrix, &error));
    info.struct_size = sizeof info;
    OK(qf_matrix_get_info(matrix, &info, &error));
    CHECK(info.bits == bits && info.n == N && info.k == K && info.group == 64 && info.groups == 4);
    CHECK((qf_matrix_zeros(matrix) == NULL) == (scheme.zero == QF_ZERO_SYMMETRIC));
    qf_tensor_matrix(&out, values, QF_F32, N, K);
    OK(qf_matrix_dequantize(matrix, &out, &error));
    for (i = 0; i < N * K; ++i) { /* the meaning of codes, scales and zeros, written out */
      const int64_t g = i / K * info.groups + i % K / info.group;
      const float scale = qf_matrix_scales(matrix)[g];
      const float zero = qf_matrix_zeros(matrix) ? qf_matrix_zeros(matrix)[g] : (float)(1 << (bits - 1));
      if (values[i] != ((float)qf_matrix_codes(matrix)[i] - zero) * scale ||
          fabsf(values[i] - w[i]) > scale * 0.5001f) {
        CHECK(!"a value isn't (code - zero) * scale, or lies further than half a step from its weight");
        break;
      }
    }
    OK(qf_matrix_create(&scheme, N, K, qf_matrix_codes(matrix), qf_matrix_scales(matrix),
                        qf_matrix_zeros(matrix), &copy, &error));
    CHECK(memcmp(qf_matrix_codes(copy), qf_matrix_codes(matrix), (size_t)N * K) == 0);
    qf_matrix_destroy(copy);
    qf_matrix_destroy(matrix);
  }

  for (i = 0; i < 16; ++i) halves[i] = (uint16_t)(0x3c00 + 64 * i); /* 1, 1.0625, ... in f16 */
  qf_tensor_matrix(&t, halves, QF_F16, 2, 8);
  qf_scheme_init(&scheme, sizeof scheme);
  scheme.bits = 8;
  OK(qf_quantize(&t, &scheme, NULL, &matrix, &error));
  qf_tensor_matrix(&out, values, QF_F32, 2, 8);
  OK(qf_matrix_dequantize(matrix, &out, &error));
  CHECK(fabsf(values[1] - 1.0625f) < 0.01f && fabsf(values[15] - 1.9375f) < 0.01f);
  qf_tensor_matrix(&out, values, QF_F32, 8, 2);
  REFUSED(qf_matrix_dequantize(matrix, &out, &error), QF_ERR_INVALID_ARGUMENT,
          "out has shape [8, 2], expected [2, 8]");
  qf_tensor_matrix(&out, values, QF_BF16, 2, 8);
  REFUSED(qf_matrix_dequantize(matrix, &out, &error), QF_ERR_INVALID_ARGUMENT, "expected 0 (F32)");
  qf_matrix_destroy(matrix);

  qf_tensor_matrix(&t, w, QF_F32, N, K);
  scheme.bits = 9;
  REFUSED(qf_quantize(&t, &scheme, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT,
          "bits 9, expected 1 to 8");
  scheme.bits = 4, scheme.zero = 3;
  REFUSED(qf_quantize(&t, &scheme, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT, "scheme.zero is 3");
  scheme.zero = 1, scheme.scale_dtype = 3;
  REFUSED(qf_quantize(&t, &scheme, NULL, &matrix, &error), QF_ERR_INVALID_ARGUMENT,
          "scheme.scale_dtype is 3");
  options.method = "best";
  REFUSED(qf_quantize(&t, NULL, &options, &matrix, &error), QF_ERR_UNSUPPORTED, "no method 'best'");
  options.method = "rtn", options.name = "layer.0";
  w[3 * K + 7] = NAN;
  REFUSED(qf_quantize(&t, NULL, &options, &matrix, &error), QF_ERR_BAD_FORMAT,
          "tensor 'layer.0': row 3, column 7");
  w[3 * K + 7] = 0.5f;
}

static void test_create(void) {
  const uint8_t codes[4] = {0, 1, 2, 3};
  const float scales[2] = {0.5f, 0.25f}, zeros[2] = {1, 2}, odd[2] = {0.1f, 1}, half[2] = {0.5f, 1};
  qf_scheme scheme = QF_SCHEME_INIT;
  qf_matrix* m = NULL;
  scheme.bits = 2;
  OK(qf_matrix_create(&scheme, 2, 2, codes, scales, zeros, &m, &error));
  qf_matrix_destroy(m);
  REFUSED(qf_matrix_create(&scheme, 2, 2, codes, odd, zeros, &m, &error), QF_ERR_INVALID_ARGUMENT,
          "scale 0 is not a finite F16");
  REFUSED(qf_matrix_create(&scheme, 2, 2, codes, scales, half, &m, &error), QF_ERR_INVALID_ARGUMENT,
          "zero 0 is not an integer from 0 to 3");
  REFUSED(qf_matrix_create(&scheme, 2, 2, codes, scales, NULL, &m, &error), QF_ERR_INVALID_ARGUMENT,
          "zeros is NULL");
  REFUSED(qf_matrix_create(&scheme, 2, 2, NULL, scales, zeros, &m, &error), QF_ERR_INVALID_ARGUMENT,
          "codes is NULL");
  REFUSED(qf_matrix_create(&scheme, 2, INT64_MAX, codes, scales, zeros, &m, &error), QF_ERR_INVALID_ARGUMENT,
          "a matrix of");
  scheme.bits = 1;
  REFUSED(qf_matrix_create(&scheme, 2, 2, codes, scales, zeros, &m, &error), QF_ERR_INVALID_ARGUMENT,
          "code 2 at row 1, column 0, expected below 2");
  scheme.bits = 2, scheme.zero = QF_ZERO_SYMMETRIC;
  REFUSED(qf_matrix_create(&scheme, 2, 2, codes, scales, zeros, &m, &error), QF_ERR_INVALID_ARGUMENT,
          "symmetric");
  CHECK(m == NULL);
}

static int64_t loops = 0;
static void backwards(int64_t count, qf_body body, void* context, void* user) {
  int64_t i;
  ++*(int64_t*)user;
  for (i = count; i-- > 0;) body(context, i);
}

static void test_matmul(void) {
  qf_scheme scheme = QF_SCHEME_INIT;
  qf_matmul_options options = QF_MATMUL_OPTIONS_INIT;
  qf_parallel parallel = QF_PARALLEL_INIT;
  qf_pack_options pack = QF_PACK_OPTIONS_INIT;
  qf_matrix* matrix = NULL;
  qf_weight *weight = NULL, *copy = NULL;
  qf_pool* pool = NULL;
  qf_tensor wt, xt, yt, zt, out;
  qf_kernel_info kernel = {0};
  float bias[N];
  char text[64];
  const void* bytes = NULL;
  void* changed;
  size_t size = 0;
  int32_t i, fitting = 0;
  int j, c, layout;

  qf_tensor_matrix(&wt, w, QF_F32, N, K);
  qf_tensor_matrix(&xt, x, QF_F32, M, K);
  qf_tensor_matrix(&yt, y, QF_F32, M, N);
  qf_tensor_matrix(&zt, z, QF_F32, M, N);
  qf_tensor_matrix(&out, values, QF_F32, N, K);
  for (j = 0; j < N; ++j) bias[j] = (float)j;
  OK(qf_quantize(&wt, &scheme, NULL, &matrix, &error));
  OK(qf_matrix_dequantize(matrix, &out, &error));

  for (layout = QF_LAYOUT_CANONICAL; layout <= QF_LAYOUT_ROWS16; ++layout) {
    double difference = 0, reference = 0;
    pack.layout = layout;
    OK(qf_weight_pack(matrix, &pack, &weight, &error));
    CHECK(qf_weight_n(weight) == N && qf_weight_k(weight) == K && qf_weight_layout(weight) == layout);
    options.bias = bias;
    OK(qf_matmul(&xt, weight, &yt, &options, &error));
    for (i = 0; i < M; ++i)
      for (j = 0; j < N; ++j) {
        double sum = bias[j];
        for (c = 0; c < K; ++c) sum += (double)x[i * K + c] * values[j * K + c];
        difference += (sum - y[i * N + j]) * (sum - y[i * N + j]);
        reference += sum * sum;
      }
    CHECK(difference <= 1e-12 * reference);

    /* The same bits with a host's loop, however it runs, and with a pool. */
    parallel.threads = 4, parallel.run = backwards, parallel.user = &loops, options.parallel = &parallel;
    OK(qf_matmul(&xt, weight, &zt, &options, &error));
    CHECK(memcmp(y, z, sizeof y) == 0);
    OK(qf_pool_create(2, &pool, &error));
    OK(qf_pool_parallel(pool, &parallel, &error));
    CHECK(parallel.threads == 2);
    memset(z, 0, sizeof z);
    OK(qf_matmul(&xt, weight, &zt, &options, &error));
    CHECK(memcmp(y, z, sizeof y) == 0);
    qf_pool_destroy(pool);
    options.parallel = NULL;
    qf_parallel_init(&parallel, sizeof parallel);

    /* Packed bytes go out and come back; broken ones are refused. */
    OK(qf_weight_buffer(weight, &bytes, &size, &error));
    OK(qf_weight_from_buffer(bytes, size, &copy, &error));
    OK(qf_matmul(&xt, copy, &zt, &options, &error));
    CHECK(memcmp(y, z, sizeof y) == 0);
    qf_weight_destroy(copy);
    changed = malloc(size);
    memcpy(changed, bytes, size);
    *(char*)changed ^= 1;
    REFUSED(qf_weight_from_buffer(changed, size, &copy, &error), QF_ERR_BAD_FORMAT, "data");
    REFUSED(qf_weight_from_buffer(bytes, size - 1, &copy, &error), QF_ERR_BAD_FORMAT, "data");
    REFUSED(qf_weight_from_buffer(bytes, 3, &copy, &error), QF_ERR_BAD_FORMAT, "data");
    REFUSED(qf_weight_from_buffer(NULL, 3, &copy, &error), QF_ERR_INVALID_ARGUMENT, "data is NULL");
    CHECK(copy == NULL);
    free(changed);
    if (layout == QF_LAYOUT_CANONICAL) qf_weight_destroy(weight);
  }
  CHECK(loops > 0);

  OK(qf_cpu_isa(NULL, 0, &size, &error));
  CHECK(size > 0 && size <= sizeof text);
  OK(qf_cpu_isa(text, sizeof text, &size, &error));
  CHECK(strlen(text) + 1 == size);
  REFUSED(qf_cpu_isa(text, size - 1, &size, &error), QF_ERR_INVALID_ARGUMENT, "needed");
  REFUSED(qf_cpu_isa(NULL, 9, &size, &error), QF_ERR_INVALID_ARGUMENT, "out is NULL");
  REFUSED(qf_cpu_isa(NULL, 0, NULL, &error), QF_ERR_INVALID_ARGUMENT, "both NULL");

  CHECK(qf_kernel_count() > 0);
  for (i = 0; i < qf_kernel_count(); ++i) { /* every kernel that takes this weight, forced by name */
    kernel.struct_size = sizeof kernel;
    OK(qf_kernel_get_info(i, &kernel, &error));
    CHECK(kernel.name && kernel.name[0] && kernel.m_min >= 1 && kernel.n_step >= 1);
    if (!kernel.runs_here || kernel.layout != QF_LAYOUT_ROWS16 || (kernel.bits && kernel.bits != 4) ||
        kernel.accuracy != QF_EXACT || kernel.m_min > M || kernel.m_max < M)
      continue;
    options.kernel = kernel.name;
    OK(qf_matmul(&xt, weight, &zt, &options, &error));
    for (j = 0; j < M * N; ++j) CHECK(fabsf(y[j] - z[j]) <= 1e-4f * (1 + fabsf(y[j])));
    ++fitting;
  }
  CHECK(fitting > 0);
  REFUSED(qf_kernel_get_info(-1, &kernel, &error), QF_ERR_INVALID_ARGUMENT, "kernel -1");
  options.kernel = "gemm_none";
  REFUSED(qf_matmul(&xt, weight, &zt, &options, &error), QF_ERR_NOT_FOUND, "no kernel 'gemm_none'");
  options.kernel = NULL, options.accuracy = 3;
  REFUSED(qf_matmul(&xt, weight, &zt, &options, &error), QF_ERR_INVALID_ARGUMENT, "options.accuracy is 3");
  qf_tensor_matrix(&xt, x, QF_F32, M, K - 1);
  REFUSED(qf_matmul(&xt, weight, &yt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "199");
  qf_tensor_matrix(&xt, x, 9, M, K);
  REFUSED(qf_matmul(&xt, weight, &yt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "x has dtype 9");
  { /* x as integers with a scale a row, and the same in bfloat16 */
    static int8_t q[M * K];
    static uint16_t brain[M * K];
    float scales[M];
    qf_tensor st;
    qf_matmul_options integers = QF_MATMUL_OPTIONS_INIT;
    for (i = 0; i < M; ++i) scales[i] = 0.5f;
    for (i = 0; i < M * K; ++i) {
      float value;
      uint32_t bits;
      q[i] = (int8_t)(i % 251 - 125), value = 0.5f * q[i];
      memcpy(&bits, &value, 4);
      brain[i] = (uint16_t)(bits >> 16); /* exact: 8 bits */
    }
    qf_tensor_matrix(&xt, q, QF_I8, M, K);
    REFUSED(qf_matmul(&xt, weight, &yt, &integers, &error), QF_ERR_INVALID_ARGUMENT,
            "options.x_scales is NULL");
    qf_tensor_matrix(&st, scales, QF_F32, M, 1);
    integers.x_scales = &st;
    OK(qf_matmul(&xt, weight, &yt, &integers, &error));
    qf_tensor_matrix(&xt, brain, QF_BF16, M, K);
    OK(qf_matmul(&xt, weight, &zt, NULL, &error));
    for (j = 0; j < M * N; ++j) CHECK(fabsf(y[j] - z[j]) <= 1e-4f * (1 + fabsf(y[j])));
  }
  parallel.threads = -1, options.accuracy = 0, options.parallel = &parallel;
  qf_tensor_matrix(&xt, x, QF_F32, M, K);
  REFUSED(qf_matmul(&xt, weight, &yt, &options, &error), QF_ERR_INVALID_ARGUMENT, "parallel.threads is -1");
  pack.layout = 9;
  REFUSED(qf_weight_pack(matrix, &pack, &copy, &error), QF_ERR_INVALID_ARGUMENT, "options.layout is 9");
  REFUSED(qf_pool_create(-1, &pool, &error), QF_ERR_INVALID_ARGUMENT, "threads is -1");
  qf_weight_destroy(weight);
  qf_matrix_destroy(matrix);
}

/* A safetensors file by hand: 8 bytes of length, JSON, data. */
static void test_checkpoint(const char* path) {
  static const char kHeader[] = "{\"a.weight\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]}} ";
  const uint16_t data[6] = {0x3c00, 0xc000, 0, 0x3800, 0x7bff, 0x0001};
  const unsigned char length[8] = {sizeof kHeader - 1};
  qf_checkpoint* checkpoint = NULL;
  qf_tensor_info info = {0};
  const void* bytes = NULL;
  size_t size = 0;
  int64_t index = -1;
  float read[6];
  FILE* file = fopen(path, "wb");
  if (!file) {
    CHECK(!"can't write a file beside the test");
    return;
  }
  fwrite(length, 1, 8, file);
  fwrite(kHeader, 1, sizeof kHeader - 1, file);
  fwrite(data, 1, sizeof data, file);
  fclose(file);

  OK(qf_checkpoint_open(path, &checkpoint, &error));
  CHECK(strcmp(qf_checkpoint_format(checkpoint), "safetensors") == 0 && qf_checkpoint_count(checkpoint) == 1);
  info.struct_size = sizeof info;
  OK(qf_checkpoint_get_info(checkpoint, 0, &info, &error));
  CHECK(strcmp(info.name, "a.weight") == 0 && info.name_size == 8 && strcmp(info.type, "F16") == 0);
  CHECK(info.rank == 2 && info.shape[0] == 2 && info.shape[1] == 3 && info.bytes == 12 && info.elements == 6);
  OK(qf_checkpoint_find(checkpoint, "a.weight", &index, &error));
  CHECK(index == 0);
  OK(qf_checkpoint_bytes(checkpoint, 0, &bytes, &size, &error));
  CHECK(size == 12 && memcmp(bytes, data, 12) == 0);
  OK(qf_checkpoint_read_f32(checkpoint, 0, 1, read, 4, &error));
  CHECK(read[0] == -2 && read[1] == 0 && read[2] == 0.5f && read[3] == 65504);
  REFUSED(qf_checkpoint_read_f32(checkpoint, 0, 5, read, 2, &error), QF_ERR_INVALID_ARGUMENT, "a.weight");
  REFUSED(qf_checkpoint_read_f32(checkpoint, 0, 0, NULL, 2, &error), QF_ERR_INVALID_ARGUMENT, "out is NULL");
  REFUSED(qf_checkpoint_get_info(checkpoint, 1, &info, &error), QF_ERR_INVALID_ARGUMENT, "tensor 1 of 1");
  REFUSED(qf_checkpoint_find(checkpoint, "b", &index, &error), QF_ERR_NOT_FOUND, "no tensor 'b'");
  qf_checkpoint_destroy(checkpoint);

  REFUSED(qf_checkpoint_open("no/such/file.safetensors", &checkpoint, &error), QF_ERR_NOT_FOUND,
          "no/such/file.safetensors");
  file = fopen(path, "wb");
  fwrite(length, 1, 8, file);
  fwrite(kHeader, 1, sizeof kHeader - 1, file);
  fclose(file);
  REFUSED(qf_checkpoint_open(path, &checkpoint, &error), QF_ERR_BAD_FORMAT, path);
  CHECK(checkpoint == NULL);
  remove(path);
}

static void test_save(const char* path) {
  qf_scheme scheme = QF_SCHEME_INIT;
  qf_matrix *matrix = NULL, *back = NULL;
  qf_checkpoint* checkpoint = NULL;
  qf_matrix_info info = {0};
  qf_tensor t;
  qf_tensor_matrix(&t, w, QF_F32, N, K);
  scheme.bits = 3;
  OK(qf_quantize(&t, &scheme, NULL, &matrix, &error));
  OK(qf_matrix_save(matrix, path, "m", &error));
  OK(qf_checkpoint_open(path, &checkpoint, &error));
  CHECK(qf_checkpoint_count(checkpoint) == 4); /* codes, scales, zeros, shape */
  OK(qf_matrix_load(checkpoint, "m", &scheme, &back, &error));
  info.struct_size = sizeof info;
  OK(qf_matrix_get_info(back, &info, &error));
  CHECK(info.n == N && info.k == K && info.bits == 3 && info.scale_dtype == QF_F16);
  CHECK(memcmp(qf_matrix_codes(matrix), qf_matrix_codes(back), (size_t)N * K) == 0);
  CHECK(memcmp(qf_matrix_scales(matrix), qf_matrix_scales(back), (size_t)(N * info.groups) * sizeof(float)) ==
        0);
  CHECK(memcmp(qf_matrix_zeros(matrix), qf_matrix_zeros(back), (size_t)(N * info.groups) * sizeof(float)) ==
        0);
  qf_matrix_destroy(back);
  REFUSED(qf_matrix_load(checkpoint, "n", &scheme, &back, &error), QF_ERR_NOT_FOUND, "n.");
  REFUSED(qf_matrix_load(checkpoint, "m", NULL, &back, &error), QF_ERR_NOT_FOUND, "config.json");
  scheme.bits = 5;
  REFUSED(qf_matrix_load(checkpoint, "m", &scheme, &back, &error), QF_ERR_BAD_FORMAT, "m.weight_packed");
  CHECK(back == NULL);
  qf_checkpoint_destroy(checkpoint);
  qf_matrix_destroy(matrix);
  scheme.bits = 4, scheme.zero = QF_ZERO_FLOAT;
  OK(qf_quantize(&t, &scheme, NULL, &matrix, &error));
  REFUSED(qf_matrix_save(matrix, path, "m", &error), QF_ERR_UNSUPPORTED, "");
  REFUSED(qf_matrix_save(matrix, NULL, "m", &error), QF_ERR_INVALID_ARGUMENT, "path is NULL");
  qf_matrix_destroy(matrix);
  remove(path);
}

int main(void) {
  int i;
  for (i = 0; i < N * K; ++i) w[i] = (float)sin(0.7 * i);
  for (i = 0; i < M * K; ++i) x[i] = (float)cos(1.3 * i);
  test_versions();
  test_struct_sizes();
  test_nulls();
  test_shapes();
  test_quantize();
  test_create();
  test_matmul();
  test_checkpoint("capi_test.safetensors");
  test_save("capi_test_matrix.safetensors");
  return verdict("capi_test");
}
