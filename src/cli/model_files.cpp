#include "src/cli/model_files.hpp"

#include <sys/resource.h>

#include <filesystem>

#include "qf/core/json.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/gguf.hpp"
#include "qf/io/mapped_file.hpp"
#include "qf/model/gguf_import.hpp"

namespace qf::cli {
namespace {

namespace fs = std::filesystem;

// The template of tokenizer_config.json: a string, or a list of named ones of which "default" counts.
std::string template_of(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return {};
  for (const Json& entry : *found)
    if (entry.is_object() && entry.value("name", Json()) == Json("default") && entry.contains("template") &&
        entry["template"].is_string())
      return entry["template"].get<std::string>();
  return {};
}

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_gguf(const std::string& path) {
  if (is_folder(path)) return false;
  const auto file = io::MappedFile::open(path);
  if (!file.ok() || file->size() < 4) return false;
  return std::string_view(reinterpret_cast<const char*>(file->bytes().data()), 4) == "GGUF";
}

Result<std::unique_ptr<text::Tokenizer>> load_tokenizer(const std::string& model_path) {
  if (is_gguf(model_path)) {
    QF_TRY_ASSIGN(const auto file, io::open_gguf(model_path));
    QF_TRY_ASSIGN(auto vocabulary, model::vocabulary_from_gguf(*file));
    return text::Tokenizer::from_gguf(std::move(vocabulary), model_path);
  }
  const std::string path = model_path + "/tokenizer.json";
  QF_TRY_ASSIGN(const std::string json, io::read_file(path, kMostTextBytes));
  return text::Tokenizer::from_json(json, path);
}

Result<text::ChatTemplate> load_chat_template(const std::string& model_path) {
  std::string jinja, where = model_path;
  if (is_gguf(model_path)) {
    QF_TRY_ASSIGN(const auto file, io::open_gguf(model_path));
    QF_TRY_ASSIGN(jinja, model::chat_template_from_gguf(*file));
  } else if (std::error_code error; fs::exists(model_path + "/chat_template.jinja", error)) {
    where = model_path + "/chat_template.jinja";
    QF_TRY_ASSIGN(jinja, io::read_file(where, kMostTextBytes));
  } else if (fs::exists(model_path + "/tokenizer_config.json", error)) {
    where = model_path + "/tokenizer_config.json";
    QF_TRY_ASSIGN(const std::string text, io::read_file(where, kMostTextBytes));
    QF_TRY_ASSIGN(const Json config, parse_json(text, where));
    if (config.is_object()) jinja = template_of(config);
  }
  if (jinja.empty()) return text::ChatTemplate::none;
  auto kind = text::recognise_chat_template(jinja);
  if (!kind.ok()) return kind.status().at(where);
  return kind;
}

std::uint64_t size_on_disk(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const auto bytes = fs::file_size(path, error);
    return error ? 0 : bytes;
  }
  std::uint64_t total = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path, error))
    if (entry.is_regular_file(error) && !entry.is_symlink(error)) total += entry.file_size(error);
  return total;
}

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace qf::cli
