#include "src/text_json.hpp"

namespace qf::text::detail {

const Json* Node::find(const char* key) const {
  const auto it = json_->find(key);
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

std::string Node::place_of(const char* key) const {
  return place_.empty() ? key : cat({place_, ".", key});
}

Status Node::wrong(const char* key, std::string_view expected, const Json* found) const {
  return Status(Errc::bad_format, cat({place_of(key), ": ", expected, " expected, ",
                                       found ? found->type_name() : "nothing", " found"}));
}

Status Node::unsupported(std::string_view part, std::string_view type) const {
  return Status(Errc::unsupported, cat({place_, ": ", part, " type ", printable(type), " is not supported"}));
}

Result<bool> Node::boolean(const char* key, bool otherwise) const {
  const Json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_boolean()) return wrong(key, "a boolean", value);
  return value->get<bool>();
}

Result<std::string> Node::text(const char* key) const {
  const Json* value = find(key);
  if (!value || !value->is_string()) return wrong(key, "a string", value);
  return value->get<std::string>();
}

Result<std::string> Node::text(const char* key, std::string otherwise) const {
  if (!find(key)) return otherwise;
  return text(key);
}

Result<std::size_t> Node::count(const char* key) const {
  const Json* value = find(key);
  if (!value || !value->is_number_unsigned()) return wrong(key, "a number from 0 on", value);
  return value->get<std::size_t>();
}

Result<Node> Node::object(const char* key) const {
  const Json* value = find(key);
  if (!value || !value->is_object()) return wrong(key, "an object", value);
  return Node(*value, place_of(key));
}

Result<std::vector<Node>> Node::objects(const char* key) const {
  const Json* value = find(key);
  if (!value || !value->is_array()) return wrong(key, "an array", value);
  std::vector<Node> nodes;
  nodes.reserve(value->size());
  for (std::size_t i = 0; i < value->size(); ++i) {
    nodes.emplace_back((*value)[i], cat({place_of(key), "[", num(i), "]"}));
    if (!(*value)[i].is_object())
      return nodes.back().bad(cat({": an object expected, ", (*value)[i].type_name(), " found"}));
  }
  return nodes;
}

Result<Pattern> Node::pattern(const char* key) const {
  QF_TRY_ASSIGN(const Node node, object(key));
  Pattern pattern;
  if (node.find("Regex")) {
    QF_TRY_ASSIGN(const std::string text, node.text("Regex"));
    auto regex = Regex::compile(text);
    if (!regex.ok()) return regex.status().at(node.place());
    pattern.regex = std::move(*regex);
    return pattern;
  }
  QF_TRY_ASSIGN(pattern.literal, node.text("String"));
  if (pattern.literal.empty()) return node.bad(".String: must not be empty");
  return pattern;
}

namespace {

// What several steps do: read "type", and call `step` for every member of a Sequence.
template <class Step>
Status for_each_step(const Node& node, const char* members, int depth, Step step) {
  const auto type = node.text("type");
  if (!type.ok()) return type.status();
  if (*type != "Sequence") return step(node, *type);
  if (depth > 8) return node.bad(": Sequence nested deeper than 8");
  QF_TRY_ASSIGN(const std::vector<Node> nodes, node.objects(members));
  if (nodes.size() > 256)
    return node.bad(cat({": a Sequence of ", num(nodes.size()), " steps, at most 256"}));
  for (const Node& inner : nodes) QF_TRY(for_each_step(inner, members, depth + 1, step));
  return {};
}

Status read_normalizer(const Node& node, const std::string& type, std::vector<Normalizer>& steps) {
  using Kind = Normalizer::Kind;
  Normalizer step{Kind::form};
  if (type == "NFC") {
    step.form = NormalForm::nfc;
  } else if (type == "NFD") {
    step.form = NormalForm::nfd;
  } else if (type == "NFKC") {
    step.form = NormalForm::nfkc;
  } else if (type == "NFKD") {
    step.form = NormalForm::nfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::lowercase;
  } else if (type == "StripAccents") {
    step.kind = Kind::strip_accents;
  } else if (type == "ByteLevel") {
    step.kind = Kind::byte_level;
  } else if (type == "Strip") {
    step.kind = Kind::strip;
    QF_TRY_ASSIGN(step.left, node.boolean("strip_left", true));
    QF_TRY_ASSIGN(step.right, node.boolean("strip_right", true));
  } else if (type == "Prepend") {
    step.kind = Kind::prepend;
    QF_TRY_ASSIGN(step.content, node.text("prepend"));
  } else if (type == "Replace") {
    step.kind = Kind::replace;
    QF_TRY_ASSIGN(step.pattern, node.pattern("pattern"));
    QF_TRY_ASSIGN(step.content, node.text("content"));
  } else {
    return node.unsupported("normalizer", type);
  }
  steps.push_back(std::move(step));
  return {};
}

Result<SplitBehavior> read_behavior(const Node& node, std::string otherwise) {
  QF_TRY_ASSIGN(const std::string name, node.text("behavior", std::move(otherwise)));
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  return node.bad(cat({".behavior: ", printable(name), " is not a split behavior"}));
}

// One character that stands for a space in Metaspace.
Result<std::string> read_replacement(const Node& node) {
  QF_TRY_ASSIGN(std::string replacement, node.text("replacement"));
  if (replacement.empty() ||
      character_bytes(static_cast<unsigned char>(replacement[0])) != replacement.size())
    return node.bad(cat({".replacement: one character expected, ", printable(replacement), " found"}));
  return replacement;
}

// "always", "first" or "never"; older files say add_prefix_space.
Result<PreTokenizer::Prepend> read_prepend(const Node& node) {
  QF_TRY_ASSIGN(const bool prefix, node.boolean("add_prefix_space", true));
  QF_TRY_ASSIGN(const std::string scheme, node.text("prepend_scheme", prefix ? "always" : "never"));
  if (!prefix && scheme != "never")
    return node.bad(cat({": add_prefix_space is false, but prepend_scheme is ", printable(scheme)}));
  if (scheme == "always") return PreTokenizer::Prepend::always;
  if (scheme == "first") return PreTokenizer::Prepend::first;
  if (scheme == "never") return PreTokenizer::Prepend::never;
  return node.bad(cat({".prepend_scheme: ", printable(scheme), " is none of 'always', 'first', 'never'"}));
}

Status read_pre_tokenizer(const Node& node, const std::string& type, std::vector<PreTokenizer>& steps) {
  using Kind = PreTokenizer::Kind;
  PreTokenizer step{Kind::split};
  if (type == "ByteLevel") {
    step.kind = Kind::byte_level;
    QF_TRY_ASSIGN(step.add_prefix_space, node.boolean("add_prefix_space", true));
    QF_TRY_ASSIGN(step.use_regex, node.boolean("use_regex", true));
    if (step.use_regex) {
      QF_TRY_ASSIGN(step.pattern.regex, Regex::compile(kGpt2Pattern));
    }
  } else if (type == "Split") {
    QF_TRY_ASSIGN(step.pattern, node.pattern("pattern"));
    if (!node.find("behavior")) return node.wrong("behavior", "a string", nullptr);
    QF_TRY_ASSIGN(step.behavior, read_behavior(node, ""));
    QF_TRY_ASSIGN(step.invert, node.boolean("invert", false));
  } else if (type == "CharDelimiterSplit") {
    QF_TRY_ASSIGN(step.pattern.literal, node.text("delimiter"));
    if (step.pattern.literal.empty()) return node.bad(".delimiter: must not be empty");
    step.behavior = SplitBehavior::removed;
  } else if (type == "Digits") {
    step.kind = Kind::digits;
    QF_TRY_ASSIGN(step.individual_digits, node.boolean("individual_digits", false));
  } else if (type == "Punctuation") {
    step.kind = Kind::punctuation;
    QF_TRY_ASSIGN(step.behavior, read_behavior(node, "Isolated"));
  } else if (type == "Whitespace") {
    step.kind = Kind::whitespace;
  } else if (type == "WhitespaceSplit") {
    step.kind = Kind::whitespace_split;
  } else if (type == "Metaspace") {
    step.kind = Kind::metaspace;
    QF_TRY_ASSIGN(step.replacement, read_replacement(node));
    QF_TRY_ASSIGN(step.prepend, read_prepend(node));
    QF_TRY_ASSIGN(step.split, node.boolean("split", true));
  } else {
    return node.unsupported("pre_tokenizer", type);
  }
  steps.push_back(std::move(step));
  return {};
}

Status read_decoder(const Node& node, const std::string& type, std::vector<Decoder>& steps) {
  using Kind = Decoder::Kind;
  Decoder step{Kind::fuse};
  if (type == "ByteLevel") {
    step.kind = Kind::byte_level;
  } else if (type == "ByteFallback") {
    step.kind = Kind::byte_fallback;
  } else if (type == "Replace") {
    step.kind = Kind::replace;
    QF_TRY_ASSIGN(step.pattern, node.pattern("pattern"));
    QF_TRY_ASSIGN(step.content, node.text("content"));
  } else if (type == "Strip") {
    step.kind = Kind::strip;
    QF_TRY_ASSIGN(step.content, node.text("content"));
    if (step.content.empty() ||
        character_bytes(static_cast<unsigned char>(step.content[0])) != step.content.size())
      return node.bad(cat({".content: one character expected, ", printable(step.content), " found"}));
    QF_TRY_ASSIGN(step.start, node.count("start"));
    QF_TRY_ASSIGN(step.stop, node.count("stop"));
  } else if (type == "Metaspace") {
    step.kind = Kind::metaspace;
    QF_TRY_ASSIGN(step.replacement, read_replacement(node));
    QF_TRY_ASSIGN(const PreTokenizer::Prepend prepend, read_prepend(node));
    step.drop_first = prepend != PreTokenizer::Prepend::never;
  } else if (type != "Fuse") {
    return node.unsupported("decoder", type);
  }
  steps.push_back(std::move(step));
  return {};
}

// {"SpecialToken": {"id": "<s>", "type_id": 0}} stands for the ids listed under special_tokens.
Status read_template(const Node& node, std::int64_t size, TokenizerParts& parts) {
  QF_TRY_ASSIGN(const std::vector<Node> items, node.objects("single"));
  bool behind = false;
  std::vector<std::int32_t> prefix, suffix;
  for (const Node& item : items) {
    if (item.find("Sequence")) {
      QF_TRY_ASSIGN(const Node sequence, item.object("Sequence"));
      QF_TRY_ASSIGN(const std::string name, sequence.text("id"));
      if (name != "A" || behind)
        return Status(Errc::unsupported, sequence.place() + ": only one Sequence 'A' is supported");
      behind = true;
      continue;
    }
    QF_TRY_ASSIGN(const Node special, item.object("SpecialToken"));
    QF_TRY_ASSIGN(const std::string name, special.text("id"));
    QF_TRY_ASSIGN(const Node all, node.object("special_tokens"));
    const Json* entry = all.find(name.c_str());
    if (!entry || !entry->is_object())
      return special.bad(cat({": ", printable(name), " is not in special_tokens"}));
    const Json* ids = Node(*entry, "").find("ids");
    if (!ids || !ids->is_array()) return all.bad(cat({": ", printable(name), " has no array \"ids\""}));
    for (const Json& id : *ids) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(size))
        return all.bad(cat({": ", printable(name), " names an id that no token has"}));
      (behind ? suffix : prefix).push_back(id.get<std::int32_t>());
    }
  }
  if (!behind) return node.bad(".single: no Sequence 'A'");
  parts.prefix.insert(parts.prefix.begin(), prefix.begin(), prefix.end());
  parts.suffix.insert(parts.suffix.end(), suffix.begin(), suffix.end());
  return {};
}

Status read_post_processor(const Node& node, const std::string& type, std::int64_t size,
                           TokenizerParts& parts) {
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return read_template(node, size, parts);
  return node.unsupported("post_processor", type);
}

}  // namespace

Status read_normalizers(const Node& node, std::vector<Normalizer>& steps) {
  return for_each_step(node, "normalizers", 0, [&](const Node& step, const std::string& type) {
    return read_normalizer(step, type, steps);
  });
}

Status read_pre_tokenizers(const Node& node, std::vector<PreTokenizer>& steps) {
  return for_each_step(node, "pretokenizers", 0, [&](const Node& step, const std::string& type) {
    return read_pre_tokenizer(step, type, steps);
  });
}

Status read_decoders(const Node& node, std::vector<Decoder>& steps) {
  return for_each_step(node, "decoders", 0, [&](const Node& step, const std::string& type) {
    return read_decoder(step, type, steps);
  });
}

Status read_post_processors(const Node& node, std::int64_t size, TokenizerParts& parts) {
  return for_each_step(node, "processors", 0, [&](const Node& step, const std::string& type) {
    return read_post_processor(step, type, size, parts);
  });
}

}  // namespace qf::text::detail
