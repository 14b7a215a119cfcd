// Uses what lies in the library, packages behind it included, and nothing of theirs.
#include <atomic>
#include <cstdio>

#include "qf/core/parallel.hpp"
#include "qf/kernel/matmul.hpp"
#include "qf/quant/rtn.hpp"

int main() {
  qf::ThreadPool pool(2);
  std::atomic<int> sum = 0;
  qf::parallel_for(pool.parallel_for(), 100, [&](std::int64_t i) { sum += static_cast<int>(i); });
  std::printf("%zu kernels, sum %d\n", qf::kernel::kernels().size(), sum.load());
  return sum == 4950 ? 0 : 1;
}
