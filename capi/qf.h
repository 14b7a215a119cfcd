/* qf.h: the C face of QuantumFusion. C99 and later, C++; no other header needed.
 *
 * Errors   Functions that can fail return a qf_status; 0 is QF_OK. A qf_error may be passed to learn why; it belongs
 *          to the caller, may be NULL, and nothing is kept in thread-local or global state. On failure outputs are
 *          NULL or untouched.
 * Threads  Handles passed as const may be shared between threads; otherwise one writer at a time. The library starts
 *          no threads unless the caller makes a qf_pool. Callbacks run on the calling thread unless their comment
 *          says otherwise.
 * Memory   X_destroy(NULL) does nothing. Pointers that a handle gives out stay valid until it is destroyed.
 * Text     Paths and strings are UTF-8 and end with NUL unless a length is passed. Text outputs: `out` holds
 *          `capacity` bytes; *size receives the bytes needed, the final NUL included. With capacity 0 only *size is
 *          written. Arrays work alike, counted in elements. Too small a capacity is QF_ERR_INVALID_ARGUMENT, and
 *          *size is still written.
 * Options  Structs begin with struct_size: set it with the _INIT macro or, where macros don't exist, with the _init
 *          function and the size that your binding knows. Fields beyond a shorter struct take their defaults; a
 *          longer one is accepted while its tail is zero, else QF_ERR_UNSUPPORTED. NULL options mean defaults.
 * ABI      Functions, constants and fields are only ever appended while QF_ABI_VERSION (the soname's number) stays.
 */
#ifndef QF_H
#define QF_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define QF_API __attribute__((visibility("default")))
#else
#define QF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version and errors ---- */

#define QF_ABI_VERSION 0

typedef int32_t qf_status;
enum {
  QF_OK = 0,
  QF_ERR_INVALID_ARGUMENT = 10, /* an option, shape, name or NULL that the caller chose */
  QF_ERR_UNSUPPORTED = 20,      /* valid, but not something this build does */
  QF_ERR_NOT_FOUND = 30,        /* a file, tensor or key that isn't there */
  QF_ERR_IO = 40,               /* the operating system refused */
  QF_ERR_BAD_FORMAT = 50,       /* a file whose bytes break its format */
  QF_ERR_OUT_OF_MEMORY = 60,
  QF_ERR_CANCELLED = 70, /* a callback asked to stop */
  QF_ERR_INTERNAL = 90   /* a bug in this library */
};

typedef struct qf_error {
  uint32_t struct_size;
  int32_t code;       /* the qf_status that was returned */
  char message[1016]; /* a sentence that names file, tensor and field; ends with NUL, cut short if need be */
} qf_error;
#define QF_ERROR_INIT \
  { sizeof(qf_error), 0, "" }
QF_API void qf_error_init(qf_error* error, size_t size);

QF_API const char* qf_version(void);                 /* "0.1.0" */
QF_API int32_t qf_version_number(void);              /* major * 10000 + minor * 100 + patch */
QF_API int32_t qf_abi_version(void);                 /* QF_ABI_VERSION of the library that runs */
QF_API const char* qf_status_name(qf_status status); /* "bad format"; never NULL */

/* ---- tensors ---- */

/* Element types; 16-bit floats are stored as uint16_t. */
enum { QF_F32 = 0, QF_F16 = 1, QF_BF16 = 2, QF_I8 = 8 };
enum { QF_CPU = 1 }; /* device_type, as in DLPack */

/* A view: it owns nothing. Matrices everywhere: x [m, k], w [n, k] (a row per output), y [m, n]. */
typedef struct qf_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t shape[4];
  int64_t stride[4]; /* in elements; the last must be 1 */
  int32_t device_type;
  int32_t device_id;
} qf_tensor;
/* Makes *tensor a contiguous rows x columns view of `data` on the CPU. */
QF_API void qf_tensor_matrix(qf_tensor* tensor, void* data, int32_t dtype, int64_t rows, int64_t columns);

/* ---- running on several threads ---- */

/* A host's parallel loop: `run` calls body(context, i) once for every i in [0, count), on any threads, in any
 * order, and returns after the last. `threads` says how finely to cut work. Results never depend on it. */
typedef void (*qf_body)(void* context, int64_t i);
typedef struct qf_parallel {
  uint32_t struct_size;
  int32_t threads;
  void (*run)(int64_t count, qf_body body, void* context, void* user);
  void* user;
} qf_parallel;
#define QF_PARALLEL_INIT \
  { sizeof(qf_parallel), 1, NULL, NULL }
QF_API void qf_parallel_init(qf_parallel* parallel, size_t size);

/* Threads of the library's own, for hosts that have none to lend. Serves one call at a time; make it after fork(). */
typedef struct qf_pool qf_pool;
QF_API qf_status qf_pool_create(int32_t threads /* 0: one per core */, qf_pool** out, qf_error* error);
QF_API void qf_pool_destroy(qf_pool* pool);
/* Set out->struct_size first. */
QF_API qf_status qf_pool_parallel(qf_pool* pool, qf_parallel* out, qf_error* error);

/* Progress, from the calling thread. Return 0 to go on; anything else ends the call with QF_ERR_CANCELLED and
 * leaves nothing half-written under a final name. The strings are valid during the call only. */
typedef struct qf_progress_event {
  uint32_t struct_size;
  uint32_t reserved;
  const char* stage; /* "quantize" */
  const char* item;  /* the tensor or file at hand; may be "" */
  const char* unit;  /* "bytes", "tokens", "tensors" */
  uint64_t done, total;
} qf_progress_event;
typedef int32_t (*qf_progress)(const qf_progress_event* event, void* user);

/* ---- kernels ---- */

/* How activations are computed with; relative RMS against f64. */
enum {
  QF_EXACT = 0, /* f32, or 24-bit integers per group: <= 1e-6 */
  QF_FAST = 1,  /* 8-bit integers per group: <= 1 % */
  QF_INT16 = 2  /* 16-bit integers per group: <= 3e-5 */
};
enum { QF_LAYOUT_CANONICAL = 0, QF_LAYOUT_ROWS16 = 1 };
/* What the codes of rows16 mean, as bits: integers that count from a zero; indices into the matrix's codebook of at most 16 entries,
 * or of more; indices into the row's codebook. */
enum { QF_CODES_NUMBERS = 1, QF_CODES_SHORT_TABLE = 2, QF_CODES_TABLE = 4, QF_CODES_ROW_TABLES = 8 };

typedef struct qf_kernel_info {
  uint32_t struct_size;
  int32_t bits; /* of a stored code; 0: any of the layout */
  const char* name;
  int32_t is_gemm; /* 0: one row of x */
  int32_t accuracy, layout;
  int32_t runs_here; /* 1: this CPU has its instructions */
  int64_t m_min, m_max, n_step;
  uint32_t codes; /* QF_CODES_...: what it reads */
  uint32_t reserved;
} qf_kernel_info;
QF_API int32_t qf_kernel_count(void);
/* In order of preference; set out->struct_size first. */
QF_API qf_status qf_kernel_get_info(int32_t index, qf_kernel_info* out, qf_error* error);
/* Instruction sets in use, "avx2+avx512"; the environment's QF_MAX_ISA cuts them. */
QF_API qf_status qf_cpu_isa(char* out, size_t capacity, size_t* size, qf_error* error);

/* ---- low-bit matrices ---- */

enum { QF_ZERO_SYMMETRIC = 0, QF_ZERO_INTEGER = 1, QF_ZERO_FLOAT = 2 };

/* What the codes mean: weight(r, c) = (code(r, c) - zero(r, g)) * scale(r, g) with g = c / group. */
typedef struct qf_scheme {
  uint32_t struct_size;
  int32_t bits;        /* 1 to 8 */
  int64_t group;       /* columns that share a scale; 0: the whole row; the last group may be ragged */
  int32_t zero;        /* QF_ZERO_...; symmetric: zero is 2^(bits - 1) */
  int32_t scale_dtype; /* what scales are rounded to: QF_F32, QF_F16 or QF_BF16 */
} qf_scheme;
#define QF_SCHEME_INIT \
  { sizeof(qf_scheme), 4, 64, QF_ZERO_INTEGER, QF_F16 }
QF_API void qf_scheme_init(qf_scheme* scheme, size_t size);

typedef struct qf_matrix qf_matrix; /* canonical form: codes, scales, zeros */

typedef struct qf_matrix_info {
  uint32_t struct_size;
  int32_t bits, zero, scale_dtype;
  int64_t n, k, group, groups; /* groups = ceil(k / group), per row */
} qf_matrix_info;

/* From parts made elsewhere, copied: codes [n, k] below 2^bits, scales [n, groups], zeros [n, groups] or NULL if symmetric. */
QF_API qf_status qf_matrix_create(const qf_scheme* scheme, int64_t n, int64_t k, const uint8_t* codes,
                                  const float* scales, const float* zeros, qf_matrix** out, qf_error* error);
QF_API void qf_matrix_destroy(qf_matrix* matrix);
QF_API qf_status qf_matrix_get_info(const qf_matrix* matrix, qf_matrix_info* out, qf_error* error);
QF_API const uint8_t* qf_matrix_codes(const qf_matrix* matrix); /* [n, k]; NULL of NULL */
QF_API const float* qf_matrix_scales(const qf_matrix* matrix);  /* [n, groups] */
QF_API const float* qf_matrix_zeros(const qf_matrix* matrix);   /* [n, groups]; NULL when symmetric */
QF_API qf_status qf_matrix_dequantize(const qf_matrix* matrix, qf_tensor* out /* f32 [n, k] */,
                                      qf_error* error);

typedef struct qf_quantize_options {
  uint32_t struct_size;
  uint32_t reserved;
  const char* method; /* "rtn": round to nearest */
  const char* name;   /* of the tensor, for messages; may be NULL */
  const qf_parallel* parallel;
} qf_quantize_options;
#define QF_QUANTIZE_OPTIONS_INIT \
  { sizeof(qf_quantize_options), 0, "rtn", NULL, NULL }
QF_API void qf_quantize_options_init(qf_quantize_options* options, size_t size);

/* w [n, k] of QF_F32, QF_F16 or QF_BF16. A NaN or infinite weight is QF_ERR_BAD_FORMAT, named by row and column. */
QF_API qf_status qf_quantize(const qf_tensor* w, const qf_scheme* scheme, const qf_quantize_options* options,
                             qf_matrix** out, qf_error* error);

/* ---- multiplying ---- */

typedef struct qf_weight qf_weight; /* packed for a kernel */

typedef struct qf_pack_options {
  uint32_t struct_size;
  int32_t layout; /* falls back to canonical for schemes that it doesn't hold */
  const qf_parallel* parallel;
} qf_pack_options;
#define QF_PACK_OPTIONS_INIT \
  { sizeof(qf_pack_options), QF_LAYOUT_ROWS16, NULL }
QF_API void qf_pack_options_init(qf_pack_options* options, size_t size);

QF_API qf_status qf_weight_pack(const qf_matrix* matrix, const qf_pack_options* options, qf_weight** out,
                                qf_error* error);
/* The packed bytes, header included, and back (copied and checked). They suit this version of the library: files hold matrices. */
QF_API qf_status qf_weight_buffer(const qf_weight* weight, const void** data, size_t* size, qf_error* error);
QF_API qf_status qf_weight_from_buffer(const void* data, size_t size, qf_weight** out, qf_error* error);
QF_API void qf_weight_destroy(qf_weight* weight);
QF_API int64_t qf_weight_n(const qf_weight* weight); /* 0 of NULL */
QF_API int64_t qf_weight_k(const qf_weight* weight);
QF_API int32_t qf_weight_layout(const qf_weight* weight);

typedef struct qf_matmul_options {
  uint32_t struct_size;
  int32_t accuracy;
  const char* kernel; /* forces one by name; NULL: the first that fits */
  const float* bias;  /* [n] or NULL */
  const qf_parallel* parallel;
  /* For x of dtype QF_I8 only: x(i, c) = x[i, c] * x_scales[i, c / x_group]. f32 [m, ceil(k / x_group)]; x_group 0 is
   * the whole row, others as kernel::Int8Rows says (qf/kernel/matmul.hpp). `accuracy` isn't looked at. */
  const qf_tensor* x_scales;
  int64_t x_group;
} qf_matmul_options;
#define QF_MATMUL_OPTIONS_INIT \
  { sizeof(qf_matmul_options), QF_EXACT, NULL, NULL, NULL, NULL, 0 }
QF_API void qf_matmul_options_init(qf_matmul_options* options, size_t size);

/* y [m, n] = x [m, k] * w^T + bias; x is f32, f16, bf16 or i8 (with scales), y f32; they don't overlap. One row is a
 * matrix-vector product. */
QF_API qf_status qf_matmul(const qf_tensor* x, const qf_weight* w, qf_tensor* y,
                           const qf_matmul_options* options, qf_error* error);

/* One product of a call: y [m, n] = x [m, k] * w^T + bias, all f32. */
typedef struct qf_product {
  const qf_tensor* x;
  const qf_weight* w;
  qf_tensor* y;
  const float* bias; /* [n] or NULL */
} qf_product;
/* Several at once, such as q, k and v, or the experts of a layer: threads meet once, and x is prepared once for weights that share
 * it. The bits of one call each; nothing is computed if one is refused. options: without bias and x_scales. */
QF_API qf_status qf_matmul_many(const qf_product* products, size_t count, const qf_matmul_options* options,
                                qf_error* error);
/* y [m, n] = silu(x * gate^T) * (x * up^T), all f32: the bits of qf_matmul twice and qf_silu_mul. Options as above. */
QF_API qf_status qf_matmul_swiglu(const qf_tensor* x, const qf_weight* gate, const qf_weight* up,
                                  qf_tensor* y, const qf_matmul_options* options, qf_error* error);

typedef struct qf_dense qf_dense; /* a float matrix, laid out for products */

/* Of w [n, k], copied; kept as `dtype`. Both are QF_F32, QF_F16 or QF_BF16. */
QF_API qf_status qf_dense_create(const qf_tensor* w, int32_t dtype, qf_dense** out, qf_error* error);
QF_API void qf_dense_destroy(qf_dense* dense);
QF_API int64_t qf_dense_n(const qf_dense* dense); /* 0 of NULL */
QF_API int64_t qf_dense_k(const qf_dense* dense);
QF_API int32_t qf_dense_dtype(const qf_dense* dense);
/* y [m, n] = x [m, k] * w^T + bias; x and y are f32 and don't overlap. Of the options bias and parallel alone. Relative RMS against
 * f64 at most 3e-7; the same bits for any m. */
QF_API qf_status qf_dense_matmul(const qf_tensor* x, const qf_dense* w, qf_tensor* y,
                                 const qf_matmul_options* options, qf_error* error);

/* ---- attention and small operations ---- */

typedef struct qf_scratch qf_scratch; /* memory that calls keep for the next one; one call at a time */
QF_API qf_status qf_scratch_create(qf_scratch** out, qf_error* error);
QF_API void qf_scratch_destroy(qf_scratch* scratch);

typedef struct qf_attention_options {
  uint32_t struct_size;
  float scale;    /* of the scores; 0: 1 / sqrt(head_dim) */
  int64_t window; /* 0: a token sees all before it and itself; else only the last `window` of these */
  const qf_parallel* parallel;
  qf_scratch* scratch; /* NULL: allocated for the call */
} qf_attention_options;
#define QF_ATTENTION_OPTIONS_INIT \
  { sizeof(qf_attention_options), 0, 0, NULL, NULL }
QF_API void qf_attention_options_init(qf_attention_options* options, size_t size);

/* Causal softmax attention of the last tokens of a text: out = softmax(q * keys^T * scale) * values for each head. q and out: f32
 * [m, heads * head_dim], for the last m tokens that keys and values hold. keys and values: [kv_heads, tokens, head_dim], both f32,
 * f16 or bf16, any strides but 1 for the last; heads / kv_heads query heads share a KV head. Sums are f32: relative RMS against
 * f64 at most 1e-6, the same bits for any split of tokens into calls and any pages. Nothing overlaps `out`. */
QF_API qf_status qf_attention(const qf_tensor* q, const qf_tensor* keys, const qf_tensor* values,
                              qf_tensor* out, const qf_attention_options* options, qf_error* error);

/* Keys and values in pages: key_pages[h][i] is page i of KV head h, with the tokens from i * page_tokens on in rows of head_dim
 * elements, key_stride[h] elements apart. Pages of tokens that nobody sees may be NULL. */
typedef struct qf_kv_pages {
  uint32_t struct_size;
  int32_t dtype; /* QF_F32, QF_F16 or QF_BF16 */
  int64_t kv_heads, head_dim;
  int64_t tokens;      /* that are there */
  int64_t page_tokens; /* a page holds; 0: one page holds all */
  const void *const *const *key_pages, *const *const *value_pages;
  const int64_t *key_stride, *value_stride;
} qf_kv_pages;
#define QF_KV_PAGES_INIT \
  { sizeof(qf_kv_pages), QF_F32, 0, 0, 0, 0, NULL, NULL, NULL, NULL }
QF_API void qf_kv_pages_init(qf_kv_pages* pages, size_t size);
QF_API qf_status qf_attention_paged(const qf_tensor* q, const qf_kv_pages* kv, qf_tensor* out,
                                    const qf_attention_options* options, qf_error* error);

/* On each row of matrices of f32, on the calling thread: out = x / sqrt(mean(x^2) + eps) * weight [n]; out may be x. */
QF_API qf_status qf_rms_norm(const qf_tensor* x, const float* weight, double eps, qf_tensor* out,
                             qf_error* error);
/* Rotary embedding in place, of every head_dim columns of x, by the angles of the row: pair i is columns i and pairs + i of a head
 * (as Hugging Face stores it), cosine and sine are [m, pairs], 2 * pairs <= head_dim. */
QF_API qf_status qf_rope(qf_tensor* x, int64_t head_dim, const qf_tensor* cosine, const qf_tensor* sine,
                         qf_error* error);
QF_API qf_status qf_softmax(qf_tensor* x, qf_error* error); /* in place */
/* gate = silu(gate) * up; to += from. */
QF_API qf_status qf_silu_mul(qf_tensor* gate, const qf_tensor* up, qf_error* error);
QF_API qf_status qf_add(qf_tensor* to, const qf_tensor* from, qf_error* error);
/* to = from, rounded to nearest, ties to even, beyond the range infinity: between QF_F32 and QF_F16 or QF_BF16. */
QF_API qf_status qf_cast(const qf_tensor* from, qf_tensor* to, qf_error* error);

/* ---- checkpoints ---- */

typedef struct qf_checkpoint qf_checkpoint;

typedef struct qf_tensor_info {
  uint32_t struct_size;
  int32_t rank;
  const char* name; /* as stored; name_size bytes, which may hold a NUL */
  size_t name_size;
  const char* type;     /* as the file spells it: "BF16", "Q4_K" */
  const int64_t* shape; /* [rank] */
  uint64_t bytes;       /* stored size */
  uint64_t elements;
} qf_tensor_info;

/* A .safetensors file, a Hugging Face folder or a .gguf file, told apart by content. Files are mapped, not loaded. */
QF_API qf_status qf_checkpoint_open(const char* path, qf_checkpoint** out, qf_error* error);
QF_API void qf_checkpoint_destroy(qf_checkpoint* checkpoint);
QF_API const char* qf_checkpoint_format(const qf_checkpoint* checkpoint); /* "gguf", ...; "" of NULL */
QF_API int64_t qf_checkpoint_count(const qf_checkpoint* checkpoint);      /* tensors; 0 of NULL */
/* In file order; set out->struct_size first. */
QF_API qf_status qf_checkpoint_get_info(const qf_checkpoint* checkpoint, int64_t index, qf_tensor_info* out,
                                        qf_error* error);
QF_API qf_status qf_checkpoint_find(const qf_checkpoint* checkpoint, const char* name, int64_t* index,
                                    qf_error* error);
QF_API qf_status qf_checkpoint_bytes(const qf_checkpoint* checkpoint, int64_t index, const void** data,
                                     size_t* size, qf_error* error);
/* Decodes elements [first, first + count) to float; of block types whole blocks, or to the end of a row. */
QF_API qf_status qf_checkpoint_read_f32(const qf_checkpoint* checkpoint, int64_t index, uint64_t first,
                                        float* out, size_t count, qf_error* error);

/* One matrix as a .safetensors file: "<module>.weight_packed" and its companions, the way of compressed-tensors. Codes with
 * float zeros are QF_ERR_UNSUPPORTED. */
QF_API qf_status qf_matrix_save(const qf_matrix* matrix, const char* path, const char* module,
                                qf_error* error);
/* A matrix of a checkpoint in that form. `scheme` says what the tensors don't: bits, group and zeros (the type of scales is read);
 * NULL: the checkpoint is a folder whose config.json says it. */
QF_API qf_status qf_matrix_load(const qf_checkpoint* checkpoint, const char* module, const qf_scheme* scheme,
                                qf_matrix** out, qf_error* error);

/* ---- quantizing a checkpoint -------------------------------------------------------------------------------------- */

typedef struct qf_convert_options {
  uint32_t struct_size;
  int32_t overwrite;  /* 1: an output folder that exists is replaced, in one step, at the end */
  const char* recipe; /* text of a recipe file (JSON); NULL: the decoder's linears by `method` and `scheme` */
  const char* method; /* "rtn"; used without a recipe */
  const qf_scheme* scheme;
  const qf_parallel* parallel; /* doesn't change the result */
  qf_progress progress;
  void* progress_user;
} qf_convert_options;
#define QF_CONVERT_OPTIONS_INIT \
  { sizeof(qf_convert_options), 0, NULL, "rtn", NULL, NULL, NULL, NULL }
QF_API void qf_convert_options_init(qf_convert_options* options, size_t size);

/* A Hugging Face folder with float weights to a folder in compressed-tensors "pack-quantized". What is interrupted stays in
 * "<output>.partial", and the next call goes on from there. */
QF_API qf_status qf_quantize_checkpoint(const char* input, const char* output,
                                        const qf_convert_options* options, qf_error* error);

/* ---- tokenizers -------------------------------------------------------------------------------------------------- */

typedef struct qf_tokenizer qf_tokenizer; /* immutable; may be shared between threads */

enum {
  QF_ENCODE_SPECIAL = 1, /* add what the tokenizer adds around a text (BOS, EOS) */
  QF_ENCODE_PLAIN = 2    /* special tokens written in the text are plain text: for text that isn't trusted */
};

/* With the chat template that lies beside it, of a Hugging Face folder or a .gguf file. */
QF_API qf_status qf_tokenizer_load(const char* model_path, qf_tokenizer** out, qf_error* error);
/* From the contents of a tokenizer.json. */
QF_API qf_status qf_tokenizer_from_json(const char* json, size_t size, qf_tokenizer** out, qf_error* error);
QF_API void qf_tokenizer_destroy(qf_tokenizer* tokenizer);
QF_API int64_t qf_tokenizer_size(const qf_tokenizer* tokenizer); /* ids are below it; 0 of NULL */
QF_API qf_status qf_tokenizer_id(const qf_tokenizer* tokenizer, const char* token, int32_t* id,
                                 qf_error* error);
/* `text` may hold any `text_size` bytes. At most text_size + 16 ids come out. */
QF_API qf_status qf_tokenizer_encode(const qf_tokenizer* tokenizer, const char* text, size_t text_size,
                                     int32_t flags, int32_t* out, size_t capacity, size_t* count,
                                     qf_error* error);
QF_API qf_status qf_tokenizer_decode(const qf_tokenizer* tokenizer, const int32_t* ids, size_t count,
                                     int32_t skip_special, char* out, size_t capacity, size_t* size,
                                     qf_error* error);

typedef struct qf_chat_message {
  const char* role; /* "system", "user", "assistant" */
  const char* content;
} qf_chat_message;
/* The prompt up to where the assistant begins to speak. The template's program is never run: the known ones are recognised, others
 * are QF_ERR_UNSUPPORTED. Encoded without flags it becomes ids, and what messages say can write special tokens then. */
QF_API qf_status qf_tokenizer_render_chat(const qf_tokenizer* tokenizer, const qf_chat_message* messages,
                                          size_t count, char* out, size_t capacity, size_t* size,
                                          qf_error* error);
/* The same prompt as ids. Special tokens come from the template alone; written in a message they stay text. */
QF_API qf_status qf_tokenizer_encode_chat(const qf_tokenizer* tokenizer, const qf_chat_message* messages,
                                          size_t count, int32_t* out, size_t capacity, size_t* ids_count,
                                          qf_error* error);

/* ---- models ------------------------------------------------------------------------------------------------------ */

typedef struct qf_model qf_model;       /* one forward or generate at a time */
typedef struct qf_sequence qf_sequence; /* keys and values of one text; belongs to one model */

enum { QF_COMPUTE_F32 = 0, QF_COMPUTE_PACKED = 1 }; /* weights expanded to float; low-bit ones stay packed */

typedef struct qf_model_options {
  uint32_t struct_size;
  int32_t compute;
  int32_t accuracy; /* QF_EXACT, QF_FAST, QF_INT16 */
  uint32_t reserved;
  const qf_parallel* parallel; /* its `user` has to outlive the model */
  qf_progress progress;
  void* progress_user;
} qf_model_options;
#define QF_MODEL_OPTIONS_INIT \
  { sizeof(qf_model_options), QF_COMPUTE_PACKED, QF_EXACT, 0, NULL, NULL, NULL }
QF_API void qf_model_options_init(qf_model_options* options, size_t size);

typedef struct qf_model_info {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t layers, hidden, heads, kv_heads, head_dim, vocab, context;
  uint64_t weight_bytes;
} qf_model_info;

/* A decoder language model: a Hugging Face folder or a .gguf file. */
QF_API qf_status qf_model_load(const char* path, const qf_model_options* options, qf_model** out,
                               qf_error* error);
QF_API void qf_model_destroy(qf_model* model);
QF_API qf_status qf_model_get_info(const qf_model* model, qf_model_info* out, qf_error* error);

/* Room for `capacity` tokens. Destroy it before its model. */
QF_API qf_status qf_sequence_create(const qf_model* model, int64_t capacity, qf_sequence** out,
                                    qf_error* error);
QF_API void qf_sequence_destroy(qf_sequence* sequence);
QF_API int64_t qf_sequence_length(const qf_sequence* sequence); /* tokens held; 0 of NULL */
QF_API qf_status qf_sequence_truncate(qf_sequence* sequence, int64_t length, qf_error* error);

/* Appends tokens to the sequence and writes the logits of the last logits->shape[0] of them: f32 [wanted, vocab]; NULL: none. */
QF_API qf_status qf_model_forward(qf_model* model, qf_sequence* sequence, const int32_t* tokens, size_t count,
                                  qf_tensor* logits, qf_error* error);

/* Called for every token with the text that became certain with it: `size` bytes of whole UTF-8 characters, no NUL at the end,
 * maybe none. id -1: text left at the end. Return 0 to go on, else QF_ERR_CANCELLED. Exceptions don't belong in callbacks. */
typedef int32_t (*qf_on_token)(int32_t id, const char* text, size_t size, void* user);

typedef struct qf_generate_options {
  uint32_t struct_size;
  int32_t top_k; /* only the k most likely tokens; 0: all */
  int64_t max_tokens;
  double temperature; /* 0: always the most likely token */
  double top_p;       /* only the likeliest that reach this share together */
  uint64_t seed;
  qf_on_token on_token;
  void* user;
} qf_generate_options;
#define QF_GENERATE_OPTIONS_INIT \
  { sizeof(qf_generate_options), 0, 256, 0.0, 1.0, 0, NULL, NULL }
QF_API void qf_generate_options_init(qf_generate_options* options, size_t size);

/* Runs the prompt behind what the sequence holds and generates until an end token, max_tokens or a full sequence or context.
 * *made (may be NULL): how many tokens. */
QF_API qf_status qf_generate(qf_model* model, const qf_tokenizer* tokenizer, qf_sequence* sequence,
                             const int32_t* prompt, size_t count, const qf_generate_options* options,
                             int64_t* made, qf_error* error);

#ifdef __cplusplus
}
#endif
#endif /* QF_H */
