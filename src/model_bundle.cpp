#include "qf/model/bundle.hpp"

#include <algorithm>
#include <new>
#include <optional>

#include "qf/core/json.hpp"
#include "qf/io/gguf.hpp"
#include "qf/model/gguf_import.hpp"
#include "src/model_folder.hpp"

namespace qf::model {
namespace {

// The file's text; nullopt when there is none.
Result<std::optional<std::string>> optional_text(const std::string& path) {
  auto text = detail::read_text(path);
  if (text.ok()) return std::optional<std::string>(std::move(*text));
  if (text.status().code() == Errc::not_found) return std::optional<std::string>();
  return text.status();
}

Result<Json> optional_json(const std::string& path) {
  QF_TRY_ASSIGN(const std::optional<std::string> text, optional_text(path));
  if (!text) return Json::object();
  QF_TRY_ASSIGN(Json json, parse_json(*text, path));
  if (!json.is_object()) return Status(Errc::bad_format, cat({path, ": not a JSON object"}));
  return json;
}

void set_chat(TextSide& side, std::string_view jinja, std::string_view where) {
  if (jinja.empty()) {
    side.chat_status = Status(Errc::not_found, cat({where, ": the model brings no chat template"}));
    return;
  }
  auto kind = text::recognise_chat_template(jinja);
  if (kind.ok())
    side.chat = *kind;
  else
    side.chat_status = kind.status().at(where);
}

void add_eos(TextSide& side, std::int32_t id) {
  if (id >= 0 && std::ranges::find(side.eos, id) == side.eos.end()) side.eos.push_back(id);
}

Status add_defaults(const std::string& path, std::int64_t vocab, TextSide& side) {
  QF_TRY_ASSIGN(const Json json, optional_json(path));
  const auto wrong = [&](const char* key) {
    return Status(Errc::bad_format,
                  cat({path, ": '", key, "' is ",
                       printable(json[key].dump(-1, ' ', true, Json::error_handler_t::replace))}));
  };
  const auto number = [&](const char* key, double otherwise) -> Result<double> {
    if (!json.contains(key) || json[key].is_null()) return otherwise;
    if (!json[key].is_number()) return wrong(key);
    return json[key].get<double>();
  };
  if (json.contains("eos_token_id") && !json["eos_token_id"].is_null()) {
    const Json& eos = json["eos_token_id"];
    for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocab)
        return wrong("eos_token_id");
      add_eos(side, id.get<std::int32_t>());
    }
  }
  if (!json.contains("do_sample") || json["do_sample"] != true) return {};
  // Hugging Face's own defaults where the file samples without saying how.
  QF_TRY_ASSIGN(side.sampler.temperature, number("temperature", 1.0));
  QF_TRY_ASSIGN(const double top_k, number("top_k", 50));
  QF_TRY_ASSIGN(side.sampler.top_p, number("top_p", 1.0));
  if (!(top_k >= 0 && top_k < 1e9)) return wrong("top_k");
  side.sampler.top_k = static_cast<std::int64_t>(top_k);
  if (Status status = Sampler::make(side.sampler).status(); !status.ok()) return status.at(path);
  return {};
}

// The template called "default" of a list, or the one there is.
std::string template_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return {};
  for (const Json& one : value)
    if (one.is_object() && one.value("name", "") == "default" && one.contains("template") &&
        one["template"].is_string())
      return one["template"].get<std::string>();
  return {};
}

Result<TextSide> folder_side(const std::string& folder) {
  TextSide side;
  const std::string config_path = folder + "/config.json";
  QF_TRY_ASSIGN(const std::string config_text, detail::read_text(config_path));
  QF_TRY_ASSIGN(const ModelConfig config, parse_config(config_text, config_path));
  for (std::int32_t id : config.eos) add_eos(side, id);

  const std::string path = folder + "/tokenizer.json";
  QF_TRY_ASSIGN(const std::optional<std::string> text, optional_text(path));
  if (text) {
    auto tokenizer = text::Tokenizer::from_json(*text, path);
    if (tokenizer.ok())
      side.tokenizer = std::move(*tokenizer);
    else
      side.tokenizer_status = tokenizer.status();
  } else {
    side.tokenizer_status = Status(Errc::not_found, cat({path, ": no such file; text needs a tokenizer"}));
  }

  const std::string jinja_path = folder + "/chat_template.jinja",
                    settings_path = folder + "/tokenizer_config.json";
  QF_TRY_ASSIGN(const std::optional<std::string> jinja, optional_text(jinja_path));
  QF_TRY_ASSIGN(const Json settings, optional_json(settings_path));
  if (jinja)
    set_chat(side, *jinja, jinja_path);
  else
    set_chat(side,
             settings.contains("chat_template") ? template_of(settings["chat_template"]) : std::string(),
             settings_path);
  QF_TRY(add_defaults(folder + "/generation_config.json", config.vocab, side));
  return side;
}

Result<TextSide> gguf_side(const std::string& path) {
  TextSide side;
  QF_TRY_ASSIGN(const auto file, io::open_gguf(path));
  QF_TRY_ASSIGN(const ModelConfig config, config_from_gguf(*file));
  for (std::int32_t id : config.eos) add_eos(side, id);
  auto vocabulary = vocabulary_from_gguf(*file);
  if (vocabulary.ok()) {
    auto tokenizer = text::Tokenizer::from_gguf(std::move(*vocabulary), path);
    if (tokenizer.ok())
      side.tokenizer = std::move(*tokenizer);
    else
      side.tokenizer_status = tokenizer.status();
  } else {
    side.tokenizer_status = vocabulary.status();
  }
  QF_TRY_ASSIGN(const std::string jinja, chat_template_from_gguf(*file));
  set_chat(side, jinja, path);
  return side;
}

}  // namespace

Result<TextSide> load_text_side(const std::string& path) {
  try {
    return detail::is_gguf(path) ? gguf_side(path) : folder_side(path);
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path, ": no memory for the tokenizer"}));
  }
}

Result<Bundle> load_bundle(const std::string& path, const LoadOptions& options) {
  Bundle bundle;
  QF_TRY_ASSIGN(bundle.text, load_text_side(path));  // quick, so that its errors come first
  QF_TRY_ASSIGN(bundle.decoder, Decoder::load(path, options));
  return bundle;
}

}  // namespace qf::model
