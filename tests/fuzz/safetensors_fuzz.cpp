// Any bytes as a safetensors file, read strictly and leniently: an error, or tensors that can all be read.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "qf/io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const bool lenient : {false, true}) {
    const auto opened = qf::io::parse_safetensors(bytes, "fuzz", {.lenient = lenient});
    if (!opened.ok()) {
      if (opened.status().text().empty()) std::abort();
      continue;
    }
    const qf::io::Safetensors& file = **opened;
    std::uint64_t total = 0;
    std::vector<float> values;
    for (const qf::io::TensorInfo& info : file.tensors()) {
      total += info.bytes;
      if (file.find(info.name) != &info || file.bytes(info).size() != info.bytes) std::abort();
      if (info.elements > 2 * size) std::abort();
      values.resize(static_cast<std::size_t>(info.elements));
      const qf::Status status = file.read_f32(info, 0, values);
      if (!status.ok() && status.code() != qf::Errc::unsupported) std::abort();
      file.release(info);
    }
    if (total > size) std::abort();
  }
  return 0;
}
