#include <optional>

#include "src/text_pipeline.hpp"

namespace qf::text::detail {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Spans of characters that `is` accepts: each by itself, or whole runs.
template <class Predicate>
void split_characters(std::string_view text, bool runs, Predicate is, std::vector<Span>& spans) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const bool match = is(next_code_point(text, at));
    if (!spans.empty() && spans.back().match == match && (runs || !match) && begin != 0)
      spans.back().end = at;
    else
      spans.push_back({begin, at, match});
  }
}

// Turns spans into the pieces that a behaviour keeps.
void keep(std::vector<Span>& spans, SplitBehavior behavior, bool invert, std::size_t offset,
          std::vector<Pieces::Range>& out) {
  if (invert)
    for (Span& span : spans) span.match = !span.match;
  const auto add = [&](std::size_t begin, std::size_t end) {
    if (begin < end) out.push_back({offset + begin, offset + end});
  };
  switch (behavior) {
    case SplitBehavior::isolated:
      for (const Span& span : spans) add(span.begin, span.end);
      return;
    case SplitBehavior::removed:
      for (const Span& span : spans)
        if (!span.match) add(span.begin, span.end);
      return;
    case SplitBehavior::contiguous:
      for (std::size_t i = 0; i < spans.size();) {
        std::size_t last = i;
        while (last + 1 < spans.size() && spans[last + 1].match == spans[i].match) ++last;
        add(spans[i].begin, spans[last].end);
        i = last + 1;
      }
      return;
    case SplitBehavior::merged_with_previous:
      // A match joins what stands before it, unless that is a match too.
      for (std::size_t i = 0; i < spans.size(); ++i) {
        const bool joins = i + 1 < spans.size() && !spans[i].match && spans[i + 1].match;
        add(spans[i].begin, spans[joins ? i + 1 : i].end);
        if (joins) ++i;
      }
      return;
    case SplitBehavior::merged_with_next:
      // Decided from the end: a match joins what stands behind it, unless that is a match too.
      for (std::size_t i = 0; i < spans.size(); ++i) {
        const bool joins = i + 1 < spans.size() && spans[i].match && !spans[i + 1].match;
        add(spans[i].begin, spans[joins ? i + 1 : i].end);
        if (joins) ++i;
      }
      return;
  }
}

// Calls cut(piece, spans) for every piece and keeps the pieces of the spans.
template <class Cut>
Status refine(Pieces& pieces, SplitBehavior behavior, bool invert, Cut cut) {
  std::vector<Pieces::Range> ranges;
  ranges.reserve(pieces.ranges.size());
  std::vector<Span> spans;
  for (const auto& range : pieces.ranges) {
    spans.clear();
    QF_TRY(cut(std::string_view(pieces.text).substr(range.begin, range.end - range.begin), spans));
    keep(spans, behavior, invert, range.begin, ranges);
  }
  pieces.ranges = std::move(ranges);
  return {};
}

// Calls write(piece, is_first, text), which appends the piece's new text.
template <class Write>
void rewrite(Pieces& pieces, Write write) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (auto& range : pieces.ranges) {
    const std::size_t begin = text.size();
    write(std::string_view(pieces.text).substr(range.begin, range.end - range.begin), range.begin == 0, text);
    range = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

Status split(const Pattern& pattern, SplitBehavior behavior, bool invert, Pieces& pieces) {
  if (!pattern.regex)
    return refine(pieces, behavior, invert, [&](std::string_view piece, std::vector<Span>& spans) {
      return pattern.split(piece, spans);
    });
  Matcher matcher(*pattern.regex);
  return refine(pieces, behavior, invert, [&](std::string_view piece, std::vector<Span>& spans) {
    return matcher.split(piece, spans);
  });
}

Status byte_level(const PreTokenizer& step, Pieces& pieces) {
  if (step.add_prefix_space)
    rewrite(pieces, [](std::string_view piece, bool, std::string& text) {
      if (piece.front() != ' ') text += ' ';
      text += piece;
    });
  if (step.use_regex) QF_TRY(split(step.pattern, SplitBehavior::isolated, false, pieces));
  rewrite(pieces, [](std::string_view piece, bool, std::string& text) {
    for (char c : piece) append_utf8(text, byte_level_character(static_cast<unsigned char>(c)));
  });
  return {};
}

Status metaspace(const PreTokenizer& step, Pieces& pieces) {
  rewrite(pieces, [&](std::string_view piece, bool first, std::string& text) {
    const bool has = piece.front() == ' ' || piece.substr(0, step.replacement.size()) == step.replacement;
    if (!has && (step.prepend == PreTokenizer::Prepend::always ||
                 (step.prepend == PreTokenizer::Prepend::first && first && pieces.at_start)))
      text += step.replacement;
    for (char c : piece)
      if (c == ' ')
        text += step.replacement;
      else
        text += c;
  });
  if (!step.split) return {};
  return split(Pattern{step.replacement, nullptr}, SplitBehavior::merged_with_next, false, pieces);
}

Status apply(const PreTokenizer& step, Pieces& pieces) {
  const auto by_characters = [&](SplitBehavior behavior, bool runs, auto is) {
    return refine(pieces, behavior, false, [&](std::string_view piece, std::vector<Span>& spans) {
      split_characters(piece, runs, is, spans);
      return Status();
    });
  };
  switch (step.kind) {
    case PreTokenizer::Kind::byte_level:
      return byte_level(step, pieces);
    case PreTokenizer::Kind::split:
      return split(step.pattern, step.behavior, step.invert, pieces);
    case PreTokenizer::Kind::metaspace:
      return metaspace(step, pieces);
    case PreTokenizer::Kind::digits:
      return by_characters(SplitBehavior::isolated, !step.individual_digits, is_number);
    case PreTokenizer::Kind::punctuation:
      return by_characters(step.behavior, false, is_punctuation);
    case PreTokenizer::Kind::whitespace_split:
      return by_characters(SplitBehavior::removed, true, is_white_space);
    case PreTokenizer::Kind::whitespace:
      // Runs of word characters and runs of anything else that isn't white space.
      return refine(pieces, SplitBehavior::removed, false,
                    [&](std::string_view piece, std::vector<Span>& spans) {
                      int last = -1;
                      for (std::size_t at = 0; at < piece.size();) {
                        const std::size_t begin = at;
                        const char32_t c = next_code_point(piece, at);
                        const int now = is_white_space(c) ? 0 : is_word(c) ? 1 : 2;
                        if (now == last)
                          spans.back().end = at;
                        else
                          spans.push_back({begin, at, now == 0});
                        last = now;
                      }
                      return Status();
                    });
  }
  return {};
}

}  // namespace

Status pre_tokenize(const std::vector<PreTokenizer>& steps, Pieces& pieces) {
  for (const PreTokenizer& step : steps) QF_TRY(apply(step, pieces));
  return {};
}

}  // namespace qf::text::detail
