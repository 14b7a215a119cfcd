#include "src/quant_output.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "qf/core/json.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/quantization_config.hpp"
#include "src/io_folder.hpp"

namespace qf::quant::detail {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kSideFiles[] = {"generation_config.json",
                                      "tokenizer.json",
                                      "tokenizer_config.json",
                                      "tokenizer.model",
                                      "special_tokens_map.json",
                                      "added_tokens.json",
                                      "vocab.json",
                                      "vocab.txt",
                                      "merges.txt",
                                      "chat_template.jinja",
                                      "chat_template.json",
                                      "preprocessor_config.json",
                                      "processor_config.json",
                                      "LICENSE",
                                      "LICENSE.txt",
                                      "LICENSE.md",
                                      "NOTICE",
                                      "NOTICE.txt",
                                      "USE_POLICY.md"};

// JSON has no infinity.
OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

const char* action_name(Action action) {
  return action == Action::keep ? "keep" : action == Action::convert ? "convert" : "quantize";
}

OrderedJson tensor_json(const TensorReport& tensor) {
  const TensorPlan& plan = tensor.plan;
  OrderedJson json;
  json["name"] = plan.name;
  json["shape"] = plan.shape;
  json["source_type"] = plan.type;
  json["source_bytes"] = plan.source_bytes;
  json["output_bytes"] = plan.output_bytes;
  json["rule"] = plan.rule >= 0 ? OrderedJson(plan.rule + 1) : OrderedJson(nullptr);
  json["action"] = action_name(plan.action);
  if (plan.action == Action::keep) return json;
  if (plan.action == Action::convert) {
    json["type"] = dtype_name(plan.dtype);
  } else {
    json["method"] = plan.method;
    json["bits"] = plan.scheme.bits;
    json["group"] = plan.scheme.group;
    json["symmetric"] = plan.scheme.zero == ZeroKind::symmetric;
    json["scale"] = dtype_name(plan.scheme.scale);
    json["bits_per_weight"] = plan.scheme.bits_per_weight(plan.shape[1]);
  }
  json["max_abs_error"] = number(tensor.error.max_abs_error);
  json["relative_error"] = number(tensor.error.relative());
  json["snr_db"] = number(tensor.error.snr_db());
  if (plan.action == Action::quantize) {
    json["frobenius_error"] = number(tensor.error.frobenius());
    json["frobenius_bound"] = number(tensor.error.bound());
    json["max_error_steps"] = number(tensor.error.max_steps);
  }
  return json;
}

}  // namespace

Result<std::string> output_config(const Work& work) {
  io::QuantizationConfig config;
  bool head_quantized = false;
  for (const Job& job : work.jobs) {
    if (job.info->shape.size() != 2 || !job.info->name.ends_with(".weight")) continue;
    const std::string module = module_of(job.info->name);
    if (job.plan.action != Action::quantize) {
      config.ignore.push_back(module);
      continue;
    }
    head_quantized = head_quantized || module == "lm_head";
    auto group = std::find_if(config.groups.begin(), config.groups.end(),
                              [&](const io::QuantizationGroup& g) { return g.scheme == job.plan.scheme; });
    if (group == config.groups.end()) {
      io::QuantizationGroup fresh;
      fresh.name = "group_" + num(config.groups.size());
      fresh.scheme = job.plan.scheme;
      group = config.groups.insert(config.groups.end(), std::move(fresh));
    }
    group->targets.push_back(module);
  }
  if (config.groups.empty()) return work.config;
  // A head that is tied to the embedding has no tensor, but other software looks for its module.
  if (!head_quantized &&
      std::find(config.ignore.begin(), config.ignore.end(), "lm_head") == config.ignore.end())
    config.ignore.push_back("lm_head");
  if (config.groups.size() == 1) {
    std::vector<std::string> targets{"Linear"};
    for (const std::string& module : config.groups[0].targets)
      if (module.ends_with("embed_tokens")) targets.push_back(module);  // an embedding isn't a linear
    config.groups[0].targets = std::move(targets);
  }
  return io::with_quantization_config(work.config, work.input + "/config.json", config);
}

std::string report_text(const PipelineReport& report, const Recipe& recipe) {
  OrderedJson json;
  json["qf_report"] = 1;
  json["qf_version"] = QF_VERSION_STRING;
  std::uint64_t quantized = 0, elements = 0;
  MatrixError error;
  for (const TensorReport& tensor : report.tensors) {
    elements += tensor.plan.elements;
    if (tensor.plan.action != Action::quantize) continue;
    quantized += tensor.plan.elements;
    error.add(tensor.error);
  }
  OrderedJson& totals = json["totals"];
  totals["tensors"] = report.tensors.size();
  totals["elements"] = elements;
  totals["quantized_elements"] = quantized;
  totals["source_bytes"] = report.source_bytes;
  totals["output_bytes"] = report.output_bytes;
  totals["bits_per_quantized_weight"] = report.bits_per_weight;
  totals["bits_per_weight"] =
      elements ? 8 * static_cast<double>(report.output_bytes) / static_cast<double>(elements) : 0.0;
  totals["relative_error"] = number(error.relative());
  totals["snr_db"] = number(error.snr_db());
  json["recipe"] = OrderedJson::parse(recipe.to_json());
  json["tensors"] = OrderedJson::array();
  for (const TensorReport& tensor : report.tensors) json["tensors"].push_back(tensor_json(tensor));
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Result<std::vector<std::string>> copy_side_files(const std::string& input, const std::string& folder) {
  std::vector<std::string> copied;
  for (const char* name : kSideFiles) {
    struct stat info;
    if (::stat((input + "/" + name).c_str(), &info) != 0) continue;
    if (info.st_size == 0) {
      QF_TRY(io::write_file(folder + "/" + name, ""));
    } else {
      QF_TRY_ASSIGN(const io::MappedFile file, io::detail::open_in_folder(input, name));
      QF_TRY(io::write_file(folder + "/" + name,
                            {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}));
    }
    copied.emplace_back(name);
  }
  return copied;
}

}  // namespace qf::quant::detail
