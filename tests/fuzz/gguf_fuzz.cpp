// GGUF from memory: metadata are listed and read, every tensor is decoded, the file is looked at as a model. Every
// input is a file that can be read or an error with a text.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "qf/io/gguf.hpp"
#include "qf/model/gguf_import.hpp"

namespace {

void need_text(const qf::Status& status) {
  if (!status.ok() && status.text().empty()) std::abort();
}

void read_tensors(const qf::io::Checkpoint& file) {
  constexpr std::uint64_t kMost = 1 << 16;
  std::vector<float> out;
  for (const qf::io::TensorInfo& info : file.tensors()) {
    out.resize(static_cast<std::size_t>(info.elements < kMost ? info.elements : kMost));
    need_text(file.read_f32(info, info.elements - out.size(), out));
    if (file.find(info.name) != &info) std::abort();  // names are unique
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using qf::io::GgufFile;
  auto parsed = qf::io::parse_gguf(std::as_bytes(std::span(data, size)), "fuzz");
  need_text(parsed.status());
  if (!parsed.ok()) return 0;
  const GgufFile& file = **parsed;
  for (const qf::io::GgufEntry& e : file.entries()) {
    (void)GgufFile::value(e);
    need_text(file.string(e.key).status());
    need_text(file.integer(e.key).status());
    need_text(file.real(e.key).status());
    need_text(file.boolean(e.key).status());
    need_text(file.strings(e.key).status());
    need_text(file.integers(e.key).status());
    need_text(file.reals(e.key).status());
  }
  read_tensors(file);
  need_text(qf::model::vocabulary_from_gguf(file).status());
  auto as_hf = qf::model::gguf_as_hf(std::move(*parsed));
  need_text(as_hf.status());
  if (as_hf.ok()) read_tensors(**as_hf);
  return 0;
}
