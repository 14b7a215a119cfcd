#include <pthreadpool.h>

#include "qf/core/parallel.hpp"

#if QF_TSAN
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#endif

namespace qf {
namespace {

struct Call {
  void (*body)(void*, std::int64_t);
  void* context;
};

// The pool's own synchronisation lives in a library that ThreadSanitizer doesn't instrument: tell it what is
// ordered.
void acquire([[maybe_unused]] Call* call) {
#if QF_TSAN
  __tsan_acquire(call);
#endif
}
void release([[maybe_unused]] Call* call) {
#if QF_TSAN
  __tsan_release(call);
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  pool_ = pthreadpool_create(threads < 0 ? 1 : static_cast<std::size_t>(threads));
  threads_ = pool_ ? static_cast<int>(pthreadpool_get_threads_count(static_cast<pthreadpool_t>(pool_))) : 1;
}

ThreadPool::~ThreadPool() {
  if (pool_) pthreadpool_destroy(static_cast<pthreadpool_t>(pool_));
}

void ThreadPool::run(void* user, std::int64_t count, void (*body)(void*, std::int64_t), void* context) {
  Call call{body, context};
  release(&call);
  pthreadpool_parallelize_1d(
      static_cast<pthreadpool_t>(static_cast<ThreadPool*>(user)->pool_),
      [](void* argument, std::size_t i) {
        auto* c = static_cast<Call*>(argument);
        acquire(c);
        c->body(c->context, static_cast<std::int64_t>(i));
        release(c);
      },
      &call, static_cast<std::size_t>(count), PTHREADPOOL_FLAG_YIELD_WORKERS);
  acquire(&call);
}

}  // namespace qf
