// qf convert: between GGUF files and Hugging Face folders.
#include <fmt/format.h>

#include <filesystem>

#include "qf/model/gguf_export.hpp"
#include "qf/model/gguf_import.hpp"
#include "src/cli/cli.hpp"
#include "src/cli/model_files.hpp"

namespace qf::cli {
namespace {

struct Options {
  std::string input, output, to, type;
  bool overwrite = false;
};

bool ends_in_gguf(const std::string& path) {
  return path.size() > 5 && path.compare(path.size() - 5, 5, ".gguf") == 0;
}

Result<Verdict> to_folder(Session& session, const Options& o) {
  const std::string type = o.type.empty() ? "bf16" : o.type;
  model::GgufImportOptions options;
  if (type != "bf16" && type != "f16" && type != "f32")
    return Status(
        Errc::invalid_argument,
        cat({"--type ", type, ": a folder holds bf16, f16 or f32; 'qf quantize' makes low-bit codes"}));
  options.dtype = type == "bf16" ? DType::bf16 : type == "f16" ? DType::f16 : DType::f32;
  options.parallel = session.parallel();
  options.progress = session.progress();
  QF_TRY(model::import_gguf(o.input, o.output, options));
  return Verdict::good;
}

Result<Verdict> to_gguf(Session& session, const Options& o) {
  static const std::vector<std::pair<std::string, gguf::Type>> kTypes{
      {"bf16", gguf::Type::bf16}, {"f16", gguf::Type::f16},   {"f32", gguf::Type::f32},
      {"q8_0", gguf::Type::q8_0}, {"q4_0", gguf::Type::q4_0}, {"q4_1", gguf::Type::q4_1}};
  model::GgufExportOptions options;
  for (const auto& [name, type] : kTypes)
    if (name == (o.type.empty() ? "bf16" : o.type)) options.type = type;
  options.parallel = session.parallel();
  options.progress = session.progress();
  QF_TRY_ASSIGN(const auto report, model::export_gguf(o.input, o.output, options));
  if (report.exact) session.note(fmt::format("{} low-bit matrices kept their codes", report.exact));
  if (!report.fallbacks.empty())
    session.note(fmt::format("{} tensors are F16, since their rows aren't whole blocks, {} the first",
                             report.fallbacks.size(), printable(report.fallbacks.front())));
  return Verdict::good;
}

// Whether writing the output would destroy what is read: the input itself, or a file of the input's folder.
bool is_of_input(const Options& o) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::equivalent(o.input, o.output, error)) return true;
  return fs::is_directory(o.input, error) && fs::is_regular_file(o.output, error) &&
         fs::equivalent(o.input, fs::absolute(o.output, error).parent_path(), error);
}

Result<Verdict> convert(Session& session, const Options& o) {
  const bool gguf = o.to.empty() ? ends_in_gguf(o.output) : o.to == "gguf";
  std::error_code error;
  if (!std::filesystem::exists(o.input, error))
    return error ? Status(Errc::io_error, o.input + ": cannot be opened: " + error.message())
                 : Status(Errc::not_found, o.input + ": no such file or folder");
  if (!o.overwrite && std::filesystem::exists(std::filesystem::symlink_status(o.output, error)))
    return Status(Errc::invalid_argument, o.output + ": exists already; --overwrite replaces it");
  if (is_of_input(o))
    return Status(Errc::invalid_argument, o.output + ": belongs to the input, so it isn't overwritten");
  if (gguf == is_gguf(o.input))
    return Status(Errc::invalid_argument,
                  o.input + (gguf ? ": is a GGUF file already" : ": isn't a GGUF file"));
  QF_TRY_ASSIGN(const Verdict verdict, gguf ? to_gguf(session, o) : to_folder(session, o));
  QF_TRY(session.print(
      fmt::format("{}: {}\n", o.output, human_bytes(static_cast<double>(size_on_disk(o.output))))));
  return verdict;
}

}  // namespace

void add_convert(Program& program) {
  auto o = std::make_shared<Options>();
  CLI::App* command = program.add(
      "convert", "Turn a GGUF file into a model folder, or a model folder into a GGUF file",
      {"qf convert model.gguf --out model --type bf16", "qf convert model --out model.gguf --type q8_0",
       "qf convert model-w4 --out model-w4.gguf --type q4_1"},
      [o](Session& session) { return convert(session, *o); });
  command->add_option("input", o->input, "A GGUF file or a model folder")->required()->type_name("PATH");
  command->add_option("-o,--out", o->output, "A name that ends in .gguf makes a GGUF file, others a folder")
      ->required()
      ->type_name("PATH");
  command->add_option("--to", o->to, "What to make, whatever the name ends in")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"folder", "gguf"}));
  command->add_option("--type", o->type, "The type of matrices; bf16 if not given. Folders: bf16, f16 or f32")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"bf16", "f16", "f32", "q8_0", "q4_0", "q4_1"}));
  command->add_flag("--overwrite", o->overwrite, "Replace what is there");
}

}  // namespace qf::cli
