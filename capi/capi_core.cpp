#include <iterator>
#include <type_traits>

#include "capi/bridge.hpp"

// The numbers of the C face are those of the C++ one.
#define QF_SAME(c, cpp) static_assert(static_cast<std::int32_t>(c) == static_cast<std::int32_t>(cpp))
QF_SAME(QF_OK, qf::Errc::ok);
QF_SAME(QF_ERR_INVALID_ARGUMENT, qf::Errc::invalid_argument);
QF_SAME(QF_ERR_UNSUPPORTED, qf::Errc::unsupported);
QF_SAME(QF_ERR_NOT_FOUND, qf::Errc::not_found);
QF_SAME(QF_ERR_IO, qf::Errc::io_error);
QF_SAME(QF_ERR_BAD_FORMAT, qf::Errc::bad_format);
QF_SAME(QF_ERR_OUT_OF_MEMORY, qf::Errc::out_of_memory);
QF_SAME(QF_ERR_CANCELLED, qf::Errc::cancelled);
QF_SAME(QF_ERR_INTERNAL, qf::Errc::internal);
QF_SAME(QF_F32, qf::DType::f32);
QF_SAME(QF_F16, qf::DType::f16);
QF_SAME(QF_BF16, qf::DType::bf16);
static_assert(sizeof(qf_error) == 1024 && sizeof(qf_tensor) == 88 && sizeof(qf_parallel) == 24);

struct qf_pool {
  qf::ThreadPool value;
};

using namespace qf;
using namespace qf::capi;

const char* qf_version(void) {
  return QF_VERSION_STRING;
}
int32_t qf_version_number(void) {
  return QF_VERSION_MAJOR * 10000 + QF_VERSION_MINOR * 100 + QF_VERSION_PATCH;
}
int32_t qf_abi_version(void) {
  return QF_ABI_VERSION;
}
const char* qf_status_name(qf_status status) {
  return errc_name(static_cast<Errc>(status));
}

void qf_error_init(qf_error* error, size_t size) {
  init_struct(qf_error QF_ERROR_INIT, error, size);
}

void qf_tensor_matrix(qf_tensor* tensor, void* data, int32_t dtype, int64_t rows, int64_t columns) {
  if (!tensor) return;
  *tensor = qf_tensor{data, dtype, 2, {rows, columns, 0, 0}, {columns, 1, 0, 0}, QF_CPU, 0};
}

void qf_parallel_init(qf_parallel* parallel, size_t size) {
  init_struct(qf_parallel QF_PARALLEL_INIT, parallel, size);
}

qf_status qf_pool_create(int32_t threads, qf_pool** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    if (threads < 0 || threads > 4096) return bad(cat({"threads is ", num(threads), ", expected 0 to 4096"}));
    *out = new qf_pool{ThreadPool(threads)};
    return {};
  });
}
void qf_pool_destroy(qf_pool* pool) {
  delete pool;
}
qf_status qf_pool_parallel(qf_pool* pool, qf_parallel* out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(pool, "pool"));
    qf_parallel own = QF_PARALLEL_INIT;
    own.threads = pool->value.threads();
    own.user = pool;
    own.run = [](int64_t count, qf_body body, void* context, void* user) {
      const ParallelFor loop = static_cast<qf_pool*>(user)->value.parallel_for();
      loop.run(loop.user, count, body, context);
    };
    return write_struct(own, out, "out");
  });
}
