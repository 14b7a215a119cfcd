// Memory for packed weights.
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "qf/kernel/matmul.hpp"

namespace qf::kernel {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

void* allocate(void*, std::size_t bytes, std::size_t alignment) {
  const bool large = bytes >= kPage;
  void* memory = nullptr;
  if (posix_memalign(&memory, large ? kPage : alignment, bytes) != 0) return nullptr;
#if defined(__linux__)
  if (large) madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);  // a wish: it may fail
#endif
  return memory;
}

}  // namespace

const Allocator& weight_allocator() {
  static constexpr Allocator kAllocator{
      allocate, [](void*, void* pointer, std::size_t) { std::free(pointer); }, nullptr};
  return kAllocator;
}

}  // namespace qf::kernel
