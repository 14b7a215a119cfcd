#include "io_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "io_posix.hpp"

namespace qf::io::detail {
namespace fs = std::filesystem;

namespace {

bool is_below(const fs::path& path, const fs::path& folder) {
  const auto [in_folder, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return in_folder == folder.end() && rest != path.end();
}

// The folder beside "snapshots", when `folder` is <cache>/snapshots/<revision>; else empty.
fs::path blobs_of(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  return snapshots.filename() == "snapshots" ? snapshots.parent_path() / "blobs" : fs::path();
}

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_present(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

Result<MappedFile> open_in_folder(const std::string& folder, std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.find_first_of("/\\") != name.npos ||
      name.find('\0') != name.npos)
    return Status(Errc::bad_format, cat({folder, ": the shard's name ", printable(name),
                                         " is not that of a file in the folder"}));
  const std::string path = cat({folder, "/", name});
  std::error_code error;
  const auto status = fs::symlink_status(path, error);
  if (!fs::is_symlink(status)) return MappedFile::open(path, false);
  const fs::path real_folder = fs::canonical(folder, error);
  if (error) return system_error(folder, "cannot be examined", error.value());
  const fs::path target = fs::canonical(path, error);
  if (error) return system_error(path, "the link leads nowhere", error.value());
  const fs::path blobs = blobs_of(real_folder);
  if (!is_below(target, real_folder) && (blobs.empty() || !is_below(target, blobs)))
    return Status(Errc::invalid_argument, cat({path, ": a symbolic link out of its folder"}));
  return MappedFile::open(target.string(), false);
}

std::string no_model_text(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string(), kind = it->path().extension().string();
    if (kind == ".gguf" || kind == ".safetensors" || kind == ".bin" || kind == ".pt" || kind == ".pth")
      found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  std::string text = "the folder holds neither model.safetensors nor model.safetensors.index.json";
  if (found.empty()) return text;
  text += ", but " + printable(found.front());
  const std::string_view first = found.front();
  text += first.ends_with(".gguf") || first.ends_with(".safetensors")
              ? "; name that file to open it"
              : "; pickles can run code and are never read, save the model as safetensors";
  return text;
}

}  // namespace qf::io::detail
