#include <algorithm>
#include <initializer_list>
#include <new>
#include <utility>
#include <vector>

#include "qf/text/chat_template.hpp"
#include "src/text_unicode.hpp"

namespace qf::text {
namespace {

constexpr std::string_view kNames[] = {"none",    "ChatML",  "SmolLM2", "Qwen2",   "Qwen3",    "Llama-2",
                                       "Llama-3", "Mistral", "Phi-3",   "Qwen2.5", "Llama-3.1"};

// The source without what authors write differently: white space, kinds of quotes and of member access.
std::string canonical(std::string_view jinja) {
  std::string text;
  for (std::size_t i = 0; i < jinja.size(); ++i) {
    if (jinja[i] == '\\' && i + 1 < jinja.size() && jinja[i + 1] == 'n') {
      ++i;
    } else if (jinja[i] != ' ' && jinja[i] != '\n' && jinja[i] != '\t' && jinja[i] != '\r') {
      text += jinja[i] == '"' ? '\'' : jinja[i];
    }
  }
  for (const std::string_view member : {"role", "content"}) {
    const std::string dotted = cat({"message.", member}), indexed = cat({"message['", member, "']"});
    for (std::size_t at = 0; (at = text.find(dotted, at)) != text.npos; at += indexed.size())
      text.replace(at, dotted.size(), indexed);
  }
  return text;
}

// A template is the first of these whose pieces all occur, and none of `without`.
struct Recognition {
  ChatTemplate kind;
  std::string_view with[3];
  std::string_view without[2];
};
constexpr std::string_view kChatMlTurn = "'<|im_start|>'+message['role']+''+message['content']+'<|im_end|>'";
constexpr Recognition kRecognitions[] = {
    {ChatTemplate::smollm2,
     {kChatMlTurn, "<|im_start|>systemYouareahelpfulAIassistantnamedSmolLM,trainedbyHuggingFace<|im_end|>"},
     {"tools"}},
    {ChatTemplate::qwen3, {"'<|im_start|>'+message['role']", "</think>", "last_query_index"}, {}},
    {ChatTemplate::qwen2_5,
     {kChatMlTurn, "YouareQwen,createdbyAlibabaCloud.Youareahelpfulassistant."},
     {"</think>"}},
    {ChatTemplate::qwen2,
     {kChatMlTurn, "<|im_start|>systemYouareahelpfulassistant.<|im_end|>"},
     {"</think>", "tools"}},
    {ChatTemplate::chatml, {kChatMlTurn}, {"<|im_start|>system", "</think>"}},
    {ChatTemplate::llama3_1,
     {"'<|start_header_id|>'+message['role']+'<|end_header_id|>'", "CuttingKnowledgeDate:December2023",
      "<|eot_id|>"},
     {}},
    {ChatTemplate::llama3,
     {"'<|start_header_id|>'+message['role']+'<|end_header_id|>'", "message['content']|trim+'<|eot_id|>'",
      "bos_token"},
     {"tools", "date"}},
    {ChatTemplate::llama2,
     {"bos_token+'[INST]'+content.strip()+'[/INST]'", "<<SYS>>", "''+content.strip()+''+eos_token"},
     {}},
    {ChatTemplate::mistral,
     {"'[INST]'+message['content']+'[/INST]'", "{{message['content']+eos_token}}", "bos_token"},
     {"<<SYS>>", "tools"}},
    {ChatTemplate::phi3,
     {"'<|system|>'+message['content']+'<|end|>'", "'<|user|>'+message['content']+'<|end|>'",
      "'<|assistant|>'+message['content']+'<|end|>'"},
     {}},
};

// As Python's str.strip(), which templates call.
std::string_view strip(std::string_view text) {
  std::size_t begin = text.size(), end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = detail::next_code_point(text, at);
    if (detail::is_white_space(c) || (c >= 0x1c && c <= 0x1f)) continue;
    begin = std::min(begin, start);
    end = at;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

std::string_view strip_lines(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && text.front() == '\n') text.remove_prefix(1);
  while (right && !text.empty() && text.back() == '\n') text.remove_suffix(1);
  return text;
}

using Messages = std::span<const ChatMessage>;

// A piece of a prompt: the template's own words, or what a message says.
struct Piece {
  Piece(std::string_view piece, bool is_content = false) : text(piece), content(is_content) {}
  Piece(const char* piece) : text(piece) {}
  Piece(const std::string& piece) : text(piece) {}
  std::string_view text;
  bool content = false;
};
Piece said(std::string_view content) {
  return {content, true};
}
void add(ChatPrompt& prompt, std::initializer_list<Piece> pieces) {
  for (const Piece& piece : pieces) {
    const std::size_t begin = prompt.text.size();
    prompt.text += piece.text;
    if (piece.content && !piece.text.empty()) prompt.contents.push_back({begin, prompt.text.size()});
  }
}

void chatml_turn(ChatPrompt& prompt, std::string_view role, Piece content) {
  add(prompt, {"<|im_start|>", role, "\n", content, "<|im_end|>\n"});
}

ChatPrompt chatml(Messages messages, std::string_view default_system) {
  ChatPrompt prompt;
  if (!default_system.empty() && messages[0].role != "system") chatml_turn(prompt, "system", default_system);
  for (const ChatMessage& m : messages) chatml_turn(prompt, m.role, said(m.content));
  add(prompt, {"<|im_start|>assistant\n"});
  return prompt;
}

// What was thought in earlier turns is left out; answers after the last question keep it.
ChatPrompt qwen3(Messages messages) {
  std::size_t last_question = messages.size() - 1;
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& content = messages[i].content;
    constexpr std::string_view kOpen = "<tool_response>", kClose = "</tool_response>";
    const bool response = content.rfind(kOpen, 0) == 0 && content.size() >= kClose.size() &&
                          content.compare(content.size() - kClose.size(), kClose.size(), kClose) == 0;
    if (messages[i].role != "user" || response) continue;
    last_question = i;
    break;
  }
  ChatPrompt prompt;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    std::string_view content = messages[i].content, thought;
    if (messages[i].role != "assistant") {
      chatml_turn(prompt, messages[i].role, said(content));
      continue;
    }
    constexpr std::string_view kBegin = "<think>", kEnd = "</think>";
    if (const std::size_t first = content.find(kEnd); first != content.npos) {
      thought = strip_lines(content.substr(0, first), false, true);
      if (const std::size_t begin = thought.rfind(kBegin); begin != thought.npos)
        thought.remove_prefix(begin + kBegin.size());
      thought = strip_lines(thought, true, true);
      content = strip_lines(content.substr(content.rfind(kEnd) + kEnd.size()), true, false);
    }
    if (i > last_question && (i + 1 == messages.size() || !thought.empty()))
      add(prompt, {"<|im_start|>assistant\n<think>\n", said(thought), "\n</think>\n\n",
                   said(strip_lines(content, true, false)), "<|im_end|>\n"});
    else
      chatml_turn(prompt, "assistant", said(content));
  }
  add(prompt, {"<|im_start|>assistant\n"});
  return prompt;
}

ChatPrompt llama3(Messages messages, bool dates) {
  ChatPrompt prompt;
  const auto header = [&](std::string_view role) {
    add(prompt, {"<|start_header_id|>", role, "<|end_header_id|>\n\n"});
  };
  add(prompt, {"<|begin_of_text|>"});
  if (dates) {
    const bool has_system = messages[0].role == "system";
    header("system");
    add(prompt, {"Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
                 said(has_system ? strip(messages[0].content) : std::string_view()), "<|eot_id|>"});
    if (has_system) messages = messages.subspan(1);
  }
  for (const ChatMessage& m : messages) {
    header(m.role);
    add(prompt, {said(strip(m.content)), "<|eot_id|>"});
  }
  header("assistant");
  return prompt;
}

// Questions and answers take turns, behind at most one system message.
Status check_turns(Messages messages, std::size_t first, std::string_view name) {
  for (std::size_t i = first; i < messages.size(); ++i) {
    const std::string_view expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role != expected)
      return Status(Errc::invalid_argument, cat({"messages[", num(i), "]: role ", printable(messages[i].role),
                                                 " found, ", printable(expected), " expected: in the ", name,
                                                 " template user and assistant take turns"}));
  }
  return {};
}

Result<ChatPrompt> llama2(Messages messages) {
  const std::size_t first = messages[0].role == "system";
  QF_TRY(check_turns(messages, first, "Llama-2"));
  if (first == messages.size())
    return Status(Errc::invalid_argument, "messages: the Llama-2 template needs a user's message");
  ChatPrompt prompt;
  for (std::size_t i = first; i < messages.size(); ++i) {
    std::string content = messages[i].content;
    if (i == 1 && first == 1) content = cat({"<<SYS>>\n", messages[0].content, "\n<</SYS>>\n\n", content});
    if (messages[i].role == "user")
      add(prompt, {"<s>[INST] ", said(strip(content)), " [/INST]"});
    else
      add(prompt, {" ", said(strip(content)), " </s>"});
  }
  return prompt;
}

Result<ChatPrompt> mistral(Messages messages) {
  QF_TRY(check_turns(messages, 0, "Mistral"));
  ChatPrompt prompt;
  add(prompt, {"<s>"});
  for (const ChatMessage& m : messages) {
    if (m.role == "user")
      add(prompt, {"[INST] ", said(m.content), " [/INST]"});
    else
      add(prompt, {said(m.content), "</s>"});
  }
  return prompt;
}

ChatPrompt phi3(Messages messages) {
  ChatPrompt prompt;
  for (const ChatMessage& m : messages) add(prompt, {"<|", m.role, "|>\n", said(m.content), "<|end|>\n"});
  add(prompt, {"<|assistant|>\n"});
  return prompt;
}

Result<ChatPrompt> render(ChatTemplate kind, Messages messages) {
  switch (kind) {
    case ChatTemplate::none:
      break;
    case ChatTemplate::chatml:
      return chatml(messages, "");
    case ChatTemplate::smollm2:
      return chatml(messages, "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
    case ChatTemplate::qwen2:
      return chatml(messages, "You are a helpful assistant.");
    case ChatTemplate::qwen2_5:
      return chatml(messages, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
    case ChatTemplate::qwen3:
      return qwen3(messages);
    case ChatTemplate::llama2:
      return llama2(messages);
    case ChatTemplate::llama3:
      return llama3(messages, false);
    case ChatTemplate::llama3_1:
      return llama3(messages, true);
    case ChatTemplate::mistral:
      return mistral(messages);
    case ChatTemplate::phi3:
      return phi3(messages);
  }
  return Status(Errc::invalid_argument, "no chat template is set");
}

}  // namespace

std::string_view chat_template_name(ChatTemplate kind) {
  const auto i = static_cast<std::size_t>(kind);
  return i < std::size(kNames) ? kNames[i] : "?";
}

Result<ChatTemplate> recognise_chat_template(std::string_view jinja) {
  try {
    const std::string text = canonical(jinja);
    for (const Recognition& known : kRecognitions) {
      const auto occurs = [&](std::string_view piece) {
        return !piece.empty() && text.find(piece) != text.npos;
      };
      if (std::all_of(std::begin(known.with), std::end(known.with),
                      [&](std::string_view piece) { return piece.empty() || occurs(piece); }) &&
          std::none_of(std::begin(known.without), std::end(known.without), occurs))
        return known.kind;
    }
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, "no memory to read the chat template");
  }
  return Status(Errc::unsupported, cat({"the chat template ", printable(jinja),
                                        " is none of ChatML, SmolLM2, Qwen2, Qwen2.5, Qwen3, "
                                        "Llama-2, Llama-3, Llama-3.1, Mistral, Phi-3"}));
}

Result<ChatPrompt> render_chat_prompt(ChatTemplate kind, std::span<const ChatMessage> messages) {
  if (messages.empty()) return Status(Errc::invalid_argument, "messages: at least one expected");
  try {
    std::vector<ChatMessage> valid(messages.begin(), messages.end());
    for (std::size_t i = 0; i < valid.size(); ++i) {
      if (valid[i].role != "system" && valid[i].role != "user" && valid[i].role != "assistant")
        return Status(Errc::invalid_argument, cat({"messages[", num(i), "]: role ", printable(valid[i].role),
                                                   " found, 'system', 'user' or 'assistant' expected"}));
      valid[i].content = detail::to_valid_utf8(valid[i].content);
    }
    return render(kind, valid);
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, "no memory for the prompt");
  }
}

Result<std::string> render_chat(ChatTemplate kind, std::span<const ChatMessage> messages) {
  QF_TRY_ASSIGN(ChatPrompt prompt, render_chat_prompt(kind, messages));
  return std::move(prompt.text);
}

Result<std::vector<std::int32_t>> encode_chat(const Tokenizer& tokenizer, ChatTemplate kind,
                                              std::span<const ChatMessage> messages) {
  QF_TRY_ASSIGN(const ChatPrompt prompt, render_chat_prompt(kind, messages));
  return tokenizer.encode(prompt.text,
                          {.add_special = false, .parse_special = true, .plain = prompt.contents});
}

}  // namespace qf::text
