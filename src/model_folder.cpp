#include "src/model_folder.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace qf::model::detail {

Result<std::string> read_text(const std::string& path, std::uint64_t most_bytes) {
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

Result<ModelFiles> open_model(const std::string& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  if (!folder && !std::filesystem::exists(path, error))
    return Status(Errc::not_found, cat({path, ": no such file or folder"}));
  if (!folder)
    return Status(Errc::unsupported,
                  cat({path, ": a single file, expected a folder with config.json and safetensors"}));
  ModelFiles files;
  const std::string config = path + "/config.json";
  QF_TRY_ASSIGN(const std::string text, read_text(config, std::uint64_t{16} << 20));
  QF_TRY_ASSIGN(files.config, parse_config(text, config));
  QF_TRY_ASSIGN(files.checkpoint, io::open_checkpoint(path));
  return files;
}

}  // namespace qf::model::detail
