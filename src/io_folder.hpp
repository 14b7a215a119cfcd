// Files that a folder's own contents name (shards): opened without leaving the folder.
#pragma once

#include <string>
#include <string_view>

#include "qf/io/mapped_file.hpp"

namespace qf::io::detail {

bool is_folder(const std::string& path);
bool is_present(const std::string& path);  // a link counts, whether or not it leads anywhere

// Opens `name`, which came from a file, in `folder`. Refused: anything but a plain name (no '/', no "..");
// symbolic links that lead out of the folder, except into the folder "blobs" beside the folder "snapshots"
// that the folder lies in, which is how the cache of Hugging Face stores every file.
Result<MappedFile> open_in_folder(const std::string& folder, std::string_view name);

// Why a folder holds no model: names what it holds instead.
std::string no_model_text(const std::string& folder);

}  // namespace qf::io::detail
