#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>

#include "model_gguf_metadata.hpp"
#include "model_gguf_tokenizer.hpp"
#include "qf/core/json.hpp"
#include "qf/io/convert.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/safetensors_writer.hpp"
#include "qf/model/gguf_import.hpp"
#include "src/io_posix.hpp"

namespace qf::model {
namespace {

constexpr std::uint64_t kSlabElements = std::uint64_t{1} << 21;   // read, rounded and written at once
constexpr std::uint64_t kChunkElements = std::uint64_t{1} << 15;  // what one thread takes

Status write_tensor(const io::Checkpoint& from, const io::TensorInfo& info, io::SafetensorsWriter& to,
                    const GgufImportOptions& options) {
  std::vector<float> slab(static_cast<std::size_t>(std::min(info.elements, kSlabElements)));
  std::vector<Status> failed;
  for (std::uint64_t first = 0; first < info.elements; first += kSlabElements) {
    const std::uint64_t count = std::min(kSlabElements, info.elements - first);
    const std::uint64_t chunks = (count + kChunkElements - 1) / kChunkElements;
    failed.assign(static_cast<std::size_t>(chunks), {});
    parallel_for(options.parallel, static_cast<std::int64_t>(chunks), [&](std::int64_t i) {
      const std::uint64_t begin = static_cast<std::uint64_t>(i) * kChunkElements;
      const std::uint64_t length = std::min(kChunkElements, count - begin);
      std::span<float> part(slab.data() + begin, static_cast<std::size_t>(length));
      failed[static_cast<std::size_t>(i)] = from.read_f32(info, first + begin, part);
    });
    for (const Status& status : failed) QF_TRY(status);
    if (options.dtype == DType::f16)
      for (std::uint64_t i = 0; i < count; ++i)
        if (std::abs(slab[i]) >= 65520.f && std::isfinite(slab[i]))
          return Status(Errc::invalid_argument, cat({from.path(), ": tensor ", printable(info.name),
                                                     ": element ", num(first + i), " is too large for F16"}));
    QF_TRY(to.write_f32(info.name, std::span(slab).first(static_cast<std::size_t>(count))));
  }
  from.release(info);
  return {};
}

std::string generation_config(const ModelConfig& c, std::optional<std::int32_t> pad) {
  nlohmann::ordered_json j = {{"_from_model_config", true}};
  if (c.bos >= 0) j["bos_token_id"] = c.bos;
  if (c.eos.size() == 1) j["eos_token_id"] = c.eos[0];
  if (c.eos.size() > 1) j["eos_token_id"] = c.eos;
  if (pad) j["pad_token_id"] = *pad;
  return j.dump(2) + "\n";
}

constexpr std::array<std::string_view, 5> kFiles{"model.safetensors", "config.json", "tokenizer.json",
                                                 "tokenizer_config.json", "generation_config.json"};

// Where files are written, and what takes them away again if it comes to nothing. What a kill leaves in the work folder
// is overwritten by the next import.
class OutputFolder {
 public:
  explicit OutputFolder(std::string folder) : folder_(std::move(folder)) {
    while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
    std::error_code code;
    in_place_ = std::filesystem::exists(folder_, code) || code;
    work_ = in_place_ ? folder_ : folder_ + ".partial-import";
  }
  OutputFolder(const OutputFolder&) = delete;
  ~OutputFolder() {
    if (in_place_) return;
    std::error_code code;
    for (const std::string_view name : kFiles) std::filesystem::remove(cat({work_, "/", name}), code);
    std::filesystem::remove(work_, code);  // stays where someone else has put something
  }
  const std::string& work() const { return work_; }
  Status finish() const {
    if (in_place_) return {};
    if (::rename(work_.c_str(), folder_.c_str()) != 0)
      return io::detail::system_error(folder_, "cannot be put in place", errno);
    const auto parent = std::filesystem::absolute(folder_).parent_path().string();
    const io::detail::Descriptor opened(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Some file systems have no fsync of folders.
    if (!opened.ok() || (::fsync(opened.fd()) != 0 && errno != EINVAL))
      return io::detail::system_error(parent, "cannot be flushed", errno);
    return {};
  }

 private:
  std::string folder_, work_;
  bool in_place_;
};

Status run(const std::string& path, const std::string& folder, const GgufImportOptions& options) {
  if (options.dtype != DType::bf16 && options.dtype != DType::f16 && options.dtype != DType::f32)
    return Status(Errc::invalid_argument,
                  cat({"writing type ", dtype_name(options.dtype), ", expected BF16, F16 or F32"}));
  QF_TRY_ASSIGN(auto file, io::open_gguf(path));
  QF_TRY_ASSIGN(const ModelConfig config, config_from_gguf(*file));
  detail::StoredVocabulary stored;
  QF_TRY_ASSIGN(stored.vocabulary, vocabulary_from_gguf(*file));
  QF_TRY_ASSIGN(stored.chat_template, chat_template_from_gguf(*file));
  QF_TRY_ASSIGN(const std::int64_t pad, file->integer_or("tokenizer.ggml.padding_token_id", -1));
  if (pad >= 0 && pad < static_cast<std::int64_t>(stored.vocabulary.tokens.size()))
    stored.pad = static_cast<std::int32_t>(pad);
  const std::string_view torch_dtype = options.dtype == DType::bf16  ? "bfloat16"
                                       : options.dtype == DType::f16 ? "float16"
                                                                     : "float32";
  QF_TRY_ASSIGN(const std::string config_text,
                detail::config_json(config, torch_dtype, stored.pad.value_or(-1), path));
  QF_TRY_ASSIGN(const std::string tokenizer_text, detail::tokenizer_json(stored.vocabulary, path));
  QF_TRY_ASSIGN(const std::string tokenizer_config,
                detail::tokenizer_config_json(stored, config.context, path));
  QF_TRY_ASSIGN(auto tensors, gguf_as_hf(std::move(file)));

  // A new folder gets its name when all is in it; into one that exists files go one by one.
  const OutputFolder output(folder);
  std::error_code failed;
  std::filesystem::create_directories(output.work(), failed);
  if (failed) return Status(Errc::io_error, cat({output.work(), ": can't be made: ", failed.message()}));
  const auto file_path = [&](std::string_view name) { return cat({output.work(), "/", name}); };
  std::vector<io::TensorSpec> specs;
  for (const io::TensorInfo& info : tensors->tensors())
    specs.push_back({info.name, options.dtype, info.shape});
  QF_TRY_ASSIGN(auto writer, io::SafetensorsWriter::create(file_path(kFiles[0]), specs, {{"format", "pt"}}));
  std::uint64_t done = 0;
  for (const io::TensorInfo& info : tensors->tensors()) {
    QF_TRY(options.progress.report({"import", info.name, done++, specs.size(), "tensors"}));
    QF_TRY(write_tensor(*tensors, info, writer, options));
  }
  QF_TRY(options.progress.report({"import", "", specs.size(), specs.size(), "tensors"}));
  QF_TRY(io::write_file(file_path(kFiles[1]), config_text));
  QF_TRY(io::write_file(file_path(kFiles[2]), tokenizer_text));
  QF_TRY(io::write_file(file_path(kFiles[3]), tokenizer_config));
  QF_TRY(io::write_file(file_path(kFiles[4]), generation_config(config, stored.pad)));
  QF_TRY(writer.commit());
  return output.finish();
}

}  // namespace

Status import_gguf(const std::string& path, const std::string& folder, const GgufImportOptions& options) {
  try {
    return run(path, folder, options);
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path, ": no memory to import it"}));
  }
}

}  // namespace qf::model
