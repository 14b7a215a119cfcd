#include "qf/io/checkpoint.hpp"

#include "io_folder.hpp"
#include "io_sniff.hpp"
#include "qf/io/gguf.hpp"
#include "qf/io/mapped_file.hpp"
#include "qf/io/safetensors.hpp"

namespace qf::io {

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path) {
  constexpr std::string_view kIndex = "model.safetensors.index.json";
  std::string place = path;
  if (place.ends_with(kIndex) &&
      (place.size() == kIndex.size() || place[place.size() - kIndex.size() - 1] == '/')) {
    place.resize(place.size() - kIndex.size());
    if (place.empty()) place = ".";
  }
  if (!detail::is_folder(place)) {
    QF_TRY_ASSIGN(const MappedFile file, MappedFile::open(place));
    const detail::FileKind kind = detail::sniff(file.bytes());
    if (kind == detail::FileKind::gguf) {
      QF_TRY_ASSIGN(std::unique_ptr<GgufFile> gguf, open_gguf(place));
      return std::unique_ptr<Checkpoint>(std::move(gguf));
    }
    if (kind == detail::FileKind::unknown)
      return Status(Errc::bad_format, cat({place, ": neither a safetensors nor a GGUF file (it begins with ",
                                           printable({reinterpret_cast<const char*>(file.bytes().data()),
                                                      std::min<std::size_t>(file.bytes().size(), 8)}),
                                           ")"}));
  }
  QF_TRY_ASSIGN(std::unique_ptr<Safetensors> opened, open_safetensors(place));
  return std::unique_ptr<Checkpoint>(std::move(opened));
}

}  // namespace qf::io
