// Needs: link qf. Chat templates of the supported models, rendered by code of our own. The Jinja program in a
// model's metadata is never evaluated (it is untrusted code: CVE-2024-34359): it is recognised, or refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "qf/core/result.hpp"

namespace qf::text {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// llama3_1 serves 3.1 to 3.3: a system message with dates comes first.
enum class ChatTemplate : std::uint8_t {
  none,
  chatml,
  smollm2,
  qwen2,
  qwen3,
  llama2,
  llama3,
  mistral,
  phi3,
  qwen2_5,
  llama3_1
};

std::string_view chat_template_name(ChatTemplate kind);
// Recognises the Jinja source of tokenizer_config.json or GGUF's tokenizer.chat_template by its characteristic
// pieces. Errors: not one of ours.
Result<ChatTemplate> recognise_chat_template(std::string_view jinja);
// The prompt, special tokens written out as text, up to where the assistant begins to speak. BOS is part of it
// where the template says so: encode it with parse_special and without add_special. What must not be able to
// write special tokens has to be checked before, since contents stand in the prompt as they are. Dates that a
// template would take from the clock are its own fixed default. Errors: `none`, no messages, a role the template
// doesn't know or not where it stands.
Result<std::string> render_chat(ChatTemplate kind, std::span<const ChatMessage> messages);

}  // namespace qf::text
