#include "src/cli/model_files.hpp"

#include <sys/resource.h>

#include <filesystem>
#include <string_view>

#include "qf/io/mapped_file.hpp"

namespace qf::cli {

namespace fs = std::filesystem;

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
