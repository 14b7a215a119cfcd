// tokenizer.json: the model, the added tokens, and the whole.
#include <algorithm>
#include <new>

#include "src/text_json.hpp"

namespace qf::text {
namespace detail {
namespace {

// Ids may have holes, but tables by id stay in proportion to the file.
std::int64_t most_ids(std::size_t tokens) {
  return 8 * static_cast<std::int64_t>(tokens) + 4096;
}

Result<std::int32_t> read_id(const Json& value, std::string_view place, std::size_t tokens) {
  if (!value.is_number_integer())
    return Status(Errc::bad_format, cat({place, ": an integer id expected, ", value.type_name(), " found"}));
  const std::int64_t most = std::min<std::int64_t>(most_ids(tokens), 0x7ffffff0);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= static_cast<std::uint64_t>(most))
    return Status(Errc::bad_format, cat({place, ": id ", value.dump(), " is outside of [0, ", num(most),
                                         "), the range for ", num(tokens), " tokens"}));
  return value.get<std::int32_t>();
}

Result<Vocabulary> read_vocabulary(const Node& model) {
  QF_TRY_ASSIGN(const Node node, model.object("vocab"));
  const Json& vocab = node.json();
  std::vector<std::string> texts;
  std::vector<bool> present;
  for (const auto& [text, value] : vocab.items()) {
    QF_TRY_ASSIGN(const std::int32_t id,
                  read_id(value, cat({node.place(), "[", printable(text), "]"}), vocab.size()));
    if (static_cast<std::size_t>(id) >= texts.size()) {
      texts.resize(static_cast<std::size_t>(id) + 1);
      present.resize(static_cast<std::size_t>(id) + 1);
    }
    if (present[id])
      return node.bad(cat({": ", printable(texts[id]), " and ", printable(text), " both have id ", num(id)}));
    texts[id] = text;
    present[id] = true;
  }
  return Vocabulary::make(std::move(texts), std::move(present));
}

// "a b" or ["a", "b"].
Result<std::vector<MergeRule>> read_merges(const Node& model, const Vocabulary& vocabulary) {
  const Json* merges = model.find("merges");
  if (!merges || !merges->is_array()) return model.wrong("merges", "an array", merges);
  std::vector<MergeRule> rules;
  rules.reserve(merges->size());
  for (std::size_t i = 0; i < merges->size(); ++i) {
    const Json& merge = (*merges)[i];
    const auto bad = [&](std::string_view text) { return model.bad(cat({".merges[", num(i), "]: ", text})); };
    std::string left, right;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.rfind("#version", 0) == 0) continue;
      const std::size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos)
        return bad(cat({"two tokens with one space between expected, ", printable(text), " found"}));
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      return bad("a string or two strings expected");
    }
    const std::string result = left + right;
    const MergeRule rule{vocabulary.find(left), vocabulary.find(right), vocabulary.find(result),
                         static_cast<std::int32_t>(rules.size())};
    const std::string* texts[] = {&left, &right, &result};
    const std::int32_t ids[] = {rule.left, rule.right, rule.result};
    for (int part = 0; part < 3; ++part)
      if (ids[part] == kNoToken)
        return bad(cat({"token ", printable(*texts[part]), " is not in the vocabulary"}));
    rules.push_back(rule);
  }
  return rules;
}

Result<BpeModel> read_model(const Node& model) {
  QF_TRY_ASSIGN(const std::string type, model.text("type", "BPE"));
  if (type != "BPE") return model.unsupported("model", type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json* value = model.find(key); value && *value != "")
      return Status(Errc::unsupported,
                    cat({model.place(), ".", key, ": ", printable(value->dump()), " is not supported"}));
  QF_TRY_ASSIGN(Vocabulary vocabulary, read_vocabulary(model));
  QF_TRY_ASSIGN(std::vector<MergeRule> rules, read_merges(model, vocabulary));
  BpeOptions options;
  QF_TRY_ASSIGN(options.fuse_unk, model.boolean("fuse_unk", false));
  QF_TRY_ASSIGN(options.byte_fallback, model.boolean("byte_fallback", false));
  QF_TRY_ASSIGN(options.ignore_merges, model.boolean("ignore_merges", false));
  if (model.find("unk_token")) {
    QF_TRY_ASSIGN(const std::string unk, model.text("unk_token"));
    options.unk = vocabulary.find(unk);
    if (options.unk == kNoToken)
      return model.bad(cat({".unk_token: ", printable(unk), " is not in the vocabulary"}));
  }
  return BpeModel(std::move(vocabulary), std::move(rules), options);
}

Status read_added_tokens(const Node& root, const Vocabulary& vocabulary, std::vector<AddedToken>& tokens) {
  if (!root.find("added_tokens")) return {};
  QF_TRY_ASSIGN(const std::vector<Node> nodes, root.objects("added_tokens"));
  std::unordered_map<std::int32_t, std::size_t> by_id;
  std::unordered_map<std::string, std::size_t> by_content;
  for (const Node& node : nodes) {
    AddedToken token;
    QF_TRY_ASSIGN(token.content, node.text("content"));
    const Json* id = node.find("id");
    if (!id) return node.wrong("id", "an integer id", id);
    QF_TRY_ASSIGN(token.id, read_id(*id, node.place() + ".id",
                                    static_cast<std::size_t>(vocabulary.size()) + nodes.size()));
    if (token.content.empty()) return node.bad(".content: must not be empty");
    QF_TRY_ASSIGN(token.special, node.boolean("special", false));
    QF_TRY_ASSIGN(token.normalized, node.boolean("normalized", !token.special));
    QF_TRY_ASSIGN(token.single_word, node.boolean("single_word", false));
    QF_TRY_ASSIGN(token.lstrip, node.boolean("lstrip", false));
    QF_TRY_ASSIGN(token.rstrip, node.boolean("rstrip", false));
    const std::int32_t known = vocabulary.find(token.content);
    if (known != kNoToken && known != token.id)
      return node.bad(cat({": ", printable(token.content), " has id ", num(token.id), " here and ",
                           num(known), " in the vocabulary"}));
    if (known == kNoToken && vocabulary.contains(token.id))
      return node.bad(cat({": id ", num(token.id), " belongs to ", printable(vocabulary.text(token.id)),
                           " in the vocabulary"}));
    if (!by_id.try_emplace(token.id, tokens.size()).second)
      return node.bad(cat({": id ", num(token.id), " stands twice among the added tokens"}));
    if (!by_content.try_emplace(token.content, tokens.size()).second)
      return node.bad(cat({": ", printable(token.content), " stands twice among the added tokens"}));
    tokens.push_back(std::move(token));
  }
  return {};
}

Result<TokenizerParts> read(const Node& root) {
  TokenizerParts parts;
  QF_TRY_ASSIGN(const Node model, root.object("model"));
  QF_TRY_ASSIGN(parts.model, read_model(model));
  QF_TRY(read_added_tokens(root, parts.model.vocabulary(), parts.added));
  std::int64_t size = parts.model.vocabulary().size();
  for (const AddedToken& token : parts.added) size = std::max<std::int64_t>(size, token.id + 1);
  if (root.find("normalizer")) {
    QF_TRY_ASSIGN(const Node node, root.object("normalizer"));
    QF_TRY(read_normalizers(node, parts.normalizers));
  }
  if (root.find("pre_tokenizer")) {
    QF_TRY_ASSIGN(const Node node, root.object("pre_tokenizer"));
    QF_TRY(read_pre_tokenizers(node, parts.pre_tokenizers));
  }
  if (root.find("decoder")) {
    QF_TRY_ASSIGN(const Node node, root.object("decoder"));
    QF_TRY(read_decoders(node, parts.decoders));
  }
  if (root.find("post_processor")) {
    QF_TRY_ASSIGN(const Node node, root.object("post_processor"));
    QF_TRY(read_post_processors(node, size, parts));
  }
  return parts;
}

}  // namespace
}  // namespace detail

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json,
                                                        std::string_view what) {
  try {
    QF_TRY_ASSIGN(const Json document, parse_json(tokenizer_json, what));
    if (!document.is_object())
      return Status(Errc::bad_format, cat({what, ": an object expected, ", document.type_name(), " found"}));
    auto parts = detail::read(detail::Node(document, ""));
    if (!parts.ok()) return parts.status().at(what);
    return detail::BpeTokenizer::make(std::move(*parts), what);
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({what, ": no memory for the tokenizer"}));
  }
}

}  // namespace qf::text
