// Tokenizers and chat templates.
#include <vector>

#include "capi/bridge.hpp"

using namespace qf;
using namespace qf::capi;

namespace {

Result<std::vector<text::ChatMessage>> conversation(const qf_tokenizer* tokenizer,
                                                    const qf_chat_message* messages, size_t count) {
  QF_TRY(need(tokenizer, "tokenizer"));
  QF_TRY(tokenizer->value.chat_status);
  if (count) QF_TRY(need(messages, "messages"));
  std::vector<text::ChatMessage> list;
  for (size_t i = 0; i < count; ++i) {
    QF_TRY(need(messages[i].role, "messages[" + num(i) + "].role"));
    QF_TRY(need(messages[i].content, "messages[" + num(i) + "].content"));
    list.push_back({messages[i].role, messages[i].content});
  }
  return list;
}

}  // namespace

qf_status qf_tokenizer_load(const char* model_path, qf_tokenizer** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY(need(model_path, "model_path"));
    QF_TRY_ASSIGN(auto side, model::load_text_side(model_path));
    QF_TRY(side.need_tokenizer());
    return give(std::move(side), out);
  });
}
qf_status qf_tokenizer_from_json(const char* json, size_t size, qf_tokenizer** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY(need(json, "json"));
    model::TextSide side;
    QF_TRY_ASSIGN(side.tokenizer, text::Tokenizer::from_json({json, size}, "json"));
    side.chat_status = Status(Errc::not_found, "a tokenizer.json alone brings no chat template");
    return give(std::move(side), out);
  });
}
void qf_tokenizer_destroy(qf_tokenizer* tokenizer) {
  delete tokenizer;
}
int64_t qf_tokenizer_size(const qf_tokenizer* tokenizer) {
  return tokenizer ? tokenizer->value.tokenizer->size() : 0;
}
qf_status qf_tokenizer_id(const qf_tokenizer* tokenizer, const char* token, int32_t* id, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(tokenizer, "tokenizer"));
    QF_TRY(need(token, "token"));
    QF_TRY(need(id, "id"));
    const auto found = tokenizer->value.tokenizer->id(token);
    if (!found) return Status(Errc::not_found, cat({"no token ", printable(token)}));
    *id = *found;
    return {};
  });
}
qf_status qf_tokenizer_encode(const qf_tokenizer* tokenizer, const char* text, size_t text_size,
                              int32_t flags, int32_t* out, size_t capacity, size_t* count, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(tokenizer, "tokenizer"));
    if (text_size) QF_TRY(need(text, "text"));
    constexpr int32_t kKnown = QF_ENCODE_SPECIAL | QF_ENCODE_PLAIN;
    if (flags & ~kKnown) return bad(cat({"flags are ", num(flags), ", expected 0 to ", num(kKnown)}));
    text::EncodeOptions options;
    options.add_special = (flags & QF_ENCODE_SPECIAL) != 0;
    options.parse_special = (flags & QF_ENCODE_PLAIN) == 0;
    QF_TRY_ASSIGN(const std::vector<int32_t> ids,
                  tokenizer->value.tokenizer->encode({text, text_size}, options));
    return write_array(ids.data(), ids.size(), out, capacity, count);
  });
}
qf_status qf_tokenizer_decode(const qf_tokenizer* tokenizer, const int32_t* ids, size_t count,
                              int32_t skip_special, char* out, size_t capacity, size_t* size,
                              qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(tokenizer, "tokenizer"));
    if (count) QF_TRY(need(ids, "ids"));
    QF_TRY_ASSIGN(const std::string text,
                  tokenizer->value.tokenizer->decode({ids, count}, skip_special != 0));
    return write_text(text, out, capacity, size);
  });
}
qf_status qf_tokenizer_render_chat(const qf_tokenizer* tokenizer, const qf_chat_message* messages,
                                   size_t count, char* out, size_t capacity, size_t* size, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY_ASSIGN(const auto list, conversation(tokenizer, messages, count));
    QF_TRY_ASSIGN(const std::string prompt, text::render_chat(tokenizer->value.chat, list));
    return write_text(prompt, out, capacity, size);
  });
}
qf_status qf_tokenizer_encode_chat(const qf_tokenizer* tokenizer, const qf_chat_message* messages,
                                   size_t count, int32_t* out, size_t capacity, size_t* ids_count,
                                   qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY_ASSIGN(const auto list, conversation(tokenizer, messages, count));
    QF_TRY_ASSIGN(const std::vector<int32_t> ids,
                  text::encode_chat(*tokenizer->value.tokenizer, tokenizer->value.chat, list));
    return write_array(ids.data(), ids.size(), out, capacity, ids_count);
  });
}
