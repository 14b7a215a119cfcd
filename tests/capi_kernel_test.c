/* The C face from C99: products of several weights, float matrices, attention and the small operations. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "capi_check.h"

enum { HIDDEN = 96, OUT = 80, ROWS = 7, HEADS = 6, KV_HEADS = 2, DIM = 16, TOKENS = 300, PAGE = 32 };
enum { PAGES = (TOKENS + PAGE - 1) / PAGE, WIDTH = HEADS * DIM };
static qf_error error;

static float wave(int i) {
  return (float)sin(0.7 * i + 0.003 * (i % 91) * (i % 17));
}
static void fill(float* to, int count, int seed) {
  int i;
  for (i = 0; i < count; ++i) to[i] = wave(i + 1000 * seed);
}
static qf_weight* weight(int n, int k, int seed) {
  qf_matrix* matrix = NULL;
  qf_weight* made = NULL;
  qf_tensor t;
  float* w = (float*)malloc((size_t)n * (size_t)k * sizeof *w);
  fill(w, n * k, seed);
  qf_tensor_matrix(&t, w, QF_F32, n, k);
  OK(qf_quantize(&t, NULL, NULL, &matrix, &error));
  OK(qf_weight_pack(matrix, NULL, &made, &error));
  qf_matrix_destroy(matrix);
  free(w);
  return made;
}
/* sqrt(sum (got - want)^2 / sum want^2) */
static double distance(const float* got, const double* want, int count) {
  double difference = 0, size = 0;
  int i;
  for (i = 0; i < count; ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return sqrt(difference / size);
}

static void test_products(void) {
  static float x[ROWS * HIDDEN], bias[OUT], y[3][ROWS * OUT], alone[ROWS * OUT], up[ROWS * OUT];
  qf_weight* w[3];
  qf_tensor xt, yt[3], at, ut;
  qf_product products[3];
  qf_matmul_options options = QF_MATMUL_OPTIONS_INIT;
  qf_parallel parallel = QF_PARALLEL_INIT;
  qf_pool* pool = NULL;
  int i, accuracy;

  fill(x, ROWS * HIDDEN, 1);
  fill(bias, OUT, 2);
  qf_tensor_matrix(&xt, x, QF_F32, ROWS, HIDDEN);
  qf_tensor_matrix(&at, alone, QF_F32, ROWS, OUT);
  qf_tensor_matrix(&ut, up, QF_F32, ROWS, OUT);
  for (i = 0; i < 3; ++i) {
    w[i] = weight(OUT, HIDDEN, 3 + i);
    qf_tensor_matrix(&yt[i], y[i], QF_F32, ROWS, OUT);
    products[i].x = &xt, products[i].w = w[i], products[i].y = &yt[i];
    products[i].bias = i == 1 ? bias : NULL;
  }
  OK(qf_pool_create(3, &pool, &error));
  OK(qf_pool_parallel(pool, &parallel, &error));
  for (accuracy = QF_EXACT; accuracy <= QF_INT16; ++accuracy) {
    options.accuracy = accuracy, options.parallel = &parallel;
    memset(y, 0, sizeof y);
    OK(qf_matmul_many(products, 3, &options, &error));
    for (i = 0; i < 3; ++i) {
      options.bias = products[i].bias;
      OK(qf_matmul(&xt, w[i], &at, &options, &error));
      CHECK(memcmp(alone, y[i], sizeof alone) == 0);
    }
    options.bias = NULL;
    OK(qf_matmul_swiglu(&xt, w[0], w[2], &yt[1], &options, &error));
    OK(qf_matmul(&xt, w[0], &at, &options, &error));
    OK(qf_matmul(&xt, w[2], &ut, &options, &error));
    OK(qf_silu_mul(&at, &ut, &error));
    CHECK(memcmp(alone, y[1], sizeof alone) == 0);
  }
  OK(qf_matmul_many(NULL, 0, NULL, &error));
  options.bias = bias;
  REFUSED(qf_matmul_many(products, 3, &options, &error), QF_ERR_INVALID_ARGUMENT, "options.bias is set");
  REFUSED(qf_matmul_swiglu(&xt, w[0], w[1], &at, &options, &error), QF_ERR_INVALID_ARGUMENT,
          "options.bias is set");
  options.bias = NULL, options.x_scales = &xt;
  REFUSED(qf_matmul_many(products, 3, &options, &error), QF_ERR_INVALID_ARGUMENT, "options.x_scales is set");
  REFUSED(qf_matmul_many(NULL, 3, NULL, &error), QF_ERR_INVALID_ARGUMENT, "products is NULL");
  REFUSED(qf_matmul_swiglu(&xt, w[0], NULL, &at, NULL, &error), QF_ERR_INVALID_ARGUMENT, "up is NULL");
  products[1].w = NULL;
  REFUSED(qf_matmul_many(products, 3, NULL, &error), QF_ERR_INVALID_ARGUMENT, "products[1].w is NULL");
  products[1].w = w[1], products[2].y = NULL;
  REFUSED(qf_matmul_many(products, 3, NULL, &error), QF_ERR_INVALID_ARGUMENT, "products[2].y is NULL");
  products[2].y = &yt[2], yt[2].shape[0] = ROWS - 1;
  memset(y, 0x55, sizeof y);
  REFUSED(qf_matmul_many(products, 3, NULL, &error), QF_ERR_INVALID_ARGUMENT, "y [6, 80]");
  CHECK(((unsigned char*)y)[0] == 0x55); /* nothing was computed */
  xt.dtype = QF_F16;
  REFUSED(qf_matmul_swiglu(&xt, w[0], w[1], &at, NULL, &error), QF_ERR_INVALID_ARGUMENT,
          "x has dtype 1, expected 0 (F32)");
  for (i = 0; i < 3; ++i) qf_weight_destroy(w[i]);
  qf_pool_destroy(pool);
}

static void test_dense(void) {
  static float w[OUT * HIDDEN], kept[OUT * HIDDEN], x[ROWS * HIDDEN], bias[OUT], y[ROWS * OUT], one[OUT];
  static uint16_t half[OUT * HIDDEN];
  static double want[ROWS * OUT];
  qf_tensor wt, ht, kt, xt, yt, ot;
  qf_dense *dense = NULL, *same = NULL;
  qf_matmul_options options = QF_MATMUL_OPTIONS_INIT;
  int type, i, j, c;

  fill(w, OUT * HIDDEN, 1);
  fill(x, ROWS * HIDDEN, 2);
  fill(bias, OUT, 3);
  qf_tensor_matrix(&wt, w, QF_F32, OUT, HIDDEN);
  qf_tensor_matrix(&kt, kept, QF_F32, OUT, HIDDEN);
  qf_tensor_matrix(&xt, x, QF_F32, ROWS, HIDDEN);
  qf_tensor_matrix(&yt, y, QF_F32, ROWS, OUT);
  qf_tensor_matrix(&ot, one, QF_F32, 1, OUT);
  options.bias = bias;
  for (type = QF_F32; type <= QF_BF16; ++type) {
    memcpy(kept, w, sizeof w);
    qf_tensor_matrix(&ht, half, type, OUT, HIDDEN);
    if (type != QF_F32) { /* what is kept: w rounded */
      OK(qf_cast(&wt, &ht, &error));
      OK(qf_cast(&ht, &kt, &error));
    }
    OK(qf_dense_create(&wt, type, &dense, &error));
    CHECK(qf_dense_n(dense) == OUT && qf_dense_k(dense) == HIDDEN && qf_dense_dtype(dense) == type);
    OK(qf_dense_matmul(&xt, dense, &yt, &options, &error));
    for (i = 0; i < ROWS; ++i)
      for (j = 0; j < OUT; ++j) {
        want[i * OUT + j] = bias[j];
        for (c = 0; c < HIDDEN; ++c) want[i * OUT + j] += (double)x[i * HIDDEN + c] * kept[j * HIDDEN + c];
      }
    CHECK(distance(y, want, ROWS * OUT) < 3e-7);
    /* From halves the same bits come, in several rows as in one. */
    if (type == QF_F32) ht = wt;
    OK(qf_dense_create(&ht, type, &same, &error));
    xt.shape[0] = 1;
    OK(qf_dense_matmul(&xt, same, &ot, &options, &error));
    xt.shape[0] = ROWS;
    CHECK(memcmp(one, y, sizeof one) == 0);
    qf_dense_destroy(dense);
    qf_dense_destroy(same);
  }
  qf_dense_destroy(NULL);
  CHECK(qf_dense_n(NULL) == 0 && qf_dense_k(NULL) == 0 && qf_dense_dtype(NULL) == QF_F32);
  REFUSED(qf_dense_create(NULL, QF_F32, &dense, &error), QF_ERR_INVALID_ARGUMENT, "w is NULL");
  CHECK(dense == NULL);
  REFUSED(qf_dense_create(&wt, QF_I8, &dense, &error), QF_ERR_INVALID_ARGUMENT, "dtype 8");
  REFUSED(qf_dense_create(&wt, QF_F32, NULL, &error), QF_ERR_INVALID_ARGUMENT, "out is NULL");
  wt.dtype = QF_I8;
  REFUSED(qf_dense_create(&wt, QF_F32, &dense, &error), QF_ERR_INVALID_ARGUMENT, "w has dtype 8");
  wt.dtype = QF_F32;
  OK(qf_dense_create(&wt, QF_F32, &dense, &error));
  REFUSED(qf_dense_matmul(&xt, NULL, &yt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "w is NULL");
  xt.shape[1] = HIDDEN - 1;
  REFUSED(qf_dense_matmul(&xt, dense, &yt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "x [7, 95]");
  xt.shape[1] = HIDDEN, options.kernel = "gemv_f32_scalar";
  REFUSED(qf_dense_matmul(&xt, dense, &yt, &options, &error), QF_ERR_INVALID_ARGUMENT,
          "options.kernel is set");
  qf_dense_destroy(dense);
}

static float q[ROWS * WIDTH], keys[KV_HEADS * TOKENS * DIM], values[KV_HEADS * TOKENS * DIM],
    out[ROWS * WIDTH];
static float paged[ROWS * WIDTH];

/* Attention written out, of the last `rows` of `tokens` tokens. */
static void attend(int rows, int tokens, int window, double scale, double* want) {
  double* p = (double*)malloc((size_t)tokens * sizeof *p);
  int r, h, t, c;
  for (r = 0; r < rows; ++r)
    for (h = 0; h < HEADS; ++h) {
      const int kv = h / (HEADS / KV_HEADS), last = tokens - rows + r;
      const int first = window && last - window + 1 > 0 ? last - window + 1 : 0;
      double most = -1e300, sum = 0;
      for (t = first; t <= last; ++t) {
        p[t] = 0;
        for (c = 0; c < DIM; ++c)
          p[t] += (double)q[r * WIDTH + h * DIM + c] * keys[(kv * TOKENS + t) * DIM + c];
        p[t] *= scale;
        if (p[t] > most) most = p[t];
      }
      for (t = first; t <= last; ++t) sum += p[t] = exp(p[t] - most);
      for (c = 0; c < DIM; ++c) {
        double total = 0;
        for (t = first; t <= last; ++t) total += p[t] / sum * values[(kv * TOKENS + t) * DIM + c];
        want[r * WIDTH + h * DIM + c] = total;
      }
    }
  free(p);
}

/* [kv_heads, tokens, head_dim] of the first `tokens` of memory for TOKENS. */
static void heads_of(qf_tensor* t, void* data, int32_t dtype, int64_t tokens) {
  qf_tensor_matrix(t, data, dtype, 0, 0);
  t->rank = 3;
  t->shape[0] = KV_HEADS, t->shape[1] = tokens, t->shape[2] = DIM;
  t->stride[0] = TOKENS * DIM, t->stride[1] = DIM, t->stride[2] = 1;
}

static void test_attention(void) {
  static uint16_t half[2][KV_HEADS * TOKENS * DIM];
  static double want[ROWS * WIDTH];
  static float pages[2][KV_HEADS][PAGES][PAGE * (DIM + 1)]; /* rows lie an element apart */
  const void* table[2][KV_HEADS][PAGES];
  const void* const* heads[2][KV_HEADS];
  const int64_t stride[KV_HEADS] = {DIM + 1, DIM + 1};
  qf_attention_options options = QF_ATTENTION_OPTIONS_INIT;
  qf_kv_pages kv = QF_KV_PAGES_INIT;
  qf_scratch* scratch = NULL;
  qf_parallel parallel = QF_PARALLEL_INIT;
  qf_pool* pool = NULL;
  qf_tensor qt, kt, vt, ot, pt, flat, narrow;
  int type, window, rows, side, h, p, i;

  qf_tensor_matrix(&ot, out, QF_F32, ROWS, WIDTH);
  qf_tensor_matrix(&pt, paged, QF_F32, ROWS, WIDTH);
  qf_tensor_matrix(&qt, q, QF_F32, ROWS, WIDTH);
  OK(qf_scratch_create(&scratch, &error));
  OK(qf_pool_create(2, &pool, &error));
  OK(qf_pool_parallel(pool, &parallel, &error));
  for (type = QF_F32; type <= QF_BF16; ++type) {
    const size_t size = type == QF_F32 ? 4 : 2;
    void* stored[2];
    fill(q, ROWS * WIDTH, 1);
    fill(keys, KV_HEADS * TOKENS * DIM, 2);
    fill(values, KV_HEADS * TOKENS * DIM, 3);
    for (side = 0; side < 2;
         ++side) { /* stored as `type`, and back, so that the reference sees the same numbers */
      float* floats = side ? values : keys;
      stored[side] = type == QF_F32 ? (void*)floats : (void*)half[side];
      qf_tensor_matrix(&flat, floats, QF_F32, KV_HEADS * TOKENS, DIM);
      qf_tensor_matrix(&narrow, half[side], type, KV_HEADS * TOKENS, DIM);
      if (type != QF_F32) {
        OK(qf_cast(&flat, &narrow, &error));
        OK(qf_cast(&narrow, &flat, &error));
      }
      for (h = 0; h < KV_HEADS; ++h) {
        for (p = 0; p < PAGES; ++p) table[side][h][p] = pages[side][h][p];
        for (i = 0; i < TOKENS; ++i)
          memcpy((char*)pages[side][h][i / PAGE] + (size_t)(i % PAGE) * (DIM + 1) * size,
                 (char*)stored[side] + (size_t)(h * TOKENS + i) * DIM * size, DIM * size);
        heads[side][h] = table[side][h];
      }
    }
    kv.dtype = type, kv.kv_heads = KV_HEADS, kv.head_dim = DIM, kv.page_tokens = PAGE;
    kv.key_pages = heads[0], kv.value_pages = heads[1], kv.key_stride = kv.value_stride = stride;
    for (window = 0; window <= 100; window += 50)
      for (rows = 1; rows <= ROWS; rows += ROWS - 1) {
        const int tokens = rows == 1 ? 17 : TOKENS;
        heads_of(&kt, stored[0], type, tokens);
        heads_of(&vt, stored[1], type, tokens);
        qt.shape[0] = ot.shape[0] = pt.shape[0] = rows, kv.tokens = tokens;
        options.window = window, options.scale = 0;
        options.scratch = window ? scratch : NULL, options.parallel = rows == 1 ? NULL : &parallel;
        OK(qf_attention(&qt, &kt, &vt, &ot, &options, &error));
        attend(rows, tokens, window, 0.25, want); /* 1 / sqrt(16) */
        CHECK(distance(out, want, rows * WIDTH) < 1e-6);
        if (window && rows > 1) /* nobody sees the first pages */
          for (p = 0; (p + 1) * PAGE <= tokens - rows - window + 1; ++p)
            table[0][0][p] = table[0][1][p] = table[1][0][p] = table[1][1][p] = NULL;
        OK(qf_attention_paged(&qt, &kv, &pt, &options, &error));
        CHECK(memcmp(out, paged, (size_t)rows * WIDTH * sizeof(float)) == 0);
        for (p = 0; p < PAGES; ++p)
          for (h = 0; h < KV_HEADS; ++h) table[0][h][p] = pages[0][h][p], table[1][h][p] = pages[1][h][p];
      }
    options.scale = 0.5f;
    OK(qf_attention_paged(&qt, &kv, &pt, &options, &error));
    attend(ROWS, TOKENS, 100, 0.5, want);
    CHECK(distance(paged, want, ROWS * WIDTH) < 1e-6);
  }
  /* Any strides: here one KV head for all. */
  heads_of(&kt, half[0], QF_BF16, 20);
  kt.stride[0] = 0;
  OK(qf_attention(&qt, &kt, &kt, &ot, NULL, &error));

  /* What is refused, and says so. */
  heads_of(&kt, half[0], QF_BF16, 20);
  heads_of(&vt, half[1], QF_BF16, 21);
  REFUSED(qf_attention(NULL, &kt, &kt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT, "q is NULL");
  REFUSED(qf_attention(&qt, NULL, &kt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT, "keys is NULL");
  REFUSED(qf_attention(&qt, &kt, &kt, NULL, NULL, &error), QF_ERR_INVALID_ARGUMENT, "out is NULL");
  REFUSED(qf_attention(&qt, &kt, &vt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT,
          "keys [2, 20, 16] of dtype 2, values [2, 21, 16] of dtype 2");
  kt.shape[1] = 3;
  REFUSED(qf_attention(&qt, &kt, &kt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT,
          "keys of 3 tokens, expected at least the 7 of q");
  kt.shape[1] = 20, kt.stride[1] = DIM - 1;
  REFUSED(qf_attention(&qt, &kt, &kt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT, "keys has strides [");
  kt.stride[1] = INT64_MAX / 2;
  REFUSED(qf_attention(&qt, &kt, &kt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT, "keys has strides [");
  kt.stride[1] = DIM, kt.rank = 2;
  REFUSED(qf_attention(&qt, &kt, &kt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT, "keys has rank 2");
  kt.rank = 3, kt.dtype = QF_I8;
  REFUSED(qf_attention(&qt, &kt, &kt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT, "keys has dtype 8");
  kt.dtype = QF_BF16, kt.shape[0] = 4;
  REFUSED(qf_attention(&qt, &kt, &kt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT,
          "q has shape [7, 96], expected rows of heads of 16, a multiple of 4");
  kt.shape[0] = 2, options.window = -1;
  REFUSED(qf_attention(&qt, &kt, &kt, &ot, &options, &error), QF_ERR_INVALID_ARGUMENT,
          "options.window is -1");
  ot.shape[0] = 5;
  REFUSED(qf_attention(&qt, &kt, &kt, &ot, NULL, &error), QF_ERR_INVALID_ARGUMENT, "out [5, 96]");
  REFUSED(qf_attention_paged(&qt, NULL, &pt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "kv is NULL");
  kv.kv_heads = 1 << 30, kv.head_dim = 1 << 30;
  REFUSED(qf_attention_paged(&qt, &kv, &pt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "q has shape [7, 96]");
  kv.kv_heads = KV_HEADS, kv.head_dim = 0;
  REFUSED(qf_attention_paged(&qt, &kv, &pt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "KV heads of 0");
  kv.head_dim = DIM, kv.page_tokens = -1;
  REFUSED(qf_attention_paged(&qt, &kv, &pt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "in pages of -1");
  kv.page_tokens = PAGE, table[1][1][2] = NULL;
  REFUSED(qf_attention_paged(&qt, &kv, &pt, NULL, &error), QF_ERR_INVALID_ARGUMENT,
          "kv.value_pages[1][2] is NULL");
  heads[1][1] = NULL;
  REFUSED(qf_attention_paged(&qt, &kv, &pt, NULL, &error), QF_ERR_INVALID_ARGUMENT,
          "kv.value_pages[1] is NULL");
  kv.key_stride = NULL;
  REFUSED(qf_attention_paged(&qt, &kv, &pt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "kv.key_stride is NULL");
  kv.struct_size = 3;
  REFUSED(qf_attention_paged(&qt, &kv, &pt, NULL, &error), QF_ERR_INVALID_ARGUMENT, "kv.struct_size is 3");
  REFUSED(qf_scratch_create(NULL, &error), QF_ERR_INVALID_ARGUMENT, "out is NULL");
  qf_kv_pages_init(&kv, sizeof kv);
  CHECK(kv.struct_size == sizeof kv && kv.key_pages == NULL);
  qf_attention_options_init(&options, sizeof options);
  CHECK(options.window == 0 && options.scratch == NULL);
  qf_scratch_destroy(scratch);
  qf_scratch_destroy(NULL);
  qf_pool_destroy(pool);
}

static void test_small(void) {
  enum { N = 34 };
  float a[2 * N], b[2 * N], r[2 * N], cosine[2 * 8], sine[2 * 8];
  double want[2 * N];
  uint16_t half[6];
  const float numbers[6] = {1,     -2.5f,          65504,
                            65520, 1.00048828125f, -0.0f}; /* 65520 rounds to infinity in f16 */
  float back[6];
  qf_tensor at, bt, rt, ct, st, ht, nt, kt;
  int i, j;

  qf_tensor_matrix(&at, a, QF_F32, 2, N);
  qf_tensor_matrix(&bt, b, QF_F32, 2, N);
  qf_tensor_matrix(&rt, r, QF_F32, 2, N);
  fill(a, 2 * N, 1);
  fill(b, 2 * N, 2);
  OK(qf_rms_norm(&at, b, 1e-5, &rt, &error));
  for (i = 0; i < 2; ++i) {
    double sum = 0;
    for (j = 0; j < N; ++j) sum += (double)a[i * N + j] * a[i * N + j];
    for (j = 0; j < N; ++j) want[i * N + j] = a[i * N + j] / sqrt(sum / N + 1e-5) * b[j];
  }
  CHECK(distance(r, want, 2 * N) < 5e-7);
  memcpy(r, a, sizeof r);
  OK(qf_rms_norm(&rt, b, 1e-5, &rt, &error)); /* in place */
  CHECK(distance(r, want, 2 * N) < 5e-7);
  REFUSED(qf_rms_norm(&at, NULL, 1e-5, &rt, &error), QF_ERR_INVALID_ARGUMENT, "weight is NULL");
  REFUSED(qf_rms_norm(&at, b, -1, &rt, &error), QF_ERR_INVALID_ARGUMENT, "eps is negative");
  REFUSED(qf_rms_norm(NULL, b, 1, &rt, &error), QF_ERR_INVALID_ARGUMENT, "x is NULL");

  /* Heads of 17 columns, of which 16 are rotated: 8 pairs. */
  qf_tensor_matrix(&ct, cosine, QF_F32, 2, 8);
  qf_tensor_matrix(&st, sine, QF_F32, 2, 8);
  for (i = 0; i < 16; ++i) cosine[i] = (float)cos(0.3 * i), sine[i] = (float)sin(0.3 * i);
  memcpy(r, a, sizeof r);
  OK(qf_rope(&rt, 17, &ct, &st, &error));
  for (i = 0; i < 2 * N; ++i) {
    const int row = i / N, head = row * N + i % N / 17 * 17, c = i % N % 17, p = c % 8;
    const double x = a[head + p], y = a[head + 8 + p], cs = cosine[row * 8 + p], sn = sine[row * 8 + p];
    want[i] = c == 16 ? a[i] : c < 8 ? x * cs - y * sn : y * cs + x * sn;
  }
  CHECK(distance(r, want, 2 * N) < 2e-7 && r[16] == a[16]);
  REFUSED(qf_rope(&rt, 15, &ct, &st, &error), QF_ERR_INVALID_ARGUMENT, "head_dim is 15");
  st.shape[1] = 7;
  REFUSED(qf_rope(&rt, 17, &ct, &st, &error), QF_ERR_INVALID_ARGUMENT, "sine [2, 7]");
  st.shape[1] = ct.shape[1] = 9;
  st.stride[0] = ct.stride[0] = 9, st.shape[0] = ct.shape[0] = 1;
  REFUSED(qf_rope(&rt, 17, &ct, &st, &error), QF_ERR_INVALID_ARGUMENT, "expected [2, at most 8]");

  memcpy(r, a, sizeof r);
  OK(qf_softmax(&rt, &error));
  for (i = 0; i < 2; ++i) {
    double sum = 0;
    for (j = 0; j < N; ++j) sum += exp(a[i * N + j]);
    for (j = 0; j < N; ++j) want[i * N + j] = exp(a[i * N + j]) / sum;
  }
  CHECK(distance(r, want, 2 * N) < 1e-6);
  memcpy(r, a, sizeof r);
  OK(qf_silu_mul(&rt, &bt, &error));
  for (i = 0; i < 2 * N; ++i) want[i] = a[i] / (1 + exp(-a[i])) * b[i];
  CHECK(distance(r, want, 2 * N) < 1e-6);
  memcpy(r, a, sizeof r);
  OK(qf_add(&rt, &bt, &error));
  for (i = 0; i < 2 * N; ++i) CHECK(r[i] == a[i] + b[i]);
  REFUSED(qf_softmax(NULL, &error), QF_ERR_INVALID_ARGUMENT, "x is NULL");
  bt.shape[0] = 1;
  REFUSED(qf_add(&rt, &bt, &error), QF_ERR_INVALID_ARGUMENT, "to has shape [2, 34], from [1, 34]");
  REFUSED(qf_silu_mul(&rt, &bt, &error), QF_ERR_INVALID_ARGUMENT, "gate has shape [2, 34], up [1, 34]");

  nt = at;
  qf_tensor_matrix(&nt, (void*)numbers, QF_F32, 1, 6);
  qf_tensor_matrix(&ht, half, QF_F16, 1, 6);
  qf_tensor_matrix(&kt, back, QF_F32, 1, 6);
  OK(qf_cast(&nt, &ht, &error));
  CHECK(half[0] == 0x3c00 && half[1] == 0xc100 && half[2] == 0x7bff && half[3] == 0x7c00 &&
        half[4] == 0x3c00 && half[5] == 0x8000); /* ties go to even */
  OK(qf_cast(&ht, &kt, &error));
  CHECK(back[1] == -2.5f && back[2] == 65504 && isinf(back[3]) && back[4] == 1);
  ht.dtype = QF_BF16;
  OK(qf_cast(&nt, &ht, &error));
  CHECK(half[0] == 0x3f80 && half[1] == 0xc020 && half[2] == 0x4780 && half[5] == 0x8000);
  OK(qf_cast(&ht, &kt, &error));
  CHECK(back[1] == -2.5f && back[2] == 65536);
  REFUSED(qf_cast(&nt, &kt, &error), QF_ERR_INVALID_ARGUMENT, "from has dtype 0, to 0");
  REFUSED(qf_cast(NULL, &kt, &error), QF_ERR_INVALID_ARGUMENT, "from is NULL");
  ht.dtype = QF_I8;
  REFUSED(qf_cast(&nt, &ht, &error), QF_ERR_INVALID_ARGUMENT, "to has dtype 8");
}

static void test_kernel_info(void) {
  qf_kernel_info kernel = {0};
  int32_t i, all = 0;
  for (i = 0; i < qf_kernel_count(); ++i) {
    kernel.struct_size = sizeof kernel;
    OK(qf_kernel_get_info(i, &kernel, &error));
    CHECK((kernel.codes & QF_CODES_NUMBERS) && kernel.codes < 16);
    if (strstr(kernel.name, "_i24_")) CHECK(kernel.codes == QF_CODES_NUMBERS);
    if (kernel.codes == (QF_CODES_NUMBERS | QF_CODES_SHORT_TABLE | QF_CODES_TABLE | QF_CODES_ROW_TABLES))
      ++all;
  }
  CHECK(all > 0);
  memset(&kernel, 0xee, sizeof kernel);
  kernel.struct_size = offsetof(qf_kernel_info, codes); /* a caller from before there were codes */
  OK(qf_kernel_get_info(0, &kernel, &error));
  CHECK(kernel.n_step > 0 && kernel.codes == 0xeeeeeeee);
}

int main(void) {
  test_products();
  test_dense();
  test_attention();
  test_small();
  test_kernel_info();
  return verdict("capi_kernel_test");
}
