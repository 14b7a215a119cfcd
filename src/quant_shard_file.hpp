// A weight file that fills up in any order, and can be looked at by whoever goes on with it.
#pragma once

#include <cstdint>
#include <string>

#include "qf/io/hash.hpp"
#include "src/io_posix.hpp"
#include "src/quant_plan.hpp"

namespace qf::quant::detail {

class ShardFile {
 public:
  // Opens or makes the file, reserves all of its bytes and writes the header. What an earlier run wrote stays.
  static Result<ShardFile> open(const std::string& folder, const Shard& shard);

  Status write(std::uint64_t offset, std::span<const std::byte> bytes);
  // The hash of what the file holds there.
  Result<io::Hash128> hash(std::uint64_t offset, std::uint64_t count) const;
  Status flush();

 private:
  std::string path_;
  io::detail::Descriptor file_;
  std::uint64_t unflushed_ = 0;
};

}  // namespace qf::quant::detail
