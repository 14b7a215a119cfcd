#include <algorithm>
#include <map>
#include <new>

#include "model_gguf_names.hpp"
#include "qf/model/gguf_import.hpp"

namespace qf::model {
namespace {

// Tensors that config_from_gguf() has turned into the configuration.
bool is_configuration(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

class GgufAsHf final : public io::Checkpoint {
 public:
  explicit GgufAsHf(std::unique_ptr<io::GgufFile> file) : file_(std::move(file)) {}

  Status build() {
    QF_TRY_ASSIGN(const ModelConfig config, config_from_gguf(*file_));
    for (const io::TensorInfo& stored : file_->tensors()) {
      if (is_configuration(stored.name)) continue;
      auto name = detail::hf_tensor_name(config.architecture, stored.name);
      if (!name)
        return Status(Errc::unsupported, cat({path(), ": tensor ", printable(stored.name),
                                              " isn't part of a model of this architecture"}));
      const std::int64_t head_rows = detail::interleaved_rows(config, *name);
      if (head_rows && (stored.shape.empty() || stored.shape[0] % head_rows))
        return Status(Errc::bad_format, cat({path(), ": tensor ", printable(stored.name), ": ",
                                             num(stored.shape.empty() ? 1 : stored.shape[0]),
                                             " rows, expected a multiple of the head's ", num(head_rows)}));
      io::TensorInfo info = stored;
      info.name = std::move(*name);
      tensors_.push_back(std::move(info));
      sources_.push_back({&stored, head_rows});
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
    return {};
  }

  const std::string& path() const override { return file_->path(); }
  std::string_view format() const override { return "gguf"; }
  std::span<const io::TensorInfo> tensors() const override { return tensors_; }
  const io::TensorInfo* find(std::string_view name) const override {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &tensors_[at->second];
  }
  std::span<const std::byte> bytes(const io::TensorInfo& info) const override {
    const Source* s = source(info);
    return s && !s->head_rows ? file_->bytes(*s->stored) : std::span<const std::byte>();
  }
  void release(const io::TensorInfo& info) const override {
    if (const Source* s = source(info)) file_->release(*s->stored);
  }
  Status read_f32(const io::TensorInfo& info, std::uint64_t first, std::span<float> out) const override {
    const Source* s = source(info);
    if (!s) return Status(Errc::not_found, cat({path(), ": no tensor ", printable(info.name)}));
    if (!s->head_rows || out.empty() || first > info.elements || out.size() > info.elements - first)
      return file_->read_f32(*s->stored, first, out);
    const std::uint64_t width = s->stored->elements / static_cast<std::uint64_t>(s->stored->shape[0]);
    for (std::size_t done = 0; done < out.size();) {
      const std::uint64_t row = (first + done) / width, column = (first + done) % width;
      const std::size_t count =
          std::min<std::size_t>(out.size() - done, static_cast<std::size_t>(width - column));
      const auto there =
          static_cast<std::uint64_t>(detail::interleaved_row(static_cast<std::int64_t>(row), s->head_rows));
      QF_TRY(file_->read_f32(*s->stored, there * width + column, out.subspan(done, count)));
      done += count;
    }
    return {};
  }

 private:
  struct Source {
    const io::TensorInfo* stored;
    std::int64_t head_rows;  // 0: rows are in order
  };
  const Source* source(const io::TensorInfo& info) const {
    const auto at = by_name_.find(info.name);
    return at == by_name_.end() ? nullptr : &sources_[at->second];
  }
  std::unique_ptr<io::GgufFile> file_;
  std::vector<io::TensorInfo> tensors_;
  std::vector<Source> sources_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace

Result<std::unique_ptr<io::Checkpoint>> gguf_as_hf(std::unique_ptr<io::GgufFile> file) {
  const std::string path = file->path();
  try {
    auto view = std::make_unique<GgufAsHf>(std::move(file));
    QF_TRY(view->build());
    return std::unique_ptr<io::Checkpoint>(std::move(view));
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path, ": no memory for its list of tensors"}));
  }
}

Result<std::unique_ptr<io::Checkpoint>> open_gguf_as_hf(const std::string& path) {
  QF_TRY_ASSIGN(auto file, io::open_gguf(path));
  return gguf_as_hf(std::move(file));
}

}  // namespace qf::model
