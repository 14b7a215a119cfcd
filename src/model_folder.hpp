// Finds a model's configuration and weights, whichever way they are stored.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "qf/io/checkpoint.hpp"
#include "qf/io/quantization_config.hpp"
#include "qf/model/config.hpp"

namespace qf::model::detail {

struct ModelFiles {
  ModelConfig config;
  std::unique_ptr<io::Checkpoint> checkpoint;  // tensors under Hugging Face's names
  std::optional<io::QuantizationConfig> quantization;
};

Result<ModelFiles> open_model(const std::string& path);

// Whether the file begins as GGUF files do; false when it can't be read.
bool is_gguf(const std::string& path);

// The whole of a small text file. Errors: not found, larger than `most_bytes`, not readable.
Result<std::string> read_text(const std::string& path, std::uint64_t most_bytes = std::uint64_t{256} << 20);

}  // namespace qf::model::detail
