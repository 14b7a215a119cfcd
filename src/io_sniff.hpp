// What a file is, told by its first bytes, and what to say when it is no model.
#pragma once

#include <cstddef>
#include <span>

#include "qf/core/result.hpp"

namespace qf::io::detail {

enum class FileKind {
  unknown,
  safetensors,
  gguf,
  old_ggml,
  lfs_pointer,
  html,
  zip,
  pickle,
  calibration_cache,
  json,
  compressed,
  hdf5,
  zeros,
};

FileKind sniff(std::span<const std::byte> file);

// ok when `kind` is `wanted` or unknown; otherwise says what the file is and what to do.
Status refuse_foreign(FileKind kind, FileKind wanted);

}  // namespace qf::io::detail
