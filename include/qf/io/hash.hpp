// Needs: link qf. XXH3 of byte ranges: tells whether bytes are the same, fast; no protection against someone who
// wants two to look alike. Source: xxHash 0.8, XXH3_64bits and XXH3_128bits with seed 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace qf::io {

struct Hash128 {
  std::uint64_t low = 0, high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  std::string hex() const;  // 32 digits, high half first, as xxhsum prints it
};

std::uint64_t hash64(std::span<const std::byte> bytes);
Hash128 hash128(std::span<const std::byte> bytes);

// The same over pieces: however the bytes are cut, the digests are those of the whole. Never allocates.
// Copyable; one thread at a time.
class Hasher {
 public:
  Hasher();
  void update(std::span<const std::byte> piece);
  std::uint64_t digest64() const;
  Hash128 digest128() const;

 private:
  alignas(64) unsigned char state_[640];
};

}  // namespace qf::io
