// Needs: link qf. Packed weights in a file that is mapped and multiplied with in place: nothing is packed, copied or
// even read at the next start until a layer needs it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qf/io/mapped_file.hpp"
#include "qf/kernel/matmul.hpp"

namespace qf::model {

struct NamedWeight {
  std::string_view name;
  const kernel::PackedWeight* weight;
};

// Writes `weights` to `path`, whole or not at all. `source` says what they were packed from, such as a hash of the
// checkpoint; a reader compares it. The same bytes for the same weights. Errors: names that are empty or given twice,
// those of io::AtomicFile.
Status save_packed(const std::string& path, std::span<const NamedWeight> weights,
                   std::string_view source = {});

// The weights of such a file, on any CPU of the same byte order: the layout doesn't depend on the instruction set.
// Move-only; const use from many threads. Its weights must not outlive it.
class PackedFile {
 public:
  PackedFile() = default;
  // Checks the header, the index and all that PackedWeight::from_bytes checks; codes and scales are taken as they are.
  // Errors, each with the path in front: those of io::MappedFile, bad_format, unsupported (another version).
  static Result<PackedFile> open(const std::string& path);

  std::span<const std::string> names() const { return names_; }
  std::string_view source() const { return source_; }
  // nullptr: the file has no such weight.
  const kernel::PackedWeight* find(std::string_view name) const;

 private:
  io::MappedFile file_;
  std::string source_;
  std::vector<std::string> names_;             // sorted
  std::vector<kernel::PackedWeight> weights_;  // of the same place
};

}  // namespace qf::model
