// What lies beside a model's weights: its tokenizer and chat template, in a Hugging Face folder or a GGUF
// file.
#pragma once

#include <memory>
#include <string>

#include "qf/core/result.hpp"
#include "qf/text/chat_template.hpp"
#include "qf/text/tokenizer.hpp"

namespace qf::cli {

// The largest small file that the program reads whole.
inline constexpr std::uint64_t kMostTextBytes = std::uint64_t{1} << 30;

bool is_folder(const std::string& path);
bool is_gguf(const std::string& path);  // by content

Result<std::unique_ptr<text::Tokenizer>> load_tokenizer(const std::string& model_path);
// ChatTemplate::none when the model brings no template. Errors: one that isn't known.
Result<text::ChatTemplate> load_chat_template(const std::string& model_path);

// Bytes of all regular files of a folder, links not followed, or of one file.
std::uint64_t size_on_disk(const std::string& path);
// The largest amount of memory that this process held so far.
std::uint64_t peak_memory_bytes();

}  // namespace qf::cli
