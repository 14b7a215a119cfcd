// qf eval: how wrong a model is on a text.
#include <fmt/format.h>

#include <chrono>

#include "qf/io/file_writer.hpp"
#include "qf/model/bundle.hpp"
#include "qf/verify/perplexity.hpp"
#include "src/cli/cli.hpp"
#include "src/cli/model_files.hpp"

namespace qf::cli {
namespace {

struct Options {
  std::string model, text, reference, compute = "f32";
  std::int64_t context = 1024, windows = 0;
  std::optional<double> most_ppl, most_kl, least_top1;
  bool as_json = false;
};

Result<std::unique_ptr<model::Decoder>> load(const std::string& path, const std::string& compute,
                                             Session& session) {
  model::LoadOptions options;
  set_compute(compute, options);
  options.parallel = session.parallel();
  options.progress = session.progress();
  return model::Decoder::load(path, options);
}

// The limits that the caller set and the result breaks, in words.
std::string broken_limits(const Options& o, const verify::TextResult& r) {
  std::string text;
  auto judge = [&](const char* what, double value, std::optional<double> limit, bool upper) {
    if (!limit || (upper ? value <= *limit : value >= *limit)) return;
    text += fmt::format("{}{} {:.6g}, {} {:.6g} asked for", text.empty() ? "" : "; ", what, value,
                        upper ? "at most" : "at least", *limit);
  };
  judge("perplexity", r.ppl, o.most_ppl, true);
  judge("KL", r.kl, o.most_kl, true);
  judge("top-1", r.top1, o.least_top1, false);
  return text;
}

OrderedJson to_json(const Options& o, const verify::TextResult& r, double seconds) {
  OrderedJson json{{"model", o.model}, {"text", o.text}, {"context", o.context}};
  json["windows"] = r.window_ppl.size();
  json["tokens"] = r.tokens;
  json["ppl"] = r.ppl;
  const bool judged = !o.reference.empty();
  json["reference"] = judged ? OrderedJson(o.reference) : OrderedJson(nullptr);
  json["reference_ppl"] = judged ? OrderedJson(r.reference_ppl) : OrderedJson(nullptr);
  json["kl"] = judged ? OrderedJson(r.kl) : OrderedJson(nullptr);
  json["top1"] = judged ? OrderedJson(r.top1) : OrderedJson(nullptr);
  json["window_ppl"] = r.window_ppl;
  json["seconds"] = seconds;
  json["peak_memory_bytes"] = peak_memory_bytes();
  return json;
}

std::string to_text(const Options& o, const verify::TextResult& r, double seconds) {
  std::vector<std::vector<std::string>> rows{{"perplexity", fmt::format("{:.4f}", r.ppl)}};
  if (!o.reference.empty()) {
    rows.push_back({"reference perplexity", fmt::format("{:.4f}", r.reference_ppl)});
    rows.push_back({"KL(reference || model)", fmt::format("{:.6f} nats", r.kl)});
    rows.push_back({"top-1 agreement", fmt::format("{:.2f} %", 100 * r.top1)});
  }
  rows.push_back({"predictions",
                  fmt::format("{} in {} windows of {} tokens", r.tokens, r.window_ppl.size(), o.context)});
  rows.push_back({"time", fmt::format("{:.1f} s", seconds)});
  return table(rows, {});
}

Result<Verdict> eval(Session& session, const Options& o) {
  if (o.reference.empty() && (o.most_kl || o.least_top1))
    return Status(Errc::invalid_argument, "--max-kl and --min-top1 compare with a --reference");
  QF_TRY_ASSIGN(const auto side, model::load_text_side(o.model));
  QF_TRY_ASSIGN(const text::Tokenizer* tokenizer, side.need_tokenizer());
  QF_TRY_ASSIGN(const std::string text, io::read_file(o.text, kMostTextBytes));
  // The text is plain text all through: "<|im_end|>" in it is nine characters and not the end of a message.
  QF_TRY_ASSIGN(const auto ids, tokenizer->encode(text, {.add_special = false, .parse_special = false}));
  const auto start = std::chrono::steady_clock::now();
  QF_TRY_ASSIGN(auto decoder, load(o.model, o.compute, session));
  std::unique_ptr<model::Decoder> reference;
  if (!o.reference.empty()) {
    QF_TRY_ASSIGN(reference, load(o.reference, "f32", session));
  }

  if (const std::int64_t most = decoder->config().context; most > 0 && o.context > most)
    session.note(fmt::format("windows of {} tokens are longer than the {} that the model is made for",
                             o.context, most));

  verify::TextOptions options;
  options.context = o.context;
  options.windows = o.windows;
  options.parallel = session.parallel();
  options.progress = session.progress();
  const auto result = verify::evaluate_text(*decoder, reference.get(), ids, options);
  if (!result.ok())
    return result.status().code() == Errc::cancelled ? result.status()
                                                     : result.status().at(o.model + ", " + o.text);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  QF_TRY(session.print(o.as_json ? json_text(to_json(o, *result, seconds)) : to_text(o, *result, seconds)));

  const std::string broken = broken_limits(o, *result);
  if (broken.empty()) return Verdict::good;
  session.note("judgement failed: " + broken);
  return Verdict::failed;
}

}  // namespace

void add_eval(Program& program) {
  auto o = std::make_shared<Options>();
  CLI::App* command = program.add(
      "eval", "Judge a model on a text: perplexity, and KL and top-1 against a reference model",
      {"qf eval model --text test.txt",
       "qf eval model-w4 --reference model --text test.txt --windows 4 --json",
       "qf eval model-w4 --reference model --text test.txt --max-kl 0.1    # exit code 1 when above"},
      [o](Session& session) { return eval(session, *o); });
  command->add_option("model", o->model, "A model folder or a GGUF file")->required()->type_name("PATH");
  command->add_option("--text", o->text, "A UTF-8 text, tokenized whole")->required()->type_name("FILE");
  command->add_option("--reference", o->reference, "The model to compare with, with the same vocabulary")
      ->type_name("PATH");
  command->add_option("--context", o->context, "Tokens a window")
      ->capture_default_str()
      ->type_name("TOKENS")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 24));
  command->add_option("--windows", o->windows, "Windows to judge, from the start; 0: all of the text")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  add_compute(command, o->compute);
  command->add_option("--max-ppl", o->most_ppl, "Fail (exit code 1) above this perplexity")->type_name("X");
  command->add_option("--max-kl", o->most_kl, "Fail above this KL")->type_name("X");
  command->add_option("--min-top1", o->least_top1, "Fail below this share of equal top-1")->type_name("X");
  command->add_flag("--json", o->as_json, "One JSON object on stdout");
}

}  // namespace qf::cli
