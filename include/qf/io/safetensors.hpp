// Needs: link qf. Reading safetensors: one file, a folder with one file, or a folder of shards with an index.
// Source of the format: huggingface/safetensors 0.8.0, README and `tensor.rs`.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qf/core/result.hpp"
#include "qf/io/checkpoint.hpp"

namespace qf::io {

// Text pairs of a header's __metadata__, sorted by key.
using Metadata = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsOptions {
  // By default the reader is stricter than the reference, which lets these through: a key that stands twice
  // (the last one wins), spaces before the header's '{', white space other than spaces after its '}', tensor
  // names that are empty, hold control bytes or could be taken for a path out of a folder ("/a", "../a").
  // Also an index whose total_size is wrong. Everything else is always refused.
  bool lenient = false;
};

class Safetensors : public Checkpoint {
 public:
  // Of a folder of shards: of its first shard.
  virtual const Metadata& metadata() const = 0;
};

// `path` is a file or a folder; in a folder "model.safetensors" comes before "model.safetensors.index.json".
// Errors name the file and the tensor: bad_format, not_found, io_error, out_of_memory; invalid_argument for a
// shard name that leaves the folder.
Result<std::unique_ptr<Safetensors>> open_safetensors(const std::string& path,
                                                      const SafetensorsOptions& options = {});

// The same from memory, which must outlive the result; `name` stands in errors.
Result<std::unique_ptr<Safetensors>> parse_safetensors(std::span<const std::byte> file,
                                                       const std::string& name,
                                                       const SafetensorsOptions& options = {});

}  // namespace qf::io
