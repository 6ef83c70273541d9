#include "kernels/packing/by_pairs.hpp"

namespace lowtide {
namespace {

constexpr int64_t kNodesPerPoll = 1024;

int64_t aligned_down(int64_t offset, int64_t alignment) { return offset - offset % alignment; }

// Offsets of `one` and `two` whose difference two - one lies strictly between `below` and `above` make them share bytes.
struct Clash {
  int32_t one, two;
  int64_t below, above;
};

// The offset of `upper` is at least that of `lower` plus `distance`.
struct Order {
  int32_t lower, upper;
  int64_t distance;
};

// Bytes that an item takes in a section, above its offset.
struct Taken {
  int32_t item;
  int64_t low, high;
};

class PairSearch {
 public:
  PairSearch(const PackItems& items, int64_t capacity, const PackLimits& limits)
      : items_(items), capacity_(capacity), limits_(limits), above_(items.n()), below_(items.n()) {
    for (int32_t i = 0; i < items.n(); ++i)
      for (int32_t j = i + 1; j < items.n(); ++j) add_clashes(i, j);
    std::stable_sort(clashes_.begin(), clashes_.end(), [&](const Clash& a, const Clash& b) {
      return smaller_of(a) > smaller_of(b);
    });
    if (items.may_overlap.offsets.empty()) find_taken();
  }

  PackFitResult run() {
    PackFitResult result;
    result.fit = set_limits() ? solve() : PackFit::kImpossible;
    if (result.fit == PackFit::kFound) result.offsets = least_;
    result.work = work_;
    return result;
  }

 private:
  int64_t smaller_of(const Clash& clash) const { return std::min(items_.sizes[clash.one], items_.sizes[clash.two]); }

  std::vector<Piece> pieces_of(int32_t item) const {
    if (items_.rectangles()) return {{items_.first[item], items_.last[item], 0, items_.sizes[item], item}};
    const auto pieces = items_.pieces_of(item);
    return {pieces.begin(), pieces.end()};
  }

  void add_clashes(int32_t one, int32_t two) {
    std::vector<std::pair<int64_t, int64_t>> intervals;
    for (const Piece& p : pieces_of(one))
      for (const Piece& q : pieces_of(two))
        if (items_.conflict(p, q)) intervals.push_back({p.low - q.high, p.high - q.low});
    std::sort(intervals.begin(), intervals.end());
    for (size_t k = 0; k < intervals.size();) {
      auto [below, above] = intervals[k];
      for (++k; k < intervals.size() && intervals[k].first < above; ++k) above = std::max(above, intervals[k].second);
      clashes_.push_back({one, two, below, above});
    }
  }

  void find_taken() {
    taken_.resize(items_.n_sections());
    for (int32_t i = 0; i < items_.n(); ++i) {
      for (const Piece& piece : pieces_of(i))
        for (int32_t s = piece.first; s < piece.last; ++s) {
          // pieces ascend by low end, so that aliases come one after the other
          if (!taken_[s].empty() && taken_[s].back().item == i && piece.low < taken_[s].back().high)
            taken_[s].back().high = std::max(taken_[s].back().high, piece.high);
          else
            taken_[s].push_back({i, piece.low, piece.high});
        }
    }
  }

  bool set_limits() {
    for (int32_t i = 0; i < items_.n(); ++i) {
      const int64_t at = items_.fixed[i], most = capacity_ - items_.sizes[i];
      if (most < 0 || at > most) return false;
      least_.push_back(at >= 0 ? at : 0);
      most_.push_back(at >= 0 ? at : aligned_down(most, items_.alignment[i]));
    }
    return true;
  }

  bool raise(int32_t item, int64_t offset) {
    if (offset <= least_[item]) return true;
    trail_.push_back({item, least_[item], most_[item]});
    least_[item] = aligned(offset, items_.alignment[item]);
    moved_.push_back(item);
    return least_[item] <= most_[item];
  }

  bool lower(int32_t item, int64_t offset) {
    if (offset >= most_[item]) return true;
    if (offset < 0) return false;
    trail_.push_back({item, least_[item], most_[item]});
    most_[item] = aligned_down(offset, items_.alignment[item]);
    moved_.push_back(item);
    return least_[item] <= most_[item];
  }

  bool hold(const Order& order) {
    return raise(order.upper, least_[order.lower] + order.distance) &&
           lower(order.lower, most_[order.upper] - order.distance);
  }

  // Adds a decision, and all that follows from it.
  bool decide(const Order& order) {
    decided_.push_back(order);
    above_[order.lower].push_back(order);
    below_[order.upper].push_back(order);
    return hold(order) && settle();
  }

  bool settle() {
    while (!moved_.empty()) {
      const int32_t item = moved_.back();
      moved_.pop_back();
      work_ += static_cast<int64_t>(above_[item].size() + below_[item].size()) + 1;
      for (const Order& order : above_[item])
        if (!hold(order)) return false;
      for (const Order& order : below_[item])
        if (!hold(order)) return false;
    }
    return true;
  }

  void undo(size_t trail, size_t decided) {
    moved_.clear();
    for (; trail_.size() > trail; trail_.pop_back()) {
      least_[trail_.back().item] = trail_.back().least;
      most_[trail_.back().item] = trail_.back().most;
    }
    for (; decided_.size() > decided; decided_.pop_back()) {
      above_[decided_.back().lower].pop_back();
      below_[decided_.back().upper].pop_back();
    }
  }

  static Order two_above(const Clash& clash) { return {clash.one, clash.two, clash.above}; }
  static Order two_below(const Clash& clash) { return {clash.two, clash.one, -clash.below}; }
  bool possible(const Order& order) const { return least_[order.lower] + order.distance <= most_[order.upper]; }
  bool holds(const Order& order) const { return least_[order.lower] + order.distance <= least_[order.upper]; }

  // Decides all clashes with one side left, to a fixed point; false when one has none.
  bool force() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Clash& clash : clashes_) {
        ++work_;
        const bool above = possible(two_above(clash)), below = possible(two_below(clash));
        if (!above && !below) return false;
        if (above && below) continue;
        const Order order = above ? two_above(clash) : two_below(clash);
        if (most_[order.lower] + order.distance <= least_[order.upper]) continue;  // cannot but hold
        if (holds_for_good(order)) continue;
        if (!decide(order)) return false;
        changed = true;
      }
    }
    return true;
  }

  bool holds_for_good(const Order& order) const {
    return std::any_of(above_[order.lower].begin(), above_[order.lower].end(), [&](const Order& other) {
      return other.upper == order.upper && other.distance >= order.distance;
    });
  }

  // Whether the bytes alive in every section fit above their least offsets.
  bool sections_fit() {
    std::vector<std::pair<int64_t, int64_t>> spans;
    for (const auto& section : taken_) {
      spans.clear();
      for (const Taken& taken : section) spans.push_back({least_[taken.item] + taken.low, taken.high - taken.low});
      std::sort(spans.begin(), spans.end());
      work_ += static_cast<int64_t>(spans.size());
      int64_t end = 0;
      for (const auto& [low, height] : spans) end = std::max(end, low) + height;
      if (end > capacity_) return false;
    }
    return true;
  }

  PackFit solve() {
    if (work_ >= limits_.work || (++nodes_ % kNodesPerPoll == 0 && !limits_.go_on())) return PackFit::kStopped;
    if (!force() || !sections_fit()) return PackFit::kImpossible;
    const auto open = std::find_if(clashes_.begin(), clashes_.end(), [&](const Clash& clash) {
      return !holds(two_above(clash)) && !holds(two_below(clash));
    });
    if (open == clashes_.end()) return PackFit::kFound;
    const Clash clash = *open;
    for (const Order& order : {two_above(clash), two_below(clash)}) {
      const size_t trail = trail_.size(), decided = decided_.size();
      const PackFit fit = decide(order) ? solve() : PackFit::kImpossible;
      if (fit != PackFit::kImpossible) return fit;
      undo(trail, decided);
    }
    return PackFit::kImpossible;
  }

  struct Before {
    int32_t item;
    int64_t least, most;
  };

  const PackItems& items_;
  const int64_t capacity_;
  const PackLimits& limits_;
  std::vector<Clash> clashes_;
  std::vector<std::vector<Taken>> taken_;  // per section, or none where pairs may overlap
  std::vector<std::vector<Order>> above_, below_;
  std::vector<Order> decided_;
  std::vector<int64_t> least_, most_;
  std::vector<Before> trail_;
  std::vector<int32_t> moved_;
  int64_t work_ = 0, nodes_ = 0;
};

}  // namespace

PackFitResult fit_by_pairs(const PackItems& items, int64_t capacity, const PackLimits& limits) {
  return PairSearch(items, capacity, limits).run();
}

}  // namespace lowtide
