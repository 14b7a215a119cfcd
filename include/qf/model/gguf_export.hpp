// Needs: link qf. A Hugging Face folder written as one GGUF file that llama.cpp loads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qf/core/parallel.hpp"
#include "qf/core/progress.hpp"
#include "qf/core/result.hpp"
#include "qf/format/gguf_blocks.hpp"

namespace qf::model {

struct GgufExportOptions {
  // Of matrices: F32, F16, BF16, Q8_0, Q4_0 or Q4_1. With Q4_0 and Q4_1 the embeddings and the output matrix are
  // Q8_0, as llama.cpp's own quantizer keeps them finer. Tensors of one dimension (norms, biases) are F32.
  gguf::Type type = gguf::Type::q8_0;
  // Low-bit matrices whose scheme a block type holds exactly (symmetric, groups of 32, 4 or 8 bits) keep their
  // codes, whatever `type` says. Others are dequantized and rounded to `type`.
  bool keep_exact = true;
  std::string name;  // general.name; empty: the folder's name
  ParallelFor parallel{};
  Progress progress{};
};

struct GgufExportReport {
  std::uint64_t tensors = 0, bytes = 0;
  std::uint64_t exact = 0;             // low-bit matrices that kept their codes
  std::vector<std::string> fallbacks;  // tensors whose rows aren't whole blocks: they are F16
};

// `folder` has config.json, tokenizer.json, perhaps tokenizer_config.json, and the weights in safetensors: float, or
// low-bit ones as qf quantize writes them. The file appears under `path` whole or not at all. Memory: slabs of
// rows of some MiB, a low-bit matrix at a time, and the tokenizer. The bytes don't depend on `parallel`.
// Errors: an architecture, tokenizer or tensor that has no place in GGUF (unsupported), a value that the type
// can't hold (invalid_argument, with the tensor's name), those of reading and writing.
Result<GgufExportReport> export_gguf(const std::string& folder, const std::string& path,
                                     const GgufExportOptions& options = {});

}  // namespace qf::model
