#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "qf/cache/policy_hazard.hpp"

namespace qf::cache {
namespace {

constexpr std::size_t kFineAges = 16;  // bins of one request each; beyond, four an octave
// Before anything was seen: reuse a request, divided by age + 1.
constexpr double kFirstRate = 0.1;
// How much more often than others blocks come back that were used once, twice, three times, more: a first guess, worth as
// much as this many reuses. The chains of a request come and go together, so that these are few requests.
constexpr double kGuess[] = {0.5, 2, 3, 4}, kGuessReuses = 100;
// What a row of rates leans on the row above it, in intervals at each age.
constexpr double kLeanAll = 20, kLeanUses = 5, kLeanClass = 20;
// Half of what was seen fades in so many accesses, or in four times the capacity.
constexpr double kHalfLife = 100000;

}  // namespace

const std::array<double, HazardOrder::kAges + 1> HazardOrder::kEdges = [] {
  std::array<double, kAges + 1> edges;
  for (std::size_t a = 0; a <= kAges; ++a) {
    const double past = static_cast<double>(a) - static_cast<double>(kFineAges);
    edges[a] = past < 0 ? static_cast<double>(a) : static_cast<double>(kFineAges) * std::exp2(past / 4);
  }
  return edges;
}();

std::size_t HazardOrder::bin(double age) {
  if (age < static_cast<double>(kFineAges)) return age > 0 ? static_cast<std::size_t>(age) : 0;
  const auto octave = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(age))) - 5;
  std::size_t a = kFineAges + 4 * octave;
  for (int i = 0; i < 3 && a + 1 < kAges && age >= kEdges[a + 1]; ++i) ++a;
  return std::min<std::size_t>(a, kAges - 1);
}

std::size_t HazardOrder::kind_of(std::uint32_t uses, std::uint64_t gap) {
  static constexpr std::uint32_t kMost[kCounts - 1] = {1, 2, 3, 5, 8, 16, 40};
  std::size_t count = 0;
  while (count < kCounts - 1 && uses > kMost[count]) ++count;
  if (count == 0) return 0;
  std::size_t octaves = 0;
  while (octaves < kGaps - 1 && gap >= (std::uint64_t{4} << (2 * octaves))) ++octaves;
  return 1 + (count - 1) * kGaps + octaves;
}

HazardOrder::HazardOrder(const PageTree& tree)
    : tree_(tree),
      lists_(tree.capacity(), kMostCohorts),
      pages_(tree.capacity()),
      ghosts_(detail::history_of(tree.capacity())),
      ranking_(kMostCohorts),
      cohorts_(kClasses),
      reused_(kClasses * kAges),
      exposed_(kClasses * kAges),
      index_(kClasses * kAges),
      tick_period_(std::clamp<std::size_t>(tree.capacity() / 64, 32, 256)),
      learn_period_(std::max<std::size_t>(4096, tree.capacity() / 8)),
      half_life_(std::max(kHalfLife, 4 * static_cast<double>(tree.capacity()))) {
  for (auto& cohorts : cohorts_) cohorts.reserve(kMostOfClass);
  free_lists_.reserve(kMostCohorts);
  for (std::uint32_t i = kMostCohorts; i-- > 0;) free_lists_.push_back(i);
  learn();
}

double HazardOrder::age(const Cohort& c) const {
  return static_cast<double>(now_ - c.oldest + now_ - c.newest) / 2;
}

// The cohort of an interval that is open.
HazardOrder::Cohort& HazardOrder::cohort(const Interval& interval) {
  auto& cohorts = cohorts_[interval.kind];
  if (interval.start >= cohorts.back().oldest) return cohorts.back();
  return *std::lower_bound(cohorts.begin(), cohorts.end(), interval.start,
                           [](const Cohort& c, std::uint64_t start) { return c.newest < start; });
}

void HazardOrder::open(Interval& interval, std::uint32_t uses, std::uint64_t gap) {
  interval = {now_, uses, static_cast<std::uint16_t>(kind_of(uses, gap))};
  auto& cohorts = cohorts_[interval.kind];
  if (cohorts.empty() || (cohorts.back().oldest < ticked_ && cohorts.size() < kMostOfClass)) {
    cohorts.push_back({now_, now_, free_lists_.back(), 0, 0, index_[interval.kind * kAges]});
    free_lists_.pop_back();
  }
  cohorts.back().newest = now_;
  cohorts.back().open += 1;
}

// Spreads `weight` intervals that went from one age to another over the bins between.
void HazardOrder::expose(std::size_t kind, double from, double to, double weight) {
  double* exposed = &exposed_[kind * kAges];
  for (std::size_t a = bin(from); from < to; ++a) {
    const double end = a + 1 < kAges ? std::min(to, kEdges[a + 1]) : to;
    exposed[a] += weight * std::max(0.0, end - from);
    from = std::max(from, end);
  }
}

void HazardOrder::close(const Interval& interval, bool reused) {
  cohort(interval).open -= 1;
  const double age = static_cast<double>(now_ - interval.start);
  if (!reused) return;
  reused_[interval.kind * kAges + bin(age)] += 1;
  expose(interval.kind, interval.start > ticked_ ? 0 : static_cast<double>(ticked_ - interval.start), age, 1);
}

void HazardOrder::inserted(Page p) {
  ++since_tick_;
  const Interval* ghost = ghosts_.find(tree_.key(p));
  if (ghost) {
    const Interval before = *ghost;
    ghosts_.erase(tree_.key(p));
    close(before, true);
    open(pages_[p], before.uses + (before.uses < kMostUses), now_ - before.start);
  } else {
    open(pages_[p], 1, 0);
  }
}

void HazardOrder::used(Page p) {
  ++since_tick_;
  const Interval before = pages_[p];
  close(before, true);
  open(pages_[p], before.uses + (before.uses < kMostUses), now_ - before.start);
}

void HazardOrder::freed(Page p) {
  Cohort& c = cohort(pages_[p]);
  lists_.push_front(c.list, p);  // at the front: once a chain's leaf went, the chain goes on
  if (++c.evictable == 1) ranking_.push(c.list, {c.index, static_cast<double>(c.newest)});
}

void HazardOrder::blocked(Page p) {
  Cohort& c = cohort(pages_[p]);
  if (--c.evictable == 0) ranking_.erase(c.list);
  lists_.unlink(p);
}

Page HazardOrder::victim() {
  return lists_.front(ranking_.top());
}

void HazardOrder::removed(Page p) {
  blocked(p);
  if (ghosts_.full()) close(ghosts_.pop(), false);
  ghosts_.push(tree_.key(p), pages_[p]);
}

void HazardOrder::request() {
  ++now_;
  if (since_tick_ >= std::max(tick_period_, open_cohorts_ / 1)) tick();
}

// Counts what is open as exposed, lets cohorts age and merges those that lie close together.
void HazardOrder::tick() {
  since_learn_ += since_tick_;
  since_tick_ = 0;
  for (std::size_t kind = 0; kind < kClasses; ++kind)
    for (Cohort& c : cohorts_[kind]) {
      const double until = age(c);
      expose(kind, std::max(0.0, until - static_cast<double>(now_ - ticked_)), until, c.open);
    }
  ticked_ = now_;
  if (since_learn_ >= std::min(learn_period_, learned_ / 4 + 256)) {
    learned_ += since_learn_;
    learn();
    since_learn_ = 0;
  }
  open_cohorts_ = 0;
  ranking_.clear();
  for (std::size_t kind = 0; kind < kClasses; ++kind) {
    merge(cohorts_[kind]);
    open_cohorts_ += cohorts_[kind].size();
    for (Cohort& c : cohorts_[kind]) {
      c.index = index_[kind * kAges + bin(age(c))];
      if (c.evictable) ranking_.push(c.list, {c.index, static_cast<double>(c.newest)});
    }
  }
}

void HazardOrder::merge(std::vector<Cohort>& cohorts) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < cohorts.size(); ++i) {
    Cohort& c = cohorts[i];
    if (c.open < 0.5) {
      free_lists_.push_back(c.list);
    } else if (kept && c.newest - cohorts[kept - 1].oldest <= (now_ - c.newest) / 4) {
      Cohort& into = cohorts[kept - 1];
      lists_.splice_back(into.list, c.list);
      free_lists_.push_back(c.list);
      into.newest = c.newest;
      into.open += c.open;
      into.evictable += c.evictable;
    } else {
      cohorts[kept++] = c;
    }
  }
  cohorts.resize(kept);
}

// The rates of the classes first ... last - 1 taken together: those of `above` times one factor, and what was seen beyond that.
void HazardOrder::rates(std::size_t first, std::size_t last, const Row& above, double guess, double lean,
                        Row& rate) {
  Row reused{}, exposed{};
  double seen = kGuessReuses * guess, expected = kGuessReuses;
  for (std::size_t a = 0; a < kAges; ++a) {
    for (std::size_t kind = first; kind < last; ++kind)
      reused[a] += reused_[kind * kAges + a], exposed[a] += exposed_[kind * kAges + a];
    seen += reused[a];
    expected += exposed[a] * above[a];
  }
  for (std::size_t a = 0; a < kAges; ++a) {
    const double held = lean * (kEdges[a + 1] - kEdges[a]);
    rate[a] = (held * above[a] * (seen / expected) + reused[a]) / (held + exposed[a]);
  }
}

void HazardOrder::learn() {
  const double fade = std::exp2(-static_cast<double>(since_learn_) / half_life_);
  for (double& x : reused_) x *= fade;
  for (double& x : exposed_) x *= fade;
  // Of all blocks, of those with a number of uses, of a class.
  Row first_guess{}, all, uses, one;
  for (std::size_t a = 0; a < kAges; ++a) first_guess[a] = kFirstRate / (kEdges[a] + 1);
  rates(0, kClasses, first_guess, 1, kLeanAll, all);
  for (std::size_t count = 0; count < kCounts; ++count) {
    const std::size_t first = count ? 1 + (count - 1) * kGaps : 0, last = count ? first + kGaps : 1;
    rates(first, last, all, kGuess[std::min(count, std::size(kGuess) - 1)], kLeanUses, uses);
    index_of(uses, first);
    if (!count) continue;
    for (std::size_t kind = last; kind-- > first;) {
      if (cohorts_[kind]
              .empty()) {  // as the others with so many uses, whose index stands at `first` until its turn
        std::copy_n(&index_[first * kAges], kAges, &index_[kind * kAges]);
      } else {
        rates(kind, kind + 1, uses, 1, kLeanClass, one);
        index_of(one, kind);
      }
    }
  }
}

// The Gittins index at each age: the most, over ages to hold a block until, of its chance of reuse / the expected time held.
void HazardOrder::index_of(const Row& rate, std::size_t kind) {
  Row stays, held;  // through the age, for a block that has reached it
  for (std::size_t a = 0; a < kAges; ++a) {
    const double width = kEdges[a + 1] - kEdges[a];
    stays[a] = std::max(1e-3, std::exp(-rate[a] * width));
    held[a] = width * 0.5 * (1 + stays[a]);
  }
  for (std::size_t a = 0; a < kAges; ++a) {
    double best = 0, left = 1, time = 0;
    for (std::size_t k = a; k < kAges && left > 1e-3; ++k) {
      time += left * held[k];
      left *= stays[k];
      best = std::max(best, (1 - left) / time);
    }
    index_[kind * kAges + a] = best;
  }
}

}  // namespace qf::cache
