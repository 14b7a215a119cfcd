#include "qf/model/gguf_export.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <new>
#include <string_view>
#include <unordered_map>

#include "model_gguf_metadata.hpp"
#include "model_gguf_names.hpp"
#include "model_gguf_tokenizer.hpp"
#include "model_tensors.hpp"
#include "qf/format/gguf_encode.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/io/compressed_tensors.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/gguf_writer.hpp"
#include "qf/io/quantization_config.hpp"
#include "qf/model/config.hpp"

namespace qf::model {
namespace {

constexpr std::uint64_t kMostJson = std::uint64_t{256} << 20;
constexpr std::int64_t kSlabElements = std::int64_t{1}
                                       << 21;  // rows that are read, rounded and written at once
constexpr std::string_view kPacked = ".weight_packed";

std::uint32_t file_type(gguf::Type type) {  // general.file_type
  switch (type) {
    case gguf::Type::f32:
      return 0;
    case gguf::Type::q4_0:
      return 2;
    case gguf::Type::q4_1:
      return 3;
    case gguf::Type::q8_0:
      return 7;
    case gguf::Type::bf16:
      return 32;
    default:
      return 1;  // F16
  }
}

class Exporter {
 public:
  Exporter(const std::string& folder, const std::string& path, const GgufExportOptions& options)
      : folder_(folder), path_(path), options_(options) {}

  Result<GgufExportReport> run() {
    if (!gguf::can_encode(options_.type))
      return Status(Errc::invalid_argument, cat({"writing type ", gguf::traits(options_.type).name,
                                                 ", expected F32, F16, BF16, Q4_0, Q4_1 or Q8_0"}));
    QF_TRY(read_folder());
    QF_TRY(plan());
    QF_TRY(check_complete());
    QF_TRY(write());
    return std::move(report_);
  }

 private:
  struct Source {
    std::string hf_name;  // of the float tensor: "...weight" even where codes are stored
    const io::TensorInfo* info = nullptr;
    std::unique_ptr<QuantizedMatrix> matrix;  // read when its turn comes, freed after it
    bool packed = false;
    std::int64_t rows = 1, columns = 1, head_rows = 0;
  };

  Result<Json> read_json(std::string_view name, bool needed) {
    const std::string file = cat({folder_, "/", name});
    auto text = io::read_file(file, kMostJson);
    if (!text.ok() && text.status().code() == Errc::not_found && !needed) return Json::object();
    QF_TRY(text);
    return parse_json(*text, file);
  }

  Status read_folder() {
    const std::string config_path = folder_ + "/config.json";
    QF_TRY_ASSIGN(const std::string config_text, io::read_file(config_path, kMostJson));
    QF_TRY_ASSIGN(config_, parse_config(config_text, config_path));
    QF_TRY_ASSIGN(quantization_, io::parse_quantization_config(config_text, config_path));
    QF_TRY_ASSIGN(const Json tokenizer, read_json("tokenizer.json", true));
    QF_TRY_ASSIGN(const Json tokenizer_config, read_json("tokenizer_config.json", false));
    QF_TRY_ASSIGN(vocabulary_,
                  detail::vocabulary_from_json(tokenizer, tokenizer_config, config_.vocab, folder_));
    if (auto jinja = io::read_file(folder_ + "/chat_template.jinja", kMostJson);
        jinja.ok() && vocabulary_.chat_template.empty())
      vocabulary_.chat_template = std::move(*jinja);
    text::GgufVocabulary& v = vocabulary_.vocabulary;
    if (!v.bos && config_.bos >= 0 && config_.bos < config_.vocab) v.bos = config_.bos;
    if (!v.eos && !config_.eos.empty()) v.eos = config_.eos[0];
    QF_TRY_ASSIGN(checkpoint_, io::open_checkpoint(folder_));
    return {};
  }

  // What becomes of each tensor, in the order of the file: embeddings, layers, output.
  Status plan() {
    for (const io::TensorInfo& info : checkpoint_->tensors()) {
      std::string name = info.name;
      const bool packed = name.ends_with(kPacked);
      if (packed) name.replace(name.size() - kPacked.size(), kPacked.size(), ".weight");
      if (!packed && belongs_to_packed(name)) continue;
      if (name.ends_with(".rotary_emb.inv_freq")) continue;  // follows from the configuration
      if (name == "lm_head.weight" && config_.tied_head) continue;
      auto gguf_name = detail::gguf_tensor_name(config_.architecture, name);
      if (!gguf_name)
        return Status(Errc::unsupported,
                      cat({folder_, ": tensor ", printable(info.name), " has no place in GGUF"}));
      Source source;
      source.hf_name = name, source.info = &info, source.packed = packed;
      source.head_rows = detail::interleaved_rows(config_, name);
      QF_TRY(shape_of(source));
      io::GgufTensorSpec spec{std::move(*gguf_name), gguf::Type::f32, {source.columns}};
      if (source.rows > 0) spec.shape.insert(spec.shape.begin(), source.rows);
      QF_TRY(choose_type(source, spec));
      planned_.push_back({std::move(source), std::move(spec)});
    }
    std::stable_sort(planned_.begin(), planned_.end(), [](const Planned& a, const Planned& b) {
      return order(a.spec.name) < order(b.spec.name);
    });
    return {};
  }

  // A file that lacks a weight, or holds one of another model, would be found out only where it is to run.
  Status check_complete() const {
    std::unordered_map<std::string_view, const Source*> found;
    for (const Planned& p : planned_) found[p.source.hf_name] = &p.source;
    const auto shape = [](std::int64_t rows, std::int64_t columns) {
      return rows ? cat({"[", num(rows), ", ", num(columns), "]"}) : cat({"[", num(columns), "]"});
    };
    for (const detail::WeightShape& w : detail::weights_of(config_)) {
      const auto it = found.find(w.name);
      if (it == found.end())
        return Status(Errc::not_found, cat({folder_, ": tensor '", w.name, "' is missing, expected ",
                                            shape(w.rows, w.columns)}));
      const Source& s = *it->second;
      if (s.rows != w.rows || s.columns != w.columns)
        return Status(Errc::bad_format,
                      cat({folder_, ": tensor '", w.name, "' has shape ", shape(s.rows, s.columns),
                           ", expected ", shape(w.rows, w.columns), " from the configuration"}));
    }
    return {};
  }

  bool belongs_to_packed(std::string_view name) const {
    for (std::string_view part : {".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx"})
      if (name.ends_with(part))
        return checkpoint_->find(cat({name.substr(0, name.size() - part.size()), kPacked}));
    return false;
  }

  static std::int64_t order(std::string_view name) {
    if (!name.starts_with("blk.")) return name.starts_with("token_embd") ? -1 : INT32_MAX;
    std::int64_t layer = 0;
    for (std::size_t i = 4; i < name.size() && name[i] != '.'; ++i) layer = layer * 10 + (name[i] - '0');
    return layer;
  }

  // rows 0: a tensor of one dimension.
  Status shape_of(Source& s) {
    const std::string_view type = s.info->type;
    if (!s.packed && type != "F32" && type != "F16" && type != "BF16" && type != "F64")
      return Status(Errc::unsupported, cat({folder_, ": tensor ", printable(s.info->name), " has type ",
                                            printable(type), ", expected F32, F16, BF16 or F64"}));
    if (s.packed) {
      QF_TRY(load(s));
      s.rows = s.matrix->n(), s.columns = s.matrix->k();
      exact_ = options_.keep_exact ? gguf::exact_type(*s.matrix) : std::nullopt;
      s.matrix.reset();
    } else if (s.info->shape.size() == 2) {
      s.rows = s.info->shape[0], s.columns = s.info->shape[1];
    } else if (s.info->shape.size() == 1) {
      s.rows = 0, s.columns = s.info->shape[0];
    } else {
      return Status(Errc::unsupported, cat({folder_, ": tensor ", printable(s.info->name), " has ",
                                            num(s.info->shape.size()), " dimensions, expected 1 or 2"}));
    }
    if (s.head_rows && (s.rows ? s.rows : s.columns) % s.head_rows)
      return Status(Errc::bad_format, cat({folder_, ": tensor ", printable(s.info->name), ": ",
                                           num(s.rows ? s.rows : s.columns), " rows, expected a multiple of ",
                                           num(s.head_rows)}));
    return {};
  }

  Status choose_type(const Source& s, io::GgufTensorSpec& spec) {
    if (s.packed && exact_) {
      spec.type = *exact_;
      ++report_.exact;
      return {};
    }
    if (s.rows == 0) return {};
    spec.type = options_.type;
    const bool ends = spec.name.starts_with("token_embd") || spec.name.starts_with("output.");
    if (ends && (spec.type == gguf::Type::q4_0 || spec.type == gguf::Type::q4_1))
      spec.type = gguf::Type::q8_0;
    if (s.columns % gguf::traits(spec.type).block_elements) {
      spec.type = gguf::Type::f16;
      report_.fallbacks.push_back(s.hf_name);
    }
    return {};
  }

  Status load(Source& s) {
    if (!quantization_)
      return Status(Errc::bad_format, cat({folder_, ": tensor ", printable(s.info->name),
                                           " holds codes, but config.json has no \"quantization_config\""}));
    const std::string module = s.info->name.substr(0, s.info->name.size() - kPacked.size());
    QF_TRY_ASSIGN(auto matrix, io::read_quantized(*checkpoint_, module, *quantization_));
    s.matrix = std::make_unique<QuantizedMatrix>(std::move(matrix));
    return {};
  }

  Status write() {
    io::GgufMetadata meta;
    const std::string arch(detail::gguf_architecture(config_.architecture));
    meta.text("general.architecture", arch);
    meta.text("general.type", "model");
    meta.text("general.name", options_.name.empty()
                                  ? std::filesystem::path(folder_).lexically_normal().filename().string()
                                  : options_.name);
    meta.u32("general.file_type", file_type(options_.type));
    meta.u32("general.quantization_version", 2);
    detail::put_config(config_, meta);
    detail::put_vocabulary(vocabulary_, meta);
    const text::GgufVocabulary& v = vocabulary_.vocabulary;
    for (std::int32_t id : config_.eos)
      if (v.eos && id != *v.eos) {
        meta.u32("tokenizer.ggml.eot_token_id", static_cast<std::uint32_t>(id));
        break;
      }
    const auto rope = detail::rope_tensors(config_);
    std::vector<io::GgufTensorSpec> specs;
    for (const auto& r : rope)
      specs.push_back({r.name, gguf::Type::f32, {static_cast<std::int64_t>(r.factors.size())}});
    for (const Planned& p : planned_) specs.push_back(p.spec);
    QF_TRY_ASSIGN(auto writer, io::GgufWriter::create(path_, meta, specs));
    for (const auto& r : rope) QF_TRY(writer.write_f32(r.name, r.factors));
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      Planned& p = planned_[i];
      QF_TRY(options_.progress.report({"export", p.spec.name, i, planned_.size(), "tensors"}));
      QF_TRY(write_tensor(writer, p.source, p.spec));
      report_.bytes += checked_bytes(p);
    }
    report_.tensors = specs.size();
    QF_TRY(options_.progress.report({"export", "", planned_.size(), planned_.size(), "tensors"}));
    return writer.commit();
  }

  struct Planned {
    Source source;
    io::GgufTensorSpec spec;
  };
  static std::uint64_t checked_bytes(const Planned& p) {
    const std::int64_t rows = std::max<std::int64_t>(p.source.rows, 1);
    return static_cast<std::uint64_t>(rows * gguf::row_bytes(p.spec.type, p.source.columns));
  }

  Status write_tensor(io::GgufWriter& writer, Source& s, const io::GgufTensorSpec& spec) {
    if (s.packed) QF_TRY(load(s));
    if (s.rows == 0) {  // a bias of q or k is ordered like the rows of its matrix
      std::vector<float> stored(static_cast<std::size_t>(s.columns)), ordered(stored.size());
      QF_TRY(checkpoint_->read_f32(*s.info, 0, stored));
      for (std::size_t i = 0; i < stored.size(); ++i)
        ordered[i] = stored[s.head_rows ? static_cast<std::size_t>(detail::separated_row(
                                              static_cast<std::int64_t>(i), s.head_rows))
                                        : i];
      return writer.write_f32(spec.name, ordered);
    }
    const std::int64_t slab = std::clamp<std::int64_t>(kSlabElements / std::max<std::int64_t>(s.columns, 1),
                                                       1, s.rows ? s.rows : 1);
    const auto row_bytes = static_cast<std::size_t>(gguf::row_bytes(spec.type, s.columns));
    const std::int64_t chunk = 16;  // rows that one thread takes
    std::vector<std::byte> out(static_cast<std::size_t>(slab) * row_bytes);
    std::vector<Status> failed(static_cast<std::size_t>((slab + chunk - 1) / chunk));
    for (std::int64_t first = 0; first < s.rows; first += slab) {
      const std::int64_t count = std::min(slab, s.rows - first);
      parallel_for(options_.parallel, (count + chunk - 1) / chunk, [&](std::int64_t part) {
        failed[static_cast<std::size_t>(part)] =
            encode_rows(s, spec.type, first + part * chunk, first + std::min((part + 1) * chunk, count),
                        out.data() + static_cast<std::size_t>(part * chunk) * row_bytes);
      });
      for (const Status& status : failed)
        QF_TRY(status.at(cat({folder_, ": tensor ", printable(s.hf_name)})));
      QF_TRY(writer.write(spec.name, std::span(out).first(static_cast<std::size_t>(count) * row_bytes)));
    }
    s.matrix.reset();
    checkpoint_->release(*s.info);
    return {};
  }

  // Rows [first, last) of GGUF's order.
  Status encode_rows(const Source& s, gguf::Type type, std::int64_t first, std::int64_t last,
                     std::byte* out) const {
    try {
      const auto row_bytes = static_cast<std::size_t>(gguf::row_bytes(type, s.columns));
      const bool exact = s.matrix && options_.keep_exact && gguf::exact_type(*s.matrix) == type;
      std::vector<float> row(exact ? 0 : static_cast<std::size_t>(s.columns));
      for (std::int64_t r = first; r < last; ++r, out += row_bytes) {
        const std::int64_t from = s.head_rows ? detail::separated_row(r, s.head_rows) : r;
        if (exact) {
          QF_TRY(gguf::encode_quantized_row(*s.matrix, from, type, out));
          continue;
        }
        if (s.matrix) {
          s.matrix->dequantize_row(from, row.data());
        } else {
          QF_TRY(checkpoint_->read_f32(*s.info, static_cast<std::uint64_t>(from * s.columns), row));
        }
        QF_TRY(gguf::encode_row(type, row, out).at("row " + num(from)));
      }
      return {};
    } catch (const std::bad_alloc&) {
      return Status(Errc::out_of_memory, "no memory for a row");
    }
  }

  const std::string &folder_, &path_;
  const GgufExportOptions& options_;
  ModelConfig config_;
  std::optional<io::QuantizationConfig> quantization_;
  detail::StoredVocabulary vocabulary_;
  std::unique_ptr<io::Checkpoint> checkpoint_;
  std::vector<Planned> planned_;
  std::optional<gguf::Type> exact_;  // of the matrix that shape_of() looked at last
  GgufExportReport report_;
};

}  // namespace

Result<GgufExportReport> export_gguf(const std::string& folder, const std::string& path,
                                     const GgufExportOptions& options) {
  try {
    return Exporter(folder, path, options).run();
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({folder, ": no memory to export it"}));
  } catch (const std::filesystem::filesystem_error& e) {
    return Status(Errc::io_error, cat({folder, ": ", e.code().message()}));
  }
}

}  // namespace qf::model
