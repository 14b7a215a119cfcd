// Needs: link qf. Learns when blocks come back, and evicts what is worth least a unit of time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// The chance that a block is used again, by the time since its last use. For each class of blocks (how often they were
// used, and how long the last gap between uses was) the rate of reuse by age is estimated with open intervals taken into
// account (Kaplan, Meier, J. Am. Stat. Assoc. 53, 1958). A class with few observations leans on the blocks of the same number
// of uses, these on all blocks, these on a rate that falls with age. A block's index is the best chance of reuse per
// unit of time that holding it can give (Gittins, J. R. Stat. Soc. B 41, 1979); the leaf with the least index goes.
//
// Time is counted in requests. Blocks of a class whose last uses lie close together form a cohort: all of them share an index, so
// choosing a victim looks at cohorts. Cohorts grow with age, to a quarter of it.
class HazardOrder final : public EvictionOrder {
 public:
  explicit HazardOrder(const PageTree& tree);
  void request() override;
  void inserted(Page p) override;
  void used(Page p) override;
  void freed(Page p) override;
  void blocked(Page p) override;
  Page victim() override;
  void removed(Page p) override;

 private:
  static constexpr std::size_t kCounts = 8, kGaps = 8, kClasses = 1 + (kCounts - 1) * kGaps, kAges = 88;
  static constexpr std::size_t kMostOfClass = 192, kMostCohorts = kClasses * kMostOfClass;
  static constexpr std::uint32_t kMostUses = 1000;  // counted
  using Row = std::array<double, kAges>;            // something by age
  // What is known of a block between two of its uses.
  struct Interval {
    std::uint64_t start = 0;
    std::uint32_t uses = 0;
    std::uint32_t kind = 0;  // its class
  };
  struct Cohort {
    std::uint64_t oldest = 0, newest = 0;  // last uses in it
    std::uint32_t list = 0, evictable = 0;
    double open = 0;   // intervals, of resident and remembered blocks
    double index = 0;  // of its blocks, as of the last tick
  };
  static const std::array<double, kAges + 1> kEdges;  // the ages at which bins begin
  static std::size_t bin(double age);
  static std::size_t kind_of(std::uint32_t uses, std::uint64_t gap);
  double age(const Cohort& c) const;
  Cohort& cohort(const Interval& interval);
  void open(Interval& interval, std::uint32_t uses, std::uint64_t gap);
  void close(const Interval& interval, bool reused);
  void expose(std::size_t kind, double from, double to, double weight);
  void tick();
  void merge(std::vector<Cohort>& cohorts);
  void learn();
  void rates(std::size_t first, std::size_t last, const Row& above, double guess, double lean, Row& rate);
  void index_of(const Row& rate, std::size_t kind);

  const PageTree& tree_;
  detail::Lists lists_;
  std::vector<Interval> pages_;
  detail::Ghosts<Interval> ghosts_;
  detail::PageHeap ranking_;                  // of cohorts with pages that can go, by list
  std::vector<std::vector<Cohort>> cohorts_;  // [class], the oldest first
  std::vector<std::uint32_t> free_lists_;
  std::vector<double> reused_, exposed_;  // [class][age bin]: intervals that ended there; time x intervals
  std::vector<double> index_;             // [class][age bin]
  std::uint64_t now_ = 0, ticked_ = 0;    // in requests
  std::size_t tick_period_, learn_period_, since_tick_ = 0, since_learn_ = 0, learned_ = 0, open_cohorts_ = 0;
  double half_life_;
};

}  // namespace qf::cache
