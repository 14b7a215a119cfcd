// Decoders: load, forward, generate.
#include "capi/bridge.hpp"
#include "qf/model/decoder.hpp"
#include "qf/model/generate.hpp"

struct qf_model {
  qf::capi::HostParallel parallel;  // the decoder keeps a pointer to it
  std::unique_ptr<qf::model::Decoder> value;
};
struct qf_sequence {
  std::unique_ptr<qf::model::KvStore> value;
  const qf_model* model;
};

using namespace qf;
using namespace qf::capi;

static_assert(QF_COMPUTE_F32 == static_cast<int>(model::Compute::f32) &&
              QF_COMPUTE_PACKED == static_cast<int>(model::Compute::packed));

namespace {

Status check_pair(const qf_model* model, const qf_sequence* sequence) {
  QF_TRY(need(model, "model"));
  QF_TRY(need(sequence, "sequence"));
  return sequence->model == model ? Status() : bad("the sequence belongs to another model");
}

}  // namespace

void qf_model_options_init(qf_model_options* options, size_t size) {
  init_struct(qf_model_options QF_MODEL_OPTIONS_INIT, options, size);
}
qf_status qf_model_load(const char* path, const qf_model_options* options, qf_model** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY(need(path, "path"));
    qf_model_options c = QF_MODEL_OPTIONS_INIT;
    QF_TRY(read_struct(options, "options", &c));
    if (c.compute < QF_COMPUTE_F32 || c.compute > QF_COMPUTE_PACKED)
      return bad(cat({"options.compute is ", num(c.compute), ", expected 0 or 1"}));
    if (c.accuracy < QF_EXACT || c.accuracy > QF_INT16)
      return bad(cat({"options.accuracy is ", num(c.accuracy), ", expected 0 to 2"}));
    auto handle = std::make_unique<qf_model>();
    QF_TRY(handle->parallel.read(c.parallel));
    HostProgress progress(c.progress, c.progress_user);
    model::LoadOptions load;
    load.compute = static_cast<model::Compute>(c.compute);
    load.accuracy = static_cast<kernel::Accuracy>(c.accuracy);
    load.parallel = handle->parallel.get();
    load.progress = progress.get();
    QF_TRY_ASSIGN(handle->value, model::Decoder::load(path, load));
    *out = handle.release();
    return {};
  });
}
void qf_model_destroy(qf_model* model) {
  delete model;
}
qf_status qf_model_get_info(const qf_model* model, qf_model_info* out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(model, "model"));
    const model::ModelConfig& c = model->value->config();
    return write_struct(qf_model_info{0, 0, c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim, c.vocab,
                                      c.context, model->value->weight_bytes()},
                        out, "out");
  });
}

qf_status qf_sequence_create(const qf_model* model, int64_t capacity, qf_sequence** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY(need(model, "model"));
    if (capacity < 1) return bad(cat({"capacity is ", num(capacity), ", expected 1 or more"}));
    QF_TRY_ASSIGN(auto kv, model->value->make_kv(capacity));
    *out = new qf_sequence{std::move(kv), model};
    return {};
  });
}
void qf_sequence_destroy(qf_sequence* sequence) {
  delete sequence;
}
int64_t qf_sequence_length(const qf_sequence* sequence) {
  return sequence ? sequence->value->length() : 0;
}
qf_status qf_sequence_truncate(qf_sequence* sequence, int64_t length, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(sequence, "sequence"));
    return sequence->value->truncate(length);
  });
}

qf_status qf_model_forward(qf_model* model, qf_sequence* sequence, const int32_t* tokens, size_t count,
                           qf_tensor* logits, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(check_pair(model, sequence));
    if (count) QF_TRY(need(tokens, "tokens"));
    const int64_t vocab = model->value->config().vocab;
    MatrixView<float> view(nullptr, {0, vocab});
    if (logits) {
      QF_TRY_ASSIGN(view, matrix_view<float>(logits, "logits"));
    }
    if (view.shape[1] != vocab || view.shape[0] > static_cast<int64_t>(count))
      return bad(cat({"logits have shape [", num(view.shape[0]), ", ", num(view.shape[1]),
                      "], expected at most [", num(count), ", ", num(vocab), "]"}));
    return model->value->forward({tokens, count}, *sequence->value, view);
  });
}

void qf_generate_options_init(qf_generate_options* options, size_t size) {
  init_struct(qf_generate_options QF_GENERATE_OPTIONS_INIT, options, size);
}
qf_status qf_generate(qf_model* model, const qf_tokenizer* tokenizer, qf_sequence* sequence,
                      const int32_t* prompt, size_t count, const qf_generate_options* options, int64_t* made,
                      qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(check_pair(model, sequence));
    QF_TRY(need(tokenizer, "tokenizer"));
    if (count) QF_TRY(need(prompt, "prompt"));
    qf_generate_options c = QF_GENERATE_OPTIONS_INIT;
    QF_TRY(read_struct(options, "options", &c));
    model::GenerateOptions o;
    o.sampler = {c.temperature, c.top_k, c.top_p, c.seed};
    o.max_tokens = c.max_tokens;
    o.stop_ids = tokenizer->value.eos;
    const auto& ends = model->value->config().eos;
    o.stop_ids.insert(o.stop_ids.end(), ends.begin(), ends.end());
    text::StreamDecoder stream(*tokenizer->value.tokenizer);
    Status stream_status;
    auto tell = [&](std::int32_t id, const std::string& text) {
      return !c.on_token || c.on_token(id, text.c_str(), text.size(), c.user) == 0;
    };
    QF_TRY_ASSIGN(const auto result,
                  model::generate(*model->value, *sequence->value, {prompt, count}, o, [&](std::int32_t id) {
                    Result<std::string> text = stream.push(id);
                    if (!text.ok()) return stream_status = text.status(), false;
                    return tell(id, *text);
                  }));
    QF_TRY(stream_status);
    const std::string rest = stream.finish();
    if (result.reason == model::StopReason::callback || (!rest.empty() && !tell(-1, rest)))
      return Status(Errc::cancelled, "cancelled");
    if (made) *made = static_cast<int64_t>(result.ids.size());
    return {};
  });
}
