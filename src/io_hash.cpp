#include "qf/io/hash.hpp"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace qf::io {
namespace {

XXH3_state_t* state(unsigned char* bytes) {
  return reinterpret_cast<XXH3_state_t*>(bytes);
}
const XXH3_state_t* state(const unsigned char* bytes) {
  return reinterpret_cast<const XXH3_state_t*>(bytes);
}

}  // namespace

std::string Hash128::hex() const {
  std::string text;
  for (std::uint64_t half : {high, low})
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[half >> shift & 15];
  return text;
}

std::uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Hash128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

Hasher::Hasher() {
  static_assert(sizeof(XXH3_state_t) <= sizeof state_ && alignof(XXH3_state_t) <= 64);
  new (state_) XXH3_state_t;
  std::memset(state_, 0, sizeof state_);
  XXH3_128bits_reset(state(state_));  // both digests come from one state
}

void Hasher::update(std::span<const std::byte> piece) {
  if (!piece.empty()) XXH3_128bits_update(state(state_), piece.data(), piece.size());
}

std::uint64_t Hasher::digest64() const {
  return XXH3_64bits_digest(state(state_));
}

Hash128 Hasher::digest128() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state(state_));
  return {hash.low64, hash.high64};
}

}  // namespace qf::io
