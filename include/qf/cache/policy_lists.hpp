// What the orders are made of: lists and a heap over pages, a hash map of keys, a memory of blocks that are gone.
// All take their memory when they are made.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "qf/cache/policy.hpp"

namespace qf::cache::detail {

// 64 bits mixed so that all of them depend on all (the finalizer of SplitMix64; Steele, Lea, Flood 2014).
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Circular doubly linked lists over the items 0 .. items - 1 and as many list heads: any item is unlinked without
// knowing its list.
class Lists {
 public:
  Lists(std::size_t items, std::size_t lists)
      : items_(static_cast<std::uint32_t>(items)), links_(items + lists) {
    for (std::uint32_t i = 0; i < links_.size(); ++i) links_[i] = {i, i};
  }
  std::uint32_t head(std::size_t list) const { return items_ + static_cast<std::uint32_t>(list); }
  bool is_head(std::uint32_t item) const { return item >= items_; }
  bool empty(std::size_t list) const { return links_[head(list)].next == head(list); }
  bool linked(std::uint32_t item) const { return links_[item].next != item; }
  std::uint32_t front(std::size_t list) const { return links_[head(list)].next; }
  std::uint32_t back(std::size_t list) const { return links_[head(list)].previous; }
  std::uint32_t before(std::uint32_t item) const { return links_[item].previous; }
  std::uint32_t after(std::uint32_t item) const { return links_[item].next; }

  void push_front(std::size_t list, std::uint32_t item) { insert_after(head(list), item); }
  void push_back(std::size_t list, std::uint32_t item) { insert_after(links_[head(list)].previous, item); }
  void insert_after(std::uint32_t place, std::uint32_t item) {
    const std::uint32_t next = links_[place].next;
    links_[item] = {place, next};
    links_[place].next = item;
    links_[next].previous = item;
  }
  // Does nothing to an item that is in no list.
  void unlink(std::uint32_t item) {
    const Link link = links_[item];
    links_[link.previous].next = link.next;
    links_[link.next].previous = link.previous;
    links_[item] = {item, item};
  }
  // All of `from`, in its order, to the back of `to`.
  void splice_back(std::size_t to, std::size_t from) {
    if (empty(from)) return;
    const std::uint32_t a = head(to), b = head(from), first = links_[b].next, last = links_[b].previous,
                        end = links_[a].previous;
    links_[end].next = first;
    links_[first].previous = end;
    links_[last].next = a;
    links_[a].previous = last;
    links_[b] = {b, b};
  }

 private:
  struct Link {
    std::uint32_t previous, next;
  };
  std::uint32_t items_;
  std::vector<Link> links_;
};

// What a heap sorts by: `first`, and among equals `then`. Smallest first.
struct Rank {
  double first = 0, then = 0;
  friend bool operator<(const Rank& a, const Rank& b) {
    return a.first != b.first ? a.first < b.first : a.then < b.then;
  }
};

// A heap of pages from which any can be taken out: four children a node, since a level costs a cache miss.
class PageHeap {
 public:
  explicit PageHeap(std::size_t pages) : place_(pages, kNone) { heap_.reserve(pages); }
  bool empty() const { return heap_.empty(); }
  bool holds(Page p) const { return place_[p] != kNone; }
  Page top() const { return heap_[0].page; }
  void clear() {
    for (const Entry& entry : heap_) place_[entry.page] = kNone;
    heap_.clear();
  }
  void push(Page p, Rank rank) {
    heap_.push_back({rank, p});
    up(heap_.size() - 1);
  }
  // Does nothing to a page that isn't there.
  void erase(Page p) {
    const std::size_t at = place_[p];
    if (at == kNone) return;
    place_[p] = kNone;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    heap_[at] = last;
    if (at > 0 && last.rank < heap_[(at - 1) / 4].rank)
      up(at);
    else
      down(at);
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Entry {
    Rank rank;
    Page page;
  };
  void put(std::size_t at, const Entry& entry) {
    heap_[at] = entry;
    place_[entry.page] = static_cast<std::uint32_t>(at);
  }
  void up(std::size_t at) {
    const Entry entry = heap_[at];
    while (at > 0 && entry.rank < heap_[(at - 1) / 4].rank) {
      put(at, heap_[(at - 1) / 4]);
      at = (at - 1) / 4;
    }
    put(at, entry);
  }
  void down(std::size_t at) {
    const Entry entry = heap_[at];
    for (std::size_t child; (child = 4 * at + 1) < heap_.size();) {
      std::size_t least = child;
      for (std::size_t c = child + 1; c < child + 4 && c < heap_.size(); ++c)
        if (heap_[c].rank < heap_[least].rank) least = c;
      if (!(heap_[least].rank < entry.rank)) break;
      put(at, heap_[least]);
      at = least;
    }
    put(at, entry);
  }
  std::vector<Entry> heap_;
  std::vector<std::uint32_t> place_;
};

// Finds the number that a key stands for. Open addressing, at most half full. The keys themselves stand elsewhere: `KeyOf`
// maps a number to its key.
class KeyIndex {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  explicit KeyIndex(std::size_t most)
      : slots_(std::bit_ceil(most < 1 ? 2 : most * 2), kNone), shift_(64 - std::countr_zero(slots_.size())) {}

  template <class KeyOf>
  std::uint32_t find(BlockKey key, const KeyOf& key_of) const {
    for (std::size_t i = home(key);; i = next(i)) {
      const std::uint32_t at = slots_[i];
      if (at == kNone || key_of(at) == key) return at;
    }
  }
  // Precondition: the key isn't there yet, and fewer than `most` are.
  void insert(BlockKey key, std::uint32_t number) {
    std::size_t i = home(key);
    while (slots_[i] != kNone) i = next(i);
    slots_[i] = number;
  }
  // Precondition: the key is there. Moves back what had to step over it.
  template <class KeyOf>
  void erase(BlockKey key, const KeyOf& key_of) {
    std::size_t hole = home(key);
    while (key_of(slots_[hole]) != key) hole = next(hole);
    for (std::size_t i = next(hole); slots_[i] != kNone; i = next(i)) {
      const std::size_t wanted = home(key_of(slots_[i])), mask = slots_.size() - 1;
      if (((i - wanted) & mask) < ((i - hole) & mask)) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole] = kNone;
  }

 private:
  std::size_t home(BlockKey key) const { return static_cast<std::size_t>(mix(key) >> shift_); }
  std::size_t next(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }
  std::vector<std::uint32_t> slots_;
  int shift_;
};

// Blocks that are gone, the latest first, with what is remembered of each.
template <class Value>
class Ghosts {
 public:
  explicit Ghosts(std::size_t most) : most_(most), index_(most), lists_(most, 1), entries_(most) {
    free_.reserve(most);
    for (std::size_t i = most; i-- > 0;) free_.push_back(static_cast<std::uint32_t>(i));
  }
  std::size_t size() const { return most_ - free_.size(); }
  const Value* find(BlockKey key) const {
    const std::uint32_t at = index_.find(key, key_of());
    return at == KeyIndex::kNone ? nullptr : &entries_[at].value;
  }
  bool erase(BlockKey key) {
    const std::uint32_t at = index_.find(key, key_of());
    if (at == KeyIndex::kNone) return false;
    drop(at);
    return true;
  }
  // The block that went longest ago is forgotten. Precondition: size() > 0.
  Value pop() {
    const std::uint32_t at = lists_.back(0);
    drop(at);
    return entries_[at].value;
  }
  // Forgets the oldest when full. Precondition: the key isn't there.
  void push(BlockKey key, Value value) {
    if (!most_) return;
    if (free_.empty()) pop();
    const std::uint32_t at = free_.back();
    free_.pop_back();
    entries_[at] = {key, value};
    index_.insert(key, at);
    lists_.push_front(0, at);
  }
  bool full() const { return free_.empty(); }

 private:
  struct Entry {
    BlockKey key = kNoBlock;
    Value value{};
  };
  auto key_of() const {
    return [this](std::uint32_t at) { return entries_[at].key; };
  }
  void drop(std::uint32_t at) {
    index_.erase(entries_[at].key, key_of());
    lists_.unlink(at);
    free_.push_back(at);
  }
  std::size_t most_;
  KeyIndex index_;
  Lists lists_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
};

// Blocks that are gone and still remembered by orders with a history: eight times the capacity, less for caches so
// large that this would cost more than a few hundred megabytes.
inline std::size_t history_of(std::size_t pages) {
  const std::size_t enough = std::size_t{1} << 22;
  return pages * 8 <= enough ? pages * 8 : pages * 2 > enough ? pages * 2 : enough;
}

}  // namespace qf::cache::detail
