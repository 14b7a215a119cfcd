// What the commands ask about a model's files without opening it.
#pragma once

#include <cstdint>
#include <string>

namespace qf::cli {

// The largest small file that the program reads whole.
inline constexpr std::uint64_t kMostTextBytes = std::uint64_t{1} << 30;

bool is_folder(const std::string& path);
bool is_gguf(const std::string& path);  // by content

// Bytes of all regular files of a folder, links not followed, or of one file.
std::uint64_t size_on_disk(const std::string& path);
// The largest amount of memory that this process held so far.
std::uint64_t peak_memory_bytes();

}  // namespace qf::cli
