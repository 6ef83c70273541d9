#include "kernels/packing/ejection.hpp"

#include <array>
#include <cmath>
#include <numeric>

#include "kernels/packing/rank.hpp"
#include "kernels/packing/settle.hpp"

namespace lowtide {
namespace {

constexpr int64_t kWorkPerConflict = 24;  // about what sorting one takes
constexpr int64_t kFirstWork = 200'000, kTriesOfOneLength = 4;
constexpr double kGrowth = 0.2;      // per time that an item pushes others out, of its first weight
constexpr double kTightness = 0.01;  // spare share of a section that halves the weight of a full one
constexpr double kRounding = 1e-9;
constexpr size_t kFewEdges = 64;     // below which comparing sorts them sooner than digits do
constexpr uint64_t kDigitBits = 8;
constexpr uint64_t kStepsPerPoll = 4096;
constexpr int kSeedBits = 20;  // more than tries can be

// A divisor of all offsets of settled items.
int64_t unit_of(const PackItems& items) {
  int64_t sizes = 0;
  for (int64_t size : items.sizes) sizes = std::gcd(sizes, size);
  int64_t unit = sizes;
  for (int64_t alignment : items.alignment)
    if (sizes % alignment != 0) unit = std::gcd(unit, alignment);
  return std::max<int64_t>(unit, 1);
}

class Ejection {
 public:
  Ejection(const PackItems& items, int64_t capacity, std::span<const int64_t> start, const PackLimits& limits)
      : items_(items), unit_(unit_of(items)), capacity_(capacity / unit_ * unit_), limits_(limits), by_first_(items.n()),
        conflicts_(items.n()), known_(items.n(), 0), best_(start.begin(), start.end()) {
    settle(items, best_);
    std::iota(by_first_.begin(), by_first_.end(), 0);
    std::stable_sort(by_first_.begin(), by_first_.end(), [&](int32_t a, int32_t b) { return items.first[a] < items.first[b]; });
    for (int32_t i = 0; i < items.n(); ++i)
      if (best_[i] < 0 || best_[i] + items.sizes[i] > capacity_) {
        best_[i] = -1;
        least_waiting_ += area(i);
      }
    weigh();
  }

  const std::vector<int64_t>& offsets() const { return offset_; }
  int64_t work() const { return work_; }
  bool may_go_on() { return work_ < limits_.work && !(stopped_ = stopped_ || !limits_.go_on()); }

  bool run(uint64_t seed, int64_t most_work) {
    most_work = std::min(work_ + most_work, limits_.work);
    begin();
    for (uint64_t step = 0; !waiting_.empty(); ++step) {
      if (work_ >= most_work || (step % kStepsPerPoll == kStepsPerPoll - 1 && !may_go_on())) return false;
      const auto turn = static_cast<size_t>(noise(seed, 2 * step) * static_cast<double>(waiting_.size()));
      const int32_t item = waiting_[turn];
      waiting_[turn] = waiting_.back();
      waiting_.pop_back();
      waiting_area_ -= area(item);
      place(item, noise(seed, 2 * step + 1));
      if (waiting_area_ < least_waiting_ * (1 - kRounding)) {
        least_waiting_ = waiting_area_;
        best_ = offset_;
        work_ += items_.n();
      }
    }
    return true;
  }

 private:
  // Where something in the way begins or ends; a multiple of the unit, and one more where it begins.
  struct Edge {
    uint64_t key;
    double weight;
  };

  double area(int32_t item) const {
    return std::sqrt(static_cast<double>(items_.last[item] - items_.first[item]) * static_cast<double>(items_.sizes[item]));
  }

  void weigh() {
    const int32_t n_sections = items_.n_sections();
    std::vector<double> live(n_sections + 1, 0), tight(n_sections + 1, 0);
    for (int32_t i = 0; i < items_.n(); ++i) {
      live[items_.first[i]] += static_cast<double>(items_.sizes[i]);
      live[items_.last[i]] -= static_cast<double>(items_.sizes[i]);
    }
    std::partial_sum(live.begin(), live.end(), live.begin());
    for (int32_t s = 0; s < n_sections; ++s)
      tight[s + 1] = tight[s] + 1 / (std::max(0.0, 1 - live[s] / static_cast<double>(capacity_)) + kTightness);
    for (int32_t i = 0; i < items_.n(); ++i)
      first_weight_.push_back(std::sqrt((tight[items_.last[i]] - tight[items_.first[i]]) * static_cast<double>(items_.sizes[i])));
    weight_ = first_weight_;
    work_ += items_.n();
  }

  void begin() {
    offset_ = best_;
    waiting_.clear();
    waiting_area_ = least_waiting_;
    for (int32_t i = 0; i < items_.n(); ++i)
      if (offset_[i] < 0) waiting_.push_back(i);
    work_ += items_.n();
  }

  const std::vector<int32_t>& conflicts_of(int32_t item) {
    std::vector<int32_t>& found = conflicts_[item];
    if (known_[item]) return found;
    known_[item] = 1;
    for (int32_t other : by_first_) {
      if (items_.first[other] >= items_.last[item]) break;
      if (other != item && items_.last[other] > items_.first[item]) found.push_back(other);
    }
    work_ += items_.n();
    return found;
  }

  // Places an item, and pushes out what is in its way.
  void place(int32_t item, double chance) {
    const auto& others = conflicts_of(item);
    work_ += kWorkPerConflict * static_cast<int64_t>(others.size());
    const int64_t at = cheapest(item, others, chance), top = at + items_.sizes[item];
    offset_[item] = at;
    bool pushes = false;
    for (int32_t other : others)
      if (offset_[other] >= 0 && offset_[other] < top && at < offset_[other] + items_.sizes[other]) {
        offset_[other] = -1;
        waiting_.push_back(other);
        waiting_area_ += area(other);
        pushes = true;
      }
    if (pushes) weight_[item] += kGrowth * first_weight_[item];
  }

  uint64_t units(int64_t bytes) const { return static_cast<uint64_t>(bytes / unit_); }
  int64_t at(const Edge& edge) const { return static_cast<int64_t>(edge.key / 2) * unit_ + static_cast<int64_t>(edge.key % 2); }

  // Sorts the edges by the digits of their keys; many are sorted so in a third of the time.
  void sort_edges() {
    if (edges_.size() < kFewEdges) {
      std::stable_sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) { return a.key < b.key; });
      return;
    }
    sorted_.resize(edges_.size());
    for (uint64_t shift = 0; (2 * units(capacity_) + 1) >> shift != 0; shift += kDigitBits) {
      std::array<uint32_t, size_t{1} << kDigitBits> begin{};
      auto digit = [&](const Edge& edge) { return (edge.key >> shift) % begin.size(); };
      for (const Edge& edge : edges_) ++begin[digit(edge)];
      std::exclusive_scan(begin.begin(), begin.end(), begin.begin(), 0U);
      for (const Edge& edge : edges_) sorted_[begin[digit(edge)]++] = edge;
      edges_.swap(sorted_);
    }
  }

  // The offset where what is in the way weighs least, next to another item, in the tightest room; `chance` tells equals apart.
  int64_t cheapest(int32_t item, const std::vector<int32_t>& others, double chance) {
    const int64_t size = items_.sizes[item], alignment = items_.alignment[item], past = capacity_ - size + 1;
    edges_.clear();
    for (int32_t other : others)
      if (offset_[other] >= 0) {
        const int64_t low = offset_[other] - size;
        edges_.push_back({low < 0 ? 0 : 2 * units(low) + 1, weight_[other]});
        edges_.push_back({2 * units(offset_[other] + items_.sizes[other]), -weight_[other]});
      }
    sort_edges();
    equals_.clear();
    double least = 1e300, weight = 0;
    int64_t room = INT64_MAX;
    size_t k = 0;
    for (int64_t begin = 0, end = 0; begin < past; begin = end) {
      bool touches_below = begin == 0;
      for (; k < edges_.size() && at(edges_[k]) <= begin; ++k) {
        weight += edges_[k].weight;
        touches_below |= at(edges_[k]) == begin && edges_[k].weight < 0;
      }
      end = k < edges_.size() ? std::min(at(edges_[k]), past) : past;
      const int64_t low = aligned(begin, alignment), high = (end - 1) / alignment * alignment;
      const double rounding = kRounding * (1 + weight);
      if (low >= end || weight > least + rounding || (weight > least - rounding && end - begin > room)) continue;
      if (weight < least - rounding || end - begin < room) {
        least = weight;
        room = end - begin;
        equals_.clear();
      }
      equals_.push_back(touches_below ? low : high);
      if (touches_below && high != low) equals_.push_back(high);
    }
    return equals_[static_cast<size_t>(chance * static_cast<double>(equals_.size()))];
  }

  const PackItems& items_;
  const int64_t unit_, capacity_;
  const PackLimits& limits_;
  std::vector<int32_t> by_first_, waiting_;
  std::vector<std::vector<int32_t>> conflicts_;  // as far as known
  std::vector<char> known_;
  std::vector<int64_t> best_, offset_, equals_;  // the packing in which the least waits; the one in the making
  std::vector<double> first_weight_, weight_;
  std::vector<Edge> edges_, sorted_;
  double waiting_area_ = 0, least_waiting_ = 0;
  int64_t work_ = 0;
  bool stopped_ = false;
};

}  // namespace

PackFitResult fit_by_ejection(const PackItems& items, int64_t capacity, std::span<const int64_t> offsets, uint64_t seed,
                              const PackLimits& limits) {
  PackFitResult result;
  for (int64_t size : items.sizes)
    if (size > capacity) return result;
  Ejection ejection(items, capacity, offsets, limits);
  for (uint64_t turn = 0; result.fit == PackFit::kStopped && ejection.may_go_on(); ++turn) {
    const int64_t most_work = kFirstWork << std::min<uint64_t>(turn / kTriesOfOneLength, 20);
    if (ejection.run((seed << kSeedBits) + turn + 1, most_work)) result.fit = PackFit::kFound;
  }
  if (result.fit == PackFit::kFound) {
    result.offsets = ejection.offsets();
    settle(items, result.offsets);
  }
  result.work = ejection.work();
  return result;
}

}  // namespace lowtide
