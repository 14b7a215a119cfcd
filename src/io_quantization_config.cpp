#include "qf/io/quantization_config.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <memory>

#include "io_posix.hpp"
#include "qf/core/json.hpp"

namespace qf::io {
namespace {

constexpr JsonLimits kLimits{std::size_t{16} << 20, 64};

// Reads members of one JSON object; `where` is how errors name it.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  Status bad(std::initializer_list<std::string_view> parts) const {
    return Status(Errc::bad_format, cat({where_, ": ", cat(parts)}));
  }
  Status unsupported(std::initializer_list<std::string_view> parts) const {
    return Status(Errc::unsupported, cat({where_, ": ", cat(parts)}));
  }
  // nullptr when the key is absent or null.
  const Json* get(const char* key) const {
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  Result<std::string> text(const char* key, std::string_view otherwise) const {
    const Json* value = get(key);
    if (!value) return std::string(otherwise);
    if (!value->is_string()) return bad({"'", key, "' is not a string"});
    return value->get<std::string>();
  }
  Result<bool> flag(const char* key, bool otherwise) const {
    const Json* value = get(key);
    if (!value) return bool{otherwise};
    if (!value->is_boolean()) return bad({"'", key, "' is not true or false"});
    return value->get<bool>();
  }
  Result<std::int64_t> integer(const char* key, std::int64_t otherwise) const {
    const Json* value = get(key);
    if (!value) return std::int64_t{otherwise};
    if (!value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX))
      return bad({"'", key, "' is not an integer"});
    return value->get<std::int64_t>();
  }
  Result<std::vector<std::string>> texts(const char* key) const {
    std::vector<std::string> list;
    const Json* value = get(key);
    if (!value) return list;
    if (!value->is_array()) return bad({"'", key, "' is not a list"});
    for (const Json& item : *value) {
      if (!item.is_string()) return bad({"'", key, "' holds something else than strings"});
      list.push_back(item.get<std::string>());
    }
    return list;
  }

 private:
  const Json& object_;
  std::string where_;
};

Status parse_weights(const Json& json, std::string where, QuantizationGroup& group) {
  const Fields weights(json, std::move(where));
  if (!json.is_object()) return weights.bad({"not an object"});
  QF_TRY_ASSIGN(const std::int64_t bits, weights.integer("num_bits", 8));
  QF_TRY_ASSIGN(const std::string type, weights.text("type", "int"));
  QF_TRY_ASSIGN(const bool symmetric, weights.flag("symmetric", true));
  QF_TRY_ASSIGN(const std::int64_t size, weights.integer("group_size", 0));
  const std::string_view guess = !weights.get("group_size") ? "tensor" : size > 0 ? "group" : "channel";
  QF_TRY_ASSIGN(const std::string strategy, weights.text("strategy", guess));
  if (type != "int") return weights.unsupported({"type ", printable(type), ", only 'int' is read"});
  if (bits < 1 || bits > 8) return weights.unsupported({"num_bits ", num(bits), ", expected 1 to 8"});
  group.scheme.bits = static_cast<int>(bits);
  group.scheme.zero = symmetric ? ZeroKind::symmetric : ZeroKind::integer;
  if (strategy == "group") {
    if (size < 1) return weights.bad({"strategy 'group' with a group_size of ", num(size)});
    group.scheme.group = size;
  } else if (strategy == "channel" || strategy == "tensor") {
    if (size > 0) return weights.bad({"strategy ", printable(strategy), " with a group_size of ", num(size)});
    group.scheme.group = 0;
    group.one_scale = strategy == "tensor";
  } else {
    return weights.unsupported(
        {"strategy ", printable(strategy), ", only group, channel and tensor are read"});
  }
  if (const Json* dynamic = weights.get("dynamic"); dynamic && *dynamic != Json(false))
    return weights.unsupported({"dynamic weights"});
  if (const Json* order = weights.get("actorder"); order && *order != Json(false)) {
    if (*order == Json(true) || *order == Json("group") || *order == Json("dynamic")) {
      group.act_order = true;
    } else if (*order != Json("weight") && *order != Json("static")) {
      return weights.unsupported({"actorder ", printable(order->dump()), " is not known"});
    }
  }
  return {};
}

Result<QuantizationGroup> parse_group(const std::string& name, const Json& json, std::string_view format,
                                      const std::string& where) {
  const Fields fields(json, where);
  if (!json.is_object()) return fields.bad({"not an object"});
  QuantizationGroup group;
  group.name = name;
  QF_TRY_ASSIGN(group.targets, fields.texts("targets"));
  if (group.targets.empty()) return fields.bad({"'targets' is missing or empty"});
  QF_TRY_ASSIGN(const std::string own_format, fields.text("format", format));
  if (own_format != "pack-quantized")
    return fields.unsupported({"format ", printable(own_format), ", only 'pack-quantized' is read"});
  for (const char* key : {"input_activations", "output_activations"})
    if (fields.get(key)) return fields.unsupported({"'", key, "' are quantized, only weights may be"});
  const Json* weights = fields.get("weights");
  if (!weights) return fields.bad({"'weights' is missing"});
  QF_TRY(parse_weights(*weights, where + " weights", group));
  return group;
}

Result<QuantizationConfig> parse_config(const Json& json, const std::string& where) {
  const Fields fields(json, where);
  if (!json.is_object()) return fields.bad({"not an object"});
  QF_TRY_ASSIGN(const std::string method, fields.text("quant_method", "compressed-tensors"));
  if (method != "compressed-tensors")
    return fields.unsupported({"quant_method ", printable(method), ", only 'compressed-tensors' is read"});
  QF_TRY_ASSIGN(const std::string format, fields.text("format", "pack-quantized"));
  // Rotations that run with the model, and sparse storage, would be lost without a word.
  for (const char* key : {"transform_config", "sparsity_config"}) {
    const Json* part = fields.get(key);
    if (!part || part->empty()) continue;
    if (part->is_object() && part->value("format", Json()) == Json("dense")) continue;
    return fields.unsupported({"'", key, "'"});
  }
  QuantizationConfig config;
  QF_TRY_ASSIGN(config.version, fields.text("version", ""));
  QF_TRY_ASSIGN(config.ignore, fields.texts("ignore"));
  const Json* groups = fields.get("config_groups");
  if (!groups || !groups->is_object() || groups->empty())
    return fields.bad({"'config_groups' is missing, empty or not an object"});
  for (const auto& [name, group] : groups->items()) {
    QF_TRY_ASSIGN(QuantizationGroup parsed,
                  parse_group(name, group, format, cat({where, " config_groups ", printable(name)})));
    config.groups.push_back(std::move(parsed));
  }
  return config;
}

// "re:" patterns come from files: matching gives up early instead of trying forever.
Result<bool> matches(std::string_view target, std::string_view name) {
  const std::string_view pattern = target.substr(3);
  const auto bad = [&](std::string_view why) {
    return Status(Errc::bad_format, cat({"the target ", printable(target), ": ", why}));
  };
  const auto in = [](std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); };
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(in(pattern), pattern.size(), PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                    nullptr),
      &pcre2_code_free);
  if (!code) return bad(cat({"not a regular expression (byte ", num(at), ")"}));
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  if (!limits || !data) return Status(Errc::out_of_memory, "no memory to match a target");
  pcre2_set_match_limit(limits.get(), 100'000);
  pcre2_set_depth_limit(limits.get(), 1'000);
  pcre2_set_heap_limit(limits.get(), 1'024);  // KiB
  const int result = pcre2_match(code.get(), in(name), name.size(), 0, 0, data.get(), limits.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) return bad("takes too long to match");
  return true;
}

enum class Fit { none, by_class, by_pattern, by_name };

Result<Fit> fit(const std::vector<std::string>& targets, std::string_view module,
                std::string_view class_name) {
  Fit best = Fit::none;
  for (const std::string& target : targets) {
    if (target == module) return Fit::by_name;
    if (target == class_name) best = std::max(best, Fit::by_class);
    if (!target.starts_with("re:")) continue;
    QF_TRY_ASSIGN(const bool fits, matches(target, module));
    if (fits) best = std::max(best, Fit::by_pattern);
  }
  return best;
}

Result<nlohmann::ordered_json> to_json(const QuantizationConfig& config) {
  nlohmann::ordered_json json;
  json["quant_method"] = "compressed-tensors";
  json["version"] = config.version;
  json["format"] = "pack-quantized";
  json["quantization_status"] = "compressed";
  json["global_compression_ratio"] = nullptr;
  json["kv_cache_scheme"] = nullptr;
  json["ignore"] = config.ignore;
  for (const QuantizationGroup& group : config.groups) {
    QF_TRY(check(group.scheme));
    if (group.scheme.codebook != CodebookKind::none)
      return Status(Errc::unsupported,
                    cat({group.name, ": codebooks can't be stored as compressed-tensors"}));
    if (group.scheme.zero == ZeroKind::floating)
      return Status(Errc::unsupported,
                    cat({group.name, ": floating zeros can't be stored as compressed-tensors"}));
    nlohmann::ordered_json weights;
    weights["num_bits"] = group.scheme.bits;
    weights["type"] = "int";
    weights["symmetric"] = group.scheme.zero == ZeroKind::symmetric;
    weights["strategy"] = group.scheme.group ? "group" : "channel";
    weights["group_size"] = nullptr;
    if (group.scheme.group) weights["group_size"] = group.scheme.group;
    weights["dynamic"] = false;
    if (group.act_order) weights["actorder"] = "group";
    nlohmann::ordered_json& entry = json["config_groups"][group.name];
    if (!entry.is_null())
      return Status(Errc::invalid_argument, cat({group.name, ": two groups have this name"}));
    entry["targets"] = group.targets;
    entry["weights"] = std::move(weights);
    entry["input_activations"] = nullptr;
    entry["output_activations"] = nullptr;
    entry["format"] = "pack-quantized";
  }
  return json;
}

}  // namespace

Result<std::optional<QuantizationConfig>> parse_quantization_config(std::string_view config_json,
                                                                    std::string_view what) {
  try {
    QF_TRY_ASSIGN(const Json json, parse_json(config_json, what, kLimits));
    if (!json.is_object()) return Status(Errc::bad_format, cat({what, ": not an object"}));
    std::vector<const Json*> places{&json};  // models for text and images keep it one step down
    if (const auto text = json.find("text_config"); text != json.end() && text->is_object())
      places.push_back(&*text);
    for (const Json* place : places)
      for (const char* key : {"quantization_config", "compression_config"}) {
        const auto at = place->find(key);
        if (at == place->end() || at->is_null()) continue;
        QF_TRY_ASSIGN(QuantizationConfig config, parse_config(*at, cat({what, ": ", key})));
        return std::optional<QuantizationConfig>(std::move(config));
      }
    return std::optional<QuantizationConfig>();
  } catch (const std::bad_alloc&) {
    return detail::no_memory({what, ": no memory to parse it"});
  }
}

Result<const QuantizationGroup*> find_group(const QuantizationConfig& config, std::string_view module,
                                            std::string_view class_name) {
  QF_TRY_ASSIGN(const Fit ignored, fit(config.ignore, module, class_name));
  const QuantizationGroup* best = nullptr;
  if (ignored != Fit::none) return best;
  Fit best_fit = Fit::none;
  for (const QuantizationGroup& group : config.groups) {
    QF_TRY_ASSIGN(const Fit how, fit(group.targets, module, class_name));
    if (how > best_fit) best_fit = how, best = &group;
  }
  return best;
}

Result<std::string> with_quantization_config(std::string_view config_json, std::string_view what,
                                             const QuantizationConfig& config) {
  try {
    QF_TRY_ASSIGN(const Json checked, parse_json(config_json, what, kLimits));
    if (!checked.is_object()) return Status(Errc::bad_format, cat({what, ": not an object"}));
    auto json = nlohmann::ordered_json::parse(config_json);
    QF_TRY_ASSIGN(auto own, to_json(config));
    json["quantization_config"] = std::move(own);
    return json.dump(2) + "\n";
  } catch (const nlohmann::json::exception&) {
    return Status(Errc::invalid_argument, cat({what, ": a name is not valid UTF-8"}));
  } catch (const std::bad_alloc&) {
    return detail::no_memory({what, ": no memory for the text"});
  }
}

}  // namespace qf::io
