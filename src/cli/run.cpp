// qf run: a prompt in, text out, token by token.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "qf/model/bundle.hpp"
#include "qf/model/generate.hpp"
#include "src/cli/cli.hpp"
#include "src/cli/model_files.hpp"

namespace qf::cli {
namespace {

constexpr std::int64_t kPromptChunk = 256;  // tokens of a prompt between two looks at Ctrl-C

struct Options {
  std::string model, prompt, compute = "packed";
  std::optional<std::string> system;
  bool raw = false, as_json = false;
  std::int64_t max_tokens = 256;
  model::SamplerOptions sampler{.temperature = 0.7, .top_k = 40, .top_p = 0.95, .seed = 0};
};

Result<std::string> read_stdin() {
  std::string text;
  char part[1 << 16];
  while (const std::size_t n = std::fread(part, 1, sizeof part, stdin)) {
    if (text.size() + n > kMostTextBytes) return Status(Errc::invalid_argument, "standard input: too long");
    text.append(part, n);
  }
  if (interrupted()) return Status(Errc::cancelled, "cancelled");
  if (std::ferror(stdin)) return Status(Errc::io_error, "standard input: cannot read");
  return text;
}

Result<std::vector<std::int32_t>> prompt_ids(const Options& o, const model::TextSide& side) {
  QF_TRY_ASSIGN(const text::Tokenizer* tokenizer, side.need_tokenizer());
  std::string prompt = o.prompt;
  if (prompt == "-") {
    QF_TRY_ASSIGN(prompt, read_stdin());
  }
  std::vector<std::int32_t> ids;
  if (o.raw) {
    QF_TRY_ASSIGN(ids, tokenizer->encode(prompt, {.add_special = true, .parse_special = false}));
  } else {
    if (side.chat == text::ChatTemplate::none)
      return Status(Errc::unsupported, side.chat_status.text() + "; --raw continues the prompt as it stands");
    std::vector<text::ChatMessage> messages;
    if (o.system) messages.push_back({"system", *o.system});
    messages.push_back({"user", prompt});
    // A prompt can't write special tokens, so it can't end its own turn or speak for the system.
    QF_TRY_ASSIGN(ids, text::encode_chat(*tokenizer, side.chat, messages));
  }
  if (ids.empty()) return Status(Errc::invalid_argument, "an empty prompt");
  return ids;
}

// Ids after which the assistant has finished, whatever the model's config knows of them.
std::vector<std::int32_t> stop_ids(const model::TextSide& side) {
  const text::Tokenizer& tokenizer = *side.tokenizer;
  std::vector<std::int32_t> ids = side.eos;
  for (const char* token : {"<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "</s>"})
    if (const auto id = tokenizer.id(token); id && tokenizer.is_special(*id)) ids.push_back(*id);
  return ids;
}

Result<Verdict> run(Session& session, const Options& o) {
  QF_TRY_ASSIGN(const auto side, model::load_text_side(o.model));
  QF_TRY_ASSIGN(const auto ids, prompt_ids(o, side));
  const text::Tokenizer& tokenizer = *side.tokenizer;
  model::LoadOptions load;
  set_compute(o.compute, load);
  load.parallel = session.parallel();
  load.progress = session.progress();
  QF_TRY_ASSIGN(const auto decoder, model::Decoder::load(o.model, load));

  model::GenerateOptions options;
  options.max_tokens = o.max_tokens;
  options.sampler = o.sampler;
  options.stop_ids = stop_ids(side);
  options.prefill_chunk = kPromptChunk;
  text::StreamDecoder stream(tokenizer);
  std::string answer;
  Status trouble;  // of writing, which the callback can only report by stopping
  auto show = [&](const Result<std::string>& piece) {
    trouble = piece.status();
    if (!piece.ok()) return false;
    answer += *piece;
    if (!o.as_json && !piece->empty()) trouble = session.print(*piece);
    return trouble.ok() && !interrupted();
  };
  QF_TRY_ASSIGN(const auto result, model::generate(*decoder, ids, options,
                                                   [&](std::int32_t id) { return show(stream.push(id)); }));
  QF_TRY(trouble);
  show(stream.finish());
  QF_TRY(trouble);
  if (!o.as_json && !answer.empty() && answer.back() != '\n') QF_TRY(session.print("\n"));

  // The first token comes with the prompt; the speed of generating is that of the others.
  const double prompt_rate = static_cast<double>(ids.size()) / std::max(result.prompt_seconds, 1e-9);
  const double steps = result.ids.empty() ? 0 : static_cast<double>(result.ids.size() - 1);
  const double rate = steps / std::max(result.token_seconds, 1e-9);
  if (o.as_json)
    QF_TRY(session.print(json_text({{"model", o.model},
                                    {"text", answer},
                                    {"ids", result.ids},
                                    {"prompt_tokens", ids.size()},
                                    {"prompt_tokens_per_second", prompt_rate},
                                    {"generated_tokens", result.ids.size()},
                                    {"generated_tokens_per_second", rate},
                                    {"weight_bytes", decoder->weight_bytes()},
                                    {"peak_memory_bytes", peak_memory_bytes()}})));
  session.note(fmt::format(
      "prompt {} tokens, {:.1f} tokens/s; generated {} tokens, {:.1f} tokens/s; peak memory {}", ids.size(),
      prompt_rate, result.ids.size(), rate, human_bytes(static_cast<double>(peak_memory_bytes()))));
  if (interrupted()) return Status(Errc::cancelled, "interrupted");
  return Verdict::good;
}

}  // namespace

void add_run(Program& program) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      program.add("run", "Let a model answer a prompt; tokens are printed as they come",
                  {"qf run model-w4 --prompt 'What is the capital of France?'",
                   "qf run model.gguf --system 'Answer in one line.' --prompt - < question.txt",
                   "qf run model-w4 --raw --prompt 'Once upon a time' --temperature 0 --max-tokens 64"},
                  [o](Session& session) { return run(session, *o); });
  command->add_option("model", o->model, "A model folder or a GGUF file")->required()->type_name("PATH");
  command->add_option("-p,--prompt", o->prompt, "The prompt; '-' reads it from standard input")
      ->required()
      ->type_name("TEXT");
  command->add_option("--system", o->system, "The system message; without one the template's own")
      ->type_name("TEXT");
  command->add_flag("--raw", o->raw, "No chat template: continue the prompt as it stands");
  command->add_option("-n,--max-tokens", o->max_tokens, "Tokens to generate at most")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  command->add_option("--temperature", o->sampler.temperature, "0 always takes the most likely token")
      ->capture_default_str()
      ->type_name("X")
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--top-k", o->sampler.top_k, "Only the k most likely tokens; 0: all")
      ->capture_default_str()
      ->type_name("K")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  command->add_option("--top-p", o->sampler.top_p, "Only the likeliest tokens that reach this share")
      ->capture_default_str()
      ->type_name("P")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", o->sampler.seed, "The same seed gives the same text")
      ->capture_default_str()
      ->type_name("N");
  add_compute(command, o->compute);
  command->add_flag("--json", o->as_json, "One JSON object on stdout, with text and speed, at the end");
}

}  // namespace qf::cli
