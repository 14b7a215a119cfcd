#include "src/text_pipeline.hpp"

#include <algorithm>

namespace qf::text::detail {

Status Pattern::split(std::string_view subject, std::vector<Span>& spans) const {
  if (regex) return Matcher(*regex).split(subject, spans);
  std::size_t covered = 0;
  for (std::size_t at; (at = subject.find(literal, covered)) != subject.npos;) {
    if (covered < at) spans.push_back({covered, at, false});
    covered = at + literal.size();
    spans.push_back({at, covered, true});
  }
  if (covered < subject.size()) spans.push_back({covered, subject.size(), false});
  return {};
}

Status Pattern::replace(std::string& text, std::string_view content) const {
  std::vector<Span> spans;
  QF_TRY(split(text, spans));
  std::string result;
  result.reserve(text.size());
  for (const Span& span : spans)
    result += span.match ? content : std::string_view(text).substr(span.begin, span.end - span.begin);
  text = std::move(result);
  return {};
}

namespace {

void strip(std::string& text, bool left, bool right) {
  std::size_t begin = text.size(), end = 0;  // of what isn't white space
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    if (is_white_space(next_code_point(text, at))) continue;
    begin = std::min(begin, start);
    end = at;
  }
  if (!left) begin = 0;
  if (!right) end = text.size();
  text = begin < end ? text.substr(begin, end - begin) : std::string();
}

}  // namespace

Status normalize(const std::vector<Normalizer>& steps, std::string& text) {
  for (const Normalizer& step : steps) {
    switch (step.kind) {
      case Normalizer::Kind::form:
        text = normalize(text, step.form);
        break;
      case Normalizer::Kind::lowercase:
        text = lower_case(text);
        break;
      case Normalizer::Kind::strip:
        strip(text, step.left, step.right);
        break;
      case Normalizer::Kind::strip_accents: {
        std::string kept;
        for (std::size_t at = 0; at < text.size();) {
          const char32_t c = next_code_point(text, at);
          if (!is_mark(c)) append_utf8(kept, c);
        }
        text = std::move(kept);
        break;
      }
      case Normalizer::Kind::prepend:
        if (!text.empty()) text.insert(0, step.content);
        break;
      case Normalizer::Kind::replace:
        QF_TRY(step.pattern.replace(text, step.content));
        break;
      case Normalizer::Kind::byte_level: {
        std::string mapped;
        for (char c : text) append_utf8(mapped, byte_level_character(static_cast<unsigned char>(c)));
        text = std::move(mapped);
        break;
      }
    }
  }
  return {};
}

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

namespace {

// The bytes of a token of byte-level BPE; a token with other characters stands for its own text.
std::string byte_level_bytes(const std::string& token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const int byte = byte_of_byte_level_character(next_code_point(token, at));
    if (byte < 0) return token;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

void strip_content(std::string& token, const Decoder& step, bool start, bool stop) {
  const std::size_t width = step.content.size();
  for (std::size_t i = 0; start && i < step.start && token.compare(0, width, step.content) == 0; ++i)
    token.erase(0, width);
  for (std::size_t i = 0; stop && i < step.stop && token.size() >= width &&
                          token.compare(token.size() - width, width, step.content) == 0;
       ++i)
    token.erase(token.size() - width);
}

void metaspace(std::string& token, const Decoder& step, bool first) {
  std::string text;
  const std::size_t width = step.replacement.size();
  for (std::size_t at = 0; at < token.size();) {
    if (token.compare(at, width, step.replacement) == 0) {
      if (!(first && step.drop_first)) text += ' ';
      at += width;
    } else {
      text += token[at++];
    }
  }
  token = std::move(text);
}

// Runs of byte tokens become their text, or one U+FFFD a byte where that isn't UTF-8.
void byte_fallback(std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (to_valid_utf8(bytes) == bytes)
      out.push_back(bytes);
    else
      out.insert(out.end(), bytes.size(), "\xef\xbf\xbd");
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const int byte = byte_of_token(token); byte >= 0) {
      bytes += static_cast<char>(byte);
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(out);
}

std::string join(const std::vector<std::string>& tokens, std::string_view between = "") {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i) text += between;
    text += tokens[i];
  }
  return text;
}

}  // namespace

Result<std::string> decode(const std::vector<Decoder>& steps, std::vector<std::string> tokens) {
  if (steps.empty()) return join(tokens, " ");
  for (const Decoder& step : steps) {
    switch (step.kind) {
      case Decoder::Kind::byte_level: {
        std::string bytes;
        for (const std::string& token : tokens) bytes += byte_level_bytes(token);
        tokens.assign(1, to_valid_utf8(bytes));
        break;
      }
      case Decoder::Kind::byte_fallback:
        byte_fallback(tokens);
        break;
      case Decoder::Kind::fuse:
        tokens.assign(1, join(tokens));
        break;
      case Decoder::Kind::replace:
        for (std::string& token : tokens) QF_TRY(step.pattern.replace(token, step.content));
        break;
      case Decoder::Kind::strip:
        for (std::string& token : tokens) strip_content(token, step, true, true);
        break;
      case Decoder::Kind::metaspace:
        for (std::size_t i = 0; i < tokens.size(); ++i) metaspace(tokens[i], step, i == 0);
        break;
    }
  }
  return join(tokens);
}

Result<std::string> decode_token(const std::vector<Decoder>& steps, std::string token, bool first) {
  bool whole_text = false, raw = false;  // raw: no text any more but bytes, which later steps leave alone
  for (const Decoder& step : steps) {
    switch (step.kind) {
      case Decoder::Kind::byte_level:
        token = byte_level_bytes(token);
        raw = whole_text = true;
        break;
      case Decoder::Kind::byte_fallback:
        if (const int byte = byte_of_token(token); byte >= 0) {
          token.assign(1, static_cast<char>(byte));
          raw = byte >= 0x80;
        }
        break;
      case Decoder::Kind::fuse:
        whole_text = true;
        break;
      case Decoder::Kind::replace:
        if (!raw) QF_TRY(step.pattern.replace(token, step.content));
        break;
      case Decoder::Kind::strip:
        strip_content(token, step, first || !whole_text, !whole_text);
        break;
      case Decoder::Kind::metaspace:
        metaspace(token, step, first);
        break;
    }
  }
  return token;
}

}  // namespace qf::text::detail
