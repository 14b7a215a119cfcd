// Needs: link qf. Chat templates of the supported models, rendered by code of our own. The Jinja program in a
// model's metadata is never evaluated (it is untrusted code: CVE-2024-34359): it is recognised, or refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/result.hpp"
#include "qf/text/tokenizer.hpp"

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
// A prompt, special tokens written out as text, up to where the assistant begins to speak.
struct ChatPrompt {
  std::string text;                 // UTF-8
  std::vector<TextRange> contents;  // what messages say, in order; everything else is the template's own
};
// BOS is part of the prompt where the template says so. Dates that a template would take from the clock are its own
// fixed default. Errors: `none`, no messages, a role the template doesn't know or not where it stands.
Result<ChatPrompt> render_chat_prompt(ChatTemplate kind, std::span<const ChatMessage> messages);
// Its text alone. Encoded with parse_special, contents can write special tokens: encode_chat is what messages of
// strangers need.
Result<std::string> render_chat(ChatTemplate kind, std::span<const ChatMessage> messages);
// The prompt as ids. Special tokens come from the template alone; written in a message they stay text.
Result<std::vector<std::int32_t>> encode_chat(const Tokenizer& tokenizer, ChatTemplate kind,
                                              std::span<const ChatMessage> messages);

}  // namespace qf::text
