/* Text from a model: c_generate MODEL PROMPT [TOKENS]. MODEL is a Hugging Face folder or a .gguf file. C99; link libqf. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qf.h"

static int32_t print(int32_t id, const char* text, size_t size, void* user) {
  (void)id, (void)user;
  fwrite(text, 1, size, stdout);
  return fflush(stdout);
}

int main(int argc, char** argv) {
  qf_error error = QF_ERROR_INIT;
  qf_generate_options options = QF_GENERATE_OPTIONS_INIT;
  qf_model_options load = QF_MODEL_OPTIONS_INIT;
  qf_parallel parallel = QF_PARALLEL_INIT;
  qf_pool* pool = NULL;
  qf_tokenizer* tokenizer = NULL;
  qf_model* model = NULL;
  qf_sequence* sequence = NULL;
  qf_chat_message message;
  char* prompt = NULL;
  int32_t* ids = NULL;
  size_t size = 0, count = 0;
  int64_t made = 0;
  int32_t flags = 0;
  qf_status status;

  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL PROMPT [TOKENS]\n", argv[0]);
    return 2;
  }
  options.max_tokens = argc > 3 ? atoi(argv[3]) : 64;
  options.on_token = print;
  message.role = "user";
  message.content = argv[2];

  if ((status = qf_pool_create(0, &pool, &error)) || (status = qf_pool_parallel(pool, &parallel, &error)) ||
      (status = qf_tokenizer_load(argv[1], &tokenizer, &error)))
    goto done;
  load.parallel = &parallel;
  if ((status = qf_model_load(argv[1], &load, &model, &error))) goto done;

  /* With the model's chat template if it has a known one, else the prompt as it stands. */
  if (qf_tokenizer_render_chat(tokenizer, &message, 1, NULL, 0, &size, NULL) == QF_OK) {
    prompt = (char*)malloc(size);
    if ((status = qf_tokenizer_render_chat(tokenizer, &message, 1, prompt, size, &size, &error))) goto done;
  } else {
    flags = QF_ENCODE_SPECIAL;
  }
  {
    const char* text = prompt ? prompt : argv[2];
    if ((status = qf_tokenizer_encode(tokenizer, text, strlen(text), flags, NULL, 0, &count, &error)))
      goto done;
    ids = (int32_t*)malloc((count + 1) * sizeof *ids);
    if ((status = qf_tokenizer_encode(tokenizer, text, strlen(text), flags, ids, count, &count, &error)))
      goto done;
  }
  if ((status = qf_sequence_create(model, (int64_t)count + options.max_tokens, &sequence, &error))) goto done;
  status = qf_generate(model, tokenizer, sequence, ids, count, &options, &made, &error);
  printf("\n");

done:
  if (status) fprintf(stderr, "%s: %s\n", qf_status_name(status), error.message);
  qf_sequence_destroy(sequence);
  qf_model_destroy(model);
  qf_tokenizer_destroy(tokenizer);
  qf_pool_destroy(pool);
  free(prompt);
  free(ids);
  return status != QF_OK;
}
