#include "src/model_folder.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "qf/io/gguf.hpp"
#include "qf/model/gguf_import.hpp"

namespace qf::model::detail {

Result<std::string> read_text(const std::string& path, std::uint64_t most_bytes) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::not_found && !error)
    return Status(Errc::bad_format, cat({path, ": not a regular file"}));
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) {
    const Errc code = errno == ENOENT || errno == ENOTDIR ? Errc::not_found : Errc::io_error;
    return Status(code, cat({path, ": ", std::strerror(errno)}));
  }
  std::string text;
  char part[65536];
  std::size_t got = 0;
  while (text.size() <= most_bytes && (got = std::fread(part, 1, sizeof part, file)) > 0)
    text.append(part, got);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) return Status(Errc::io_error, cat({path, ": read error"}));
  if (text.size() > most_bytes)
    return Status(Errc::bad_format, cat({path, ": more than ", num(most_bytes), " bytes"}));
  return text;
}

bool is_gguf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // opening a FIFO waits for its writer
  char magic[4] = {};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) return false;
  const bool read = std::fread(magic, 1, sizeof magic, file) == sizeof magic;
  std::fclose(file);
  return read && std::memcmp(magic, "GGUF", 4) == 0;
}

Result<ModelFiles> open_model(const std::string& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  if (!folder && !std::filesystem::exists(path, error))
    return Status(Errc::not_found, cat({path, ": no such file or folder"}));
  ModelFiles files;
  if (!folder) {
    if (!is_gguf(path))
      return Status(Errc::unsupported,
                    cat({path,
                         ": a single file that isn't GGUF, expected a GGUF file or a folder with config.json "
                         "and safetensors"}));
    QF_TRY_ASSIGN(auto file, io::open_gguf(path));
    QF_TRY_ASSIGN(files.config, config_from_gguf(*file));
    QF_TRY_ASSIGN(files.checkpoint, gguf_as_hf(std::move(file)));
    return files;
  }
  const std::string config = path + "/config.json";
  QF_TRY_ASSIGN(const std::string text, read_text(config, std::uint64_t{16} << 20));
  QF_TRY_ASSIGN(files.config, parse_config(text, config));
  QF_TRY_ASSIGN(files.quantization, io::parse_quantization_config(text, config));
  QF_TRY_ASSIGN(files.checkpoint, io::open_checkpoint(path));
  return files;
}

}  // namespace qf::model::detail
