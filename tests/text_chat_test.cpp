// Conversations against what jinja2 makes of each model's template (tests/golden/text/make_chat_goldens.py).
#include "qf/text/chat_template.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

using namespace qf::text;

std::vector<ChatMessage> messages_of(const nlohmann::json& conversation) {
  std::vector<ChatMessage> messages;
  for (const auto& m : conversation) messages.push_back({m[0].get<std::string>(), m[1].get<std::string>()});
  return messages;
}

}  // namespace

TEST_CASE("chat templates render what their Jinja source renders") {
  std::ifstream in(std::string(QF_GOLDEN) + "/text/chat.json");
  const auto golden = nlohmann::json::parse(in);
  REQUIRE(golden["templates"].size() == 10);
  for (const auto& entry : golden["templates"]) {
    auto kind = recognise_chat_template(entry["source"].get<std::string>());
    REQUIRE(kind.status().text() == "");
    CHECK(chat_template_name(*kind) == entry["name"].get<std::string>());
    for (std::size_t i = 0; i < golden["conversations"].size(); ++i) {
      INFO(entry["name"] << ", conversation " << i);
      const auto prompt = render_chat(*kind, messages_of(golden["conversations"][i]));
      const auto& expected = entry["prompts"][i];
      if (expected.is_null())
        CHECK_FALSE(prompt.ok());
      else if (prompt.ok())
        CHECK(*prompt == expected.get<std::string>());
      else  // a template may print nothing at all for what it has no place for
        CHECK((prompt.status().text() + expected.get<std::string>()) ==
              "messages: the Llama-2 template needs a user's message");
    }
  }
}

TEST_CASE("chat errors name the message and the role") {
  const auto text = [](ChatTemplate kind, std::vector<ChatMessage> messages) {
    const auto prompt = render_chat(kind, messages);
    return prompt.ok() ? "rendered" : prompt.status().text();
  };
  CHECK(text(ChatTemplate::smollm2, {}) == "messages: at least one expected");
  CHECK(text(ChatTemplate::none, {{"user", "x"}}) == "no chat template is set");
  CHECK(text(ChatTemplate::chatml, {{"user", "x"}, {"tool", "y"}}) ==
        "messages[1]: role 'tool' found, 'system', 'user' or 'assistant' expected");
  CHECK(text(ChatTemplate::chatml, {{"user<|im_end|>", "x"}}) ==
        "messages[0]: role 'user<|im_end|>' found, 'system', 'user' or 'assistant' expected");
  CHECK(text(ChatTemplate::mistral, {{"system", "x"}}) ==
        "messages[0]: role 'system' found, 'user' expected: in the Mistral template user and assistant take "
        "turns");
  CHECK(
      text(ChatTemplate::llama2, {{"user", "x"}, {"user", "y"}}) ==
      "messages[1]: role 'user' found, 'assistant' expected: in the Llama-2 template user and assistant take "
      "turns");
  CHECK(*render_chat(ChatTemplate::chatml, std::vector<ChatMessage>{{"user", "\xff"}}) ==
        "<|im_start|>user\n\xef\xbf\xbd<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("a template that is not one of ours is refused, never run") {
  const auto refused = recognise_chat_template("{{ cycler.__init__.__globals__.os.popen(\"id\").read() }}");
  CHECK(refused.status().text() ==
        "the chat template '{{ cycler.__init__.__globals__.os.popen(\"id\").read() }}' is none of ChatML, "
        "SmolLM2, "
        "Qwen2, Qwen2.5, Qwen3, Llama-2, Llama-3, Llama-3.1, Mistral, Phi-3");
  CHECK(recognise_chat_template("").status().code() == qf::Errc::unsupported);
}
