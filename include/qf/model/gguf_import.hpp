// Needs: link qf. GGUF files as models: configuration, vocabulary and tensors the way Hugging Face has them.
// Architectures: "llama" (Llama 2 and 3, SmolLM2, Mistral), "qwen2", "qwen3", "phi3".
// Source: the metadata keys of the GGUF description and the tensor names of llama.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "qf/core/dtype.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/progress.hpp"
#include "qf/core/result.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/io/gguf.hpp"
#include "qf/model/config.hpp"
#include "qf/text/tokenizer.hpp"

namespace qf::model {

// Errors: an architecture, a mixture of experts or a rope scaling that isn't supported (unsupported), absurd
// or contradicting sizes (bad_format), a missing key (not_found). A tensor rope_freqs.weight becomes llama3
// scaling when its factors are those of that rule, otherwise longrope with the factors as they are.
Result<ModelConfig> config_from_gguf(const io::GgufFile& file);

// The file's tensors under Hugging Face's names, in its layout: llama.cpp interleaves the rotary halves of q
// and k for the architecture "llama", read_f32() puts them apart again. bytes() of such a tensor is empty,
// since the stored rows are in another order; of all others it is what the file stores. Errors: those of
// open_gguf() and config_from_gguf(), a tensor whose name isn't known or whose shape contradicts the
// configuration.
Result<std::unique_ptr<io::Checkpoint>> open_gguf_as_hf(const std::string& path);
Result<std::unique_ptr<io::Checkpoint>> gguf_as_hf(std::unique_ptr<io::GgufFile> file);

// Errors: no tokenizer in the file (not_found), a kind other than "gpt2" and "llama" (unsupported), lists of
// different lengths or ids out of range (bad_format).
Result<text::GgufVocabulary> vocabulary_from_gguf(const io::GgufFile& file);
// The Jinja source; empty when the file has none.
Result<std::string> chat_template_from_gguf(const io::GgufFile& file);

struct GgufImportOptions {
  DType dtype = DType::bf16;  // of matrices: BF16, F16 or F32; what the file has in F32 of one dimension
                              // (norms) is written in the same type
  ParallelFor parallel{};
  Progress progress{};
};

// Expands a GGUF file to a Hugging Face folder, which is made if it isn't there: model.safetensors,
// config.json, tokenizer.json, tokenizer_config.json and generation_config.json. A new folder appears whole or
// not at all ("<folder>.partial-import" until then); into one that exists each file comes whole or not at all,
// model.safetensors last. Memory: a few MiB beside the tokenizer. Errors: those above, a
// pre-tokenizer that isn't known, F16 overflow, those of writing.
Status import_gguf(const std::string& path, const std::string& folder, const GgufImportOptions& options = {});

}  // namespace qf::model
