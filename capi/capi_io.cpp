// Checkpoints.
#include <optional>

#include "capi/bridge.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/io/compressed_tensors.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/quantization_config.hpp"
#include "qf/io/safetensors_writer.hpp"

struct qf_checkpoint {
  std::unique_ptr<qf::io::Checkpoint> value;
  std::string path, format;  // as it was opened
};

using namespace qf;
using namespace qf::capi;

namespace {

Result<const io::TensorInfo*> tensor_at(const qf_checkpoint* checkpoint, int64_t index) {
  QF_TRY(need(checkpoint, "checkpoint"));
  const auto tensors = checkpoint->value->tensors();
  if (index < 0 || index >= static_cast<int64_t>(tensors.size()))
    return bad(cat({"tensor ", num(index), " of ", num(tensors.size())}));
  return &tensors[static_cast<std::size_t>(index)];
}

}  // namespace

qf_status qf_checkpoint_open(const char* path, qf_checkpoint** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY(need(path, "path"));
    QF_TRY_ASSIGN(auto checkpoint, io::open_checkpoint(path));
    std::string format(checkpoint->format());
    *out = new qf_checkpoint{std::move(checkpoint), path, std::move(format)};
    return {};
  });
}
void qf_checkpoint_destroy(qf_checkpoint* checkpoint) {
  delete checkpoint;
}
const char* qf_checkpoint_format(const qf_checkpoint* checkpoint) {
  return checkpoint ? checkpoint->format.c_str() : "";
}
int64_t qf_checkpoint_count(const qf_checkpoint* checkpoint) {
  return checkpoint ? static_cast<int64_t>(checkpoint->value->tensors().size()) : 0;
}
qf_status qf_checkpoint_get_info(const qf_checkpoint* checkpoint, int64_t index, qf_tensor_info* out,
                                 qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY_ASSIGN(const io::TensorInfo* t, tensor_at(checkpoint, index));
    return write_struct(
        qf_tensor_info{0, static_cast<int32_t>(t->shape.size()), t->name.c_str(), t->name.size(),
                       t->type.c_str(), t->shape.data(), t->bytes, t->elements},
        out, "out");
  });
}
qf_status qf_checkpoint_find(const qf_checkpoint* checkpoint, const char* name, int64_t* index,
                             qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(checkpoint, "checkpoint"));
    QF_TRY(need(name, "name"));
    QF_TRY(need(index, "index"));
    const io::TensorInfo* t = checkpoint->value->find(name);
    if (!t)
      return Status(Errc::not_found,
                    cat({printable(checkpoint->value->path()), ": no tensor ", printable(name)}));
    *index = t - checkpoint->value->tensors().data();
    return {};
  });
}
qf_status qf_checkpoint_bytes(const qf_checkpoint* checkpoint, int64_t index, const void** data, size_t* size,
                              qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY_ASSIGN(const io::TensorInfo* t, tensor_at(checkpoint, index));
    QF_TRY(need(data, "data"));
    QF_TRY(need(size, "size"));
    const auto bytes = checkpoint->value->bytes(*t);
    *data = bytes.data();
    *size = bytes.size();
    return {};
  });
}
qf_status qf_checkpoint_read_f32(const qf_checkpoint* checkpoint, int64_t index, uint64_t first, float* out,
                                 size_t count, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY_ASSIGN(const io::TensorInfo* t, tensor_at(checkpoint, index));
    if (count) QF_TRY(need(out, "out"));
    return checkpoint->value->read_f32(*t, first, {out, count});
  });
}

qf_status qf_matrix_save(const qf_matrix* matrix, const char* path, const char* module, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(matrix, "matrix"));
    QF_TRY(need(path, "path"));
    QF_TRY(need(module, "module"));
    QF_TRY_ASSIGN(const auto tensors, io::tensors_of(matrix->value, module));
    std::vector<io::TensorSpec> specs;
    for (const io::StoredTensor& t : tensors) specs.push_back(t.spec);
    QF_TRY_ASSIGN(auto writer, io::SafetensorsWriter::create(path, specs));
    for (const io::StoredTensor& t : tensors) QF_TRY(writer.write(t.spec.name, t.bytes));
    return writer.commit();
  });
}
qf_status qf_matrix_load(const qf_checkpoint* checkpoint, const char* module, const qf_scheme* scheme,
                         qf_matrix** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY(need(checkpoint, "checkpoint"));
    QF_TRY(need(module, "module"));
    const io::Checkpoint& from = *checkpoint->value;
    if (scheme) {
      io::QuantizationGroup group;
      QF_TRY_ASSIGN(group.scheme, read_scheme(scheme));
      group.act_order = from.find(std::string(module) + ".weight_g_idx") != nullptr;
      QF_TRY_ASSIGN(QuantizedMatrix matrix,
                    io::read_quantized(from, module, group, io::QuantizationConfig().version));
      return give(std::move(matrix), out);
    }
    const std::string config = checkpoint->path + "/config.json";
    QF_TRY_ASSIGN(const std::string text, io::read_file(config, std::uint64_t{1} << 24));
    QF_TRY_ASSIGN(const auto parsed, io::parse_quantization_config(text, config));
    if (!parsed) return Status(Errc::not_found, config + ": no quantization_config");
    QF_TRY_ASSIGN(QuantizedMatrix matrix, io::read_quantized(from, module, *parsed));
    return give(std::move(matrix), out);
  });
}
