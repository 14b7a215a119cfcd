/* One block of a decoder from C: norm, q, k and v in one call, rotary embedding, attention over paged f16 keys and values, then the
 * gated feed-forward layer. A prompt goes through at once and the tokens behind it one by one, and must give what all of them at
 * once give. C99; link libqf. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "qf.h"

enum {
  HIDDEN = 128,
  HEADS = 4,
  KV_HEADS = 2,
  DIM = 32,
  FFN = 320,
  KV = KV_HEADS * DIM,
  PROMPT = 37,
  TOKENS = 45
};
enum { PAGE = 16, PAGES = (TOKENS + PAGE - 1) / PAGE };

#define TRY(call)                  \
  do {                             \
    if ((call)) return error.code; \
  } while (0)
static qf_error error = QF_ERROR_INIT;

typedef struct {
  qf_weight *q, *k, *v, *o, *gate, *up, *down;
  float attention_norm[HIDDEN], ffn_norm[HIDDEN];
} block;

/* Memory of one text's keys and values. A page holds [2][KV_HEADS][PAGE][DIM]; which page comes next is up to whoever lends them. */
typedef struct {
  uint16_t memory[PAGES][2][KV_HEADS][PAGE][DIM];
  const void* table[2][KV_HEADS][PAGES];
  const void* const* heads[2][KV_HEADS];
  int64_t stride[KV_HEADS];
  int64_t tokens;
} cache;

static qf_status make_weight(int n, int k, int seed, qf_weight** out) {
  static float w[FFN * HIDDEN];
  qf_tensor t;
  qf_matrix* matrix = NULL;
  int i;
  for (i = 0; i < n * k; ++i) w[i] = (float)sin(0.37 * i + seed + (i % 251) * (i % 13)) * 0.1f;
  qf_tensor_matrix(&t, w, QF_F32, n, k);
  TRY(qf_quantize(&t, NULL, NULL, &matrix, &error)); /* 4 bits, groups of 64 */
  qf_weight_pack(matrix, NULL, out, &error);
  qf_matrix_destroy(matrix);
  return error.code;
}

static void make_cache(cache* kv) {
  int side, h, p;
  for (side = 0; side < 2; ++side)
    for (h = 0; h < KV_HEADS; ++h) {
      for (p = 0; p < PAGES; ++p) kv->table[side][h][p] = kv->memory[PAGES - 1 - p][side][h];
      kv->heads[side][h] = kv->table[side][h];
      kv->stride[h] = DIM;
    }
  kv->tokens = 0;
}

/* One row of k or v [KV_HEADS, DIM] into its page, as f16. */
static qf_status store(cache* kv, int side, int64_t token, float* row) {
  qf_tensor from, to;
  qf_tensor_matrix(&from, row, QF_F32, KV_HEADS, DIM);
  qf_tensor_matrix(&to, (uint16_t*)kv->table[side][0][token / PAGE] + token % PAGE * DIM, QF_F16, KV_HEADS,
                   DIM);
  to.stride[0] = PAGE * DIM;
  return qf_cast(&from, &to, &error);
}

/* x [rows, HIDDEN]: the next `rows` tokens of the text go through the block, in place. */
static qf_status forward(const block* b, cache* kv, float* x, int64_t rows, const qf_parallel* parallel,
                         qf_scratch* scratch) {
  static float normed[TOKENS * HIDDEN], q[TOKENS * HIDDEN], k[TOKENS * KV], v[TOKENS * KV],
      wide[TOKENS * FFN];
  static float cosine[TOKENS * DIM / 2], sine[TOKENS * DIM / 2];
  qf_tensor xt, nt, qt, kt, vt, wt, ct, st;
  qf_product products[3];
  qf_matmul_options matmul = QF_MATMUL_OPTIONS_INIT;
  qf_attention_options attention = QF_ATTENTION_OPTIONS_INIT;
  qf_kv_pages pages = QF_KV_PAGES_INIT;
  int64_t r, i;

  matmul.parallel = attention.parallel = parallel;
  attention.scratch = scratch;
  qf_tensor_matrix(&xt, x, QF_F32, rows, HIDDEN);
  qf_tensor_matrix(&nt, normed, QF_F32, rows, HIDDEN);
  qf_tensor_matrix(&qt, q, QF_F32, rows, HEADS * DIM);
  qf_tensor_matrix(&kt, k, QF_F32, rows, KV);
  qf_tensor_matrix(&vt, v, QF_F32, rows, KV);
  qf_tensor_matrix(&wt, wide, QF_F32, rows, FFN);
  qf_tensor_matrix(&ct, cosine, QF_F32, rows, DIM / 2);
  qf_tensor_matrix(&st, sine, QF_F32, rows, DIM / 2);
  for (r = 0; r < rows; ++r)
    for (i = 0; i < DIM / 2; ++i) {
      const double angle = (double)(kv->tokens + r) * pow(10000, -2.0 * (double)i / DIM);
      cosine[r * DIM / 2 + i] = (float)cos(angle), sine[r * DIM / 2 + i] = (float)sin(angle);
    }

  TRY(qf_rms_norm(&xt, b->attention_norm, 1e-5, &nt, &error));
  products[0].x = products[1].x = products[2].x = &nt;
  products[0].w = b->q, products[1].w = b->k, products[2].w = b->v;
  products[0].y = &qt, products[1].y = &kt, products[2].y = &vt;
  products[0].bias = products[1].bias = products[2].bias = NULL;
  TRY(qf_matmul_many(products, 3, &matmul, &error));
  TRY(qf_rope(&qt, DIM, &ct, &st, &error));
  TRY(qf_rope(&kt, DIM, &ct, &st, &error));
  for (r = 0; r < rows; ++r, ++kv->tokens) {
    TRY(store(kv, 0, kv->tokens, k + r * KV));
    TRY(store(kv, 1, kv->tokens, v + r * KV));
  }
  pages.dtype = QF_F16, pages.kv_heads = KV_HEADS, pages.head_dim = DIM;
  pages.tokens = kv->tokens, pages.page_tokens = PAGE;
  pages.key_pages = kv->heads[0], pages.value_pages = kv->heads[1];
  pages.key_stride = pages.value_stride = kv->stride;
  TRY(qf_attention_paged(&qt, &pages, &nt, &attention, &error)); /* HEADS * DIM is HIDDEN here */
  TRY(qf_matmul(&nt, b->o, &qt, &matmul, &error));
  TRY(qf_add(&xt, &qt, &error));

  TRY(qf_rms_norm(&xt, b->ffn_norm, 1e-5, &nt, &error));
  TRY(qf_matmul_swiglu(&nt, b->gate, b->up, &wt, &matmul, &error));
  TRY(qf_matmul(&wt, b->down, &nt, &matmul, &error));
  return qf_add(&xt, &nt, &error);
}

static qf_status run(block* b, cache* kv, const qf_parallel* parallel, qf_scratch* scratch,
                     double* difference) {
  static float whole[TOKENS * HIDDEN], parts[TOKENS * HIDDEN];
  double off = 0, size = 0;
  int64_t i, token;
  for (i = 0; i < TOKENS * HIDDEN; ++i) whole[i] = parts[i] = (float)cos(0.11 * (double)i);
  for (i = 0; i < HIDDEN; ++i) b->attention_norm[i] = b->ffn_norm[i] = 1 + 0.001f * (float)i;
  TRY(make_weight(HIDDEN, HIDDEN, 1, &b->q));
  TRY(make_weight(KV, HIDDEN, 2, &b->k));
  TRY(make_weight(KV, HIDDEN, 3, &b->v));
  TRY(make_weight(HIDDEN, HIDDEN, 4, &b->o));
  TRY(make_weight(FFN, HIDDEN, 5, &b->gate));
  TRY(make_weight(FFN, HIDDEN, 6, &b->up));
  TRY(make_weight(HIDDEN, FFN, 7, &b->down));

  make_cache(kv);
  TRY(forward(b, kv, whole, TOKENS, parallel, scratch));
  make_cache(kv);
  TRY(forward(b, kv, parts, PROMPT, parallel, scratch));
  for (token = PROMPT; token < TOKENS; ++token)
    TRY(forward(b, kv, parts + token * HIDDEN, 1, parallel, scratch));
  for (i = 0; i < TOKENS * HIDDEN; ++i) {
    off += (whole[i] - parts[i]) * (double)(whole[i] - parts[i]);
    size += whole[i] * (double)whole[i];
  }
  *difference = sqrt(off / size);
  return QF_OK;
}

int main(void) {
  static block b;
  static cache kv;
  qf_parallel parallel = QF_PARALLEL_INIT;
  qf_pool* pool = NULL;
  qf_scratch* scratch = NULL;
  double difference = 1;
  if (qf_pool_create(2, &pool, &error) || qf_pool_parallel(pool, &parallel, &error) ||
      qf_scratch_create(&scratch, &error) || run(&b, &kv, &parallel, scratch, &difference))
    fprintf(stderr, "%s: %s\n", qf_status_name(error.code), error.message);
  else
    printf("%d tokens in pages of %d: at once and one by one differ by %.1e\n", TOKENS, PAGE, difference);
  qf_weight_destroy(b.q);
  qf_weight_destroy(b.k);
  qf_weight_destroy(b.v);
  qf_weight_destroy(b.o);
  qf_weight_destroy(b.gate);
  qf_weight_destroy(b.up);
  qf_weight_destroy(b.down);
  qf_scratch_destroy(scratch);
  qf_pool_destroy(pool);
  return !(difference < 1e-4); /* an f16 that rounds the other way */
}
