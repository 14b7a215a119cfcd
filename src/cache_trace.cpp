#include "qf/cache/trace.hpp"

#include <charconv>
#include <unordered_map>

#include "qf/cache/policy_lists.hpp"
#include "qf/core/json.hpp"
#include "qf/io/mapped_file.hpp"

namespace qf::cache {
namespace {

constexpr std::size_t kMostBlocks = std::size_t{1} << 31;
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 32;  // of a request

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// An integer of at most 64 bits that is all of `text`.
bool to_number(std::string_view text, std::uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

Status mooncake_line(std::string_view line, const std::string& place, std::vector<std::uint64_t>& ids) {
  QF_TRY_ASSIGN(const Json json, parse_json(line, place));
  const auto at = json.is_object() ? json.find("hash_ids") : json.end();
  if (!json.is_object() || at == json.end() || !at->is_array())
    return Status(Errc::bad_format, place + ": an object with an array \"hash_ids\" expected");
  for (const Json& id : *at) {
    if (!id.is_number_integer() || (!id.is_number_unsigned() && id.get<std::int64_t>() < 0))
      return Status(Errc::bad_format,
                    cat({place, ": \"hash_ids\" holds ", printable(id.dump(-1, ' ', true), 40),
                         ", an integer from 0 to 2^64 - 1 expected"}));
    ids.push_back(id.get<std::uint64_t>());
  }
  return {};
}

Status plain_line(std::string_view line, const std::string& place, std::vector<std::uint64_t>& ids) {
  if (const auto comment = line.find('#'); comment != std::string_view::npos) line = line.substr(0, comment);
  while (!line.empty()) {
    const std::size_t end = std::min(line.find_first_of(" \t,\r"), line.size());
    std::uint64_t id = 0;
    if (end && !to_number(line.substr(0, end), &id))
      return Status(Errc::bad_format, cat({place, ": ", printable(line.substr(0, end), 40),
                                           " found, an integer from 0 to 2^64 - 1 expected"}));
    if (end) ids.push_back(id);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return {};
}

// Field `column` of a line of CSV without quotes; false if there are fewer.
bool csv_field(std::string_view line, std::size_t column, std::string_view* field) {
  for (; column; --column) {
    const auto comma = line.find(',');
    if (comma == std::string_view::npos) return false;
    line.remove_prefix(comma + 1);
  }
  *field = trimmed(line.substr(0, line.find(',')));
  return true;
}

class Reader {
 public:
  Reader(std::string_view name, std::int64_t block_tokens)
      : name_(name), block_tokens_(static_cast<std::uint64_t>(block_tokens)) {}

  Status line(std::string_view text) {
    ++number_;
    if (number_ == 1 && text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
    text = trimmed(text);
    if (text.empty() || (format_.empty() && text.front() == '#')) return {};
    const std::string place = cat({name_, ":", num(number_)});
    if (format_.empty()) {
      QF_TRY(choose(text, place));
      if (format_ == "azure") return {};
    }
    ids_.clear();
    if (format_ == "mooncake") QF_TRY(mooncake_line(text, place, ids_));
    if (format_ == "plain") QF_TRY(plain_line(text, place, ids_));
    if (format_ == "azure") QF_TRY(azure_line(text, place));
    if (ids_.empty()) return {};
    return builder_.add(ids_).at(place);
  }

  Result<Trace> finish() {
    Trace trace = builder_.finish(format_);
    if (!trace.requests()) return Status(Errc::bad_format, cat({name_, ": no requests"}));
    return trace;
  }

 private:
  Status choose(std::string_view text, const std::string& place) {
    if (text.front() == '{') {
      format_ = "mooncake";
    } else if (is_digit(text.front())) {
      format_ = "plain";
    } else {
      std::string_view field;
      for (; csv_field(text, column_, &field) && format_.empty(); ++column_)
        if (field == "ContextTokens") format_ = "azure";
      --column_;
    }
    if (!format_.empty()) return {};
    return Status(Errc::bad_format,
                  cat({place, ": ", printable(text, 40),
                       " found; a trace is JSON lines with \"hash_ids\", Azure's CSV with a heading that "
                       "names ContextTokens, or block ids a line"}));
  }

  // As many blocks as the prompt fills, the last one in part, none of them seen before.
  Status azure_line(std::string_view text, const std::string& place) {
    std::string_view field;
    std::uint64_t tokens = 0;
    if (!csv_field(text, column_, &field) || !to_number(field, &tokens) || tokens > kMostTokens)
      return Status(Errc::bad_format, cat({place, ": ContextTokens is ", printable(field, 40),
                                           ", an integer from 0 to 2^32 expected"}));
    const std::uint64_t blocks = (tokens + block_tokens_ - 1) / block_tokens_;
    for (std::uint64_t i = 0; i < blocks; ++i) ids_.push_back(fresh_++);
    return {};
  }

  std::string_view name_;
  std::uint64_t block_tokens_, fresh_ = 0;
  std::size_t number_ = 0, column_ = 0;
  std::string format_;
  std::vector<std::uint64_t> ids_;
  TraceBuilder builder_;
};

}  // namespace

// Finds a block by its id and parent.
struct TraceBuilder::Index {
  struct Name {
    std::uint64_t id;
    std::uint32_t parent;
    bool operator==(const Name&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Name& n) const {
      return static_cast<std::size_t>(detail::mix(detail::mix(n.id + 1) + n.parent));
    }
  };
  std::unordered_map<Name, std::uint32_t, Hash> blocks;
};

TraceBuilder::TraceBuilder() : index_(new Index) {}
TraceBuilder::~TraceBuilder() {
  delete index_;
}

Status TraceBuilder::add(std::span<const std::uint64_t> ids) {
  if (ids.size() > kMostBlocks - trace_.blocks.size())
    return Status(Errc::unsupported, cat({"more than ", num(kMostBlocks), " blocks in one trace"}));
  std::uint32_t parent = Trace::kNone;
  for (const std::uint64_t id : ids) {
    const auto [at, fresh] =
        index_->blocks.try_emplace({id, parent}, static_cast<std::uint32_t>(trace_.parents.size()));
    if (fresh) trace_.parents.push_back(parent);
    parent = at->second;
    trace_.blocks.push_back(parent);
  }
  trace_.starts.push_back(trace_.blocks.size());
  return {};
}

Trace TraceBuilder::finish(std::string_view format) {
  index_->blocks.clear();
  trace_.format = format;
  return std::exchange(trace_, Trace{});
}

Result<Trace> parse_trace(std::string_view text, std::string_view name, std::int64_t block_tokens) {
  if (block_tokens < 1)
    return Status(Errc::invalid_argument, cat({"blocks of ", num(block_tokens), " tokens"}));
  Reader reader(name, block_tokens);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    QF_TRY(reader.line(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.finish();
}

Result<Trace> read_trace(const std::string& path, std::int64_t block_tokens) {
  QF_TRY_ASSIGN(const io::MappedFile file, io::MappedFile::open(path));
  const auto bytes = file.bytes();
  return parse_trace({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, block_tokens);
}

}  // namespace qf::cache
