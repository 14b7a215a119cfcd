#include "qf/quant/recipe.hpp"

#include <algorithm>
#include <cmath>

#include "qf/core/json.hpp"
#include "src/quant_methods.hpp"
#include "src/quant_patterns.hpp"

namespace qf::quant {
namespace {

constexpr std::size_t kMostRules = 1000, kMostPatterns = 1000, kLongestGlob = 1024, kLongestWord = 256;
constexpr std::int64_t kLargestGroup = std::int64_t{1} << 31;

Status invalid(std::initializer_list<std::string_view> parts) {
  return Status(Errc::invalid_argument, cat(parts));
}

std::string rule_name(std::size_t index) {
  return "rule " + num(index + 1);
}

std::string joined(std::span<const std::string_view> names) {
  std::string text;
  for (std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string method_names(bool only_available, std::span<const std::string_view> own) {
  std::vector<std::string_view> names;
  for (const detail::MethodEntry& method : detail::methods())
    if (method.available || !only_available) names.push_back(method.name);
  names.insert(names.end(), own.begin(), own.end());
  return joined(names);
}

Status check_option(const detail::MethodEntry& method, const std::string& name, const OptionValue& value) {
  const auto entry = std::find_if(method.options.begin(), method.options.end(),
                                  [&](const detail::OptionEntry& option) { return option.name == name; });
  if (entry == method.options.end()) {
    std::vector<std::string_view> names;
    for (const detail::OptionEntry& option : method.options) names.push_back(option.name);
    return invalid(
        {"unknown option ", printable(name), " of method '", method.name, "'; known: ", joined(names)});
  }
  const std::string place = "option " + printable(name);
  switch (entry->kind) {
    case detail::OptionKind::flag:
      if (!std::holds_alternative<bool>(value)) return invalid({place, ": true or false expected"});
      break;
    case detail::OptionKind::number: {
      const double* number = std::get_if<double>(&value);
      if (!number || !(*number >= entry->least && *number <= entry->most))
        return invalid({place, ": a number from ", Json(entry->least).dump(), " to ",
                        Json(entry->most).dump(), " expected"});
      break;
    }
    case detail::OptionKind::word:
      if (!std::holds_alternative<std::string>(value)) return invalid({place, ": a string expected"});
      break;
  }
  return {};
}

Status check_rule(RecipeRule& rule, std::span<const std::string_view> own) {
  if (rule.globs.empty() == rule.regex.empty())
    return invalid({"'match': one pattern kind, globs or a regex, expected"});
  if (rule.globs.size() > kMostPatterns)
    return invalid(
        {"'match': ", num(rule.globs.size()), " patterns, at most ", num(kMostPatterns), " expected"});
  for (const std::string& glob : rule.globs) {
    if (glob.empty()) return invalid({"'match': an empty pattern"});
    if (glob.size() > kLongestGlob)
      return invalid(
          {"'match': a pattern of ", num(glob.size()), " bytes, at most ", num(kLongestGlob), " expected"});
    if (glob.find_first_of("[]{}\\") != std::string::npos)
      return invalid(
          {"'match': pattern ", printable(glob), ": '*' and '?' are the only wildcards; use a regex"});
  }
  if (rule.action == Action::convert && rule.dtype != DType::f32 && rule.dtype != DType::f16 &&
      rule.dtype != DType::bf16)
    return invalid({"'dtype': ", dtype_name(rule.dtype), ", one of f32, f16, bf16 expected"});
  if (rule.action != Action::quantize) return {};
  std::sort(rule.options.begin(), rule.options.end());
  if (const detail::MethodEntry* method = detail::find_method(rule.method)) {
    rule.scheme.codebook = method->codebook;
    for (const auto& [name, value] : rule.options) QF_TRY(check_option(*method, name, value));
  } else if (!contains(own, rule.method)) {
    return invalid({"unknown method ", printable(rule.method), "; known: ", method_names(false, own)});
  } else if (!rule.options.empty()) {
    return invalid({"method ", printable(rule.method), " takes no options from a recipe"});
  }
  return check(rule.scheme);
}

// A rule as JSON wrote it. Every key has one reader; what remains unread is unknown.
class RuleReader {
 public:
  explicit RuleReader(const Json& json) : json_(json) {}

  Result<RecipeRule> read() {
    if (!json_.is_object()) return invalid({"an object expected, found ", json_.type_name()});
    static constexpr std::string_view kKeys[] = {"match", "keep",  "dtype",     "method",  "bits",
                                                 "group", "scale", "symmetric", "options", "comment"};
    for (const auto& item : json_.items())
      if (!contains(kKeys, item.key()))
        return invalid({"unknown key ", printable(item.key()), "; known: ", joined(kKeys)});
    QF_TRY(read_match());
    if (const Json* comment = find("comment"); comment && !comment->is_string())
      return invalid({"'comment': a string expected"});
    const int actions = json_.count("keep") + json_.count("dtype") + json_.count("method");
    if (actions != 1) return invalid({"one of 'keep', 'dtype' and 'method' expected, found ", num(actions)});
    if (!find("method"))
      for (std::string_view key : {"bits", "group", "scale", "symmetric", "options"})
        if (find(key)) return invalid({"'", key, "' needs a 'method'"});
    if (const Json* keep = find("keep")) {
      if (*keep != true) return invalid({"'keep': true expected"});
    } else if (find("dtype")) {
      rule_.action = Action::convert;
      QF_TRY_ASSIGN(rule_.dtype, float_type("dtype"));
    } else {
      QF_TRY(read_quantize());
    }
    return std::move(rule_);
  }

 private:
  const Json* find(std::string_view key) const {
    const auto it = json_.find(key);
    return it == json_.end() ? nullptr : &*it;
  }

  Result<std::string> text(const Json& value, std::string_view key, std::size_t longest) const {
    if (!value.is_string()) return invalid({"'", key, "': a string expected, found ", value.type_name()});
    const auto& string = value.get_ref<const std::string&>();
    if (string.size() > longest)
      return invalid({"'", key, "': ", num(string.size()), " bytes, at most ", num(longest), " expected"});
    return std::string(string);
  }

  Status read_match() {
    const Json* match = find("match");
    if (!match) return invalid({"'match' is missing"});
    if (match->is_string()) {
      QF_TRY_ASSIGN(std::string glob, text(*match, "match", kLongestGlob));
      rule_.globs.push_back(std::move(glob));
    } else if (match->is_array()) {
      if (match->empty()) return invalid({"'match': an empty list matches nothing"});
      if (match->size() > kMostPatterns)
        return invalid(
            {"'match': ", num(match->size()), " patterns, at most ", num(kMostPatterns), " expected"});
      for (const Json& entry : *match) {
        QF_TRY_ASSIGN(std::string glob, text(entry, "match", kLongestGlob));
        rule_.globs.push_back(std::move(glob));
      }
    } else if (match->is_object() && match->size() == 1 && match->count("regex")) {
      QF_TRY_ASSIGN(rule_.regex, text(match->at("regex"), "regex", std::size_t{1} << 20));
      if (rule_.regex.empty()) return invalid({"'match': an empty regex"});
    } else {
      return invalid({"'match': a pattern, a list of patterns or {\"regex\": ...} expected"});
    }
    return {};
  }

  Result<DType> float_type(std::string_view key) const {
    QF_TRY_ASSIGN(const std::string name, text(*find(key), key, kLongestWord));
    if (name == "f32") return DType::f32;
    if (name == "f16") return DType::f16;
    if (name == "bf16") return DType::bf16;
    return invalid({"'", key, "': ", printable(name), ", one of f32, f16, bf16 expected"});
  }

  Result<std::int64_t> integer(std::string_view key, std::int64_t least, std::int64_t most) const {
    const Json& value = *find(key);
    if (!value.is_number_integer() || value < least || value > most)
      return invalid({"'", key, "': ", printable(shown(value)), ", an integer from ", num(least), " to ",
                      num(most), " expected"});
    return value.get<std::int64_t>();
  }

  static std::string shown(const Json& value) {
    return value.is_structured() ? value.type_name()
                                 : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  }

  Status read_quantize() {
    rule_.action = Action::quantize;
    QF_TRY_ASSIGN(rule_.method, text(*find("method"), "method", kLongestWord));
    if (!find("bits")) return invalid({"'bits' is missing"});
    QF_TRY_ASSIGN(const std::int64_t bits, integer("bits", 1, 8));
    rule_.scheme.bits = static_cast<int>(bits);
    if (find("group")) {
      QF_TRY_ASSIGN(rule_.scheme.group, integer("group", 0, kLargestGroup));
    }
    if (const Json* symmetric = find("symmetric")) {
      if (!symmetric->is_boolean()) return invalid({"'symmetric': true or false expected"});
      if (symmetric->get<bool>()) rule_.scheme.zero = ZeroKind::symmetric;
    }
    if (find("scale")) {
      QF_TRY_ASSIGN(rule_.scheme.scale, float_type("scale"));
    }
    const Json* options = find("options");
    if (!options) return {};
    if (!options->is_object())
      return invalid({"'options': an object expected, found ", options->type_name()});
    for (const auto& item : options->items()) {
      const Json& value = item.value();
      if (value.is_boolean()) {
        rule_.options.emplace_back(item.key(), value.get<bool>());
      } else if (value.is_number()) {
        rule_.options.emplace_back(item.key(), value.get<double>());
      } else {
        QF_TRY_ASSIGN(std::string word, text(value, "options", kLongestWord));
        rule_.options.emplace_back(item.key(), std::move(word));
      }
    }
    return {};
  }

  const Json& json_;
  RecipeRule rule_;
};

std::string lower(DType type) {
  std::string name(dtype_name(type));
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return name;
}

nlohmann::ordered_json rule_json(const RecipeRule& rule) {
  nlohmann::ordered_json json;
  if (!rule.regex.empty()) {
    json["match"]["regex"] = rule.regex;
  } else if (rule.globs.size() == 1) {
    json["match"] = rule.globs[0];
  } else {
    json["match"] = rule.globs;
  }
  if (rule.action == Action::keep) {
    json["keep"] = true;
  } else if (rule.action == Action::convert) {
    json["dtype"] = lower(rule.dtype);
  } else {
    json["method"] = rule.method;
    json["bits"] = rule.scheme.bits;
    json["group"] = rule.scheme.group;
    json["symmetric"] = rule.scheme.zero == ZeroKind::symmetric;
    json["scale"] = lower(rule.scheme.scale);
    for (const auto& [name, value] : rule.options)
      std::visit([&, &key = name](const auto& v) { json["options"][key] = v; }, value);
  }
  return json;
}

}  // namespace

struct Recipe::Compiled {
  std::vector<RecipeRule> rules;
  std::vector<detail::Regex> regexes;  // one a rule; empty for globs
};

Result<Recipe> Recipe::make(std::vector<RecipeRule> rules, std::span<const std::string_view> own_methods) {
  if (rules.size() > kMostRules)
    return invalid({num(rules.size()), " rules, at most ", num(kMostRules), " expected"});
  auto compiled = std::make_shared<Compiled>();
  for (std::size_t i = 0; i < rules.size(); ++i) {
    QF_TRY(check_rule(rules[i], own_methods).at(rule_name(i)));
    detail::Regex regex;
    if (!rules[i].regex.empty()) {
      auto made = detail::Regex::compile(rules[i].regex);
      if (!made.ok()) return made.status().at(rule_name(i));
      regex = std::move(*made);
    }
    compiled->regexes.push_back(std::move(regex));
  }
  compiled->rules = std::move(rules);
  Recipe recipe;
  recipe.compiled_ = std::move(compiled);
  return recipe;
}

Result<Recipe> Recipe::parse(std::string_view json, std::string_view what,
                             std::span<const std::string_view> own_methods) {
  auto parsed = parse_json(json, what, {.bytes = std::size_t{1} << 20, .depth = 8});
  if (!parsed.ok()) return Status(Errc::invalid_argument, parsed.status().text());
  const Json& root = *parsed;
  if (!root.is_object()) return invalid({what, ": an object expected, found ", root.type_name()});
  for (const auto& item : root.items())
    if (item.key() != "version" && item.key() != "rules" && item.key() != "comment")
      return invalid({what, ": unknown key ", printable(item.key()), "; known: version, rules, comment"});
  if (!root.count("version")) return invalid({what, ": 'version' is missing; 1 expected"});
  if (root["version"] != 1)
    return invalid({what, ": 'version': ",
                    printable(root["version"].dump(-1, ' ', true, Json::error_handler_t::replace)),
                    ", 1 expected"});
  if (root.count("comment") && !root["comment"].is_string())
    return invalid({what, ": 'comment': a string expected"});
  if (!root.count("rules") || !root["rules"].is_array()) return invalid({what, ": 'rules': a list expected"});
  if (root["rules"].size() > kMostRules)
    return invalid({what, ": ", num(root["rules"].size()), " rules, at most ", num(kMostRules), " expected"});
  std::vector<RecipeRule> rules;
  for (const Json& entry : root["rules"]) {
    auto rule = RuleReader(entry).read();
    if (!rule.ok()) return rule.status().at(rule_name(rules.size())).at(what);
    rules.push_back(std::move(*rule));
  }
  auto recipe = make(std::move(rules), own_methods);
  if (!recipe.ok()) return recipe.status().at(what);
  return recipe;
}

std::span<const RecipeRule> Recipe::rules() const {
  return compiled_ ? std::span<const RecipeRule>(compiled_->rules) : std::span<const RecipeRule>();
}

Result<std::ptrdiff_t> Recipe::find(std::string_view tensor) const {
  for (std::size_t i = 0; i < rules().size(); ++i) {
    const RecipeRule& rule = compiled_->rules[i];
    bool matches = false;
    if (!rule.regex.empty()) {
      auto found = compiled_->regexes[i].matches(tensor);
      if (!found.ok()) return found.status().at(rule_name(i));
      matches = *found;
    } else {
      for (const std::string& glob : rule.globs) matches = matches || detail::glob_matches(glob, tensor);
    }
    if (matches) return static_cast<std::ptrdiff_t>(i);
  }
  return std::ptrdiff_t{-1};
}

std::string Recipe::to_json() const {
  nlohmann::ordered_json json;
  json["version"] = 1;
  json["rules"] = nlohmann::ordered_json::array();
  for (const RecipeRule& rule : rules()) json["rules"].push_back(rule_json(rule));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Recipe> default_recipe(std::string_view method, const Scheme& scheme,
                              std::span<const std::string_view> own_methods) {
  RecipeRule rule;
  for (std::string_view linear :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.qkv_proj", "self_attn.o_proj",
        "mlp.gate_proj", "mlp.up_proj", "mlp.gate_up_proj", "mlp.down_proj"})
    rule.globs.push_back(cat({"model.layers.*.", linear, ".weight"}));
  rule.action = Action::quantize;
  rule.method = method;
  rule.scheme = scheme;
  return Recipe::make({rule}, own_methods);
}

std::vector<std::string_view> available_methods() {
  std::vector<std::string_view> names;
  for (const detail::MethodEntry& method : detail::methods())
    if (method.available) names.push_back(method.name);
  return names;
}

Result<bool> needs_calibration(const Recipe& recipe) {
  for (const RecipeRule& rule : recipe.rules()) {
    if (rule.action != Action::quantize || !detail::find_method(rule.method)) continue;
    QF_TRY_ASSIGN(const detail::Method method, detail::make_method(rule));
    if (method.quantizer.statistics().wanted.any()) return true;
  }
  return false;
}

Status check_available(const Recipe& recipe, std::span<const std::string_view> own_methods) {
  for (std::size_t i = 0; i < recipe.rules().size(); ++i) {
    const RecipeRule& rule = recipe.rules()[i];
    if (rule.action != Action::quantize || contains(own_methods, rule.method)) continue;
    const detail::MethodEntry* method = detail::find_method(rule.method);
    if (!method || !method->available)
      return Status(
          Errc::unsupported,
          cat({"method ", printable(rule.method), " (", rule_name(i),
               ") is not available in this version; available: ", method_names(true, own_methods)}));
    for (const auto& [name, value] : rule.options) {
      const auto entry = std::find_if(method->options.begin(), method->options.end(),
                                      [&key = name](const detail::OptionEntry& o) { return o.name == key; });
      const bool* flag = std::get_if<bool>(&value);
      if (entry != method->options.end() && !entry->available && !(flag && !*flag))
        return Status(Errc::unsupported,
                      cat({"option ", printable(name), " of method ", printable(rule.method), " (",
                           rule_name(i), ") is not available in this version"}));
    }
  }
  return {};
}

}  // namespace qf::quant
