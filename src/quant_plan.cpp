#include "src/quant_plan.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "qf/core/json.hpp"
#include "qf/io/compressed_tensors.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/hash.hpp"
#include "qf/model/config.hpp"
#include "src/quant_rescale.hpp"

namespace qf::quant::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLongestConfig = std::uint64_t{16} << 20;
constexpr std::string_view kWeight = ".weight";
// Raised whenever the same source and recipe would give other bytes than before.
constexpr int kGeneration = 1;

Status check_not_quantized(const Work& work) {
  const std::string path = work.input + "/config.json";
  QF_TRY_ASSIGN(const Json config, parse_json(work.config, path));
  if (!config.is_object()) return Status(Errc::bad_format, cat({path, ": an object expected"}));
  for (const char* key : {"quantization_config", "quantization"}) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null()) continue;
    const bool named = it->is_object() && it->contains("quant_method") && (*it)["quant_method"].is_string();
    return Status(Errc::invalid_argument,
                  cat({work.input, ": is already quantized (config.json has '", key, "'",
                       named ? ", method " + printable((*it)["quant_method"].get<std::string>()) : "", ")"}));
  }
  for (const io::TensorInfo& info : work.source->tensors())
    for (std::string_view end : {".weight_packed", ".weight_scale", ".weight_scale_inv", ".qweight",
                                 ".qzeros", ".weight_zero_point", ".weight.absmax", ".SCB"})
      if (std::string_view(info.name).ends_with(end))
        return Status(Errc::invalid_argument,
                      cat({work.input, ": is already quantized (tensor ", printable(info.name), ")"}));
  return {};
}

Result<QuantizerRef> quantizer_of(Work& work, std::ptrdiff_t index, const RecipeRule& rule,
                                  const PipelineOptions& options) {
  for (const QuantizerRef& own : options.quantizers)
    if (own.name() == rule.method) return own;
  auto found = work.methods.find(index);
  if (found == work.methods.end()) {
    QF_TRY_ASSIGN(Method method, make_method(rule));
    found = work.methods.emplace(index, std::move(method)).first;
  }
  return found->second.quantizer;
}

bool is_float(std::string_view type) {
  return type == "F32" || type == "F16" || type == "BF16" || type == "F64";
}

// Decides about one tensor.
Result<Job> make_job(Work& work, const io::TensorInfo& info, const Recipe& recipe,
                     const PipelineOptions& options) {
  Job job;
  job.info = &info;
  TensorPlan& plan = job.plan;
  plan.name = info.name;
  plan.type = info.type;
  plan.shape = info.shape;
  plan.elements = info.elements;
  plan.source_bytes = info.bytes;
  QF_TRY_ASSIGN(plan.rule, recipe.find(info.name));
  const auto bad = [&](Errc code, std::initializer_list<std::string_view> parts) {
    return Status(code,
                  cat({"tensor ", printable(info.name), " (rule ", num(plan.rule + 1), "): ", cat(parts)}));
  };
  std::vector<io::TensorSpec> specs;
  if (plan.rule >= 0) plan.action = recipe.rules()[static_cast<std::size_t>(plan.rule)].action;
  if (plan.action == Action::keep) {
    const auto type = dtype_from_name(info.type);
    if (!type)
      return Status(Errc::unsupported, cat({"tensor ", printable(info.name), ": type ", printable(info.type),
                                            " can't be stored as it is"}));
    specs = {{info.name, *type, info.shape}};
  } else {
    const RecipeRule& rule = recipe.rules()[static_cast<std::size_t>(plan.rule)];
    if (!is_float(info.type))
      return bad(Errc::invalid_argument,
                 {"type ", printable(info.type), ", one of F32, F16, BF16, F64 expected"});
    if (plan.action == Action::convert) {
      plan.dtype = rule.dtype;
      specs = {{info.name, rule.dtype, info.shape}};
    } else {
      plan.method = rule.method;
      plan.scheme = rule.scheme;
      if (info.shape.size() != 2)
        return bad(Errc::invalid_argument, {num(info.shape.size()), "-dimensional, a matrix expected"});
      if (!info.name.ends_with(kWeight))
        return bad(Errc::invalid_argument, {"a name that ends in '.weight' expected"});
      QF_TRY_ASSIGN(job.quantizer, quantizer_of(work, plan.rule, rule, options));
      job.needs = job.quantizer.statistics();
      if (const auto method = work.methods.find(plan.rule); method != work.methods.end())
        job.scale_grid = method->second.scale_grid;
      if (job.needs.wanted.any() && !options.calibration)
        return bad(Errc::invalid_argument,
                   {"method ", printable(rule.method), " looks at activations and needs a calibration text"});
      auto made = io::quantized_specs(module_of(info.name), rule.scheme, info.shape[0], info.shape[1], false);
      if (!made.ok()) return bad(made.status().code(), {made.status().text()});
      specs = std::move(*made);
    }
  }
  for (io::TensorSpec& spec : specs) {
    QF_TRY_ASSIGN(const std::uint64_t bytes, io::stored_bytes(spec));
    job.parts.push_back({std::move(spec), 0, bytes});
    plan.output_bytes += bytes;
  }
  return job;
}

// Hidden states of both models and the inputs of one kind of linear for all tokens; a layer of both in memory; sums in
// f64, statistics and what solvers make of them.
std::uint64_t calibration_memory(const Work& work, const model::ModelConfig& config,
                                 const calib::Samples& samples) {
  bool in_float = false, quantized = false;
  std::uint64_t squares = 0;
  for (const Job& job : work.jobs) {
    if (!job.needs.wanted.any()) continue;
    in_float |= !job.needs.sequential || job.needs.wanted.cross;
    quantized |= job.needs.sequential;
    const auto k = static_cast<std::uint64_t>(job.plan.shape[1]);
    squares = std::max(squares, k * k * (job.needs.wanted.cross ? 40 : job.needs.wanted.hessian ? 28 : 0));
  }
  const auto tokens = static_cast<std::uint64_t>(samples.ids.size());
  const auto hidden = static_cast<std::uint64_t>(config.hidden);
  const std::uint64_t widest =
      static_cast<std::uint64_t>(std::max({config.hidden, config.heads * config.head_dim, config.ffn}));
  std::uint64_t layer = 0;
  for (const Job& job : work.jobs)
    if (job.layer == 0) layer += job.plan.elements;
  const std::uint64_t activations =
      4 * tokens * (hidden * ((in_float ? 1 : 0) + (quantized ? 1 : 0)) + (quantized ? widest : 0));
  return activations + squares + 8 * layer + 8 * 1024 * widest * 4;
}

// Finds the linears in the decoder when activations are asked for.
Status place(Work& work, const PipelineOptions& options) {
  for (const Job& job : work.jobs) work.calibrated |= job.needs.wanted.any();
  if (!work.calibrated) return {};
  QF_TRY_ASSIGN(work.decoder, model::parse_config(work.config, work.input + "/config.json"));
  const model::ModelConfig& config = work.decoder;
  struct Place {
    std::int64_t layer;
    model::LayerInput input;
  };
  std::map<std::string, Place, std::less<>> places;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    for (model::LayerLinear& linear : model::layer_linears(config, layer))
      places.emplace(std::move(linear.module) + std::string(kWeight), Place{layer, linear.input});
  if (!config.tied_head) places.emplace("lm_head.weight", Place{config.layers, model::LayerInput::qkv});
  for (Job& job : work.jobs) {
    if (job.plan.action != Action::quantize) continue;
    const auto found = places.find(job.info->name);
    if (found != places.end()) {
      job.layer = found->second.layer;
      job.input = found->second.input;
    } else if (job.needs.wanted.any()) {
      return Status(
          Errc::invalid_argument,
          cat({work.input, ": tensor ", printable(job.info->name), " (rule ", num(job.plan.rule + 1),
               "): method ", printable(job.plan.method),
               " looks at activations, which are known of the linears of the decoder's layers and of "
               "a head of its own"}));
    }
  }
  std::set<std::string> waiting;
  for (const Job& job : work.jobs)
    if (job.scale_grid > 0 && job.layer >= 0 && job.layer < config.layers)
      for (std::string& name : rescaled_vectors(job.layer)) waiting.insert(std::move(name));
  for (Job& job : work.jobs) job.rescaled = waiting.contains(job.info->name);
  work.calibration_bytes = calibration_memory(work, config, *options.calibration);
  return {};
}

// Fills files up to the limit, in the source's order, and finds every part's place.
Status lay_out(Work& work, std::uint64_t max_shard_bytes) {
  std::vector<std::vector<io::TensorSpec>> shards;
  std::uint64_t used = 0;
  for (Job& job : work.jobs) {
    if (shards.empty() || (used > 0 && used + job.plan.output_bytes > max_shard_bytes)) {
      shards.emplace_back();
      used = 0;
    }
    used += job.plan.output_bytes;
    job.shard = shards.size() - 1;
    for (const Part& part : job.parts) shards.back().push_back(part.spec);
  }
  if (shards.empty()) shards.emplace_back();
  const auto count = static_cast<std::int64_t>(shards.size());
  std::vector<io::SafetensorsLayout> layouts;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = count == 1 ? "model.safetensors" : io::shard_name(i, count);
    auto layout = io::layout_safetensors(shards[static_cast<std::size_t>(i)], {{"format", "pt"}});
    if (!layout.ok()) return layout.status().at("output " + name);
    const std::uint64_t file_bytes = layout->head.size() + layout->data_bytes;
    work.shards.push_back({name, layout->head, file_bytes, layout->data_bytes});
    work.plan.file_bytes += file_bytes;
    layouts.push_back(std::move(*layout));
  }
  for (Job& job : work.jobs)
    for (Part& part : job.parts) part.offset = layouts[job.shard].slots.find(part.spec.name)->second.begin;
  return {};
}

// Files whose change means another source, with what tells that they changed.
Result<std::string> identity_of(const Work& work, const calib::Samples* samples) {
  std::string text = cat({"generation ", num(kGeneration), "\n", work.config, "\n"});
  std::vector<std::string> files;
  std::error_code code;
  for (fs::directory_iterator it(work.input, code), end; !code && it != end; it.increment(code))
    if (it->path().extension() == ".safetensors" || it->path().extension() == ".json")
      files.push_back(it->path().filename().string());
  if (code) return Status(Errc::io_error, cat({work.input, ": cannot be read: ", code.message()}));
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    struct stat info;
    if (::stat((work.input + "/" + file).c_str(), &info) != 0) continue;
    text += cat({"file ", file, " ", num(info.st_size), " ", num(info.st_mtim.tv_sec), ".",
                 num(info.st_mtim.tv_nsec), "\n"});
  }
  if (work.calibrated)
    text += cat({"calibration ", num(samples->length), " ",
                 io::hash128(std::as_bytes(std::span(samples->ids))).hex(), "\n"});
  for (const Job& job : work.jobs) text += cat({"tensor ", job.info->name, " ", job.info->type, "\n"});
  for (const Shard& shard : work.shards) text += cat({"shard ", shard.head, "\n"});
  return text;
}

std::uint64_t memory_of(const Job& job, const PipelineOptions& options) {
  const TensorPlan& plan = job.plan;
  if (plan.action == Action::keep) return 0;
  const std::uint64_t width = plan.elements ? plan.source_bytes / plan.elements : 4;
  if (plan.action == Action::convert) return options.slab_bytes / 4 * (width + 4 + 4);
  const Blocks blocks = blocks_of(job, options);
  const auto n = static_cast<std::uint64_t>(plan.shape[0]), k = static_cast<std::uint64_t>(plan.shape[1]);
  const std::uint64_t rows = std::min(n, static_cast<std::uint64_t>(blocks.rows * blocks.together));
  const auto groups = static_cast<std::uint64_t>(plan.scheme.groups(plan.shape[1]));
  // Mapped source, floats, codes; scales and zeros as floats; all of it once more as it is stored.
  return rows * (k * (width + 4 + 1) + groups * 8) + (plan.output_bytes / n + 1) * rows;
}

void sum_up(Work& work, const Recipe& recipe, const PipelineOptions& options) {
  PipelinePlan& plan = work.plan;
  std::vector<bool> used(recipe.rules().size());
  std::uint64_t quantized = 0;
  double bits = 0;
  for (const Job& job : work.jobs) {
    plan.source_bytes += job.plan.source_bytes;
    plan.output_bytes += job.plan.output_bytes;
    plan.peak_memory_bytes = std::max(plan.peak_memory_bytes, memory_of(job, options));
    if (job.plan.rule >= 0) used[static_cast<std::size_t>(job.plan.rule)] = true;
    if (job.plan.action == Action::quantize) {
      quantized += job.plan.elements;
      bits += static_cast<double>(job.plan.elements) * job.plan.scheme.bits_per_weight(job.plan.shape[1]);
    }
    plan.tensors.push_back(job.plan);
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i]) plan.unused_rules.push_back(i);
  plan.bits_per_weight = quantized ? bits / static_cast<double>(quantized) : 0;
  plan.shards = work.shards.size();
  // Copied bytes pass in pieces of a slab; headers, plan and journal are kept for the whole run.
  plan.peak_memory_bytes = std::max(plan.peak_memory_bytes, std::uint64_t{options.slab_bytes});
  plan.peak_memory_bytes += work.calibration_bytes + work.jobs.size() * 4096;
}

}  // namespace

std::string module_of(const std::string& tensor) {
  return tensor.substr(0, tensor.size() - kWeight.size());
}

Blocks blocks_of(const Job& job, const PipelineOptions& options) {
  const std::int64_t n = job.plan.shape[0], k = job.plan.shape[1];
  if (!job.quantizer.rows_independent()) return {n, 1};
  Blocks blocks;
  blocks.together = std::clamp(2 * options.parallel.threads, 1, 1024);
  const auto slab_rows = static_cast<std::int64_t>(options.slab_bytes / 4 / static_cast<std::uint64_t>(k));
  blocks.rows = std::max<std::int64_t>(slab_rows / blocks.together / 32, 1) * 32;
  return blocks;
}

Result<Work> make_work(const std::string& input, const Recipe& recipe, const PipelineOptions& options) {
  std::vector<std::string_view> own;
  for (const QuantizerRef& quantizer : options.quantizers) own.push_back(quantizer.name());
  QF_TRY(check_available(recipe, own));
  if (options.slab_bytes == 0 || options.max_shard_bytes == 0)
    return Status(Errc::invalid_argument, "slab_bytes and max_shard_bytes: 1 or more expected");
  Work work;
  work.input = input;
  QF_TRY_ASSIGN(work.source, io::open_checkpoint(input));
  std::error_code code;
  if (!fs::is_directory(input, code))
    return Status(Errc::invalid_argument,
                  cat({input, ": a folder with config.json and safetensors expected"}));
  QF_TRY_ASSIGN(work.config, io::read_file(input + "/config.json", kLongestConfig));
  QF_TRY(check_not_quantized(work));
  for (const io::TensorInfo& info : work.source->tensors()) {
    auto job = make_job(work, info, recipe, options);
    if (!job.ok()) return job.status().at(input);
    work.jobs.push_back(std::move(*job));
  }
  QF_TRY(place(work, options));
  QF_TRY(lay_out(work, options.max_shard_bytes));
  sum_up(work, recipe, options);
  QF_TRY_ASSIGN(std::string identity, identity_of(work, options.calibration));
  identity += recipe.to_json();
  work.key = io::hash128(std::as_bytes(std::span(identity))).hex();
  return work;
}

}  // namespace qf::quant::detail
