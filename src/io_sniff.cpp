#include "io_sniff.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace qf::io::detail {
namespace {

using namespace std::string_view_literals;

bool is_html(std::string_view head) {
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  const auto starts = [&](std::string_view tag) {
    return head.size() >= tag.size() && std::equal(tag.begin(), tag.end(), head.begin(), [](char a, char b) {
             return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + 32) : b);
           });
  };
  return starts("<!doctype"sv) || starts("<html"sv) || starts("<head"sv) || starts("<?xml"sv);
}

}  // namespace

FileKind sniff(std::span<const std::byte> file) {
  const std::string_view head(reinterpret_cast<const char*>(file.data()),
                              std::min(file.size(), std::size_t{512}));
  // First, since a header's length may begin with the bytes of a magic below.
  if (head.size() >= 9) {
    std::uint64_t length = 0;
    std::memcpy(&length, head.data(), 8);
    if (length > 1 && length <= 100'000'000 && (head[8] == '{' || head[8] == ' '))
      return FileKind::safetensors;
  }
  struct Magic {
    std::string_view bytes;
    FileKind kind;
  };
  static constexpr Magic kMagics[] = {
      {"GGUF"sv, FileKind::gguf},
      {"version https://git-lfs"sv, FileKind::lfs_pointer},
      {"PK\x03\x04"sv, FileKind::zip},
      {"\x80\x02"sv, FileKind::pickle},
      {"\x80\x03"sv, FileKind::pickle},
      {"\x80\x04"sv, FileKind::pickle},
      {"\x80\x05"sv, FileKind::pickle},
      {"TRT-"sv, FileKind::calibration_cache},
      {"lmgg"sv, FileKind::old_ggml},  // "ggml", "ggmf", "ggjt" and "ggla" as little-endian words
      {"fmgg"sv, FileKind::old_ggml},
      {"tjgg"sv, FileKind::old_ggml},
      {"algg"sv, FileKind::old_ggml},
      {"ggml"sv, FileKind::old_ggml},
      {"ggjt"sv, FileKind::old_ggml},
      {"ggla"sv, FileKind::old_ggml},
      {"\x1f\x8b"sv, FileKind::compressed},
      {"\x28\xb5\x2f\xfd"sv, FileKind::compressed},
      {"\xfd"
       "7zXZ"sv,
       FileKind::compressed},
      {"\x89HDF\r\n\x1a\n"sv, FileKind::hdf5},
      {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv, FileKind::zeros},
      {"{"sv, FileKind::json},
  };
  for (const Magic& magic : kMagics)
    if (head.substr(0, magic.bytes.size()) == magic.bytes) return magic.kind;
  if (is_html(head)) return FileKind::html;
  return FileKind::unknown;
}

Status refuse_foreign(FileKind kind, FileKind wanted) {
  if (kind == wanted) return {};
  const auto refuse = [](Errc code, const char* text) { return Status(code, text); };
  switch (kind) {
    case FileKind::unknown:
      return {};
    case FileKind::safetensors:
      return refuse(Errc::bad_format, "a safetensors file, not a GGUF file");
    case FileKind::gguf:
      return refuse(Errc::bad_format, "a GGUF file, not a safetensors file");
    case FileKind::old_ggml:
      return refuse(Errc::unsupported,
                    "a GGML file from before GGUF; convert it to GGUF with llama.cpp's scripts");
    case FileKind::lfs_pointer:
      return refuse(Errc::bad_format,
                    "a Git-LFS pointer, not the file itself; run 'git lfs pull' in its folder");
    case FileKind::html:
      return refuse(Errc::bad_format,
                    "an HTML page, not a model; the download failed or needs a login, fetch the file again");
    case FileKind::zip:
      return refuse(
          Errc::unsupported,
          "a zip archive, as PyTorch writes pickles; pickles can run code and are never read, save the "
          "model as safetensors");
    case FileKind::pickle:
      return refuse(
          Errc::unsupported,
          "a Python pickle; pickles can run code and are never read, save the model as safetensors");
    case FileKind::calibration_cache:
      return refuse(Errc::unsupported, "a TensorRT calibration cache, which holds no weights");
    case FileKind::json:
      return refuse(Errc::bad_format, "a JSON text, not a model; for an index of shards name its folder");
    case FileKind::compressed:
      return refuse(Errc::unsupported, "a compressed file; unpack it first");
    case FileKind::hdf5:
      return refuse(Errc::unsupported, "an HDF5 file, as Keras writes; save the model as safetensors");
    case FileKind::zeros:
      return refuse(Errc::bad_format,
                    "the file begins with zeros; the download was interrupted, fetch it again");
  }
  return {};
}

}  // namespace qf::io::detail
