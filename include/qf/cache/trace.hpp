// Needs: link qf. Traces of requests: which blocks each of them reads, from the first block of its prompt on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/result.hpp"

namespace qf::cache {

// Blocks are numbered from 0 in the order in which they appear. A block is an id together with all ids before it in its
// request, as in a cache whose keys are chained hashes: equal ids behind different prefixes are different blocks.
struct Trace {
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::vector<std::uint32_t> blocks;     // of all requests, one after the other
  std::vector<std::size_t> starts{0};    // of request r: blocks starts[r] ... starts[r + 1] - 1
  std::vector<std::uint32_t> parents{};  // of each block; kNone: the first of a prompt
  std::string format{};                  // "mooncake", "azure" or "plain"

  std::size_t requests() const { return starts.size() - 1; }
  std::size_t unique() const { return parents.size(); }
  std::span<const std::uint32_t> request(std::size_t r) const {
    return {blocks.data() + starts[r], starts[r + 1] - starts[r]};
  }
};

// Adds requests to a trace.
class TraceBuilder {
 public:
  TraceBuilder();
  ~TraceBuilder();
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;
  // Ids of one request from the first block on. Errors: unsupported, for more than 2^31 blocks in all.
  Status add(std::span<const std::uint64_t> ids);
  Trace finish(std::string_view format);

 private:
  struct Index;
  Trace trace_;
  Index* index_;
};

// Reads a trace; what kind it is, its first line says:
//   mooncake  a JSON object a line with "hash_ids", an array of integers of at most 64 bits (the traces of Mooncake, FAST 2025)
//   azure     CSV whose heading names ContextTokens (Azure's LLM inference traces). They say how long prompts were and not
//             what stood in them, so no two requests share a block of `block_tokens` tokens
//   plain     ids a line, separated by blanks or commas; '#' starts a comment
// Errors name the file and the line: bad_format, not_found, io_error, unsupported (too large).
Result<Trace> read_trace(const std::string& path, std::int64_t block_tokens = 512);
// The same from memory; `name` stands for the path in errors.
Result<Trace> parse_trace(std::string_view text, std::string_view name, std::int64_t block_tokens = 512);

}  // namespace qf::cache
