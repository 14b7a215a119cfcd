/* The C face from C99: tokenizers, models, sequences, generating, and quantizing a checkpoint. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "capi_check.h"

static qf_error error;

static void* read_all(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  char* bytes = (char*)malloc(1 << 20);
  *size = file ? fread(bytes, 1, 1 << 20, file) : 0;
  if (file) fclose(file);
  return bytes;
}

static void test_tokenizer(void) {
  qf_tokenizer* tokenizer = NULL;
  size_t size = 0, count = 99;
  char* json = (char*)read_all(QF_GOLDEN "/capi/tokenizer.json", &size);
  int32_t ids[8] = {0}, id = -1;
  char text[32];
  qf_chat_message message = {"user", "hi"};
  OK(qf_tokenizer_from_json(json, size, &tokenizer, &error));
  CHECK(qf_tokenizer_size(tokenizer) == 34);
  OK(qf_tokenizer_encode(tokenizer, "he was", 6, 0, NULL, 0, &count, &error));
  CHECK(count == 5);
  OK(qf_tokenizer_encode(tokenizer, "he was", 6, 0, ids, 8, &count, &error));
  CHECK(count == 5 && ids[0] == 32 && ids[1] == 29 && ids[2] == 3 + 'w' - 'a' && ids[4] == 3 + 's' - 'a');
  REFUSED(qf_tokenizer_encode(tokenizer, "he was", 6, 0, ids, 4, &count, &error), QF_ERR_INVALID_ARGUMENT,
          "capacity is 4, 5 needed");
  REFUSED(qf_tokenizer_encode(tokenizer, "he", 2, 64, ids, 4, &count, &error), QF_ERR_INVALID_ARGUMENT,
          "flags are 64");
  REFUSED(qf_tokenizer_encode(tokenizer, NULL, 2, 0, ids, 4, &count, &error), QF_ERR_INVALID_ARGUMENT,
          "text is NULL");
  OK(qf_tokenizer_encode(tokenizer, "</s>", 4, 0, ids, 8, &count, &error));
  CHECK(count == 1 && ids[0] == 2);
  OK(qf_tokenizer_encode(tokenizer, "a", 1, QF_ENCODE_PLAIN, ids, 8, &count, &error));
  CHECK(count == 1 && ids[0] == 3);

  ids[0] = 33, ids[1] = 7, ids[2] = 2;
  OK(qf_tokenizer_decode(tokenizer, ids, 3, 0, text, sizeof text, &size, &error));
  CHECK(size == 8 && strcmp(text, "the</s>") == 0);
  OK(qf_tokenizer_decode(tokenizer, ids, 3, 1, text, sizeof text, &size, &error));
  CHECK(size == 4 && strcmp(text, "the") == 0);
  REFUSED(qf_tokenizer_decode(tokenizer, ids, 3, 1, text, 3, &size, &error), QF_ERR_INVALID_ARGUMENT,
          "4 needed");
  ids[0] = 34;
  REFUSED(qf_tokenizer_decode(tokenizer, ids, 1, 1, text, sizeof text, &size, &error),
          QF_ERR_INVALID_ARGUMENT, "34");
  OK(qf_tokenizer_id(tokenizer, "</s>", &id, &error));
  CHECK(id == 2);
  REFUSED(qf_tokenizer_id(tokenizer, "zz", &id, &error), QF_ERR_NOT_FOUND, "no token 'zz'");
  REFUSED(qf_tokenizer_render_chat(tokenizer, &message, 1, text, sizeof text, &size, &error),
          QF_ERR_NOT_FOUND, "no chat template");
  REFUSED(qf_tokenizer_encode_chat(tokenizer, &message, 1, ids, sizeof ids / sizeof ids[0], &count, &error),
          QF_ERR_NOT_FOUND, "no chat template");
  qf_tokenizer_destroy(tokenizer);
  REFUSED(qf_tokenizer_from_json("{", 1, &tokenizer, &error), QF_ERR_BAD_FORMAT, "json");
  REFUSED(qf_tokenizer_load("no/such/folder", &tokenizer, &error), QF_ERR_NOT_FOUND, "no/such/folder");
  CHECK(tokenizer == NULL && qf_tokenizer_size(NULL) == 0);
  qf_tokenizer_destroy(NULL);
  free(json);
}

/* Logits against those that another implementation computed. */
static void test_forward(void) {
  qf_model *model = NULL, *other = NULL;
  qf_sequence* sequence = NULL;
  qf_checkpoint* expected = NULL;
  qf_model_info info = {0};
  qf_model_options options = QF_MODEL_OPTIONS_INIT;
  qf_tensor view;
  float ids[40], want[40 * 34], got[40 * 34], last[34];
  int32_t tokens[40];
  int64_t index = -1;
  double largest = 0;
  int i;

  OK(qf_checkpoint_open(QF_GOLDEN "/model/smollm2/expected.safetensors", &expected, &error));
  OK(qf_checkpoint_find(expected, "ids", &index, &error));
  OK(qf_checkpoint_read_f32(expected, index, 0, ids, 40, &error));
  OK(qf_checkpoint_find(expected, "logits", &index, &error));
  OK(qf_checkpoint_read_f32(expected, index, 0, want, 40 * 34, &error));
  qf_checkpoint_destroy(expected);
  for (i = 0; i < 40; ++i) tokens[i] = (int32_t)ids[i];

  OK(qf_model_load(QF_GOLDEN "/model/smollm2", NULL, &model, &error));
  info.struct_size = sizeof info;
  OK(qf_model_get_info(model, &info, &error));
  CHECK(info.layers == 2 && info.hidden == 36 && info.heads == 3 && info.kv_heads == 1 &&
        info.head_dim == 12);
  CHECK(info.vocab == 34 && info.context == 128 && info.weight_bytes > 0);
  OK(qf_sequence_create(model, 40, &sequence, &error));
  qf_tensor_matrix(&view, got, QF_F32, 40, 34);
  OK(qf_model_forward(model, sequence, tokens, 40, &view, &error));
  CHECK(qf_sequence_length(sequence) == 40);
  for (i = 0; i < 40 * 34; ++i) largest = fmax(largest, fabs((double)got[i] - want[i]));
  CHECK(largest < 1e-4);
  REFUSED(qf_model_forward(model, sequence, tokens, 1, NULL, &error), QF_ERR_INVALID_ARGUMENT, "");

  /* Back to 10 tokens and on one by one: the same logits. */
  OK(qf_sequence_truncate(sequence, 10, &error));
  CHECK(qf_sequence_length(sequence) == 10);
  qf_tensor_matrix(&view, last, QF_F32, 1, 34);
  for (i = 10; i < 40; ++i) OK(qf_model_forward(model, sequence, tokens + i, 1, &view, &error));
  for (i = 0; i < 34; ++i) CHECK(fabsf(last[i] - want[39 * 34 + i]) < 1e-4f);

  OK(qf_sequence_truncate(sequence, 0, &error));
  tokens[0] = 34;
  REFUSED(qf_model_forward(model, sequence, tokens, 1, NULL, &error), QF_ERR_INVALID_ARGUMENT, "34");
  CHECK(qf_sequence_length(sequence) == 0);
  tokens[0] = 0;
  qf_tensor_matrix(&view, got, QF_F32, 2, 34);
  REFUSED(qf_model_forward(model, sequence, tokens, 1, &view, &error), QF_ERR_INVALID_ARGUMENT,
          "logits have shape [2, 34]");
  REFUSED(qf_model_forward(model, NULL, tokens, 1, NULL, &error), QF_ERR_INVALID_ARGUMENT,
          "sequence is NULL");
  OK(qf_model_load(QF_GOLDEN "/model/llama2", NULL, &other, &error));
  REFUSED(qf_model_forward(other, sequence, tokens, 1, NULL, &error), QF_ERR_INVALID_ARGUMENT,
          "another model");
  qf_model_destroy(other);
  qf_sequence_destroy(sequence);
  REFUSED(qf_sequence_create(model, 0, &sequence, &error), QF_ERR_INVALID_ARGUMENT, "capacity is 0");
  CHECK(sequence == NULL);
  qf_model_destroy(model);

  options.compute = 5;
  REFUSED(qf_model_load("x", &options, &model, &error), QF_ERR_INVALID_ARGUMENT, "options.compute is 5");
  REFUSED(qf_model_load("no/such/model", NULL, &model, &error), QF_ERR_NOT_FOUND, "no/such/model");
  REFUSED(qf_model_load(NULL, NULL, &model, &error), QF_ERR_INVALID_ARGUMENT, "path is NULL");
  CHECK(model == NULL);
  qf_model_destroy(NULL);
  qf_sequence_destroy(NULL);
}

typedef struct {
  int tokens, most;
  char text[256];
} Heard;

static int32_t listen(int32_t id, const char* text, size_t size, void* user) {
  Heard* heard = (Heard*)user;
  if (id >= 0) ++heard->tokens;
  strncat(heard->text, text, size < 8 ? size : 8);
  return heard->tokens >= heard->most;
}

static void test_generate(void) {
  qf_model* model = NULL;
  qf_sequence* sequence = NULL;
  qf_tokenizer* tokenizer = NULL;
  qf_generate_options options = QF_GENERATE_OPTIONS_INIT;
  Heard heard = {0, 100, ""}, again = {0, 100, ""};
  const int32_t prompt[3] = {1, 33, 7};
  int64_t made = 0, first = 0;
  size_t size = 0;
  char* json = (char*)read_all(QF_GOLDEN "/capi/tokenizer.json", &size);
  OK(qf_tokenizer_from_json(json, size, &tokenizer, &error));
  OK(qf_model_load(QF_GOLDEN "/model/smollm2", NULL, &model, &error));
  OK(qf_sequence_create(model, 64, &sequence, &error));
  options.max_tokens = 20, options.temperature = 1, options.seed = 7, options.on_token = listen,
  options.user = &heard;
  OK(qf_generate(model, tokenizer, sequence, prompt, 3, &options, &first, &error));
  CHECK(first == heard.tokens && first > 0 && first <= 20);
  OK(qf_sequence_truncate(sequence, 0, &error));
  options.user = &again;
  OK(qf_generate(model, tokenizer, sequence, prompt, 3, &options, &made, &error));
  CHECK(made == first && strcmp(heard.text, again.text) == 0); /* the seed decides */
  OK(qf_sequence_truncate(sequence, 0, &error));
  again.tokens = 0, again.most = 1;
  REFUSED(qf_generate(model, tokenizer, sequence, prompt, 3, &options, &made, &error), QF_ERR_CANCELLED,
          "cancelled");
  OK(qf_sequence_truncate(sequence, 0, &error));
  REFUSED(qf_generate(model, tokenizer, sequence, prompt, 0, &options, &made, &error),
          QF_ERR_INVALID_ARGUMENT, "prompt");
  options.temperature = -1;
  REFUSED(qf_generate(model, tokenizer, sequence, prompt, 3, &options, &made, &error),
          QF_ERR_INVALID_ARGUMENT, "temperature");
  REFUSED(qf_generate(model, NULL, sequence, prompt, 3, NULL, &made, &error), QF_ERR_INVALID_ARGUMENT,
          "tokenizer is NULL");
  qf_sequence_destroy(sequence);
  qf_model_destroy(model);
  qf_tokenizer_destroy(tokenizer);
  free(json);
}

static int32_t count_events(const qf_progress_event* event, void* user) {
  CHECK(strcmp(event->stage, "quantize") == 0 && event->done <= event->total && event->item && event->unit);
  return --*(int*)user == 0;
}

static void remove_folder(const char* path) {
  DIR* folder = opendir(path);
  struct dirent* entry;
  CHECK(folder);
  while ((entry = readdir(folder)))
    if (entry->d_name[0] != '.') unlinkat(dirfd(folder), entry->d_name, 0);
  closedir(folder);
  CHECK(rmdir(path) == 0);
}

static void test_convert(void) {
  qf_convert_options options = QF_CONVERT_OPTIONS_INIT;
  qf_scheme scheme = QF_SCHEME_INIT;
  qf_checkpoint* checkpoint = NULL;
  qf_matrix* matrix = NULL;
  qf_matrix_info info = {0};
  qf_model* model = NULL;
  const char* out = "capi_model_test.quantized";
  const char* module = "model.layers.0.mlp.down_proj";
  int left = 1;

  scheme.bits = 4, scheme.group = 16;
  options.scheme = &scheme, options.overwrite = 1;
  options.progress = count_events, options.progress_user = &left;
  REFUSED(qf_quantize_checkpoint(QF_GOLDEN "/model/smollm2", out, &options, &error), QF_ERR_CANCELLED,
          "cancelled");
  left = -1;
  OK(qf_quantize_checkpoint(QF_GOLDEN "/model/smollm2", out, &options, &error));
  CHECK(left < -1);
  OK(qf_checkpoint_open(out, &checkpoint, &error));
  OK(qf_matrix_load(checkpoint, module, NULL, &matrix, &error));
  info.struct_size = sizeof info;
  OK(qf_matrix_get_info(matrix, &info, &error));
  CHECK(info.bits == 4 && info.group == 16 && info.n == 36 && info.k == 20);
  qf_matrix_destroy(matrix);
  qf_checkpoint_destroy(checkpoint);
  OK(qf_model_load(out, NULL, &model, &error));
  qf_model_destroy(model);

  options.method = "guess";
  REFUSED(qf_quantize_checkpoint(QF_GOLDEN "/model/smollm2", out, &options, &error), QF_ERR_INVALID_ARGUMENT,
          "guess");
  options.recipe = "{";
  REFUSED(qf_quantize_checkpoint(QF_GOLDEN "/model/smollm2", out, &options, &error), QF_ERR_INVALID_ARGUMENT,
          "options.recipe");
  REFUSED(qf_quantize_checkpoint("no/such/model", out, NULL, &error), QF_ERR_NOT_FOUND, "no/such/model");
  REFUSED(qf_quantize_checkpoint(NULL, out, NULL, &error), QF_ERR_INVALID_ARGUMENT, "input is NULL");
  remove_folder(out);
}

int main(void) {
  test_convert();
  test_tokenizer();
  test_forward();
  test_generate();
  return verdict("capi_model_test");
}
