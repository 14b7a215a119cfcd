// How the library runs work on several threads without owning any: the host passes a ParallelFor.
// Every algorithm gives the same bytes for any ParallelFor: what is computed never depends on how it is
// split.
#pragma once

#include <cstdint>
#include <type_traits>

#include "qf/core/config.hpp"

namespace qf {

// `run` calls body(context, i) once for every i in [0, count), on any threads, in any order, and returns
// after the last. `body` never throws. `threads` is a hint for how finely to cut work (at least 1).
struct ParallelFor {
  void (*run)(void* user, std::int64_t count, void (*body)(void* context, std::int64_t i),
              void* context) = nullptr;
  void* user = nullptr;
  int threads = 1;
};

// Calls f(i) for every i in [0, count). An empty ParallelFor (run == nullptr) means: here, in order.
template <class F>
void parallel_for(const ParallelFor& how, std::int64_t count, F&& f) {
  if (count <= 0) return;
  if (!how.run || how.threads <= 1 || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) f(i);
    return;
  }
  using Body = std::remove_reference_t<F>;
  how.run(
      how.user, count, [](void* context, std::int64_t i) { (*static_cast<Body*>(context))(i); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

// Needs: link qf. A pool of a well-kept library behind a ParallelFor; workers sleep when there is no work.
// Not safe to use from two threads at once. Make it after fork(), not before.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // 0: as many as the machine has cores
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int threads() const { return threads_; }
  ParallelFor parallel_for() { return {&ThreadPool::run, this, threads_}; }

 private:
  static void run(void* user, std::int64_t count, void (*body)(void*, std::int64_t), void* context);
  void* pool_ = nullptr;
  int threads_ = 1;
};

}  // namespace qf
