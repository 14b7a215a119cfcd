// Checkpoints.
#include "capi/bridge.hpp"
#include "qf/io/checkpoint.hpp"

struct qf_checkpoint {
  std::unique_ptr<qf::io::Checkpoint> value;
  std::string format;
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
    *out = new qf_checkpoint{std::move(checkpoint), std::move(format)};
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
