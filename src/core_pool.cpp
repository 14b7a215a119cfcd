#include <pthread.h>
#include <pthreadpool.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

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

// How many threads, the caller's included, can run at once, up to `wanted`. The pool waits for ever for a thread
// that the system refused to make (a limit on processes or memory), so it is asked for what can be had.
std::size_t threads_to_be_had(std::size_t wanted) {
  std::mutex gate;
  std::vector<pthread_t> made;
  try {
    made.reserve(wanted);
  } catch (const std::bad_alloc&) {
    return 1;
  }
  gate.lock();
  while (made.size() + 1 < wanted) {
    pthread_t thread;
    const auto wait = [](void* mutex) -> void* {
      const std::lock_guard<std::mutex> lock(*static_cast<std::mutex*>(mutex));
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, wait, &gate) != 0) break;
    made.push_back(thread);
  }
  gate.unlock();
  for (const pthread_t thread : made) pthread_join(thread, nullptr);
  return made.size() + 1;
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  std::size_t count = threads < 0 ? 1 : static_cast<std::size_t>(threads);
  if (count == 0) count = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t possible = threads_to_be_had(count);
  // Where the system refused one, some are left to the rest of the process.
  pool_ = pthreadpool_create(possible == count ? count : possible - possible / 4);
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
