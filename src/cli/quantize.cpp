// qf quantize: a checkpoint to low bits, by a recipe or by one method for all linears.
#include <fmt/format.h>

#include <chrono>

#include "qf/io/file_writer.hpp"
#include "qf/model/bundle.hpp"
#include "qf/quant/pipeline.hpp"
#include "src/cli/cli.hpp"
#include "src/cli/model_files.hpp"

namespace qf::cli {
namespace {

struct Options {
  std::string input, output, recipe, method = "rtn", scale = "f16", calibration;
  int bits = 4;
  std::int64_t group = 64, samples = 32, sample_tokens = 512;
  bool symmetric = false, dry_run = false, overwrite = false, restart = false, as_json = false;
};

Result<quant::Recipe> recipe_of(const Options& o) {
  if (!o.recipe.empty()) {
    QF_TRY_ASSIGN(const std::string text, io::read_file(o.recipe, std::uint64_t{1} << 20));
    auto recipe = quant::Recipe::parse(text, o.recipe);
    if (recipe.ok() || recipe.status().code() != Errc::invalid_argument) return recipe;
    return Status(Errc::bad_format, recipe.status().text());  // a broken file, not a wrong option
  }
  Scheme scheme;
  scheme.bits = o.bits;
  scheme.group = o.group;
  scheme.zero = o.symmetric ? ZeroKind::symmetric : ZeroKind::integer;
  scheme.scale = o.scale == "f16" ? DType::f16 : o.scale == "bf16" ? DType::bf16 : DType::f32;
  return quant::default_recipe(o.method, scheme);
}

std::string action_text(const quant::TensorPlan& plan) {
  switch (plan.action) {
    case quant::Action::keep:
      return "keep";
    case quant::Action::convert:
      return std::string("convert to ") + std::string(dtype_name(plan.dtype));
    case quant::Action::quantize:
      return plan.method + " " + scheme_name(plan.scheme);
  }
  return "";
}

OrderedJson to_json(const quant::TensorPlan& plan) {
  OrderedJson json{{"name", plan.name}, {"type", plan.type}, {"shape", plan.shape}};
  json["action"] = plan.action == quant::Action::keep      ? "keep"
                   : plan.action == quant::Action::convert ? "convert"
                                                           : "quantize";
  if (plan.action == quant::Action::quantize) {
    json["method"] = plan.method;
    json["scheme"] = scheme_name(plan.scheme);
  }
  if (plan.action == quant::Action::convert) json["dtype"] = dtype_name(plan.dtype);
  json["source_bytes"] = plan.source_bytes;
  json["output_bytes"] = plan.output_bytes;
  return json;
}

Result<Verdict> show_plan(Session& session, const Options& o, const quant::PipelinePlan& plan) {
  for (std::size_t rule : plan.unused_rules)
    session.note(fmt::format("rule {} of the recipe matches no tensor", rule + 1));
  if (o.as_json) {
    OrderedJson tensors = OrderedJson::array();
    for (const auto& t : plan.tensors) tensors.push_back(to_json(t));
    QF_TRY(session.print(json_text({{"dry_run", true},
                                    {"source_bytes", plan.source_bytes},
                                    {"output_bytes", plan.output_bytes},
                                    {"file_bytes", plan.file_bytes},
                                    {"peak_memory_bytes", plan.peak_memory_bytes},
                                    {"files", plan.shards},
                                    {"bits_per_weight", plan.bits_per_weight},
                                    {"tensors", tensors}})));
    return Verdict::good;
  }
  std::vector<std::vector<std::string>> rows{{"TENSOR", "TYPE", "SHAPE", "WHAT", "BYTES BEFORE", "AFTER"}};
  for (const auto& t : plan.tensors)
    rows.push_back({printable(t.name), printable(t.type), shape_text(t.shape), action_text(t),
                    num(t.source_bytes), num(t.output_bytes)});
  const auto size = [](std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  QF_TRY(session.print(
      table(rows, {4, 5}) +
      fmt::format(
          "\n{} of tensors become {} in {} file(s); {:.3f} bits a weight in those quantized; about {} "
          "of memory\nNothing was written (--dry-run).\n",
          size(plan.source_bytes), size(plan.file_bytes), plan.shards, plan.bits_per_weight,
          size(plan.peak_memory_bytes))));
  return Verdict::good;
}

Result<Verdict> show_report(Session& session, const Options& o, const quant::PipelineReport& report,
                            double seconds) {
  if (report.resumed_tensors)
    session.note(fmt::format("{} tensors were taken over from an interrupted run", report.resumed_tensors));
  quant::MatrixError error;
  std::size_t quantized = 0;
  for (const auto& t : report.tensors) {
    if (t.plan.action != quant::Action::quantize) continue;
    error.add(t.error);
    ++quantized;
  }
  if (o.as_json) {
    QF_TRY(session.print(json_text({{"output", o.output},
                                    {"tensors", report.tensors.size()},
                                    {"quantized", quantized},
                                    {"source_bytes", report.source_bytes},
                                    {"output_bytes", report.output_bytes},
                                    {"bytes_on_disk", size_on_disk(o.output)},
                                    {"bits_per_weight", report.bits_per_weight},
                                    {"relative_error", error.relative()},
                                    {"resumed_tensors", report.resumed_tensors},
                                    {"seconds", seconds},
                                    {"forward_cpu_seconds", report.forward_seconds},
                                    {"statistics_cpu_seconds", report.statistics_seconds},
                                    {"solving_cpu_seconds", report.solving_seconds},
                                    {"peak_memory_bytes", peak_memory_bytes()}})));
    return Verdict::good;
  }
  const auto size = [](std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  std::vector<std::vector<std::string>> rows{
      {"written", o.output},
      {"tensors", fmt::format("{} of {} quantized", quantized, report.tensors.size())},
      {"size", size(report.source_bytes) + " to " + size(report.output_bytes)},
      {"bits a weight", fmt::format("{:.3f} in those quantized", report.bits_per_weight)},
      {"relative error", fmt::format("{:.4f}", error.relative())},
      {"time", fmt::format("{:.1f} s", seconds)}};
  if (report.statistics_seconds > 0)
    rows.push_back({"of all threads",
                    fmt::format("{:.1f} s running the model, {:.1f} s statistics, {:.1f} s choosing codes",
                                report.forward_seconds, report.statistics_seconds, report.solving_seconds)});
  rows.push_back({"peak memory", size(peak_memory_bytes())});
  QF_TRY(session.print(table(rows, {})));
  return Verdict::good;
}

// The calibration text in tokens of the model, plain text all through: "<|im_end|>" in it is nine characters.
Result<calib::Samples> samples_of(const Options& o) {
  if (o.calibration.empty())
    return Status(Errc::invalid_argument,
                  "--calibration FILE is required: the method looks at what a text does in the model");
  QF_TRY_ASSIGN(const std::string text, io::read_file(o.calibration, kMostTextBytes));
  QF_TRY_ASSIGN(const auto side, model::load_text_side(o.input));
  QF_TRY_ASSIGN(const text::Tokenizer* tokenizer, side.need_tokenizer());
  QF_TRY_ASSIGN(const auto ids, tokenizer->encode(text, {.add_special = false, .parse_special = false}));
  auto samples = calib::cut_samples(ids, o.samples, o.sample_tokens);
  return samples.ok() ? std::move(samples) : samples.status().at(o.calibration);
}

Result<Verdict> quantize(Session& session, const Options& o) {
  QF_TRY_ASSIGN(const auto recipe, recipe_of(o));
  QF_TRY(quant::check_available(recipe));
  QF_TRY_ASSIGN(const bool calibrated, quant::needs_calibration(recipe));
  calib::Samples samples;
  quant::PipelineOptions options;
  if (calibrated) {
    QF_TRY_ASSIGN(samples, samples_of(o));
    options.calibration = &samples;
  } else if (!o.calibration.empty()) {
    session.note(fmt::format("{} needs no calibration, {} is not read",
                             o.recipe.empty() ? "method '" + o.method + "'" : o.recipe, o.calibration));
  }
  options.parallel = session.parallel();
  options.progress = session.progress();
  options.overwrite = o.overwrite;
  options.resume = !o.restart;
  if (o.dry_run) {
    QF_TRY_ASSIGN(const auto plan, quant::plan_checkpoint(o.input, recipe, options));
    return show_plan(session, o, plan);
  }
  if (o.output.empty()) return Status(Errc::invalid_argument, "--out is required unless --dry-run is given");
  const auto start = std::chrono::steady_clock::now();
  QF_TRY_ASSIGN(const auto report, quant::quantize_checkpoint(o.input, o.output, recipe, options));
  return show_report(session, o, report,
                     std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace

void add_quantize(Program& program) {
  auto o = std::make_shared<Options>();
  CLI::App* command = program.add(
      "quantize", "Turn a model's weights into low-bit codes",
      {"qf quantize model --out model-w4 --bits 4 --group 64",
       "qf quantize model --out model-w8 --bits 8 --group 0 --symmetric",
       "qf quantize model --recipe recipe.json --dry-run    # sizes and memory, before anything runs"},
      [o](Session& session) { return quantize(session, *o); });
  command->add_option("input", o->input, "A model folder with float weights")->required()->type_name("DIR");
  command->add_option("-o,--out", o->output, "The folder to write")->type_name("DIR");
  CLI::Option* recipe =
      command->add_option("--recipe", o->recipe, "Rules for each tensor, in JSON (docs/quantize.md)");
  recipe->type_name("FILE");
  std::vector<std::string> methods;
  for (std::string_view name : quant::available_methods()) methods.emplace_back(name);
  command->add_option("--method", o->method, "How codes are chosen, for all linears of the layers")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(CLI::IsMember(methods))
      ->excludes(recipe);
  command->add_option("--bits", o->bits, "Bits of a code")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::Range(1, 8))
      ->excludes(recipe);
  command->add_option("--group", o->group, "Columns that share a scale; 0: the whole row")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31))
      ->excludes(recipe);
  command->add_flag("--symmetric", o->symmetric, "No zero points")->excludes(recipe);
  command->add_option("--scale", o->scale, "The type of scales")
      ->capture_default_str()
      ->type_name("TYPE")
      ->check(CLI::IsMember({"f16", "bf16", "f32"}))
      ->excludes(recipe);
  command->add_option("--calibration", o->calibration, "A text for methods that look at activations")
      ->type_name("FILE");
  command->add_option("--samples", o->samples, "Calibration sequences")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  command->add_option("--sample-tokens", o->sample_tokens, "Tokens of a calibration sequence")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  command->add_flag("--dry-run", o->dry_run, "Show what would happen, sizes and memory, and write nothing");
  command->add_flag("--overwrite", o->overwrite, "Replace an existing output folder, in one step at the end");
  command->add_flag("--restart", o->restart, "Don't go on from an interrupted run");
  command->add_flag("--json", o->as_json, "One JSON object on stdout");
}

}  // namespace qf::cli
