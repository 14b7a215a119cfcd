// qf inspect: what a checkpoint holds, read from headers alone.
#include <fmt/format.h>

#include <cstring>

#include "qf/core/json.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/gguf.hpp"
#include "qf/io/quantization_config.hpp"
#include "qf/io/safetensors.hpp"
#include "qf/model/config.hpp"
#include "src/cli/cli.hpp"
#include "src/cli/model_files.hpp"

namespace qf::cli {
namespace {

// Strings of a file as the table shows them: fit for a terminal, without the quotes around.
std::string shown(std::string_view raw, std::size_t most = 96) {
  const std::string text = printable(raw, most);
  return text.substr(1, text.size() - 2);
}

double bits_per_weight(std::uint64_t bytes, std::uint64_t elements) {
  return elements ? 8 * static_cast<double>(bytes) / static_cast<double>(elements) : 0;
}

OrderedJson value_json(const io::GgufValue& value) {
  return std::visit(
      [](const auto& v) -> OrderedJson {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, io::GgufArray>)
          return fmt::format("[{} x {}]", v.count, io::gguf_type_name(v.element));
        else if constexpr (std::is_same_v<T, std::string_view>)
          return std::string(v);
        else
          return v;
      },
      value);
}

OrderedJson metadata_of(const io::Checkpoint& checkpoint) {
  OrderedJson json = OrderedJson::object();
  if (const auto* gguf = dynamic_cast<const io::GgufFile*>(&checkpoint)) {
    json["gguf.version"] = gguf->version();
    json["gguf.alignment"] = gguf->alignment();
    for (const io::GgufEntry& entry : gguf->entries())
      json[std::string(entry.key)] = value_json(io::GgufFile::value(entry));
  } else if (const auto* file = dynamic_cast<const io::Safetensors*>(&checkpoint)) {
    for (const auto& [key, value] : file->metadata()) json[key] = value;
  }
  return json;
}

// What config.json says of a folder; null when it says nothing that qf understands.
OrderedJson config_of(const std::string& path, std::string& why_not) {
  if (!is_folder(path)) return nullptr;
  const std::string file = path + "/config.json";
  const auto text = io::read_file(file, kMostTextBytes);
  if (!text.ok()) return nullptr;
  const auto config = model::parse_config(*text, file);
  if (!config.ok()) {
    why_not = config.status().text();
    return nullptr;
  }
  return {{"layers", config->layers}, {"hidden", config->hidden},     {"ffn", config->ffn},
          {"heads", config->heads},   {"kv_heads", config->kv_heads}, {"head_dim", config->head_dim},
          {"vocab", config->vocab},   {"context", config->context},   {"tied_head", config->tied_head}};
}

// quantization_config as the folder has it, whichever tool wrote it.
OrderedJson quantization_of(const std::string& path) {
  if (!is_folder(path)) return nullptr;
  const auto text = io::read_file(path + "/config.json", kMostTextBytes);
  if (!text.ok()) return nullptr;
  const auto config = parse_json(*text, "config.json");
  if (!config.ok() || !config->is_object() || !config->contains("quantization_config")) return nullptr;
  return OrderedJson::parse((*config)["quantization_config"].dump(), nullptr, false);
}

// The low-bit modules of a folder that qf can read: scheme, size and what a weight costs, all parts included.
// Empty for other folders; what doesn't fit together is left to whoever loads the model.
OrderedJson modules_of(const io::Checkpoint& checkpoint, const std::string& path) {
  static constexpr std::string_view kPacked = ".weight_packed";
  OrderedJson modules = OrderedJson::array();
  const auto text = io::read_file(path + "/config.json", kMostTextBytes);
  if (!text.ok()) return modules;
  const auto config = io::parse_quantization_config(*text, "config.json");
  if (!config.ok() || !*config) return modules;
  for (const io::TensorInfo& packed : checkpoint.tensors()) {
    if (packed.name.size() <= kPacked.size() || !packed.name.ends_with(kPacked)) continue;
    const std::string module = packed.name.substr(0, packed.name.size() - kPacked.size());
    const auto group = io::find_group(**config, module);
    const io::TensorInfo* shape = checkpoint.find(module + ".weight_shape");
    if (!group.ok() || !*group || !shape || shape->type != "I64" || shape->elements != 2) continue;
    std::int64_t n_k[2];
    std::memcpy(n_k, checkpoint.bytes(*shape).data(), sizeof n_k);
    Scheme scheme = (*group)->scheme;
    std::uint64_t bytes = 0, size = 0;
    for (const char* part : {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx"}) {
      const io::TensorInfo* tensor = checkpoint.find(module + part);
      if (!tensor) continue;
      bytes += tensor->bytes;
      const auto type = dtype_from_name(tensor->type);
      if (std::string_view(part) == ".weight_scale" && type) scheme.scale = *type;
    }
    if (n_k[0] < 0 || n_k[1] < 0 || __builtin_mul_overflow(n_k[0], n_k[1], &size)) continue;
    modules.push_back({{"name", module},
                       {"scheme", scheme_name(scheme)},
                       {"shape", {n_k[0], n_k[1]}},
                       {"act_order", (*group)->act_order},
                       {"bits_per_weight", bits_per_weight(bytes, size)},
                       {"bytes", bytes}});
  }
  return modules;
}

OrderedJson describe(const io::Checkpoint& checkpoint, const std::string& path, std::string& why_not) {
  std::uint64_t bytes = 0, elements = 0;
  OrderedJson tensors = OrderedJson::array();
  for (const io::TensorInfo& t : checkpoint.tensors()) {
    bytes += t.bytes;
    elements += t.elements;
    tensors.push_back({{"name", t.name},
                       {"type", t.type},
                       {"shape", t.shape},
                       {"bits_per_element", bits_per_weight(t.bytes, t.elements)},
                       {"bytes", t.bytes}});
  }
  OrderedJson json{{"path", path}, {"format", std::string(checkpoint.format())}};
  json["bytes_on_disk"] = size_on_disk(path);
  json["tensor_bytes"] = bytes;
  json["elements"] = elements;
  json["config"] = config_of(path, why_not);
  json["quantization_config"] = quantization_of(path);
  json["metadata"] = metadata_of(checkpoint);
  json["modules"] = modules_of(checkpoint, path);
  json["tensors"] = std::move(tensors);
  return json;
}

std::string to_text(const OrderedJson& json) {
  const auto size = [](const OrderedJson& bytes) { return human_bytes(bytes.get<double>()); };
  std::string text =
      fmt::format("{}: {}, {} tensors, {}\n", shown(json["path"].get<std::string>(), 256),
                  json["format"].get<std::string>(), json["tensors"].size(), size(json["tensor_bytes"]));
  std::vector<std::vector<std::string>> rows;
  if (json["config"].is_object())
    for (const auto& [key, value] : json["config"].items()) rows.push_back({key, value.dump()});
  for (const auto& [key, value] : json["metadata"].items())
    rows.push_back({shown(key), value.is_string() ? shown(value.get<std::string>(), 72) : value.dump()});
  if (json["quantization_config"].is_object())
    rows.push_back({"quantization_config", shown(json["quantization_config"].dump(), 400)});
  if (!rows.empty()) text += "\n" + table(rows, {});

  auto shape_text = [](const OrderedJson& item) {
    return fmt::format("[{}]", fmt::join(item["shape"].get<std::vector<std::int64_t>>(), ", "));
  };
  if (!json["modules"].empty()) {
    rows = {{"MODULE", "SCHEME", "SHAPE", "BITS", "BYTES"}};
    for (const auto& m : json["modules"])
      rows.push_back({shown(m["name"].get<std::string>()), m["scheme"].get<std::string>(), shape_text(m),
                      fmt::format("{:.4g}", m["bits_per_weight"].get<double>()), m["bytes"].dump()});
    text += "\n" + table(rows, {3, 4});
  }
  rows = {{"TENSOR", "TYPE", "SHAPE", "BITS", "BYTES"}};
  for (const auto& t : json["tensors"])
    rows.push_back({shown(t["name"].get<std::string>()), shown(t["type"].get<std::string>()), shape_text(t),
                    fmt::format("{:.4g}", t["bits_per_element"].get<double>()), t["bytes"].dump()});
  return text + "\n" + table(rows, {3, 4});
}

Result<Verdict> inspect(Session& session, const std::string& path, bool as_json) {
  QF_TRY_ASSIGN(const auto checkpoint, io::open_checkpoint(path));
  std::string why_not;
  const OrderedJson json = describe(*checkpoint, path, why_not);
  if (!why_not.empty()) session.note("not a model that qf can run: " + why_not);
  QF_TRY(session.print(as_json ? json_text(json) : to_text(json)));
  return Verdict::good;
}

}  // namespace

void add_inspect(Program& program) {
  struct Options {
    std::string path;
    bool as_json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command =
      program.add("inspect", "Show what a checkpoint holds: tensors, types, shapes, bits, metadata",
                  {"qf inspect model", "qf inspect model.gguf --json", "qf inspect model.safetensors"},
                  [o](Session& session) { return inspect(session, o->path, o->as_json); });
  command->add_option("path", o->path, "A .safetensors or .gguf file, or a model folder")
      ->required()
      ->type_name("PATH");
  command->add_flag("--json", o->as_json, "One JSON object on stdout");
}

}  // namespace qf::cli
