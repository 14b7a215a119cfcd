// Memory for weights: in large pages, since reading from small ones costs up to a fifth of the speed. Blocks that fill
// large pages are made alone, smaller ones side by side in slabs.
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "qf/kernel/matmul.hpp"

namespace qf::kernel {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20, kSlab = 8 * kPage, kHead = kBufferAlignment;

void* allocate_pages(std::size_t bytes, std::size_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) return nullptr;
#if defined(__linux__)
  madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);  // a wish: it may fail
#endif
  return memory;
}

// Begins with this head and is aligned to its size, so that a block's address leads to it.
struct Slab {
  std::size_t used, blocks;
};

class Slabs {
 public:
  void* allocate(std::size_t bytes) {
    const std::size_t rounded = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    const std::lock_guard lock(mutex_);
    if (!open_ || open_->used + rounded > kSlab) {
      void* memory = allocate_pages(kSlab, kSlab);
      if (!memory) return nullptr;
      open_ = new (memory) Slab{kHead, 0};
    }
    void* block = reinterpret_cast<std::byte*>(open_) + open_->used;
    open_->used += rounded;
    ++open_->blocks;
    return block;
  }

  void release(void* block) {
    if (!block) return;
    auto* slab = reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(block) / kSlab * kSlab);
    const std::lock_guard lock(mutex_);
    if (--slab->blocks > 0) return;
    if (slab == open_) open_ = nullptr;
    std::free(slab);
  }

 private:
  std::mutex mutex_;
  Slab* open_ = nullptr;
};

Slabs& slabs() {
  static auto* slabs = new Slabs;  // never destroyed: weights may outlive every static object
  return *slabs;
}

constexpr bool large(std::size_t bytes) {
  return bytes >= kPage;
}

}  // namespace

const Allocator& weight_allocator() {
  static constexpr Allocator kAllocator{[](void*, std::size_t bytes, std::size_t) {
                                          return large(bytes) ? allocate_pages(bytes, kPage)
                                                              : slabs().allocate(bytes);
                                        },
                                        [](void*, void* pointer, std::size_t bytes) {
                                          large(bytes) ? std::free(pointer) : slabs().release(pointer);
                                        },
                                        nullptr};
  return kAllocator;
}

}  // namespace qf::kernel
